"""Guaranteed bounds: are they ever violated, how tight are they, and what do they cost?

``--tables gaps rare`` picks some of the tables, ``--networks 50 --draws 100000`` a shorter check.
"""

from functools import partial

import jax
import numpy as np
from tqdm import tqdm

import nn_uq_dist as nuq
from nn_uq_dist.error_analysis._cover import largest_gap, looked_at
from tests.benchmarks import _certified_cases as cases
from tests.benchmarks._command_line import head, print_tables, row
from tests.benchmarks._networks import OPERATORS, operator
from tests.benchmarks._timing import timed

OUTPUTS = (3, 8, 15, 22, 27)
HALF_WIDTHS = (0.05, 0.15, 0.5)
STANDARD_ERRORS = 4.0


def soundness(given):
    """How far an empirical distribution function is outside, in standard errors."""
    worst, outside, gaps = -np.inf, 0, []
    for seed in (bar := tqdm(range(given.networks), desc="random networks", mininterval=10)):
        case = cases.random_case(seed)
        bounds = nuq.certified(case.net, case.distribution)
        if case.distribution.half_width is not None and np.any(case.distribution.half_width):
            bounds = bounds.refine(20, progress=False)
        # Points of other draws: at own quantiles the shares would not be independent of them.
        y = np.quantile(case.draws(20_000, seed + 10**6), np.linspace(0.001, 0.999, 99))
        draws = np.sort(case.draws(given.draws, seed))
        share = np.searchsorted(draws, y, side="right") / given.draws
        low, high = bounds.cdf_bounds(y)
        error = np.sqrt(np.maximum(share * (1 - share), 1 / given.draws) / given.draws)
        off = float((np.maximum(low - share, share - high) / error).max())
        worst, outside = max(worst, off), outside + (off > STANDARD_ERRORS)
        gaps.append(bounds.gap)
        bar.set_postfix(farthest=worst, outside=outside, refresh=False)
    print(f"\n{given.networks} networks, {given.draws} draws each: outside by more than")
    print(f"{STANDARD_ERRORS:g} standard errors {outside} times, farthest {worst:.2f}; gap below")
    quantiles = np.quantile(gaps, [0.1, 0.25, 0.5])
    print(f"{quantiles.round(3)} for 10, 25 and 50% of them")


def search(given, num_starts=100):
    """Values that search finds outside of ranges, affine bounds and error bounds."""
    seeds = range(0, given.networks, 4)  # those with boxes
    beyond = [cases.farthest_outside(cases.random_case(seed), num_starts, seed) for seed in seeds]
    print(f"\n{len(seeds)} networks, {num_starts} starts for each of six goals: farthest outside")
    print(f"{max(beyond):.1e} of the largest output, in NumPy's float64")


def operators():
    """The trained networks, with boxes about one smooth input."""
    for name in OPERATORS:
        net, mean = operator(name)
        for half_width in HALF_WIDTHS:
            yield name, net, nuq.Input.box(mean, half_width=half_width), half_width


def gaps(given):
    """Largest distance of the bounds; the tangent's error, its bound over what a search finds."""
    of_gap, of_error = ("affine bounds alone", "with cut ranges", "seconds"), ("bound", "found")
    head("network", "half-width", *of_gap, *of_error, "bound over found")
    for name, net, distribution, half_width in operators():
        rows, of_tangent = [], []
        for output in OUTPUTS:
            bounds, seconds = timed(partial(nuq.certified, net, distribution, output=output))
            (whole,) = bounds._covers
            first = np.s_[:, :1]
            kept = {"forms": whole.forms.take(first), "failure": whole.failure[first]}
            certain = whole._replace(**kept)
            at = looked_at(bounds._network, whole)
            rows.append((largest_gap(bounds._network, (certain,), at), bounds.gap, seconds))
            bound, found = bounds.error_bound, largest_error(net, distribution, output)
            # None that was found, up to rounding, with a bound that is rounding, too.
            nothing = 1.0 if bound < 1e-9 else np.inf
            of_tangent.append((bound, found, bound / found if found else nothing))
        alone, cut, seconds = zip(*rows, strict=True)
        *of_errors, ratio = np.median(of_tangent, axis=0)
        values = np.mean(alone), np.mean(cut), np.median(seconds), *of_errors
        row(name, half_width, *(f"{value:.2g}" for value in values), f"{ratio:.1f}")


def largest_error(net, distribution, output):
    """The largest error of the tangent found by projected ascent, zero if it is rounding."""
    mu = np.asarray(distribution.mean, float)
    half = np.asarray(distribution.half_width, float)
    tangent = cases.gradient(net, mu[None], output)[0] * half
    at_mu = cases.forward(net, mu[None])[0, output]
    rng, largest = np.random.default_rng(0), 0.0
    for sign in (1, -1):
        v = rng.uniform(-1, 1, (2000, len(mu)))
        v[1000:] = np.sign(v[1000:])
        v = cases.ascent(net, mu, half, v, sign, -sign * tangent, num_steps=20, output=output)
        error = cases.forward(net, mu + half * v)[:, output] - at_mu - v @ tangent
        largest = max(largest, float(np.abs(error).max()))
    return largest if largest > 1e-12 else 0.0


def with_parts(net, distribution, given, **options):
    """Bounds from as many parts as fit into the time."""
    bounds = nuq.certified(net, distribution)
    return bounds.refine(10**6, seconds=given.seconds, progress=False, **options)


def parts(given):
    """Gaps with few inputs."""
    head("inputs", "layers", "neurons", "parts", "gap", "seconds", left=0)
    for num_inputs in (2, 4, 8):
        for depth, width in ((1, 16), (1, 64), (2, 16), (2, 64)):
            net = cases.random_network(np.random.default_rng(1), num_inputs, width, depth, 0.01)
            distribution = nuq.Input.box(np.zeros(num_inputs), half_width=1.0)
            bounds, took = timed(partial(with_parts, net, distribution, given))
            row(num_inputs, depth, width, bounds.num_parts, f"{bounds.gap:.1e}", f"{took:.0f}")


def rare(given, num_draws=10**8):
    """Bounds on small probabilities, beside importance sampling and plain draws."""
    cells = "limit", "bounds", "ratio", "seconds", "estimate", "error", "draws"
    head("inputs", "layers", *cells, left=0)
    for num_inputs, depth in ((2, 1), (3, 1), (4, 1), (4, 2)):
        net = cases.random_network(np.random.default_rng(num_inputs), num_inputs, 16, depth, 0.01)
        case = cases.Case(net, nuq.Input.box(np.zeros(num_inputs), half_width=1.0))
        limits = np.array([limit_of(case, share) for share in (1e-3, 1e-6, 1e-9)])
        estimate = nuq.failure_probability(
            net, case.distribution, jax.random.key(0), limits, num_runs=20_000, progress=False
        )
        hits = sum((y[:, None] > limits).sum(axis=0) for y in case.portions(num_draws, 0))
        for j, limit in enumerate(limits):
            found = partial(
                with_parts, net, case.distribution, given, threshold=float(limit),
                gap=10.0 ** (-3 * (j + 1)) / 20,
            )  # fmt: skip
            bounds, took = timed(found)
            low, high = bounds.probability_bounds(limit, np.inf)
            row(
                num_inputs, depth, f"{limit:.4f}", f"{low:.4e} to {high:.4e}", f"{high / low:.3f}",
                f"{took:.1f}", f"{estimate.probability[j]:.3e}",
                f"{estimate.standard_error[j]:.1e}", f"{hits[j] / num_draws:.3e}",
            )  # fmt: skip


def limit_of(case, share):
    """A limit that is exceeded with about this probability, by bounds tighter and tighter there."""
    bounds, limit = nuq.certified(case.net, case.distribution), 0.0
    for num_parts in (300, 1000, 2000, 3000):
        limit = float(np.mean(bounds.quantile_bounds(1 - share)))
        bounds = bounds.refine(num_parts, threshold=limit, progress=False)
    return limit


if __name__ == "__main__":
    print_tables(
        (soundness, search, gaps, parts, rare),
        networks=500, draws=1_000_000, seconds=10.0,
    )  # fmt: skip
