"""Draws of one mixture that no longer changes, in portions, and the estimate that they give."""

import math

import numpy as np

from nn_uq_dist.basics.concrete import FloatArray as Array
from nn_uq_dist.inference._limits import Limits
from nn_uq_dist.inference._mixture import NormalMixture
from nn_uq_dist.inference._standard_space import StandardSpace

# Draws of a portion, most numbers of it, and of the failing draws that are returned.
_PORTION = 16_384
_PORTION_NUMBERS = 2**22
_KEPT_NUMBERS = 2**22


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
    """

    def __init__(self, space: StandardSpace, limits: Limits, control: Array) -> None:
        self._space, self._limits, self._control = space, limits, control
        self.count = self.num_plain = self.num_nan = 0
        self.nan_weight = 0.0
        self.plain_hits = np.zeros(limits.values.size, int)
        self._sum, self._square_sum, self._weight, self._square_weight = np.zeros(
            (4, limits.values.size)
        )
        self._kept: list[tuple[Array, Array]] = []
        self._numbers = 0

    def draw(self, mixture: NormalMixture, count: int, rng: np.random.Generator) -> None:
        """Draw a portion."""
        z = mixture.draw(rng, count)
        outputs = self._space.run(z)
        fails = self._limits.fails(outputs)
        log_weights = -0.5 * np.sum(z**2, axis=1) - mixture.log_density(z)
        weights = np.exp(log_weights)[:, None]
        terms = weights * (fails - self._control)
        self._sum += terms.sum(axis=0)
        self._square_sum += (terms**2).sum(axis=0)
        self._weight += (weights * fails).sum(axis=0)
        self._square_weight += (weights**2 * fails).sum(axis=0)
        num_plain = math.floor(count * mixture.shares[0] / mixture.shares.sum())
        self.plain_hits += fails[:num_plain].sum(axis=0)
        self.num_plain += num_plain
        self.count += count
        self.num_nan += int(np.isnan(outputs).sum())
        self.nan_weight += float(weights[np.isnan(outputs)].sum())
        failing = fails.any(axis=1)
        # The draws are in the order of the components: all of a portion are kept, or none.
        if self._numbers <= _KEPT_NUMBERS:
            logs = np.where(fails, log_weights[:, None], -np.inf)
            self._kept.append((z[failing], logs[failing]))
            self._numbers += int(failing.sum()) * max(
                z.shape[1], self._space.distribution.num_inputs
            )

    def portion(self) -> int:
        """Draws of a portion."""
        widest = max(self._space.num_variables, self._space.distribution.num_inputs)
        return max(self._space.group_size, min(_PORTION, _PORTION_NUMBERS // widest))

    @property
    def probability(self) -> Array:
        """The estimate for each limit."""
        return np.clip(self._sum / self.count + self._control, 0, 1)

    @property
    def standard_error(self) -> Array:
        """Its standard error."""
        mean, second = self._sum / self.count, self._square_sum / self.count
        return np.sqrt(np.maximum(second - mean**2, 0) / self.count)

    @property
    def effective_draws(self) -> Array:
        """Failing draws of equal weights that would be worth as much."""
        return self._weight**2 / np.maximum(self._square_weight, 1e-300)

    def log_weights(self, column: int) -> Array:
        """Of draws that fail at a limit."""
        logs: Array = np.concatenate([part[:, column] for _, part in self._kept])
        return logs[np.isfinite(logs)]

    def failing_draws(self) -> tuple[Array, Array]:
        """Points ``(S, d)`` that fail, and their normalized weights ``(limits, S)``."""
        points = np.concatenate([part for part, _ in self._kept])
        logs = np.concatenate([part for _, part in self._kept])
        largest = logs.max(axis=0, initial=-np.inf)
        weights = np.exp(logs - np.where(np.isfinite(largest), largest, 0))
        total = weights.sum(axis=0)
        return points, (weights / np.where(total > 0, total, 1)).T
