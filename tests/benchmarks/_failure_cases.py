"""Networks whose failure probabilities are compared, and references from draws and by subsets."""

import itertools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.scipy.special import ndtr

import nn_uq_dist as nuq

NUM_INPUTS = (2, 4, 12, 31)
KINDS = ("box", "normal", "mixed")
ACTIVATIONS = ("tanh", "leaky ReLU")
NUM_CASES = len(NUM_INPUTS) * len(KINDS) * len(ACTIVATIONS)
WIDTH = 24
# Draws of one program.
_GROUP = 2**16


class Case(NamedTuple):
    """A random network of one output and two hidden layers, and the distribution of its input."""

    name: str
    network: Callable[[Array], Array]
    f: nuq.Input

    def at_scores(self, z: Array) -> Array:
        """Output at standard normal variables, one for each input."""
        uniform, scale = self.f.half_width, self.f.normal_scale
        x = self.f.mean
        x = x + (0 if uniform is None else uniform * (2 * ndtr(z) - 1))
        return self.network(x + (0 if scale is None else scale * z))[0]


def make_case(number: int) -> Case:
    """Case `number` of `NUM_CASES`, in the default type of JAX."""
    rng = np.random.default_rng(7000 + number)
    d = NUM_INPUTS[number // 6]
    activation, kind = ACTIVATIONS[number // 3 % 2], KINDS[number % 3]
    sizes = [d, WIDTH, WIDTH, 1]
    layers = [
        (
            jnp.asarray(rng.normal(size=(b, a)) * np.sqrt(2 / a)),
            jnp.asarray(rng.normal(size=b) * 0.3),
        )
        for a, b in itertools.pairwise(sizes)
    ]
    bend = jnp.tanh if activation == "tanh" else jax.nn.leaky_relu

    def network(x: Array) -> Array:
        for weights, shift in layers[:-1]:
            x = bend(weights @ x + shift)
        return layers[-1][0] @ x + layers[-1][1]

    reach = (0.3, 1.0)[(number + number // 6) % 2]
    mean = jnp.asarray(rng.normal(size=d) * 0.5)
    in_box = np.full(d, kind == "box") if kind != "mixed" else np.arange(d) % 2 == 0
    box = nuq.Input.box(mean, np.where(in_box, reach, 0.0))
    normal = nuq.Input.normal(mean, np.where(in_box, 0.0, reach / np.sqrt(3)))
    if in_box.all():
        distribution = box
    elif in_box.any():
        distribution = nuq.Input(mean, box.terms + normal.terms)
    else:
        distribution = normal
    return Case(f"{d} inputs, {activation}, {kind}", network, distribution)


def largest_of_draws(case: Case, key: Array, count: int, keep: int) -> np.ndarray:
    """The `keep` largest outputs and the `keep` largest negated ones of plain draws, sorted."""
    d = case.f.num_inputs

    @jax.jit
    def group(carry: Array, key: Array) -> tuple[Array, None]:
        y = jax.vmap(case.at_scores)(jax.random.normal(key, (_GROUP, d)))
        both = jnp.concatenate([carry, jnp.stack([y, -y])], axis=1)
        return lax.top_k(both, keep)[0], None

    start = jnp.full((2, keep), -jnp.inf)
    number = -(-count // _GROUP)
    found, _ = jax.jit(lambda keys: lax.scan(group, start, keys))(jax.random.split(key, number))
    return np.asarray(found)


def num_beyond(case: Case, key: Array, count: int, limits: np.ndarray) -> tuple[np.ndarray, int]:
    """How many of plain draws are above limits ``(2, n)``, the second row for the negated output.

    Returns the number of draws too.
    """
    d = case.f.num_inputs

    def group(carry: Array, key: Array) -> tuple[Array, None]:
        y = jax.vmap(case.at_scores)(jax.random.normal(key, (_GROUP, d)))
        both = jnp.stack([y, -y])[:, :, None] > jnp.asarray(limits)[:, None, :]
        return carry + both.sum(axis=1), None

    start = jnp.zeros(limits.shape, int)
    number = -(-count // _GROUP)
    found, _ = jax.jit(lambda keys: lax.scan(group, start, keys))(jax.random.split(key, number))
    return np.asarray(found), number * _GROUP


def subset_limits(case: Case, key: Array, sign: float, levels: int, count: int) -> np.ndarray:
    """Limits of subset simulation with probabilities .1, .01, ... (S. K. Au and J. L. Beck 2001).

    Its chains move by correlated normal steps.
    """
    d = case.f.num_inputs
    value = jax.jit(jax.vmap(lambda z: sign * case.at_scores(z)))
    key, draw = jax.random.split(key)
    z = jax.random.normal(draw, (count, d))
    y = value(z)
    chains = count // 10

    @jax.jit
    def step(state: tuple[Array, Array], given: tuple[Array, Array, Array]):
        z, y = state
        key, limit, size = given
        one, _ = jax.random.split(key)
        new = jnp.sqrt(1 - size**2) * z + size * jax.random.normal(one, z.shape)
        found = value(new)
        better = found > limit
        z, y = jnp.where(better[:, None], new, z), jnp.where(better, found, y)
        return (z, y), better.mean()

    limits = []
    size = 0.8
    for _ in range(levels):
        order = jnp.argsort(-y)
        limit = y[order[chains - 1]]
        limits.append(float(limit))
        z, y = z[order[:chains]], y[order[:chains]]
        zs, ys = [], []
        # Twice as many steps as are kept: chains forget where they began.
        for index in range(20):
            key, draw = jax.random.split(key)
            (z, y), rate = step((z, y), (draw, limit, jnp.asarray(size)))
            size = float(np.clip(size * np.exp(0.5 * (float(rate) - 0.4)), 0.01, 1.0))
            if index % 2:
                zs.append(z)
                ys.append(y)
        z, y = jnp.concatenate(zs), jnp.concatenate(ys)
    return np.asarray(limits)
