"""Errors of corrected distributions against those of as many plain and Sobol draws, trained
operators.

Run with ``python -m tests.benchmarks.bench_corrected`` or ``make bench BENCH=bench_corrected``;
``--keys 2 --counts 100`` for a short run. References are a million draws with another key.
"""

import argparse
import importlib
import sys
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

import nn_uq_dist as nuq
from nn_uq_dist.basics.nodes import sobol_points

NETWORKS = [f"{kind}_{depth}" for kind in ("linear", "nonlinear") for depth in (1, 5, 20)]
HALF_WIDTHS = (0.5, 1.5, 3.0)
COUNTS = (100, 1000, 10_000)
REFERENCE_DRAWS = 1_000_000
TAILS = (1e-3, 1e-4)
RANDOMIZATIONS = 4
# Normal scores at which quantile functions are tabulated.
SCORES = np.linspace(-7, 7, 1401)
WEIGHTS = np.exp(-(SCORES**2) / 2) / np.exp(-(SCORES**2) / 2).sum()
METHODS = ("plain", "Sobol", "tangent", "corrected", "corrected, Sobol")
# Bins of equal probability, over which densities are compared.
BINS = 100
STATISTICS = ("KS", "sd", "q05", "q95", *(f"P {tail:g}" for tail in TAILS), "density")

Array = NDArray[np.float64]


class Case(NamedTuple):
    """A network with its input, and what a million draws say about its outputs."""

    net: Any
    f: nuq.Input
    lin: nuq.Linearization
    outputs: NDArray[np.intp]  # those that vary
    linear: Array  # quantiles of the linear distribution at SCORES
    levels: Array  # probabilities
    quantiles: Array  # at the levels
    sd: Array
    tails: Array  # (lower and upper, tails, outputs)
    programs: dict[int, Any]  # random pairs, compiled for each number

    def sobol(self, count: int, key: jax.Array) -> nuq.sampling.PairedDraws:
        """Pairs at Sobol points."""
        points = sobol_points(key, count, RANDOMIZATIONS, self.lin.num_coordinates)
        inputs, linear = self.lin.pairs_at(jnp.asarray(points, jnp.float32))
        outputs = jax.vmap(self.net)(inputs)
        return nuq.sampling.PairedDraws(
            inputs, outputs, linear, self.lin, key, num_randomizations=RANDOMIZATIONS
        )


def make_case(name: str, half_width: float) -> Case:
    """A trained operator and its reference."""
    sys.path.insert(0, str(Path(__file__).parents[2] / "examples" / "operators"))
    operators = importlib.import_module("integro_differential")
    net = importlib.import_module("networks").load(name)
    mean = jnp.asarray(operators.mean_input(), jnp.float32)
    f = nuq.Input.box(mean, half_width=half_width)
    lin = nuq.linearize(net, f)
    draws = nuq.monte_carlo(net, f, jax.random.key(99), REFERENCE_DRAWS, progress=False)
    outputs = np.delete(np.arange(lin.num_outputs), operators.SIZE // 2)
    ordered = np.sort(draws[:, outputs], axis=0).astype(np.float64)
    step = REFERENCE_DRAWS // 20_000
    levels = (np.arange(20_000) + 0.5) / 20_000
    counts = [round(tail * REFERENCE_DRAWS) for tail in TAILS]
    tails = np.stack([ordered[counts], ordered[[-1 - count for count in counts]]])
    linear = np.asarray(lin.marginals().from_normal_score(jnp.asarray(SCORES)[:, None]))
    return Case(
        net,
        f,
        lin,
        outputs,
        linear[:, outputs].astype(np.float64),
        levels,
        ordered[step // 2 :: step],
        ordered.std(axis=0),
        tails,
        {
            count: jax.jit(lambda lin, key, n=count: nuq.paired_draws(net, lin, key, n))
            for count in COUNTS
        },
    )


def of_distribution(case: Case, quantiles: Array) -> Array:
    """Errors of a distribution given by its quantiles at SCORES, shape ``(statistics,
    outputs)``."""
    rows = []
    for j, column in enumerate(quantiles.T):
        found = ndtr(np.interp(case.quantiles[:, j], column, SCORES))
        mean = WEIGHTS @ column
        sd = np.sqrt(WEIGHTS @ (column - mean) ** 2)
        ends = np.interp(ndtri([0.05, 0.95]), SCORES, column)
        beyond = [
            np.interp(case.tails[0, :, j], column, SCORES),
            -np.interp(case.tails[1, :, j], column, SCORES),
        ]
        ks = np.abs(found - case.levels).max()
        tails = np.stack([ndtr(z) for z in beyond])
        rows.append(_errors(case, j, ks, sd, ends, tails, _total_variation(found)))
    return np.stack(rows, axis=1)


def of_draws(case: Case, draws: Array) -> Array:
    """Errors of the empirical distribution of draws, and of a kernel estimate of their density."""
    ordered = np.sort(draws.astype(np.float64), axis=0)
    count = len(ordered)
    rows = []
    for j, column in enumerate(ordered.T):
        at = np.interp(column, case.quantiles[:, j], case.levels)
        rank = np.arange(count)
        ks = max(np.abs(at - rank / count).max(), np.abs(at - (rank + 1) / count).max())
        beyond = np.stack(
            [
                np.searchsorted(column, case.tails[0, :, j]) / count,
                1 - np.searchsorted(column, case.tails[1, :, j], side="right") / count,
            ]
        )
        ends = np.quantile(column, [0.05, 0.95])
        sd = column.std(ddof=1)
        width = sd * count**-0.2  # D. W. Scott, Multivariate Density Estimation (1992)
        edges = case.quantiles[:: len(case.levels) // BINS, j]
        kernels = ndtr((edges[:, None] - column) / width).mean(axis=1)
        rows.append(_errors(case, j, ks, sd, ends, beyond, _total_variation(kernels)))
    return np.stack(rows, axis=1)


def _total_variation(found: Array) -> float:
    """Largest error of the probability of a union of bins, from probabilities of their ends."""
    step = len(found) // BINS
    shares = np.diff(np.concatenate([[0.0], found[step::step], [1.0]]))
    return float(np.abs(shares - 1 / BINS).sum() / 2)


def _errors(
    case: Case, j: int, ks: float, sd: float, ends: Array, beyond: Array, density: float
) -> Array:
    """Distances, errors in units of the sd, and relative errors of tail probabilities."""
    true_ends = np.interp([0.05, 0.95], case.levels, case.quantiles[:, j])
    ends = np.abs(ends - true_ends) / case.sd[j]
    tails = np.abs(beyond / np.array(TAILS) - 1).mean(axis=0)
    return np.array([ks, abs(sd / case.sd[j] - 1), *ends, *tails, density])


def one_key(case: Case, count: int, number: int) -> Array:
    """Errors of all methods with one key, averaged over outputs: ``(methods, statistics)``."""
    key = jax.random.key(1000 + number)
    found = []
    both = [case.programs[count](case.lin, key), case.sobol(count, key)]
    pairs = [
        nuq.sampling.PairedDraws(
            *map(np.asarray, (part.base_inputs, part.network, part.linear)),
            case.lin,
            key,
            num_randomizations=part.num_randomizations,
        )
        for part in both
    ]
    found.extend(of_draws(case, part.network[:, case.outputs]) for part in pairs)
    found.append(of_distribution(case, case.linear))
    for part in pairs:
        spline = case.lin.corrected(part).transform
        at = np.zeros((len(SCORES), case.lin.num_outputs), np.float32)
        at[:, case.outputs] = case.linear
        mapped = np.asarray(spline(at), np.float64)[:, case.outputs]
        found.append(of_distribution(case, mapped))
    return np.stack(found).mean(axis=-1)


def binomial_error(probability: float, count: int) -> float:
    """Mean relative error of the share of plain draws in a tail, which 20 keys hardly show."""
    # The mean deviation of a binomial distribution (A. De Moivre, 1730).
    k = int(np.floor(count * probability)) + 1
    logs = sum(np.log(count + 1 - i) - np.log(i) for i in range(1, k + 1))
    mass = np.exp(logs + k * np.log(probability) + (count - k + 1) * np.log1p(-probability))
    return float(2 * k * mass / (count * probability))


def main() -> None:
    """Print a table for each statistic."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--networks", nargs="+", default=NETWORKS)
    parser.add_argument("--half-widths", nargs="+", type=float, default=HALF_WIDTHS)
    parser.add_argument("--counts", nargs="+", type=int, default=COUNTS)
    parser.add_argument("--keys", type=int, default=20)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    print("| network | half-width | draws |", *(f"{name} |" for name in METHODS))
    print("|---|---:|---:|" + "---:|" * len(METHODS))
    rows = []
    for name in options.networks:
        for half_width in options.half_widths:
            case = make_case(name, half_width)
            for count in options.counts:
                found = np.mean([one_key(case, count, k) for k in range(options.keys)], axis=0)
                rows.append((name, half_width, count, found))
                cells = " | ".join(" ".join(f"{value:.2g}" for value in method) for method in found)
                print(f"| {name} | {half_width:g} | {count} | {cells} |", flush=True)
                if options.out is not None:
                    np.savez(
                        options.out,
                        labels=np.array([f"{r[0]} {r[1]} {r[2]}" for r in rows]),
                        errors=np.stack([r[3] for r in rows]),
                    )
    print("\nEach cell:", ", ".join(STATISTICS))
    for tail in TAILS:
        expected = ", ".join(f"{n}: {binomial_error(tail, n):.2f}" for n in options.counts)
        print(f"mean error of plain draws in P {tail:g} by the binomial distribution: {expected}")


if __name__ == "__main__":
    main()
