"""Failure probabilities of random networks against plain draws and subset simulation.

``--cases 0 7`` for a short run. Five tables: all networks at 1e-3 and 1e-5 (against plain draws)
and at 1e-7 and 1e-9 (against subset simulation), in float64; how often 95% intervals hold;
functions that mislead a search; problems of a public challenge; OpenTURNS. ``--tables`` picks some.
References are in `failure_references.json`; those of cases that it lacks are made anew, which takes
a minute of CPU time for each case and 10 million ``--draws``.
"""

import json
import math
from collections import defaultdict
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import gammaincc, ndtr

import nn_uq_dist as nuq
from tests.benchmarks._command_line import head, print_tables, row
from tests.benchmarks._failure_cases import (
    NUM_CASES,
    largest_of_draws,
    make_case,
    num_beyond,
    subset_limits,
)
from tests.benchmarks._misleading_cases import misleading_cases, normal
from tests.benchmarks._openturns_peers import METHODS, least_runs, runs_of_peer
from tests.benchmarks._reliability_problems import problems

SHARES = (1e-3, 1e-5)
LEVELS = (6, 8)  # probabilities 1e-7 and 1e-9
SUBSET_DRAWS, SUBSET_REPLICATES = 200_000, 9
REFERENCES = Path(__file__).with_name("failure_references.json")


def estimate(network, f, seed, limit, num_runs, *, upper=True):
    """The estimate with one key."""
    return nuq.failure_probability(
        network, f, jax.random.key(seed), limit, upper=upper, num_runs=num_runs, progress=False
    )


def reference(number, count):
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
        keys = [900 + 10 * tail + k + 37 * number for k in range(SUBSET_REPLICATES)]
        # One level more than is asked for: limits between two are interpolated.
        levels = LEVELS[-1] + 2
        chains = [subset_limits(case, jax.random.key(k), sign, levels, SUBSET_DRAWS) for k in keys]
        steps = -math.log(10) * np.arange(1, levels + 1)
        for level in LEVELS:
            limit = chains[0][level]
            # Not by the chains that the limit is of: they say that it is right.
            shares = np.exp([np.interp(limit, chain, steps) for chain in chains[1:]])
            error = float(shares.std(ddof=1) / shares.mean() / math.sqrt(len(shares)))
            found.append((sign > 0, sign * float(limit), float(shares.mean()), error))
    return found


def references(given):
    """Cases with their references, from the file where they are in it."""
    known = json.loads(REFERENCES.read_text("utf-8")) if REFERENCES.exists() else {}
    for number in given.cases:
        if str(number) not in known:
            known[str(number)] = reference(number, given.draws)
            REFERENCES.write_text(json.dumps(known), encoding="utf-8")
            jax.clear_caches()
    return [(number, make_case(number), known[str(number)]) for number in given.cases]


def accuracy(given):
    """How many estimates converge and are right, against plain draws and subset simulation."""
    groups = defaultdict(list)
    for number, case, found in references(given):
        for upper, limit, share, error in found:
            result = estimate(case.network, case.f, number, limit, given.runs, upper=upper)
            ratio, done = result.probability / share, bool(result.converged)
            off = (ratio - 1) / math.hypot(error, result.standard_error / share)
            print(f"{case.name}, P = {share:.1e}: {ratio:.2f} of it, {off:.1f} errors off, {done}")
            inputs = max(case.f.num_inputs, 4)
            group = f"up to {inputs}", "1e-3, 1e-5" if share > 3e-6 else "1e-7, 1e-9"
            groups[group].append((done, done and abs(ratio - 1) < 0.15, done and abs(off) > 4.5))
    cells = "limits", "converged", "and within 15%", "and off by more than 4.5 errors"
    head("inputs", "P", *cells, left=2)
    for group, found in groups.items():
        row(*group, len(found), *np.sum(found, axis=0))


def known_cases():
    """Name, network, distribution, limit and probability of six cases with known answers."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(80)
    opposite = float(weights @ (2 * ndtr(-4.5 - 0.01 * nodes**2)) / weights.sum())
    corner = (1 - 0.98 + 0.98 * math.log(0.98)) / 2
    line = jnp.arange(1.0, 13.0) / jnp.sqrt(650.0)
    square = nuq.Input.box(jnp.zeros(2), half_width=1.0)

    def radius(x):
        return jnp.sum(x**2, keepdims=True)

    def two_sides(x):
        return jnp.abs(x[:1]) - 0.01 * x[1:2] ** 2

    return [
        ("ring, 2 inputs", radius, normal(2), 30.0, math.exp(-15)),
        ("ring, 12 inputs", radius, normal(12), 36.0, float(gammaincc(6, 18))),
        ("two sides, 31 inputs", two_sides, normal(31), 4.5, opposite),
        ("two corners of a box", lambda x: x[:1] * x[1:], square, 0.98, corner),
        ("bent plane, 12 inputs", lambda x: jnp.sinh(line @ x)[None], normal(12), math.sinh(4.0),
         float(ndtr(-4.0))),
        ("kink, 4 inputs", lambda x: x[:1] + 3 * jax.nn.relu(x[:1] - 3.0), normal(4), 5.0,
         float(ndtr(-3.5))),
    ]  # fmt: skip


def coverage(given):
    """How many 95% intervals hold the known probability."""
    head("case", "P", "held, of converged", "not converged", "median error")
    for name, network, f, limit, share in known_cases():
        found = [estimate(network, f, k, limit, 10_000) for k in range(given.repetitions)]
        converged = [one for one in found if one.converged]
        held = [abs(one.probability - share) < 1.96 * one.standard_error for one in converged]
        of_converged = sum(held) / max(len(held), 1)
        error = np.median([one.standard_error / share for one in found])
        row(name, f"{share:.1e}", f"{of_converged:.1%}", len(found) - len(held), f"{error:.3f}")


def misleading(given):
    """Functions that mislead a search: how often results converge, and are silently wrong.

    Bounds that are below the probability are counted too.
    """
    head("kind", "results", "converged", "silent", "bound below P")
    counts = {}
    for kind, network, f, limit, share in misleading_cases():
        count = counts.setdefault(kind, np.zeros(4, int))
        for number in range(given.keys):
            found = estimate(network, f, number, limit, given.runs)
            off = abs(found.probability - share) / max(found.standard_error, 1e-300)
            silent = found.converged and off > 4.5 and abs(found.probability / share - 1) > 1e-4
            count += [1, found.converged, silent, found.upper_bound < share * (1 - 1e-4)]
    for kind, count in counts.items():
        row(kind, *count)


def challenge(given):
    """Estimates over references for three keys, and errors in standard errors."""
    head("problem", "P", "estimates / P, off by standard errors")
    for name, problem in problems().items():
        share, error = problem.reference()
        f, cells = normal(problem.num_inputs), []
        for number in range(3):
            found = estimate(problem.network, f, number, 0.0, given.runs, upper=False)
            ratio = found.probability / share
            off = (ratio - 1) / math.hypot(error, found.standard_error / share)
            cells.append(f"{ratio:.3f}, {off:.1f}{'' if found.converged else ', not converged'}")
        row(name, f"{share:.3g}", "; ".join(cells))


def runs_of_ours(case, limit, share):
    """Runs for an error of 10%: root mean square over keys."""

    def attempt(budget, seed):
        found = estimate(case.network, case.f, seed, limit, max(budget, 1000))
        return float(found.probability), found.num_runs

    return least_runs(attempt, share)


def peers(given):
    """Runs of the network for 10% error at 1e-5, of ours and of OpenTURNS' methods."""
    head("case", "P", "ours", *METHODS)
    for _, case, found in references(given):
        for upper, limit, share, error in found:
            if error > 0.12 or not upper or not 3e-6 < share < 3e-5:
                continue
            runs = [runs_of_ours(case, limit, share)]
            runs += [runs_of_peer(name, case, limit, share) for name in METHODS]
            row(case.name, f"{share:.1e}", *(f"{number:.0f}" for number in runs))


if __name__ == "__main__":
    with jax.enable_x64(True):
        print_tables(
            (accuracy, coverage, misleading, challenge, peers),
            cases=tuple(range(NUM_CASES)), runs=20_000, draws=100_000_000, repetitions=200, keys=20,
        )  # fmt: skip
