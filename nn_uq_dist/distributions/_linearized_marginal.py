"""The distribution of one output of a linearized network as a NumPyro distribution."""

import contextlib
import math
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax import Array, random
from jax.typing import ArrayLike
from numpyro.distributions import constraints
from numpyro.distributions.kl import kl_divergence

from nn_uq_dist import uniform_sum
from nn_uq_dist.basics import checks
from nn_uq_dist.basics.concrete import as_jax, as_variances, nan_unless, one_program, runs_in_numpy
from nn_uq_dist.basics.row_algebra import binary_unit, joined, namespace
from nn_uq_dist.distributions._contract import validate_sample
from nn_uq_dist.distributions._contract_output import OutputDistribution
from nn_uq_dist.distributions._value_rule import ValueRule, rule_between
from nn_uq_dist.uniform_sum.quantiles import corners, resolved_scale, saddlepoint_quantile


class LinearizedMarginal(OutputDistribution):
    r"""Distribution of ``loc + sum_k w_k U_k + s N``: uniforms on [-1, 1] and a standard normal.

    This is the exact distribution of an output of a linearized network, with ``w_k`` the Jacobian
    entry times the half-width of input ``k``.

    Parameters
    ----------
    loc : array_like, shape (...)
        Center.
    weights : array_like, shape (..., n)
        Weights of the uniforms; the last axis is summed over. Any sign, zeros allowed.
    normal_scale : array_like, shape (...), optional
        Standard deviation of the normal part, non-negative. Default: no normal part. One below the
        rounding of ``sum |w|`` counts as none.
    validate_args : bool, optional
        As for every NumPyro distribution.

    Attributes
    ----------
    batch_shape : tuple of int
        ``loc``, ``weights`` without their last axis and ``normal_scale``, broadcast.
    support
        ``[loc - sum |w|, loc + sum |w|]`` without a normal part, the real line with one.

    Raises
    ------
    TypeError
        If a parameter or a value is not an array of real numbers.
    ValueError
        If ``weights`` has no axis to sum over or shapes do not broadcast; with validation on, if a
        parameter is NaN or infinite, a ``normal_scale`` is negative, or a distribution is a point
        mass (all its weights and ``normal_scale`` are zero). Under ``jit`` such values give NaN or
        infinity; a point mass keeps its draws, mean and variance.

    Notes
    -----
    The density is the convolution of rectangles of the paper's ``eq:FINAL_PDF`` with the
    prefactor ``prod 1/(2 |w_k|)``; for the numerics see ``uniform_sum.logpdf``.
    Many points of one distribution (``loc`` or values of higher rank than ``weights``) share lines.

    Examples
    --------
    >>> import nn_uq_dist as nuq
    >>> output = nuq.LinearizedMarginal(loc=1.0, weights=[0.5, 0.5])
    >>> float(output.cdf(1.0)), float(output.support.upper_bound)
    (0.5, 2.0)
    """

    arg_constraints: ClassVar[dict[str, constraints.Constraint]] = {
        "loc": constraints.real,
        "weights": constraints.real_vector,
        "normal_scale": constraints.nonnegative,
    }
    reparametrized_params: ClassVar[list[str]] = ["loc", "weights", "normal_scale"]

    def __init__(
        self,
        loc: ArrayLike,
        weights: ArrayLike,
        normal_scale: ArrayLike | None = None,
        *,
        validate_args: bool | None = None,
    ) -> None:
        loc = _as_parameter("loc", loc)
        weights = _as_parameter("weights", weights)
        if normal_scale is not None:
            normal_scale = _as_parameter("normal_scale", normal_scale)
        weights_shape = jnp.shape(weights)
        if not weights_shape or weights_shape[-1] == 0:
            raise ValueError(
                f"weights must have shape (..., n) with n >= 1, got {weights_shape}; "
                "pass an array whose last axis is summed over, for one component weights=[w]"
            )
        batch_shape = checks.broadcast_shapes(
            "loc, weights without their last axis and normal_scale must broadcast",
            loc=jnp.shape(loc),
            weights=weights_shape[:-1],
            normal_scale=() if normal_scale is None else jnp.shape(normal_scale),
        )
        # None, not zero, without a normal part: a number would be a leaf that `jax.vmap` must map.
        self._set_parameters(batch_shape, loc=loc, weights=weights, normal_scale=normal_scale)
        super().__init__(batch_shape, (), validate_args=validate_args)

    def validate_args(self, strict: bool = True) -> None:
        """Check as NumPyro does; no known distribution may be a point mass, either."""
        if self.normal_scale is not None:
            remedy = "pass standard deviations of the normal part, or leave it out"
            checks.require_nonnegative("normal_scale", self.normal_scale, remedy)
        super().validate_args(strict)
        if not checks.is_concrete(self.weights, self.normal_scale):
            return
        degenerate = np.all(np.asarray(self.weights) == 0, axis=-1)
        if self.normal_scale is not None:
            degenerate = degenerate & (np.asarray(self.normal_scale) == 0)
        if degenerate.any():
            where = f" at batch index {checks.first_index(degenerate)}" if degenerate.ndim else ""
            raise ValueError(
                f"weights must not all be zero without a normal part, got a point mass{where}: "
                "it has no density; give normal_scale (noise_scale in Linearization.marginals) "
                "a positive value or leave that output out"
            )

    @constraints.dependent_property(is_discrete=False, event_dim=0)
    def support(self) -> constraints.Constraint:
        if self.normal_scale is not None:
            return constraints.real
        return constraints.interval(*self.bounds)

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        """Exact draws, reparametrized: shape ``sample_shape + batch_shape``."""
        weights, dtype = jnp.asarray(self.weights), self._dtype
        key, sample_shape = checks.as_sampling(key, sample_shape)
        key_uniform, key_normal = random.split(key)
        shape = (*sample_shape, *self.batch_shape)
        uniform = random.uniform(
            key_uniform, (*shape, weights.shape[-1]), dtype, minval=-1.0, maxval=1.0
        )
        draws = jnp.asarray(self.loc) + jnp.sum(weights * uniform, axis=-1)
        if self.normal_scale is not None:
            draws = draws + _valid(self._of_one_type[2]) * random.normal(key_normal, shape, dtype)
        return draws

    def _centered(self, value: ArrayLike) -> Any:
        points = self._fitting("value", value)
        if runs_in_numpy(points, self.loc):
            with np.errstate(invalid="ignore", over="ignore"):
                return np.asarray(points) - np.asarray(self.loc, points.dtype)
        return jnp.asarray(points) - jnp.asarray(self.loc, points.dtype)

    def _shifted(self, deviation: Array) -> Array:
        """``loc + deviation``."""
        dtype = checks.float_dtype(self.loc, deviation)
        if runs_in_numpy(deviation, self.loc):
            return as_jax(np.asarray(self.loc, dtype) + np.asarray(deviation))
        return jnp.asarray(self.loc, dtype) + deviation.astype(dtype)

    @validate_sample
    def log_prob(self, value: ArrayLike) -> Array:
        """Log density, with relative accuracy up to the edge of the support, ``-inf`` beyond."""
        return uniform_sum.logpdf(self._centered(value), self.weights, self.normal_scale)

    def cdf(self, value: ArrayLike) -> Array:
        """Distribution function, with relative accuracy in the lower tail."""
        return uniform_sum.cdf(self._centered(value), self.weights, self.normal_scale)

    def log_cdf(self, value: ArrayLike) -> Array:
        """Log distribution function, accurate in both tails."""
        return uniform_sum.logcdf(self._centered(value), self.weights, self.normal_scale)

    def log_sf(self, value: ArrayLike) -> Array:
        """Log survival function ``log P(X > value)``, accurate in both tails."""
        return uniform_sum.logsf(self._centered(value), self.weights, self.normal_scale)

    def log_interval(self, low: ArrayLike, high: ArrayLike) -> Array:
        """``log P(low < Y <= high)``, with the arguments of `OutputDistribution.log_interval`.

        Notes
        -----
        The probability over the length is the density of the sum with one more uniform, as wide as
        the interval, at its middle: no difference of tails, right to 1e-12 in float64. An interval
        that is a few roundings of an end of the support wide is right to these roundings.

        Examples
        --------
        >>> import nn_uq_dist as nuq
        >>> output = nuq.LinearizedMarginal(0.0, [1.0, 1.0], normal_scale=0.5)
        >>> print(output.log_interval(7.999, 8.001).round(2))  # 8.4 standard deviations out
        -86.2
        """
        start, stop = (
            self._centered(self._fitting(name, end)) for name, end in (("low", low), ("high", high))
        )
        logs = _log_interval(start, stop, *self._of_one_type[1:])
        return jnp.where(start <= stop, logs, jnp.nan)

    def icdf(self, q: ArrayLike) -> Array:
        """Quantile function; lower tail probabilities such as 1e-30 are resolved.

        Raises
        ------
        ValueError
            If a known ``q`` is not in [0, 1]; a traced one gives NaN.
        """
        q = self._fitting("q", q)
        checks.require_probabilities("q", q)
        return self._shifted(uniform_sum.ppf(q, self.weights, self.normal_scale))

    def normal_score(self, value: ArrayLike) -> Array:
        """``Phi^{-1}(cdf(value))`` without going through a probability, accurate in both tails."""
        return uniform_sum.normal_score(self._centered(value), self.weights, self.normal_scale)

    def normal_score_and_log_prob(self, value: ArrayLike) -> tuple[Array, Array]:
        """`normal_score` and `log_prob` at once, in little more time than one of them."""
        return uniform_sum.normal_score_and_logpdf(
            self._centered(value), self.weights, self.normal_scale
        )

    def from_normal_score(self, z: ArrayLike) -> Array:
        """Value whose normal score is ``z``; the inverse of `normal_score`."""
        z = self._fitting("z", z)
        return self._shifted(uniform_sum.from_normal_score(z, self.weights, self.normal_scale))

    @property
    def mean(self) -> Array:
        """``loc``, by symmetry (the paper's ``mean``)."""
        return jnp.broadcast_to(jnp.asarray(self.loc, self._dtype), self.batch_shape)

    @property
    def variance(self) -> Array:
        """``sum w^2/3 + s^2`` (the paper's ``var``); NaN where the type has no such number."""
        unit, in_units, *_ = _moments(*self._of_one_type[1:])
        return jnp.broadcast_to(as_variances(in_units, unit), self.batch_shape)

    @property
    def standard_deviation(self) -> Array:
        """Square root of the variance, also where that would over- or underflow."""
        return jnp.broadcast_to(_moments(*self._of_one_type[1:])[2], self.batch_shape)

    @property
    def skewness(self) -> Array:
        """Zero, by symmetry."""
        return jnp.zeros(self.batch_shape, self._dtype)

    @property
    def excess_kurtosis(self) -> Array:
        """``-(2/15) sum w^4 / variance^2``: between -1.2 (uniform) and 0 (normal)."""
        return jnp.broadcast_to(_moments(*self._of_one_type[1:])[3], self.batch_shape)

    @property
    def bounds(self) -> tuple[Array, Array]:
        """``loc -+ sum |w|``, infinite for outputs whose normal scale is not zero."""
        low, high = _bounds(*self._of_one_type)
        return jnp.broadcast_to(low, self.batch_shape), jnp.broadcast_to(high, self.batch_shape)

    def kinks(self) -> Array:
        """Sums of the three largest weights and their negatives, ``(8,) + batch_shape``."""
        kinks = _kinks(jnp.asarray(self.loc), jnp.asarray(self.weights))
        return jnp.broadcast_to(kinks, (len(kinks), *self.batch_shape))

    def approximate_quantile(self, z: Array) -> Array:
        """By the saddlepoint approximation."""
        return _approximate_quantile(z, *self._of_one_type)

    def value_rule(self, loc: Array | None = None, scale: Array | None = None) -> ValueRule:
        """The rule of the contract, in one program."""
        return _value_rule(self._panel_scores(loc, scale), *self._of_one_type)

    def entropy(self) -> Array:
        """Differential entropy by quadrature: see ``uniform_sum.entropy``."""
        value = uniform_sum.entropy(self.weights, self.normal_scale)
        return jnp.broadcast_to(value, self.batch_shape)

    @property
    def _of_one_type(self) -> tuple[Array, Array, Array | None]:
        dtype, scale = self._dtype, self.normal_scale
        loc, weights = jnp.asarray(self.loc, dtype), jnp.asarray(self.weights, dtype)
        return loc, weights, None if scale is None else jnp.asarray(scale, dtype)


def _kl_to_normal(p: LinearizedMarginal, q: dist.Normal) -> Array:
    """Kullback-Leibler divergence to a normal distribution: the entropy, and two moments."""
    score = (p.mean - q.loc) / q.scale
    second = (p.standard_deviation / q.scale) ** 2 + score**2
    return 0.5 * (second + math.log(2 * math.pi)) + jnp.log(q.scale) - p.entropy()


kl_divergence.add((LinearizedMarginal, dist.Normal), _kl_to_normal)


def _valid(normal_scale: Array | None) -> Any:
    """A negative scale that validation could not see must not be taken for its absolute value."""
    if normal_scale is None:
        return 0.0
    return nan_unless(normal_scale >= 0, normal_scale)


def _moments_of(weights: Array, normal_scale: Array | None) -> tuple[Array, Array, Array, Array]:
    """Units, variance in squares of these, standard deviation, and excess kurtosis."""
    xp, scale = namespace(weights), _valid(normal_scale)
    unit = binary_unit(xp.maximum(xp.max(xp.abs(weights), axis=-1), scale))
    squares = (weights / unit[..., None]) ** 2
    variance = xp.sum(squares, axis=-1) / 3 + (scale / unit) ** 2
    kurtosis = -2 / 15 * xp.sum(squares**2, axis=-1) / variance**2
    return unit, variance, unit * xp.sqrt(variance), kurtosis


def _quantile_near(z: Array, loc: Array, weights: Array, scale: Array | None) -> Any:
    xp: Any = namespace(z, weights)
    weights, scale = abs(weights).astype(z.dtype), xp.asarray(_valid(scale), z.dtype)
    # A normal part bounds the tilts that lead to the edge of a bounded support.
    least = jnp.finfo(z.dtype).eps * (weights.sum(axis=-1) + scale)
    x = saddlepoint_quantile(xp.abs(z), weights, xp.maximum(scale, least))
    return loc + xp.where(z < 0, -x, x)


def _kinks_of(loc: Array, weights: Array) -> Any:
    knots = corners(weights)
    return namespace(weights).concatenate([loc + knots, loc - knots])


def _bounds_of(loc: Array, weights: Array, normal_scale: Array | None) -> tuple[Array, Array]:
    """Ends of the support."""
    xp, width = namespace(weights), namespace(weights).sum(abs(weights), axis=-1)
    if normal_scale is not None:
        scale = resolved_scale(_valid(normal_scale), weights)
        width = xp.where(scale == 0, width, xp.inf)
    return loc - width, loc + width


def _log_interval(low: Array, high: Array, weights: Array, scale: Array | None) -> Array:
    """``log P(low < Y <= high)`` of a sum around zero, if `low` is below `high`."""
    sd = _moments(weights, scale)[2]
    # A tail is at most that of a normal distribution of the same variance (up to a factor), and
    # falls faster further out: beyond so many standard deviations nothing is left to rounding. A
    # wide uniform would round the near end away.
    reach = (1.0 + np.sqrt(-2.0 * np.log(jnp.finfo(sd.dtype).eps))) * sd
    ends = _bounds(jnp.zeros_like(sd), weights, scale)
    start = jnp.maximum(jnp.maximum(low, jnp.minimum(high, 0.0) - reach), ends[0])
    stop = jnp.minimum(jnp.minimum(high, jnp.maximum(low, 0.0) + reach), ends[1])
    has_mass = start < stop
    half = jnp.where(has_mass, 0.5 * (stop - start), sd)
    middle = jnp.where(has_mass, start + half, 0.0)
    columns = joined([weights, half[..., None]])
    logs = uniform_sum.logpdf(middle, columns, scale) + jnp.log(2.0 * half)
    return jnp.where(has_mass, jnp.minimum(logs, 0.0), -jnp.inf)


def _rule_of(z: Array, loc: Array, weights: Array, scale: Array | None) -> ValueRule:
    """The rule whose panels end at these scores and at the kinks."""
    ends, kinks = _quantile_near(z, loc, weights, scale), _kinks_of(loc, weights)
    spread = _moments_of(weights, scale)[2]
    return rule_between(ends, kinks, *_bounds_of(loc, weights, scale), loc, spread)


_moments, _bounds = one_program(_moments_of), one_program(_bounds_of)
_kinks, _approximate_quantile = one_program(_kinks_of), one_program(_quantile_near)
_value_rule = one_program(_rule_of)


def _as_parameter(name: str, value: ArrayLike) -> ArrayLike:
    # NumPy arrays and Python numbers, and lists of them, stay known, so that bad constants raise
    # under jit. A list that holds a traced value becomes a JAX array.
    if (
        not hasattr(value, "shape")
        and not isinstance(value, int | float)
        and checks.is_concrete(value)
    ):
        # A ragged list stays a list, which `as_numeric` rejects with the name of the argument.
        with contextlib.suppress(ValueError):
            value = np.asarray(value)
    return checks.as_numeric(name, value)
