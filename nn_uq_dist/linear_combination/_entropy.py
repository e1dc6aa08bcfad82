"""Differential entropy by quadrature."""

import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.typing import ArrayLike

from nn_uq_dist.linear_combination._evaluate import log_density
from nn_uq_dist.linear_combination._functions import prepare

_NODES = 256
# Beyond this many standard deviations -p log p is below 1e-17.
_REACH = 9.5


def entropy(weights: ArrayLike, normal_scale: ArrayLike | None = None) -> Array:
    r"""Differential entropy ``-E[log p(X)]`` in nats.

    Parameters
    ----------
    weights : array_like, shape (..., n)
        Weights of the uniforms on [-1, 1].
    normal_scale : array_like, shape (...), optional
        Standard deviation of the normal part.

    Returns
    -------
    Array, shape (...)

    Raises
    ------
    ValueError, TypeError
        As in `logpdf`.

    Notes
    -----
    Gauss-Legendre quadrature with 256 nodes of ``-2 p log p`` on the upper half of the support, or
    over 9.5 standard deviations if that is less. The error is below 1e-10 for a dozen comparable
    weights and below 1e-4 where the density has kinks (two or three dominating weights).

    Examples
    --------
    >>> import math
    >>> from nn_uq_dist import linear_combination
    >>> value = linear_combination.entropy([1.0])  # log 2
    >>> abs(float(value) - math.log(2.0)) < 1e-6
    True
    """
    arguments = prepare("x", 0.0, weights, normal_scale)
    weights = jnp.asarray(arguments.weights)
    scale = None if arguments.normal_scale is None else jnp.asarray(arguments.normal_scale)
    # In units of the standard deviation: otherwise errors in the mass of the quadrature would be
    # multiplied by the logarithm of the unit.
    variance = jnp.sum(weights * weights, axis=-1) / 3.0
    if scale is not None:
        variance = variance + scale * scale
    unit = lax.stop_gradient(jnp.sqrt(variance))
    weights = weights / unit[..., None]
    upper = jnp.minimum(jnp.sum(jnp.abs(weights), axis=-1), _REACH)
    if scale is not None:
        scale = scale / unit
        upper = jnp.where(scale > 0, _REACH, upper)
    legendre = np.polynomial.legendre.leggauss(_NODES)
    nodes = jnp.asarray(0.5 * (legendre[0] + 1.0), weights.dtype)
    rule = jnp.asarray(legendre[1], weights.dtype)
    logs = log_density(
        upper[..., None] * nodes,
        weights[..., None, :],
        None if scale is None else scale[..., None],
    )
    positive = logs > -jnp.inf
    safe = jnp.where(positive, logs, 0.0)
    terms = jnp.where(positive, -jnp.exp(safe) * safe, 0.0)
    terms = jnp.where(jnp.isnan(logs), jnp.nan, terms)
    return upper * jnp.sum(rule * terms, axis=-1) + jnp.log(unit)
