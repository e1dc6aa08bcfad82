"""Networks whose failure probabilities are compared, and references from draws and by subsets."""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.scipy.special import ndtr

import nn_uq_dist as nuq
from tests.benchmarks._networks import apply, random_layers

NUM_INPUTS = (2, 4, 12, 31)
KINDS = ("box", "normal", "mixed")
ACTIVATIONS = ("tanh", "leaky ReLU")
NUM_CASES = len(NUM_INPUTS) * len(KINDS) * len(ACTIVATIONS)
WIDTH = 24
DRAWS_AT_ONCE = 2**16


class Case(NamedTuple):
    """A network of one output, and the distribution of its input."""

    name: str
    network: Callable
    f: nuq.Input

    def at_scores(self, z):
        """Output at standard normal variables, one for each input."""
        uniform, scale = self.f.half_width, self.f.normal_scale
        x = self.f.mean
        x = x + (0 if uniform is None else uniform * (2 * ndtr(z) - 1))
        return self.network(x + (0 if scale is None else scale * z))[0]

    def each_draws(self, key, count, start, step):
        """The steps ``step(carry, y)`` over outputs of draws, and the number of these."""

        def one(carry, key):
            z = jax.random.normal(key, (DRAWS_AT_ONCE, self.f.num_inputs))
            return step(carry, jax.vmap(self.at_scores)(z)), None

        number = -(-count // DRAWS_AT_ONCE)
        scan = jax.jit(lambda keys: lax.scan(one, start, keys)[0])
        return np.asarray(scan(jax.random.split(key, number))), number * DRAWS_AT_ONCE


def make_case(number):
    """Case `number` of `NUM_CASES`, in the default type of JAX: two hidden layers."""
    rng = np.random.default_rng(7000 + number)
    d = NUM_INPUTS[number // 6]
    activation, kind = ACTIVATIONS[number // 3 % 2], KINDS[number % 3]
    layers = random_layers(rng, [d, WIDTH, WIDTH, 1], gain=2**0.5, bias=0.3)
    network = partial(apply, layers, jnp.tanh if activation == "tanh" else jax.nn.leaky_relu)
    reach = (0.3, 1.0)[(number + number // 6) % 2]
    mean = jnp.asarray(rng.normal(size=d) * 0.5)
    in_box = np.full(d, kind == "box") if kind != "mixed" else np.arange(d) % 2 == 0
    box = nuq.Input.box(mean, np.where(in_box, reach, 0.0))
    normal = nuq.Input.normal(mean, np.where(in_box, 0.0, reach / np.sqrt(3)))
    both = {"box": box, "normal": normal, "mixed": nuq.Input(mean, box.terms + normal.terms)}
    return Case(f"{d} inputs, {activation}, {kind}", network, both[kind])


def largest_of_draws(case, key, count, keep):
    """The `keep` largest outputs and the `keep` largest negated ones of plain draws, sorted."""

    def step(carry, y):
        return lax.top_k(jnp.concatenate([carry, jnp.stack([y, -y])], axis=1), keep)[0]

    return case.each_draws(key, count, jnp.full((2, keep), -jnp.inf), step)[0]


def num_beyond(case, key, count, limits):
    """How many of plain draws are above limits ``(2, n)``, the second row for the negated output.

    Returns the number of draws too.
    """

    def step(carry, y):
        both = jnp.stack([y, -y])[:, :, None] > jnp.asarray(limits)[:, None, :]
        return carry + both.sum(axis=1)

    return case.each_draws(key, count, jnp.zeros(limits.shape, int), step)


def subset_limits(case, key, sign, levels, count):
    """Limits of subset simulation with probabilities .1, .01, ... (S. K. Au and J. L. Beck 2001).

    Its chains move by correlated normal steps.
    """
    value = jax.jit(jax.vmap(lambda z: sign * case.at_scores(z)))
    key, draw = jax.random.split(key)
    z = jax.random.normal(draw, (count, case.f.num_inputs))
    y = value(z)
    chains = count // 10

    @jax.jit
    def step(z, y, key, limit, size):
        one, _ = jax.random.split(key)
        new = jnp.sqrt(1 - size**2) * z + size * jax.random.normal(one, z.shape)
        found = value(new)
        better = found > limit
        z, y = jnp.where(better[:, None], new, z), jnp.where(better, found, y)
        return z, y, better.mean()

    limits, size = [], 0.8
    for _ in range(levels):
        order = jnp.argsort(-y)
        limit = y[order[chains - 1]]
        limits.append(float(limit))
        z, y = z[order[:chains]], y[order[:chains]]
        kept = []
        # Twice as many steps as are kept: chains forget where they began.
        for index in range(20):
            key, draw = jax.random.split(key)
            z, y, rate = step(z, y, draw, limit, jnp.asarray(size))
            size = float(np.clip(size * np.exp(0.5 * (float(rate) - 0.4)), 0.01, 1.0))
            if index % 2:
                kept.append((z, y))
        z, y = (jnp.concatenate(part) for part in zip(*kept, strict=True))
    return np.asarray(limits)
