r"""The distribution function of a network's output, controlled by that of its linear model.

Near a value ``y`` the outputs are described by a line and residuals, ``a + b l + e``, fitted to the
pairs whose linear outputs are at the same level. Then ``P(Y <= y | l)`` is about ``g(l) = #{e_k <=
y - a - b l} / K``, a control whose mean ``sum_k F((y - a - e_k) / b) / K`` is known; `F` is the
distribution function of the linear law. It is the best function of `l` if line and residuals are
correct, and the estimate is unbiased to first order if they are not. For equal outputs it is the
indicator of ``l <= y``.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nn_uq_dist.sampling._control_variates import standard_error

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


class Line(NamedTuple):
    """Description of the outputs near one value: ``a + b l + e``."""

    intercept: float
    slope: float
    residuals: Array  # ascending, NUM_RESIDUALS of them

    def thresholds(self, point: float) -> Array:
        """Linear outputs at which the network's output equals `point`, one for each residual."""
        return (point - self.intercept - self.residuals) / self.slope


class Control(NamedTuple):
    """The control of one indicator, and the variance that it leaves."""

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

    @property
    def is_enough(self) -> bool:
        """Whether there are enough pairs for an estimate."""
        return self.count >= _FEW

    @property
    def is_linear(self) -> bool:
        """Whether network and linear model agree in all pairs to rounding."""
        return self.differing_share == 0

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
        below = np.where(self.used, self.network <= point, False)
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
            spread = standard_error(residuals / len(residuals), self.num_randomizations)
        return Control(line, float(coefficient), excess, max(found, expected), spread)

    def near_ends(self) -> tuple[float, float]:
        """Values with ten draws below, and above: the outermost at which controls are judged."""
        return float(self.ordered[self._few]), float(self.ordered[-1 - self._few])

    @property
    def _few(self) -> int:
        return min(_FEW, self.count // 4)

    def left(self, point: float, control: Control) -> float:
        """Share of the variance of an indicator that its control leaves, at most 1."""
        level = np.searchsorted(self.ordered, point, side="right") / self.count
        return float(min(control.variance / max(level * (1 - level), 1e-300), 1.0))

    def below(self, point: float, control: Control) -> float:
        """Controlled share of draws at or below a point."""
        found = np.searchsorted(self.ordered, point, side="right") / self.count
        return float(np.clip(found - control.coefficient * control.excess, 0, 1))

    def error(
        self, point: float, control: Control, left: tuple[float, float]
    ) -> tuple[float, float]:
        """Standard error of `below`, and that of the same number of plain draws.

        The residuals of a rare indicator may all be zero by chance. If fewer than ten draws are
        beyond the point, the control is assumed to leave the same share of the variance as at the
        nearest value with ten, and half a draw is added to either side.

        Parameters
        ----------
        point, control
            The point and its control.
        left
            `left` at the two values of `near_ends`.
        """
        total = len(self.network)
        below = int(np.searchsorted(self.ordered, point, side="right"))
        above = self.count - below
        share = self.below(point, control)
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
