r"""The normal law that approximates the posterior of the uniforms, with sites in place of the box.

With the sites :math:`\exp(-\tau_k u_k^2/2 + \nu_k u_k)` and outputs :math:`r = W u + e`,
:math:`e \sim N(0, S_0)`, everything follows from one factorization, in one of two forms:

- of :math:`S = W T^{-1} W^T + S_0`, of the size of the outputs, which needs no normal part;
- of :math:`P = W^T S_0^{-1} W + T`, of the size of the inputs (Woodbury), if there are fewer
  inputs: then sites may be zero, and small noise costs no digits.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from nn_uq_dist.basics._checks import refused
from nn_uq_dist.basics._row_algebra import gram, matmul, matvec

# The passes are a loop of unknown length.
undifferentiated = refused(
    "derivatives of moments, scores and draws given outputs are not implemented: expected "
    "values and parameters that are not differentiated; use finite differences, or log_prob, "
    "which has gradients"
)


class Sites(NamedTuple):
    """Precisions ``tau`` and slopes ``nu`` of the sites, shape (..., n)."""

    precision: Array
    slope: Array


class Problem(NamedTuple):
    """Deviations from the mean, weights and the covariance of the normal part.

    Attributes
    ----------
    deviation : Array, shape (..., d)
    weights : Array, shape (..., d, n)
    covariance : Array, shape (..., d, d), or None
    """

    deviation: Array
    weights: Array
    covariance: Array | None

    @property
    def by_inputs(self) -> bool:
        """Whether the factorization is of the size of the inputs."""
        return self.covariance is not None and self.weights.shape[-1] <= self.weights.shape[-2]


class Whitened(NamedTuple):
    """The problem in other coordinates of the outputs, which are the same in all passes.

    Attributes
    ----------
    scale_tril : Array, shape (..., d, d)
        Lower triangular ``L``: in the form of the inputs the Cholesky factor of the covariance of
        the normal part, in the form of the outputs roughly that of the covariance of the outputs.
        With these coordinates rounding is the same in all passes; otherwise they would not settle
        in single precision: three outputs on a plane, apart from noise of .02 sd, had no density
        for 11% of their draws.
    weights : Array, shape (..., d, n)
        ``L^-1 W``.
    deviation : Array, shape (..., d)
        ``L^-1 r``.
    covariance : Array, shape (..., d, d), or None
        ``L^-1 S_0 L^-T`` in the form of the outputs, if there is a normal part.
    """

    scale_tril: Array
    weights: Array
    deviation: Array
    covariance: Array | None


class Posterior(NamedTuple):
    r"""The normal law of the uniforms under the sites.

    Attributes
    ----------
    mean, precision : Array, shape (..., n)
        Mean of each uniform, and one over its variance.
    pull : Array, shape (..., d)
        :math:`S^{-1}(r - W \nu/\tau)`, which equals :math:`S_0^{-1}(r - W m)`.
    quadratic : Array, shape (...)
        :math:`(r - W m)^T S_0^{-1} (r - W m)`.
    log_determinant : Array, shape (...)
        :math:`\log|2 \pi S| + \log|T|`, which equals :math:`\log|2 \pi S_0| + \log|P|`.
    root : Array
        In the form of the inputs the inverse factor ``M`` with ``M^T M = P^-1``; in the form of the
        outputs ``L^-1 W``, with ``L L^T = S``.
    factor : Array, shape (..., d, d)
        Cholesky factor of ``S`` in the form of the outputs; in the form of the inputs, of the
        normal part.
    """

    mean: Array
    precision: Array
    pull: Array
    quadratic: Array
    log_determinant: Array
    root: Array
    factor: Array


def of_one_shape(deviation: Array, weights: Array, covariance: Array | None) -> Problem:
    """The parts, broadcast to the same leading axes."""
    parts = [(deviation, 1), (weights, 2)] + ([] if covariance is None else [(covariance, 2)])
    shape = jnp.broadcast_shapes(*(part.shape[: part.ndim - rank] for part, rank in parts))
    wide = [
        jnp.broadcast_to(part, (*shape, *part.shape[part.ndim - rank :])) for part, rank in parts
    ]
    return Problem(wide[0], wide[1], None if covariance is None else wide[2])


def flattened(problem: Problem) -> Problem:
    """The same points along one leading axis."""
    rank = problem.deviation.ndim - 1
    return jax.tree.map(lambda part: part.reshape(-1, *part.shape[rank:]), problem)


def solve_lower(factor: Array, right: Array, *, transposed: bool = False) -> Array:
    """Solve with a lower triangular matrix, shapes (..., d, d) and (..., d, m)."""
    shape = jnp.broadcast_shapes(factor.shape[:-2], right.shape[:-2])
    factor = jnp.broadcast_to(factor, (*shape, *factor.shape[-2:]))
    right = jnp.broadcast_to(right, (*shape, *right.shape[-2:]))
    return lax.linalg.triangular_solve(
        factor, right, left_side=True, lower=True, transpose_a=transposed
    )


def log_diagonal(factor: Array) -> Array:
    """Logarithm of the determinant of a triangular matrix."""
    return jnp.sum(jnp.log(jnp.diagonal(factor, axis1=-2, axis2=-1)), axis=-1)


def normal_factor(weights: Array, covariance: Array) -> Array:
    """Cholesky factor of the covariance of the normal part, even if that is singular.

    A normal part of less than full rank gets noise far below any measurable size. Otherwise
    rounding may leave it a factor whose pivots are only rounding errors.
    """
    factor = jnp.linalg.cholesky(covariance)
    eps = float(jnp.finfo(covariance.dtype).eps)
    own = jnp.diagonal(covariance, axis1=-2, axis2=-1)
    total = jnp.sum(weights**2, axis=-1) / 3.0 + own
    identity = jnp.eye(total.shape[-1], dtype=total.dtype)
    nudged = jnp.linalg.cholesky(covariance + eps**0.625 * total[..., None] * identity)
    pivots = jnp.diagonal(factor, axis1=-2, axis2=-1) ** 2
    regular = jnp.all(pivots > 100.0 * eps * own, axis=-1)[..., None, None]
    return jnp.where(regular, factor, nudged)


def whiten(problem: Problem) -> Whitened:
    """The problem in the coordinates of its form."""
    deviation, weights, covariance = problem
    columns = jnp.concatenate([weights, deviation[..., None]], axis=-1)
    if covariance is not None and problem.by_inputs:
        factor = normal_factor(weights, covariance)
        whitened = solve_lower(factor, columns)
        return Whitened(factor, whitened[..., :-1], whitened[..., -1], None)
    total = gram(weights) / 3.0
    total = total if covariance is None else total + covariance
    # Any triangular matrix with a positive diagonal will do.
    eps = float(jnp.finfo(total.dtype).eps)
    nudge = 4.0 * eps * jnp.diagonal(total, axis1=-2, axis2=-1)
    factor = jnp.linalg.cholesky(
        total + nudge[..., None] * jnp.eye(total.shape[-1], dtype=total.dtype)
    )
    whitened = solve_lower(factor, columns)
    if covariance is not None:
        covariance = solve_lower(factor, solve_lower(factor, covariance).mT)
    return Whitened(factor, whitened[..., :-1], whitened[..., -1], covariance)


def posterior(problem: Problem, whitened: Whitened, sites: Sites) -> Posterior:
    """The normal law of the uniforms under these sites."""
    return _by_inputs(whitened, sites) if problem.by_inputs else _by_outputs(whitened, sites)


def _by_outputs(problem: Whitened, sites: Sites) -> Posterior:
    tril, weights, deviation, covariance = problem
    precision, slope = sites
    spread = matmul(weights / precision[..., None, :], weights.mT)
    spread = spread if covariance is None else spread + covariance
    factor = jnp.linalg.cholesky(spread)
    center = slope / precision
    rest = deviation - matvec(weights, center)
    solved = solve_lower(factor, jnp.concatenate([weights, rest[..., None]], axis=-1))
    root, rest = solved[..., :-1], solved[..., -1]
    known = jnp.sum(root * root, axis=-2)
    mean = center + jnp.sum(root * rest[..., None], axis=-2) / precision
    # The difference is zero where the outputs determine an input; rounding must not make it
    # negative.
    least = float(jnp.finfo(mean.dtype).eps) * precision
    marginal = precision * precision / jnp.maximum(precision - known, least)
    pull = solve_lower(factor, rest[..., None], transposed=True)
    if covariance is None:
        quadratic = jnp.zeros(pull.shape[:-2], pull.dtype)
    else:
        quadratic = jnp.sum(pull * matmul(covariance, pull), axis=(-2, -1))
    pull = solve_lower(tril, pull, transposed=True)[..., 0]
    size = deviation.shape[-1] * float(np.log(2.0 * np.pi))
    log_determinant = 2.0 * (log_diagonal(tril) + log_diagonal(factor)) + size
    log_determinant = log_determinant + jnp.sum(jnp.log(precision), axis=-1)
    factor = matmul(tril, factor)
    return Posterior(mean, marginal, pull, quadratic, log_determinant, root, factor)


def _by_inputs(problem: Whitened, sites: Sites) -> Posterior:
    tril, whitened, deviation, _ = problem
    num_outputs, count = whitened.shape[-2:]
    identity = jnp.eye(count, dtype=whitened.dtype)
    total = matmul(whitened.mT, whitened) + sites.precision[..., None] * identity
    lower = jnp.linalg.cholesky(total)
    root = solve_lower(lower, jnp.broadcast_to(identity, lower.shape))
    right = matvec(whitened.mT, deviation) + sites.slope
    mean = matvec(root.mT, matvec(root, right))
    precision = 1.0 / jnp.sum(root * root, axis=-2)
    rest = deviation - matvec(whitened, mean)
    pull = solve_lower(tril, rest[..., None], transposed=True)[..., 0]
    size = num_outputs * float(np.log(2.0 * np.pi))
    log_determinant = 2.0 * (log_diagonal(tril) + log_diagonal(lower)) + size
    quadratic = jnp.sum(rest * rest, axis=-1)
    return Posterior(mean, precision, pull, quadratic, log_determinant, root, tril)


def input_covariance(problem: Problem, sites: Sites, root: Array) -> Array:
    """Covariance of the uniforms, from the root of `Posterior`."""
    if problem.by_inputs:
        return matmul(root.mT, root)
    scaled = root / sites.precision[..., None, :]
    identity = jnp.eye(root.shape[-1], dtype=root.dtype)
    return identity / sites.precision[..., None] - matmul(scaled.mT, scaled)
