"""Guaranteed bounds on the distribution of one output of a leaky-ReLU network."""

import dataclasses
import math
import time
from typing import Self

import numpy as np
from jax.typing import ArrayLike

from nn_uq_dist.basics import checks
from nn_uq_dist.basics.concrete import FloatArray
from nn_uq_dist.error_analysis._affine_bounds import AffineForms, Boxes, StandardNetwork, tangents
from nn_uq_dist.error_analysis._cover import (
    Cover,
    Covers,
    cover_of,
    largest_gap,
    mean_bounds,
    split,
    tails,
    tails_of,
)
from nn_uq_dist.error_analysis._distribution_bounds import EPS
from nn_uq_dist.inputs.terms import UNIFORM_VARIANCE

# What a unit of the output is worth in probability, in units of the largest density of a normal
# distribution with the standard deviation of the tangent: for the whole input, and for parts of it.
_WORTHS, _WORTH_OF_PARTS = (1.0, 1.0, 0.5, 0.2, 0.06), 0.5
# Where the gap is looked at: up to 4 standard deviations of the tangent, and between quantiles.
_MOST_SCORE, _NUM_AROUND, _NUM_BETWEEN = 1.6, 33, 16
_EXTREME = 1e-3
_NUM_BISECTIONS, _LEAST_MASS = 45, 2.0**-50
# Seconds that a round of splitting may take, so that the time asked for is kept.
_ROUND = 0.5


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
    >>> bounds = nuq.certified(net, nuq.Input.box([0.5], half_width=1.0), max_parts=8)
    >>> low, high = bounds.cdf_bounds(0.5)
    >>> bool(low <= 0.5 <= high), bool(high - low < 0.1)
    (True, True)
    """

    _network: StandardNetwork
    _covers: Covers
    output: int
    gap: float
    error_bound: float

    @classmethod
    def of_covers(
        cls, network: StandardNetwork, covers: Covers, output: int, bound: float = math.inf
    ) -> Self:
        """Results, with an error bound that is known already."""
        if network.is_uniform.all():
            bound = min(bound, _largest_error(network, covers[-1]))
        gap = largest_gap(network, covers, _looked_at(network, covers[0]))
        return cls(network, covers, output, gap, bound)

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
        below, above = tails_of(self._network, self._covers, points)
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
        shape = checks.broadcast_shapes(
            "lower and upper must broadcast", lower=ends[0].shape, upper=ends[1].shape
        )
        low, high = (np.broadcast_to(end, shape) for end in ends)
        if np.any(low > high):
            raise ValueError(
                f"lower must be at most upper, got {low[low > high].flat[0]} and "
                f"{high[low > high].flat[0]}; exchange them"
            )
        below_low, above_low = tails_of(self._network, self._covers, low)
        below_high, above_high = tails_of(self._network, self._covers, high)
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
        checks.require_probabilities("q", probabilities)
        # The first for the lower bounds, which are at `low` throughout, the second for the upper.
        low, high = (np.full((2, *probabilities.shape), end) for end in self._covers[-1].range)
        for _ in range(_NUM_BISECTIONS):
            middle = low + (high - low) / 2
            below, above = tails_of(self._network, self._covers, middle)
            is_before = np.stack([below[0] < probabilities, above[1] > 1 - probabilities - EPS])
            low, high = np.where(is_before, middle, low), np.where(is_before, high, middle)
        # Beyond the range that is taken for normal variables there is something left.
        beyond = 1e-18 * np.count_nonzero(~self._network.is_uniform)
        return (
            np.where((beyond > 0) & (probabilities <= beyond), -np.inf, low[0]),
            np.where((beyond > 0) & (1 - probabilities <= beyond + EPS), np.inf, high[1]),
        )

    @property
    def mean_bounds(self) -> tuple[float, float]:
        """Lower and upper bounds on the mean of the output."""
        least = np.max([mean_bounds(self._network, cover) for cover in self._covers], axis=0)
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
            Whether a progress bar may appear, which it does after two seconds of work.

        Raises
        ------
        TypeError, ValueError
            If an argument is not a number in its range, or the input has no uniform variable.
        """
        max_parts = checks.positive_int("max_parts", max_parts)
        for name, value in {"seconds": seconds, "gap": gap, "threshold": threshold}.items():
            number = np.asarray(checks.as_numeric(name, 1.0 if value is None else value))
            if number.ndim or not np.isfinite(number) or (name != "threshold" and number <= 0):
                raise ValueError(
                    f"{name} must be a finite number, and positive unless it is threshold, got "
                    f"{value}; pass None for no limit"
                )
        if max_parts > self.num_parts and not self._network.is_uniform.any():
            raise ValueError(
                "f must have uniform variables to be split, got a normal distribution; use the "
                "bounds without parts, or bound the error of each input by a box"
            )
        from tqdm import tqdm

        cover, batch, network = self._covers[-1], 1, self._network
        points = _looked_at(network, cover) if threshold is None else np.array([threshold], float)
        stop = time.monotonic() + (seconds or math.inf)
        with tqdm(total=max_parts, unit="part", delay=2, disable=not progress) as bar:
            while (count := len(cover.mass)) < max_parts and (start := time.monotonic()) < stop:
                bar.update(count - bar.n)
                if gap is not None and largest_gap(network, (cover,), points) <= gap:
                    break
                cover = self._with_splits(cover, min(batch, max_parts - count), threshold)
                if len(cover.mass) == count:
                    break
                batch = batch * 2 if time.monotonic() - start < _ROUND else max(batch // 2, 1)
            bar.update(count - bar.n)
        if cover is self._covers[-1]:
            return self
        return self.of_covers(network, (self._covers[0], cover), self.output, self.error_bound)

    def _with_splits(self, cover: Cover, most: int, threshold: float | None) -> Cover:
        """Halve up to `most` parts, the ones that contribute most to the distance of the bounds."""
        price = _WORTH_OF_PARTS * _unit_price(self._network)
        if threshold is None:
            score = cover.middle_gap(price)
        else:
            points = np.array([threshold], float)
            score = np.add(*tails(self._network, cover, points))[:, 0] - 1
        # Smaller parts would have centers that are rounded, and miss a piece of the box.
        score = np.where(cover.mass > _LEAST_MASS, cover.mass * score, 0)
        num = min(len(score) // 3 + 1, most, int(np.count_nonzero(score > 0)))
        if num == 0:
            return cover
        return split(self._network, cover, np.argpartition(-score, num - 1)[:num], price)

    def __repr__(self) -> str:
        gap = f"{self.gap:.2g}" if self.gap < 0.995 else "1: they say nothing"
        return f"CertifiedDistribution(bounds within {gap}, num_parts={self.num_parts})"


def whole_cover(network: StandardNetwork) -> Cover:
    """Bounds for the whole input."""
    prices = [part * _unit_price(network) for part in _WORTHS]
    return cover_of(network, Boxes.whole(network), np.ones(1), prices)


def _largest_error(network: StandardNetwork, cover: Cover) -> float:
    """Bound on the distance of the output from its tangent at the mean."""
    tangent, forms = tangents(network, Boxes.whole(network))[0], cover.forms(0)
    # An output less its tangent is at least the bound of the one plus that of the negative of the
    # other.
    rows, const = forms.rows + tangent.rows[:, ::-1], forms.const + tangent.const[:, ::-1]
    return -float(AffineForms(rows, const).smallest(cover.boxes).min())


def _unit_price(network: StandardNetwork) -> float:
    """Largest density of a normal distribution with the standard deviation of the tangent."""
    variance = np.where(network.is_uniform, UNIFORM_VARIANCE, 1.0)
    rows = tangents(network, Boxes.whole(network))[0].rows[0]
    spread = float(np.sqrt((rows**2 @ variance).max()))
    return 1 / (math.sqrt(2 * math.pi) * (spread or 1.0))


def _looked_at(network: StandardNetwork, cover: Cover) -> FloatArray:
    """Points around the mean of the tangent, and between extreme quantiles of the bounds."""
    low, high = tangents(network, Boxes.whole(network))[0].const[0]
    middle, reach = (low - high) / 2, _MOST_SCORE / _unit_price(network)
    around = np.linspace(middle - reach, middle + reach, _NUM_AROUND)
    grid = np.sort(np.concatenate([around, np.linspace(*cover.range, _NUM_AROUND)]))
    below, above = tails_of(network, (cover,), grid)
    inside = grid[(below > _EXTREME) & (above > _EXTREME)]
    between = np.linspace(inside.min(initial=middle), inside.max(initial=middle), _NUM_BETWEEN)
    return np.concatenate([around, between])


def _as_points(name: str, value: ArrayLike) -> FloatArray:
    given = checks.as_numeric(name, value)
    if not checks.is_concrete(given):
        raise TypeError(
            f"{name} must hold numbers, got traced values; bounds are computed outside of jit, "
            f"grad and vmap"
        )
    points = np.asarray(given, np.float64)
    if np.any(np.isnan(points)):
        raise ValueError(f"{name} must not hold NaN, got {value}; leave out missing values")
    return points
