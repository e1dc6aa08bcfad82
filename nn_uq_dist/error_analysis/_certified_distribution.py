"""Guaranteed bounds on the distribution of one output of a leaky-ReLU network."""

import dataclasses
import math
import time
from functools import reduce
from typing import Any, Self

import numpy as np
from jax.typing import ArrayLike

from nn_uq_dist.basics import _checks
from nn_uq_dist.basics._known_values import FloatArray
from nn_uq_dist.basics._summary_line import described_line
from nn_uq_dist.error_analysis._affine_bounds import StandardNetwork
from nn_uq_dist.error_analysis._law_bounds import EPS
from nn_uq_dist.error_analysis._parts import Cover, cover_of, split, tails
from nn_uq_dist.error_analysis._tangent_distance import distance_from_tangent, tangent
from nn_uq_dist.error_analysis._trimmed import Boxes
from nn_uq_dist.inputs._terms import UNIFORM_VARIANCE

# What a unit of the output is worth in probability, in units of the largest density of a normal law
# with the standard deviation of the tangent: for the whole input, and for parts of it.
_WORTHS, _WORTH_OF_PARTS = (1.0, 0.3, 0.1, 0.02), 0.5
_NUM_SWEEPS = 3
# Where the gap is looked at: standard deviations of the tangent, and between extreme quantiles.
_MOST_SCORE, _NUM_SCORES, _NUM_BETWEEN = 4.0, 33, 16
_EXTREMES = (1e-3, 1 - 1e-3)
_MOST_BISECTIONS = 45
# Seconds that a round of splitting may take, so that the time asked for is kept.
_ROUND = 0.5
_DELAY = 1.5


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class CertifiedDistribution:
    r"""Bounds on the distribution of one output, as `nn_uq_dist.certified` returns them.

    All results are NumPy arrays in float64: a bound that is rounded to float32 may not be one.

    Attributes
    ----------
    gap
        Largest distance of the two bounds on the distribution function, at 49 points.
    num_parts
        Number of parts of the input.
    error_bound
        The output differs from that of the tangent at the mean input by at most this much;
        infinity if the input has a normal part.

    Examples
    --------
    >>> import nn_uq_dist as nuq
    >>> net = nuq.LeakyReLUNetwork([[[1.0], [-1.0]]], [[0.0, 0.0]], [[1.0, 1.0]], 0.0)  # |x|
    >>> bounds = nuq.certified(net, nuq.InputLaw([0.5], half_width=1.0), max_parts=8)
    >>> low, high = bounds.cdf_bounds(0.5)
    >>> bool(low <= 0.5 <= high), bool(high - low < 0.1)
    (True, True)
    """

    _network: StandardNetwork
    _covers: tuple[Cover, ...]
    gap: float
    error_bound: float
    output: int
    _points: FloatArray

    @classmethod
    def of_whole(cls, network: StandardNetwork, cover: Cover, output: int) -> Self:
        """Results from bounds for the whole input."""
        alone = cls(network, (cover,), 1.0, 0.0, output, np.zeros(0))
        least, most = (alone.quantile_bounds(q)[i] for i, q in enumerate(_EXTREMES))
        tangents = tangent(network)
        middle = (tangents.const[0, 0] - tangents.const[0, 1]) / 2
        reach = _MOST_SCORE * _spread(network, tangents.rows[0])
        points = np.concatenate(
            [
                np.linspace(middle - reach, middle + reach, _NUM_SCORES),
                np.linspace(float(least), float(most), _NUM_BETWEEN),
            ]
        )
        return cls._of_covers(network, (cover,), output, points)

    @classmethod
    def _of_covers(
        cls, network: StandardNetwork, covers: tuple[Cover, ...], output: int, points: FloatArray
    ) -> Self:
        distances = distance_from_tangent(tangent(network), covers[-1].forms(0), covers[-1].boxes)
        bound = float(distances.max()) if network.is_uniform.all() else math.inf
        found = cls(network, covers, 1.0, bound, output, points)
        low, high = found.cdf_bounds(points)
        return dataclasses.replace(found, gap=float((high - low).max()))

    @property
    def num_parts(self) -> int:
        """Number of parts of the input."""
        return len(self._covers[-1].mass)

    def cdf_bounds(self, y: ArrayLike) -> tuple[FloatArray, FloatArray]:
        """Lower and upper bounds on the probability that the output is at most `y`.

        Parameters
        ----------
        y
            Points, any shape.

        Returns
        -------
        tuple of ndarray
            Shaped as `y`.

        Raises
        ------
        TypeError
            If `y` is not an array of real numbers, or traced.
        ValueError
            If `y` holds NaN.
        """
        points = _as_points("y", y)
        below, above = self._tails(points)
        return np.maximum(1 - above - EPS, 0), below

    def probability_bounds(
        self, lower: ArrayLike, upper: ArrayLike
    ) -> tuple[FloatArray, FloatArray]:
        """Bounds on the probability that the output lies between two limits.

        They hold whether or not the limits themselves count. Small probabilities of a tail, with
        the other limit infinite, keep their relative accuracy.

        Parameters
        ----------
        lower, upper
            Limits, which may be infinite; they broadcast.

        Raises
        ------
        TypeError
            If a limit is not an array of real numbers, or traced.
        ValueError
            If a limit is NaN, or `lower` exceeds `upper`, or their shapes do not broadcast.
        """
        ends = _as_points("lower", lower), _as_points("upper", upper)
        shape = _checks.broadcast_shapes(
            "lower and upper must broadcast", lower=ends[0].shape, upper=ends[1].shape
        )
        low, high = (np.broadcast_to(end, shape) for end in ends)
        if np.any(low > high):
            raise ValueError(
                f"lower must be at most upper, got {low[low > high].flat[0]} and "
                f"{high[low > high].flat[0]}; exchange them"
            )
        below_low, above_low = self._tails(low)
        below_high, above_high = self._tails(high)
        most = np.minimum(np.minimum(below_high, above_low), below_high + above_low - 1 + 4 * EPS)
        return np.maximum(1 - below_low - above_high - 4 * EPS, 0), np.maximum(most, 0)

    def quantile_bounds(self, q: ArrayLike) -> tuple[FloatArray, FloatArray]:
        """Bounds on the quantiles: the least values that are not exceeded with probability `q`.

        Parameters
        ----------
        q
            Probabilities in [0, 1], any shape. At 0 and 1 the bounds are those of the range.

        Raises
        ------
        TypeError
            If `q` is not an array of real numbers, or traced.
        ValueError
            If `q` holds NaN or numbers outside [0, 1].
        """
        probabilities = _as_points("q", q)
        if np.any((probabilities < 0) | (probabilities > 1)):
            raise ValueError(
                f"q must lie in [0, 1], got {probabilities.min()} to {probabilities.max()}; pass "
                f"probabilities"
            )
        start, end = (np.full(probabilities.shape, value) for value in self._range)
        low, high = start.copy(), end.copy()
        upper_low, upper_high = start.copy(), end.copy()
        for _ in range(_MOST_BISECTIONS):
            middle = low + (high - low) / 2
            is_lower = self._tails(middle)[0] < probabilities
            low, high = np.where(is_lower, middle, low), np.where(is_lower, high, middle)
            middle = upper_low + (upper_high - upper_low) / 2
            is_upper = self._tails(middle)[1] <= 1 - probabilities - EPS
            upper_high = np.where(is_upper, middle, upper_high)
            upper_low = np.where(is_upper, upper_low, middle)
        # Beyond the range that is taken for normal variables there is something left.
        beyond = 1e-18 * np.count_nonzero(~self._network.is_uniform)
        has_beyond = beyond > 0
        return (
            np.where(has_beyond & (probabilities <= beyond), -np.inf, low),
            np.where(has_beyond & (1 - probabilities <= beyond + EPS), np.inf, upper_high),
        )

    @property
    def mean_bounds(self) -> tuple[float, float]:
        """Lower and upper bounds on the mean of the output."""
        least = reduce(np.maximum, (_mean_bounds(self._network, cover) for cover in self._covers))
        return float(least[0]), float(-least[1])

    def refine(
        self,
        max_parts: int,
        *,
        seconds: float | None = None,
        gap: float | None = None,
        threshold: float | None = None,
        progress: bool = True,
    ) -> Self:
        """Split the parts of the input further, and return tighter bounds.

        Parameters
        ----------
        max_parts
            Most parts. A part is a box of the uniform variables; those that contribute most to the
            distance of the bounds are halved.
        seconds
            Stop splitting after this time; None for no limit. What follows may take as long again.
        gap
            Stop where the bounds on the distribution function are nowhere farther apart than this,
            or, with `threshold`, at the threshold. None to go on.
        threshold
            A value of the output at which the bounds should be tight: rare events. The parts for
            which it is not known on which side of it the output is are split. None for all values.
        progress
            Whether a progress bar may appear, which it does after a second of work.

        Raises
        ------
        TypeError, ValueError
            If an argument is not a number in its range, or the input has no uniform variable.
        """
        max_parts = _checks.positive_int("max_parts", max_parts)
        limits = {"seconds": seconds, "gap": gap, "threshold": threshold}
        for name, value in limits.items():
            _require_number(name, value, positive=name != "threshold")
        if not self._network.is_uniform.any():
            raise ValueError(
                "f must have uniform variables to be split, got a normal law; use the bounds "
                "without parts, or bound the error of each input by a box"
            )
        cover = self._split(max_parts, seconds or math.inf, gap, threshold, progress)
        if cover is None:
            return self
        return self._of_covers(self._network, (self._covers[0], cover), self.output, self._points)

    def _split(
        self,
        max_parts: int,
        seconds: float,
        goal: float | None,
        threshold: float | None,
        progress: bool,
    ) -> Cover | None:
        from tqdm import tqdm

        start = time.monotonic()
        cover, batch, checked = self._covers[-1], 1, 2
        price = _WORTH_OF_PARTS * _unit_price(self._network, self._covers[0])
        points = self._points if threshold is None else np.array([threshold])
        count = len(cover.mass)
        with tqdm(
            total=max_parts, initial=count, unit="part", delay=_DELAY, disable=not progress
        ) as bar:
            while count < max_parts and time.monotonic() - start < seconds:
                if threshold is None:
                    score = cover.mass * np.maximum(cover.middle_gap(price), 0)
                else:
                    below, above = tails(self._network, cover, points)
                    score = cover.mass * np.maximum(below + above - 1, 0)[:, 0]
                num = min(
                    count // 3 + 1, batch, max_parts - count, int(np.count_nonzero(score > 0))
                )
                if num == 0:
                    break
                if goal is not None and count >= checked:
                    checked = count * 3 // 2
                    if _gap(self._network, cover, points) <= goal:
                        break
                chosen = np.argpartition(-score, num - 1)[:num]
                began = time.monotonic()
                cover = split(self._network, cover, chosen, price)
                batch = batch * 2 if time.monotonic() - began < _ROUND else max(batch // 2, 1)
                bar.update(len(cover.mass) - count)
                count = len(cover.mass)
        return None if cover is self._covers[-1] else cover

    def _tails(self, points: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Upper bounds on the probabilities of values at most, and at least, as large."""
        flat = points.reshape(-1)
        sums = [_summed(cover, *tails(self._network, cover, flat)) for cover in self._covers]
        below, above = (reduce(np.minimum, side) for side in zip(*sums, strict=True))
        return below.reshape(points.shape), above.reshape(points.shape)

    @property
    def _range(self) -> tuple[float, float]:
        cover = self._covers[-1]
        least = cover.forms(0).smallest(*cover.boxes).min(axis=0)
        return float(least[0]), float(-least[1])

    def __repr__(self) -> str:
        return described_line(self, self._facts)

    def _facts(self) -> tuple[str, dict[str, object]]:
        gap = f"{self.gap:.2g}" if self.gap < 0.995 else "1: they say nothing"
        sizes: dict[str, object] = {"num_parts": self.num_parts, "output": self.output}
        return f"distribution function within {gap}", sizes


def whole_cover(network: StandardNetwork) -> Cover:
    """Bounds for the whole input."""
    whole = Boxes.whole(network)
    certain = cover_of(network, whole, np.ones(1), [])
    unit = _unit_price(network, certain)
    return cover_of(network, whole, np.ones(1), [part * unit for part in _WORTHS], _NUM_SWEEPS)


def _spread(network: StandardNetwork, rows: FloatArray) -> float:
    """Largest standard deviation of linear forms with these rows."""
    variance = np.where(network.is_uniform, UNIFORM_VARIANCE, 1.0)
    return float(np.sqrt((rows**2 @ variance).max()))


def _unit_price(network: StandardNetwork, cover: Cover) -> float:
    spread = _spread(network, tangent(network).rows[0]) or _spread(network, cover.rows[0, 0])
    return 1 / (math.sqrt(2 * math.pi) * (spread or 1.0))


def _summed(cover: Cover, below: FloatArray, above: FloatArray) -> tuple[FloatArray, FloatArray]:
    margin = 1 + (len(cover.mass) + 4) * EPS
    one, other = (np.minimum(cover.mass @ part * margin, 1.0) for part in (below, above))
    return one, other


def _gap(network: StandardNetwork, cover: Cover, points: FloatArray) -> float:
    below, above = _summed(cover, *tails(network, cover, points))
    return float((below + above - 1).max())


def _mean_bounds(network: StandardNetwork, cover: Cover) -> FloatArray:
    """Lower bounds on the means of the output and of its negative, shape ``(2,)``."""
    forms, (center, radius) = cover.forms(0), cover.boxes
    at_center = (forms.rows @ center[..., None])[..., 0]
    size = np.abs(forms.const) + (np.abs(forms.rows) @ (np.abs(center) + radius)[..., None])[..., 0]
    slack = (len(cover.mass) + center.shape[-1] + 8) * EPS * (cover.mass @ size)
    num_normal = np.count_nonzero(~network.is_uniform)
    if num_normal:
        # Outside of the range of the normal variables the bounds need not hold; output and bounds
        # grow no faster there than linearly.
        signal = network.sizes
        for weights, bias in zip(network.weights[1:], network.biases[1:], strict=True):
            signal = np.abs(weights) @ signal + np.abs(bias)
        largest = np.abs(network.output) @ signal + network.direct_size
        slack = slack + 1e-17 * num_normal**2 * (largest + cover.mass @ size)
    least: FloatArray = cover.mass @ (forms.const + at_center) - slack
    return least


def _as_points(name: str, value: ArrayLike) -> FloatArray:
    given = _checks.as_numeric(name, value)
    if not _checks.is_concrete(given):
        raise TypeError(
            f"{name} must hold numbers, got traced values; bounds are computed outside of jit, "
            f"grad and vmap"
        )
    points = np.asarray(given, np.float64)
    if np.any(np.isnan(points)):
        raise ValueError(f"{name} must not hold NaN, got {value}; leave out missing values")
    return points


def _require_number(name: str, value: Any, *, positive: bool) -> None:
    if value is None:
        return
    kinds = (int, float, np.integer, np.floating)
    expected = "a positive number" if positive else "a finite number"
    if isinstance(value, bool) or not isinstance(value, kinds):
        raise TypeError(
            f"{name} must be {expected}, got {type(value).__name__}; pass a float or None"
        )
    if not math.isfinite(value) or (positive and value <= 0):
        raise ValueError(f"{name} must be {expected}, got {value}; pass None for no limit")
