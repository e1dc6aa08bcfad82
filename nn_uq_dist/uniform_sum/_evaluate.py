"""Choice of a method for broadcast arguments: point by point, or common lines.

All other modules use `log_density`, `log_survival` and `log_density_and_survival`. Known numbers
come in and go out as NumPy arrays, for which nothing is compiled anew.
"""

import math
from typing import Any

import numpy as np
from jax import Array

from nn_uq_dist.basics.row_algebra import namespace
from nn_uq_dist.uniform_sum._common_lines import is_worth_lines, values_of_shared_distributions
from nn_uq_dist.uniform_sum._each_point import BOTH, DENSITY, SURVIVAL, Orders
from nn_uq_dist.uniform_sum._points import values_of_points


def log_density(y: Array, weights: Array, normal_scale: Array | None) -> Array:
    """Log density at ``y >= 0``; shapes as those of `log_density_and_survival`."""
    return _evaluate(DENSITY, y, weights, normal_scale)[0]


def log_survival(y: Array, weights: Array, normal_scale: Array | None) -> Array:
    """Log survival at ``y >= 0``; shapes as those of `log_density_and_survival`."""
    return _evaluate(SURVIVAL, y, weights, normal_scale)[0]


def log_density_and_survival(
    y: Array, weights: Array, normal_scale: Array | None
) -> tuple[Array, Array]:
    """Both at ``y >= 0``, for little more than the cost of one.

    Parameters
    ----------
    y : Array, shape (...)
    weights : Array, shape (..., n)
    normal_scale : Array, shape (...), or None

    Notes
    -----
    NumPy arrays give NumPy arrays. Points along axes on which ``weights`` and ``normal_scale``
    broadcast share a distribution. With enough such points common lines save time.
    """
    density, survival = _evaluate(BOTH, y, weights, normal_scale)
    return density, survival


def _evaluate(orders: Orders, y: Any, weights: Any, normal_scale: Any) -> Any:
    """Values for each order, shape (M, ...)."""
    xp = namespace(y)
    count = weights.shape[-1]
    distribution_shape = weights.shape[:-1]
    if normal_scale is not None:
        distribution_shape = np.broadcast_shapes(distribution_shape, normal_scale.shape)
    shape = np.broadcast_shapes(y.shape, distribution_shape)
    distribution_shape = (1,) * (len(shape) - len(distribution_shape)) + distribution_shape
    shared = tuple(i for i, size in enumerate(shape) if distribution_shape[i] == 1 and size > 1)
    own = tuple(i for i in range(len(shape)) if i not in shared)
    num_points = math.prod(shape[i] for i in shared)
    num_distributions = math.prod(shape[i] for i in own)
    y = xp.broadcast_to(y, shape)

    def flat_distribution(shape: tuple[int, ...]) -> tuple[Any, Any]:
        columns = xp.broadcast_to(weights, (*shape, count)).reshape(-1, count).T
        if normal_scale is None:
            return columns, None
        return columns, xp.broadcast_to(normal_scale, shape).reshape(-1)

    if is_worth_lines(orders, num_points, num_distributions, count, y.dtype):
        order_of_axes = own + shared
        points = y.transpose(order_of_axes).reshape(num_distributions, num_points)
        as_given = (0, *(1 + i for i in np.argsort(order_of_axes)))
        values = values_of_shared_distributions(
            orders, points, *flat_distribution(distribution_shape)
        )
        values = values.reshape(len(orders), *(shape[i] for i in order_of_axes))
        return values.transpose(as_given)
    values = values_of_points(orders, y.reshape(-1), *flat_distribution(shape))
    return values.reshape(len(orders), *shape)
