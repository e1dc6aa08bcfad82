"""Means and standard deviations of univariate distributions, in closed form or by quadrature."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax import Array

from nn_uq_dist.basics import checks
from nn_uq_dist.basics.normal_scores import from_normal_score

# Closed forms that are differences of nearly equal moments where the spread is small: that of a
# log-normal distribution of one percent has three digits in float32.
_CANCELS = (
    dist.Dagum,
    dist.LogNormal,
    dist.LogUniform,
    dist.Weibull,
    dist.LeftTruncatedDistribution,
    dist.RightTruncatedDistribution,
    dist.TwoSidedTruncatedDistribution,
)
# Normal scores of the quadrature. The trapezoidal rule converges exponentially for functions such
# as these, and only as the fourth power of the distance where a density has a kink.
_SCORES = np.linspace(-12.5, 12.5, 201)
_SHARES = np.exp(-(_SCORES**2) / 2) * (_SCORES[1] - _SCORES[0]) / math.sqrt(2 * math.pi)
# Largest share of the last score in the variance: the tail beyond has about ten times as much.
_LAST_SHARE = 1e-7


@jax.jit
def mean_and_standard_deviation(family: Any) -> tuple[Array, Array]:
    r"""Moments of a univariate distribution, shape ``batch_shape``; infinite where there are none.

    Parameters
    ----------
    family
        A distribution of NumPyro. Its own moments are taken where it has them in closed form.
        Others are integrals over the normal score,
        :math:`\int F^{-1}(\Phi(z))^k \varphi(z)\, dz`.
    """
    if hasattr(family, "standard_deviation"):
        return family.mean, family.standard_deviation
    try:
        # Formulas of NumPyro may mix types, which strict promotion refuses.
        with jax.numpy_dtype_promotion("standard"):
            own = family.mean, jnp.sqrt(family.variance)
    except NotImplementedError:  # NumPyro's word for no closed form
        own = None
    if own is None or isinstance(family, _CANCELS):
        own = _by_quadrature(family, own)
    is_finite = jnp.isfinite(own[0]) & jnp.isfinite(own[1])
    mean, sd = (jnp.where(is_finite, part, jnp.inf) for part in own)
    return mean, sd


def _by_quadrature(family: Any, otherwise: tuple[Array, Array] | None) -> tuple[Array, Array]:
    """Moments by quadrature, or the other ones where a tail reaches beyond it."""
    dtype = checks.float_dtype(*jax.tree.leaves(family))
    axes = (-1, *(1 for _ in family.batch_shape))
    scores, shares = (part.astype(dtype).reshape(axes) for part in (_SCORES, _SHARES))
    values = from_normal_score(family, scores)
    mean = jnp.sum(shares * values, axis=0)
    squares = shares * (values - mean) ** 2
    variance = jnp.sum(squares, axis=0)
    last = jnp.maximum(squares[0], squares[-1])
    reaches = jnp.isfinite(variance) & (last <= _LAST_SHARE * variance)
    others = (jnp.inf, jnp.inf) if otherwise is None else otherwise
    return jnp.where(reaches, mean, others[0]), jnp.where(reaches, jnp.sqrt(variance), others[1])
