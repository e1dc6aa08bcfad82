"""Normal scores of univariate NumPyro distributions, and values at scores: a table of families."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpyro.distributions as dist
from jax import Array
from jax.nn import log_sigmoid
from jax.scipy.special import erf, erfinv, log_ndtr, ndtr, ndtri
from jax.typing import ArrayLike

from nn_uq_dist.basics._solved_quantiles import (
    Beta,
    ByDistributionFunction,
    Gamma,
    Student,
)
from nn_uq_dist.basics.normal_tails import score_from_log_survival, score_from_log_tails

_LOG_2 = math.log(2)

type Scores = Callable[[Any, Array], Array]


class Family(NamedTuple):
    """How a distribution of the family has scores of values, and values at scores."""

    score: Scores
    value: Scores


def normal_score(distribution: Any, value: ArrayLike) -> Array:
    """``Phi^{-1}(F(value))``, right in both tails for the families of the table below.

    Others go through ``cdf``, and do not exceed about 8 (float64) or 5 (float32), where it rounds
    to one. A distribution with a method of this name has its own way.
    """
    if hasattr(distribution, "normal_score"):
        return distribution.normal_score(value)
    value = jnp.asarray(value, jnp.result_type(float, value))
    family = _family(distribution)
    if family is not None:
        return family.score(distribution, value)
    probability = distribution.cdf(value)
    info = jnp.finfo(jnp.result_type(probability))
    return ndtri(jnp.clip(probability, info.tiny, 1.0 - info.epsneg))


def from_normal_score(distribution: Any, z: ArrayLike) -> Array:
    """``F^{-1}(Phi(z))``, the inverse of `normal_score`, with the same limit for other families.

    Differentiable in ``z``, and in the parameters where ``cdf`` and ``icdf`` are; not in those of a
    distribution whose quantiles are solved for.
    """
    if hasattr(distribution, "from_normal_score"):
        return distribution.from_normal_score(z)
    z = jnp.asarray(z, jnp.result_type(float, z))
    family = _family(distribution)
    if family is not None:
        return family.value(distribution, z)
    if type(distribution).icdf is dist.Distribution.icdf:
        return ByDistributionFunction(distribution).from_normal_score(z)
    info = jnp.finfo(z.dtype)
    # Two roundings below one: a distribution that asks another for the quantile at (1 + q)/2 would
    # get one, where it is infinite, if `q` were the number next to one.
    found: Array = distribution.icdf(jnp.clip(ndtr(z), info.tiny, 1.0 - info.eps))
    return found


def normal_score_and_log_prob(distribution: Any, value: ArrayLike) -> tuple[Array, Array]:
    """`normal_score` and the log density, which some distributions have in one pass."""
    if hasattr(distribution, "normal_score_and_log_prob"):
        return distribution.normal_score_and_log_prob(value)
    return normal_score(distribution, value), distribution.log_prob(value)


def missing_functions(distribution: dist.Distribution) -> tuple[str, ...]:
    """Which of ``cdf`` and ``icdf`` would be asked for and are not there."""
    if hasattr(distribution, "from_normal_score"):
        return ()
    if isinstance(
        distribution, dist.ExpandedDistribution | dist.TransformedDistribution | _TRUNCATED
    ):
        transforms = getattr(distribution, "transforms", ())
        folds = any(isinstance(part, dist.transforms.AbsTransform) for part in transforms)
        return ("cdf", "icdf") if folds else missing_functions(distribution.base_dist)
    if _family(distribution) is not None:
        return ()
    return tuple(
        name
        for name in ("cdf", "icdf")
        if getattr(type(distribution), name) is getattr(dist.Distribution, name)
    )


def _family(distribution: Any) -> Family | None:
    """The row of the family; a subclass with a distribution function of its own has none."""
    kinds: tuple[Any, ...] = type(distribution).__mro__
    for kind in kinds:
        if kind in _FAMILIES and type(distribution).cdf is kind.cdf:
            return _FAMILIES[kind]
    return None


def _by_tails(log_tails: Callable[[Any, Array], tuple[Array, Array]], value: Scores) -> Family:
    return Family(lambda distribution, x: score_from_log_tails(*log_tails(distribution, x)), value)


def _symmetric(log_lower_tail: Scores, lower_value: Scores) -> Family:
    """About ``loc``, in units of ``scale``: one formula for what is below serves both sides."""

    def score(distribution: Any, x: Array) -> Array:
        deviation = (x - distribution.loc) / distribution.scale
        # Not by the absolute value, whose slope at zero is none.
        found = score_from_log_survival(
            log_lower_tail(distribution, jnp.where(deviation < 0, deviation, -deviation))
        )
        return jnp.where(deviation < 0, -found, found)

    def value(distribution: Any, z: Array) -> Array:
        lower = lower_value(distribution, jnp.where(z > 0, -z, z))
        return distribution.loc + distribution.scale * jnp.where(z > 0, -lower, lower)

    return Family(score, value)


def _as_exponential(variable: Scores, value: Scores, *, rising: bool = True) -> Family:
    """A monotone function of an exponential variable, which is given at values and as value."""

    def log_tails(distribution: Any, x: Array) -> tuple[Array, Array]:
        t = variable(distribution, x)
        tails = _log(-jnp.expm1(-t)), -t
        return tails if rising else tails[::-1]

    return _by_tails(
        log_tails, lambda distribution, z: value(distribution, _exponential_at(-z if rising else z))
    )


def _exponential_at(z: Array) -> Array:
    """``-log Phi(z)``, with all digits also above zero, where JAX's has none left from 8 on."""
    return jnp.where(z > 0, -jnp.log1p(-_tail(z)), -log_ndtr(z))


def _tail(z: Array) -> Array:
    """``Phi(-|z|)``, positive everywhere: no value is infinite."""
    return jnp.maximum(ndtr(jnp.where(z > 0, -z, z)), jnp.finfo(z.dtype).tiny)


def _solved(standard: Callable[[Any], Any], scale: Callable[[Any], Any]) -> Family:
    """A multiple of a standard distribution whose quantiles are solved for."""
    return Family(
        lambda distribution, x: standard(distribution).normal_score(x / scale(distribution)),
        lambda distribution, z: scale(distribution) * standard(distribution).from_normal_score(z),
    )


def _student_unit(distribution: Any) -> Any:
    return distribution.scale * jnp.sqrt(distribution.df)


def _half_normal_log_tails(distribution: Any, x: Array) -> tuple[Array, Array]:
    standard = x / distribution.scale
    return _log(erf(standard / math.sqrt(2))), log_ndtr(-standard) + _LOG_2


def _half_normal_value(distribution: Any, z: Array) -> Array:
    # By the smaller tail: each form where it has all its digits.
    tail = _tail(z)
    upper = score_from_log_survival(jnp.log(tail) - _LOG_2)
    return distribution.scale * jnp.where(z > 0, upper, math.sqrt(2) * erfinv(tail))


def _uniform_log_tails(distribution: Any, x: Array) -> tuple[Array, Array]:
    width = distribution.high - distribution.low
    return _log((x - distribution.low) / width), _log((distribution.high - x) / width)


def _log(probability: Array) -> Array:
    """Logarithm with a finite slope at and beyond the end of a support."""
    inside = probability > 0
    return jnp.where(inside, jnp.log(jnp.where(inside, probability, 1)), -jnp.inf)


def _uniform_value(distribution: Any, z: Array) -> Array:
    tail = (distribution.high - distribution.low) * _tail(z)
    return jnp.where(z > 0, distribution.high - tail, distribution.low + tail)


def _end_scores(distribution: Any) -> tuple[Array | None, Array | None]:
    """Scores of the ends of a truncated distribution, in the distribution before truncation."""
    ends = (getattr(distribution, "low", None), getattr(distribution, "high", None))
    low, high = (None if end is None else normal_score(distribution.base_dist, end) for end in ends)
    return low, high


def _truncated_value(distribution: Any, z: Array) -> Array:
    # Each tail of the distribution before truncation is a mixture of its tails at the ends: no
    # difference.
    low, high = _end_scores(distribution)
    at_low, at_high = log_ndtr(-z), log_ndtr(z)
    lower = at_high if high is None else at_high + log_ndtr(high)
    upper = at_low if low is None else at_low + log_ndtr(-low)
    if low is not None:
        lower = jnp.logaddexp(lower, at_low + log_ndtr(low))
    if high is not None:
        upper = jnp.logaddexp(upper, at_high + log_ndtr(-high))
    value = from_normal_score(distribution.base_dist, score_from_log_tails(lower, upper))
    return jnp.clip(value, getattr(distribution, "low", None), getattr(distribution, "high", None))


def _truncated_score(distribution: Any, x: Array) -> Array:
    low, high = _end_scores(distribution)
    score = normal_score(distribution.base_dist, x)
    lower = log_ndtr(score) if low is None else _log_mass(low, score)
    upper = log_ndtr(-score) if high is None else _log_mass(score, high)
    # The whole mass, in a form that is right for either part of it.
    whole = jnp.logaddexp(lower, upper)
    return score_from_log_tails(lower - whole, upper - whole)


def _log_mass(low: Array, high: Array) -> Array:
    """``log(Phi(high) - Phi(low))`` by the smaller tails; finite where there is none."""
    above = low + high > 0
    larger = log_ndtr(jnp.where(above, -low, high))
    ratio = larger - log_ndtr(jnp.where(above, -high, low))
    tiny = jnp.finfo(jnp.result_type(ratio)).tiny
    return larger + jnp.log(-jnp.expm1(-jnp.maximum(ratio, tiny)))


def _transformed_score(distribution: Any, x: Array) -> Array:
    sign: Any = 1
    for transform in reversed(distribution.transforms):
        sign = sign * transform.sign
        x = transform.inv(x)
    return sign * normal_score(distribution.base_dist, x)


def _transformed_value(distribution: Any, z: Array) -> Array:
    sign: Any = 1
    for transform in distribution.transforms:
        sign = sign * transform.sign
    value: Array = from_normal_score(distribution.base_dist, sign * z)
    for transform in distribution.transforms:
        value = transform(value)
    return value


_TRUNCATED = (
    dist.truncated.LeftTruncatedDistribution
    | dist.truncated.RightTruncatedDistribution
    | dist.truncated.TwoSidedTruncatedDistribution
)
_TRUNCATION = Family(_truncated_score, _truncated_value)
# NumPyro's own quantile functions round to infinity in the upper tail, its distribution functions
# to one, and those of Gamma, Beta and StudentT need TensorFlow Probability.
_FAMILIES: dict[type, Family] = {
    dist.Normal: Family(
        lambda distribution, x: (x - distribution.loc) / distribution.scale,
        lambda distribution, z: distribution.loc + distribution.scale * z,
    ),
    dist.Uniform: _by_tails(_uniform_log_tails, _uniform_value),
    dist.Laplace: _symmetric(lambda _, t: t - _LOG_2, lambda _, z: log_ndtr(z) + _LOG_2),
    dist.Logistic: _symmetric(lambda _, t: log_sigmoid(t), lambda _, z: log_ndtr(z) - log_ndtr(-z)),
    dist.Cauchy: _symmetric(
        lambda _, t: jnp.log(jnp.arctan2(1.0, -t) / math.pi),
        lambda _, z: -jnp.cos(math.pi * _tail(z)) / jnp.sin(math.pi * _tail(z)),
    ),
    dist.StudentT: Family(
        lambda distribution, x: Student(distribution.df).normal_score(
            (x - distribution.loc) / _student_unit(distribution)
        ),
        lambda distribution, z: (
            distribution.loc
            + _student_unit(distribution) * Student(distribution.df).from_normal_score(z)
        ),
    ),
    dist.Exponential: _as_exponential(
        lambda distribution, x: distribution.rate * x, lambda distribution, t: t / distribution.rate
    ),
    dist.Weibull: _as_exponential(
        lambda distribution, x: (x / distribution.scale) ** distribution.concentration,
        lambda distribution, t: distribution.scale * t ** (1 / distribution.concentration),
    ),
    dist.Gumbel: _as_exponential(
        lambda distribution, x: jnp.exp(-(x - distribution.loc) / distribution.scale),
        lambda distribution, t: distribution.loc - distribution.scale * jnp.log(t),
        rising=False,
    ),
    dist.HalfNormal: _by_tails(_half_normal_log_tails, _half_normal_value),
    dist.Gamma: _solved(
        lambda distribution: Gamma(distribution.concentration),
        lambda distribution: 1 / distribution.rate,
    ),
    dist.Beta: _solved(
        lambda distribution: Beta(distribution.concentration1, distribution.concentration0),
        lambda _: 1,
    ),
    dist.truncated.LeftTruncatedDistribution: _TRUNCATION,
    dist.truncated.RightTruncatedDistribution: _TRUNCATION,
    dist.truncated.TwoSidedTruncatedDistribution: _TRUNCATION,
    dist.TransformedDistribution: Family(_transformed_score, _transformed_value),
    # It has no functions of its own; its base has, and broadcasts.
    dist.ExpandedDistribution: Family(
        lambda distribution, x: normal_score(distribution.base_dist, x),
        lambda distribution, z: from_normal_score(distribution.base_dist, z),
    ),
}
