"""Guaranteed bounds on the distribution of one output of a leaky-ReLU network."""

import dataclasses
import math
import time
from collections.abc import Callable
from functools import reduce
from typing import Any, Self

import numpy as np
from jax.typing import ArrayLike
from numpy.typing import NDArray

from nn_uq_dist.basics import _checks
from nn_uq_dist.basics._known_values import FloatArray
from nn_uq_dist.basics._summary_line import described_line
from nn_uq_dist.error_analysis._affine_bounds import Boxes, StandardNetwork, tangents
from nn_uq_dist.error_analysis._law_bounds import EPS
from nn_uq_dist.error_analysis._parts import (
    Cover,
    cover_of,
    largest_gap,
    mean_bounds,
    split,
    tails,
    tails_of,
)
from nn_uq_dist.error_analysis._tangent_distance import distance_from_tangent
from nn_uq_dist.inputs._terms import UNIFORM_VARIANCE

# What a unit of the output is worth in probability, in units of the largest density of a normal law
# with the standard deviation of the tangent: for the whole input, and for parts of it.
_WORTHS, _WORTH_OF_PARTS = (1.0, 0.3, 0.1, 0.02), 0.5
_NUM_SWEEPS = 3
# Where the gap is looked at: up to 4 standard deviations of the tangent, and between quantiles.
_MOST_SCORE, _NUM_AROUND, _NUM_BETWEEN = 1.6, 33, 16
_EXTREMES = (1e-3, 1 - 1e-3)
_NUM_BISECTIONS = 45
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
    certain_gap
        The same for affine bounds that hold for all inputs, without parts: what cut ranges and
        parts have gained.
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
    output: int
    gap: float = 1.0
    certain_gap: float = 1.0
    error_bound: float = math.inf

    @classmethod
    def of_covers(cls, network: StandardNetwork, covers: tuple[Cover, ...], output: int) -> Self:
        """Results from bounds for the whole input, and those for its parts."""
        found = cls(network, covers, output)
        first, last = covers[0], covers[-1]
        bound = math.inf
        if network.is_uniform.all():
            bound = float(distance_from_tangent(network, last.forms(0), last.boxes).max())
        points = found._looked_at()
        certain = first._replace(
            rows=first.rows[:, :1], const=first.const[:, :1], failure=first.failure[:, :1]
        )
        gap, alone = (largest_gap(network, some, points) for some in (covers, (certain,)))
        return cls(network, covers, output, gap, alone, bound)

    def _looked_at(self) -> FloatArray:
        """Points around the mean of the tangent, and between extreme quantiles of the bounds."""
        whole = dataclasses.replace(self, _covers=self._covers[:1])
        least, most = (whole.quantile_bounds(q)[i] for i, q in enumerate(_EXTREMES))
        low, high = tangents(self._network, Boxes.whole(self._network))[0].const[0]
        middle, reach = (low - high) / 2, _MOST_SCORE / _unit_price(self._network)
        around = np.linspace(middle - reach, middle + reach, _NUM_AROUND)
        return np.concatenate([around, np.linspace(float(least), float(most), _NUM_BETWEEN)])

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
        ends = [np.full(probabilities.shape, value) for value in self._range]
        low = _bisected(lambda y: self._tails(y)[0] < probabilities, *ends)[0]
        high = _bisected(lambda y: self._tails(y)[1] > 1 - probabilities - EPS, *ends)[1]
        # Beyond the range that is taken for normal variables there is something left.
        beyond = 1e-18 * np.count_nonzero(~self._network.is_uniform)
        return (
            np.where((beyond > 0) & (probabilities <= beyond), -np.inf, low),
            np.where((beyond > 0) & (1 - probabilities <= beyond + EPS), np.inf, high),
        )

    @property
    def mean_bounds(self) -> tuple[float, float]:
        """Lower and upper bounds on the mean of the output."""
        least = reduce(np.maximum, (mean_bounds(self._network, cover) for cover in self._covers))
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
        for name, value in {"seconds": seconds, "gap": gap, "threshold": threshold}.items():
            _require_number(name, value, positive=name != "threshold")
        if max_parts > self.num_parts and not self._network.is_uniform.any():
            raise ValueError(
                "f must have uniform variables to be split, got a normal law; use the bounds "
                "without parts, or bound the error of each input by a box"
            )
        from tqdm import tqdm

        count, cover, batch, checked = self.num_parts, self._covers[-1], 1, 2
        points = self._looked_at() if threshold is None else np.array([float(threshold)])
        stop = time.monotonic() + (seconds or math.inf)
        with tqdm(
            total=max_parts, initial=count, unit="part", delay=_DELAY, disable=not progress
        ) as bar:
            while count < max_parts and (start := time.monotonic()) < stop:
                if gap is not None and count >= checked:
                    checked = count * 3 // 2
                    if largest_gap(self._network, (cover,), points) <= gap:
                        break
                cover = self._with_splits(cover, min(batch, max_parts - count), threshold)
                if len(cover.mass) == count:
                    break
                batch = batch * 2 if time.monotonic() - start < _ROUND else max(batch // 2, 1)
                bar.update(len(cover.mass) - count)
                count = len(cover.mass)
        if cover is self._covers[-1]:
            return self
        return self.of_covers(self._network, (self._covers[0], cover), self.output)

    def _with_splits(self, cover: Cover, most: int, threshold: float | None) -> Cover:
        """Halve up to `most` parts, the ones that contribute most to the distance of the bounds."""
        price = _WORTH_OF_PARTS * _unit_price(self._network)
        if threshold is None:
            score = cover.middle_gap(price)
        else:
            below, above = tails(self._network, cover, np.array([float(threshold)]))
            score = (below + above - 1)[:, 0]
        score = cover.mass * score
        num = min(len(score) // 3 + 1, most, int(np.count_nonzero(score > 0)))
        if num == 0:
            return cover
        return split(self._network, cover, np.argpartition(-score, num - 1)[:num], price)

    def _tails(self, points: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Upper bounds on the probabilities of values at most, and at least, as large."""
        flat = points.reshape(-1)
        below, above = tails_of(self._network, self._covers, flat)
        return below.reshape(points.shape), above.reshape(points.shape)

    @property
    def _range(self) -> tuple[float, float]:
        cover = self._covers[-1]
        least = cover.forms(0).smallest(cover.boxes).min(axis=0)
        return float(least[0]), float(-least[1])

    def __repr__(self) -> str:
        return described_line(self, self._facts)

    def _facts(self) -> tuple[str, dict[str, object]]:
        gap = f"{self.gap:.2g}" if self.gap < 0.995 else "1: they say nothing"
        sizes: dict[str, object] = {"num_parts": self.num_parts, "output": self.output}
        return f"distribution function within {gap}", sizes


def whole_cover(network: StandardNetwork) -> Cover:
    """Bounds for the whole input."""
    prices = [part * _unit_price(network) for part in _WORTHS]
    return cover_of(network, Boxes.whole(network), np.ones(1), prices, _NUM_SWEEPS)


def _unit_price(network: StandardNetwork) -> float:
    """Largest density of a normal law with the standard deviation of the tangent."""
    variance = np.where(network.is_uniform, UNIFORM_VARIANCE, 1.0)
    rows = tangents(network, Boxes.whole(network))[0].rows[0]
    spread = float(np.sqrt((rows**2 @ variance).max()))
    return 1 / (math.sqrt(2 * math.pi) * (spread or 1.0))


def _bisected(
    is_before: Callable[[FloatArray], NDArray[np.bool_]], low: FloatArray, high: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """The ends of the last interval: true was found at the first or it is `low`, and vice versa."""
    for _ in range(_NUM_BISECTIONS):
        middle = low + (high - low) / 2
        yes = is_before(middle)
        low, high = np.where(yes, middle, low), np.where(yes, high, middle)
    return low, high


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
