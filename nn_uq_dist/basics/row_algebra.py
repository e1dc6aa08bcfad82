"""Products and norms of the rows of a factor of a covariance, of JAX's arrays or of NumPy's."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from nn_uq_dist.basics.checks import is_concrete


def namespace(*arrays: object) -> Any:
    """``numpy`` if all arrays are NumPy's, as in a copy made by `in_float64`, or ``jax.numpy``."""
    # NumPy's arithmetic turns arrays without axes into its scalars.
    return np if all(isinstance(array, np.ndarray | np.generic) for array in arrays) else jnp


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
    root = xp.where(is_zero, 0, xp.sqrt(xp.where(is_zero, 1, squared)))
    scaled: Array = factor[..., 0] * root
    return scaled


def products(scale: Array, other: Array | None = None) -> Array:
    """Products of scales, by default squares; NaN, not 0 or infinity, where the type has no such.

    Variances leave single precision at scales of 1e-19 and 1e19. What has no variance there still
    has a standard deviation.
    """
    other = scale if other is None else other
    found = scale * other
    limits = jnp.finfo(found.dtype)
    # Programs turn what is below the smallest normal number to zero.
    is_number = (found >= limits.tiny) & (found <= limits.max)
    is_lost = (scale != 0) & (other != 0) & ~is_number
    product: Array = namespace(scale).where(is_lost, jnp.nan, found)
    return product


def in_squared_units(matrix: Array, unit: Array) -> Array:
    """A covariance in units of outputs ``(..., N)``, as it is; NaN where that has no number."""
    xp: Any = namespace(matrix)
    scale = unit * xp.sqrt(xp.diagonal(matrix, axis1=-2, axis2=-1))
    is_lost = xp.isnan(products(scale[..., None], scale[..., None, :]))
    total: Array = xp.where(is_lost, xp.nan, matrix * unit[..., None] * unit[..., None, :])
    return total


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


def covariance_root(covariance: Array) -> Array:
    """A matrix ``R`` with ``R R^T = covariance``; without derivatives if that is singular."""
    if namespace(covariance) is np:
        values, vectors = np.linalg.eigh(covariance)
        known: Any = vectors * np.sqrt(np.maximum(values, 0.0))[..., None, :]
        return known
    covariance, unit = _in_own_units(covariance)
    factor = jnp.linalg.cholesky(covariance)
    regular = ~jnp.any(jnp.isnan(factor), axis=(-2, -1), keepdims=True)

    def mended() -> Array:
        values, vectors = jnp.linalg.eigh(lax.stop_gradient(covariance))
        singular = vectors * jnp.sqrt(jnp.maximum(values, 0.0))[..., None, :]
        return jnp.where(regular, factor, singular)

    # Eigenvalues of thousands of outputs take far longer than the factor.
    if is_concrete(regular):
        return unit * (factor if regular.all() else mended())
    root: Array = lax.cond(jnp.all(regular), lambda: factor, mended)
    return unit * root


@jax.jit
def _in_own_units(covariance: Array) -> tuple[Array, Array]:
    """The matrix with a diagonal near one, and the units of its rows, shape (..., N, 1).

    Eigenvalues of entries of very different sizes would lose the small ones.
    """
    diagonal = jnp.diagonal(lax.stop_gradient(covariance), axis1=-2, axis2=-1)
    unit = binary_unit(jnp.sqrt(diagonal))[..., None]
    return covariance / unit / unit.mT, unit
