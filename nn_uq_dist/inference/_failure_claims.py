"""What the estimate of a failure probability claims, and whether it has converged.

A claim rests on what was looked for: by the draws of the estimate, and by the search before. Each
rule below may doubt an estimate, or enlarge its error.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaincinv, ndtr, ndtri

from nn_uq_dist.basics.concrete import FloatArray
from nn_uq_dist.inference._failure_estimate import FinalSample, log_weights
from nn_uq_dist.inference._failure_search import LEARNING_SHARE, SPREAD_SHARES, WIDE_SHARE
from nn_uq_dist.inference._importance_weights import LEAST_ESS, agree, tail_excess, tail_settles
from nn_uq_dist.inference._normal_mixture import NormalMixture
from nn_uq_dist.inference._search_state import GUARD_SHARE, SPREADS, Search, Target

# Where one draw has more of all weight, the weights do not show how large they may become.
_LARGEST_WEIGHT = 0.1
# Weights are at most one over the share of plain draws: with so many of these that fail, their tail
# is of no concern.
_ENOUGH_PLAIN = 20
# The tail of the weights is of no concern, either, where the largest ones exceed the others by so
# small a share of all weight.
_LARGEST_EXCESS = 0.05
# Plain draws that do not fail, below which their share is no better known than one of them.
_FEW_PLAIN = 3
# An estimate from the population of all draws is doubted if more than this share of it weighs more
# than any draw, or if it is larger by more standard errors than this; its second moment is first
# reduced by so many standard errors.
_MOST_HEAVIER = 0.05
_MOST_LARGER = 3.5
_ERRORS_OF_SECOND = 2.0
# By which share the estimate of the search may differ: mixtures are adapted to their own draws.
_ADAPTED = 0.1
# Draws beyond a corner found afterwards that show it, and how many may weigh more than all others.
_LEAST_OF_CORNER = 4
_MOST_OF_CORNER = 0.5
_LEVEL = 0.95  # of the bounds
_MISSED = 0.01  # chance that `reach` is too large
# Farther than the largest number of runs reaches, which is 19.
_FARTHEST = 40.0


class Claims(NamedTuple):
    """What can be claimed for each limit, as in `FailureProbability`."""

    probability: FloatArray
    log_probability: FloatArray
    standard_error: FloatArray
    converged: NDArray[np.bool_]
    upper_bound: FloatArray
    plain_bound: FloatArray
    effective_draws: FloatArray


def claims(
    search: Search,
    final: FinalSample,
    mixture: NormalMixture,
    probed: Sequence[Sequence[FloatArray]],
) -> Claims:
    """The estimate, judged by all that the search has seen.

    For each target, `probed` has draws beyond corners that were found after the mixture was made.
    """
    probability, error = final.probability, final.standard_error
    # Where nearly all fails, what does not may be in no draw.
    is_sure = (probability > 0.5) & (final.num_plain - final.plain_hits < _FEW_PLAIN)
    error = np.where(is_sure, np.maximum(error, 1 / max(final.num_plain, 1)), error)
    expected, expected_error = search.probability
    slack = _ADAPTED * probability
    converged = agree(probability, expected, np.hypot(error, expected_error), slack)
    converged &= final.ess >= LEAST_ESS
    seldom = final.plain_hits < _ENOUGH_PLAIN
    for column in np.flatnonzero(converged).tolist():
        implied, converged[column] = _by_weights(final, column, is_seldom=seldom[column])
        error[column] = max(error[column], implied)
    for target, draws in zip(search.targets, probed, strict=True):
        number = target.number
        if not seldom[number]:
            continue
        if converged[number]:
            converged[number] = _by_probes(final, mixture, number, draws)
        if len(target.population.points) and probability[number]:
            implied, agrees = _by_population(target, final, mixture, error[number])
            error[number] = max(error[number], implied)
            converged[number] &= agrees
    upper, plain = _bounds(search, final, error, converged)
    with np.errstate(divide="ignore"):
        logs = np.log(probability)
    return Claims(probability, logs, error, converged, upper, plain, final.ess)


def _by_weights(final: FinalSample, column: int, *, is_seldom: bool) -> tuple[float, bool]:
    """Standard error that the tail of the weights implies, and whether they may be trusted."""
    logs, implied, settles = final.log_weights(column), 0.0, True
    if is_seldom and not tail_settles(logs):
        # What a heavy tail has shown is of the size of what it has not.
        excess = tail_excess(logs)
        implied, settles = excess * final.probability[column], bool(excess < _LARGEST_EXCESS)
    largest = np.exp(logs.max() - np.logaddexp.reduce(logs))
    return implied, settles and bool(largest < _LARGEST_WEIGHT)


def _by_probes(
    final: FinalSample, mixture: NormalMixture, number: int, probed: Sequence[FloatArray]
) -> bool:
    """Whether draws beyond corners found afterwards weigh no more than those of the estimate."""
    most = final.log_weights(number).max()
    return all(
        np.mean(log_weights(mixture, points) > most) <= _MOST_OF_CORNER
        for points in probed
        if len(points) >= _LEAST_OF_CORNER
    )


def _by_population(
    target: Target, final: FinalSample, mixture: NormalMixture, error: float
) -> tuple[float, bool]:
    """Standard error that a population implies, and whether it agrees with the estimate.

    Its points are distributed as what fails: their mean weight is the second moment of the weights
    of draws, and few of them weigh more than all draws. It may miss regions itself: only what it
    has more is a contradiction.
    """
    population, number = target.population, target.number
    points, probability = population.points, final.probability[number]
    logs = log_weights(mixture, points)
    terms = np.exp(logs - math.log(probability))
    # Steps that were not taken repeat a point. Few points say it only to within their own errors.
    num_points = np.unique(points[:, 0]).size
    second = terms.mean() - _ERRORS_OF_SECOND * terms.std() / math.sqrt(num_points)
    implied = probability * math.sqrt(max(second - 1, 0) / final.count)
    heavier = np.mean(logs > final.log_weights(number).max(initial=-np.inf))
    errors = math.hypot(population.relative_error, error / probability, 1 / len(points))
    larger = (population.log_probability - math.log(probability)) / errors
    return implied, bool(heavier <= _MOST_HEAVIER and larger <= _MOST_LARGER)


def _bounds(
    search: Search, final: FinalSample, error: FloatArray, converged: NDArray[np.bool_]
) -> tuple[FloatArray, FloatArray]:
    """Upper bounds of the probabilities: from the estimate, and from plain draws alone."""
    limits, probability = search.problem.limits, final.probability
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        asymptotic = np.minimum(probability * np.exp(ndtri(_LEVEL) * error / probability), 1)
    hits = search.fails()[search.is_plain].sum(axis=0) + final.plain_hits
    safe = search.is_plain.sum() + final.num_plain - hits
    plain = np.where(safe, betaincinv(hits + 1, np.maximum(safe, 1), _LEVEL), 1)
    bound = np.where(converged, asymptotic, np.fmax(asymptotic, plain))
    upper, plain = (np.maximum(limits.in_order(each), probability) for each in (bound, plain))
    return upper, plain


def reach(num_runs: int, num_final: int) -> float:
    """Distance of the farthest half-space that the wide draws have entered, but for 1%."""
    guard = GUARD_SHARE * (num_final + LEARNING_SHARE * num_runs)
    each = SPREAD_SHARES[1] * WIDE_SHARE * num_runs + guard / (len(SPREADS) - 1)
    distances = np.linspace(0.0, _FARTHEST, 4001)
    hits = each * ndtr(-distances[:, None] / np.array(SPREADS[1:])).sum(axis=1)
    return float(np.interp(math.log(_MISSED), -hits, distances))
