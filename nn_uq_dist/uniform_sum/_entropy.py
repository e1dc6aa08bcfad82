"""Differential entropy by quadrature over the values of the distribution."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.typing import ArrayLike

from nn_uq_dist.basics.quadrature_nodes import gauss_legendre
from nn_uq_dist.basics.row_algebra import binary_unit
from nn_uq_dist.uniform_sum._functions import logpdf, prepare
from nn_uq_dist.uniform_sum.quantiles import corners, saddlepoint_quantile

# Normal scores at which panels end: beyond the last one there is less than 1e-20.
_SCORES = 0.75 * np.arange(14)
# Up to this many weights times nodes, going point by point is as fast as the common lines of
# the nodes, and compiles in less than two thirds of the time.
_FEW_FACTORS = 2**19


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
    Quadrature of ``-2 p log p`` over the upper half of the distribution, with panels between
    quantiles, that are dense where a small weight or a small normal part rounds off a corner of the
    density. The error is below 1e-9 in float64 and below 1e-5 in float32.

    Examples
    --------
    >>> import math
    >>> from nn_uq_dist import uniform_sum
    >>> value = uniform_sum.entropy([1.0])  # log 2
    >>> abs(float(value) - math.log(2.0)) < 1e-6
    True
    """
    a = prepare("x", 0.0, weights, normal_scale)
    magnitudes, scale, unit, values, lengths = _in_units(a.weights, a.normal_scale)
    if values.size * magnitudes.shape[-1] <= _FEW_FACTORS:  # else the nodes share a distribution
        magnitudes = jnp.broadcast_to(magnitudes, (*values.shape, magnitudes.shape[-1]))
    logs = logpdf(values, magnitudes, scale)
    # The last end may lie beyond that of the support.
    safe = jnp.where(logs == -jnp.inf, 0.0, logs)
    share = lengths * jnp.exp(logs)
    mass = jnp.sum(share, axis=0)
    # In units of the mass found, which cancels the errors that all densities have in common.
    return jnp.log(2.0 * mass) - jnp.sum(share * safe, axis=0) / mass + jnp.log(unit)


@jax.jit
def _in_units(weights: Array, normal_scale: Array | None) -> tuple[Any, ...]:
    """Weights and scale in a unit of their size, that unit, and nodes and lengths in it.

    Otherwise errors in the mass of the quadrature would be multiplied by the logarithm of the unit.
    Nodes move with the distribution: at fixed values the derivative would have a boundary layer at
    the edge of the support.
    """
    magnitudes = jnp.abs(weights)
    scale = jnp.zeros((), weights.dtype) if normal_scale is None else normal_scale
    unit = binary_unit(jnp.maximum(jnp.max(magnitudes, axis=-1), scale))
    magnitudes, scale = magnitudes / unit[..., None], scale / unit
    size = jnp.sum(magnitudes, axis=-1) + scale
    growth = size / lax.stop_gradient(size)
    nodes, lengths = gauss_legendre(_ends(*lax.stop_gradient((magnitudes, scale, size))))
    normal = None if normal_scale is None else scale
    return magnitudes, normal, unit, growth * nodes, growth * lengths


def _ends(weights: Array, scale: Array, size: Array) -> Array:
    """Ends of the panels: quantiles, corners of the density, and how far they are rounded off."""
    weights = jnp.broadcast_to(weights, (*size.shape, weights.shape[-1]))
    scores = jnp.asarray(_SCORES, weights.dtype).reshape(-1, *(1,) * size.ndim)
    # A normal part bounds the tilts that lead to the edge of a bounded support.
    least = jnp.maximum(scale, jnp.finfo(weights.dtype).eps * size)
    ends = saddlepoint_quantile(
        jnp.broadcast_to(scores, (len(scores), *size.shape)), weights, least
    )
    ordered = -jnp.sort(-weights, axis=-1)
    rest = ordered[..., 3:]
    spread = jnp.sqrt(jnp.sum(rest**2, axis=-1) / 3 + scale**2)
    # Smooth distributions have no more corner at 7 standard deviations of the other weights and
    # the normal part; a fourth weight has its own there.
    around = (jnp.zeros_like(spread), jnp.max(rest, axis=-1, initial=0.0), 3 * spread, 7 * spread)
    of_density = corners(ordered)
    moved = [of_density + sign * offset for offset in around for sign in (-1, 1)]
    return jnp.sort(jnp.clip(jnp.concatenate([0 * ends[:1], ends, *moved]), 0, ends[-1]), axis=0)
