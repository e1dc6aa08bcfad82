"""Errors of corrected distributions against those of as many plain and Sobol draws.

Trained operators, and random networks of two to four inputs; ``--networks nonlinear_5 --inputs 2
--counts 100 --keys 1`` for a short run. References are a million draws with another key.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import nn_uq_dist as nuq
from tests.benchmarks import _peers as peers
from tests.benchmarks._command_line import head, options, row
from tests.benchmarks._networks import OPERATORS, VARYING, operator_and_box

HALF_WIDTHS = (0.5, 1.5, 3.0)
REFERENCE_DRAWS, NUM_POINTS, BINS = 1_000_000, 2000, 100
METHODS = ("plain", "Sobol", "tangent", "corrected", "corrected, Sobol")
ACTIVATIONS = {"tanh": jnp.tanh, "leaky ReLU": lambda h: jax.nn.leaky_relu(h, 0.1)}


class Case(NamedTuple):
    """A network with its input, and what a million draws say about its outputs that vary."""

    net: Callable
    lin: nuq.Linearization
    kept: np.ndarray
    num_sets: int  # of the Sobol draws
    points: np.ndarray  # outputs at which distribution functions are compared
    edges: np.ndarray  # of bins of equal probability, over which densities are compared
    sd: np.ndarray

    def errors(self, cdf, sd, smooth_cdf):
        """Kolmogorov-Smirnov distance, of the sd, of the probability of a union of bins; means."""
        levels = (np.arange(NUM_POINTS)[:, None] + 0.5) / NUM_POINTS
        distance = np.abs(np.asarray(cdf(self.points), float) - levels).max(axis=0)
        shares = np.diff(np.asarray(smooth_cdf(self.edges), float), axis=0, prepend=0, append=1)
        variation = np.abs(shares - 1 / BINS).sum(axis=0) / 2
        return [np.mean(part) for part in (distance, np.abs(sd / self.sd - 1), variation)]

    def of_draws(self, draws):
        """Errors of the empirical distribution, and of a kernel estimate of the density."""
        kept = draws[:, self.kept]
        sd = kept.std(axis=0, ddof=1)
        return self.errors(peers.empirical_cdf(kept), sd, peers.kernel(kept))

    def of_distribution(self, marginals):
        """Errors of linear or corrected distributions."""
        kept = marginals[self.kept]
        return self.errors(kept.cdf, np.sqrt(np.asarray(kept.variance, float)), kept.cdf)


def case_of(net, f, kept, num_sets):
    """Linearize, and draw."""
    draws = nuq.monte_carlo(net, f, jax.random.key(99), REFERENCE_DRAWS, progress=False)
    ordered = np.sort(draws[:, kept], axis=0)
    step, width = REFERENCE_DRAWS // NUM_POINTS, REFERENCE_DRAWS // BINS
    sd = ordered.std(axis=0, dtype=float)
    points, edges = ordered[step // 2 :: step], ordered[width::width]
    return Case(net, nuq.linearize(net, f), kept, num_sets, points, edges, sd)


def few_inputs(num_inputs, activation):
    """Two hidden layers of 16, and three functions: bimodal, one-sided, a square."""
    rng = np.random.default_rng(10 * num_inputs)
    first = rng.normal(size=(16, num_inputs)) / np.sqrt(num_inputs)
    second, last = rng.normal(size=(16, 16)) / 4, rng.normal(size=(1, 16)) / 4
    biases = rng.normal(size=16) * 0.5, rng.normal(size=16) * 0.3

    def raw(x):
        hidden = activation(first @ x + biases[0])
        return (last @ activation(second @ hidden + biases[1]))[0]

    f = nuq.Input.box(jnp.zeros(num_inputs), half_width=1.5)
    scalar = jax.jit(jax.vmap(raw))(f.sample(jax.random.key(9), (REFERENCE_DRAWS,)))
    mean, sd = np.mean(scalar, dtype=float), np.std(scalar, dtype=float)

    def net(x):
        s = (raw(x) - mean) / sd
        return jnp.stack([jnp.tanh(4 * s / 1.5), jax.nn.softplus(3 * s), s**2])

    return case_of(net, f, np.arange(3), 1)


def one_key(case, count, number):
    """Errors of all methods with one key."""
    several = math.gcd(count, 4)
    plain, sobol, pairs = (
        nuq.paired_draws(
            case.net, case.lin, jax.random.key(1000 + number), count, progress=False, **points
        )
        for points in (
            {"points": "random"},
            {"points": "sobol", "num_randomizations": min(several, case.num_sets)},
            {"points": "sobol", "num_randomizations": several},
        )
    )
    found = [case.of_draws(part.network) for part in (plain, sobol)]
    corrected = [case.lin.corrected(part) for part in (plain, pairs)]
    return found + [case.of_distribution(part.marginals()) for part in (case.lin, *corrected)]


def cases(given):
    """Names and cases."""
    for name in given.networks:
        for half_width in given.half_widths:
            yield (
                f"{name}, {half_width:g}",
                case_of(*operator_and_box(name, half_width), VARYING, 4),
            )
    for num_inputs in given.inputs:
        for name, activation in ACTIVATIONS.items():
            yield f"{num_inputs} inputs, {name}", few_inputs(num_inputs, activation)


def main():
    """Print a table, whose cells have all errors."""
    given = options(
        networks=OPERATORS, half_widths=HALF_WIDTHS, inputs=(2, 3, 4),
        counts=(100, 1000), keys=4,
    )  # fmt: skip
    head("network", "draws", *METHODS)
    for name, case in cases(given):
        for count in given.counts:
            found = np.mean([one_key(case, count, k) for k in range(given.keys)], axis=0)
            row(name, count, *(" ".join(f"{value:.2g}" for value in one) for one in found))
    print("\nEach cell: Kolmogorov-Smirnov distance, sd, density")


if __name__ == "__main__":
    main()
