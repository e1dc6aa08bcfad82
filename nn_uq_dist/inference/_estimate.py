"""How the runs of an estimate are shared out: the search, refits, and the draws that count."""

import math

import numpy as np

from nn_uq_dist.basics._known_values import FloatArray as Array
from nn_uq_dist.inference._cross_entropy import Pool, wide_start, with_prior
from nn_uq_dist.inference._final_sample import FinalSample
from nn_uq_dist.inference._limit_state import RUNS_PER_START, BeyondLimits, distinct, tangent_points
from nn_uq_dist.inference._normal_mixture import Normal, NormalMixture
from nn_uq_dist.inference._standard_space import StandardSpace

# Draws of a level, as a share of all runs and at most; levels of the search.
_LEVEL_SHARE, _MOST_LEVEL = 1 / 50, 500
_MOST_LEVELS = 10
# Shares of the runs: of starts of tangents, and of each of the refits.
_TANGENT_SHARE, _MOST_STARTS = 0.08, 24
_ROUND_SHARE, _MOST_ROUND = 0.12, 20_000
_MOST_ROUNDS = 3
# Of the draws of a refit around what nearly fails, and effective draws that this is fitted to.
_NEAR_SHARE, _NEAR_DRAWS = 0.05, 20.0
_SLOPES_SHARE, _MOST_SLOPES = 0.005, 100  # of each fit
# All this ends when less than this share is left for the estimate.
_LEAST_FINAL = 0.3
_POINTS_SHARE = 0.08
# Lengths of rays on which failing points are looked for, halvings, and the share of the runs.
_FACTORS = np.linspace(1.1, 0.5, 13)
_HALVES = 5
_RAYS_SHARE = 0.02
_FINAL_PRIOR_SHARE = 0.03


def estimate(
    space: StandardSpace, question: BeyondLimits, num_runs: int, rng: np.random.Generator
) -> tuple[FinalSample, Pool, Array]:
    """Estimate with `num_runs` runs in all.

    Returns
    -------
    final : FinalSample
    pool : Pool
        The search, which says something of the same probabilities.
    points : array, shape (limits, d)
        The most probable failing ones, NaN if there are none.
    """
    d = space.num_variables
    level = int(min(_LEVEL_SHARE * num_runs, _MOST_LEVEL))
    slopes = int(np.clip(_SLOPES_SHARE * num_runs, 5, _MOST_SLOPES))
    pool = Pool(space, question, rng, slopes)
    pool.search(wide_start(d), level, _MOST_LEVELS)
    # What the search does not find, tangents may.
    most = int(np.clip(_TANGENT_SHARE * num_runs / RUNS_PER_START, 1, _MOST_STARTS))
    starts = pool.starts(most - 1)
    best = distinct(tangent_points(space, question, question.targets[::-1], starts))
    around = None
    if len(best):
        around = NormalMixture.even(*map(Normal.around, best))
        pool.draw(with_prior(around, d, 0.1), level)

    size = int(min(_ROUND_SHARE * num_runs, _MOST_ROUND))
    for _ in range(_MOST_ROUNDS):
        if space.num_runs + size > (1 - _LEAST_FINAL) * num_runs:
            break
        mixture = pool.balanced(with_prior(_with_points(pool.refit(), around), d))
        near = pool.nearest(_NEAR_DRAWS, not_failing=True)
        pool.draw(NormalMixture.joined([mixture, near], [1 - _NEAR_SHARE, _NEAR_SHARE]), size)

    final = FinalSample(space, question)
    fitted = _with_points(pool.refit(), around)
    mixture = with_prior(fitted if pool.fails().any() else None, d, _FINAL_PRIOR_SHARE)
    mixture = pool.balanced(mixture)
    means = [part.mean for part in mixture.components[1:]]
    candidates = np.array([*pool.shortest_failing(), *best, *means]).reshape(-1, d)
    nearest = most_probable(space, question, candidates, _RAYS_SHARE * num_runs)
    while (left := num_runs - space.num_runs) > 0:
        final.draw(mixture, min(left, final.portion()), rng)
    return final, pool, nearest


def _with_points(mixture: NormalMixture, around: NormalMixture | None) -> NormalMixture:
    """Keep a share of draws around the points of the tangents, whatever was fitted."""
    if around is None:
        return mixture
    return NormalMixture.joined([mixture, around], [1 - _POINTS_SHARE, _POINTS_SHARE])


def most_probable(
    space: StandardSpace, question: BeyondLimits, candidates: Array, most_runs: float
) -> Array:
    """For each limit the failing point nearest to the origin on rays to candidates, else NaN."""
    most = max(1, int(most_runs / _FACTORS.size))
    rays = candidates[:most]
    if not len(rays):
        return np.full((math.prod(question.shape), space.num_variables), np.nan)
    trials = (_FACTORS[:, None, None] * rays).reshape(-1, rays.shape[1])
    fails = question.fails(space.run(trials)[1])
    squares = np.where(fails, np.sum(trials**2, axis=1)[:, None], np.inf)
    nearest = squares.argmin(axis=0)
    found = trials[nearest]
    # Failing points and shorter ones that do not: between them by halves.
    outer, inner = np.ones(len(found)), 1 + np.diff(_FACTORS)[0] / _FACTORS[nearest // len(rays)]
    for _ in range(_HALVES):
        middle = (outer + inner) / 2
        fails_there = question.fails(space.run(middle[:, None] * found)[1]).diagonal()
        outer, inner = np.where(fails_there, (middle, inner), (outer, middle))
    found = outer[:, None] * found
    return np.where(np.isfinite(squares.min(axis=0))[:, None], found, np.nan)
