"""Values of a univariate law at given normal scores: where its distribution function is Phi(z)."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpyro.distributions as dist
from jax import Array
from jax.scipy.special import betainc, betaln, log_ndtr, ndtr, ndtri, xlog1py, xlogy

from nn_uq_dist.basics._pytree import register_frozen
from nn_uq_dist.inputs._inverse_of_cdf import at_inverse_of_cdf

# Symmetric about `loc`: the upper tail is mirrored from the lower one, which has all its digits.
_SYMMETRIC = (dist.Logistic, dist.Normal, dist.SoftLaplace)
# From the probability above: what `icdf` makes of a probability near one is rounded, or infinite.
_FROM_SCORE: dict[type, Callable[[Any, Array], Array]] = {
    dist.Exponential: lambda law, z: -log_ndtr(-z) / law.rate,
    dist.HalfNormal: lambda law, z: -law.scale * ndtri(ndtr(-z) / 2),
    dist.HalfCauchy: lambda law, z: law.scale / jnp.tan(jnp.pi / 2 * ndtr(-z)),
    dist.Gumbel: lambda law, z: law.loc - law.scale * jnp.log(-log_ndtr(z)),
    dist.Laplace: lambda law, z: law.loc + law.scale * _odd(_lower_laplace, z),
    dist.Cauchy: lambda law, z: law.loc + law.scale * _odd(_lower_cauchy, z),
    dist.StudentT: lambda law, z: law.loc + law.scale * _standard_student(law.df, z),
}


@register_frozen
@dataclasses.dataclass(frozen=True, eq=False)
class Beta:
    """A beta law whose arrays are its two parameters alone, one for each entry."""

    concentration1: Any
    concentration0: Any
    support = dist.constraints.unit_interval

    def cdf(self, x: Array) -> Array:
        """Distribution function."""
        return betainc(self.concentration1, self.concentration0, x)

    def log_prob(self, x: Array) -> Array:
        """Log density."""
        a, b = self.concentration1, self.concentration0
        return xlogy(a - 1, x) + xlog1py(b - 1, -x) - betaln(a, b)


@register_frozen
@dataclasses.dataclass(frozen=True, eq=False)
class _Student:
    """Student's law about zero, its distribution function with all digits below the median."""

    df: Any
    support = dist.constraints.real

    def cdf(self, t: Array) -> Array:
        """Distribution function; from the median on where little is missing to it."""
        half, square = self.df / 2, t**2
        # Both arms are finite in slope: where one is not taken, its argument is moved.
        is_near = square < self.df
        near = jnp.where(is_near, square, self.df) / (self.df + jnp.where(is_near, square, self.df))
        far = self.df / (self.df + jnp.where(is_near, self.df, square))
        inner = (1 + jnp.sign(t) * betainc(0.5, half, near)) / 2
        outer = betainc(half, 0.5, far) / 2
        return jnp.where(is_near, inner, jnp.where(t < 0, outer, 1 - outer))

    def log_prob(self, t: Array) -> Array:
        """Log density."""
        return -(self.df + 1) / 2 * jnp.log1p(t**2 / self.df) - (
            jnp.log(self.df) / 2 + betaln(self.df / 2, 0.5)
        )


def _odd(lower: Callable[[Array], Array], z: Array) -> Array:
    """An odd function by its values below zero."""
    # Not by the absolute value, whose slope at zero is none.
    is_above = z > 0
    found = lower(jnp.where(is_above, -z, z))
    return jnp.where(is_above, -found, found)


def _standard_student(df: Array, z: Array) -> Array:
    return _odd(lambda lower: at_inverse_of_cdf(_Student(df), lower), z)


def _lower_laplace(z: Array) -> Array:
    return jnp.log(2.0).astype(z.dtype) + log_ndtr(z)


def _lower_cauchy(z: Array) -> Array:
    # Each form where it has all its digits: about the median, and in the tail.
    about = jnp.tan(jnp.pi * (ndtr(jnp.maximum(z, -1)) - 0.5))
    return jnp.where(z > -1, about, -1 / jnp.tan(jnp.pi * ndtr(jnp.minimum(z, -1))))


def has_quantiles(family: dist.Distribution) -> bool:
    """Whether the law is univariate and continuous, with a quantile function that is known."""
    # A law that was rebuilt from its parameters may have lost its support.
    support = family.support
    if family.event_dim != 0 or (support is not None and support.is_discrete):
        return False
    own = [
        getattr(type(family), name) is not getattr(dist.Distribution, name)
        for name in ("icdf", "cdf")
    ]
    return own[0] or (own[1] and support is not None)


def at_normal_score(family: Any, z: Array) -> Array:
    """Values at which the distribution function of `family` is that of the normal law at `z`.

    Differentiable in `z`, and in the parameters where `cdf` and `icdf` are.
    """
    if type(family) in _FROM_SCORE:
        return _FROM_SCORE[type(family)](family, z)
    if isinstance(family, _SYMMETRIC):
        return family.loc + _odd(lambda lower: _at_probability(family, lower) - family.loc, z)
    # The `icdf` of gamma and beta laws needs a package that may not be there.
    if isinstance(family, Beta | dist.Gamma):
        return at_inverse_of_cdf(family, z)
    if type(family).icdf is not dist.Distribution.icdf:
        return _at_probability(family, z)
    return at_inverse_of_cdf(family, z)


def _at_probability(family: Any, z: Array) -> Array:
    limits = jnp.finfo(z.dtype)
    # Beyond, a quantile function is infinite: at 5.2 standard deviations in float32.
    found: Array = family.icdf(jnp.clip(ndtr(z), limits.tiny, 1 - limits.eps / 2))
    return found
