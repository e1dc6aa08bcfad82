"""Correlation matrices: a floor under their eigenvalues, and checks that name row and column."""

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from nn_uq_dist.basics import checks
from nn_uq_dist.basics.concrete import nan_unless
from nn_uq_dist.basics.row_algebra import matmul, matvec, solve_lower

_SLACK = 8  # rounding of the smallest eigenvalue, in epsilons times the largest one
_REPAIR = "clipped_correlation(matrix, min_eigenvalue) gives a valid one near to it"


def clipped_correlation(matrix: ArrayLike, min_eigenvalue: ArrayLike = 1e-4) -> Array:
    r"""Return a correlation matrix near to `matrix` with a floor under its eigenvalues.

    Eigenvalues below the floor :math:`\epsilon` are raised to it, and what is above it is rescaled
    so that the diagonal is one. With the spectral decomposition :math:`G = V \Lambda V^T`,

    .. math::
        X = \epsilon I + (1 - \epsilon) D^{-1/2} A D^{-1/2}, \qquad
        A = V \max(\Lambda - \epsilon, 0) V^T, \qquad D = \mathrm{diag}(A).

    The result is exactly symmetric, its diagonal is exactly 1, and a matrix that qualifies is
    returned unchanged. The floor holds up to rounding; a matrix qualifies if its smallest
    eigenvalue is below the floor by rounding at most.

    Derivatives in both arguments are there in forward and reverse mode. Second derivatives are zero
    where `matrix` qualifies, and NaN where it is repaired.

    Parameters
    ----------
    matrix
        Symmetric with unit diagonal, shape ``(..., N, N)``; entries may exceed 1. Under ``jit``,
        where it cannot be checked, its symmetric part is used and its diagonal ignored.
    min_eigenvalue
        The floor, a scalar in ``[0, 1)``.

    Returns
    -------
    Array
        Same shape as `matrix`; same dtype, but at least float32. NaN where traced arguments are
        invalid.

    Raises
    ------
    TypeError
        If an argument is not an array of real numbers.
    ValueError
        If `matrix` is not square, or known and not finite, not symmetric or without unit
        diagonal; if `min_eigenvalue` is not a scalar, or known and outside ``[0, 1)``.

    Examples
    --------
    >>> import nn_uq_dist as nuq
    >>> R = nuq.distributions.clipped_correlation(
    ...     [[1, 1, 0], [1, 1, 1], [0, 1, 1]], min_eigenvalue=0
    ... )
    >>> print(f"{R[0, 1]:.4f} {R[0, 2]:.4f}")
    0.7395 0.0938
    """
    matrix = as_correlation("matrix", matrix)
    dtype = checks.at_least_single(matrix)
    floor = checked_floor(min_eigenvalue, dtype)
    if checks.is_concrete(matrix, floor):
        known = np.asarray(matrix, dtype)
        known = (known + known.mT) / 2
        known[..., range(known.shape[-1]), range(known.shape[-1])] = 1
        values = np.linalg.eigvalsh(known.astype(np.float64))
        rounding = _SLACK * float(np.finfo(known.dtype).eps) * values[..., -1]
        # A matrix that clearly qualifies needs no program.
        if (values[..., 0] >= float(floor) + rounding).all():
            return jnp.asarray(known)
    return _clipped(jnp.asarray(matrix, dtype), floor)


@jax.jit
def _clipped(matrix: Array, floor: Array) -> Array:
    identity = jnp.eye(matrix.shape[-1], dtype=matrix.dtype)
    valid = jnp.all(jnp.isfinite(matrix), axis=(-2, -1), keepdims=True) & (floor >= 0) & (floor < 1)
    matrix = nan_unless(valid, 0.5 * (matrix + matrix.mT)) * (1 - identity) + identity
    above, values, _ = _positive_part(matrix - floor * identity)
    largest = jnp.maximum(values[..., -1] + floor, matrix.shape[-1] ** 0.5)
    slack = _SLACK * jnp.finfo(matrix.dtype).eps * largest
    # A floor close to the size of rounding errors must still raise the eigenvalues of a singular
    # matrix.
    slack = jnp.where(floor > 0, jnp.minimum(slack, floor / 10), slack)
    unchanged = (values[..., 0] >= -slack)[..., None, None]
    scale = jnp.sqrt((1 - floor) / jnp.diagonal(above, axis1=-2, axis2=-1))
    # The upper triangle is copied to the lower one: the mean of both is not exactly symmetric if
    # the compiler fuses the operations of one triangle and not those of the other.
    upper = jnp.triu(scale[..., None] * above * scale[..., None, :], 1)
    repaired = upper + upper.mT + identity
    return nan_unless(valid, jnp.where(unchanged, matrix, repaired))


@jax.custom_jvp
def _positive_part(matrix: Array) -> tuple[Array, Array, Array]:
    """The matrix with its negative eigenvalues at zero; its eigenvalues and eigenvectors."""
    values, vectors = jnp.linalg.eigh(matrix, symmetrize_input=False)
    root = vectors * jnp.sqrt(jnp.maximum(values, 0))[..., None, :]
    return matmul(root, root.mT), values, vectors


@_positive_part.defjvp
def _positive_part_jvp(
    primals: tuple[Array], tangents: tuple[Array]
) -> tuple[tuple[Array, Array, Array], tuple[Array, Array, Array]]:
    clipped, values, vectors = _positive_part(*primals)
    positive = jnp.maximum(values, 0)
    total = jnp.abs(values)[..., None] + jnp.abs(values)[..., None, :]
    sums = positive[..., None] + positive[..., None, :]
    # Divided differences of max(x, 0), without cancellation; 1 at (0, 0).
    differences = jnp.where(total == 0, 1, sums / jnp.where(total == 0, 1, total))
    inner = differences * matmul(vectors.mT, matmul(tangents[0], vectors))
    moved = matmul(vectors, matmul(inner, vectors.mT))
    # Derivatives of eigenvectors blow up if eigenvalues are close, as those of a matrix of low rank
    # are. So second derivatives are NaN rather than wrong, and zero if nothing is clipped.
    unknown = jnp.where(values[..., :1] >= 0, 0, jnp.nan)
    unknown = unknown * jnp.sum(tangents[0], axis=(-2, -1))[..., None]
    changes = (
        jnp.broadcast_to(unknown, values.shape),
        jnp.zeros_like(vectors) + unknown[..., None],
    )
    return (clipped, values, vectors), (0.5 * (moved + moved.mT), *changes)


def checked_floor(min_eigenvalue: ArrayLike, dtype: jnp.dtype) -> Array:
    """Return the floor in this type, checked where it is known."""
    value = checks.as_numeric("min_eigenvalue", min_eigenvalue)
    if np.shape(value) != ():
        raise ValueError(
            f"min_eigenvalue must be a scalar, got shape {np.shape(value)}; use jax.vmap for many"
        )
    floor = jnp.asarray(value, dtype)
    if checks.is_concrete(floor) and not 0 <= float(floor) < 1:
        raise ValueError(
            f"min_eigenvalue must be in [0, 1), got {value} (in {dtype}): the eigenvalues of a "
            f"correlation matrix have mean 1; pass a small number such as 1e-4"
        )
    return floor


def as_square(name: str, matrix: ArrayLike, num_outputs: int | None = None) -> ArrayLike:
    """Return a matrix of real numbers, checked for shape ``(..., N, N)``."""
    matrix = checks.as_numeric(name, matrix)
    shape = np.shape(matrix)
    size = num_outputs or (shape[-1] if shape else 1)
    if shape[-2:] != (size, size) or not size:
        number = num_outputs or "N"
        raise ValueError(
            f"{name} must have shape (..., {number}, {number}), got shape {shape}; pass one row "
            f"and one column per output"
        )
    return matrix


def as_correlation(name: str, matrix: ArrayLike, num_outputs: int | None = None) -> ArrayLike:
    """Return a correlation matrix ``(..., N, N)``, checked for shape, symmetry and diagonal.

    Entries beyond one and negative eigenvalues are accepted: `clipped_correlation` repairs them.
    """
    matrix = as_square(name, matrix, num_outputs)
    if not checks.is_concrete(matrix):
        return matrix
    known, tolerance = np.asarray(matrix), 100 * _rounding(matrix)

    remedy = "a constant output has no correlation: leave it out or add noise_scale > 0"
    checks.require_finite(name, known, remedy)
    is_symmetric = np.abs(known - known.mT) <= tolerance
    checks.refuse(name, known, lambda _: is_symmetric, "be symmetric", "pass (R + R.T) / 2")
    is_one = np.abs(known - 1) * np.eye(known.shape[-1]) <= tolerance
    remedy = "divide a covariance by the standard deviations of its row and column"
    checks.refuse(name, known, lambda _: is_one, "have ones on its diagonal", remedy)
    return matrix


def require_positive_definite(name: str, matrix: ArrayLike, remedy: str = _REPAIR) -> None:
    """Raise ``ValueError`` if a known correlation matrix is invalid or has no Cholesky factor."""
    matrix = as_correlation(name, matrix)
    if not checks.is_concrete(matrix):
        return
    # Check the smallest eigenvalue: rounding may let a Cholesky factorization of a singular matrix
    # pass.
    smallest = np.linalg.eigvalsh(np.asarray(matrix, np.float64))[..., 0]
    too_small = smallest <= np.shape(matrix)[-1] * _rounding(matrix)
    if too_small.any():
        raise ValueError(
            f"{name} must be positive definite, got smallest eigenvalue "
            f"{smallest[too_small].ravel()[0]:.3g}; {remedy}"
        )


def _rounding(matrix: ArrayLike) -> float:
    dtype = getattr(matrix, "dtype", None)
    known = dtype is not None and jnp.issubdtype(dtype, jnp.floating)
    return float(jnp.finfo(dtype if known else jnp.result_type(float)).eps)


@jax.jit
def valid_cholesky(correlation: Array) -> Array:
    """Lower Cholesky factor of a correlation matrix ``(..., N, N)``, NaN if it is invalid."""
    size = correlation.shape[-1]
    factor = jnp.linalg.cholesky(correlation)
    # Rounding lets some singular matrices pass, with pivots that have no correct digit.
    pivots = jnp.diagonal(factor, axis1=-2, axis2=-1) ** 2
    smallest = jnp.min(pivots, axis=-1)[..., None, None]
    valid = smallest > size * jnp.finfo(correlation.dtype).eps
    # Catches invalid matrices that could not be checked under `jit`. The tolerance allows finite
    # differences.
    transposed = jnp.swapaxes(correlation, -1, -2)
    wrong = jnp.where(jnp.eye(size, dtype=bool), correlation - 1, correlation - transposed)
    valid = valid & (jnp.max(jnp.abs(wrong), axis=(-2, -1), keepdims=True) <= 0.01)
    return jnp.where(valid, factor, jnp.nan)


def cholesky_of_rows(scale_tril: Array, rows: tuple[int, ...]) -> Array:
    """Lower Cholesky factor of ``A A^T``, with ``A`` these rows of a factor ``(..., N, N)``."""
    if rows == tuple(range(len(rows))):
        return scale_tril[..., : len(rows), : len(rows)]
    taken = scale_tril[..., np.asarray(rows), :]
    # From a QR factorization of A^T, since A A^T would square the condition number.
    upper = jnp.linalg.qr(jnp.swapaxes(taken, -1, -2), mode="r")
    signs = jnp.where(jnp.diagonal(upper, axis1=-2, axis2=-1) < 0, -1, 1)
    return jnp.swapaxes(upper * signs[..., None], -1, -2)


def scores_given_others(
    scale_tril: Array, observed: tuple[int, ...], remaining: tuple[int, ...], residual: Array
) -> tuple[Array, Array]:
    """Shift of the mean and Cholesky factor of the covariance of scores, given others.

    Parameters
    ----------
    scale_tril : Array, shape (..., N, N)
        Factor of the covariance of all scores.
    observed, remaining : tuple of int
        Coordinates, which together are all coordinates.
    residual : Array, shape (..., len(observed))
        Observed scores minus their means.

    Notes
    -----
    With the observed coordinates first, the blocks of the factor give the conditional distribution
    directly. The textbook formula, a difference of two covariances, would lose a small eigenvalue.
    """
    factor = cholesky_of_rows(scale_tril, observed + remaining)
    count = len(observed)
    white = whitened(factor[..., :count, :count], residual)
    return matvec(factor[..., count:, :count], white), factor[..., count:, count:]


def whitened(scale_tril: Array, residual: Array) -> Array:
    """``L^-1 r`` for each residual ``(..., N)``: entries are independent if `L` is correct."""
    return solve_lower(scale_tril, residual[..., None])[..., 0]
