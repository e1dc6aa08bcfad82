r"""The normal distribution that approximates that of the uniforms, with sites in place of the box.

With sites :math:`\exp(-\tau_k u_k^2/2 + \nu_k u_k)` and outputs :math:`b = A u + e`,
:math:`e \sim N(0, C)`, everything follows from one factorization, of the smaller of two matrices:

- :math:`P = A^T A + T`, of the size of the inputs, in units of the normal part, so that
  :math:`C = I`: then sites may be zero, and small noise costs no digits. It is formed along the
  singular vectors of `A`, largest first: squares of 1e4, for noise of 1e-4, would round the sites
  away where some direction of the inputs moves no output;
- :math:`S = A T^{-1} A^T + C`, of the size of the outputs, which needs no normal part.
"""

import math
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import Array, lax

from nn_uq_dist.basics.checks import not_differentiable
from nn_uq_dist.basics.row_algebra import joined, matmul, matvec, norm, solve_lower

# The passes are a loop of unknown length.
undifferentiated = not_differentiable(
    "derivatives of moments, scores and draws given outputs are not implemented: expected "
    "values and parameters that are not differentiated; use finite differences, or log_prob, "
    "which has gradients"
)


class Directions(NamedTuple):
    """Singular values, largest first, and vectors of the weights.

    Attributes
    ----------
    scale : Array, shape (..., n)
    right : Array, shape (..., n, n)
        A row for each direction of the uniforms.
    target : Array, shape (..., n)
        The target along the directions of the outputs.
    """

    scale: Array
    right: Array
    target: Array


class Problem(NamedTuple):
    """Outputs in coordinates in which their covariance is near one.

    Attributes
    ----------
    target : Array, shape (..., d)
        Deviations from the mean, less the images of `start`.
    weights : Array, shape (..., d, n)
        Without leading axes if all points have one distribution.
    covariance : Array, shape (..., d, d), or None
        Of the normal part, with as many axes as the weights: the identity if ``n <= d``.
    start : Array, shape (..., n)
        Uniforms from which means are counted.
    directions : Directions or None
        Those of a factorization of the size of the inputs; one without is of that of the outputs.
    """

    target: Array
    weights: Array
    covariance: Array | None
    start: Array
    directions: Directions | None = None

    @property
    def by_inputs(self) -> bool:
        """Whether the factorization is of the size of the inputs."""
        return self.directions is not None

    @property
    def of_points(self) -> tuple[Any, ...]:
        """What differs from point to point of one distribution."""
        return self.target, self.start, self.directions and self.directions.target

    def at(self, target: Array, start: Array, along: Any) -> "Problem":
        """The same distribution at other points."""
        directions = self.directions and self.directions._replace(target=along)
        return self._replace(target=target, start=start, directions=directions)


class Sites(NamedTuple):
    """Precisions ``tau`` and slopes ``nu`` of the sites, shape (..., n)."""

    precision: Array
    slope: Array


class Gaussian(NamedTuple):
    r"""The normal distribution of the uniforms under the sites.

    Attributes
    ----------
    mean : Array, shape (..., n)
    offset : Array, shape (..., n)
        The mean less ``start``.
    cavity_precision : Array, shape (..., n)
        One over the variance of each uniform, without the precision of its site.
    residual : Array, shape (..., d)
        :math:`S^{-1}(b - A \nu/\tau) = C^{-1}(b - A m)`.
    quadratic : Array, shape (...)
        :math:`(b - A m)^T C^{-1} (b - A m)`.
    log_determinant : Array, shape (...)
        :math:`\log|S| + \log|T| = \log|C| + \log|P|`.
    root : Array
        By inputs a matrix ``M`` with ``M^T M = P^-1``; by outputs ``L^-1 A``.
    factor : Array
        Lower Cholesky factor ``L`` of ``P`` or ``S``.
    """

    mean: Array
    offset: Array
    cavity_precision: Array
    residual: Array
    quadratic: Array
    log_determinant: Array
    root: Array
    factor: Array


def log_diagonal(factor: Array) -> Array:
    """Logarithm of the determinant of a triangular matrix."""
    return jnp.sum(jnp.log(jnp.diagonal(factor, axis1=-2, axis2=-1)), axis=-1)


def normal_factor(weights: Array, normal_weights: Array, known: int | None = None) -> Any:
    """Lower triangular factor of the covariance of the normal part, even if that is singular.

    From the columns, as the covariance does not hold the noise of outputs that repeat others. A
    normal part that leaves one of the first ``known`` outputs (default: all) no noise of its own
    gives them noise far below any measurable size.
    """
    factor, total = triangular(normal_weights), norm(joined([weights, normal_weights]))
    eps = float(jnp.finfo(factor.dtype).eps)
    pivots = jnp.diagonal(factor, axis1=-2, axis2=-1)
    regular = jnp.all((pivots > 16.0 * eps * norm(normal_weights))[..., :known], axis=-1)
    shape = (*jnp.broadcast_shapes(factor.shape[:-2], total.shape[:-1]), *factor.shape[-2:])
    noise = (eps**0.3125 * total)[..., None] * jnp.eye(total.shape[-1], dtype=total.dtype)

    def nudged() -> Array:
        moved = triangular(joined([normal_weights, noise[..., :known]]))
        return jnp.where(regular[..., None, None], factor, moved)

    # A second factorization, which nearly all distributions do without, takes as long as the first.
    return lax.cond(jnp.all(regular), lambda: jnp.broadcast_to(factor, shape), nudged)


def triangular(columns: Array) -> Array:
    """A lower triangular factor, its diagonal not negative, of the product with the transpose."""
    missing = columns.shape[-2] - columns.shape[-1]
    if missing > 0:
        none = jnp.zeros_like(columns[..., :1]).repeat(missing, axis=-1)
        columns = joined([columns, none])
    factor = jnp.linalg.qr(columns.mT, mode="r").mT
    sign = jnp.where(jnp.diagonal(factor, axis1=-2, axis2=-1) < 0.0, -1.0, 1.0)
    return factor * sign[..., None, :]


def whitened(
    deviation: Array, weights: Array, normal_weights: Array | None
) -> tuple[Problem, Array]:
    r"""The problems of all points along one axis, and the constants of their log densities.

    These are :math:`\log|L| + \frac d2 \log 2\pi` with the unit of volume :math:`|L|`.

    Parameters
    ----------
    deviation : Array, shape (..., d)
    weights : Array, shape (..., d, n)
    normal_weights : Array, shape (..., d, m), or None

    Notes
    -----
    Coordinates are the same in all passes. In those of the outputs themselves rounding would
    differ, and passes would not settle in single precision: three outputs on a plane, apart from
    noise of .02 sd, had no density for 11% of their draws. No result depends on the coordinates,
    so no gradient flows through them.
    """
    fixed, normal = lax.stop_gradient((weights, normal_weights))
    by_inputs = normal is not None and weights.shape[-1] <= weights.shape[-2]
    if normal is not None and by_inputs:
        factor = normal_factor(fixed, normal)
    else:
        columns = joined([fixed / math.sqrt(3.0), normal])
        factor = _with_pivots(triangular(columns), columns)
    shape, size = batch_shape(deviation, weights, normal_weights), weights.shape[-1]
    weights, covariance = solve_lower(factor, weights), None
    if normal_weights is not None:
        normal = solve_lower(factor, normal_weights)
        covariance = matmul(normal, normal.mT)
    if weights.ndim == 2:
        target = solve_lower(factor, deviation.reshape(-1, deviation.shape[-1]).T).T
    else:
        target = solve_lower(factor, deviation[..., None])[..., 0]
        target, weights = _for_each(shape, target, 1), _for_each(shape, weights, 2)
        covariance = None if covariance is None else _for_each(shape, covariance, 2)
    problem = Problem(
        target, weights, covariance, jnp.zeros((*target.shape[:-1], size), target.dtype)
    )
    constant = log_diagonal(factor) + 0.5 * deviation.shape[-1] * math.log(2.0 * math.pi)
    return (
        _from_ridge_solution(problem) if by_inputs else problem,
        jnp.broadcast_to(constant, shape).ravel(),
    )


def _with_pivots(factor: Array, columns: Array) -> Array:
    """The factor with a diagonal above rounding."""
    least = 4.0 * float(jnp.finfo(columns.dtype).eps) * norm(columns)
    sized = jnp.maximum(jnp.diagonal(factor, axis1=-2, axis2=-1), least)
    return jnp.where(jnp.eye(columns.shape[-2], dtype=bool), sized[..., None], factor)


def _from_ridge_solution(problem: Problem) -> Problem:
    r"""Uniforms :math:`x` nearest to the target ``b`` as the start, and what they leave of it.

    Along a direction of scale `s` these are ``x = s b / (s^2 + 3)`` and ``b - s x = b / (s^2/3 +
    1)``. Noise at rounding level makes `b` and `s` large numbers, whose difference, zero but for
    rounding, would be tens of nats.
    """
    target, weights = lax.stop_gradient(problem[:2])
    left, scale, right = jnp.linalg.svd(weights, full_matrices=False)
    share = scale**2 / 3.0 + 1.0
    over, start, along = target, problem.start, jnp.zeros_like(problem.start)
    outside = target
    # The second time takes away what rounding, which the condition multiplies, has left.
    for _ in range(2):
        coordinates = matvec(left.mT, over)
        start = start + matvec(right.mT, scale / share * coordinates) / 3.0
        along = along + coordinates / share
        # Nothing, and not its rounding, if there are as many outputs as directions.
        outside = (
            0.0 * over if left.shape[-2] == left.shape[-1] else over - matvec(left, coordinates)
        )
        over = target - matvec(weights, start) - matvec(left, along)
    rest = matvec(left, along) + outside
    # The value of what is left, with the slope of the target.
    moved = rest + (problem.target - target)
    return problem._replace(target=moved, start=start, directions=Directions(scale, right, along))


def batch_shape(deviation: Array, weights: Array, normal_weights: Array | None) -> tuple[int, ...]:
    """Leading axes of the points."""
    normal = () if normal_weights is None else normal_weights.shape[:-2]
    return jnp.broadcast_shapes(deviation.shape[:-1], weights.shape[:-2], normal)


def _for_each(shape: tuple[int, ...], part: Array, rank: int) -> Array:
    last = part.shape[part.ndim - rank :]
    return jnp.broadcast_to(part, (*shape, *last)).reshape(-1, *last)


def gaussian(problem: Problem, sites: Sites, near: Array) -> Gaussian:
    """The normal distribution of the uniforms under these sites.

    Parameters
    ----------
    problem : Problem
    sites : Sites
    near : Array, shape (..., n)
        Numbers near the offset, such as the offset of the last pass. The offset is computed as a
        difference from them, so that no large numbers cancel where outputs determine an input.
    """
    target, weights, covariance, start, directions = problem
    precision, slope = sites
    if directions is not None:
        scale, right, along = directions
        identity = jnp.eye(scale.shape[-1], dtype=scale.dtype)
        turned = matmul(right * precision[..., None, :], right.mT)
        factor = jnp.linalg.cholesky(turned + (scale * scale)[..., None] * identity)
        root = solve_lower(factor, jnp.broadcast_to(right, factor.shape))
        pull = scale * (along - scale * matvec(right, near))
        pull = pull + matvec(right, slope - precision * (start + near))
        half = solve_lower(factor, pull[..., None])[..., 0]
        offset = near + matvec(root.mT, half)
        cavity = jnp.maximum(1.0 / jnp.sum(root * root, axis=-2) - precision, 0.0)
        residual = target - matvec(weights, offset)
        quadratic = jnp.sum(residual * residual, axis=-1)
        log_determinant = 2.0 * log_diagonal(factor)
        return Gaussian(
            start + offset, offset, cavity, residual, quadratic, log_determinant, root, factor
        )
    spread = matmul(weights / precision[..., None, :], weights.mT)
    factor = jnp.linalg.cholesky(spread if covariance is None else spread + covariance)
    center = slope / precision
    rest = (target - matvec(weights, center))[..., None]
    columns = jnp.broadcast_to(weights, (*rest.shape[:-2], *weights.shape[-2:]))
    solved = solve_lower(factor, jnp.concatenate([columns, rest], axis=-1))
    root, rest = solved[..., :-1], solved[..., -1:]
    mean = center + jnp.sum(root * rest, axis=-2) / precision
    seen = jnp.sum(root * root, axis=-2)
    # The difference is zero where the outputs determine an input; rounding must not make it
    # negative.
    least = float(jnp.finfo(mean.dtype).eps) * precision
    cavity = seen * precision / jnp.maximum(precision - seen, least)
    pull = solve_lower(factor, rest, transposed=True)
    quadratic = jnp.zeros_like(rest) if covariance is None else pull * matmul(covariance, pull)
    log_determinant = 2.0 * log_diagonal(factor) + jnp.sum(jnp.log(precision), axis=-1)
    return Gaussian(
        mean,
        mean,
        cavity,
        pull[..., 0],
        jnp.sum(quadratic, (-2, -1)),
        log_determinant,
        root,
        factor,
    )


def input_covariance(problem: Problem, sites: Sites, root: Array) -> Array:
    """Covariance of the uniforms, from the root of `Gaussian`."""
    if problem.by_inputs:
        return matmul(root.mT, root)
    scaled = root / sites.precision[..., None, :]
    identity = jnp.eye(root.shape[-1], dtype=root.dtype)
    return identity / sites.precision[..., None] - matmul(scaled.mT, scaled)
