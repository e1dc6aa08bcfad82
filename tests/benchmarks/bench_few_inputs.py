"""Error against cost for networks of two to four inputs: corrected distributions and draws.

``--inputs 2 --counts 100 1000 --keys 1`` for a short run. References are a million draws with
another key.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import nn_uq_dist as nuq
from tests.benchmarks._command_line import head, options, row
from tests.benchmarks._peers import empirical_cdf

COUNTS = (10, 30, 100, 300, 1000, 3000, 10_000, 30_000, 100_000)
OUTPUTS = ("bimodal", "one-sided", "square")
HALF_WIDTH = 1.5
REFERENCE_DRAWS = 1_000_000
NUM_POINTS = 2000
# Of the points of pairs, whose scatter tells their noise; Sobol points alone are one set.
RANDOMIZATIONS = 4
METHODS = ("plain", "Sobol", "corrected tangent")


class Case(NamedTuple):
    """A network of few inputs with its input distribution and what a million draws say."""

    net: Callable
    f: nuq.Input
    points: np.ndarray  # outputs at which distribution functions are compared
    probabilities: np.ndarray

    def distances(self, cdf):
        """Kolmogorov-Smirnov distances of distribution functions of the outputs."""
        found = np.asarray(cdf(jnp.asarray(self.points, jnp.float32)), np.float64)
        return np.abs(found - self.probabilities[:, None]).max(axis=0)


def make_case(num_inputs, activation):
    """Two hidden layers of 16, and three functions of what comes out."""
    rng = np.random.default_rng(10 * num_inputs)
    first = rng.normal(size=(16, num_inputs)) / np.sqrt(num_inputs)
    second, last = rng.normal(size=(16, 16)) / 4, rng.normal(size=(1, 16)) / 4
    biases = rng.normal(size=16) * 0.5, rng.normal(size=16) * 0.3

    def raw(x):
        hidden = activation(first @ x + biases[0])
        return (last @ activation(second @ hidden + biases[1]))[0]

    f = nuq.Input.box(jnp.zeros(num_inputs), half_width=HALF_WIDTH)
    inputs = f.sample(jax.random.key(9), (REFERENCE_DRAWS,))
    scalar = np.asarray(jax.jit(jax.vmap(raw))(inputs), np.float64)
    mean, sd = scalar.mean(), scalar.std()

    def net(x):
        s = (raw(x) - mean) / sd
        return jnp.stack([jnp.tanh(4 * s / 1.5), jax.nn.softplus(3 * s), s**2])

    ordered = np.sort(np.asarray(jax.jit(jax.vmap(net))(inputs), np.float64), axis=0)
    ranks = np.linspace(0, REFERENCE_DRAWS - 1, NUM_POINTS).astype(int)
    return Case(net, f, ordered[ranks], (ranks + 0.5) / REFERENCE_DRAWS)


def one_key(case, tangent, budget, key):
    """Distances of each method, ``(methods, outputs)``."""

    plain = jax.vmap(case.net)(case.f.sample(key, (budget,)))
    one_set, several = (
        nuq.paired_draws(
            case.net, tangent, key, budget, points="sobol", num_randomizations=n, progress=False
        )
        for n in (1, math.gcd(budget, RANDOMIZATIONS))
    )
    cdfs = empirical_cdf(plain), empirical_cdf(one_set.network)
    return [case.distances(cdf) for cdf in (*cdfs, tangent.corrected(several).marginals().cdf)]


def main():
    """Print a table for each network."""
    given = options(inputs=(2, 3, 4), counts=COUNTS, keys=4)
    activations = {"tanh": jnp.tanh, "leaky ReLU": lambda h: jax.nn.leaky_relu(h, 0.1)}
    for num_inputs in given.inputs:
        for name, activation in activations.items():
            case = make_case(num_inputs, activation)
            tangent = nuq.linearize(case.net, case.f)
            print(f"\n{num_inputs} inputs, {name}: {', '.join(OUTPUTS)}")
            head("runs", *METHODS, left=0)
            for budget in given.counts:
                keys = [jax.random.key(100 + number) for number in range(given.keys)]
                found = np.mean([one_key(case, tangent, budget, key) for key in keys], axis=0)
                row(budget, *(", ".join(f"{value:.2g}" for value in cells) for cells in found))


if __name__ == "__main__":
    main()
