"""Controlled distribution functions of all outputs, and their inverses."""

from collections.abc import Callable, Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from nn_uq_dist.sampling._control_variates import PairedEstimate, worth
from nn_uq_dist.sampling._controlled_cdf import NUM_RESIDUALS, Control, OutputPairs

Array = NDArray[np.float64]

# Halvings of a bracket of three times the range of the draws.
_ROUNDS = 45
# The density at a quantile comes from the values this many standard errors to either side.
_REACH = 2.0
# The least reach, as a share of the smaller tail: between closer values the difference is rounding.
_LEAST_REACH = 0.01


class ControlledLaws:
    """The laws of the outputs, estimated from pairs.

    Parameters
    ----------
    outputs
        The pairs of each output.
    cdf
        Distribution functions of the linear law: maps points of shape ``(p, N_y)`` to the same
        shape.
    icdf
        Quantiles of the linear law: maps levels of shape ``(p, 1)`` to shape ``(p, N_y)``.
    """

    def __init__(
        self,
        outputs: Sequence[OutputPairs],
        cdf: Callable[[Array], Array],
        icdf: Callable[[Array], Array],
    ) -> None:
        self._outputs = outputs
        self._cdf, self._icdf = cdf, icdf

    def below(self, points: Array) -> PairedEstimate:
        """Probabilities ``P(Y <= y)`` at points of shape ``(p, N_y)``."""
        result = np.full((3, *points.shape), np.nan)
        controls = self._controls(points)
        exact = self._cdf(points)
        for i, j in np.ndindex(points.shape):
            output, control, point = self._outputs[j], controls[i][j], float(points[i, j])
            if np.isnan(point) or not output.is_enough:
                continue
            if control is None:  # equal to the linear law, or at infinity
                result[:, i, j] = exact[i, j], 0.0, np.inf
                continue
            share = output.below(point, control)
            error, plain = output.error(point, control, self._left[j])
            result[:, i, j] = share, error, worth(plain**2, error, len(output.network))
        return PairedEstimate(*result)

    def quantile(self, levels: Array) -> PairedEstimate:
        """Quantiles at levels of shape ``(p,)``, shape ``(p, N_y)``.

        The controlled distribution function, with the control at the plain quantile, is inverted.
        The standard error of the quantile is that of the function over the density. The density is
        the slope of the same function between the values two standard errors below and above.
        """
        shape = (levels.size, len(self._outputs))
        result = np.full((3, *shape), np.nan)
        plain = np.full(shape, np.nan)
        for j, output in enumerate(self._outputs):
            if output.is_enough and not output.is_linear:
                plain[:, j] = np.quantile(output.ordered, levels)
        controls = self._controls(plain)
        spread = np.full(shape, np.nan)
        for i, j in np.ndindex(shape):
            output, control = self._outputs[j], controls[i][j]
            if control is not None:
                spread[i, j], _ = output.error(float(plain[i, j]), control, self._left[j])
        level = levels[:, None]
        reach = np.maximum(_REACH * spread, _LEAST_REACH * np.minimum(level, 1 - level))
        # Not beyond the support, where there is no density.
        low = np.maximum(level - reach, level / 4)
        high = np.minimum(level + reach, 1 - (1 - level) / 4)
        asked = np.stack([np.broadcast_to(level, shape), low, high])
        value, left, right = self._solve(asked, controls)
        with np.errstate(invalid="ignore", divide="ignore"):
            error = spread * (right - left) / (high - low)
            found = level * (1 - level) / spread**2
        result[:] = value, error, found
        is_linear = [output.is_enough and output.is_linear for output in self._outputs]
        if any(is_linear):
            exact = np.stack([self._icdf(level), np.zeros(shape), np.full(shape, np.inf)])
            result = np.where(is_linear, exact, result)
        return PairedEstimate(*result)

    @cached_property
    def _left(self) -> list[tuple[float, float]]:
        """Shares of the variances that the controls leave near both ends."""
        size = len(self._outputs)
        ends = np.full((2, size), np.nan)
        for j, output in enumerate(self._outputs):
            if output.is_enough:
                ends[:, j] = output.near_ends()
        controls = self._controls(ends)

        def left(j: int, i: int) -> float:
            control = controls[i][j]
            return 1.0 if control is None else self._outputs[j].left(float(ends[i, j]), control)

        return [(left(j, 0), left(j, 1)) for j in range(size)]

    def _controls(self, points: Array) -> list[list[Control | None]]:
        """The controls at points; None where a point is NaN or the pairs need no control."""
        count, size = points.shape
        thresholds = np.full((count, NUM_RESIDUALS, size), np.nan)
        lines = {}
        for i, j in np.ndindex(points.shape):
            output, point = self._outputs[j], float(points[i, j])
            if np.isfinite(point) and output.is_enough and not output.is_linear:
                lines[i, j] = line = output.line(point)
                thresholds[i, :, j] = line.thresholds(point)
        at_thresholds = self._cdf(thresholds.reshape(-1, size)).reshape(thresholds.shape)
        found: list[list[Control | None]] = [[None] * size for _ in range(count)]
        for (i, j), line in lines.items():
            at_line = at_thresholds[i, :, j]
            found[i][j] = self._outputs[j].control(float(points[i, j]), line, at_line)
        return found

    def _solve(self, levels: Array, controls: list[list[Control | None]]) -> Array:
        """Values at which the controlled distribution functions attain levels ``(k, p, N_y)``."""
        slope, intercept, coefficient = np.full((3, *levels.shape[1:]), 1.0)
        residuals = np.full((NUM_RESIDUALS, *levels.shape[1:]), np.nan)
        low, high = np.full((2, *levels.shape), np.nan)
        known = [
            (i, j, control)
            for i, row in enumerate(controls)
            for j, control in enumerate(row)
            if control is not None
        ]
        for i, j, control in known:
            intercept[i, j], slope[i, j], residuals[:, i, j] = control.line
            coefficient[i, j] = control.coefficient
            ends = self._outputs[j].ordered[[0, -1]]
            low[:, i, j], high[:, i, j] = ends + (ends[1] - ends[0]) * np.array([-1, 1])
        for _ in range(_ROUNDS if known else 0):
            middle = (low + high) / 2
            thresholds = (middle[:, None] - intercept - residuals) / slope
            flat = thresholds.reshape(-1, thresholds.shape[-1])
            law = self._cdf(flat).reshape(thresholds.shape).mean(axis=1)
            at_middle = np.full(levels.shape, np.nan)
            for i, j, _ in known:
                output = self._outputs[j]
                drawn = np.searchsorted(output.ordered, middle[:, i, j], side="right")
                linear = np.searchsorted(
                    output.ordered_linear, thresholds[:, :, i, j], side="right"
                ).mean(axis=1)
                excess = linear / len(output.network) - law[:, i, j]
                at_middle[:, i, j] = drawn / output.count - coefficient[i, j] * excess
            is_below = at_middle < levels
            low, high = np.where(is_below, middle, low), np.where(is_below, high, middle)
        return (low + high) / 2
