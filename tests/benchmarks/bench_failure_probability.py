"""Failure probabilities of random networks against plain draws and subset simulation.

Run with ``python -m tests.benchmarks.bench_failure_probability`` or ``make bench
BENCH=bench_failure_probability``; ``--cases 0 7 --draws 1000000`` for a short run. Four tables:
all networks at 1e-3 and 1e-5 (against plain draws) and at 1e-7 and 1e-9 (against subset
simulation), in float64; how often 95% intervals hold; problems of a public challenge; OpenTURNS on
the same functions, if it is installed. ``--tables`` picks some of them, ``--references`` keeps the
references in a file.
"""

import argparse
import json
import math
import time
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import gammaincc, ndtr

import nn_uq_dist as nuq
from tests.benchmarks._failure_cases import (
    NUM_CASES,
    Case,
    largest_of_draws,
    make_case,
    num_beyond,
    subset_limits,
)
from tests.benchmarks._failure_peers import METHODS, least_runs, runs_of_peer
from tests.benchmarks._reliability_problems import problems

SHARES = (1e-3, 1e-5)
LEVELS = (6, 8)  # probabilities 1e-7 and 1e-9
SUBSET_DRAWS, SUBSET_REPLICATES = 100_000, 2
# Relative standard error of subset simulation with these numbers.
SUBSET_ERROR = 0.05
LEAST_RUNS = 1000


def reference(number: int, count: int) -> list[tuple[bool, float, float, float]]:
    """Tail, limit, probability and its relative standard error, for each limit of a case."""
    case = make_case(number)
    found = []
    pilot = largest_of_draws(case, jax.random.key(100 + number), count, math.ceil(2e-3 * count))
    limits = pilot[:, [round(share * count) - 1 for share in SHARES]]
    beyond, total = num_beyond(case, jax.random.key(500 + number), count, limits)
    for tail, sign in enumerate((1.0, -1.0)):
        for limit, hits in zip(limits[tail], beyond[tail], strict=True):
            error = 1 / math.sqrt(max(hits, 1))
            found.append((sign > 0, sign * float(limit), float(hits / total), error))
        chains = [
            subset_limits(
                case, jax.random.key(900 + 10 * tail + k + 37 * number), sign, 9, SUBSET_DRAWS
            )
            for k in range(SUBSET_REPLICATES)
        ]
        steps = -math.log(10) * np.arange(1, 10)
        for level in LEVELS:
            limit = chains[0][level]
            logs = [np.interp(limit, chain, steps) for chain in chains]
            share = float(np.mean(np.exp(logs)))
            found.append((sign > 0, sign * float(limit), share, SUBSET_ERROR))
    return found


def references(options: argparse.Namespace) -> dict[int, Any]:
    """References of all cases, from the file where they are in it."""
    path = options.references
    known = {} if path is None or not path.exists() else json.loads(path.read_text("utf-8"))
    for number in options.cases:
        if str(number) not in known:
            known[str(number)] = reference(number, options.draws)
            if path is not None:
                path.write_text(json.dumps(known), encoding="utf-8")
            jax.clear_caches()
    return {number: known[str(number)] for number in options.cases}


def accuracy(options: argparse.Namespace) -> None:
    """A row for each case and limit, and what they come to."""
    print("| case | tail | P | ours / P | error | effective | converged | off by errors | s |")
    print("|---|---|---:|---:|---:|---:|---|---:|---:|")
    rows = []
    for number, found in references(options).items():
        case = make_case(number)
        for upper, limit, share, error in found:
            start = time.perf_counter()
            result = nuq.failure_probability(
                case.network,
                case.f,
                jax.random.key(number),
                limit,
                upper=upper,
                num_runs=options.runs,
                progress=False,
            )
            seconds = time.perf_counter() - start
            ratio = result.probability / share
            off = (ratio - 1) / math.hypot(error, result.standard_error / share)
            rows.append((share > 3e-6, ratio, result.converged, off))
            relative = result.standard_error / max(result.probability, 1e-300)
            print(
                f"| {case.name} | {'upper' if upper else 'lower'} | {share:.1e} | {ratio:.2f} | "
                f"{relative:.3f} | {result.effective_draws:.0f} | {result.converged} | {off:.1f} | "
                f"{seconds:.1f} |",
                flush=True,
            )
    for often in (True, False):
        some = [row for row in rows if row[0] == often]
        if some:
            close = np.mean([done and abs(ratio - 1) < 0.15 for _, ratio, done, _ in some])
            done = np.mean([row[2] for row in some])
            silent = sum(row[2] and abs(row[3]) > 4.5 for row in some)
            print(
                f"\n{'1e-3, 1e-5' if often else '1e-7, 1e-9'}: {len(some)} limits, converged "
                f"{done:.1%}, converged and within 15% {close:.1%}, converged and off by more than "
                f"4.5 errors: {silent}"
            )


def known_cases() -> dict[str, tuple[Any, nuq.Input, float, float]]:
    """Name, network, distribution, limit and probability of six cases with known answers."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(80)
    opposite = float(weights @ (2 * ndtr(-4.5 - 0.01 * nodes**2)) / weights.sum())
    corner = (1 - 0.98 + 0.98 * math.log(0.98)) / 2
    row = jnp.arange(1.0, 13.0) / jnp.sqrt(650.0)

    def normal(d: int) -> nuq.Input:
        return nuq.Input.normal(jnp.zeros(d), 1.0)

    def square(x: jax.Array) -> jax.Array:
        return jnp.sum(x**2, keepdims=True)

    return {
        "ring, 2 inputs": (square, normal(2), 30.0, math.exp(-15)),
        "ring, 12 inputs": (square, normal(12), 36.0, float(gammaincc(6, 18))),
        "two sides, 31 inputs": (
            lambda x: jnp.abs(x[:1]) - 0.01 * x[1:2] ** 2,
            normal(31),
            4.5,
            opposite,
        ),
        "two corners of a box": (
            lambda x: x[:1] * x[1:],
            nuq.Input.box(jnp.zeros(2), half_width=1.0),
            0.98,
            corner,
        ),
        "bent plane, 12 inputs": (
            lambda x: jnp.sinh(row @ x)[None],
            normal(12),
            math.sinh(4.0),
            float(ndtr(-4.0)),
        ),
        "kink, 4 inputs": (
            lambda x: x[:1] + 3 * jax.nn.relu(x[:1] - 3.0),
            normal(4),
            5.0,
            float(ndtr(-3.5)),
        ),
    }


def coverage(options: argparse.Namespace) -> None:
    """How many 95% intervals hold the known probability."""
    print("\n| case | P | held, of converged | not converged | median error |")
    print("|---|---:|---:|---:|---:|")
    for name, (network, f, limit, share) in known_cases().items():
        held, errors, failed = 0, [], 0
        for number in range(options.repetitions):
            found = nuq.failure_probability(
                network, f, jax.random.key(number), limit, num_runs=10_000, progress=False
            )
            failed += not found.converged
            inside = abs(found.probability - share) < 1.96 * found.standard_error
            held += bool(found.converged and inside)
            errors.append(found.standard_error / share)
        of_converged = held / max(options.repetitions - failed, 1)
        print(
            f"| {name} | {share:.1e} | {of_converged:.1%} | {failed} | {np.median(errors):.3f} |",
            flush=True,
        )


def challenge(options: argparse.Namespace) -> None:
    """Estimates over references for three keys, and errors in standard errors."""
    print("\n| problem | P | estimates / P, off by standard errors |")
    print("|---|---:|---|")
    for name, problem in problems().items():
        share, error = problem.reference()
        f = nuq.Input.normal(jnp.zeros(problem.num_inputs), 1.0)
        cells = []
        for number in range(3):
            found = nuq.failure_probability(
                problem.network,
                f,
                jax.random.key(number),
                0.0,
                upper=False,
                num_runs=options.runs,
                progress=False,
            )
            ratio = found.probability / share
            off = (ratio - 1) / math.hypot(error, found.standard_error / share)
            cells.append(f"{ratio:.3f}, {off:.1f}{'' if found.converged else ', not converged'}")
        print(f"| {name} | {share:.3g} | {'; '.join(cells)} |", flush=True)


def runs_of_ours(case: Case, limit: float, share: float, *, upper: bool) -> float:
    """Runs for an error of 10%: root mean square over keys."""

    def attempt(budget: int, seed: int) -> tuple[float, int]:
        found = nuq.failure_probability(
            case.network,
            case.f,
            jax.random.key(seed),
            limit,
            upper=upper,
            num_runs=max(budget, LEAST_RUNS),
            progress=False,
        )
        return float(found.probability), found.num_runs

    return least_runs(attempt, share)


def peers(options: argparse.Namespace) -> None:
    """Runs of the network for 10% error at 1e-5, of ours and of OpenTURNS' methods."""
    print("\n| case | tail | P | ours |", " | ".join(METHODS), "|")
    print("|---|---|---:|---:|" + "---:|" * len(METHODS))
    for number, found in references(options).items():
        case = make_case(number)
        for upper, limit, share, error in found:
            if error > 0.12 or not upper or not 3e-6 < share < 3e-5:
                continue
            ours = runs_of_ours(case, limit, share, upper=upper)
            theirs = [runs_of_peer(name, case, limit, share, upper=upper) for name in METHODS]
            cells = " | ".join(f"{runs:.0f}" for runs in (ours, *theirs))
            tail = "upper" if upper else "lower"
            print(f"| {case.name} | {tail} | {share:.1e} | {cells} |", flush=True)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--cases", nargs="+", type=int, default=range(NUM_CASES))
    parser.add_argument("--runs", type=int, default=20_000)
    parser.add_argument("--draws", type=int, default=16_000_000)
    parser.add_argument("--repetitions", type=int, default=200)
    parser.add_argument("--references", type=Path)
    parser.add_argument(
        "--tables", nargs="+", default=["accuracy", "coverage", "challenge", "peers"]
    )
    options = parser.parse_args()
    tables = {
        "accuracy": accuracy,
        "coverage": coverage,
        "challenge": challenge,
        "peers": peers,
    }
    with jax.enable_x64(True):
        for name in options.tables:
            tables[name](options)


if __name__ == "__main__":
    main()
