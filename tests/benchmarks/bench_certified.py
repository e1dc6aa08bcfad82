"""Guaranteed bounds: are they ever violated, how tight are they, and what do they cost?

Run with ``python -m tests.benchmarks.bench_certified`` or ``make bench BENCH=bench_certified``;
``--tables gaps rare`` picks some of the tables, ``--networks 50 --draws 100000`` a shorter check.
Each table can be made without the others: ``soundness``, ``search``, ``gaps``, ``parts``,
``rare``, ``errors``, ``cost``.
"""

import argparse
import importlib
import sys
import time
from pathlib import Path

import jax
import numpy as np
from tqdm import tqdm

import nn_uq_dist as nuq
from nn_uq_dist.error_analysis._certified_distribution import _looked_at
from nn_uq_dist.error_analysis._cover import largest_gap
from tests.benchmarks._certified_cases import (
    Array,
    Case,
    farthest_outside,
    forward,
    gradient,
    random_case,
    random_network,
)

OPERATORS = Path(__file__).parents[2] / "examples" / "operators"
OUTPUTS = (3, 8, 15, 22, 27)
HALF_WIDTHS = (0.05, 0.15, 0.5)
STANDARD_ERRORS = 4.0


def soundness(num_networks: int, num_draws: int) -> None:
    """How far an empirical distribution function is outside, in standard errors."""
    worst, outside, gaps = -np.inf, 0, []
    for seed in (bar := tqdm(range(num_networks), desc="random networks", mininterval=10)):
        case = random_case(seed)
        bounds = nuq.certified(case.net, case.distribution)
        if case.distribution.half_width is not None and np.any(
            np.asarray(case.distribution.half_width)
        ):
            bounds = bounds.refine(20, progress=False)
        # Points of other draws: at own quantiles the shares would not be independent of them.
        y = np.quantile(case.draws(20_000, seed + 10**6), np.linspace(0.001, 0.999, 99))
        draws = np.sort(case.draws(num_draws, seed))
        share = np.searchsorted(draws, y, side="right") / num_draws
        low, high = bounds.cdf_bounds(y)
        error = np.sqrt(np.maximum(share * (1 - share), 1 / num_draws) / num_draws)
        off = float((np.maximum(low - share, share - high) / error).max())
        worst, outside = max(worst, off), outside + (off > STANDARD_ERRORS)
        gaps.append(bounds.gap)
        bar.set_postfix(farthest=worst, outside=outside, refresh=False)
    print(f"\n{num_networks} networks, {num_draws} draws each: outside by more than")
    print(f"{STANDARD_ERRORS:g} standard errors {outside} times, farthest {worst:.2f}; gap below")
    quantiles = np.quantile(gaps, [0.1, 0.25, 0.5])
    print(f"{quantiles.round(3)} for 10, 25 and 50% of them")


def search(num_networks: int, num_starts: int = 100) -> None:
    """Values that search finds outside of ranges, affine bounds and error bounds."""
    seeds = range(0, num_networks, 4)  # those with boxes
    beyond = [farthest_outside(random_case(seed), num_starts, seed) for seed in seeds]
    print(f"\n{len(seeds)} networks, {num_starts} starts for each of six goals: farthest outside")
    print(f"{max(beyond):.1e} of the largest output, in NumPy's float64")


def operators() -> list[tuple[str, nuq.LeakyReLUNetwork, nuq.Input, float]]:
    """The trained networks, with boxes about one smooth input."""
    sys.path.append(str(OPERATORS))
    networks, lobatto = map(importlib.import_module, ("networks", "lobatto"))
    mu = np.exp(np.sin(5 * lobatto.nodes(30)))
    names = [f"{kind}_{depth}" for kind in ("linear", "nonlinear") for depth in (1, 5, 20)]
    return [
        (name, networks.load(name), nuq.Input.box(mu, half_width=half_width), half_width)
        for name in names
        for half_width in HALF_WIDTHS
    ]


def gaps() -> None:
    """Largest distance of the bounds, for affine bounds alone and with cut ranges."""
    print("\n| network | half-width | affine bounds alone | with cut ranges | seconds |")
    print("|---|---:|---:|---:|---:|")
    for name, net, distribution, half_width in operators():
        alone, cut, seconds = [], [], []
        for output in OUTPUTS:
            start = time.perf_counter()
            bounds = nuq.certified(net, distribution, output=output)
            seconds.append(time.perf_counter() - start)
            cut.append(bounds.gap)
            (whole,) = bounds._covers
            kept = (part[:, :1] for part in (whole.rows, whole.const, whole.failure))
            certain = whole._replace(**dict(zip(("rows", "const", "failure"), kept, strict=True)))
            alone.append(
                largest_gap(bounds._network, (certain,), _looked_at(bounds._network, whole))
            )
        values = f"{np.mean(alone):.2g} | {np.mean(cut):.2g} | {np.median(seconds):.2g}"
        print(f"| {name} | {half_width} | {values} |", flush=True)


def parts(seconds: float) -> None:
    """Gaps with few inputs."""
    print("\n| inputs | layers | neurons | parts | gap | seconds |")
    print("|---:|---:|---:|---:|---:|---:|")
    for num_inputs in (2, 4, 8):
        for depth, width in ((1, 16), (1, 64), (2, 16), (2, 64)):
            net = random_network(np.random.default_rng(1), num_inputs, width, depth, 0.01)
            distribution = nuq.Input.box(np.zeros(num_inputs), half_width=1.0)
            start = time.perf_counter()
            bounds = nuq.certified(
                net, distribution, max_parts=10**6, seconds=seconds, progress=False
            )
            took = time.perf_counter() - start
            row = f"{num_inputs} | {depth} | {width} | {bounds.num_parts} | {bounds.gap:.1e}"
            print(f"| {row} | {took:.0f} |", flush=True)


def cost() -> None:
    """Seconds for one output of five layers of 64 neurons and 31 inputs, without parts."""
    for half_width in (0.02, 0.2):
        net = random_network(np.random.default_rng(0), 31, 64, 5, 0.01)
        distribution = nuq.Input.box(np.zeros(31), half_width=half_width)
        took = []
        for _ in range(4):
            start = time.perf_counter()
            nuq.certified(net, distribution)
            took.append(time.perf_counter() - start)
        print(f"\nhalf-width {half_width}: first call {took[0]:.1f} s, then {min(took[1:]):.1f} s")


def rare(seconds: float, num_draws: int = 10**8) -> None:
    """Bounds on small probabilities, beside importance sampling and plain draws."""
    print("\n| inputs | layers | limit | bounds | ratio | seconds | estimate | error | draws |")
    print("|---:|---:|---:|---|---:|---:|---:|---:|---:|")
    for num_inputs, depth in ((2, 1), (3, 1), (4, 1), (4, 2)):
        net = random_network(np.random.default_rng(num_inputs), num_inputs, 16, depth, 0.01)
        case = Case(net, nuq.Input.box(np.zeros(num_inputs), half_width=1.0))
        limits = np.array([limit_of(case, share) for share in (1e-3, 1e-6, 1e-9)])
        estimate = nuq.failure_probability(
            net, case.distribution, jax.random.key(0), limits, num_runs=20_000, progress=False
        )
        hits = sum((y[:, None] > limits).sum(axis=0) for y in case.portions(num_draws, 0))
        for j, limit in enumerate(limits):
            start = time.perf_counter()
            bounds = nuq.certified(
                net, case.distribution, max_parts=10**6, seconds=seconds, threshold=float(limit),
                gap=10.0 ** (-3 * (j + 1)) / 20, progress=False,
            )  # fmt: skip
            low, high = bounds.probability_bounds(limit, np.inf)
            took = time.perf_counter() - start
            row = (
                f"{num_inputs} | {depth} | {limit:.4f} | {low:.4e} to {high:.4e} | {high / low:.3f}"
            )
            found = f"{estimate.probability[j]:.3e} | {estimate.standard_error[j]:.1e}"
            print(f"| {row} | {took:.1f} | {found} | {hits[j] / num_draws:.3e} |", flush=True)


def limit_of(case: Case, share: float) -> float:
    """A limit that is exceeded with about this probability, by bounds tighter and tighter there."""
    bounds, limit = nuq.certified(case.net, case.distribution), 0.0
    for num_parts in (300, 1000, 2000, 3000):
        limit = float(np.mean(bounds.quantile_bounds(1 - share)))
        bounds = bounds.refine(num_parts, threshold=limit, progress=False)
    return limit


def errors() -> None:
    """The error of the tangent: its bound, over the largest that search finds."""
    print("\n| network | half-width | bound | largest found | ratio |")
    print("|---|---:|---:|---:|---:|")
    for name, net, distribution, half_width in operators():
        mu = np.asarray(distribution.mean, float)
        half = np.full(mu.shape, float(np.float32(half_width)))
        rows = []
        for output in OUTPUTS:
            bound = nuq.certified(net, distribution, output=output).error_bound
            rows.append((bound, largest_error(net, mu, half, output)))
        columns = [np.median(column) for column in zip(*rows, strict=True)]
        # None that was found, up to rounding, with a bound that is rounding, too.
        ratio = np.median(
            [b / found if found else 1.0 if b < 1e-9 else np.inf for b, found in rows]
        )
        row = " | ".join(f"{value:.2g}" for value in columns)
        print(f"| {name} | {half_width} | {row} | {ratio:.1f} |", flush=True)


def largest_error(net: nuq.LeakyReLUNetwork, mu: Array, half: Array, output: int) -> float:
    """The largest error of the tangent found by projected ascent, zero if it is rounding."""
    tangent, at_mu = gradient(net, mu[None], output)[0], forward(net, mu[None])[0, output]
    rng, largest = np.random.default_rng(0), 0.0
    for sign in (1, -1):
        z = half * rng.uniform(-1, 1, (2000, len(mu)))
        z[1000:] = half * np.sign(z[1000:])
        for step in np.geomspace(0.5, 1e-3, 20):
            slope = sign * (gradient(net, mu + z, output) - tangent)
            z = np.clip(z + step * half * np.sign(slope), -half, half)
            error = forward(net, mu + z)[:, output] - at_mu - z @ tangent
            largest = max(largest, float(np.abs(error).max()))
    return largest if largest > 1e-12 else 0.0


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    names = ("soundness", "search", "gaps", "parts", "rare", "errors", "cost")
    parser.add_argument("--tables", nargs="+", choices=names, default=names)
    parser.add_argument("--networks", type=int, default=500)
    parser.add_argument("--draws", type=int, default=1_000_000)
    parser.add_argument("--seconds", type=float, default=10.0)
    given = parser.parse_args()
    tables = {
        "soundness": lambda: soundness(given.networks, given.draws),
        "gaps": gaps,
        "parts": lambda: parts(given.seconds),
        "rare": lambda: rare(given.seconds),
        "errors": errors,
        "cost": cost,
        "search": lambda: search(given.networks),
    }
    for name in given.tables:
        tables[name]()
