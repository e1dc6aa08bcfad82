"""Distributions whose quantiles are solved for: standard ones with known distribution functions.

They have derivatives in values and scores; in the parameters differentiation raises an error.
"""

import abc
import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax import Array, lax
from jax.scipy import special

from nn_uq_dist.basics.checks import not_differentiable
from nn_uq_dist.basics.normal_tails import (
    log_normal_density,
    quantile_at_score,
    score_from_log_tails,
)
from nn_uq_dist.basics.pytree import register_frozen

type Pair = tuple[Array, Array]

_fixed = not_differentiable(
    "quantiles that are solved for have derivatives in their normal score, not in the parameters "
    "of the distribution; keep the degrees of freedom of StudentT, the concentrations of Gamma and "
    "Beta, and mixtures known, or take a family with a quantile function, such as LogNormal"
)


# Shapes from which on `_score_at` is more accurate in float32 than JAX's functions, in which large
# logarithms cancel. It is off by 2e-5; for beta distributions, which need a sum, too, by 2e-4.
_LARGE, _LARGE_BETA, _LARGE_SUM = 100.0, 20.0, 500.0
# A beta distribution whose other shape is larger is computed with this one.
_LARGEST_OTHER = 1000.0
_NOWHERE: Any = np.False_, np.float32(0)
# Signed roots below which the ratio of two small numbers is its limit.
_NEAR = 0.05


class SolvedQuantiles(abc.ABC):
    """A family whose quantiles are solved for; its parameters broadcast against values."""

    @abc.abstractmethod
    def log_prob(self, x: Array) -> Array:
        """Log density."""

    @abc.abstractmethod
    def solved(self, z: Array) -> Array:
        """Value with this normal score, without derivatives."""

    def from_normal_score(self, z: Array) -> Array:
        """Value with this normal score."""
        return _quantile(_fixed(self), z)


@jax.custom_jvp
def _quantile(distribution: SolvedQuantiles, z: Array) -> Array:
    return distribution.solved(z)


@_quantile.defjvp
def _quantile_tangent(primals: tuple[Any, Array], tangents: tuple[Any, Array]) -> Pair:
    distribution, z = primals
    x = _quantile(distribution, z)
    return x, jnp.exp(log_normal_density(z) - distribution.log_prob(x)) * tangents[1]


class ByTails(SolvedQuantiles):
    """A distribution by its tail probabilities."""

    support: Any  # NumPyro's constraint

    @abc.abstractmethod
    def tails(self, x: Array) -> Pair:
        """Distribution and survival function, each with its digits where it is small."""

    def expanded(self, x: Array) -> Pair:  # noqa: ARG002
        """Where an expansion has more digits than the tails, and its normal score."""
        return _NOWHERE

    @abc.abstractmethod
    def guess(self, z: Array) -> Array:
        """Where to begin the search for the value at a score, in the coordinate of `_placed`."""

    def normal_score(self, value: Array) -> Array:
        """Normal score, from the smaller tail; not beyond that of the smallest probability."""
        return _score(_fixed(self), value)

    def solved(self, z: Array) -> Array:
        """Solve ``F(x) = Phi(z)`` by Newton steps inside of a bracket, in the tail of ``z``."""
        dtype = jnp.result_type(z, *jax.tree.leaves(self))
        limits = jnp.finfo(dtype)
        farthest = special.ndtri(jnp.asarray(limits.tiny, dtype)) / (1 + limits.eps)
        z = jnp.clip(z.astype(dtype), farthest, -farthest)
        guess = self.guess(z)
        z = jnp.broadcast_to(z, guess.shape)
        is_upper = z > 0

        def score_and_log_density(t: Array) -> Pair:
            x, log_slope = _placed(self, t)
            lower, upper = self.tails(x)
            score = special.ndtri(jnp.where(is_upper, upper, lower))
            score = jnp.where(*self.expanded(x), jnp.where(is_upper, -score, score))
            return score, self.log_prob(x) + log_slope

        # Beyond, values over- or underflow.
        end = jnp.full(z.shape, math.log(limits.max), dtype)
        start = jnp.clip(guess, -end, end).astype(dtype)
        root = quantile_at_score(z, start, -end, end, score_and_log_density)
        return _placed(self, root)[0]


@register_frozen
@dataclasses.dataclass(frozen=True, eq=False)
class Gamma(ByTails):
    """The gamma distribution of rate 1."""

    concentration: Any
    support = dist.constraints.positive

    def tails(self, x: Array) -> Pair:
        # One of JAX's loops for each value: the other function gets what it is done with at once.
        shape, is_large = self.concentration, _is_large(_LARGE, x, self.concentration)
        a, y = jnp.where(is_large, 1, shape), jnp.where(is_large, 1, x)
        is_low = y <= jnp.maximum(a, 1)
        lower, upper = (
            special.gammainc(a, jnp.where(is_low, y, 0)),
            special.gammaincc(a, jnp.where(is_low, 0, y)),
        )
        return jnp.where(is_low, lower, 1 - upper), jnp.where(is_low, 1 - lower, upper)

    def expanded(self, x: Array) -> Pair:
        a = self.concentration
        root = jnp.sqrt(a)
        score = _score_at(_deviance(a, x - a), (x - a) / root, 1 / (3 * root))
        return _is_large(_LARGE, x, a), score

    def log_prob(self, x: Array) -> Array:
        a = self.concentration
        exact = special.xlogy(a - 1, x) - x - special.gammaln(a)
        of_large = -_deviance(a, x - a) - jnp.log(x) + jnp.log(a / (2 * math.pi)) / 2 - 1 / (12 * a)
        return jnp.where(_is_large(_LARGE, x, a), of_large, exact)

    def guess(self, z: Array) -> Array:
        """Cube of a normal variable (E. B. Wilson and M. M. Hilferty 1931), or a lower bound."""
        a = self.concentration
        root = 1 - 1 / (9 * a) + z / (3 * jnp.sqrt(a))
        by_cube = jnp.log(a) + 3 * jnp.log(jnp.maximum(root, jnp.finfo(z.dtype).tiny))
        return jnp.maximum((special.log_ndtr(z) + special.gammaln(a + 1)) / a, by_cube)


@register_frozen
@dataclasses.dataclass(frozen=True, eq=False)
class Beta(ByTails):
    """A beta distribution whose arrays are its two parameters alone, one for each entry."""

    concentration1: Any
    concentration0: Any
    support = dist.constraints.unit_interval

    def tails(self, x: Array) -> Pair:
        is_turned, a, b, y, rest = self._by_smaller(x)
        is_large = self._is_large(x)
        if x.dtype == np.float32:
            # ``-(b + (a - 1)/2) log(1 - y)`` is nearly gamma distributed (M. E. Wise 1950).
            other = jnp.minimum(b, _LARGEST_OTHER)
            stretch = (b + (a - 1) / 2) / (other + (a - 1) / 2)
            moved = -jnp.expm1(stretch * jnp.log1p(-y))
            y, rest = jnp.where(b > other, moved, y), jnp.where(b > other, 1 - moved, rest)
            a, b = jnp.where(is_large, 1, a), jnp.where(is_large, 1, other)
        is_low = y * (a + b) < a
        small = special.betainc(
            jnp.where(is_low, a, b), jnp.where(is_low, b, a), jnp.where(is_low, y, rest)
        )
        is_lower = is_low ^ is_turned
        return jnp.where(is_lower, small, 1 - small), jnp.where(is_lower, 1 - small, small)

    def _is_large(self, x: Array) -> Array:
        a, b = self.concentration1, self.concentration0
        return _is_large(_LARGE_BETA, x, jnp.minimum(a, b)) & (a + b >= _LARGE_SUM)

    def _by_smaller(self, x: Array) -> tuple[Array, ...]:
        """Whether the second shape is smaller; the smaller and the larger; what is theirs."""
        a, b = self.concentration1, self.concentration0
        is_turned = b < a
        share = jnp.where(is_turned, 1 - x, x), jnp.where(is_turned, x, 1 - x)
        return is_turned, jnp.minimum(a, b), jnp.maximum(a, b), *share

    def expanded(self, x: Array) -> Pair:
        is_turned, a, b, y, _ = self._by_smaller(x)
        total, deviation = a + b, jnp.sqrt(a / (a + b) * b)
        limit = (b - a) / total / (3 * deviation)
        score = _score_at(self._deviance(x), (total * y - a) / deviation, limit)
        return self._is_large(x), jnp.where(is_turned, -score, score)

    def _deviance(self, x: Array) -> Array:
        _, a, b, y, _ = self._by_smaller(x)
        excess = (a + b) * y - a
        return _deviance(a, excess) + _deviance(b, -excess)

    def log_prob(self, x: Array) -> Array:
        a, b = self.concentration1, self.concentration0
        exact = special.xlogy(a - 1, x) + special.xlog1py(b - 1, -x) - special.betaln(a, b)
        root = jnp.log(a / (a + b) * b / (2 * math.pi)) / 2 - jnp.log(x) - jnp.log1p(-x)
        of_large = root - self._deviance(x) - (1 / a + 1 / b - 1 / (a + b)) / 12
        return jnp.where(self._is_large(x), of_large, exact)

    def guess(self, z: Array) -> Array:
        """Bounds of the logit: of powers at one end each, which hold between them in the middle."""
        a, b = self.concentration1, self.concentration0
        constant = special.betaln(a, b)
        from_low = (special.log_ndtr(z) + jnp.log(a) + constant) / a
        from_high = -(special.log_ndtr(-z) + jnp.log(b) + constant) / b
        return jnp.where(z < 0, jnp.minimum(from_low, from_high), jnp.maximum(from_low, from_high))


@register_frozen
@dataclasses.dataclass(frozen=True, eq=False)
class Student(ByTails):
    """Student's distribution about zero, in units of the root of its degrees of freedom."""

    df: Any
    support = dist.constraints.real

    def tails(self, x: Array) -> Pair:
        is_large = _is_large(_LARGE, x, self.df)
        df, t = jnp.where(is_large, 1, self.df), jnp.where(is_large, 0, x)
        half, square = df / 2, t**2
        is_near = square * df < 1
        share = jnp.where(is_near, square, 1) / (1 + square)
        tail = special.betainc(jnp.where(is_near, 0.5, half), jnp.where(is_near, half, 0.5), share)
        # A power of the value far out, where its square may overflow.
        is_far, log_size = self._far(x)
        power = jnp.exp(-self.df * log_size - special.betaln(self.df / 2, 0.5)) / self.df
        small = jnp.where(is_far, power, jnp.where(is_near, 0.5 - tail / 2, tail / 2))
        return jnp.where(t < 0, small, 1 - small), jnp.where(t < 0, 1 - small, small)

    def expanded(self, x: Array) -> Pair:
        # The square of larger ones may overflow.
        t = jnp.clip(x, -1e3, 1e3)
        square, root = t * t, jnp.sqrt(self.df)
        standardized = root * t * lax.rsqrt(1 + square)
        score = _score_at(self.df * jnp.log1p(square) / 2, standardized, -t / (4 * root))
        return _is_large(_LARGE, x, self.df), score

    def log_prob(self, x: Array) -> Array:
        is_far, log_size = self._far(x)
        log_square = jnp.where(is_far, 2 * log_size, jnp.log1p(jnp.where(is_far, 0, x) ** 2))
        return -(self.df + 1) / 2 * log_square - special.betaln(self.df / 2, 0.5)

    def _far(self, x: Array) -> Pair:
        """Where one is nothing beside the square of the value, and the log of its size there."""
        is_far = jnp.abs(x) > (1 + self.df) / math.sqrt(jnp.finfo(x.dtype).eps)
        return is_far, jnp.log(jnp.where(is_far, jnp.abs(x), 1))

    def guess(self, z: Array) -> Array:
        """``log(1 + x^2)`` is nearly a multiple of ``z^2`` (D. L. Wallace 1959)."""
        exponent = (z * (8 * self.df + 3) / (8 * self.df + 1)) ** 2 / self.df
        size = exponent / 2 + jnp.log1p(jnp.sqrt(-jnp.expm1(-exponent)))
        return jnp.where(z < 0, -size, size)


@register_frozen
@dataclasses.dataclass(frozen=True, eq=False)
class ByDistributionFunction(ByTails):
    """A distribution of NumPyro with ``cdf``, whose upper tail is what is left of it."""

    distribution: Any

    @property
    def support(self) -> Any:
        return self.distribution.support

    def tails(self, x: Array) -> Pair:
        lower = self.distribution.cdf(x)
        return lower, 1 - lower

    def log_prob(self, x: Array) -> Array:
        return jnp.asarray(self.distribution.log_prob(x))

    def guess(self, z: Array) -> Array:
        # Of parameters with axes of their own, the shapes do not tell that of the values.
        return jnp.broadcast_to(z, jax.eval_shape(self.distribution.cdf, z).shape)


def _is_large(least: float, x: Array, shape: Any) -> Any:
    """Where JAX's functions have fewer digits than an expansion; nowhere in float64."""
    return shape >= least if x.dtype == np.float32 else _NOWHERE[0]


def _deviance(shape: Any, excess: Array) -> Array:
    """``m - a - a log(m/a)`` at ``m = a + excess`` without cancellation (C. Loader 2000)."""
    v = excess / (2 * shape + excess)
    square = v * v
    series = 1 / 3 + square * (1 / 5 + square * (1 / 7 + square * (1 / 9 + square / 11)))
    near = excess * v - 2 * shape * v * square * series
    return jnp.where(jnp.abs(v) < 0.25, near, excess - shape * jnp.log1p(excess / shape))


def _score_at(exponent: Array, standardized: Array, limit: Array) -> Array:
    r"""Normal score ``r + log(v/r)/r``, whose error is of order ``a^{-3/2}``.

    The leading terms of the uniform expansions of the incomplete gamma and beta functions (N. M.
    Temme, SIAM J. Math. Anal. 13, 1982) in the form of O. E. Barndorff-Nielsen (1986).

    Parameters
    ----------
    exponent
        ``r^2/2``.
    standardized
        ``v``, of the sign of ``r``.
    limit
        Of the second term, where both vanish.
    """
    root = jnp.copysign(jnp.minimum(jnp.sqrt(2 * jnp.maximum(exponent, 0)), 1e3), standardized)
    is_near = jnp.abs(root) < _NEAR
    safe = jnp.where(is_near, 1, root)
    ratio = jnp.where(is_near, 1, standardized / safe)
    return root + jnp.where(is_near, limit, jnp.log(ratio) / safe)


@jax.custom_jvp
def _score(distribution: ByTails, x: Array) -> Array:
    lower, upper = distribution.tails(x)
    tiny = jnp.finfo(jnp.result_type(lower)).tiny
    score = score_from_log_tails(*(jnp.log(jnp.maximum(p, tiny)) for p in (lower, upper)))
    return jnp.where(*distribution.expanded(x), score)


@_score.defjvp
def _score_tangent(primals: tuple[Any, Array], tangents: tuple[Any, Array]) -> Pair:
    distribution, x = primals
    z = _score(distribution, x)
    return z, jnp.exp(distribution.log_prob(x) - log_normal_density(z)) * tangents[1]


def _placed(distribution: ByTails, t: Array) -> Pair:
    """Value at a coordinate on the real line, and the log of its slope there."""
    if distribution.support is dist.constraints.real:
        # Logarithmic far out on both sides: values of any size are some hundreds away.
        return jnp.sinh(t), jnp.logaddexp(t, -t) - math.log(2)
    to_support = dist.transforms.biject_to(distribution.support)
    x = to_support(t)
    return x, to_support.log_abs_det_jacobian(t, x)
