"""Choice of a method for broadcast arguments: point by point, or common lines."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from nn_uq_dist.basics.row_algebra import namespace
from nn_uq_dist.uniform_sum._common_lines import is_worth_lines, values_of_shared_distributions
from nn_uq_dist.uniform_sum._each_point import Orders
from nn_uq_dist.uniform_sum.points import values_of_points


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
    by_lines = is_worth_lines(orders, num_points, num_distributions, count, x.dtype)
    own_shape = distribution_shape if by_lines else shape
    columns = xp.broadcast_to(weights, (*own_shape, count)).reshape(-1, count).T
    if normal_scale is not None:
        normal_scale = xp.broadcast_to(normal_scale, own_shape).reshape(-1)
    if not by_lines:
        values = values_of_points(orders, y.reshape(-1), columns, normal_scale)
        return values.reshape(len(orders), *shape)
    order_of_axes = own + shared
    points = y.transpose(order_of_axes).reshape(num_distributions, num_points)
    values = values_of_shared_distributions(orders, points, columns, normal_scale)
    values = values.reshape(len(orders), *(shape[i] for i in order_of_axes))
    return values.transpose(0, *(1 + i for i in np.argsort(order_of_axes)))


def magnitude(x: Any) -> Any:
    """``|x|``, with derivative one at zero."""
    return np.abs(x) if isinstance(x, np.ndarray | np.generic) else _magnitude(x)


# One program, so that an eager derivative does not compile each operation separately.
@jax.jit
def _magnitude(x: Array) -> Array:
    return jnp.where(x < 0, -x, x)
