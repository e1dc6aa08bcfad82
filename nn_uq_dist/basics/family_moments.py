"""Mean and standard deviation of NumPyro's univariate families, by formula or by quadrature."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax import Array, lax

from nn_uq_dist.basics import checks
from nn_uq_dist.basics.normal_scores import (
    MIXTURES,
    TRUNCATED,
    Mixture,
    from_normal_score,
)
from nn_uq_dist.basics.normal_tails import log_normal_density
from nn_uq_dist.basics.quadrature_nodes import gauss_legendre

# Closed forms that are differences of nearly equal moments where the spread is small.
_CANCELS = (dist.Dagum, dist.LogUniform, dist.Weibull)
# Normal scores of the ends of the first panels, and how often these are made anew.
_FARTHEST = 12.5  # no number of NumPy, which in 64-bit mode would be of double precision
_ENDS = np.linspace(-_FARTHEST, _FARTHEST, 33)
_ROUNDS = 4
# Largest share of the last eighth of a score in the variance: the tail beyond has about ten times
# as much.
_LAST_SHARE = 1e-7
# Step to the last quantile, in standard deviations, with which quantiles have settled.
_SETTLED = 1e-2


@jax.jit
def mean_and_standard_deviation(family: Any) -> tuple[Array, Array]:
    r"""Moments of a univariate distribution, shape ``batch_shape``; infinite where there are none.

    Parameters
    ----------
    family
        A distribution of NumPyro. Its own moments are taken where it has them in a closed form that
        keeps its digits; those of a mixture are of its components. Others are integrals over the
        normal score, :math:`\int F^{-1}(\Phi(z))^k \varphi(z)\, dz`.
    """
    if hasattr(family, "standard_deviation"):
        return family.mean, family.standard_deviation
    if isinstance(family, dist.ExpandedDistribution):
        return mean_and_standard_deviation(family.base_dist)
    # Formulas of NumPyro may mix types, which strict promotion refuses.
    with jax.numpy_dtype_promotion("standard"):
        mean, sd = _moments(family)
    is_finite = jnp.isfinite(mean) & jnp.isfinite(sd)
    dtype = checks.float_dtype(*jax.tree.leaves(family))
    mean, sd = (jnp.where(is_finite, moment, jnp.inf).astype(dtype) for moment in (mean, sd))
    return mean, sd


def _moments(family: Any) -> tuple[Array, Array]:
    if isinstance(family, MIXTURES):
        return _of_mixture(Mixture.of(family))
    if _is_log_normal(family):
        normal = family.base_dist
        mean = jnp.exp(normal.loc + normal.scale**2 / 2)
        return mean, mean * jnp.sqrt(jnp.expm1(normal.scale**2))
    if isinstance(family, TRUNCATED):  # NumPyro's formulas have derivatives that are NaN
        return _by_quadrature(family)
    try:
        mean, variance = family.mean, family.variance
    except NotImplementedError:  # NumPyro's word for no closed form
        return _by_quadrature(family)
    if isinstance(family, _CANCELS):
        return _by_quadrature(family, mean, variance)
    return mean, jnp.sqrt(variance)


def _is_log_normal(family: Any) -> bool:
    return (
        isinstance(family, dist.TransformedDistribution)
        and isinstance(family.base_dist, dist.Normal)
        and [*map(type, family.transforms)] == [dist.transforms.ExpTransform]
    )


def _of_mixture(mixture: Mixture) -> tuple[Array, Array]:
    """By the law of total variance: no difference of squares."""

    def of_part(part: Any, _: Array) -> Array:
        return jnp.stack(mean_and_standard_deviation(part))

    means, sds = mixture.of_each(of_part, jnp.zeros(()))
    shares = jnp.exp(mixture.log_shares)
    mean = jnp.sum(shares * means, axis=-1)
    variance = jnp.sum(shares * (sds**2 + (means - mean[..., None]) ** 2), axis=-1)
    return mean, jnp.sqrt(variance)


def _by_quadrature(
    family: Any, own_mean: Any = jnp.inf, own_variance: Any = jnp.inf
) -> tuple[Array, Array]:
    """Moments by quadrature, or its own ones where a tail reaches beyond it."""
    ends = _ends_of_panels(lax.stop_gradient(family))
    scores, lengths = gauss_legendre(ends)
    shares = lengths * jnp.exp(log_normal_density(scores))
    shares = shares / jnp.sum(shares, axis=0)
    values = from_normal_score(family, scores)
    # Means far from zero would be rounded more than deviations are.
    center = lax.stop_gradient(jnp.sum(shares * values, axis=0))
    shift = jnp.sum(shares * (values - center), axis=0)
    variance = jnp.sum(shares * (values - center - shift) ** 2, axis=0)
    sd, eps = jnp.sqrt(variance), float(jnp.finfo(variance.dtype).eps)
    reaches = jnp.isfinite(variance)
    for outermost in (0, -1):
        # Quantiles whose probability rounds to one stop to rise: from there on nothing is counted.
        # That is right where they have settled, as those of bounded distributions.
        moves = values != values[outermost]
        stop = jnp.max(jnp.where(moves, 0, jnp.exp(log_normal_density(scores))), axis=0)
        stops = stop > 2 * jnp.exp(log_normal_density(scores[outermost]))
        step = jnp.min(jnp.where(moves, jnp.abs(values - values[outermost]), jnp.inf), axis=0)
        last = (values[outermost] - center - shift) ** 2 * stop / 8
        least = jnp.where(stops, max(_LAST_SHARE, eps**0.5), _LAST_SHARE)
        reaches &= (last <= least * variance) | (stops & (step <= _SETTLED * sd))
    mean = jnp.where(reaches, center + shift, own_mean)
    return mean, jnp.sqrt(jnp.where(reaches, variance, own_variance))


def _ends_of_panels(family: Any) -> Array:
    """Panels that are as dense as a quantile function is steep, one of them ending at the median.

    Each has about the same sum of its share of the scores, and of the values with the root of their
    density as weight: squares of the values have all of it.
    """
    dtype = checks.float_dtype(*jax.tree.leaves(family))
    start = jnp.asarray(_ENDS, dtype).reshape(-1, *(1 for _ in family.batch_shape))
    start = jnp.broadcast_to(start, (len(_ENDS), *family.batch_shape))
    shares = jnp.linspace(0, 1, len(_ENDS), dtype=dtype)
    place = jnp.vectorize(jnp.interp, excluded={0}, signature="(n),(n)->(n)")

    def denser(_: int, ends: Array) -> Array:
        weight = jnp.exp(-((ends[1:] + ends[:-1]) ** 2) / 16)
        steps = jnp.diff(from_normal_score(family, ends), axis=0) * weight
        steps = jnp.abs(jnp.where(jnp.isfinite(steps), steps, 0))
        whole = jnp.sum(steps, axis=0)
        steps = steps / jnp.where(whole > 0, whole, 1) + jnp.diff(ends, axis=0) / (2 * _FARTHEST)
        below = jnp.cumsum(jnp.concatenate([jnp.zeros_like(ends[:1]), steps]), axis=0)
        moved = place(shares, (below / below[-1:]).T, ends.T).T
        return moved.at[0].set(start[0]).at[-1].set(start[-1])

    ends = lax.fori_loop(0, _ROUNDS, denser, start)
    return jnp.sort(jnp.concatenate([ends, jnp.zeros_like(ends[:1])]), axis=0)
