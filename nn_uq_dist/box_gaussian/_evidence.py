r"""Log density of several outputs: the probability of a box under a normal law.

.. math:: p(r) = \int \prod_k \frac{1(|u_k| < 1)}{2}\, N(r;\, W u,\, S_0)\, du

Many outputs of few inputs need one factorization for all points, then small problems. In
coordinates :math:`b = L^{-1} r`, :math:`A = L^{-1} W`, with :math:`L L^T = S_0`, and with
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
from nn_uq_dist.basics._checks import refused
from nn_uq_dist.basics._row_algebra import matmul, matvec
from nn_uq_dist.box_gaussian._expectation_propagation import FixedPoint, cavity, fixed_point
from nn_uq_dist.box_gaussian._gaussian_part import (
    Problem,
    flattened,
    log_diagonal,
    normal_factor,
    of_one_shape,
    solve_lower,
)
from nn_uq_dist.box_gaussian._own_units import in_own_units

# Points in a block: the arrays of a pass stay in the cache.
BLOCK_SIZE = 256
# With fewer outputs each point gets its own factorization, as when each point has its own law.
FEWEST_OUTPUTS = 256

_once_differentiable = refused(
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
    values, slopes = _evidences_with_gradients(_once_differentiable(primals[0]))
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
    hole, sites = cavity(law, found.sites), found.sites
    # Of each uniform, the log integral over its interval minus that of its site; both relative to
    # the point.
    terms = hole.moments().log_mass - math.log(2.0) + 0.5 * jnp.log(law.precision)
    terms = terms - 0.5 * hole.slope_of_marginal**2 / law.precision
    gap = hole.point - law.mean
    terms = terms + gap * (0.5 * sites.precision * (hole.point + law.mean) - sites.slope)
    logs = jnp.sum(terms, axis=-1) - 0.5 * (law.log_determinant + law.quadratic)
    logs = jnp.where(found.converged, logs, jnp.nan)
    return jnp.where(found.outside, -jnp.inf, logs), found


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
    # Zero outside of the support, NaN where the passes have not converged.
    some, none = jnp.isfinite(logs)[..., None], jnp.where(jnp.isnan(logs), jnp.nan, 0)[..., None]
    slopes = Problem(
        jnp.where(some, -pull, none),
        jnp.where(some[..., None], by_weight, none[..., None]),
        jnp.where(some[..., None], by_covariance, none[..., None]),
    )
    return logs, slopes


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
    return _solve_reduced(deviation, weights, covariance).log_evidence


@_reduced.defjvp
def _reduced_jvp(
    primals: tuple[Array, Array, Array], tangents: tuple[Array, Array, Array]
) -> tuple[Array, Array]:
    """The gradients stated in `log_evidence`, without a matrix of the outputs for each point."""
    found = _solve_reduced(*_once_differentiable(primals))
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
    none = jnp.where(jnp.isnan(found.log_evidence), jnp.nan, 0)
    return found.log_evidence, jnp.where(some, tangent - 0.5 * whole, none)


@jax.jit
def _solve_reduced(deviation: Array, weights: Array, covariance: Array) -> _Reduced:
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
