"""What both searches do with weighted draws: keep, sum, resample, spread out, count, judge them."""

import dataclasses
import math
from typing import Protocol, Self

import numpy as np
from numpy.typing import NDArray

from nn_uq_dist.basics import checks
from nn_uq_dist.basics.concrete import FloatArray

# Weights to which the distribution of a tail is fitted, at least: with fewer its shape is noise.
_LEAST_TAIL = 5
# Pareto shape from which on means of weights do not settle (A. Vehtari et al. 2024).
LARGEST_SHAPE = 0.7
# Fewer effective draws do not show how large their weights may become.
LEAST_ESS = 100.0
# Standard errors that two estimates of one number may differ by.
_MOST_ERRORS = 4.5


class Proposal(Protocol):
    """What an archive asks of a distribution."""

    def log_density(self, z: FloatArray) -> FloatArray:
        """Log density at points ``(n, d)``."""


@dataclasses.dataclass(frozen=True, eq=False)
class Archive:
    """All draws of a search in standard space, with weights over all mixtures of theirs.

    No draw is wasted, and no weight is large where one of the mixtures has been (A. Owen and Y.
    Zhou, J. Am. Stat. Assoc. 95, 2000; J.-M. Cornuet, J.-M. Marin, A. Mira and C. P. Robert, Scand.
    J. Stat. 39, 2012).

    Attributes
    ----------
    points : array, shape (n, d)
    log_target : array, shape (n,)
        Log density that the draws stand for, up to a constant.
    mixtures : tuple
        With the number of draws of each.
    log_sums : array, shape (n,)
        Logs of the sums of these numbers times densities, at the points.
    """

    points: FloatArray
    log_target: FloatArray
    mixtures: tuple[tuple[Proposal, int], ...]
    log_sums: FloatArray

    @classmethod
    def empty(cls, num_variables: int) -> Self:
        """The archive without draws."""
        return cls(np.zeros((0, num_variables)), np.zeros(0), (), np.zeros(0))

    def add(
        self, mixture: Proposal, points: FloatArray, log_target: FloatArray
    ) -> tuple[Self, FloatArray]:
        """The archive with draws of a mixture, and their log weights over it alone."""
        log_count = math.log(len(points))
        before = np.logaddexp(self.log_sums, mixture.log_density(self.points) + log_count)
        mixtures = (*self.mixtures, (mixture, len(points)))
        logs = _log_densities(mixtures, points)
        archive = type(self)(
            np.concatenate([self.points, points]),
            np.concatenate([self.log_target, log_target]),
            mixtures,
            np.concatenate([before, log_sum(logs)]),
        )
        return archive, log_target - (logs[-1] - log_count)

    def log_density(self, points: FloatArray) -> FloatArray:
        """Log density of all mixtures together."""
        return log_sum(_log_densities(self.mixtures, points)) - math.log(len(self.points))

    @property
    def log_weights(self) -> FloatArray:
        """Log weights of all draws, over all mixtures together."""
        return self.log_target - (self.log_sums - math.log(max(len(self.points), 1)))


def _log_densities(mixtures: tuple[tuple[Proposal, int], ...], points: FloatArray) -> FloatArray:
    """Logs of numbers of draws times densities, a row for each mixture."""
    return np.stack([each.log_density(points) + math.log(count) for each, count in mixtures])


def relative(log_weights: FloatArray) -> FloatArray:
    """Weights in units of the largest of them."""
    return np.exp(log_weights - log_weights.max(initial=-np.inf))


def agree[T: (float, FloatArray)](one: T, other: T, error: T, slack: T) -> NDArray[np.bool_]:
    """Whether two estimates differ by no more than errors and a slack explain."""
    difference = np.abs(np.subtract(one, other))
    return np.asarray(difference <= _MOST_ERRORS * error + slack)


def log_sum(logs: FloatArray) -> FloatArray:
    """Log of the sum of exponentials over the first axis; SciPy's takes three times as long."""
    largest = np.max(logs, axis=0)
    shift = np.where(np.isfinite(largest), largest, 0.0)
    with np.errstate(divide="ignore"):
        return np.log(np.sum(np.exp(logs - shift), axis=0)) + shift


def ess(weights: FloatArray) -> float:
    """Effective sample size: how many equal weights are worth as much."""
    return float(weights.sum() ** 2 / np.sum(weights**2))


def tempered(log_weights: FloatArray, wanted: float) -> FloatArray:
    """Weights to the largest power up to one with which so many draws count; sum one.

    Or half of the draws that have a weight.
    """
    logs = log_weights - log_weights.max()
    wanted = min(wanted, np.isfinite(logs).sum() / 2)

    def to_power(power: float) -> FloatArray:
        weights = np.exp(power * logs)
        return weights / weights.sum()

    def enough(power: float) -> bool:
        return bool(np.sum(to_power(power) ** 2) * wanted <= 1)

    low, high = float(np.finfo(float).tiny), 1.0  # zero times -inf is no number
    if enough(high):
        return to_power(high)
    for _ in range(20):
        middle = (low + high) / 2
        low, high = (middle, high) if enough(middle) else (low, middle)
    return to_power(low)


def systematic(weights: FloatArray, count: int, rng: np.random.Generator) -> NDArray[np.intp]:
    """Indices drawn with probabilities that are proportional to weights, in order.

    Systematic resampling: the number of each index differs from its expectation by less than one.
    """
    ends = np.cumsum(weights)
    marks = (np.arange(count) + rng.uniform()) * (ends[-1] / count)
    return np.minimum(np.searchsorted(ends, marks, side="right"), len(weights) - 1)


def kmeans_plus_plus(
    z: FloatArray, weights: FloatArray, most: int, rng: np.random.Generator
) -> list[int]:
    """Indices of draws far from each other, fewer than `most` if there are no more places.

    k-means++: D. Arthur and S. Vassilvitskii, SODA (2007).
    """
    chosen = [int(rng.choice(len(z), p=weights / weights.sum()))]
    nearest = np.sum((z - z[chosen[0]]) ** 2, axis=1)
    while len(chosen) < most and (chance := weights * nearest).sum() > 0:
        chosen.append(int(rng.choice(len(z), p=chance / chance.sum())))
        nearest = np.minimum(nearest, np.sum((z - z[chosen[-1]]) ** 2, axis=1))
    return chosen


def tail_settles(log_weights: FloatArray) -> bool:
    """Whether a mean of so many weights with such a tail does (A. Vehtari et al. 2024)."""
    return tail_shape(log_weights) < min(
        1 - 1 / math.log10(max(log_weights.size, 2)), LARGEST_SHAPE
    )


def tail_excess(log_weights: FloatArray) -> float:
    """Share of all weight by which the largest weights exceed the least of them."""
    ordered = np.sort(relative(log_weights))
    size = _tail_size(ordered.size)
    if size < _LEAST_TAIL:
        return math.inf
    return float((ordered[-size:] - ordered[-size - 1]).sum() / ordered.sum())


def psis(log_weights: FloatArray) -> tuple[FloatArray, float]:
    """Pareto-smoothed normalized log weights, and the shape of the Pareto distribution.

    The shape is -inf where the largest weights are all the same, and nothing is to be smoothed.
    """
    array_stats = checks.require_extra("arviz_stats.base", "input_posterior").array_stats
    logs = np.maximum(log_weights - log_weights.max(), -700.0)
    size = _tail_size(logs.size)
    if np.partition(logs, -size)[-size] == 0:
        return logs - log_sum(logs), -math.inf
    with np.errstate(over="ignore"):
        # ArviZ takes logs of importance ratios with the opposite sign.
        smoothed, shape = array_stats.psislw(-logs)
    return np.asarray(smoothed), float(shape)


def _tail_size(count: int) -> int:
    return int(min(count / 5, 3 * math.sqrt(count)))


def tail_shape(log_weights: FloatArray) -> float:
    """Shape `k` of the Pareto distribution of the largest weights, which have `1 / k` moments.

    Infinite where there are too few. The distribution is fitted as in A. Vehtari et al., J. Mach.
    Learn. Res. 25 (2024): to the largest fifth, at most 3 times the root of the number, by the rule
    of J. Zhang and M. A. Stephens, Technometrics 51 (2009), drawn toward one half as by ten more
    weights.
    """
    size = _tail_size(log_weights.size)
    if size < _LEAST_TAIL:
        return math.inf
    ordered = np.sort(np.exp(log_weights - log_weights.max()))
    beyond = ordered[-size:] - ordered[-size - 1]
    quartile = beyond[(size + 2) // 4 - 1]
    if quartile <= 0:
        return -math.inf
    number = 30 + math.isqrt(size)
    rates = 1 - np.sqrt(number / (np.arange(1, number + 1) - 0.5))
    rates = 1 / beyond[-1] + rates / (3 * quartile)
    shapes = np.log1p(-rates[:, None] * beyond).mean(axis=1)
    likelihoods = size * (np.log(-rates / shapes) - shapes - 1)
    weights = np.exp(likelihoods - likelihoods.max())
    rate = weights @ rates / weights.sum()
    return float((size * np.log1p(-rate * beyond).mean() + 5) / (size + 10))
