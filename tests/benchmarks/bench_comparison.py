"""Methods for the distribution of a network's outputs, side by side on five networks, in one run.

Run with ``python -m tests.benchmarks.bench_comparison`` or ``make bench BENCH=bench_comparison``;
``--functions 4 --keys 1`` for a short run. All in float64, each method with 1,000 runs of the
network unless it takes fewer. Two tables: Kolmogorov-Smirnov distances from two million draws of
the network, and relative errors of the probability above their 0.999 quantile. Means over three
outputs and the keys; seconds are those of a call after the first, where there is one.
"""

import argparse
import time
from collections.abc import Callable, Sequence
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray
from scipy.special import ndtr

import nn_uq_dist as nuq
from tests.benchmarks import _comparison_peers as peers
from tests.benchmarks._comparison_functions import TestFunction, functions
from tests.benchmarks._comparison_peers import Cdf
from tests.benchmarks._failure_cases import Case
from tests.benchmarks._peers import linear_moments, unscented

RUNS = 1000
REFERENCE_DRAWS = 2_000_000
TAIL = 0.001
LEVELS = (np.arange(1000) + 0.5) / 1000
CHAOS = "polynomial chaos"
TANGENTS = ("FORM", "SORM")  # one limit at a time
FAILURE = "nn_uq_dist: `failure_probability`"


def corrected(case: TestFunction, key: Array) -> Cdf:
    """The distributions of the tangent, corrected by pairs at Sobol points."""
    linear = nuq.linearize(case.network, case.f)
    pairs = nuq.paired_draws(case.network, linear, key, RUNS, points="sobol", progress=False)
    return linear.corrected(pairs).marginals().cdf


def from_sobol_points(case: TestFunction, key: Array, *, method: Callable[[Array], Cdf]) -> Cdf:
    """A method that needs the outputs at Sobol points alone."""
    return method(_many(case)(peers.sobol_inputs(case.f, key, RUNS)[0]))


def chaos(case: TestFunction, key: Array) -> Cdf:
    """Polynomial chaos from the runs at Sobol points."""
    inputs, standard = peers.sobol_inputs(case.f, key, RUNS)
    return peers.polynomial_chaos(case.f, standard, _many(case)(inputs), 0)


def _many(case: TestFunction) -> Callable[[Array], Array]:
    return jax.jit(jax.vmap(case.network))


METHODS: dict[str, Callable[[TestFunction, Array], Cdf]] = {
    "nn_uq_dist: tangent": lambda case, _: nuq.linearize(case.network, case.f).marginals().cdf,
    "nn_uq_dist: `corrected`": corrected,
    "delta method, normal": lambda case, _: peers.normal_cdf(linear_moments(case.network, case.f)),
    "stable propagation, independent neurons": lambda case, _: peers.normal_cdf(
        peers.stable_propagation(case.layers, case.f, full=False)
    ),
    "unscented, normal": lambda case, _: peers.normal_cdf(
        unscented(case.network, case.f, float(case.f.num_inputs))
    ),
    "second order": lambda case, key: peers.second_order(case.network, case.f, key),
    CHAOS: chaos,
    "plain draws": lambda case, key: peers.empirical_cdf(_many(case)(case.f.sample(key, (RUNS,)))),
    "Sobol draws": partial(from_sobol_points, method=peers.empirical_cdf),
    "kernel of Sobol draws": partial(from_sobol_points, method=peers.kernel),
    "spline of Sobol draws": partial(from_sobol_points, method=peers.spline),
}


class Table:
    """Cells of one table: a row for each method, a column for each network."""

    def __init__(self) -> None:
        self.rows: dict[str, list[str]] = {}
        self.seconds: dict[str, list[float]] = {}

    def add(self, method: str, value: float, seconds: float) -> None:
        """Add a cell to the row of a method."""
        self.rows.setdefault(method, []).append("-" if np.isnan(value) else f"{value:.2g}")
        self.seconds.setdefault(method, []).append(seconds)

    def show(self, names: Sequence[str]) -> None:
        """Print the table."""
        print("| method |", " | ".join(names), "| seconds |")
        print("|---|" + "---:|" * (len(names) + 1))
        for method, cells in self.rows.items():
            least, most = min(self.seconds[method]), max(self.seconds[method])
            print(f"| {method} |", " | ".join(cells), f"| {least:.2g} to {most:.2g} |")


def compare(case: TestFunction, num_keys: int, distances: Table, tails: Table) -> None:
    """Add the column of a network to both tables."""
    draws = np.asarray(
        nuq.monte_carlo(
            case.network, case.f, jax.random.key(2**20), REFERENCE_DRAWS, progress=False
        )
    )
    points = np.quantile(draws, [*LEVELS, 1 - TAIL], axis=0)
    for name, method in METHODS.items():
        found: list[tuple[float, float]] = []
        seconds = []
        for number in range(1 if name == CHAOS else num_keys):
            start = time.perf_counter()
            values = np.asarray(method(case, jax.random.key(number))(jnp.asarray(points)))
            seconds.append(time.perf_counter() - start)
            found.append(errors(values))
        distance, tail = np.mean(found, axis=0)
        distances.add(name, distance, seconds[-1])
        tails.add(name, tail, seconds[-1])
    limits = points[-1]
    found_by = {name: [] for name in (*TANGENTS, FAILURE)}
    start = time.perf_counter()
    for index, limit in enumerate(limits):
        first, second, runs = peers.most_probable_point(case.output(index), float(limit))
        print(f"{case.name}, output {index}: FORM {first:.2g}, SORM {second:.2g}, {runs} runs")
        for name, value in zip(TANGENTS, (first, second), strict=True):
            found_by[name].append(abs(value / TAIL - 1))
    for name in TANGENTS:
        tails.add(name, float(np.mean(found_by[name])), time.perf_counter() - start)
    for number in range(num_keys):
        start = time.perf_counter()
        for index, limit in enumerate(limits):
            result = nuq.failure_probability(
                case.network,
                case.f,
                jax.random.key(number),
                limit,
                output=index,
                num_runs=RUNS,
                progress=False,
            )
            found_by[FAILURE].append(abs(float(result.probability) / TAIL - 1))
    tails.add(FAILURE, float(np.mean(found_by[FAILURE])), time.perf_counter() - start)


def errors(values: NDArray[np.float64]) -> tuple[float, float]:
    """Mean over the outputs of the distance and of the relative error of the tail."""
    distance = np.abs(values[:-1] - LEVELS[:, None]).max(axis=0)
    return float(distance.mean()), float(np.abs((1 - values[-1]) / TAIL - 1).mean())


def check_openturns() -> None:
    """Fail unless its methods are right for a cube, a plane and a paraboloid."""
    uniform, normal = (
        nuq.Input.box(jnp.zeros(2), half_width=1.0),
        nuq.Input.normal(jnp.zeros(2), 1.0),
    )
    inputs, standard = peers.sobol_inputs(uniform, jax.random.key(0), 200)
    cdf = peers.polynomial_chaos(uniform, standard, inputs[:, :1] ** 3, 0)
    values = np.array([-0.7, -0.1, 0.2, 0.6])
    # Five standard errors of 200,000 draws.
    np.testing.assert_allclose(cdf(values[:, None])[:, 0], (1 + np.cbrt(values)) / 2, atol=0.0056)
    plane = Case("plane", lambda x: (0.6 * x[0] + 0.8 * x[1])[None], normal)
    np.testing.assert_allclose(peers.most_probable_point(plane, 3.0)[:2], ndtr(-3.0), rtol=1e-3)
    bent = Case("paraboloid", lambda x: (x[0] + 0.1 * x[1] ** 2)[None], normal)
    breitung = ndtr(-4.0) / np.sqrt(1 - 4 * 0.2)  # K. Breitung, J. Eng. Mech. 110 (1984)
    np.testing.assert_allclose(
        peers.most_probable_point(bent, 4.0)[:2], [ndtr(-4.0), breitung], rtol=1e-3
    )


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--functions", nargs="+", type=int, default=range(5))
    parser.add_argument("--keys", type=int, default=4)
    options = parser.parse_args()
    with jax.enable_x64(True):
        check_openturns()
        some = [functions()[number] for number in options.functions]
        distances, tails = Table(), Table()
        for case in some:
            compare(case, options.keys, distances, tails)
            jax.clear_caches()
        for title, table in (("Kolmogorov-Smirnov distance", distances), ("Tail", tails)):
            print(f"\n{title}\n")
            table.show([case.name for case in some])


if __name__ == "__main__":
    main()
