r"""Numerics of :math:`\beta \odot U + L N`: draws, moments, and columns of linear maps.

The parts are half-widths :math:`\beta`, shape ``(..., N_x)``, and for the Gaussian one either
scales, ``(..., N_x)``, which stand for a diagonal :math:`L` and never become a matrix, or a factor
:math:`L`, ``(..., N_x, N_x)``. Each may be ``None``; one of the last two is.
"""

import math
from functools import partial

import jax
import jax.numpy as jnp
from jax import Array
from jax.scipy.special import ndtri

from nn_uq_dist.basics._row_algebra import gram, matmul, matvec, namespace
from nn_uq_dist.inputs._image_algebra import UNIFORM_VARIANCE

type Part = Array | None


def variances(loc: Array, half_width: Part, scale: Part, factor: Part) -> Array:
    """Variances of the inputs, in shape as their means."""
    xp = namespace(loc)
    variance: Array = xp.zeros_like(loc)
    if half_width is not None:
        variance = variance + UNIFORM_VARIANCE * half_width**2
    if scale is not None:
        variance = variance + scale**2
    if factor is not None:
        variance = variance + xp.sum(factor**2, axis=-1)
    return variance


def covariance_matrix(loc: Array, half_width: Part, scale: Part, factor: Part) -> Array:
    """Covariance of the inputs, shape ``(..., N_x, N_x)``."""
    independent = variances(loc, half_width, scale, None)[..., None, :]
    identity = namespace(loc).eye(loc.shape[-1], dtype=loc.dtype)
    covariance: Array = identity * independent
    return covariance if factor is None else covariance + gram(factor)


def mean_and_factor(draws: Array) -> tuple[Array, Array]:
    """Mean of draws ``(n, ..., N_x)``, and the triangular factor of their covariance."""
    mean = jnp.mean(draws, axis=0)
    rows = jnp.moveaxis(draws - mean, 0, -2) / math.sqrt(draws.shape[0] - 1)
    # Not by the covariance: its Cholesky factor fails where it is singular, or nearly so.
    upper = jnp.linalg.qr(rows, mode="r")
    missing = draws.shape[-1] - upper.shape[-2]
    upper = jnp.pad(upper, [(0, 0)] * (upper.ndim - 2) + [(0, missing), (0, 0)])
    diagonal = jnp.diagonal(upper, axis1=-2, axis2=-1)
    lower = jnp.where(diagonal < 0, -1, 1)[..., None, :] * upper.mT
    return mean, jnp.tril(lower)


def image_columns(
    jacobian: Array, half_width: Part, scale: Part, factor: Part
) -> tuple[Array | None, Array | None]:
    """Columns of the uniform and of the normal variables under a linear map."""
    uniform = None if half_width is None else jacobian * half_width[..., None, :]
    if scale is not None:
        return uniform, jacobian * scale[..., None, :]
    return uniform, None if factor is None else matmul(jacobian, factor)


@partial(jax.jit, static_argnames=("shape", "dtype"))
def draw_deviation(
    key: Array,
    half_width: Part,
    scale: Part,
    factor: Part,
    *,
    shape: tuple[int, ...],
    dtype: jnp.dtype,
) -> Array:
    """Draws of this shape, the batch shape of the parts and ``N_x`` at its end."""
    # Each part has its own key, so adding one part leaves the draws of the other unchanged.
    key_box, key_normal = jax.random.split(key)
    uniform = normal = jnp.zeros(shape, dtype)
    if half_width is not None:
        uniform = jax.random.uniform(key_box, shape, dtype, minval=-1, maxval=1)
    if scale is not None or factor is not None:
        normal = jax.random.normal(key_normal, shape, dtype)
    return deviation(uniform, normal, half_width, scale, factor)


def deviation(uniform: Array, normal: Array, half_width: Part, scale: Part, factor: Part) -> Array:
    """Inputs about their means, at given values of the standard variables."""
    total: Array | float = 0.0
    if half_width is not None:
        total = total + half_width * uniform
    if scale is not None:
        total = total + scale * normal
    elif factor is not None:
        total = total + matvec(factor, normal)
    return jnp.asarray(total)


def standard_values(points: Array, num_uniform: int) -> tuple[Array, Array]:
    """Values of uniform variables on (-1, 1) and of normal ones at points of the unit cube."""
    # In float32 a point next to one may have rounded to it, where the normal variable is infinite.
    tiny = jnp.finfo(points.dtype).eps / 2
    safe = jnp.clip(points, tiny, 1 - tiny)
    return 2 * safe[..., :num_uniform] - 1, ndtri(safe[..., num_uniform:])
