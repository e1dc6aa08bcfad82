"""Choice of a method for broadcast arguments: point by point, or common lines.

Points that no line serves, and derivatives, go point by point.
"""

import math
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from nn_uq_dist.basics.chunks import any_point, chunk_size, in_chunks
from nn_uq_dist.basics.normal_tails import log_normal_density
from nn_uq_dist.basics.row_algebra import namespace
from nn_uq_dist.uniform_sum._common_lines import by_lines, is_worth_lines
from nn_uq_dist.uniform_sum._each_point import CHUNK, Orders, evaluate_each_point
from nn_uq_dist.uniform_sum._uniform_sum import UniformSum
from nn_uq_dist.uniform_sum.points import (
    HostArray,
    capacity,
    padded,
    padded_sum,
    values_of_points,
)

# Most numbers in the weights of points that go singly, and in the points of concrete calls.
_MOST_NUMBERS = 2**21


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
    xp = namespace(x)
    count = weights.shape[-1]
    distribution_shape = weights.shape[:-1]
    if normal_scale is not None:
        distribution_shape = np.broadcast_shapes(distribution_shape, normal_scale.shape)
    shape = np.broadcast_shapes(x.shape, distribution_shape)
    distribution_shape = (1,) * (len(shape) - len(distribution_shape)) + distribution_shape
    shared = tuple(i for i, size in enumerate(shape) if distribution_shape[i] == 1 and size > 1)
    own = tuple(i for i in range(len(shape)) if i not in shared)
    num_points = math.prod(shape[i] for i in shared)
    num_distributions = math.prod(shape[i] for i in own)
    y = xp.broadcast_to(magnitude(x), shape)
    if xp is np and normal_scale is not None and not weights.any():
        return _of_normals(orders, y, normal_scale)
    on_lines = is_worth_lines(orders, num_points, num_distributions, count, x.dtype)
    own_shape = distribution_shape if on_lines else shape
    columns = xp.broadcast_to(weights, (*own_shape, count)).reshape(-1, count).T
    if normal_scale is not None:
        normal_scale = xp.broadcast_to(normal_scale, own_shape).reshape(-1)
    distribution = UniformSum(columns, normal_scale)
    if not on_lines:
        return values_of_points(orders, y.reshape(-1), distribution).reshape(len(orders), *shape)
    order_of_axes = own + shared
    points = y.transpose(order_of_axes).reshape(num_distributions, num_points)
    of_points = _of_numbers if xp is np else _of_traced
    values = of_points(orders, points, distribution)
    values = values.reshape(len(orders), *(shape[i] for i in order_of_axes))
    return values.transpose(0, *(1 + i for i in np.argsort(order_of_axes)))


def magnitude(x: Any) -> Any:
    """``|x|``, with derivative one at zero."""
    return np.abs(x) if namespace(x) is np else _magnitude(x)


# One program, so that an eager derivative does not compile each operation separately.
@jax.jit
def _magnitude(x: Array) -> Array:
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
    parts = []
    for start in range(0, num_distributions, size):
        some = slice(start, start + size)
        points = y[some]
        sizes: Any = np.int_(len(points)), np.int_(num_points)
        own = padded_sum(distribution.take(some), rows, columns)
        found = by_lines(orders, padded(points, (columns, width)), own, *sizes)
        parts.append([np.asarray(part)[: len(points), :num_points] for part in found])
    values, holds = (np.concatenate(same) for same in zip(*parts, strict=True))
    distribution_of, point_of = np.nonzero(~holds)
    most = max(1, _MOST_NUMBERS // count)
    for start in range(0, len(distribution_of), most):
        own, at = distribution_of[start : start + most], point_of[start : start + most]
        values[own, at] = values_of_points(orders, y[own, at], distribution.take(own)).T
    return values.transpose(2, 0, 1)


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def _of_traced(orders: Orders, y: Array, distribution: UniformSum) -> Array:
    values, holds = by_lines(orders, y, distribution)

    def rest(y: Array, of_distribution: Array, values: Array, holds: Array) -> Array:
        def singly() -> Array:
            own = distribution.take(of_distribution)
            found = evaluate_each_point(orders, y, own, ~holds, derivatives=0)
            return jnp.where(holds[:, None], values, found.logs.T)

        return lax.cond(any_point(~holds), singly, lambda: values)

    parts = y.reshape(-1), _distribution_of(y), values.reshape(-1, len(orders)), holds.reshape(-1)
    size = min(chunk_size(*CHUNK), _most_copies(distribution))
    found: Array = in_chunks(rest, *parts, size=size)
    return found.T.reshape(len(orders), *y.shape)


@_of_traced.defjvp
def _of_traced_jvp(
    orders: Orders, primals: tuple[Array, UniformSum], tangents: tuple[Array, UniformSum]
) -> tuple[Array, Array]:
    # Derivatives with respect to weights cost a factor n for each point anyway.
    return jax.jvp(partial(_singly, orders), primals, tangents)


def _singly(orders: Orders, y: Array, distribution: UniformSum) -> Array:
    """The same without lines, each point with its own copy of the distribution; shape (M, L, P)."""

    def some(y: Array, of_distribution: Array) -> Array:
        values: Array = values_of_points(orders, y, distribution.take(of_distribution))
        return values.T

    size = _most_copies(distribution)
    # Copies of the weights for all points are not kept for the backward pass.
    function = some if y.size <= size else jax.checkpoint(some)
    values: Array = in_chunks(function, y.reshape(-1), _distribution_of(y), size=size)
    return values.T.reshape(len(orders), *y.shape)


def _distribution_of(y: Array) -> Array:
    """Index of the distribution of each of the points (L, P)."""
    return jnp.arange(y.size) // y.shape[1]


def _most_copies(distribution: UniformSum) -> int:
    return max(1, _MOST_NUMBERS // distribution.weights.shape[0])
