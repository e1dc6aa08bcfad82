"""Guaranteed bounds on the distribution of one output of a leaky-ReLU network."""

import dataclasses
import math
import time
from collections.abc import Callable
from typing import Self

import numpy as np
from jax import Array
from jax.typing import ArrayLike
from numpyro.distributions import Distribution

from nn_uq_dist.basics import checks
from nn_uq_dist.basics.concrete import FloatArray
from nn_uq_dist.error_analysis._affine_bounds import StandardNetwork
from nn_uq_dist.error_analysis._cover import (
    Covers,
    largest_error,
    largest_gap,
    looked_at,
    mean_bounds,
    refined,
    tails_of,
    whole_cover,
)
from nn_uq_dist.error_analysis._distribution_bounds import EPS
from nn_uq_dist.error_analysis._leaky_relu_network import (
    LeakyReLUNetwork,
    input_of,
    vector_input,
)
from nn_uq_dist.inputs import Input

# Larger numbers have squares that may overflow.
_LARGEST = 1e100
_NUM_BISECTIONS = 45
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
    >>> bounds = nuq.certified(net, nuq.Input.box([0.5], half_width=1.0)).refine(8)
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
            bound = min(bound, largest_error(network, covers[-1]))
        gap = largest_gap(network, covers, looked_at(network, covers[0]))
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
        below, above = tails_of(self._network, self._covers, _as_points("y", y))
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
        for name, value, least in (
            ("seconds", seconds, 0.0), ("gap", gap, 0.0), ("threshold", threshold, -math.inf),
        ):  # fmt: skip
            number = np.asarray(checks.as_numeric(name, 1.0 if value is None else value))
            if number.ndim or not least < number < math.inf:
                raise ValueError(
                    f"{name} must be a finite number above {least}, got {value}; pass None for no "
                    f"limit"
                )
        if max_parts > self.num_parts and not self._network.is_uniform.any():
            raise ValueError(
                "f must have uniform variables to be split, got a normal distribution; use the "
                "bounds without parts, or bound the error of each input by a box"
            )
        from tqdm import tqdm

        cover, batch, network = self._covers[-1], 1, self._network
        points = looked_at(network, cover) if threshold is None else np.array([threshold], float)
        stop = time.monotonic() + (seconds or math.inf)
        with tqdm(total=max_parts, unit="part", delay=2, disable=not progress) as bar:
            while (count := len(cover.mass)) < max_parts and (start := time.monotonic()) < stop:
                bar.update(count - bar.n)
                if gap is not None and largest_gap(network, (cover,), points) <= gap:
                    break
                cover = refined(network, cover, min(batch, max_parts - count), threshold)
                if len(cover.mass) == count:
                    break
                batch = batch * 2 if time.monotonic() - start < _ROUND else max(batch // 2, 1)
            bar.update(count - bar.n)
        if cover is self._covers[-1]:
            return self
        return self.of_covers(network, (self._covers[0], cover), self.output, self.error_bound)

    def __repr__(self) -> str:
        gap = f"{self.gap:.2g}" if self.gap < 0.995 else "1: they say nothing"
        return f"CertifiedDistribution(bounds within {gap}, num_parts={self.num_parts})"


def _as_points(name: str, value: ArrayLike) -> FloatArray:
    value = checks.as_numeric(name, value)
    if not checks.is_concrete(value):
        raise TypeError(
            f"{name} must hold numbers, got traced values; bounds are computed outside of jit, "
            f"grad and vmap"
        )
    points = np.asarray(value, np.float64)
    if np.isnan(points).any():
        raise ValueError(f"{name} must not hold NaN, got {value}; leave out missing values")
    return points


def certified(
    network: LeakyReLUNetwork | Callable[[Array], Array],
    f: Distribution | Input,
    *,
    output: int | None = None,
) -> CertifiedDistribution:
    r"""Proved bounds on the distribution of a leaky-ReLU network's output.

    No draws are made, and nothing is estimated: distribution function, probabilities, quantiles and
    mean of the network itself lie between the bounds. They are useful for small errors of the
    input, for nearly linear networks, and for few inputs; else they are far apart, and say so.

    Parameters
    ----------
    network
        A `LeakyReLUNetwork`, or what `LeakyReLUNetwork.from_network` makes one from. The bounds are
        for that one in exact arithmetic, with the weights as they are stored; evaluated in float32,
        its outputs are rounded.
    f
        Distribution of its input, without batch axes: boxes, normal distributions, both, and sums
        of them. Its numbers are those of `nn_uq_dist.inputs.as_input`, which may have rounded them.
    output
        Index of the output. None if there is only one.

    Returns
    -------
    CertifiedDistribution
        With ``cdf_bounds``, ``probability_bounds``, ``quantile_bounds``, ``mean_bounds``,
        ``error_bound`` and ``gap``; its ``refine`` splits the input for tighter bounds.

    Raises
    ------
    TypeError
        If `network` is no function, `f` is of an unsupported family or over something else than
        vectors, `output` is no integer, or `network` or `f` are traced.
    ValueError
        If `network` is no leaky-ReLU network or stacked, `f` has batch axes, the wrong number of
        inputs or nothing random, `output` is out of range or missing, or bounds overflow.

    Notes
    -----
    Each activation lies between its chord and the tangent at the mean over the range of its
    pre-activation, from which affine bounds of the output follow (CROWN: H. Zhang et al., Efficient
    neural network robustness certification, 2018). With :math:`E` the event that all
    pre-activations are in chosen ranges, :math:`L \le g \le U` on :math:`E`, and
    :math:`l_j \le h_j \le u_j` the affine bounds of pre-activations,

    .. math::

        P(U \le y) - \delta \le P(g \le y) \le P(L \le y) + \delta, \qquad
        \delta = \sum_j P(l_j < \text{lower end}) + P(u_j > \text{upper end}),

    where all distributions are those of linear combinations of independent variables. Ranges
    without an event have :math:`\delta = 0`; shorter ones bring the lines nearer to the activation.
    Six choices are computed, and the best bound at each point counts. (Bounds on probabilities by
    affine bounds: L. Weng et al., PROVEN, 2019.) Errors by rounding and by quadrature are bounded
    and added, in float64 whatever the type of the input.

    Examples
    --------
    >>> import numpy as np
    >>> import nn_uq_dist as nuq
    >>> rng = np.random.default_rng(0)
    >>> net = nuq.LeakyReLUNetwork([rng.normal(size=(8, 3))], [np.ones(8)], [np.ones(8)])
    >>> bounds = nuq.certified(net, nuq.Input.box(np.zeros(3), half_width=0.3))
    >>> low, high = bounds.probability_bounds(10.0, np.inf)
    """
    if not isinstance(network, LeakyReLUNetwork):
        network = LeakyReLUNetwork.from_network(network, vector_input(f).num_inputs)
    distribution = input_of(network, f)
    if distribution.batch_shape:
        raise ValueError(
            f"f must be one input distribution, got batch shape {distribution.batch_shape}; call "
            f"certified for each of them in a loop"
        )
    if not checks.is_concrete(network, distribution):
        raise TypeError(
            "network and f must hold numbers, got traced values; call certified outside of jit, "
            "grad and vmap"
        )
    index = checks.as_index(output, network.num_outputs)
    with np.errstate(over="ignore", invalid="ignore"):
        exact = StandardNetwork.of_distribution(network, distribution, slice(index, index + 1))
        if not exact.is_uniform.size:
            raise ValueError(
                "f must be random, got only known values; give an input a half-width or a scale"
            )
        cover = whole_cover(exact)
    if not all(np.all(np.abs(part) < _LARGEST) for part in cover.forms):
        raise ValueError(
            f"network and f must give bounds below {_LARGEST:g}, got larger ones or NaN; scale the "
            f"weights or the input"
        )
    return CertifiedDistribution.of_covers(exact, (cover,), index)
