"""Products and norms of the rows of a factor of a covariance, of JAX's arrays or of NumPy's."""

from collections.abc import Iterable
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array, lax


def namespace(*arrays: object) -> Any:
    """``numpy`` if all arrays are NumPy's, as in a copy made by `in_float64`, or ``jax.numpy``."""
    # NumPy's arithmetic turns arrays without axes into its scalars.
    return jnp if [a for a in arrays if not isinstance(a, np.ndarray | np.generic)] else np


def matmul(a: Array, b: Array) -> Array:
    """Matrix product in the full precision of the type."""
    if namespace(a, b) is np:
        return a @ b
    # Accelerators multiply in fewer bits unless told otherwise.
    return jnp.matmul(a, b, precision=lax.Precision.HIGHEST)


def matvec(a: Array, b: Array) -> Array:
    """Matrix times vector, batched, in the full precision of the type."""
    if namespace(a, b) is np:
        return (a @ b[..., None])[..., 0]
    return jnp.einsum("...jk,...k->...j", a, b, precision=lax.Precision.HIGHEST)


def joined(parts: Iterable[Any]) -> Any:
    """Join along the last axis what is there, the others broadcast; None if nothing is."""
    arrays = [part for part in parts if part is not None]
    if len(arrays) < 2:
        return arrays[0] if arrays else None
    xp, lead = namespace(*arrays), np.broadcast_shapes(*[array.shape[:-1] for array in arrays])
    wide = [xp.broadcast_to(array, (*lead, array.shape[-1])) for array in arrays]
    return xp.concatenate(wide, axis=-1)


def gram(rows: Array) -> Array:
    """``A A^T``, shape ``(..., N, N)`` for rows of shape ``(..., N, n)``."""
    return matmul(rows, rows.mT)


def solve_lower(factor: Array, right: Array, *, transposed: bool = False) -> Array:
    """Solve with a lower triangular matrix, shapes (..., d, d) and (..., d, m)."""
    shape = jnp.broadcast_shapes(factor.shape[:-2], right.shape[:-2])
    factor = jnp.broadcast_to(factor, (*shape, *factor.shape[-2:]))
    right = jnp.broadcast_to(right, (*shape, *right.shape[-2:]))
    return lax.linalg.triangular_solve(
        factor, right, left_side=True, lower=True, transpose_a=transposed
    )


def norm(rows: Array) -> Array:
    """Euclidean norm over the last axis, without underflow, with gradient 0 at 0."""
    xp = namespace(rows)
    largest = xp.max(xp.abs(rows), axis=-1, keepdims=True)
    if xp is jnp:
        # The result does not depend on the factor taken out, so no gradient flows through it.
        largest = lax.stop_gradient(largest)
    factor = xp.where(largest > 0, largest, 1)
    squared = xp.sum((rows / factor) ** 2, axis=-1)
    # The inner `where` keeps the infinite slope of the root at 0 out of the derivative.
    is_zero = squared == 0
    root: Array = xp.where(is_zero, 0, xp.sqrt(xp.where(is_zero, 1, squared)))
    return root * factor[..., 0]


def products(scale: Array, other: Array | None = None) -> Array:
    """Products of scales, by default squares; NaN, not 0 or infinity, where the type has no such.

    Variances leave single precision at scales of 1e-19 and 1e19. What has no variance there still
    has a standard deviation.
    """
    other = scale if other is None else other
    product = scale * other
    limits = jnp.finfo(product.dtype)
    # Programs turn what is below the smallest normal number to zero.
    is_number = (product >= limits.tiny) & (product <= limits.max)
    is_lost = (scale != 0) & (other != 0) & ~is_number
    known: Array = namespace(scale).where(is_lost, jnp.nan, product)
    return known


def in_squared_units(matrix: Array, unit: Array) -> Array:
    """A covariance in units of outputs ``(..., N)``, as it is; NaN where that has no number."""
    xp = namespace(matrix)
    scale = unit * xp.sqrt(xp.diagonal(matrix, axis1=-2, axis2=-1))
    is_lost = xp.isnan(products(scale[..., None], scale[..., None, :]))
    matrix = xp.where(is_lost, xp.nan, matrix)
    return matrix * unit[..., None] * unit[..., None, :]


def times_square(variance: Array, unit: Array) -> Array:
    """Variances in units, as they are; NaN where these have no number."""
    return products(variance * unit, unit)


def binary_unit(size: Array) -> Array:
    """Power of two nearest to each size, 1 for zero and infinity: scaling causes no rounding."""
    if namespace(size) is np:
        usable = (size > 0) & np.isfinite(size)
        share, exponent = np.frexp(np.where(usable, size, 1))
        known: Any = np.ldexp(np.ones_like(size), exponent - (share < 0.75))
        return known
    # No result depends on the unit, so no gradient flows through it. A number without digits after
    # the first is a power of two: one operation, where the exponent and its power are a hundred.
    unit = lax.reduce_precision(lax.stop_gradient(size), jnp.finfo(size.dtype).nexp, 0)
    return jnp.where((unit > 0) & jnp.isfinite(unit), unit, 1)


def squares_in_units(scale: Array) -> tuple[Array, Array]:
    """Squares of scales in squares of units near them, and these units."""
    unit = binary_unit(scale)
    return (scale / unit) ** 2, unit


def symmetric_root(matrix: Array) -> Array:
    """``R`` with ``R R^T`` nearest to a symmetric matrix, by eigenvalues: without derivatives."""
    xp = namespace(matrix)
    vectors: Array
    values, vectors = xp.linalg.eigh(matrix)
    return vectors * xp.sqrt(xp.maximum(values, 0.0))[..., None, :]


def covariance_root(covariance: Array) -> Array:
    """A matrix ``R`` with ``R R^T = covariance``, lower triangular if it can be.

    Of known numbers of NumPy it is exact to rounding. A traced matrix that is singular to rounding
    gets as much on its diagonal as makes it regular, a relative 1e-3 in single precision.
    """
    xp = namespace(covariance)
    # In units of their own, so that entries of very different sizes keep their digits. The root has
    # no finite slope at zero, and a row of zeros no factor.
    variance = xp.maximum(xp.diagonal(covariance, axis1=-2, axis2=-1), 0)
    is_zero = variance == 0
    unit = xp.sqrt(xp.where(is_zero, 1, variance))
    identity = xp.eye(unit.shape[-1], dtype=covariance.dtype)
    scaled = covariance / unit[..., None] / unit[..., None, :]
    scaled = xp.where(is_zero[..., None], identity, scaled)
    unit = xp.where(is_zero, 0, unit)[..., None]
    if xp is np:
        try:
            known: Array = unit * np.linalg.cholesky(scaled)
        except np.linalg.LinAlgError:
            known = unit * symmetric_root(scaled)
        return known
    fixed = jnp.linalg.cholesky(lax.stop_gradient(scaled))
    is_singular = jnp.isnan(fixed).any(axis=(-2, -1), keepdims=True)
    nudge = 4.0 * float(jnp.finfo(scaled.dtype).eps) * scaled.shape[-1]
    return unit * jnp.linalg.cholesky(scaled + jnp.where(is_singular, nudge, 0.0) * identity)
