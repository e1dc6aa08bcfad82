"""Draws of one mixture that no longer changes, and the estimate that they give."""

import math

import numpy as np

from nn_uq_dist.basics.concrete import FloatArray
from nn_uq_dist.inference._limit_state import Limits, nearest
from nn_uq_dist.inference._normal_mixture import NormalMixture
from nn_uq_dist.inference._standard_space import StandardSpace

# Draws of a portion, and most numbers of it and of the failing draws that are returned.
_PORTION, _MOST_NUMBERS = 16_384, 2**22


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
        logs = log_weights(mixture, points)
        weights = np.exp(logs)[:, None]
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
            kept = np.where(fails, logs[:, None], -np.inf)
            self._kept.append((points[failing], kept[failing]))
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


def log_weights(mixture: NormalMixture, points: FloatArray) -> FloatArray:
    """Log of the density of the input over that of the mixture."""
    return -0.5 * np.sum(points**2, axis=1) - mixture.log_density(points)
