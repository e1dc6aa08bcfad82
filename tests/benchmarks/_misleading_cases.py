"""Functions that mislead a search for failures, with known probabilities."""

import math
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import gammaincc, ndtr
from scipy.stats import binom

import nn_uq_dist as nuq


def normal(d):
    return nuq.Input.normal(jnp.zeros(d), 1.0)


def half_spaces(distances, slopes, x):
    return jnp.max(jnp.asarray(slopes) * (x[: len(distances)] - jnp.asarray(distances)))


# Nodes over one standard normal variable, and weights of its density.
NODES = np.linspace(-9.0, 9.0, 2_000_001)
WEIGHTS = (NODES[1] - NODES[0]) * np.exp(-(NODES**2) / 2) / math.sqrt(2 * math.pi)


def bend(at, slope, x):
    return x[0] + slope * jax.nn.relu(x[1] - at)


def plateau(end, x):
    along = x.sum() / math.sqrt(x.size)
    return jnp.minimum(along, 1.0) + jax.nn.relu(along - end)


def wedge(at, slope, x):
    """Half of what fails is beyond a gentle slope, half in a wedge to which none leads."""
    return jnp.maximum(x[0] - 5.2, slope * (jnp.min(x[1:4]) - at))


def two_corners(slope, x):
    """Opposite corners of a box, up to 1.3 away in the sum of distances; one is steeper."""
    near, far = jnp.abs(x - 1).sum(), jnp.abs(x + 1).sum()
    return jnp.maximum(1.3 - near, slope * (1.3 - far))


def parallel_pairs(ends, x):
    """A pair fails if both of its components do."""
    return jnp.max(jnp.min(x.reshape(-1, 2) - jnp.asarray(ends, x.dtype), axis=1))


def misleading_cases():
    """Kind, network, distribution, limit and probability."""
    for d, distances, ratio in (
        (2, (4.0, 4.2), 1e4), (5, (4.0, 4.1, 4.3), 10), (8, (3.5,) * 4, 1), (12, (4.4,) * 5, 100),
        (20, (4.2,) * 8, 1e3), (31, (4.5,) * 6, 10), (31, (4.3,) * 12, 1e4),
    ):  # fmt: skip
        share = -math.expm1(np.log1p(-ndtr(-np.array(distances))).sum())
        slopes = np.geomspace(1, ratio, len(distances))
        yield "half-spaces", partial(half_spaces, distances, slopes), normal(d), 0.0, share
    for d in (16, 20, 25, 31):
        share = -math.expm1(2 * d * math.log1p(-ndtr(-4.5)))
        yield "32 to 62 half-spaces", lambda x: jnp.max(jnp.abs(x)), normal(d), 4.5, share
    for at, slope, limit in ((5.0, 20.0, 4.9), (4.5, 10.0, 4.6), (5.2, 50.0, 5.3)):
        share = float(WEIGHTS @ ndtr(slope * np.maximum(NODES - at, 0) - limit))
        yield "bend", partial(bend, at, slope), normal(3), limit, share
    for end, limit in ((3.0, 2.5), (3.5, 1.8)):
        yield "plateau", partial(plateau, end), normal(30), limit, ndtr(-(end + limit - 1))
    for number, limit in ((1, 16.0), (3, 20.0), (5, 24.0)):
        box = nuq.Input.box(jnp.full(number, 0.5), 0.5)
        yield "-log(u)", lambda x: -jnp.log(x).sum(), box, limit, float(gammaincc(number, limit))
    for limit in (4.0, 2.0, 0.0, -2.0, -4.0):
        yield "one input", lambda x: x[0], normal(1), limit, ndtr(-limit)
    for d, at in ((1, 3.0), (1, -1.0), (12, 3.5)):
        yield "step", lambda x, at=at: jnp.where(x[0] > at, 1.0, 0.0), normal(d), 0.5, ndtr(-at)
    for limit in (0.5, 0.999):
        share = float(WEIGHTS @ (np.sin(3 * NODES) > limit))
        yield "sine", lambda x: jnp.sin(3 * x[0]), normal(1), limit, share
    yield from steep_regions()
    yield from systems()


def systems():
    """Components that have to fail together: k of n, all of them to either side, parallel pairs."""
    for k, n, at in ((2, 3, 4.0), (3, 4, 2.5), (2, 4, 3.0), (3, 5, 3.7), (2, 6, 2.5), (2, 10, 3.0)):
        network = partial(lambda k, x: jnp.sort(x)[-k], k)
        yield "k of n", network, normal(n), at, float(binom.sf(k - 1, n, ndtr(-at)))
    for n, at in ((2, 2.2), (2, 4.0), (3, 2.5)):
        yield "corners", lambda x: jnp.min(jnp.abs(x)), normal(n), at, (2 * ndtr(-at)) ** n
    for ends in ([(4, 4)] * 2, [(3, 3)] * 3, [(3, 2.5), (3.5, 2.2), (2.8, 2.9)]):
        share = -math.expm1(np.log1p(-ndtr(-np.array(ends)).prod(axis=1)).sum())
        network = partial(parallel_pairs, np.array(ends))
        yield "parallel pairs", network, normal(2 * len(ends)), 0.0, float(share)


def steep_regions():
    """Regions that are hidden behind a gentle slope, in the same terms."""
    for at, slope in ((2.6, 4.0), (2.6, 10.0), (2.4, 10.0)):
        share = 1 - (1 - ndtr(-5.2)) * (1 - ndtr(-at) ** 3)
        yield "wedge", partial(wedge, at, slope), normal(6), 0.0, share
    for slope in (3.0, 10.0):
        share = 2 * (1.3 / 2) ** 8 / math.factorial(8)
        box = nuq.Input.box(jnp.zeros(8), 1.0)
        yield "two corners", partial(two_corners, slope), box, 0.0, share
