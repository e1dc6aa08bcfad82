"""Normal scores of univariate NumPyro distributions, and values at scores: a table of families."""

import dataclasses
import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jax import Array
from jax.nn import log_sigmoid, softplus
from jax.scipy.special import erf, erfinv, log_ndtr, logsumexp, ndtr, ndtri
from jax.typing import ArrayLike

from nn_uq_dist.basics._solved_quantiles import Beta as Beta
from nn_uq_dist.basics._solved_quantiles import (
    ByDistributionFunction,
    Gamma,
    SolvedQuantiles,
    Student,
)
from nn_uq_dist.basics.normal_tails import (
    quantile_at_score,
    score_from_log_survival,
    score_from_log_tails,
)
from nn_uq_dist.basics.pytree import register_frozen

_LOG_2 = math.log(2)
# Scores beyond have no probability in either type, and logarithms of it with a finite slope.
_FARTHEST = 1e4
# In place of the power zero of a distribution function, a logarithm.
_NEARLY_LOGARITHMIC = 1e-30

type Function = Callable[[Array], Array]


class Scores(NamedTuple):
    """Normal scores of the values of a distribution, and values at scores."""

    normal_score: Function
    from_normal_score: Function


def normal_score(distribution: Any, value: ArrayLike) -> Array:
    """``Phi^{-1}(F(value))``, right in both tails for the families of the table below.

    Others go through ``cdf``, and do not exceed about 8 (float64) or 5 (float32), where it rounds
    to one. A distribution with a method of this name has its own way.
    """
    if hasattr(distribution, "normal_score"):
        return distribution.normal_score(value)
    value = jnp.asarray(value, jnp.result_type(float, value))
    scores = _scores_of(distribution)
    if scores is not None:
        return scores.normal_score(value)
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
    scores = _scores_of(distribution)
    if scores is not None:
        return scores.from_normal_score(z)
    if type(distribution).icdf is dist.Distribution.icdf:
        return ByDistributionFunction(distribution).from_normal_score(z)
    info = jnp.finfo(z.dtype)
    # Two roundings below one: a distribution that asks another for the quantile at (1 + q)/2 would
    # get one, where it is infinite, if `q` were the number next to one.
    return jnp.asarray(distribution.icdf(jnp.clip(ndtr(z), info.tiny, 1.0 - info.eps)))


def normal_score_and_log_prob(distribution: Any, value: ArrayLike) -> tuple[Array, Array]:
    """`normal_score` and the log density, which some distributions have in one pass."""
    if hasattr(distribution, "normal_score_and_log_prob"):
        return distribution.normal_score_and_log_prob(value)
    return normal_score(distribution, value), distribution.log_prob(value)


def missing_functions(distribution: dist.Distribution) -> tuple[str, ...]:
    """Which functions would be asked for and are not there.

    Without ``icdf``, quantiles are solved for by ``cdf`` within the support.
    """
    if hasattr(distribution, "from_normal_score"):
        return ()
    if isinstance(distribution, MIXTURES):
        # NumPyro takes the support of the first component for that of all.
        names = [] if _has_support(distribution) else ["support"]
        for part in Mixture.of(distribution).parts:
            names += missing_functions(part)
        return tuple(dict.fromkeys(names))
    if isinstance(
        distribution, dist.ExpandedDistribution | dist.TransformedDistribution | TRUNCATED
    ):
        transforms = getattr(distribution, "transforms", ())
        folds = any(isinstance(part, dist.transforms.AbsTransform) for part in transforms)
        return ("cdf", "icdf") if folds else missing_functions(distribution.base_dist)
    if _scores_of(distribution) is not None:
        return ()
    missing = tuple(
        name
        for name in ("cdf", "icdf")
        if getattr(type(distribution), name) is getattr(dist.Distribution, name)
    )
    return () if missing == ("icdf",) and distribution.support is not None else missing


def _has_support(mixture: Any) -> bool:
    is_fixed = isinstance(mixture.support, dist.constraints.ParameterFreeConstraint)
    return is_fixed or getattr(mixture, "_support", None) is not None


def _scores_of(distribution: Any) -> Any:
    """Scores of the family; None for a subclass with a distribution function of its own."""
    kinds: tuple[Any, ...] = type(distribution).__mro__
    for kind in kinds:
        if kind in _FAMILIES and type(distribution).cdf is kind.cdf:
            return _FAMILIES[kind](distribution)
    return None


@register_frozen
@dataclasses.dataclass(frozen=True, eq=False)
class Mixture(SolvedQuantiles):
    """A mixture of univariate distributions, by the normal scores of its components."""

    log_shares: Any  # one for each component along the last axis
    components: Any  # one distribution with such an axis, or a tuple of them

    @classmethod
    def of(cls, mixture: Any) -> "Mixture":
        """The mixture of a NumPyro distribution."""
        several = getattr(mixture, "component_distributions", None)
        components = mixture.component_distribution if several is None else tuple(several)
        return cls(jax.nn.log_softmax(mixture.mixing_distribution.logits), components)

    @property
    def parts(self) -> tuple[Any, ...]:
        """The components, one with several entries or several distributions."""
        return self.components if isinstance(self.components, tuple) else (self.components,)

    def normal_score(self, x: Array) -> Array:
        """Normal score, by the mixture of both tails."""
        scores = jnp.clip(self.of_each(normal_score, x), -_FARTHEST, _FARTHEST)
        tails = (logsumexp(self.log_shares + log_ndtr(s), axis=-1) for s in (scores, -scores))
        return score_from_log_tails(*tails)

    def solved(self, z: Array) -> Array:
        """Value with this normal score, between those of the components."""
        values = self.of_each(from_normal_score, z)
        values = values + jnp.zeros_like(self.log_shares)
        low, high = jnp.min(values, axis=-1), jnp.max(values, axis=-1)
        z = jnp.broadcast_to(z, low.shape).astype(low.dtype)
        # Far out in a tail, one component has it.
        start = jnp.where(z < 0, low, high)
        return quantile_at_score(
            z, start, low, high, lambda x: (self.normal_score(x), self.log_prob(x))
        )

    def log_prob(self, x: Array) -> Array:
        """Log density, of components within their supports."""

        def log_density(part: Any, x: Array) -> Array:
            return jnp.where(part.support(x), part.log_prob(x), -jnp.inf)

        return logsumexp(self.log_shares + self.of_each(log_density, x), axis=-1)

    def of_each(self, function: Callable[[Any, Array], Array], x: Array) -> Array:
        """Values of a function of each component and ``x``, along a new last axis."""
        if not isinstance(self.components, tuple):
            return function(self.components, x[..., None])
        return jnp.stack(jnp.broadcast_arrays(*(function(p, x) for p in self.parts)), axis=-1)


def _placed(standard: Any, loc: Any, scale: Any) -> Scores:
    """Scores of a standard variable times a scale, plus a location."""
    return Scores(
        lambda x: standard.normal_score((x - loc) / scale),
        lambda z: loc + scale * standard.from_normal_score(z),
    )


def _symmetric(log_lower_tail: Function, lower_value: Function) -> Scores:
    """About zero: one formula for what is below serves both sides."""

    def score(x: Array) -> Array:
        # Not by the absolute value, whose slope at zero is none.
        upper = score_from_log_survival(log_lower_tail(jnp.where(x < 0, x, -x)))
        return jnp.where(x < 0, -upper, upper)

    def value(z: Array) -> Array:
        lower = lower_value(jnp.where(z > 0, -z, z))
        return jnp.where(z > 0, -lower, lower)

    return Scores(score, value)


def _as_exponential(variable: Function, value: Function, *, rising: bool = True) -> Scores:
    """Scores of ``value(t)``, monotone, of an exponential ``t``; `variable` is its inverse."""

    def score(x: Array) -> Array:
        t = variable(x)
        tails = _log(-jnp.expm1(-t)), -t
        return score_from_log_tails(*(tails if rising else tails[::-1]))

    return Scores(score, lambda z: value(_exponential_at(-z if rising else z)))


def _exponential_at(z: Array) -> Array:
    """``-log Phi(z)``, with all digits also above zero, where JAX's has none left from 8 on."""
    return jnp.where(z > 0, -jnp.log1p(-_tail(z)), -log_ndtr(z))


def _tail(z: Array) -> Array:
    """``Phi(-|z|)``, positive everywhere: no value is infinite."""
    return jnp.maximum(ndtr(jnp.where(z > 0, -z, z)), jnp.finfo(z.dtype).tiny)


def _half_normal_score(x: Array) -> Array:
    return score_from_log_tails(_log(erf(x / math.sqrt(2))), log_ndtr(-x) + _LOG_2)


def _half_normal_value(z: Array) -> Array:
    # By the smaller tail: each form where it has all its digits.
    tail = _tail(z)
    upper = score_from_log_survival(jnp.log(tail) - _LOG_2)
    return jnp.where(z > 0, upper, math.sqrt(2) * erfinv(tail))


def _uniform_score(distribution: Any, x: Array) -> Array:
    below, above = x - distribution.low, distribution.high - x
    width = below + above  # of the bounds alone it overflows if they are bytes
    return score_from_log_tails(_log(below / width), _log(above / width))


def _log(probability: Array) -> Array:
    """Logarithm with a finite slope at and beyond the end of a support."""
    inside = probability > 0
    return jnp.where(inside, jnp.log(jnp.where(inside, probability, 1)), -jnp.inf)


def _uniform_value(distribution: Any, z: Array) -> Array:
    share = _tail(z)
    tail = distribution.high * share - distribution.low * share
    return jnp.where(z > 0, distribution.high - tail, distribution.low + tail)


def _power_law_score(distribution: Any, x: Array) -> Array:
    power, low, high = distribution.alpha + 1, distribution.low, distribution.high
    power = jnp.where(power == 0, _NEARLY_LOGARITHMIC, power)

    def log_share(from_end: Array, whole: Array) -> Array:
        """``log(expm1(a) / expm1(b))`` of two numbers of one sign."""
        rise = jnp.maximum(from_end, 0) - jnp.maximum(whole, 0)
        rests = (-jnp.expm1(-jnp.abs(part)) for part in (from_end, whole))
        return rise + _log(next(rests)) - _log(next(rests))

    whole = power * jnp.log(high / low)
    lower = log_share(power * jnp.log(x / low), whole)
    return score_from_log_tails(lower, log_share(power * jnp.log(x / high), -whole))


def _power_law_value(distribution: Any, z: Array) -> Array:
    # From the end with more of the probability: a power of the value is one plus a positive share.
    power, low, high = distribution.alpha + 1, distribution.low, distribution.high
    power = jnp.where(power == 0, _NEARLY_LOGARITHMIC, power)
    whole = jnp.abs(power) * jnp.log(high / low)
    score = jnp.where(power < 0, -z, z)
    # The first form has few digits of a small share, and the second overflows.
    of_large = softplus(whole + jnp.log(-jnp.expm1(-whole)) + log_ndtr(score))
    of_small = jnp.log1p(ndtr(score) * jnp.expm1(jnp.minimum(whole, 1)))
    rise = jnp.where(whole < 1, of_small, of_large)
    return jnp.where(power < 0, high, low) * jnp.exp(rise / power)


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


TRUNCATED = (
    dist.LeftTruncatedDistribution
    | dist.RightTruncatedDistribution
    | dist.TwoSidedTruncatedDistribution
)


MIXTURES = dist.MixtureSameFamily | dist.MixtureGeneral


def _by_functions(
    score: Callable[[Any, Array], Array], value: Callable[[Any, Array], Array]
) -> Callable[[Any], Scores]:
    """A family whose two functions take the distribution first."""
    return lambda distribution: Scores(partial(score, distribution), partial(value, distribution))


_NORMAL = Scores(lambda x: x, lambda z: z)
_LAPLACE = _symmetric(lambda t: t - _LOG_2, lambda z: log_ndtr(z) + _LOG_2)
_LOGISTIC = _symmetric(log_sigmoid, lambda z: log_ndtr(z) - log_ndtr(-z))
_CAUCHY = _symmetric(
    lambda t: jnp.log(jnp.arctan2(1.0, -t) / math.pi),
    lambda z: -jnp.cos(math.pi * _tail(z)) / jnp.sin(math.pi * _tail(z)),
)
_GUMBEL = _as_exponential(lambda x: jnp.exp(-x), lambda t: -jnp.log(t), rising=False)
_HALF_NORMAL = Scores(_half_normal_score, _half_normal_value)
_TRUNCATION = _by_functions(_truncated_score, _truncated_value)
# NumPyro's own quantile functions round to infinity in the upper tail, its distribution functions
# to one, and those of Gamma, Beta and StudentT need TensorFlow Probability.
_FAMILIES: dict[type, Callable[[Any], Any]] = {
    dist.Normal: lambda one: _placed(_NORMAL, one.loc, one.scale),
    dist.Uniform: _by_functions(_uniform_score, _uniform_value),
    dist.Laplace: lambda one: _placed(_LAPLACE, one.loc, one.scale),
    dist.Logistic: lambda one: _placed(_LOGISTIC, one.loc, one.scale),
    dist.Cauchy: lambda one: _placed(_CAUCHY, one.loc, one.scale),
    dist.StudentT: lambda one: _placed(Student(one.df), one.loc, one.scale * jnp.sqrt(one.df)),
    dist.Exponential: lambda one: _as_exponential(lambda x: one.rate * x, lambda t: t / one.rate),
    dist.Weibull: lambda one: _as_exponential(
        lambda x: (x / one.scale) ** one.concentration,
        lambda t: one.scale * t ** (1 / one.concentration),
    ),
    dist.LowerTruncatedPowerLaw: lambda one: _as_exponential(
        lambda x: (-1 - one.alpha) * jnp.log(x / one.low),
        lambda t: one.low * jnp.exp(t / (-1 - one.alpha)),
    ),
    dist.Dagum: lambda one: _as_exponential(
        lambda x: one.concentration * jnp.log1p((x / one.scale) ** -one.sharpness),
        lambda t: one.scale * jnp.expm1(t / one.concentration) ** (-1 / one.sharpness),
        rising=False,
    ),
    dist.DoublyTruncatedPowerLaw: _by_functions(_power_law_score, _power_law_value),
    dist.Gumbel: lambda one: _placed(_GUMBEL, one.loc, one.scale),
    dist.HalfNormal: lambda one: _placed(_HALF_NORMAL, 0, one.scale),
    dist.Gamma: lambda one: _placed(Gamma(one.concentration), 0, 1 / one.rate),
    dist.Beta: lambda one: Beta(one.concentration1, one.concentration0),
    dist.LeftTruncatedDistribution: _TRUNCATION,
    dist.RightTruncatedDistribution: _TRUNCATION,
    dist.TwoSidedTruncatedDistribution: _TRUNCATION,
    dist.TransformedDistribution: _by_functions(_transformed_score, _transformed_value),
    dist.MixtureSameFamily: Mixture.of,
    dist.MixtureGeneral: Mixture.of,
    # It has no functions of its own; its base has, and broadcasts.
    dist.ExpandedDistribution: lambda one: Scores(
        partial(normal_score, one.base_dist), partial(from_normal_score, one.base_dist)
    ),
}
