r"""Log density of many outputs of few inputs: one factorization for all, then small problems.

In coordinates :math:`b = L^{-1} r`, :math:`A = L^{-1} W`, with :math:`L L^T = S_0`, and with
:math:`A = Q R`, points enter through :math:`c = Q^T b` and the rest of :math:`b`:

.. math:: \log p(r) = \log p_{R, I}(c) - \tfrac12 |b - Q c|^2 - \log|L| - \tfrac{d - n}{2}\log 2\pi.

This is exact, as the uniforms do not affect the rest. The problem at each point has the size of the
inputs.
"""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from nn_uq_dist.basics._blocks import in_blocks
from nn_uq_dist.basics._row_algebra import matmul, matvec
from nn_uq_dist.box_gaussian._evidence import BLOCK_SIZE, log_evidence, once_differentiable, solve
from nn_uq_dist.box_gaussian._gaussian_part import (
    Problem,
    log_diagonal,
    normal_factor,
    of_one_shape,
    solve_lower,
)
from nn_uq_dist.box_gaussian._own_units import in_own_units

# With fewer outputs each point gets its own factorization, as when each point has its own law.
FEWEST_OUTPUTS = 256


def log_evidence_of_shared_law(deviation: Array, weights: Array, covariance: Array | None) -> Array:
    """`log_evidence` at many points of one law; the factorization is shared if that saves time.

    Parameters
    ----------
    deviation : Array, shape (..., d)
    weights : Array, shape (d, n)
        With more axes, or with few outputs, each point gets its own factorization.
    covariance : Array, shape (d, d), or None

    Returns
    -------
    Array, shape (...)

    Raises
    ------
    ValueError, NotImplementedError
        As for `log_evidence`.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from nn_uq_dist.box_gaussian import log_evidence_of_shared_law
    >>> weights, noise = jnp.ones((500, 2)), jnp.eye(500)
    >>> log_evidence_of_shared_law(jnp.zeros((3, 500)), weights, noise).shape
    (3,)
    """
    num_outputs, count = weights.shape[-2:]
    has_few_inputs = num_outputs >= FEWEST_OUTPUTS and count < num_outputs
    if covariance is None or max(weights.ndim, covariance.ndim) > 2 or not has_few_inputs:
        return log_evidence(deviation, weights, covariance)
    given = in_own_units(deviation, weights, covariance)
    flat = given.deviation.reshape(-1, deviation.shape[-1])
    logs = _reduced(flat, given.weights, given.covariance).reshape(deviation.shape[:-1])
    return logs - given.log_volume


class _Reduced(NamedTuple):
    """Log densities (N,), means and covariances of the uniforms, pulls, and the factor ``L``.

    Attributes
    ----------
    log_evidence : Array, shape (N,)
    mean : Array, shape (N, n)
    covariance : Array, shape (N, n, n)
    pull : Array, shape (N, d)
        ``S_0^-1 (r - W m)``.
    slope : Array, shape (d, n)
        ``S_0^-1 W``.
    factor : Array, shape (d, d)
    """

    log_evidence: Array
    mean: Array
    covariance: Array
    pull: Array
    slope: Array
    factor: Array


@jax.custom_jvp
def _reduced(deviation: Array, weights: Array, covariance: Array) -> Array:
    return _solve(deviation, weights, covariance).log_evidence


@_reduced.defjvp
def _reduced_jvp(
    primals: tuple[Array, Array, Array], tangents: tuple[Array, Array, Array]
) -> tuple[Array, Array]:
    """The gradients stated in `log_evidence`, without a matrix of the outputs for each point."""
    found = _solve(*once_differentiable(primals))
    moved, by_weight, by_covariance = tangents
    some = jnp.isfinite(found.log_evidence)
    slope = found.slope
    tangent = jnp.sum(found.pull * (matvec(by_weight, found.mean) - moved), axis=-1)
    # S^-1 = S_0^-1 - (S_0^-1 W) V (S_0^-1 W)^T
    inner = 0.5 * matmul(slope.T, matmul(by_covariance, slope)) - matmul(slope.T, by_weight)
    tangent = tangent + jnp.sum(found.covariance * inner, axis=(-2, -1))
    half = solve_lower(found.factor, by_covariance)
    whole = jnp.trace(solve_lower(found.factor, half, transposed=True))
    tangent = tangent + 0.5 * jnp.sum(found.pull * matvec(by_covariance, found.pull), axis=-1)
    return found.log_evidence, jnp.where(some, tangent - 0.5 * whole, 0.0)


@jax.jit
def _solve(deviation: Array, weights: Array, covariance: Array) -> _Reduced:
    num_outputs, count = weights.shape
    factor = normal_factor(weights, covariance)
    columns = solve_lower(factor, weights)
    points = solve_lower(factor, deviation.T).T
    basis, triangle = jnp.linalg.qr(columns)
    coordinates = matmul(points, basis)
    left = points - matmul(coordinates, basis.T)

    def block(problem: Problem) -> tuple[Array, Array, Array]:
        logs, found = solve(problem)
        return logs, found.law.mean, matmul(found.law.root.mT, found.law.root)

    identity = jnp.eye(count, dtype=weights.dtype)
    logs, mean, spread = in_blocks(
        block, of_one_shape(coordinates, triangle, identity), size=BLOCK_SIZE
    )
    constant = log_diagonal(factor) + 0.5 * (num_outputs - count) * math.log(2.0 * math.pi)
    logs = logs - 0.5 * jnp.sum(left * left, axis=-1) - constant
    rest = points - matmul(mean, columns.T)
    pull = solve_lower(factor, rest.T, transposed=True).T
    slope = solve_lower(factor, columns, transposed=True)
    return _Reduced(logs, mean, spread, pull, slope, factor)
