"""Values at points: singly or on common lines, with first and second derivatives.

First derivatives are sums over the nodes of the values: automatic differentiation is used only for
second derivatives. Points that no line serves, and derivatives, go singly.

Traced numbers are compiled for their shape. Outside of ``jit`` that would be a program for each
number of points and weights, so points are padded to one of few capacities, and weights with zeros;
the program gets their true numbers and skips the rest, so that the next table, figure or notebook
cell compiles nothing. Whether some points need conditioning, for which a traced program needs a
branch, is then decided in Python: the program of the harder method is compiled when a point first
needs it, and run only for those points.
"""

import math
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from numpy.typing import NDArray

from nn_uq_dist.basics.checks import not_differentiable
from nn_uq_dist.basics.chunks import any_point, chunk_size, in_chunks
from nn_uq_dist.basics.concrete import as_jax, runs_in_numpy
from nn_uq_dist.basics.normal_tails import log_normal_density
from nn_uq_dist.basics.row_algebra import namespace
from nn_uq_dist.uniform_sum._common_lines import by_lines, is_worth_lines
from nn_uq_dist.uniform_sum._conditioning import MOST_CONDITIONED
from nn_uq_dist.uniform_sum._each_point import (
    BOTH,
    CHUNK,
    SURVIVAL,
    Orders,
    Values,
    evaluate_each_point,
    evaluate_in_chunks,
)
from nn_uq_dist.uniform_sum._uniform_sum import ROWS_PER_GROUP, UniformSum

# With more points than this, the program is compiled for the given shape.
MOST_POINTS = 2**14
_FEWEST_POINTS = 2**10
_FEWEST_WEIGHTS = 16
# Most numbers in the weights of the fewest points, in the weights of points that go singly, and in
# the points of concrete calls.
_MOST_PADDED, _MOST_NUMBERS = 2**20, 2**21

type HostArray = NDArray[Any]
Primals = tuple[Array, UniformSum]

_twice_differentiable = not_differentiable(
    "third derivatives of uniform_sum functions are not implemented: "
    "expected at most two nested differentiations; use finite differences of the second"
)


def evaluate(orders: Orders, x: Any, weights: Any, normal_scale: Any) -> Any:
    """Log density (order 0) and log survival (1) at ``|x|``: distributions are symmetric.

    Parameters
    ----------
    orders : tuple of int
        `DENSITY`, `SURVIVAL` or `BOTH`, which costs little more than one of them.
    x : Array, shape (...)
    weights : Array, shape (..., n)
    normal_scale : Array, shape (...), or None

    Returns
    -------
    Array, shape (M, ...)
        NumPy arrays give NumPy arrays, and compile nothing anew.

    Notes
    -----
    Points along axes on which ``weights`` and ``normal_scale`` broadcast share a distribution. With
    enough such points common lines save time.
    """
    xp, count = namespace(x), weights.shape[-1]
    lead = weights.shape[:-1]
    if normal_scale is not None:
        lead = np.broadcast_shapes(lead, normal_scale.shape)
    shape = np.broadcast_shapes(x.shape, lead)
    lead = (1,) * (len(shape) - len(lead)) + lead
    y = xp.broadcast_to(np.abs(x) if xp is np else _magnitude(x), shape)
    if xp is np and normal_scale is not None and not weights.any():
        return _of_normals(orders, y, normal_scale)
    shared = [axis for axis, size in enumerate(lead) if size < shape[axis]]
    num_points = math.prod([shape[axis] for axis in shared])
    on_lines = is_worth_lines(orders, num_points, math.prod(lead), count, x.dtype)
    batch_shape = lead if on_lines else shape
    columns = xp.broadcast_to(weights, (*batch_shape, count)).reshape(-1, count).T
    if normal_scale is not None:
        normal_scale = xp.broadcast_to(normal_scale, batch_shape).reshape(-1)
    distribution = UniformSum(columns, normal_scale)
    if not on_lines:
        return values_of_points(orders, y.reshape(-1), distribution).reshape(len(orders), *shape)
    axes = [axis for axis in range(len(shape)) if axis not in shared] + shared
    points = y.transpose(axes).reshape(-1, num_points)
    values = (_of_numbers if xp is np else _of_traced)(orders, points, distribution)
    values = values.reshape(len(orders), *[shape[axis] for axis in axes])
    return values.transpose(0, *[1 + place for place in np.argsort(axes)])


# One program, so that an eager derivative does not compile each operation separately.
@jax.jit
def _magnitude(x: Array) -> Array:
    """``|x|``, with derivative one at zero."""
    return jnp.where(x < 0, -x, x)


def _of_normals(orders: Orders, y: HostArray, scale: HostArray) -> HostArray:
    """Values without uniforms, as of normal inputs: known, so that no contour is compiled."""
    from scipy.special import log_ndtr

    with np.errstate(all="ignore"):
        z: Any = np.where((scale > 0) & np.isfinite(scale), y.astype(np.float64) / scale, np.nan)
        logs = log_normal_density(z) - np.log(scale), log_ndtr(-z)
        return np.stack([logs[order] for order in orders]).astype(y.dtype)


def _of_numbers(orders: Orders, y: HostArray, distribution: UniformSum) -> HostArray:
    """Values (M, L, P) at points (L, P), by programs for few sizes; what no line serves singly."""
    (count, num_distributions), num_points = distribution.weights.shape, y.shape[1]
    width = capacity(num_points, 1024, 4)
    most = max(1, _MOST_NUMBERS // max(width, count))
    # Portions of one size, for one program.
    size = -(-num_distributions // -(-num_distributions // most))
    rows, columns = capacity(count, 16, 2), capacity(size, 4, 2)
    values, holds = np.empty((*y.shape, len(orders)), y.dtype), np.empty(y.shape, bool)
    for start in range(0, num_distributions, size):
        portion = slice(start, start + size)
        points = padded(y[portion], (columns, width))
        sizes: Any = np.int_(len(y[portion])), np.int_(num_points)
        padding = padded_sum(distribution.take(portion), rows, columns)
        for target, part in zip(
            (values, holds), by_lines(orders, points, padding, *sizes), strict=True
        ):
            target[portion] = np.asarray(part)[: sizes[0], :num_points]
    distribution_of, point_of = np.nonzero(~holds)
    most = max(1, _MOST_NUMBERS // count)
    for start in range(0, len(distribution_of), most):
        index = distribution_of[start : start + most], point_of[start : start + most]
        values[index] = values_of_points(orders, y[index], distribution.take(index[0])).T
    return values.transpose(2, 0, 1)


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def _of_traced(orders: Orders, y: Array, distribution: UniformSum) -> Array:
    values, holds = by_lines(orders, y, distribution)

    def rest(y: Array, of_distribution: Array, values: Array, holds: Array) -> Array:
        def singly() -> Array:
            each = distribution.take(of_distribution)
            logs = evaluate_each_point(orders, y, each, ~holds, derivatives=0).logs
            return jnp.where(holds[:, None], values, logs.T)

        return lax.cond(any_point(~holds), singly, lambda: values)

    parts = y.reshape(-1), _distribution_of(y), values.reshape(-1, len(orders)), holds.reshape(-1)
    size = min(chunk_size(*CHUNK), _most_copies(distribution))
    return in_chunks(rest, *parts, size=size).T.reshape(len(orders), *y.shape)


@_of_traced.defjvp
def _of_traced_jvp(
    orders: Orders, primals: tuple[Array, UniformSum], tangents: tuple[Array, UniformSum]
) -> tuple[Array, Array]:
    # Derivatives with respect to weights cost a factor n for each point anyway.
    return jax.jvp(partial(_singly, orders), primals, tangents)


def _singly(orders: Orders, y: Array, distribution: UniformSum) -> Any:
    """The same without lines, each point with its own copy of the distribution; shape (M, L, P)."""

    def singly(y: Array, of_distribution: Array) -> Any:
        return values_of_points(orders, y, distribution.take(of_distribution)).T

    size = _most_copies(distribution)
    # Copies of the weights for all points are not kept for the backward pass.
    function = singly if y.size <= size else jax.checkpoint(singly)
    values = in_chunks(function, y.reshape(-1), _distribution_of(y), size=size)
    return values.T.reshape(len(orders), *y.shape)


def _distribution_of(y: Array) -> Array:
    """Index of the distribution of each of the points (L, P)."""
    return jnp.arange(y.size) // y.shape[1]


def _most_copies(distribution: UniformSum) -> int:
    return max(1, _MOST_NUMBERS // distribution.weights.shape[0])


def values_of_points(orders: Orders, y: Any, distribution: UniformSum) -> Any:
    """Values for each order, shape (M, N), at ``y`` (N,), each with a distribution of its own."""
    if not isinstance(y, np.ndarray):
        return _values(orders, y, distribution)
    if y.size > MOST_POINTS:
        return np.asarray(evaluate_in_chunks(orders, y, distribution, derivatives=0).logs)
    if orders == SURVIVAL:
        # Distribution functions share the program of the quantiles.
        return _concrete(BOTH, 0, y, distribution).logs[1:]
    return _concrete(orders, 0, y, distribution).logs


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def _values(orders: Orders, y: Array, distribution: UniformSum) -> Array:
    return evaluate_in_chunks(orders, y, distribution, derivatives=0).logs


@_values.defjvp
def _values_jvp(orders: Orders, primals: Primals, tangents: Primals) -> tuple[Array, Array]:
    values, gradient = _values_and_gradient(orders, *primals)
    return values, _along(gradient, tangents)


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def _values_and_gradient(orders: Orders, y: Array, distribution: UniformSum) -> tuple[Array, Array]:
    """Values (M, N) and gradients (R, M, N): in the point, the scale if any, and each weight."""
    if runs_in_numpy(y, distribution) and 0 < y.size <= MOST_POINTS:
        # `jax.grad` outside of `jit`: the primal values are known.
        known = jax.tree.map(np.asarray, (y, distribution))
        values = jax.tree.map(as_jax, _concrete(orders, 1, *known))
    else:
        values = evaluate_in_chunks(orders, y, distribution, derivatives=1)
    return values.logs, values.gradient


@_values_and_gradient.defjvp
def _values_and_gradient_jvp(
    orders: Orders, primals: Primals, tangents: Primals
) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
    """Hessian times direction, linear in the direction and self-adjoint.

    A loop with a run-time number of iterations cannot be transposed. The Hessian is symmetric, so
    it is its own transpose: ``custom_linear_solve`` is told so, and reverse-mode differentiation of
    a gradient works.
    """
    primals = _twice_differentiable(primals)
    values = evaluate_in_chunks(orders, *primals, derivatives=2)

    def multiply(_: object, packed: Array) -> Array:
        # Each order has its own Hessian; together they are the blocks of a symmetric matrix.
        def of_order(m: Array, direction: Array) -> Array:
            return _moved_gradient(orders, primals, direction)[:, m]

        return jax.vmap(of_order, (0, 1), 1)(jnp.arange(len(orders)), packed)

    direction = jnp.broadcast_to(_pack(tangents)[:, None], values.gradient.shape)
    product = lax.custom_linear_solve(
        lambda x: x, direction, multiply, transpose_solve=multiply, symmetric=True
    )
    return (values.logs, values.gradient), (_along(values.gradient, tangents), product)


# Compiled here, so that the product and its transpose are traced once.
@partial(jax.jit, static_argnums=0)
def _moved_gradient(orders: Orders, primals: Primals, direction: Array) -> Array:
    """Derivative of the gradient along a direction, shape (R, N)."""

    def gradient(y: Array, distribution: UniformSum) -> Any:
        return evaluate_in_chunks(orders, y, distribution, derivatives=2).gradient

    has_scale = primals[1].normal_scale is not None
    of_point, of_weights = direction[0], direction[1 + has_scale :]
    of_scale = direction[1] if has_scale else None
    return jax.jvp(gradient, primals, (of_point, UniformSum(of_weights, of_scale)))[1]


# One program, and one for its transpose.
@jax.jit
def _along(gradient: Array, tangents: Primals) -> Array:
    return jnp.sum(gradient * _pack(tangents)[:, None], axis=0)


def _pack(tangents: Primals) -> Array:
    """In the order of gradients; transposition needs an operand that is linear as a whole."""
    y, (weights, scale, _) = tangents
    return jnp.concatenate([y[None], *([] if scale is None else [scale[None]]), weights])


def _concrete(
    orders: Orders,
    derivatives: int,
    y: HostArray,
    distribution: UniformSum,
    *,
    conditioning: bool = False,
) -> Any:
    """`Values` of NumPy arrays at no more than `MOST_POINTS`."""
    count, num_points = distribution.weights.shape
    if distribution.normal_scale is None and count <= MOST_CONDITIONED:
        rows = MOST_CONDITIONED
    else:
        rows = capacity(count, _FEWEST_WEIGHTS, 2)
    points = capacity(num_points, max(1, min(_FEWEST_POINTS, _MOST_PADDED // rows)), 4)
    results: Any = evaluate_in_chunks(
        orders,
        padded(y, (points,)),
        padded_sum(distribution, rows, points),
        derivatives=derivatives,
        conditioning=conditioning,
        num_points=np.int_(num_points),
    )
    kept: Any = [np.array(np.asarray(part)[..., :num_points]) for part in results]
    values = Values(*kept)
    values = values._replace(gradient=values.gradient[: len(values.gradient) - rows + count])
    hard = ~values.done
    if hard.any():  # not if there was conditioning
        some = orders, derivatives, y[hard], distribution.take(hard)
        better = _concrete(*some, conditioning=True)
        for plain, conditioned in zip(values, better, strict=True):
            plain[..., hard] = conditioned
    return values


def capacity(count: int, fewest: int, factor: int) -> int:
    """The least of ``fewest``, ``fewest * factor``, ... that holds ``count``."""
    while fewest < count:
        fewest *= factor
    return fewest


def padded(part: Any, shape: tuple[int, ...]) -> Any:
    """The array with copies of its last entries at the end of each axis, which need nothing new."""
    more = [(0, most - size) for most, size in zip(shape, part.shape, strict=True)]
    return np.pad(part, more, "edge") if part.size else np.ones(shape, part.dtype)


def padded_sum(distribution: UniformSum, rows: int, columns: int) -> UniformSum:
    """The distributions in larger arrays, with the number of rows of whole groups in use."""
    weights, scale, _ = distribution
    count = len(weights)
    in_use: Any = np.int_(-(-count // ROWS_PER_GROUP) * ROWS_PER_GROUP)
    scale = None if scale is None else padded(scale, (columns,))
    more: Any = np.pad(padded(weights, (count, columns)), [(0, rows - count), (0, 0)])
    return UniformSum(more, scale, in_use)
