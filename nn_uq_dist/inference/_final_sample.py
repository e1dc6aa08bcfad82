"""Draws of one mixture that no longer changes, in portions, and the estimate that they give."""

import math

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaincinv

from nn_uq_dist.basics._known_values import FloatArray as Array
from nn_uq_dist.inference._limit_state import BeyondLimits
from nn_uq_dist.inference._normal_mixture import NormalMixture
from nn_uq_dist.inference._standard_space import StandardSpace

# Draws of a portion, most numbers of it, and of the failing draws that are returned.
_PORTION = 16_384
_PORTION_NUMBERS = 2**22
_KEPT_NUMBERS = 2**22
# Weights to which the law of a tail is fitted, at least.
_LEAST_TAIL = 5


class FinalSample:
    """Sums over draws of a mixture whose first component is the input's own law.

    Attributes
    ----------
    count
        Draws.
    num_plain, plain_hits
        Draws of the input's own law, and how many of them fail at each limit.
    num_nan
        Draws with NaN.
    log_sum, log_square_sum
        Logs of the sum of the weights of failing draws and of that of their squares, for each
        limit.
    """

    def __init__(self, space: StandardSpace, question: BeyondLimits) -> None:
        self.space, self.question = space, question
        self.count = self.num_plain = self.num_nan = 0
        num_limits = math.prod(question.shape)
        self.plain_hits = np.zeros(num_limits, int)
        self.log_sum, self.log_square_sum = np.full((2, num_limits), -np.inf)
        self._kept: list[tuple[Array, Array]] = []
        self._numbers = 0

    def draw(self, mixture: NormalMixture, count: int, rng: np.random.Generator) -> None:
        """Draw a portion."""
        z = mixture.draw(rng, count)
        kept = self.space.run(z)[1]
        fails = self.question.fails(kept)
        log_weights = -0.5 * np.sum(z**2, axis=1) - mixture.log_density(z)
        logs = np.where(fails, log_weights[:, None], -np.inf)
        self.log_sum = np.logaddexp(self.log_sum, np.logaddexp.reduce(logs))
        self.log_square_sum = np.logaddexp(self.log_square_sum, np.logaddexp.reduce(2 * logs))
        num_plain = math.floor(count * mixture.shares[0] / mixture.shares.sum())
        self.plain_hits += fails[:num_plain].sum(axis=0)
        self.num_plain += num_plain
        self.count += count
        self.num_nan += int(np.isnan(kept).any(axis=1).sum())
        failing = fails.any(axis=1)
        # The draws are in the order of the components: all of a portion are kept, or none.
        if self._numbers <= _KEPT_NUMBERS:
            self._kept.append((z[failing], logs[failing]))
            self._numbers += int(failing.sum()) * max(z.shape[1], self.space.law.num_inputs)

    def portion(self) -> int:
        """Draws of a portion."""
        widest = max(self.space.num_variables, self.space.law.num_inputs)
        return max(self.space.group_size, min(_PORTION, _PORTION_NUMBERS // widest))

    @property
    def log_probability(self) -> Array:
        """Log of the estimate for each limit."""
        return self.log_sum - math.log(self.count)

    @property
    def log_standard_error(self) -> Array:
        """Log of its standard error."""
        log_mean = self.log_probability
        log_second = self.log_square_sum - math.log(self.count)
        with np.errstate(divide="ignore", invalid="ignore"):
            rest = np.log1p(-np.exp(np.minimum(2 * log_mean - log_second, 0)))
        found = 0.5 * (log_second + rest - math.log(self.count))
        return np.where(np.isfinite(log_mean), found, -np.inf)

    @property
    def effective_draws(self) -> Array:
        """Failing draws of equal weights that would be worth as much."""
        with np.errstate(invalid="ignore"):
            found = np.exp(2 * self.log_sum - self.log_square_sum)
        return np.where(np.isfinite(self.log_sum), found, 0.0)

    @property
    def settles(self) -> NDArray[np.bool_]:
        """Whether a mean of so many weights with such a tail does (A. Vehtari et al. 2024)."""
        logs = np.concatenate([part for _, part in self._kept])
        failing = [column[np.isfinite(column)] for column in logs.T]
        most = [min(1 - 1 / math.log10(max(column.size, 2)), 0.7) for column in failing]
        return np.array([tail_shape(column) for column in failing]) < most

    @property
    def plain_bound(self) -> Array:
        """Upper 95% bound from the plain draws alone (C. J. Clopper and E. S. Pearson 1934)."""
        return betaincinv(
            self.plain_hits + 1, np.maximum(self.num_plain - self.plain_hits, 1), 0.95
        )

    def failing_draws(self) -> tuple[Array, Array]:
        """Points ``(S, d)`` that fail, and their normalized weights ``(limits, S)``."""
        points = np.concatenate([part for part, _ in self._kept])
        logs = np.concatenate([part for _, part in self._kept])
        largest = logs.max(axis=0, initial=-np.inf)
        weights = np.exp(logs - np.where(np.isfinite(largest), largest, 0))
        total = weights.sum(axis=0)
        return points, (weights / np.where(total > 0, total, 1)).T


def tail_shape(log_weights: Array) -> float:
    """Shape `k` of the Pareto law of the largest weights, which have `1 / k` moments.

    Infinite where there are too few. The law is fitted as in A. Vehtari et al., J. Mach. Learn.
    Res. 25 (2024): to the largest fifth, at most 3 times the root of the number, by the rule of J.
    Zhang and M. A. Stephens, Technometrics 51 (2009), drawn toward one half as by ten more weights.
    """
    count = log_weights.size
    size = int(min(count / 5, 3 * math.sqrt(count)))
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
