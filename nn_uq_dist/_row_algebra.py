"""Products and norms of the rows of a factor of a covariance."""

import jax.numpy as jnp
from jax import Array, lax


def matmul(a: Array, b: Array) -> Array:
    """Matrix product in the full precision of the type."""
    # Accelerators multiply in fewer bits unless told otherwise.
    return jnp.matmul(a, b, precision=lax.Precision.HIGHEST)


def matvec(a: Array, b: Array) -> Array:
    """Matrix times vector, batched, in the full precision of the type."""
    return jnp.einsum("...jk,...k->...j", a, b, precision=lax.Precision.HIGHEST)


def gram(rows: Array) -> Array:
    """``A A^T``, shape ``(..., N, N)`` for rows of shape ``(..., N, n)``."""
    return matmul(rows, jnp.swapaxes(rows, -1, -2))


def norm(rows: Array) -> Array:
    """Euclidean norm over the last axis, without underflow, with gradient 0 at 0."""
    # The result does not depend on the factor taken out, so no gradient flows through it.
    largest = lax.stop_gradient(jnp.max(jnp.abs(rows), axis=-1, keepdims=True))
    factor = jnp.where(largest > 0, largest, 1)
    squared = jnp.sum((rows / factor) ** 2, axis=-1)
    # The inner `where` keeps the infinite slope of the root at 0 out of the derivative.
    is_zero = squared == 0
    root = jnp.where(is_zero, 0, jnp.sqrt(jnp.where(is_zero, 1, squared)))
    return factor[..., 0] * root
