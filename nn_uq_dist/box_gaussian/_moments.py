"""Means and covariances given some outputs: of the inputs behind them, and of other outputs."""

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

from nn_uq_dist.basics._row_algebra import matmul, matvec
from nn_uq_dist.box_gaussian._gaussian_part import (
    Problem,
    Sites,
    posterior,
    solve_lower,
    whiten,
)
from nn_uq_dist.box_gaussian._passes import fixed_point


class Moments(NamedTuple):
    """Mean (..., n) and covariance (..., n, n).

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from nn_uq_dist.box_gaussian import Moments
    >>> Moments(jnp.zeros(2), jnp.eye(2)).covariance.shape
    (2, 2)
    """

    mean: Array
    covariance: Array


def input_moments(deviation: Array, weights: Array, covariance: Array | None) -> Moments:
    """Mean and covariance of the uniforms behind observed outputs.

    Parameters
    ----------
    deviation : Array, shape (..., d)
    weights : Array, shape (..., d, n)
    covariance : Array, shape (..., d, d), or None
        With the leading axes of the points, all three.

    Returns
    -------
    Moments
        NaN where the passes have not converged.

    Notes
    -----
    Those of the normal law that expectation propagation ends with.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from nn_uq_dist.box_gaussian import input_moments
    >>> found = input_moments(jnp.array([1.0]), jnp.array([[1.0, 1.0]]), jnp.array([[1e-4]]))
    >>> bool(jnp.allclose(found.mean, 0.5, atol=1e-3))  # two inputs share what was seen
    True
    """
    problem = Problem(deviation, weights, covariance)
    whitened = whiten(problem)
    found = fixed_point(problem, whitened, jnp.ones(deviation.shape[:-1], bool))
    law = posterior(problem, whitened, found.sites)
    spread = _covariance(problem, found.sites, law.root)
    valid = found.converged & ~found.outside
    return Moments(
        jnp.where(valid[..., None], law.mean, jnp.nan),
        jnp.where(valid[..., None, None], spread, jnp.nan),
    )


def _covariance(problem: Problem, sites: Sites, root: Array) -> Array:
    if problem.by_inputs:
        return matmul(root.mT, root)
    scaled = root / sites.precision[..., None, :]
    identity = jnp.eye(root.shape[-1], dtype=root.dtype)
    return identity / sites.precision[..., None] - matmul(scaled.mT, scaled)


def output_moments(
    deviation: Array,
    known: tuple[Array, Array | None],
    others: tuple[Array, Array | None, Array | None],
) -> Moments:
    r"""Mean and covariance of other outputs, given these; about their means.

    Parameters
    ----------
    deviation : Array, shape (..., d)
        Of the known outputs.
    known : tuple of Array
        Their weights and the covariance of their normal part, or None.
    others : tuple of Array
        Weights (..., e, n) of the others, the covariance of their normal part (..., e, e), and that
        with the known outputs (..., e, d); or None.

    Notes
    -----
    With :math:`G = S_{0,rk} S_{0,kk}^{-1}`, the others are :math:`(W_r - G W_k) u + G e_k` and a
    normal part of covariance :math:`S_{0,rr} - G S_{0,kr}`.
    """
    weights, covariance = known
    own, own_covariance, cross = others
    uniforms = input_moments(deviation, weights, covariance)
    if covariance is None or own_covariance is None or cross is None:
        mean = matvec(own, uniforms.mean)
        return Moments(mean, matmul(matmul(own, uniforms.covariance), own.mT))
    spread = jnp.sum(weights**2, axis=-1) / 3.0 + jnp.diagonal(covariance, axis1=-2, axis2=-1)
    nudge = float(jnp.finfo(weights.dtype).eps) * spread
    identity = jnp.eye(weights.shape[-2], dtype=weights.dtype)
    factor = jnp.linalg.cholesky(covariance + nudge[..., None] * identity)
    half = solve_lower(factor, cross.mT)
    gain = solve_lower(factor, half, transposed=True).mT
    columns = own - matmul(gain, weights)
    mean = matvec(columns, uniforms.mean) + matvec(gain, deviation)
    spread = matmul(matmul(columns, uniforms.covariance), columns.mT)
    return Moments(mean, spread + own_covariance - matmul(half.mT, half))
