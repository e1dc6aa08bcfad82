r"""Log density of several outputs: the probability of a box under a normal law.

.. math:: p(r) = \int \prod_k \frac{1(|u_k| < 1)}{2}\, N(r;\, W u,\, S_0)\, du
"""

import math

import jax
import jax.numpy as jnp
from jax import Array

from nn_uq_dist.basics._blocks import in_blocks
from nn_uq_dist.basics._refused_derivatives import refused
from nn_uq_dist.basics._row_algebra import matmul
from nn_uq_dist.box_gaussian._expectation_propagation import FixedPoint, cavity, fixed_point
from nn_uq_dist.box_gaussian._gaussian_part import (
    Posterior,
    Problem,
    Sites,
    flattened,
    of_one_shape,
    solve_lower,
)
from nn_uq_dist.box_gaussian._own_units import in_own_units

# Points in a block: the arrays of a pass stay in the cache.
BLOCK_SIZE = 256

once_differentiable = refused(
    "second derivatives of the joint density are not implemented: expected at most one "
    "differentiation; use finite differences of the gradient"
)


def log_evidence(deviation: Array, weights: Array, covariance: Array | None) -> Array:
    r"""Log density of ``W u + e`` at a point, ``u`` uniform on a box and ``e`` normal.

    By expectation propagation, which is off by a few thousandths for outputs with noise, and exact
    if each output has an input of its own. Where the weights have a smaller rank than there are
    inputs and noise is little, it rounds corners off: see `LinearizedJoint`.

    Parameters
    ----------
    deviation : Array, shape (..., d)
        Points, as differences from the mean.
    weights : Array, shape (..., d, n)
        Columns of the uniforms on (-1, 1).
    covariance : Array, shape (..., d, d), or None
        Covariance of the normal part. Without a normal part there must be at least as many inputs
        as outputs.

    Returns
    -------
    Array, shape (...)
        ``-inf`` outside of the support, NaN where there is no density (linearly dependent outputs
        without a normal part) and where the passes do not converge.

    Raises
    ------
    ValueError
        If there is no normal part and there are fewer inputs than outputs.
    NotImplementedError
        For second derivatives: differentiation treats the sites as constants, which is exact only
        for first derivatives.

    Notes
    -----
    Gradients are those of the normal law at the sites found: with its mean :math:`m` and covariance
    :math:`V` of the uniforms, and :math:`a = S_0^{-1}(r - W m)`,

    .. math:: \partial_r = -a, \quad \partial_W = a m^T - S_0^{-1} W V, \quad
              \partial_{S_0} = (a a^T - S^{-1})/2.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from nn_uq_dist.box_gaussian import log_evidence
    >>> weights = jnp.array([[1.0, 1.0], [1.0, -1.0]])  # uniform on a square of area 8
    >>> round(float(jnp.exp(log_evidence(jnp.zeros(2), weights, None))), 4)
    0.125
    """
    count, num_outputs = weights.shape[-1], weights.shape[-2]
    if covariance is None and count < num_outputs:
        msg = (
            f"{num_outputs} outputs of {count} uniform inputs have no density without a normal "
            "part: they lie on a plane; pass a covariance, such as that of the noise"
        )
        raise ValueError(msg)
    given = in_own_units(deviation, weights, covariance)
    if covariance is None and count == num_outputs:
        return _of_parallelepiped(given.deviation, given.weights) - given.log_volume
    problem = of_one_shape(given.deviation, given.weights, given.covariance)
    logs = _log_evidence(flattened(problem)).reshape(problem.deviation.shape[:-1])
    return logs - given.log_volume


def _of_parallelepiped(deviation: Array, weights: Array) -> Array:
    """For as many uniforms as outputs the density is constant on the image of the box."""
    inputs = jnp.linalg.solve(weights, deviation[..., None])[..., 0]
    inside = jnp.all(jnp.abs(inputs) <= 1.0, axis=-1)
    log_volume = jnp.linalg.slogdet(weights)[1] + weights.shape[-1] * math.log(2.0)
    return jnp.where(inside, -log_volume, jnp.where(jnp.isfinite(log_volume), -jnp.inf, jnp.nan))


@jax.custom_jvp
@jax.jit
def _log_evidence(problem: Problem) -> Array:
    """`log_evidence` for one leading axis of points."""
    return in_blocks(lambda problem: solve(problem)[0], problem, size=BLOCK_SIZE)


@_log_evidence.defjvp
def _log_evidence_jvp(primals: tuple[Problem], tangents: tuple[Problem]) -> tuple[Array, Array]:
    values, slopes = _evidences_with_gradients(once_differentiable(primals[0]))
    (tangent,) = tangents
    moved = jnp.sum(slopes.deviation * tangent.deviation, axis=-1)
    moved = moved + jnp.sum(slopes.weights * tangent.weights, axis=(-2, -1))
    if tangent.covariance is not None:
        moved = moved + jnp.sum(slopes.covariance * tangent.covariance, axis=(-2, -1))
    return values, moved


@jax.jit
def _evidences_with_gradients(problem: Problem) -> tuple[Array, Problem]:
    return in_blocks(_evidence_with_gradient, problem, size=BLOCK_SIZE)


def solve(problem: Problem) -> tuple[Array, FixedPoint]:
    """Log evidence of a block of points, and the fixed point from which it is computed.

    It is ``-inf`` outside of the support, NaN where the passes have not converged.
    """
    found = fixed_point(problem)
    law = found.law
    terms = interval_terms(law, found.sites)
    logs = jnp.sum(terms, axis=-1) - 0.5 * (law.log_determinant + law.quadratic)
    logs = jnp.where(found.converged, logs, jnp.nan)
    return jnp.where(found.outside, -jnp.inf, logs), found


def interval_terms(law: Posterior, sites: Sites) -> Array:
    """Of each uniform, the log integral over its interval minus that of its site."""
    hole = cavity(law, sites)
    # Both relative to the point.
    terms = hole.moments().log_mass - math.log(2.0) + 0.5 * jnp.log(law.precision)
    terms = terms - 0.5 * hole.slope_of_marginal**2 / law.precision
    gap = hole.point - law.mean
    return terms + gap * (0.5 * sites.precision * (hole.point + law.mean) - sites.slope)


def _evidence_with_gradient(problem: Problem) -> tuple[Array, Problem]:
    logs, found = solve(problem)
    law = found.law
    size = problem.deviation.shape[-1]
    identity = jnp.broadcast_to(jnp.eye(size, dtype=law.pull.dtype), (*law.pull.shape, size))
    if problem.by_inputs:
        # S0^-1 W V and S^-1, from whitened columns W' M^T.
        columns = matmul(found.whitened.weights, law.root.mT)
        spread = solve_lower(law.factor, matmul(columns, law.root), transposed=True)
        inverse = solve_lower(law.factor, identity)
        part = matmul(columns.mT, inverse)
        inverse = matmul(inverse.mT, inverse) - matmul(part.mT, part)
    else:
        spread = solve_lower(law.factor, law.root, transposed=True)
        spread = spread / found.sites.precision[..., None, :]
        half = solve_lower(law.factor, identity)
        inverse = matmul(half.mT, half)
    pull = law.pull
    by_weight = pull[..., None] * law.mean[..., None, :] - spread
    by_covariance = 0.5 * (pull[..., None] * pull[..., None, :] - inverse)
    some = jnp.isfinite(logs)
    slopes = Problem(
        jnp.where(some[..., None], -pull, 0.0),
        jnp.where(some[..., None, None], by_weight, 0.0),
        jnp.where(some[..., None, None], by_covariance, 0.0),
    )
    return logs, slopes
