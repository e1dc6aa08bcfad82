"""Distribution functions, quantiles and grids of the symmetric laws of several outputs."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from nn_uq_dist.diagnostics._quantiles import quantiles_of_symmetric_laws
from nn_uq_dist.diagnostics._tails import (
    POINTS_PER_CALL,
    distribution_functions,
    upper_tails_and_densities,
)

Array = NDArray[np.float64]

# Half of the range of a grid: beyond, 1e-17 of a normal law are left, and of all others less.
GRID_IN_SD = 8.5


class LawFunctions:
    """Functions and constants of the laws, in float64, one row or column per output.

    Parameters
    ----------
    law
        A `LinearizedMarginal` with batch shape ``(N_y,)``, or ``()`` for one output.
    num_outputs
        The number of outputs.

    Attributes
    ----------
    mean, sd, excess_kurtosis
        Moments, shape ``(N_y,)``.
    low, high
        Ends of the support, infinite with a normal part, shape ``(N_y,)``.
    """

    def __init__(self, law: Any, num_outputs: int) -> None:
        def each(value: Any) -> Array:
            return np.broadcast_to(np.asarray(value, dtype=np.float64), (num_outputs,))

        self._law = law
        self.mean = each(law.mean)
        self.sd = np.sqrt(each(law.variance))
        self.excess_kurtosis = each(law.excess_kurtosis)
        self.low = each(getattr(law.support, "lower_bound", -np.inf))
        self.high = each(getattr(law.support, "upper_bound", np.inf))

    def cdf(self, points: Array) -> Array:
        """Distribution functions at points of shape ``(p, N_y)``."""
        return distribution_functions(self._law, points)

    def quantiles(self, levels: Array) -> Array:
        """Quantiles at levels of shape ``(q,)``, shape ``(q, N_y)``."""
        # 40 standard deviations: beyond the smallest level that a float64 holds.
        lowest = np.maximum(self.low, self.mean - 40 * self.sd)
        return quantiles_of_symmetric_laws(levels, self.cdf, self.mean, lowest, POINTS_PER_CALL)

    def grid(self) -> tuple[Array, Array]:
        """Points over all of each law that matters and the distribution functions there.

        Returns
        -------
        (Array, Array)
            Both ``(4095, N_y)``, ascending.
        """
        half_width = np.minimum(GRID_IN_SD * self.sd, (self.high - self.low) / 2)
        distance = np.linspace(0, 1, POINTS_PER_CALL)[:, None] * half_width
        tail = np.exp(upper_tails_and_densities(self._law, self.mean + distance)[0])
        points = np.concatenate([self.mean - distance[:0:-1], self.mean + distance])
        return points, np.concatenate([tail[:0:-1], 1 - tail])
