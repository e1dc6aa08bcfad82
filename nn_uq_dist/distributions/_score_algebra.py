"""Normal scores of some coordinates, and of some given others: algebra of Cholesky factors."""

import jax.numpy as jnp
import numpy as np
from jax import Array, lax


def cholesky_of_rows(scale_tril: Array, rows: tuple[int, ...]) -> Array:
    """Lower Cholesky factor of ``A A^T`` for ``A`` these rows of a factor ``(..., N, N)``."""
    if rows == tuple(range(len(rows))):
        return scale_tril[..., : len(rows), : len(rows)]
    taken = scale_tril[..., np.asarray(rows), :]
    # By a QR factorization of A^T, since A A^T would square the condition number.
    upper = jnp.linalg.qr(jnp.swapaxes(taken, -1, -2), mode="r")
    signs = jnp.where(jnp.diagonal(upper, axis1=-2, axis2=-1) < 0, -1, 1)
    return jnp.swapaxes(upper * signs[..., None], -1, -2)


def conditional_scores(
    scale_tril: Array, observed: tuple[int, ...], remaining: tuple[int, ...], residual: Array
) -> tuple[Array, Array]:
    """Shift of the mean, and factor of the covariance, of scores given others.

    Parameters
    ----------
    scale_tril : Array, shape (..., N, N)
        Factor of the covariance of all scores.
    observed, remaining : tuple of int
        Coordinates; together all of them.
    residual : Array, shape (..., len(observed))
        Observed scores less their means.

    Notes
    -----
    With the observed coordinates first, the blocks of the factor are the conditional law as they
    stand. The textbook's difference of two covariances would lose a small eigenvalue.
    """
    factor = cholesky_of_rows(scale_tril, observed + remaining)
    count = len(observed)
    batch = jnp.broadcast_shapes(factor.shape[:-2], residual.shape[:-1])
    white = lax.linalg.triangular_solve(
        jnp.broadcast_to(factor[..., :count, :count], (*batch, count, count)),
        jnp.broadcast_to(residual, (*batch, count))[..., None],
        left_side=True,
        lower=True,
    )
    shift = jnp.matmul(factor[..., count:, :count], white, precision=lax.Precision.HIGHEST)
    return shift[..., 0], factor[..., count:, count:]
