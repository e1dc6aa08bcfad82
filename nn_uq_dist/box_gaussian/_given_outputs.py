r"""Given some outputs: draws of the uniforms, the normals given those, scores of the next output.

Uniforms are drawn by hit-and-run. Their density is proportional to :math:`N(r - W u;\, 0, S_0)` on
the box; without a normal part they are uniform on its slice :math:`W u = r`. Each step draws a line
through the current point, and a new point on it (R. L. Smith, Operations Research 32, 1984; L.
Lovász and S. Vempala, SIAM J. Comput. 35, 2006). Directions have the covariance found by
expectation propagation, relative to which it is about equally wide in all directions: then the
required number of steps is proportional to the number of inputs.

Given the uniforms, the normal variables of :math:`r = W u + G v + e`, with standard normal `v` and
noise :math:`e \sim N(0, N N^T)`, follow from what is left, :math:`r - W u`.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax, random
from jax.scipy.special import logsumexp

from nn_uq_dist.basics.normal_tails import score_from_log_survival
from nn_uq_dist.basics.quadrature_nodes import legendre
from nn_uq_dist.basics.row_algebra import (
    binary_unit,
    matmul,
    matvec,
    norm,
    solve_lower,
    symmetric_root,
)
from nn_uq_dist.box_gaussian._gaussian_part import normal_factor
from nn_uq_dist.box_gaussian._log_density import corrected_log_evidence
from nn_uq_dist.box_gaussian._moments import output_moments, uniform_moments
from nn_uq_dist.uniform_sum import normal_score

# Of the quadrature of scores. Conditional densities are smooth except for jumps at an edge; nodes
# are on either side of the value.
_SCORE_NODES = 24
_SCORE_REACH = 9.0
# With 16 steps for each input, the slowest measured case (12 outputs of 31 inputs with little
# noise) had a standard deviation 2 to 3% too small in its slowest input, and .3% on average.
_STEPS_PER_INPUT = 32


@partial(jax.jit, static_argnames="num_draws")
def input_draws(
    key: Array, deviation: Array, weights: Array, normal_weights: Array | None, num_draws: int
) -> Array:
    """Draws of the uniforms given the outputs, each from its own chain.

    Parameters
    ----------
    key : Array
    deviation : Array, shape (..., d)
    weights : Array, shape (..., d, n)
    normal_weights : Array, shape (..., d, m), or None
    num_draws : int

    Returns
    -------
    Array, shape (num_draws, ..., n)
        NaN outside of the support, and where expectation propagation does not converge.

    Examples
    --------
    >>> import jax
    >>> import jax.numpy as jnp
    >>> from nn_uq_dist.box_gaussian import input_draws
    >>> weights = jnp.array([[1.0, 1.0]])  # one output, and the two inputs whose sum it is
    >>> draws = input_draws(jax.random.key(0), jnp.array([1.5]), weights, None, 100)
    >>> bool(jnp.allclose(draws.sum(-1), 1.5, atol=1e-5)), bool((draws >= 0.5 - 1e-5).all())
    (True, True)
    """
    moments = uniform_moments(deviation, weights, normal_weights)
    root = symmetric_root(moments.covariance)
    count = weights.shape[-1]
    shape = (num_draws, *moments.mean.shape[:-1])
    inputs = jnp.broadcast_to(moments.mean, (*shape, count))
    if normal_weights is None and count <= weights.shape[-2]:
        return inputs  # the only ones: a direction would be made of rounding errors
    if normal_weights is None:
        # Rounding errors off the slice would add up over the steps.
        basis, _ = jnp.linalg.qr(weights.mT)
        for _ in range(2):
            root = root - matmul(basis, matmul(basis.mT, root))
        seen = jnp.zeros_like(weights)
        rest = jnp.zeros((*shape, weights.shape[-2]), deviation.dtype)
    else:
        factor = normal_factor(weights, normal_weights)
        gap = deviation - matvec(weights, moments.mean)
        columns = jnp.concatenate([matmul(weights, root), gap[..., None]], axis=-1)
        columns = solve_lower(factor, columns)
        seen = columns[..., :-1]
        rest = jnp.broadcast_to(columns[..., -1], (*shape, weights.shape[-2]))

    def line(key: Array) -> tuple[Array, Array]:
        """A direction, and how the outputs move along it in units of the normal part."""
        normal = random.normal(key, inputs.shape, root.dtype)
        return matvec(root, normal), matvec(seen, normal)

    key_start, key_steps = random.split(key)
    # The start: a draw of the normal distribution, moved back into the box if needed.
    direction, moved = line(key_start)
    _, reach = _ends(inputs, direction)
    length = jnp.minimum(1.0, 0.99 * reach)[..., None]
    start = (inputs + length * direction, rest - length * moved)

    def step(number: Array, state: tuple[Array, Array]) -> tuple[Array, Array]:
        return _step(random.fold_in(key_steps, number), line, *state)

    return lax.fori_loop(0, _STEPS_PER_INPUT * count, step, start)[0]


def _ends(inputs: Array, direction: Array) -> tuple[Array, Array]:
    """How far the box extends along a line, backward and forward."""
    moves = direction != 0
    safe = jnp.where(moves, direction, 1.0)
    ends = (-1.0 - inputs) / safe, (1.0 - inputs) / safe
    forth = jnp.where(moves, jnp.maximum(*ends), jnp.inf)
    back = jnp.where(moves, jnp.minimum(*ends), -jnp.inf)
    # Rounding may leave a point one ulp outside.
    return jnp.minimum(jnp.max(back, axis=-1), 0.0), jnp.maximum(jnp.min(forth, axis=-1), 0.0)


def _step(
    key: Array, line: Callable[[Array], tuple[Array, Array]], inputs: Array, rest: Array
) -> tuple[Array, Array]:
    """A point on a line by slice sampling, which needs no truncated normal quantiles.

    Along the line the log density falls by ``a t^2/2 - b t``; the slice is where this is at most an
    exponential variable, an interval in closed form (R. M. Neal, Slice sampling, Ann. Statist. 31,
    2003).
    """
    key_line, key_level, key_point = random.split(key, 3)
    direction, seen = line(key_line)
    curvature = jnp.sum(seen * seen, axis=-1)
    slope = jnp.sum(seen * rest, axis=-1)
    drop = random.exponential(key_level, slope.shape, slope.dtype)
    root = jnp.sqrt(slope * slope + 2.0 * curvature * drop)
    # The direct formula of one of the two ends cancels; their product, -2 drop/curvature, does not.
    steep = jnp.abs(slope) + root
    curved = curvature > 0
    far = jnp.where(curved, steep / jnp.where(curved, curvature, 1.0), jnp.inf)
    near = jnp.where(curved, 2.0 * drop / jnp.where(curved, steep, 1.0), jnp.inf)
    back, forth = _ends(inputs, direction)
    rises = slope > 0
    back = jnp.maximum(back, -jnp.where(rises, near, far))
    forth = jnp.minimum(forth, jnp.where(rises, far, near))
    uniform = random.uniform(key_point, slope.shape, slope.dtype)
    length = (back + (forth - back) * uniform)[..., None]
    # Clipping changes the inputs, but not the rest, by an ulp.
    return jnp.clip(inputs + length * direction, -1.0, 1.0), rest - length * seen


class NormalsGivenOutputs(NamedTuple):
    r"""Linear regression of the normal variables on the outputs without their uniform part.

    Attributes
    ----------
    gain : Array, shape (..., m, d)
        The mean is ``gain`` times what is left of the outputs.
    root : Array, shape (..., m, m + q + d)
        A matrix with covariance ``root root^T``.
    whitener : Array, shape (..., d, d)
        Maps what is left of the outputs to independent standard normal numbers.
    log_volume : Array, shape (...)
        Minus the logarithm of the determinant of `whitener`.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from nn_uq_dist.box_gaussian import normals_given_outputs
    >>> normals = normals_given_outputs(jnp.eye(1), jnp.zeros((1, 0)), jnp.zeros((1, 0)))
    >>> print(normals.log_density(jnp.zeros(1)).round(3))  # standard normal
    -0.919
    """

    gain: Array
    root: Array
    whitener: Array
    log_volume: Array

    def log_density(self, rest: Array) -> Array:
        """Log density of what is left of the outputs."""
        white = matvec(self.whitener, rest)
        size = rest.shape[-1] * jnp.log(2 * jnp.pi)
        return -0.5 * (jnp.sum(white * white, axis=-1) + size) - self.log_volume


@jax.jit
def normals_given_outputs(
    columns: Array, noise_root: Array, uniform_columns: Array
) -> NormalsGivenOutputs:
    """Regression of the normal variables on the outputs.

    Parameters
    ----------
    columns : Array, shape (..., d, m)
        ``G``.
    noise_root : Array, shape (..., d, q)
        ``N``; ``q`` may be 0.
    uniform_columns : Array, shape (..., d, n)
        ``W``, or no columns; only their size matters, where the normal part is singular.

    Returns
    -------
    NormalsGivenOutputs

    Notes
    -----
    By an orthogonal factorization of the columns side by side: the covariance of the outputs, which
    squares the ratio of signal to noise, is never formed. With ``[G N] = R^T [Q_1 Q_2]^T`` the gain
    is ``Q_1 R^-T`` and the covariance ``I - Q_1 Q_1^T``. In the space that the outputs see this is
    ``P Q_2^T Q_2 P^T`` with the polar factor ``P`` of ``Q_1`` (from the cosine-sine decomposition;
    G. H. Golub and C. F. Van Loan, Matrix Computations, section 2.5.4), without a difference.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from nn_uq_dist.box_gaussian import normals_given_outputs
    >>> distribution = normals_given_outputs(jnp.eye(1), 0.1 * jnp.eye(1), jnp.zeros((1, 0)))
    >>> print(
    ...     f"{distribution.gain[0, 0]:.4f} {(distribution.root @ distribution.root.T)[0, 0]:.4f}"
    ... )  # 1/1.01, .01/1.01
    0.9901 0.0099
    """
    count, size = columns.shape[-1], columns.shape[-2]
    unit = binary_unit(norm(jnp.concatenate([columns, noise_root, uniform_columns], axis=-1)))
    rows = jnp.concatenate([columns, noise_root], axis=-1) / unit[..., None]
    if not rows.shape[-1]:  # neither normal variables nor noise
        rows = jnp.zeros_like(unit)[..., None]
    identity = jnp.eye(size, dtype=rows.dtype)
    # Where the normal part alone does not determine the outputs, noise far below any measurable
    # size takes the place of the uniforms, as in `normal_factor`.
    eps = float(jnp.finfo(rows.dtype).eps)
    stacked = jnp.concatenate([rows, jnp.zeros_like(rows[..., :1]) * identity], axis=-1)
    pivots = jnp.abs(jnp.diagonal(jnp.linalg.qr(stacked.mT, mode="r"), axis1=-2, axis2=-1))
    regular = jnp.all(pivots > 10.0 * eps**0.5 * norm(rows), axis=-1)[..., None, None]
    nudge = jnp.where(regular, 0.0, eps**0.3125) * identity
    factor, upper = jnp.linalg.qr(jnp.concatenate([rows, nudge], axis=-1).mT)
    ours, others = factor[..., :count, :], factor[..., count:, :]
    left, _, right = jnp.linalg.svd(ours, full_matrices=False)
    rest = jnp.eye(count, dtype=rows.dtype) - matmul(left, left.mT)
    root = jnp.concatenate([rest, matmul(matmul(left, right), others.mT)], axis=-1)
    whitener = solve_lower(upper.mT, identity) / unit[..., None, :]
    diagonal = jnp.abs(jnp.diagonal(upper, axis1=-2, axis2=-1))
    return NormalsGivenOutputs(
        matmul(ours, whitener), root, whitener, jnp.sum(jnp.log(diagonal) + jnp.log(unit), axis=-1)
    )


def rosenblatt_scores(deviation: Array, weights: Array, normal_weights: Array | None) -> Array:
    r"""``Phi^-1(P(Y_j <= y_j | y_1, ..., y_{j-1}))`` for each output, shape as ``deviation``.

    Parameters
    ----------
    deviation : Array, shape (N, d)
    weights : Array, shape (d, n)
    normal_weights : Array, shape (d, m), or None

    Notes
    -----
    The first score is that of the marginal distribution. The others come from integrals of ratios
    of two evidences, at nodes out to nine conditional standard deviations: 48 evidences for each
    output.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from nn_uq_dist.box_gaussian import rosenblatt_scores
    >>> weights = jnp.array([[1.0, 1.0, 0.5], [1.0, -1.0, 0.5]])
    >>> scores = rosenblatt_scores(jnp.zeros((1, 2)), weights, 0.1 * jnp.eye(2))
    >>> bool(jnp.allclose(scores, 0.0, atol=1e-3))  # the center is the median of each
    True
    """
    scale = None if normal_weights is None else norm(normal_weights[0])
    first = normal_score(deviation[:, 0], weights[0], scale)
    others = (_score(j, deviation, weights, normal_weights) for j in range(1, deviation.shape[-1]))
    return jnp.stack([first, *others], axis=-1)


def _score(j: int, deviation: Array, weights: Array, normal_weights: Array | None) -> Array:
    weights = weights[: j + 1]
    normal_weights = None if normal_weights is None else normal_weights[: j + 1]
    moments = output_moments(deviation[:, :j], weights, normal_weights)
    center = moments.mean[:, 0]
    reach = _SCORE_REACH * jnp.sqrt(moments.covariance[:, 0, 0])
    value = deviation[:, j]

    # Both tails at once: the program of the evidence is compiled once for each output.
    low = jnp.stack([center - reach, jnp.maximum(value, center - reach)])
    high = jnp.stack([jnp.minimum(value, center + reach), center + reach])
    half = 0.5 * jnp.maximum(high - low, 0.0)
    known = jnp.broadcast_to(deviation[:, :j], (2, len(deviation), j))

    def log_density(node: Array) -> Array:
        points = jnp.concatenate([known, (low + half * (1.0 + node))[..., None]], axis=-1)
        logs = corrected_log_evidence(points, weights, normal_weights)
        return jnp.where(jnp.isnan(logs), -jnp.inf, logs)

    nodes, rule = legendre(_SCORE_NODES, half)
    logs = lax.map(log_density, jnp.asarray(nodes))
    below, above = logsumexp(logs, axis=0, b=rule) + jnp.log(half)
    total = jnp.logaddexp(below, above)
    upper = above < below
    score = score_from_log_survival(jnp.minimum(below, above) - total)
    return jnp.where(upper, score, -score)
