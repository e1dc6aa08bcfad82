"""Draws of one mixture that no longer changes, the estimate that they give, and what it claims.

A claim rests on what was looked for: by these draws, and by the search before.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaincinv, ndtr, ndtri

from nn_uq_dist.basics.concrete import FloatArray
from nn_uq_dist.inference._failure_search import LEARNING_SHARE, SPREAD_SHARES, WIDE_SHARE
from nn_uq_dist.inference._importance_weights import (
    LEAST_ESS,
    agree,
    tail_excess,
    tail_settles,
)
from nn_uq_dist.inference._limit_state import Limits, nearest
from nn_uq_dist.inference._normal_mixture import NormalMixture
from nn_uq_dist.inference._search_state import GUARD_SHARE, SPREADS, Search, Target
from nn_uq_dist.inference._standard_space import StandardSpace

# Draws of a portion, and most numbers of it and of the failing draws that are returned.
_PORTION, _MOST_NUMBERS = 16_384, 2**22
# Where one draw has more of all weight, the weights do not show how large they may become.
_LARGEST_WEIGHT = 0.1
# Weights are at most one over the share of plain draws: with so many of these that fail, their tail
# is of no concern.
_ENOUGH_PLAIN, _FEW_PLAIN = 20, 3
# Nor is it where the largest weights exceed the others by so small a share of all weight.
_LARGEST_EXCESS = 0.05
# An estimate from the population of all draws is doubted if more than this share of it weighs more
# than any draw, or if it is larger by more standard errors than this; its second moment is first
# reduced by so many standard errors.
_MOST_HEAVIER, _MOST_LARGER, _ERRORS_OF_SECOND = 0.05, 3.5, 2.0
# By which share the estimate of the search may differ: mixtures are adapted to their own draws.
_ADAPTED = 0.1
# Draws beyond a corner found afterwards that show it, and how many may weigh more than all others.
_LEAST_OF_CORNER, _MOST_OF_CORNER = 4, 0.5
# Level of the bounds, and the chance that `reach` is too large.
_LEVEL, _MISSED = 0.95, 0.01
# Farther than the largest number of runs reaches, which is 19.
_FARTHEST = 40.0


class FinalSample:
    r"""Sums over draws of a mixture whose first component is the input's own distribution.

    The estimate is the mean of :math:`w (1[\text{fails}] - c) + c` with weights :math:`w` of mean
    one. A control :math:`c` near one makes what fails nearly always as exact as what fails seldom.

    Attributes
    ----------
    count
        Draws.
    num_plain, plain_hits
        Draws of the input's own distribution, and how many of them fail at each limit.
    num_nan, nan_weight
        Draws with NaN, and the sum of their weights.
    nearest
        For each limit the failing point nearest to zero, of the draws and of those before.
    """

    def __init__(
        self, space: StandardSpace, limits: Limits, control: FloatArray, before: FloatArray
    ) -> None:
        self._space, self._limits, self._control = space, limits, control
        self.count = self.num_plain = self.num_nan = 0
        self.nan_weight, self.nearest = 0.0, before
        self.plain_hits = np.zeros(limits.values.size, int)
        # Of the terms and their squares, of the weights of what fails and their squares.
        self._sums = np.zeros((4, limits.values.size))
        self._kept: list[tuple[FloatArray, FloatArray]] = []
        self._num_kept = 0
        self._widest = max(space.num_variables, space.distribution.num_inputs)

    def draw(self, mixture: NormalMixture, count: int, rng: np.random.Generator) -> None:
        """Draw a portion."""
        points = mixture.draw(rng, count)
        outputs = self._space.run(points)
        fails, is_nan = self._limits.fails(outputs), np.isnan(outputs)
        log_weights = _log_weights(mixture, points)
        weights = np.exp(log_weights)[:, None]
        terms, hits = weights * (fails - self._control), weights * fails
        self._sums += [numbers.sum(axis=0) for numbers in (terms, terms**2, hits, hits**2)]
        num_plain = math.floor(count * mixture.shares[0] / mixture.shares.sum())
        self.plain_hits += fails[:num_plain].sum(axis=0)
        self.num_plain += num_plain
        self.count += count
        self.num_nan += int(is_nan.sum())
        self.nan_weight += float(weights[is_nan].sum())
        failing = fails.any(axis=1)
        self.nearest = nearest(points[failing], fails[failing], self.nearest)
        # The draws are in the order of the components: all of a portion are kept, or none.
        if self._num_kept * self._widest <= _MOST_NUMBERS:
            logs = np.where(fails, log_weights[:, None], -np.inf)
            self._kept.append((points[failing], logs[failing]))
            self._num_kept += int(failing.sum())

    def portion(self) -> int:
        """Draws of a portion."""
        return max(self._space.block, min(_PORTION, _MOST_NUMBERS // self._widest))

    @property
    def probability(self) -> FloatArray:
        """The estimate for each limit."""
        return np.clip(self._sums[0] / self.count + self._control, 0, 1)

    @property
    def standard_error(self) -> FloatArray:
        """Its standard error."""
        mean, second = self._sums[:2] / self.count
        return np.sqrt(np.maximum(second - mean**2, 0) / self.count)

    @property
    def ess(self) -> FloatArray:
        """Effective sample size of the failing draws."""
        return self._sums[2] ** 2 / np.maximum(self._sums[3], 1e-300)

    def log_weights(self, column: int) -> FloatArray:
        """Of draws that fail at a limit."""
        logs = np.concatenate([logs[:, column] for _, logs in self._kept])
        return logs[np.isfinite(logs)]

    def failing_draws(self) -> tuple[FloatArray, FloatArray]:
        """Points ``(S, d)`` that fail, and their normalized weights ``(limits, S)``."""
        points, logs = (np.concatenate(arrays) for arrays in zip(*self._kept, strict=True))
        largest = logs.max(axis=0, initial=-np.inf)
        weights = np.exp(logs - np.where(np.isfinite(largest), largest, 0))
        total = weights.sum(axis=0)
        return points, (weights / np.where(total > 0, total, 1)).T


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
    probes: Sequence[Sequence[FloatArray]],
) -> Claims:
    """The estimate, judged by all that the search has seen.

    Probes are, for each target, draws beyond corners that were found after the mixture was made.
    """
    limits, probability, error = search.problem.limits, final.probability, final.standard_error
    # Where nearly all fails, what does not may be in no draw.
    is_sure = (probability > 0.5) & (final.num_plain - final.plain_hits < _FEW_PLAIN)
    error = np.where(is_sure, np.maximum(error, 1 / max(final.num_plain, 1)), error)
    expected, expected_error = search.probability
    converged = agree(
        probability, expected, np.hypot(error, expected_error), _ADAPTED * probability
    )
    converged &= final.ess >= LEAST_ESS
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
    for target, beyond in zip(search.targets, probes, strict=True):
        number = target.number
        if seldom[number] and converged[number]:
            most = final.log_weights(number).max()
            heavier = (
                np.mean(_log_weights(mixture, points) > most) <= _MOST_OF_CORNER
                for points in beyond
                if len(points) >= _LEAST_OF_CORNER
            )
            converged[number] = all(heavier)
        if seldom[number] and len(target.population.points) and probability[number]:
            implied, agrees = _by_population(target, final, mixture, error[number])
            error[number] = max(error[number], implied)
            converged[number] &= agrees
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        asymptotic = np.minimum(probability * np.exp(ndtri(_LEVEL) * error / probability), 1)
    hits = search.fails()[search.is_plain].sum(axis=0) + final.plain_hits
    safe = search.is_plain.sum() + final.num_plain - hits
    plain = np.where(safe, betaincinv(hits + 1, np.maximum(safe, 1), _LEVEL), 1)
    bound = np.where(converged, asymptotic, np.fmax(asymptotic, plain))
    with np.errstate(divide="ignore"):
        return Claims(
            probability,
            np.log(probability),
            error,
            converged,
            np.maximum(limits.in_order(bound), probability),
            np.maximum(limits.in_order(plain), probability),
            final.ess,
        )


def _log_weights(mixture: NormalMixture, points: FloatArray) -> FloatArray:
    return -0.5 * np.sum(points**2, axis=1) - mixture.log_density(points)


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
    log_weights = _log_weights(mixture, points)
    terms = np.exp(log_weights - math.log(probability))
    # Steps that were not taken repeat a point. Few points say it only to within their own errors.
    num_points = np.unique(points[:, 0]).size
    second = terms.mean() - _ERRORS_OF_SECOND * terms.std() / math.sqrt(num_points)
    implied = probability * math.sqrt(max(second - 1, 0) / final.count)
    heavier = np.mean(log_weights > final.log_weights(number).max(initial=-np.inf))
    errors = math.hypot(population.relative_error, error / probability, 1 / len(points))
    larger = (population.log_probability - math.log(probability)) / errors
    return implied, bool(heavier <= _MOST_HEAVIER and larger <= _MOST_LARGER)


def reach(num_runs: int, num_final: int) -> float:
    """Distance of the farthest half-space that the wide draws have entered, but for 1%."""
    guard = GUARD_SHARE * (num_final + LEARNING_SHARE * num_runs)
    each = SPREAD_SHARES[1] * WIDE_SHARE * num_runs + guard / (len(SPREADS) - 1)
    distances = np.linspace(0.0, _FARTHEST, 4001)
    hits = each * ndtr(-distances[:, None] / np.array(SPREADS[1:])).sum(axis=1)
    return float(np.interp(math.log(_MISSED), -hits, distances))
