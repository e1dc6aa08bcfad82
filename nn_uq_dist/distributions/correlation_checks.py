"""Checks of correlation matrices: errors for known values name the row and column."""

import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from nn_uq_dist.basics import checks

_REPAIR = "clipped_correlation(matrix, min_eigenvalue) gives a valid one near to it"


def as_square(name: str, matrix: ArrayLike, num_outputs: int | None = None) -> ArrayLike:
    """Return a matrix of real numbers, checked for shape ``(..., N, N)``."""
    matrix = checks.as_numeric(name, matrix)
    shape = np.shape(matrix)
    if len(shape) < 2 or shape[-1] != shape[-2] or shape[-1] == 0:
        raise ValueError(
            f"{name} must be a square matrix of shape (..., N, N), got shape {shape}; pass one row "
            f"and one column per output"
        )
    if num_outputs is not None and shape[-1] != num_outputs:
        raise ValueError(
            f"{name} must have one row per marginal, got shape {shape} for {num_outputs} "
            f"marginals; expand the marginals to batch shape (..., {shape[-1]}) or take the rows "
            f"and columns of their outputs"
        )
    return matrix


def as_correlation(name: str, matrix: ArrayLike, num_outputs: int | None = None) -> ArrayLike:
    """Return a correlation matrix ``(..., N, N)``, checked for shape, symmetry and diagonal.

    Entries beyond one and negative eigenvalues are accepted: `clipped_correlation` repairs them.
    """
    matrix = as_square(name, matrix, num_outputs)
    if not checks.is_concrete(matrix):
        return matrix
    known = np.asarray(matrix)
    finite = np.isfinite(known)
    if not finite.all():
        *_, row, column = checks.first_index(~finite)
        raise ValueError(
            f"{name} must be finite, got {known[~finite].ravel()[0]} in row {row} and column "
            f"{column}; a constant output has no correlation: leave it out or add noise_scale > 0"
        )
    tolerance = 100 * _rounding(matrix)
    asymmetry = np.abs(known - np.swapaxes(known, -1, -2)) > tolerance
    if asymmetry.any():
        *_, row, column = where = checks.first_index(asymmetry)
        other = known[(*where[:-2], column, row)]
        raise ValueError(
            f"{name} must be symmetric, got {known[where]} in row {row} and column {column} but "
            f"{other} in row {column} and column {row}; pass (R + R.T) / 2"
        )
    diagonal = np.diagonal(known, axis1=-2, axis2=-1)
    wrong = np.abs(diagonal - 1) > tolerance
    if wrong.any():
        *_, row = where = checks.first_index(wrong)
        raise ValueError(
            f"{name} must have ones on its diagonal, got {diagonal[where]} in row {row}; divide a "
            f"covariance by the standard deviations of its row and column"
        )
    return matrix


def require_positive_definite(name: str, matrix: ArrayLike, remedy: str = _REPAIR) -> None:
    """Raise ``ValueError`` if a known correlation matrix has no Cholesky factor."""
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
