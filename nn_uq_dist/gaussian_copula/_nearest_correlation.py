"""The nearest correlation matrix with a floor under its eigenvalues, and its derivative."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.scipy.sparse.linalg import cg
from jax.typing import ArrayLike

from nn_uq_dist.basics import _checks
from nn_uq_dist.basics._row_algebra import matmul
from nn_uq_dist.gaussian_copula._correlation_checks import as_correlation

_MAX_NEWTON_STEPS = 60
_MAX_HALVINGS = 20
_SUFFICIENT_DECREASE = 1e-4
_FLOOR_SLACK = 8  # rounding of the smallest eigenvalue, in epsilons times the largest one


def nearest_correlation(matrix: ArrayLike, min_eigenvalue: ArrayLike = 1e-4) -> Array:
    r"""Return the correlation matrix nearest to `matrix` with a floor under its eigenvalues.

    It minimizes the Frobenius norm :math:`\|X - G\|_F` over symmetric :math:`X` with unit
    diagonal and eigenvalues :math:`\ge` `min_eigenvalue` (Higham 2002), by Newton's method on the
    dual (Qi and Sun 2006; Borsdorf and Higham 2010). The result is exactly symmetric, its diagonal
    is exactly 1, and a matrix that qualifies is returned unchanged.

    The floor holds up to rounding. In tests with a floor of 1e-4, the smallest eigenvalue of a
    repaired matrix was below the floor by at most 3e-7 (31 outputs) and 7e-6 (500) in float32,
    4e-15 and 7e-13 in float64. A matrix qualifies if its smallest eigenvalue is below the floor by
    at most :math:`8 \varepsilon \max(\lambda_{\max}, \sqrt N)` (:math:`\varepsilon` the machine
    epsilon) and a tenth of a positive floor.

    Derivatives in both arguments are those of the minimizer, in forward and reverse mode; no
    perturbation changes the diagonal. Second derivatives are zero where `matrix` qualifies, and NaN
    where it is repaired.

    Parameters
    ----------
    matrix
        Symmetric with unit diagonal, shape ``(..., N, N)``; entries may exceed 1. Under ``jit``,
        where it cannot be checked, its symmetric part is used and its diagonal ignored: neither
        changes the minimizer.
    min_eigenvalue
        The floor, a scalar in ``[0, 1)``.

    Returns
    -------
    Array
        Same shape as `matrix`; same dtype, but at least float32. NaN where traced arguments are
        invalid, or where rounding (huge entries) leaves less than half of the digits.

    Raises
    ------
    TypeError
        If an argument is not an array of real numbers.
    ValueError
        If `matrix` is not square, or known and not finite, not symmetric or without unit
        diagonal; if `min_eigenvalue` is not a scalar, or known and outside ``[0, 1)``.

    References
    ----------
    N. J. Higham, "Computing the nearest correlation matrix: a problem from finance",
    IMA J. Numer. Anal. 22 (2002), 329-343.

    H. Qi and D. Sun, "A quadratically convergent Newton method for computing the nearest
    correlation matrix", SIAM J. Matrix Anal. Appl. 28 (2006), 360-385.

    R. Borsdorf and N. J. Higham, "A preconditioned Newton algorithm for the nearest
    correlation matrix", IMA J. Numer. Anal. 30 (2010), 94-107.

    Examples
    --------
    >>> import nn_uq_dist as nuq
    >>> R = nuq.distributions.nearest_correlation(
    ...     [[1, 1, 0], [1, 1, 1], [0, 1, 1]], min_eigenvalue=0
    ... )
    >>> print(f"{R[0, 1]:.4f} {R[0, 2]:.4f}")
    0.7607 0.1573
    """
    matrix = as_correlation("matrix", matrix)
    dtype = jnp.promote_types(_checks.float_dtype(matrix), jnp.float32)
    floor = checked_floor(min_eigenvalue, dtype)
    if _checks.is_concrete(matrix, floor):
        symmetric = _known_to_qualify(np.asarray(matrix, dtype), float(floor))
        if symmetric is not None:
            return jnp.asarray(symmetric)
    return _nearest_batch(jnp.asarray(matrix, dtype), floor)


def _known_to_qualify(matrix: np.ndarray, floor: float) -> np.ndarray | None:
    """Return a matrix that clearly qualifies, as `_solve` would, or None to leave it to `_solve`.

    This saves compiling the repair. A matrix within rounding of the floor is left to `_solve`, so
    that traced and known matrices are treated alike.
    """
    symmetric = (matrix + np.swapaxes(matrix, -1, -2)) / 2
    symmetric[..., range(matrix.shape[-1]), range(matrix.shape[-1])] = 1
    eigenvalues = np.linalg.eigvalsh(symmetric.astype(np.float64))
    rounding = _FLOOR_SLACK * float(np.finfo(matrix.dtype).eps) * eigenvalues[..., -1]
    return symmetric if (eigenvalues[..., 0] >= floor + rounding).all() else None


class _DualPoint(NamedTuple):
    r"""A dual variable :math:`y` and the eigenpairs of :math:`G - \epsilon I + Diag(y)`."""

    y: Array
    eigenvalues: Array
    eigenvectors: Array
    gradient: Array
    objective: Array


class _Solution(NamedTuple):
    """The nearest matrix, and the eigenpairs that its derivative needs."""

    matrix: Array
    eigenvalues: Array
    eigenvectors: Array
    is_unchanged: Array


@jax.jit
def _nearest_batch(matrix: Array, floor: Array) -> Array:
    nearest = jnp.vectorize(lambda *args: _solve(*args).matrix, signature="(n,n),()->(n,n)")
    return nearest(matrix, floor)


@jax.custom_jvp
def _solve(matrix: Array, floor: Array) -> _Solution:
    epsilon, identity = _epsilon(matrix), jnp.eye(matrix.shape[-1], dtype=matrix.dtype)
    is_valid = jnp.isfinite(matrix).all() & (floor >= 0) & (floor < 1)
    matrix = jnp.where(is_valid, _off_diagonal(matrix), 0) + identity
    diagonal = 1 - floor
    shifted = matrix - floor * identity

    start = _dual_point(jnp.zeros_like(matrix[0]), shifted, diagonal)
    largest = jnp.maximum(_largest(start), matrix.shape[-1] ** 0.5)
    slack = _FLOOR_SLACK * epsilon * largest
    # A floor close to the size of rounding errors must still raise the eigenvalues of a singular
    # matrix.
    slack = jnp.where(floor > 0, jnp.minimum(slack, floor / 10), slack)
    is_unchanged = start.eigenvalues[0] >= -slack
    point = _minimize_dual(start, shifted, diagonal, is_unchanged)

    root = point.eigenvectors * jnp.sqrt(jnp.maximum(point.eigenvalues, 0))
    part = matmul(root, root.T)
    # The gradient is the error of the diagonal. Scaling removes the remaining error, and does not
    # affect the floor, because it is applied before the floor is added back.
    ratio = jnp.sqrt(diagonal / jnp.diagonal(part))
    # The upper triangle is copied to the lower one. Their mean would not be exactly symmetric: the
    # compiler may fuse the product and the sum of one triangle and not those of the other.
    upper = jnp.triu(ratio[:, None] * part * ratio, 1)
    repaired = upper + upper.T + identity
    is_valid = is_valid & (is_unchanged | (_error(point) <= epsilon**0.5))
    # Identity and ones make the projection derivative of an unchanged matrix the identity.
    return _Solution(
        jnp.where(is_valid, jnp.where(is_unchanged, matrix, repaired), jnp.nan),
        jnp.where(is_unchanged, 1, point.eigenvalues),
        jnp.where(is_valid, jnp.where(is_unchanged, identity, point.eigenvectors), jnp.nan),
        is_unchanged,
    )


@_solve.defjvp
def _solve_jvp(
    primals: tuple[Array, Array], tangents: tuple[Array, Array]
) -> tuple[_Solution, _Solution]:
    """Differentiate the optimality conditions (implicit function theorem)."""
    floor_dot = tangents[1]
    matrix_dot = _off_diagonal(tangents[0])
    solution = _solve(*primals)
    _, values, vectors, is_unchanged = solution
    fixed = _projection_derivative(values, vectors, matrix_dot)
    # `y_dot` here is the derivative of `y - floor`; the diagonal of the result must not move.
    y_dot = _newton_step(
        values,
        vectors,
        -floor_dot - jnp.diagonal(fixed),
        tolerance=10 * _epsilon(values),
        max_steps=20 + 4 * len(values),
    )
    moved = fixed + _projection_derivative(values, vectors, jnp.diag(y_dot))
    # Derivatives of eigenvectors blow up if eigenvalues are close, as those of a matrix of low rank
    # are. So second derivatives are NaN rather than wrong.
    unknown = jnp.where(is_unchanged, 0, jnp.nan) * (jnp.sum(matrix_dot) + floor_dot)
    return solution, _Solution(
        _off_diagonal(moved),
        jnp.broadcast_to(unknown, values.shape),
        jnp.broadcast_to(unknown, vectors.shape),
        np.zeros(is_unchanged.shape, jax.dtypes.float0),  # type: ignore[arg-type]
    )


def _minimize_dual(
    start: _DualPoint, shifted: Array, diagonal: Array, is_done: Array
) -> _DualPoint:
    """Newton's method of Qi and Sun on the dual, which is convex with Lipschitz gradient."""
    epsilon = _epsilon(shifted)
    State = tuple[_DualPoint, Array, Array]

    def goes_on(state: State) -> Array:
        point, is_done, count = state
        return ~is_done & (count < _MAX_NEWTON_STEPS) & jnp.isfinite(_error(point))

    def step(state: State) -> State:
        point, _, count = state
        error, rounding = _error(point), epsilon * _largest(point)
        direction = _newton_step(
            point.eigenvalues,
            point.eigenvectors,
            -point.gradient,
            tolerance=jnp.clip(error, 1e-3, 0.1),
            max_steps=200,
            # Far from the optimum the generalized Hessian may be singular.
            damping=0.01 * jnp.minimum(error, 1),
        )
        trial = _line_search(point, direction, shifted, diagonal)
        trial_error = _error(trial)
        # Close to rounding, Newton's method makes no more progress and would run to the limit.
        is_stalled = (trial_error > error / 2) & (error < 30 * rounding)
        keep = is_stalled & (trial_error > error)
        best = jax.tree.map(lambda old, new: jnp.where(keep, old, new), point, trial)
        return best, is_stalled | (trial_error <= rounding), count + 1

    return lax.while_loop(goes_on, step, (start, is_done, jnp.int32(0)))[0]


def _line_search(
    point: _DualPoint, direction: Array, shifted: Array, diagonal: Array
) -> _DualPoint:
    """Halve the step until the dual objective decreases enough (Armijo)."""
    slope = jnp.vdot(point.gradient, direction)
    # Near the optimum the decrease is smaller than the rounding errors of these terms.
    terms = jnp.sum(point.eigenvalues**2) + diagonal * jnp.sum(jnp.abs(point.y))
    slack = 10 * _epsilon(slope) * terms

    def is_too_high(state: tuple[Array, _DualPoint]) -> Array:
        length, trial = state
        bound = point.objective + _SUFFICIENT_DECREASE * length * slope + slack
        return (trial.objective > bound) & (length > 0.5**_MAX_HALVINGS)

    def halve(state: tuple[Array, _DualPoint]) -> tuple[Array, _DualPoint]:
        length = state[0] / 2
        return length, _dual_point(point.y + length * direction, shifted, diagonal)

    full = _dual_point(point.y + direction, shifted, diagonal)
    return lax.while_loop(is_too_high, halve, (jnp.ones_like(slope), full))[1]


def _dual_point(y: Array, shifted: Array, diagonal: Array) -> _DualPoint:
    values, vectors = jnp.linalg.eigh(shifted + jnp.diag(y), symmetrize_input=False)
    positive = jnp.maximum(values, 0)
    gradient = jnp.sum(vectors**2 * positive, axis=-1) - diagonal
    objective = jnp.sum(positive**2) / 2 - diagonal * jnp.sum(y)
    return _DualPoint(y, values, vectors, gradient, objective)


def _newton_step(
    values: Array,
    vectors: Array,
    right: Array,
    *,
    tolerance: ArrayLike,
    max_steps: int,
    damping: ArrayLike = 0.0,
) -> Array:
    r"""Solve :math:`V h` = `right`, :math:`V h = diag(P (\Omega \circ P^T Diag(h) P) P^T)`."""
    loewner, squares = _loewner(values), vectors**2
    # The diagonal of V (Borsdorf and Higham).
    scale = jnp.sum(matmul(squares, loewner) * squares, axis=-1) + damping + _epsilon(right)

    def hessian(h: Array) -> Array:
        inner = loewner * matmul(vectors.T, h[:, None] * vectors)
        return jnp.sum(matmul(vectors, inner) * vectors, axis=-1) + damping * h

    def solve(matvec: Callable[[Array], Array], right: Array) -> Array:
        return cg(matvec, right, tol=tolerance, maxiter=max_steps, M=lambda r: r / scale)[0]

    # `cg` alone cannot be transposed inside a jitted function.
    return lax.custom_linear_solve(hessian, right, solve, symmetric=True)


def _projection_derivative(values: Array, vectors: Array, direction: Array) -> Array:
    """Derivative along `direction` of the projection on positive semidefinite matrices."""
    inner = _loewner(values) * matmul(vectors.T, matmul(direction, vectors))
    return matmul(matmul(vectors, inner), vectors.T)


def _loewner(values: Array) -> Array:
    """Divided differences of ``max(x, 0)``, in a form without cancellation; 1 at ``(0, 0)``."""
    positive = jnp.maximum(values, 0)
    total = jnp.abs(values)[:, None] + jnp.abs(values)
    is_zero = total == 0
    return jnp.where(is_zero, 1, (positive[:, None] + positive) / jnp.where(is_zero, 1, total))


def _error(point: _DualPoint) -> Array:
    return jnp.max(jnp.abs(point.gradient))


def _largest(point: _DualPoint) -> Array:
    return jnp.max(jnp.abs(point.eigenvalues))


def _epsilon(x: Array) -> float:
    return float(jnp.finfo(x.dtype).eps)


def _off_diagonal(matrix: Array) -> Array:
    """Symmetric part with zeros on the diagonal."""
    return jnp.where(jnp.eye(matrix.shape[-1], dtype=bool), 0, (matrix + matrix.T) / 2)


def checked_floor(min_eigenvalue: ArrayLike, dtype: jnp.dtype) -> Array:
    value = _checks.as_numeric("min_eigenvalue", min_eigenvalue)
    if np.shape(value) != ():
        raise ValueError(
            f"min_eigenvalue must be a scalar, got shape {np.shape(value)}; use jax.vmap for many"
        )
    floor = jnp.asarray(value, dtype)
    if _checks.is_concrete(floor) and not 0 <= float(floor) < 1:
        raise ValueError(
            f"min_eigenvalue must be in [0, 1), got {value} (in {dtype}): the eigenvalues of a "
            f"correlation matrix have mean 1; pass a small number such as 1e-4"
        )
    return floor
