"""Controlled distribution functions of all outputs, and their inverses."""

from collections.abc import Callable, Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from nn_uq_dist.sampling._control_variates import PairedEstimate, worth
from nn_uq_dist.sampling._controlled_cdf import NUM_RESIDUALS, Control, OutputPairs

Array = NDArray[np.float64]

# Halvings of a bracket of three times the range of the draws.
_ROUNDS = 40
# Normal scores between which the linear law is interpolated: distribution functions of a density
# without kinks are then right within about 1e-8.
_NUM_SCORES, _LAST_SCORE = 301, 7.5
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
        Distribution functions of the linear law: maps points of shape ``(p, R)`` to the same
        shape.
    quantiles
        Quantiles of the linear law: maps normal scores of shape ``(p,)`` to shape ``(p, R)``.
    """

    def __init__(
        self,
        outputs: Sequence[OutputPairs],
        cdf: Callable[[Array], Array],
        quantiles: Callable[[Array], Array],
    ) -> None:
        self._outputs = outputs
        self._cdf, self._quantiles = cdf, quantiles

    def below(self, points: Array) -> PairedEstimate:
        """Probabilities ``P(Y <= y)`` at points of shape ``(p, R)``."""
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
        """Quantiles at levels of shape ``(p,)``, shape ``(p, R)``.

        The controlled distribution function, with the control at the plain quantile, is inverted.
        The standard error of the quantile is that of the function over the density. The density is
        the slope of the same function between the values two standard errors below and above.
        """
        from scipy.special import ndtri

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
            known = self._quantiles(ndtri(levels))
            exact = np.stack([known, np.zeros(shape), np.full(shape, np.inf)])
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
        """Values at which the controlled distribution functions attain levels ``(k, p, R)``."""
        found = np.full(levels.shape, np.nan)
        scores = np.linspace(-_LAST_SCORE, _LAST_SCORE, _NUM_SCORES)
        table = None
        for j, output in enumerate(self._outputs):
            known = [(i, row[j]) for i, row in enumerate(controls) if row[j] is not None]
            if not known:
                continue
            if table is None:
                table = self._quantiles(scores)
            at, parts = zip(*known, strict=True)
            found[:, at, j] = _solve_one(output, levels[:, at, j], parts, table[:, j], scores)
        return found


def _solve_one(
    output: OutputPairs, levels: Array, controls: Sequence[Control], values: Array, scores: Array
) -> Array:
    """Values of one output, levels ``(k, p)``, by bisection; the linear law is interpolated."""
    from scipy.interpolate import PchipInterpolator
    from scipy.special import ndtr

    values, first = np.unique(values, return_index=True)
    score = PchipInterpolator(values, scores[first])
    intercept = np.array([control.line.intercept for control in controls])[:, None]
    slope = np.array([control.line.slope for control in controls])[:, None]
    residuals = np.stack([control.line.residuals for control in controls])
    coefficient = np.array([control.coefficient for control in controls])
    ends = output.ordered[[0, -1]]
    low, high = (np.full(levels.shape, end) for end in ends + np.diff(ends) * np.array([-1, 1]))
    for _ in range(_ROUNDS):
        middle = (low + high) / 2
        thresholds = (middle[..., None] - intercept - residuals) / slope
        law = ndtr(score(np.clip(thresholds, values[0], values[-1]))).mean(axis=-1)
        drawn = np.searchsorted(output.ordered, middle, side="right") / output.count
        linear = np.searchsorted(output.ordered_linear, thresholds, side="right").mean(axis=-1)
        is_below = drawn - coefficient * (linear / len(output.network) - law) < levels
        low, high = np.where(is_below, middle, low), np.where(is_below, high, middle)
    return (low + high) / 2
