"""From the shapes of the arguments to the regime: a law for each point, or points of one law."""

import math
from functools import partial

import jax
import jax.numpy as jnp
from jax import Array

from nn_uq_dist.linear_combination._conditioning import Law
from nn_uq_dist.linear_combination._law_per_point import (
    BOTH,
    DENSITY,
    MOST_CONDITIONED,
    SURVIVAL,
    Orders,
    in_blocks,
    log_tails,
)
from nn_uq_dist.linear_combination._shared_law import log_tails_of_laws, table_size


# Compiled here, so that eager calls with shapes seen before do not compile their loops anew.
@partial(jax.jit, static_argnums=0)
def _log_tails(
    orders: Orders, y: Array, weights: Array, normal_scale: Array | None
) -> tuple[Array, ...]:
    """Log density, log survival or both at ``y >= 0``, with NumPy broadcasting.

    Parameters
    ----------
    orders : tuple of int
        0 for the density, 1 for the survival function.
    y : Array, shape (...)
    weights : Array, shape (..., n)
    normal_scale : Array, shape (...), or None

    Returns
    -------
    tuple of Array, shape (...)
        One for each order.

    Notes
    -----
    Axes along which the law (``weights`` and ``normal_scale``) broadcasts against the points
    share a law. With enough points on them a table pays.
    """
    count = weights.shape[-1]
    law_shape = weights.shape[:-1]
    if normal_scale is not None:
        law_shape = jnp.broadcast_shapes(law_shape, normal_scale.shape)
    shape = jnp.broadcast_shapes(y.shape, law_shape)
    law_shape = (1,) * (len(shape) - len(law_shape)) + law_shape
    shared = tuple(i for i, size in enumerate(shape) if law_shape[i] == 1 and size > 1)
    own = tuple(i for i in range(len(shape)) if i not in shared)
    num_points = math.prod(shape[i] for i in shared)
    num_laws = math.prod(shape[i] for i in own)
    y = jnp.broadcast_to(y, shape)
    if num_points and num_laws and count > MOST_CONDITIONED:
        num_tilts, _ = table_size(max(orders), Law(weights.reshape(count, -1), normal_scale))
        if num_points >= 2 * num_tilts:
            law = Law(
                jnp.broadcast_to(weights, (*law_shape, count)).reshape(num_laws, count).T,
                None
                if normal_scale is None
                else jnp.broadcast_to(normal_scale, law_shape).reshape(num_laws),
            )
            order_of_axes = own + shared
            points = y.transpose(order_of_axes).reshape(num_laws, num_points)
            as_given = sorted(range(len(shape)), key=order_of_axes.__getitem__)
            return tuple(
                values.reshape([shape[i] for i in order_of_axes]).transpose(as_given)
                for values in log_tails_of_laws(orders, points, law)
            )
    total = num_points * num_laws
    law = Law(
        jnp.broadcast_to(weights, (*shape, count)).reshape(total, count),
        None if normal_scale is None else jnp.broadcast_to(normal_scale, shape).reshape(total),
    )
    rows = in_blocks(partial(log_tails, orders), y.reshape(total), law)
    return tuple(row.reshape(shape) for row in rows)


def log_density(y: Array, weights: Array, normal_scale: Array | None) -> Array:
    """Log density at ``y >= 0``; shapes as those of `log_density_and_survival`."""
    return _log_tails(DENSITY, y, weights, normal_scale)[0]


def log_survival(y: Array, weights: Array, normal_scale: Array | None) -> Array:
    """Log survival at ``y >= 0``; shapes as those of `log_density_and_survival`."""
    return _log_tails(SURVIVAL, y, weights, normal_scale)[0]


def log_density_and_survival(
    y: Array, weights: Array, normal_scale: Array | None
) -> tuple[Array, Array]:
    """Both at ``y >= 0``, for little more than the price of one.

    Parameters
    ----------
    y : Array, shape (...)
    weights : Array, shape (..., n)
    normal_scale : Array, shape (...), or None
    """
    density, survival = _log_tails(BOTH, y, weights, normal_scale)
    return density, survival
