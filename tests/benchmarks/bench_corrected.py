"""Errors of corrected distributions against those of as many plain and Sobol draws.

Trained operators; ``--keys 2 --counts 100`` for a short run. References are a million draws with
another key.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import ndtr, ndtri

import nn_uq_dist as nuq
from tests.benchmarks._command_line import head, options, row
from tests.benchmarks._networks import OPERATORS, VARYING, operator_and_box

HALF_WIDTHS = (0.5, 1.5, 3.0)
COUNTS = (100, 1000, 10_000)
REFERENCE_DRAWS = 1_000_000
TAILS = (1e-3, 1e-4)
POINTS = {"points": "random"}, {"points": "sobol", "num_randomizations": 4}
LEVELS = (np.arange(20_000) + 0.5) / 20_000  # at which distribution functions are compared
# Normal scores at which quantile functions are tabulated.
SCORES = np.linspace(-7, 7, 1401)
WEIGHTS = np.exp(-(SCORES**2) / 2) / np.exp(-(SCORES**2) / 2).sum()
METHODS = ("plain", "Sobol", "tangent", "corrected", "corrected, Sobol")
# Bins of equal probability, over which densities are compared.
BINS = 100
STATISTICS = ("KS", "sd", "q05", "q95", *(f"P {tail:g}" for tail in TAILS), "density")


class Case(NamedTuple):
    """A network with its input, and what a million draws say about its outputs that vary."""

    net: nuq.LeakyReLUNetwork
    lin: nuq.Linearization
    linear: np.ndarray  # quantiles of the linear distribution at SCORES
    quantiles: np.ndarray  # at the levels
    sd: np.ndarray
    tails: np.ndarray  # (lower and upper, tails, outputs)


def make_case(name, half_width):
    """A trained operator and its reference."""
    net, f = operator_and_box(name, half_width)
    lin = nuq.linearize(net, f)
    draws = nuq.monte_carlo(net, f, jax.random.key(99), REFERENCE_DRAWS, progress=False)
    ordered = np.sort(draws[:, VARYING], axis=0).astype(np.float64)
    step = REFERENCE_DRAWS // len(LEVELS)
    counts = [round(tail * REFERENCE_DRAWS) for tail in TAILS]
    tails = np.stack([ordered[counts], ordered[[-1 - count for count in counts]]])
    linear = np.asarray(lin.marginals().from_normal_score(jnp.asarray(SCORES)[:, None]), float)
    quantiles = ordered[step // 2 :: step]
    return Case(net, lin, linear[:, VARYING], quantiles, ordered.std(axis=0), tails)


def of_distribution(case, quantiles):
    """Errors of a distribution given by its quantiles at SCORES, ``(outputs, statistics)``."""
    rows = []
    for j, column in enumerate(quantiles.T):
        found = ndtr(np.interp(case.quantiles[:, j], column, SCORES))
        sd = np.sqrt(WEIGHTS @ (column - WEIGHTS @ column) ** 2)
        ends = np.interp(ndtri([0.05, 0.95]), SCORES, column)
        lower, upper = np.interp(case.tails[:, :, j], column, SCORES)
        ks = np.abs(found - LEVELS).max()
        below = found[len(LEVELS) // BINS :: len(LEVELS) // BINS]
        rows.append(_errors(case, j, ks, sd, ends, ndtr([lower, -upper]), below))
    return rows


def of_draws(case, draws):
    """Errors of the empirical distribution of draws, and of a kernel estimate of their density."""
    rows = []
    for j, column in enumerate(np.sort(draws.astype(np.float64), axis=0).T):
        count = len(column)
        at = np.interp(column, case.quantiles[:, j], LEVELS)
        rank = np.arange(count)
        ks = max(np.abs(at - rank / count).max(), np.abs(at - (rank + 1) / count).max())
        lower, upper = case.tails[:, :, j]
        above = count - np.searchsorted(column, upper, side="right")
        beyond = np.stack([np.searchsorted(column, lower), above]) / count
        ends, sd = np.quantile(column, [0.05, 0.95]), column.std(ddof=1)
        width = sd * count**-0.2  # D. W. Scott, Multivariate Density Estimation (1992)
        edges = case.quantiles[len(LEVELS) // BINS :: len(LEVELS) // BINS, j]
        below = ndtr((edges[:, None] - column) / width).mean(axis=1)
        rows.append(_errors(case, j, ks, sd, ends, beyond, below))
    return rows


def _errors(case, j, ks, sd, ends, beyond, below):
    """Distances, errors in units of the sd, and relative errors of tail probabilities.

    Last the largest error of the probability of a union of bins, from probabilities `below` their
    ends.
    """
    true_ends = np.interp([0.05, 0.95], LEVELS, case.quantiles[:, j])
    ends = np.abs(ends - true_ends) / case.sd[j]
    tails = np.abs(beyond / np.array(TAILS) - 1).mean(axis=0)
    shares = np.diff(np.concatenate([[0.0], below, [1.0]]))
    variation = np.abs(shares - 1 / BINS).sum() / 2
    return [ks, abs(sd / case.sd[j] - 1), *ends, *tails, variation]


def one_key(case, count, number):
    """Errors of all methods with one key, averaged over outputs: ``(methods, statistics)``."""
    key = jax.random.key(1000 + number)
    pairs = [
        nuq.paired_draws(case.net, case.lin, key, count, progress=False, **points)
        for points in POINTS
    ]
    found = [of_draws(case, part.network[:, VARYING]) for part in pairs]
    found.append(of_distribution(case, case.linear))
    for part in pairs:
        at = np.zeros((len(SCORES), case.lin.num_outputs), np.float32)
        at[:, VARYING] = case.linear
        mapped = np.asarray(case.lin.corrected(part).transform(at), np.float64)
        found.append(of_distribution(case, mapped[:, VARYING]))
    return np.mean(found, axis=1)


def main():
    """Print a table, whose cells have all statistics."""
    given = options(networks=OPERATORS, half_widths=HALF_WIDTHS, counts=COUNTS, keys=20)
    head("network", "half-width", "draws", *METHODS)
    for name in given.networks:
        for half_width in given.half_widths:
            case = make_case(name, half_width)
            for count in given.counts:
                found = np.mean([one_key(case, count, k) for k in range(given.keys)], axis=0)
                cells = [" ".join(f"{value:.2g}" for value in method) for method in found]
                row(name, f"{half_width:g}", count, *cells)
    print("\nEach cell:", ", ".join(STATISTICS))


if __name__ == "__main__":
    main()
