"""Controlled distribution functions of all outputs, and their inverses."""

from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nn_uq_dist.sampling._control_variates import PairedEstimate, standard_error, worth
from nn_uq_dist.sampling._linear_law import LinearLaw

Array = NDArray[np.float64]

# Number of quantiles that represent the residuals: 16 give nine tenths of the gain of 63 at a
# probability of 1%, and all of it elsewhere.
NUM_RESIDUALS = 16
# Pairs that a line is fitted to: this many times n^0.6, 64 of 100 and 1000 of 10,000.
_WINDOW = 4.0
# Range of slopes of the line; if an output hardly follows its linear model, the residuals describe
# it.
_SLOPES = (0.02, 50.0)
# Prior draws with the coefficient 1 of a correct control, which stabilize it if few draws are
# beyond.
_PRIOR = 1.0
# Fewer draws than this beyond a point are too few to judge the control there.
_FEW = 10
# Draws added on either side, as in A. Agresti and Y. Min, Biometrics 57 (2001), for pairs.
_ADDED = 0.5
# Halvings of a bracket of three times the range of the draws.
_ROUNDS = 40
# Normal scores between which the linear law is interpolated: distribution functions of a density
# without kinks are then right within about 1e-8.
_NUM_SCORES, _LAST_SCORE = 301, 7.5
# The density at a quantile comes from the values this many standard errors to either side.
_REACH = 2.0
# The least reach, as a share of the smaller tail: between closer values the difference is rounding.
_LEAST_REACH = 0.01


class Line(NamedTuple):
    """Description of the outputs near one value: ``a + b l + e``."""

    intercept: float
    slope: float
    residuals: Array  # ascending, NUM_RESIDUALS of them

    def thresholds(self, point: float) -> Array:
        """Linear outputs at which the network's output equals `point`, one for each residual."""
        return (point - self.intercept - self.residuals) / self.slope


class Control(NamedTuple):
    """The control of the indicator ``Y <= point``, and the variance that it leaves."""

    point: float
    line: Line
    coefficient: float
    excess: float  # mean of the control minus its expected value
    variance: float  # remaining variance of one draw
    spread: float  # standard error from Sobol sequences, 0 for independent draws


class OutputPairs:
    """The pairs of one output, sorted.

    Parameters
    ----------
    network, linear
        Outputs, shape ``(n,)``; those of the network may be NaN or infinite.
    num_randomizations
        Sobol sequences that the pairs consist of, 0 for independent ones.
    precision
        Relative rounding of the outputs.
    """

    def __init__(
        self, network: Array, linear: Array, num_randomizations: int, precision: float
    ) -> None:
        self.network, self.linear = network, linear
        self.num_randomizations = num_randomizations
        self.used = np.isfinite(network)
        self.count = int(self.used.sum())
        self.ordered = np.sort(network[self.used])
        self.ordered_linear = np.sort(linear)
        order = np.argsort(linear[self.used], kind="stable")
        self._by_linear = linear[self.used][order], network[self.used][order]
        largest = np.abs(self.ordered[[0, -1]]).max() if self.count else 0.0
        differs = ~self.used | (np.abs(network - linear) > 64 * precision * largest)
        self.differing_share = float(differs.mean())

        self.is_enough = self.count >= _FEW
        # Else network and linear model agree in all pairs to rounding.
        self.needs_control = self.is_enough and self.differing_share > 0

    def line(self, point: float) -> Line:
        """Least squares over the pairs near the level of a value of the network."""
        size = min(self.count, int(np.ceil(_WINDOW * self.count**0.6)))
        level = int(np.searchsorted(self.ordered, point))
        start = int(np.clip(level - size // 2, 0, self.count - size))
        linear, network = (part[start : start + size] for part in self._by_linear)
        deviation = linear - linear.mean()
        spread = deviation @ deviation
        slope = deviation @ (network - network.mean()) / spread if spread > 0 else 1.0
        slope = float(np.clip(slope, *_SLOPES))
        intercept = float(network.mean() - slope * linear.mean())
        levels = (np.arange(NUM_RESIDUALS) + 0.5) / NUM_RESIDUALS
        return Line(intercept, slope, np.quantile(network - intercept - slope * linear, levels))

    def control(self, point: float, line: Line, at_thresholds: Array) -> Control:
        """The control of ``Y <= point``.

        Parameters
        ----------
        point
            A value of the network.
        line
            From `line` at this point.
        at_thresholds
            Distribution function of the linear law at ``line.thresholds(point)``.
        """
        below = self.used & (self.network <= point)
        share = self.count / len(below)
        indicator = np.where(self.used, below - below.sum() / self.count, 0.0) / share
        rest = point - line.intercept - line.slope * self.linear
        control = np.searchsorted(line.residuals, rest, side="right") / NUM_RESIDUALS
        deviation = control - control.mean()
        coefficient = (indicator @ deviation + _PRIOR) / (deviation @ deviation + _PRIOR)
        residuals = indicator - coefficient * deviation
        # Expected by the model itself: pairs between the thresholds, with shares on either side.
        steps = np.arange(1, NUM_RESIDUALS) / NUM_RESIDUALS
        expected = float(np.diff(np.sort(at_thresholds)) @ (steps * (1 - steps)))
        found = float(residuals @ residuals) / (len(residuals) - 2)
        excess = float(control.mean() - at_thresholds.mean())
        spread = 0.0
        if self.num_randomizations:
            spread = float(standard_error(residuals / len(residuals), self.num_randomizations))
        return Control(point, line, float(coefficient), excess, max(found, expected), spread)

    def near_ends(self) -> tuple[float, float]:
        """Values with ten draws below, and above: the outermost at which controls are judged."""
        return float(self.ordered[self._few]), float(self.ordered[-1 - self._few])

    @property
    def _few(self) -> int:
        return min(_FEW, self.count // 4)

    def drawn_below(self, points: Array | float) -> Array:
        """Share of draws at or below points."""
        return np.searchsorted(self.ordered, points, side="right") / self.count

    def left(self, control: Control) -> float:
        """Share of the variance of an indicator that its control leaves, at most 1."""
        level = float(self.drawn_below(control.point))
        return min(control.variance / max(level * (1 - level), 1e-300), 1.0)

    def below(self, control: Control) -> float:
        """Controlled share of draws at or below the point of a control."""
        found = self.drawn_below(control.point) - control.coefficient * control.excess
        return float(np.clip(found, 0, 1))

    def error(self, control: Control, left: Array) -> tuple[float, float]:
        """Standard error of `below`, and that of the same number of plain draws.

        The residuals of a rare indicator may all be zero by chance. If fewer than ten draws are
        beyond the point, the control is assumed to leave the same share of the variance as at the
        nearest value with ten, and half a draw is added to either side.

        Parameters
        ----------
        control
            The control at the point.
        left
            `left` at the two values of `near_ends`.
        """
        total = len(self.network)
        below = int(np.searchsorted(self.ordered, control.point, side="right"))
        above = self.count - below
        share = self.below(control)
        added = (self.count * min(share, 1 - share) + _ADDED) / (self.count + 2 * _ADDED)
        plain = added * (1 - added)
        of_plain = float(np.sqrt(plain / self.count))
        if self.num_randomizations == 1:
            return float("nan"), of_plain
        # If pairs that differ are rare, there may by chance be none near this point.
        least = (1 - self.differing_share) * _ADDED / self.count
        if min(below, above) < self._few:
            # Sobol points are also too few there for their spread to be informative.
            least = max(least, control.variance, left[int(above < below)] * plain)
            return float(np.sqrt(least / total)), of_plain
        error = np.sqrt(max(control.variance, least) / total)
        if self.num_randomizations:
            # All sequences may have the same count, but counts resolve no less than a draw.
            error = max(control.spread, np.sqrt(least / total), _ADDED / total)
        return float(error), of_plain


class ControlledLaws:
    """The laws of the outputs, estimated from pairs.

    Parameters
    ----------
    outputs
        The pairs of each output.
    law
        The law of the linear outputs.
    """

    def __init__(self, outputs: Sequence[OutputPairs], law: LinearLaw) -> None:
        self._outputs, self._law = outputs, law

    def below(self, points: Array) -> PairedEstimate:
        """Probabilities ``P(Y <= y)`` at points of shape ``(p, R)``."""
        # Those of the linear law where there is no control: the pairs are equal, or at infinity.
        zero = np.zeros(points.shape)
        result = np.stack([self._law.cdf(points), zero, zero + np.inf])
        is_enough = [output.is_enough for output in self._outputs]
        result[:, np.isnan(points) | ~np.array(is_enough)] = np.nan
        for (i, j), control in self._controls(points).items():
            output = self._outputs[j]
            error, plain = output.error(control, self._left[j])
            known = worth(plain**2, error, len(output.network))
            result[:, i, j] = output.below(control), error, known
        return PairedEstimate(*result)

    def quantile(self, levels: Array) -> PairedEstimate:
        """Quantiles at levels of shape ``(p,)``, shape ``(p, R)``.

        The controlled distribution function, with the control at the plain quantile, is inverted.
        The standard error of the quantile is that of the function over the density. The density is
        the slope of the same function between the values two standard errors below and above.
        """
        from scipy.special import ndtri

        shape = (levels.size, len(self._outputs))
        plain, spread = np.full((2, *shape), np.nan)
        for j, output in enumerate(self._outputs):
            if output.needs_control:
                plain[:, j] = np.quantile(output.ordered, levels)
        controls = self._controls(plain)
        for (i, j), control in controls.items():
            spread[i, j], _ = self._outputs[j].error(control, self._left[j])
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
        result = np.stack([value, error, found])
        is_linear = [output.is_enough and not output.needs_control for output in self._outputs]
        if any(is_linear):
            known = self._law.quantiles(ndtri(levels))
            exact = np.stack([known, np.zeros(shape), np.full(shape, np.inf)])
            result = np.where(is_linear, exact, result)
        return PairedEstimate(*result)

    @cached_property
    def _left(self) -> Array:
        """Shares of the variances that the controls leave near both ends, shape ``(R, 2)``."""
        ends = np.full((2, len(self._outputs)), np.nan)
        for j, output in enumerate(self._outputs):
            if output.is_enough:
                ends[:, j] = output.near_ends()
        left = np.ones(ends.T.shape)
        for (i, j), control in self._controls(ends).items():
            left[j, i] = self._outputs[j].left(control)
        return left

    def _controls(self, points: Array) -> dict[tuple[int, int], Control]:
        """The controls at points, where these are finite and the pairs need a control."""
        count, size = points.shape
        thresholds = np.full((count, NUM_RESIDUALS, size), np.nan)
        lines = {}
        for i, j in np.ndindex(points.shape):
            output, point = self._outputs[j], float(points[i, j])
            if np.isfinite(point) and output.needs_control:
                lines[i, j] = line = output.line(point)
                thresholds[i, :, j] = line.thresholds(point)
        at_thresholds = self._law.cdf(thresholds.reshape(-1, size)).reshape(thresholds.shape)
        return {
            (i, j): self._outputs[j].control(float(points[i, j]), line, at_thresholds[i, :, j])
            for (i, j), line in lines.items()
        }

    def _solve(self, levels: Array, controls: dict[tuple[int, int], Control]) -> Array:
        """Values at which the controlled distribution functions attain levels ``(k, p, R)``."""
        found = np.full(levels.shape, np.nan)
        if not controls:
            return found
        scores = np.linspace(-_LAST_SCORE, _LAST_SCORE, _NUM_SCORES)
        table = self._law.quantiles(scores)
        for j, output in enumerate(self._outputs):
            if output.needs_control:
                parts = [controls[i, j] for i in range(levels.shape[1])]
                found[..., j] = _solve_one(output, levels[..., j], parts, table[:, j], scores)
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
        linear = np.searchsorted(output.ordered_linear, thresholds, side="right").mean(axis=-1)
        is_below = (
            output.drawn_below(middle) - coefficient * (linear / len(output.network) - law) < levels
        )
        low, high = np.where(is_below, middle, low), np.where(is_below, high, middle)
    return (low + high) / 2
