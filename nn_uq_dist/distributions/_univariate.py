"""Normal scores of any univariate NumPyro distribution, by the best way that it offers."""

from functools import singledispatch

import jax.numpy as jnp
import numpyro.distributions as dist
from jax import Array
from jax.scipy.special import log_ndtr, ndtri
from jax.scipy.stats import norm

from nn_uq_dist.distributions._marginal import LinearizedMarginal
from nn_uq_dist.linear_combination._normal_score import score_from_log_survival


@singledispatch
def normal_score(marginal: dist.Distribution, value: Array) -> Array:
    """``Phi^{-1}(F(value))``.

    This generic way goes through ``cdf``. In the upper tail scores are held at about 8 (float64) or
    5 (float32), where a probability cannot be told from one. Distributions that know both of their
    tails are registered below and have no such limit.
    """
    probability = marginal.cdf(value)
    info = jnp.finfo(jnp.result_type(probability))
    return ndtri(jnp.clip(probability, info.tiny, 1.0 - info.epsneg))


@singledispatch
def from_normal_score(marginal: dist.Distribution, z: Array) -> Array:
    """``F^{-1}(Phi(z))``, the inverse of `normal_score`, with the same limit."""
    info = jnp.finfo(jnp.result_type(z))
    return marginal.icdf(jnp.clip(norm.cdf(z), info.tiny, 1.0 - info.epsneg))


@normal_score.register
def _(marginal: LinearizedMarginal, value: Array) -> Array:
    return marginal.normal_score(value)


@from_normal_score.register
def _(marginal: LinearizedMarginal, z: Array) -> Array:
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
    tail = jnp.minimum(below, above)
    inside = tail > 0
    log_tail = jnp.where(inside, jnp.log(jnp.where(inside, tail, 0.5)), -jnp.inf)
    score = score_from_log_survival(log_tail)
    return jnp.where(below < above, -score, score)


@from_normal_score.register
def _(marginal: dist.Uniform, z: Array) -> Array:
    tail = (marginal.high - marginal.low) * jnp.exp(log_ndtr(-jnp.abs(z)))
    return jnp.where(z < 0, marginal.low + tail, marginal.high - tail)


# Symmetric about `loc`: the upper tail is the lower one mirrored, which the type resolves.
@normal_score.register(dist.Cauchy)
@normal_score.register(dist.Laplace)
@normal_score.register(dist.Logistic)
@normal_score.register(dist.StudentT)
def _(marginal: dist.Distribution, value: Array) -> Array:
    deviation = value - marginal.loc
    probability = marginal.cdf(marginal.loc - jnp.abs(deviation))
    score = ndtri(jnp.maximum(probability, jnp.finfo(probability.dtype).tiny))
    return jnp.where(deviation < 0, score, -score)


@from_normal_score.register(dist.Cauchy)
@from_normal_score.register(dist.Laplace)
@from_normal_score.register(dist.Logistic)
@from_normal_score.register(dist.StudentT)
def _(marginal: dist.Distribution, z: Array) -> Array:
    probability = jnp.maximum(norm.cdf(-jnp.abs(z)), jnp.finfo(jnp.result_type(z)).tiny)
    lower = marginal.icdf(probability)
    return jnp.where(z < 0, lower, 2 * marginal.loc - lower)


# An expanded distribution has neither `cdf` nor `icdf`; its base has, and broadcasts.
@normal_score.register
def _(marginal: dist.ExpandedDistribution, value: Array) -> Array:
    return normal_score(marginal.base_dist, value)


@from_normal_score.register
def _(marginal: dist.ExpandedDistribution, z: Array) -> Array:
    return from_normal_score(marginal.base_dist, z)
