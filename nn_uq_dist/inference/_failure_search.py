"""Where a network fails: every region that a run has entered gets a part of the mixture.

A search that only follows its own best draws ends in one of several regions. So it begins with
draws of the input's distribution and of wider ones, with a population by subset simulation, and
with climbs along the slope, from whose ends chains go on (`init`). From failing points of all
three, tangents lead to half-spaces near zero, and to corners where several components have to fail
together. A mixture of these, of normal distributions fitted to all failing draws, to the chains,
and to slopes, and of wide ones is drawn from in rounds (`step`). After each of them, failing draws
beyond no corner and new climbs lead to further ones, and chains go to where the mixtures have
little.
"""

import dataclasses

import numpy as np
from numpy.typing import NDArray

from nn_uq_dist.basics.concrete import FloatArray
from nn_uq_dist.inference._importance_weights import (
    Archive,
    ess,
    kmeans_plus_plus,
    relative,
    tempered,
)
from nn_uq_dist.inference._limit_state import (
    RUNS_PER_CLIMB,
    RUNS_PER_START,
    are_beyond,
    corners,
    gradient_ascent,
    on_rays,
    units,
)
from nn_uq_dist.inference._markov_chains import MOVES, Chains, subset_simulation
from nn_uq_dist.inference._normal_mixture import NormalMixture
from nn_uq_dist.inference._search_state import (
    ENOUGH_FOR_MEAN,
    SPREADS,
    Problem,
    Search,
    Target,
    around_zero,
    fit_of_population,
)
from nn_uq_dist.inference._standard_space import RUNS_PER_SLOPE

# Shares of the first draws with each of the spreads; the first are the input's own.
SPREAD_SHARES = (0.4, 0.2, 0.2, 0.2)
# Shares of all runs: first draws, starts of corners at first and after a round, and rounds.
WIDE_SHARE = 0.08
_STARTS_SHARE = 0.06
_NEW_SHARE = 0.007
LEARNING_SHARE = 0.27
# Subset simulation begins with this share of the input's own draws among the first ones.
_PILOT_SHARE = 0.4
# Shares of all runs: climbs, and chains from their ends, which move before each round. With none, 4
# of 12 searches in a box of 12 inputs that fails in two corners find one; with these 2 of 64.
_CLIMB_SHARE, _CHAIN_SHARE = 0.10, 0.04
# Rounds after which new climbs lead to corners, and the share of all runs for each.
_PROBED_ROUNDS, _PROBE_SHARE = (1, 3), 0.01
# Share of the candidates that climb: those whose slopes differ most. Where all climb, and only from
# the input's own draws, 15 of 24 searches miss a steep wedge behind a gentle slope; with these 9 of
# 54.
_CLIMBING = 0.4
_ROUNDS = 6  # that these runs are for
_LEAST_ROUND, _MOST_ROUND = 100, 20_000  # draws
_MOST_STARTS = 200  # of corners
_LEAST_LEFT = 0.25  # share of the runs, for the estimate
# Draws that show what is beyond a corner.
_DRAWS_OF_CORNER = 8


def searched(problem: Problem) -> Search:
    """The search after all rounds: those planned, and more until the weights of one are good."""
    search, num_runs = init(problem), problem.num_runs
    least = min(_LEAST_ROUND, num_runs // 10)
    size = int(np.clip(LEARNING_SHARE * num_runs / _ROUNDS, least, _MOST_ROUND))
    planned = int(LEARNING_SHARE * num_runs / size)
    while problem.space.num_runs <= (1 - _LEAST_LEFT) * num_runs and (
        search.num_rounds < planned or not search.is_good
    ):
        search = step(search, size)
    return search


def init(problem: Problem) -> Search:
    """The search after the first draws, subset simulation and climbs, and what they teach."""
    d, runs = problem.space.num_variables, problem.runs_of_target
    count = int(WIDE_SHARE * problem.num_runs)
    wide = NormalMixture(around_zero(d, SPREADS).components, np.array(SPREAD_SHARES))
    nothing = np.zeros(0)
    search = Search(problem, Archive.empty(d), nothing, nothing.astype(bool), nothing)
    search = search.draw(wide, count)
    num_plain = int(SPREAD_SHARES[0] * count)
    pilot = slice(int(_PILOT_SHARE * num_plain))
    limits = problem.limits.values[list(problem.limits.targets)].tolist()
    points, outputs = search.archive.points[pilot], search.outputs[pilot]
    populations = subset_simulation(problem.run, limits, points, outputs, problem.rng)
    chains = [Chains(_starts_of_chains(search, limit, num_plain)) for limit in limits]
    fits = [fit_of_population(population.points, problem.rng) for population in populations]
    targets = map(Target, problem.limits.targets, limits, populations, chains, fits)
    most = int(np.clip(_STARTS_SHARE * runs / RUNS_PER_START, 2, _MOST_STARTS))
    with_corners = tuple(_with_first_corners(search, target, most) for target in targets)
    return _updated(dataclasses.replace(search, targets=with_corners))


def step(search: Search, size: int) -> Search:
    """The search after one more round: so many draws of the mixture, and what they teach."""
    search = dataclasses.replace(search, num_rounds=search.num_rounds + 1)
    return _updated(search.draw(search.proposal(), size))


def probes(problem: Problem, target: Target, num_runs: float) -> list[FloatArray]:
    """Failing draws beyond each of the corners to which new climbs lead."""
    num_runs = num_runs * RUNS_PER_CLIMB / (RUNS_PER_CLIMB + RUNS_PER_START)
    ends = _ends_of_climbs(problem, target.limit, num_runs)
    new = corners(problem.space, target.limit, ends, problem.rng)
    draws = [one.draw(problem.rng, _DRAWS_OF_CORNER) for one in new]
    fails = problem.run(np.concatenate([*draws, ends])) > target.limit
    each = np.split(fails[: len(fails) - len(ends)], len(draws)) if draws else []
    return [points[failing] for points, failing in zip(draws, each, strict=True)]


def _ends_of_climbs(problem: Problem, limit: float, num_runs: float) -> FloatArray:
    """Failing points where climbs from new draws end, in about so many runs."""
    count = max(int(num_runs / RUNS_PER_CLIMB), 1)
    spread = np.resize([SPREADS[0], SPREADS[-1]], (count, 1))
    starts = spread * problem.rng.standard_normal((count, problem.space.num_variables))
    return gradient_ascent(problem.space, limit, starts)


def _with_first_corners(search: Search, target: Target, most: int) -> Target:
    """Corners from failing points: first draws, population and ends of climbs."""
    failing, problem = search.archive.points[search.failing(target)], search.problem
    sources = failing, target.population.points, target.chains.points
    rng, count = problem.rng, -(-most // 3)
    starts = [source[rng.permutation(len(source))[:count]] for source in sources]
    return target.with_corners(corners(problem.space, target.limit, np.concatenate(starts), rng))


def _updated(search: Search) -> Search:
    """Chains sent on; tangents from failing draws beyond no corner, slopes at the heaviest."""

    def updated(target: Target) -> Target:
        target = _with_probed_corners(search, _with_moved_chains(search, target))
        failing = search.failing(target)
        if not failing.size:
            return target
        target = _with_corners_of_draws(search, target, failing)
        return _with_slopes(search, target, failing)

    return dataclasses.replace(search, targets=tuple(map(updated, search.targets)))


def _with_probed_corners(search: Search, target: Target) -> Target:
    """New climbs after some rounds, if several components have to fail together somewhere."""
    if search.num_rounds not in _PROBED_ROUNDS or not any(
        len(corner.distances) > 1 for corner in target.corners
    ):
        return target
    problem, limit = search.problem, target.limit
    ends = _ends_of_climbs(problem, limit, _PROBE_SHARE * problem.runs_of_target)
    ends = ends[~are_beyond(target.corners, ends)][: _most_new(problem)]
    return target.with_corners(corners(problem.space, limit, ends, problem.rng))


def _with_corners_of_draws(search: Search, target: Target, failing: NDArray[np.intp]) -> Target:
    """Corners from failing draws, of which those beyond no corner come first."""
    problem, archive = search.problem, search.archive
    is_new = ~are_beyond(target.corners, archive.points[failing])
    chosen = failing[is_new] if is_new.any() else failing
    points, weights = archive.points[chosen], relative(archive.log_weights[chosen])
    # Far from each other: those of the largest weights may be in one place.
    rows = kmeans_plus_plus(points, weights, max(_most_new(problem), 1), problem.rng)
    return target.with_corners(corners(problem.space, target.limit, points[rows], problem.rng))


def _with_slopes(search: Search, target: Target, failing: NDArray[np.intp]) -> Target:
    """Slopes at the heaviest failing draws, while these are too few for a mean."""
    problem, archive, logs = search.problem, search.archive, search.archive.log_weights[failing]
    if ess(relative(logs)) > ENOUGH_FOR_MEAN * problem.space.num_variables:
        return target
    heaviest = failing[np.argsort(-logs, kind="stable")[: problem.num_slopes]]
    if new := [row for row in heaviest.tolist() if row not in target.slopes]:
        slopes = dict(zip(new, problem.space.slopes(archive.points[new])[1], strict=True))
        return dataclasses.replace(target, slopes=target.slopes | slopes)
    return target


def _most_new(problem: Problem) -> int:
    """Starts of corners after a round."""
    return int(_NEW_SHARE * problem.runs_of_target / RUNS_PER_START)


def _starts_of_chains(search: Search, limit: float, num_plain: int) -> FloatArray:
    """Points next to the limit: where climbs from draws with different slopes end."""
    problem, size = search.problem, len(search.outputs)
    space, rng, runs = problem.space, problem.rng, problem.runs_of_target
    number = int(_CLIMB_SHARE * runs / (RUNS_PER_SLOPE + _CLIMBING * RUNS_PER_CLIMB))
    # Half of the candidates are the input's own draws, which are first, half the widest ones.
    plain, widest = np.arange(num_plain), np.arange(size - int(SPREAD_SHARES[-1] * size), size)
    rows = [rng.permutation(source)[: number // 2] for source in (plain, widest)]
    starts = search.archive.points[np.concatenate(rows)]
    most = max(int(_CLIMBING * number), 1)
    # Those whose slopes differ most first. Where one component at a time counts, these are few.
    slopes = units(space.slopes(starts)[1])
    different = kmeans_plus_plus(slopes, np.ones(len(starts)), most, rng)
    climbing = [*different, *np.setdiff1d(np.arange(len(starts)), different)][:most]
    ends = gradient_ascent(space, limit, starts[climbing])
    if not len(ends):
        return ends
    most = max(int(_CHAIN_SHARE * runs / (MOVES * (1 + _ROUNDS))), 1)
    ends = on_rays(space, limit, ends)
    return ends[kmeans_plus_plus(ends, np.ones(len(ends)), most, rng)]


def _with_moved_chains(search: Search, target: Target) -> Target:
    """Half of the chains go on, twice: far from each other where mixtures have little."""
    points, rng = target.chains.points, search.problem.rng
    if not len(points):
        return target
    logs = -0.5 * np.sum(points**2, axis=1) - search.archive.log_density(points)
    half = kmeans_plus_plus(points, tempered(logs, len(points)), -(-len(points) // 2), rng)
    rows = np.resize(half, len(points))
    chains = target.chains.moved(search.problem.run, target.limit, rows, rng)
    fit = fit_of_population(np.concatenate(chains.recent), rng)
    return dataclasses.replace(target, chains=chains, chains_fit=fit)
