"""Whether a failure probability can be trusted: a claim rests on what was looked for."""

import dataclasses
import math

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaincinv, ndtr

from nn_uq_dist.basics.concrete import FloatArray as Array
from nn_uq_dist.inference._failure_search import (
    GUARD_SHARE,
    LEARNING_SHARE,
    SPREAD_SHARES,
    SPREADS,
    WIDE_SHARE,
    FailureSearch,
)
from nn_uq_dist.inference._final_sample import FinalSample
from nn_uq_dist.inference._mixture import NormalMixture
from nn_uq_dist.inference._subset_simulation import Population
from nn_uq_dist.inference._weighted_draws import tail_excess, tail_settles

# Fewer effective draws do not show how large their weights may become; nor do draws of which one
# has more than this share of all weight.
_LEAST_EFFECTIVE, _LARGEST_WEIGHT = 100.0, 0.1
# Weights are at most one over the share of plain draws: with so many of these that fail, their tail
# is of no concern.
_ENOUGH_PLAIN, _FEW_PLAIN = 20, 3
# Nor is it where the largest weights exceed the others by so small a share of all weight.
_LARGEST_EXCESS = 0.05
# What the search and the final sample may differ by: standard errors, and a share, as the search
# is adapted to its own draws.
_MOST_ERRORS, _MOST_DIFFERENCE = 4.5, 0.5
# Of the population: the share that may weigh more than all draws, errors by which its estimate may
# be larger, and errors that are taken off the second moment that it implies.
_MOST_HEAVIER, _MOST_LARGER, _ERRORS_OF_SECOND = 0.05, 3.5, 2.0
# Level of the bounds, its normal score, and the chance that the reach is too large.
_LEVEL, _BOUND_SCORE, _MISSED = 0.95, 1.6448536269514722, 0.01


@dataclasses.dataclass(frozen=True, eq=False)
class Claims:
    """What can be claimed of an estimate, each for all limits."""

    standard_error: Array
    converged: NDArray[np.bool_]
    upper_bound: Array
    plain_bound: Array


def claims(search: FailureSearch, final: FinalSample, mixture: NormalMixture) -> Claims:
    """Judge the estimate of the final sample by itself and by what the search has seen."""
    limits, probability, error = search.limits, final.probability, final.standard_error
    # Where nearly all fails, what does not may be in no draw.
    is_sure = (probability > 0.5) & (final.num_plain - final.plain_hits < _FEW_PLAIN)
    error = np.where(is_sure, np.maximum(error, 1 / max(final.num_plain, 1)), error)
    expected, expected_error = search.probability
    most = _MOST_ERRORS * np.hypot(error, expected_error) + _MOST_DIFFERENCE * probability
    converged = abs(probability - expected) <= most
    converged &= final.effective_draws >= _LEAST_EFFECTIVE
    seldom = final.plain_hits < _ENOUGH_PLAIN
    for column in np.flatnonzero(converged).tolist():
        logs = final.log_weights(column)
        largest = np.exp(logs.max() - np.logaddexp.reduce(logs))
        if seldom[column] and not tail_settles(logs):
            # What a heavy tail has shown is of the size of what it has not.
            excess = tail_excess(logs)
            error[column] = max(error[column], excess * probability[column])
            converged[column] = excess < _LARGEST_EXCESS
        converged[column] &= largest < _LARGEST_WEIGHT
    for target, population in zip(limits.targets, search.populations, strict=True):
        if seldom[target] and len(population.points) and probability[target]:
            implied, agrees = _by_population(population, final, mixture, target, error[target])
            error[target] = max(error[target], implied)
            converged[target] &= agrees
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        asymptotic = np.minimum(probability * np.exp(_BOUND_SCORE * error / probability), 1)
    num_plain, hits = search.plain_hits
    num_plain, hits = num_plain + final.num_plain, hits + final.plain_hits
    safe = num_plain - hits
    plain = np.where(safe, betaincinv(hits + 1, np.maximum(safe, 1), _LEVEL), 1)
    bound = np.where(converged, asymptotic, np.fmax(asymptotic, plain))
    return Claims(
        error,
        converged,
        np.maximum(limits.in_order(bound), probability),
        np.maximum(limits.in_order(plain), probability),
    )


def _by_population(
    population: Population,
    final: FinalSample,
    mixture: NormalMixture,
    target: int,
    error: float,
) -> tuple[float, bool]:
    """Standard error that a population implies, and whether it agrees with the estimate.

    Its points are distributed as what fails: their mean weight is the second moment of the weights
    of draws, and few of them weigh more than all draws. It may miss regions itself: only what it
    has more is a contradiction.
    """
    points, probability = population.points, final.probability[target]
    log_weights = -0.5 * np.sum(points**2, axis=1) - mixture.log_density(points)
    terms = np.exp(log_weights - math.log(probability))
    # Steps that were not taken repeat a point. Few points say it only to within their own errors.
    second = terms.mean() - _ERRORS_OF_SECOND * terms.std() / math.sqrt(
        np.unique(points[:, 0]).size
    )
    implied = probability * math.sqrt(max(second - 1, 0) / final.count)
    heavier = np.mean(log_weights > final.log_weights(target).max(initial=-np.inf))
    errors = math.hypot(population.relative_error, error / probability, 1 / len(points))
    larger = (population.log_probability - math.log(probability)) / errors
    return implied, bool(heavier <= _MOST_HEAVIER and larger <= _MOST_LARGER)


def reach(num_runs: int, num_final: int) -> float:
    """Distance of the farthest half-space that the wide draws have entered, but for 1%."""
    guard = GUARD_SHARE * (num_final + LEARNING_SHARE * num_runs)
    each = SPREAD_SHARES[1] * WIDE_SHARE * num_runs + guard / (len(SPREADS) - 1)
    at = np.linspace(2.0, 12.0, 501)
    hits = each * ndtr(-at[:, None] / np.array(SPREADS[1:])).sum(axis=1)
    return float(at[np.argmax(hits < -math.log(_MISSED))])
