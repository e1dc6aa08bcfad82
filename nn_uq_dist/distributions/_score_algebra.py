"""Distributions of some normal scores, or of some given others: algebra of Cholesky factors."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax import Array

from nn_uq_dist.basics.normal_tails import log_normal_density
from nn_uq_dist.basics.row_algebra import matvec, solve_lower


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


@jax.jit
def log_density_of_outputs(
    values: Array,
    inside: Array,
    scores: Array,
    log_densities: Array,
    score_loc: Array,
    score_tril: Array,
) -> Array:
    """Log density ``log N(z; loc, L L^T) + sum_j [log p_j(y_j) - log phi(z_j)]``.

    Parameters
    ----------
    values : Array, shape (..., N)
        Outputs; NaN gives NaN.
    inside : Array of bool, shape (..., N)
        False for outputs beyond their support: the density is then zero.
    scores, log_densities : Array, shape (..., N)
        Normal scores of the outputs, and the log densities of their marginals there.
    score_loc : Array, shape (..., N)
    score_tril : Array, shape (..., N, N)
    """
    # At the very edge of the support the score is infinite.
    inside = inside & (jnp.isfinite(scores) | jnp.isnan(scores))
    scores = jnp.where(inside, scores, 0)
    terms = log_densities - log_normal_density(scores)
    base = dist.MultivariateNormal(score_loc, scale_tril=score_tril, validate_args=False)
    joint = base.log_prob(scores) + jnp.sum(jnp.where(inside, terms, 0), axis=-1)
    joint = jnp.where(jnp.all(inside, axis=-1), joint, -jnp.inf)
    return jnp.where(jnp.any(jnp.isnan(values), axis=-1), jnp.nan, joint)


def cholesky_of_rows(scale_tril: Array, rows: tuple[int, ...]) -> Array:
    """Lower Cholesky factor of ``A A^T``, with ``A`` these rows of a factor ``(..., N, N)``."""
    if rows == tuple(range(len(rows))):
        return scale_tril[..., : len(rows), : len(rows)]
    taken = scale_tril[..., np.asarray(rows), :]
    # From a QR factorization of A^T, since A A^T would square the condition number.
    upper = jnp.linalg.qr(jnp.swapaxes(taken, -1, -2), mode="r")
    signs = jnp.where(jnp.diagonal(upper, axis1=-2, axis2=-1) < 0, -1, 1)
    return jnp.swapaxes(upper * signs[..., None], -1, -2)


def conditional_scores(
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
