"""Normal scores of any univariate NumPyro distribution, by the best way that it offers."""

import math
from functools import singledispatch

import jax.numpy as jnp
import numpyro.distributions as dist
from jax import Array
from jax.nn import log_sigmoid
from jax.scipy.special import log_ndtr, ndtri
from jax.scipy.stats import norm

from nn_uq_dist.laws._output_law import OutputLaw
from nn_uq_dist.linear_combination._normal_score import score_from_log_survival


@singledispatch
def normal_score(marginal: dist.Distribution, value: Array) -> Array:
    """``Phi^{-1}(F(value))``.

    This generic way goes through ``cdf``. In the upper tail scores do not exceed about 8 (float64)
    or 5 (float32), where a probability rounds to one. Distributions that know both of their
    tails are registered below and have no such limit.
    """
    probability = marginal.cdf(value)
    info = jnp.finfo(jnp.result_type(probability))
    return ndtri(jnp.clip(probability, info.tiny, 1.0 - info.epsneg))


@singledispatch
def from_normal_score(marginal: dist.Distribution, z: Array) -> Array:
    """``F^{-1}(Phi(z))``, the inverse of `normal_score`, with the same limit."""
    info = jnp.finfo(jnp.result_type(z))
    # Two roundings below one: a folded law asks its base for the quantile at (1 + q)/2, which
    # would round to one, where the quantile is infinite, if `q` were the number next to one.
    return marginal.icdf(jnp.clip(norm.cdf(z), info.tiny, 1.0 - info.eps))


@singledispatch
def normal_score_and_log_prob(marginal: dist.Distribution, value: Array) -> tuple[Array, Array]:
    """`normal_score` and the log density, which some laws have in one pass."""
    return normal_score(marginal, value), marginal.log_prob(value)


@normal_score.register
def _(marginal: OutputLaw, value: Array) -> Array:
    return marginal.normal_score(value)


@normal_score_and_log_prob.register
def _(marginal: OutputLaw, value: Array) -> tuple[Array, Array]:
    return marginal.normal_score_and_log_prob(value)


@from_normal_score.register
def _(marginal: OutputLaw, z: Array) -> Array:
    return marginal.from_normal_score(z)


@normal_score.register
def _(marginal: dist.Normal, value: Array) -> Array:
    return (value - marginal.loc) / marginal.scale


@from_normal_score.register
def _(marginal: dist.Normal, z: Array) -> Array:
    return marginal.loc + marginal.scale * z


@normal_score.register
def _(marginal: dist.LogNormal, value: Array) -> Array:
    return (jnp.log(value) - marginal.loc) / marginal.scale


@from_normal_score.register
def _(marginal: dist.LogNormal, z: Array) -> Array:
    return jnp.exp(marginal.loc + marginal.scale * z)


@normal_score.register
def _(marginal: dist.Uniform, value: Array) -> Array:
    width = marginal.high - marginal.low
    below, above = (value - marginal.low) / width, (marginal.high - value) / width
    # Not `minimum`, whose derivative is zero in the middle. So are those of `abs` below.
    tail = jnp.where(below < above, below, above)
    inside = tail > 0
    log_tail = jnp.where(inside, jnp.log(jnp.where(inside, tail, 0.5)), -jnp.inf)
    score = score_from_log_survival(log_tail)
    return jnp.where(below < above, -score, score)


@from_normal_score.register
def _(marginal: dist.Uniform, z: Array) -> Array:
    tail = (marginal.high - marginal.low) * jnp.exp(_log_tail(z))
    return jnp.where(z < 0, marginal.low + tail, marginal.high - tail)


# Symmetric about `loc`: one formula for the smaller tail serves both sides. (NumPyro's `cdf` of a
# Laplace and of a Cauchy law rounds to 0 where the tail is 1e-8 in float32.)
def _magnitude(x: Array) -> Array:
    return jnp.where(x < 0, -x, x)


def _log_tail(z: Array) -> Array:
    """``log Phi(-|z|)``."""
    return log_ndtr(-_magnitude(z))


def _two_sided(deviation: Array, log_tail: Array) -> Array:
    score = score_from_log_survival(log_tail)
    return jnp.where(deviation < 0, -score, score)


@normal_score.register
def _(marginal: dist.Laplace, value: Array) -> Array:
    deviation = (value - marginal.loc) / marginal.scale
    return _two_sided(deviation, -_magnitude(deviation) - math.log(2))


@from_normal_score.register
def _(marginal: dist.Laplace, z: Array) -> Array:
    magnitude = -(_log_tail(z) + math.log(2))
    return marginal.loc + marginal.scale * jnp.where(z < 0, -magnitude, magnitude)


@normal_score.register
def _(marginal: dist.Logistic, value: Array) -> Array:
    deviation = (value - marginal.loc) / marginal.scale
    return _two_sided(deviation, log_sigmoid(-_magnitude(deviation)))


@from_normal_score.register
def _(marginal: dist.Logistic, z: Array) -> Array:
    # The logit of the distribution function.
    return marginal.loc + marginal.scale * (log_ndtr(z) - log_ndtr(-z))


@normal_score.register
def _(marginal: dist.Cauchy, value: Array) -> Array:
    deviation = (value - marginal.loc) / marginal.scale
    tail = jnp.arctan2(1.0, _magnitude(deviation)) / math.pi
    return _two_sided(deviation, jnp.log(tail))


@from_normal_score.register
def _(marginal: dist.Cauchy, z: Array) -> Array:
    angle = math.pi * jnp.exp(_log_tail(z))
    magnitude = jnp.cos(angle) / jnp.sin(angle)
    return marginal.loc + marginal.scale * jnp.where(z < 0, -magnitude, magnitude)


@normal_score.register
def _(marginal: dist.StudentT, value: Array) -> Array:
    deviation = value - marginal.loc
    probability = marginal.cdf(marginal.loc - _magnitude(deviation))
    score = ndtri(jnp.maximum(probability, jnp.finfo(probability.dtype).tiny))
    return jnp.where(deviation < 0, score, -score)


@from_normal_score.register
def _(marginal: dist.StudentT, z: Array) -> Array:
    probability = jnp.maximum(jnp.exp(_log_tail(z)), jnp.finfo(jnp.result_type(z)).tiny)
    lower = marginal.icdf(probability)
    return jnp.where(z < 0, lower, 2 * marginal.loc - lower)


# An expanded distribution has neither `cdf` nor `icdf`; its base has, and broadcasts.
@normal_score.register
def _(marginal: dist.ExpandedDistribution, value: Array) -> Array:
    return normal_score(marginal.base_dist, value)


@from_normal_score.register
def _(marginal: dist.ExpandedDistribution, z: Array) -> Array:
    return from_normal_score(marginal.base_dist, z)
