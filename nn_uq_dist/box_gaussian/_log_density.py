r"""Log density of several outputs: the probability of a box under a normal distribution.

.. math:: p(r) = \int \prod_k \frac{1(|u_k| < 1)}{2}\, N(r;\, W u,\, S_0)\, du

In coordinates in which the covariance is near one (`whitened`) it is the product of a normal
density and one-dimensional integrals, at the sites of expectation propagation (`fixed_point`).
"""

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import Array

from nn_uq_dist.basics.checks import not_differentiable
from nn_uq_dist.basics.chunks import chunk_size, in_chunks
from nn_uq_dist.basics.row_algebra import matmul, matvec, solve_lower
from nn_uq_dist.box_gaussian._expectation_propagation import FixedPoint, fixed_point
from nn_uq_dist.box_gaussian._gaussian_part import (
    Problem,
    batch_shape,
    input_covariance,
    undifferentiated,
    whitened,
)

# Points at a time on a CPU and elsewhere: all wait for the slowest. On two cores blocks of 32 take
# 1.1 to 1.3 times as long with 12 inputs, of 256 1.2 times; with 31 inputs 1.05. Few go at once: a
# loop takes .2 s to compile.
_BLOCK, _FEW = (16, 256), 128

_once_differentiable = not_differentiable(
    "second derivatives of the joint density are not implemented: expected at most one "
    "differentiation; use finite differences of the gradient"
)


# One program, so that an eager call does not compile each operation separately.
@jax.jit
def log_evidence(deviation: Array, weights: Array, normal_weights: Array | None) -> Array:
    r"""Log density of ``W u + e`` at a point, ``u`` uniform on a box and ``e`` normal.

    By expectation propagation, which is off by a few thousandths for outputs with noise, and exact
    if each output has an input of its own. Where the weights have a smaller rank than there are
    inputs and noise is little, it rounds corners off: see `LinearizedJoint`.

    Parameters
    ----------
    deviation : Array, shape (..., d)
        Points, as differences from the mean; like all outputs, in units near their own size.
    weights : Array, shape (..., d, n)
        Columns of the uniforms on (-1, 1). Points of one distribution, without leading axes of
        both weights, share what does not depend on them.
    normal_weights : Array, shape (..., d, m), or None
        Columns of standard normal variables. Without them there must be at least as many inputs as
        outputs.

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
    Gradients are those of the normal distribution at the sites found: with its mean :math:`m` and
    covariance :math:`V` of the uniforms, and :math:`a = S_0^{-1}(r - W m)`,

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
    if normal_weights is None and weights.shape[-1] <= weights.shape[-2]:
        return _of_parallelepiped(deviation, weights)
    problem, constant = whitened(deviation, weights, normal_weights)
    return (_log_evidence(problem) - constant).reshape(
        batch_shape(deviation, weights, normal_weights)
    )


def _of_parallelepiped(deviation: Array, weights: Array) -> Array:
    """For as many uniforms as outputs the density is constant on the image of the box."""
    num_outputs, count = weights.shape[-2:]
    if count < num_outputs:
        raise ValueError(
            f"{num_outputs} outputs of {count} uniform inputs have no density without a normal "
            "part: they lie on a plane; pass normal_weights, such as those of noise"
        )
    inputs = jnp.linalg.solve(weights, deviation[..., None])[..., 0]
    inside = jnp.all(jnp.abs(inputs) <= 1.0, axis=-1)
    log_volume = jnp.linalg.slogdet(weights)[1] + count * math.log(2.0)
    outside = jnp.where(jnp.isfinite(log_volume), -jnp.inf, jnp.nan)
    # The density does not depend on the value; that of NaN is NaN, as is its slope.
    total = deviation.sum(axis=-1)
    known = jnp.where(inside, -log_volume, outside)
    return jnp.where(jnp.isnan(deviation).any(axis=-1), total, known)


def _solve(problem: Problem, *, for_density: bool = True) -> tuple[Array, FixedPoint]:
    """Log densities, up to the unit of volume, and the fixed points that they are computed from.

    They are ``-inf`` outside of the support, NaN where the passes have not converged.
    """
    solution = fixed_point(problem, for_density=for_density)
    distribution, cavity, sites = solution.gaussian, solution.cavity, solution.sites
    # Of each uniform, the log integral over its interval minus that of its site; both relative to
    # the point.
    terms = cavity.moments().log_mass - math.log(2.0) + 0.5 * jnp.log(cavity.marginal_precision)
    terms = terms - 0.5 * cavity.marginal_slope**2 / cavity.marginal_precision
    gap = cavity.point - distribution.mean
    terms = terms + gap * (0.5 * sites.precision * (cavity.point + distribution.mean) - sites.slope)
    logs = jnp.sum(terms, axis=-1) - 0.5 * (distribution.log_determinant + distribution.quadratic)
    logs = jnp.where(solution.converged, logs, jnp.nan)
    return jnp.where(solution.outside, -jnp.inf, logs), solution


def _by_blocks[Result](function: Callable[[Problem], Result], problem: Problem) -> Result:
    count = len(problem.target)
    size = count if count <= _FEW else chunk_size(*_BLOCK)
    if problem.weights.ndim > 2:
        return in_chunks(function, problem, size=size)
    # One distribution for all.
    return in_chunks(lambda part: function(problem.at(*part)), problem.of_points, size=size)


@jax.custom_jvp
def _log_evidence(problem: Problem) -> Array:
    return _by_blocks(lambda block: _solve(block)[0], problem)


def _with_slopes(problem: Problem) -> tuple[Array, ...]:
    """Log densities, means, residuals, and slopes: ``-V/2`` by inputs, else of ``A`` and ``C``."""
    logs, solution = _solve(problem)
    distribution = solution.gaussian
    if problem.by_inputs:
        slopes = [-0.5 * input_covariance(problem, solution.sites, distribution.root)]
    else:
        columns = solve_lower(distribution.factor, distribution.root, transposed=True)
        identity = jnp.eye(distribution.factor.shape[-1], dtype=logs.dtype)
        half = solve_lower(distribution.factor, identity)
        columns = columns / solution.sites.precision[..., None, :]
        slopes = [-columns, -0.5 * matmul(half.mT, half)]
    return logs, distribution.mean, distribution.residual, *slopes


@_log_evidence.defjvp
def _log_evidence_jvp(primals: tuple[Problem], tangents: tuple[Problem]) -> tuple[Array, Array]:
    problem, (moved,) = _once_differentiable(primals[0]), tangents
    logs, mean, residual, *slopes = _by_blocks(_with_slopes, problem)
    change = matvec(moved.weights, mean) - moved.target
    if moved.covariance is not None:
        change = change + 0.5 * matvec(moved.covariance, residual)
    tangent = jnp.sum(residual * change, axis=-1)
    parts = [moved.weights, moved.covariance]
    if problem.by_inputs and moved.covariance is not None:
        # S^-1 = I - A V A^T: no matrix of the outputs for each point.
        left = problem.weights.mT
        parts = [2.0 * matmul(left, moved.weights - 0.5 * matmul(moved.covariance, left.mT))]
        tangent = tangent - 0.5 * jnp.trace(moved.covariance, axis1=-2, axis2=-1)
    for slope, part in zip(slopes, parts, strict=False):
        tangent = tangent + (0.0 if part is None else jnp.sum(slope * part, axis=(-2, -1)))
    # Zero outside of the support, NaN where the passes have not converged.
    kept = jnp.where(jnp.isnan(logs), jnp.nan, jnp.isfinite(logs).astype(logs.dtype))
    return logs, tangent * kept


def second_order(deviation: Array, weights: Array, normal_weights: Array | None) -> Array:
    r"""Correction of `log_evidence` at a point, which estimates its error.

    Parameters
    ----------
    deviation : Array, shape (..., d)
    weights : Array, shape (..., d, n)
    normal_weights : Array, shape (..., d, m), or None

    Returns
    -------
    Array, shape (...)
        Zero outside of the support, NaN where `log_evidence` is NaN.

    Raises
    ------
    NotImplementedError
        For derivatives.

    Notes
    -----
    The ratio of the density to that of expectation propagation has an expansion in the standardized
    cumulants :math:`\kappa_l`, from the third on, of the uniforms in the box given the outputs; the
    first two cumulants are those of the normal distribution. With its correlations :math:`\rho` the
    second order is

    .. math:: \sum_{l = 3, 4} \frac{1}{2\, l!} \sum_{i \ne j}
              \kappa_{l,i} \kappa_{l,j} \rho_{ij}^l

    (M. Opper, U. Paquet and O. Winther, J. Mach. Learn. Res. 14, 2013). It is not stationary in the
    sites, so its gradients would take as many passes again; `log_evidence` does not include it.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from nn_uq_dist.box_gaussian import log_evidence, second_order
    >>> weights, noise = jnp.array([[1.0, 1.0]]), jnp.array([[1e-2]])  # nearly a triangle
    >>> value = log_evidence(jnp.array([1.5]), weights, noise)
    >>> better = value + second_order(jnp.array([1.5]), weights, noise)
    >>> print(f"{jnp.exp(value):.3f} {jnp.exp(better):.3f}")  # of 0.125
    0.136 0.124
    """
    return _both_orders(deviation, weights, normal_weights)[1]


def corrected_log_evidence(deviation: Array, weights: Array, normal_weights: Array | None) -> Array:
    """`log_evidence` with its second order; without gradients.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from nn_uq_dist.box_gaussian import corrected_log_evidence
    >>> weights = jnp.array([[1.0, 1.0]])  # a triangle, log(1/8) = -2.08
    >>> print(corrected_log_evidence(jnp.array([1.5]), weights, None).round(2))
    -2.09
    """
    return sum(_both_orders(deviation, weights, normal_weights))


@jax.jit
def _both_orders(
    deviation: Array, weights: Array, normal_weights: Array | None
) -> tuple[Array, Array]:
    if normal_weights is None and weights.shape[-1] <= weights.shape[-2]:
        exact = _of_parallelepiped(deviation, weights)
        return exact, jnp.zeros_like(exact)
    problem, constant = whitened(deviation, weights, normal_weights)
    logs, correction = _by_blocks(_with_correction, undifferentiated(problem))
    shape = batch_shape(deviation, weights, normal_weights)
    return (logs - constant).reshape(shape), correction.reshape(shape)


def _with_correction(problem: Problem) -> tuple[Array, Array]:
    logs, solution = _solve(problem, for_density=False)
    cumulants = solution.cavity.skewness_and_kurtosis()
    spread = input_covariance(problem, solution.sites, solution.gaussian.root)
    scale = jnp.sqrt(solution.cavity.marginal_precision)
    correlation = jnp.clip(spread * scale[..., None] * scale[..., None, :], -1.0, 1.0)
    others = correlation * (1.0 - jnp.eye(spread.shape[-1], dtype=spread.dtype))
    terms = [
        jnp.sum(k * matvec(others**order, k), axis=-1) / (2.0 * factorial)
        for k, order, factorial in zip(cumulants, (3, 4), (6.0, 24.0), strict=True)
    ]
    total = jnp.where(jnp.isnan(logs), jnp.nan, terms[0] + terms[1])
    return logs, jnp.where(jnp.isneginf(logs), 0.0, total)
