"""Log density and log survival of many points under one law: tabulate, then look up.

Points that the table does not cover, close to the edge or beyond its tilts, are evaluated singly.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.typing import DTypeLike

from nn_uq_dist.basics._blocks import any_point
from nn_uq_dist.linear_combination._conditioning import MOST_CONDITIONED
from nn_uq_dist.linear_combination._each_point import Orders
from nn_uq_dist.linear_combination._eager import HostArray, capacity, padded, rows_in_use
from nn_uq_dist.linear_combination._law import (
    Law,
    binary_scale,
    distance_from_edge,
    in_units,
)
from nn_uq_dist.linear_combination._points import values_of_points
from nn_uq_dist.linear_combination._table import Table, look_up, table_size, tabulate

_LAWS_AT_ONCE = 64
# With fewer factors (points times weights) a table costs more than it saves.
_FEWEST_FACTORS = 2**15
# For the programs for known numbers: columns in a block, and most points of all laws.
_COLUMNS_AT_ONCE = 256
_MOST_NUMBERS = 2**20


def is_worth_a_table(
    orders: Orders,
    num_points: int,
    num_laws: int,
    count: int,
    dtype: DTypeLike,
    *,
    has_normal_part: bool,
) -> bool:
    """Whether a table saves time for this many points of each law with ``count`` weights."""
    if num_points * num_laws * count < _FEWEST_FACTORS:
        return False
    num_tilts, _ = table_size(max(orders), count, dtype, has_normal_part=has_normal_part)
    return count > MOST_CONDITIONED and num_points >= 2 * num_tilts


def _by_table(
    orders: Orders, y: Array, law: Law, num_points: Array | None = None
) -> tuple[Array, Array]:
    """Values (M, L, P) at points (L, P) of laws with weights (n, L), and their validity."""
    magnitudes = law._replace(weights=jnp.abs(law.weights))
    scale = binary_scale(magnitudes)
    magnitudes = in_units(magnitudes, scale)
    smallest = jnp.finfo(y.dtype).eps ** 1.5
    positive = magnitudes._replace(weights=jnp.maximum(magnitudes.weights, smallest))
    table = tabulate(orders, positive)
    distance = distance_from_edge(y / scale[:, None], magnitudes.weights[:, :, None])
    if num_points is None:
        value, holds = look_up(orders, distance, table)
    else:
        value, holds = _look_up_in_blocks(orders, distance, table, num_points)
    is_density = np.array(orders)[:, None, None] == 0
    value = value - jnp.where(is_density, jnp.log(scale)[:, None], 0.0)
    bounded = law.normal_scale is None or law.normal_scale[:, None] == 0
    outside = bounded & (distance <= 0)
    return jnp.where(outside, -jnp.inf, value), holds | outside


def _look_up_in_blocks(
    orders: Orders, distance: Array, table: Table, num_points: Array
) -> tuple[Array, Array]:
    """`look_up` of the first ``num_points`` columns, a block of them at a time."""

    def fill(block: Array, found: tuple[Array, Array]) -> tuple[Array, Array]:
        start = block * _COLUMNS_AT_ONCE
        part = lax.dynamic_slice_in_dim(distance, start, _COLUMNS_AT_ONCE, axis=1)
        new = look_up(orders, part, table)
        put = partial(lax.dynamic_update_slice_in_dim, start_index=start, axis=-1)
        return put(found[0], new[0]), put(found[1], new[1])

    shape = distance.shape
    empty = jnp.zeros((len(orders), *shape), distance.dtype), jnp.zeros(shape, bool)
    found: tuple[Array, Array] = lax.fori_loop(0, -(-num_points // _COLUMNS_AT_ONCE), fill, empty)
    return found


def values_of_shared_laws(orders: Orders, y: Any, weights: Any, normal_scale: Any) -> Any:
    """Log density (order 0), log survival (order 1) or both of P points under each of L laws.

    Parameters
    ----------
    orders : tuple of int
    y : Array, shape (L, P)
        Points at or above the center. NumPy arrays give NumPy arrays.
    weights : Array, shape (n, L)
        Any sign.
    normal_scale : Array, shape (L,), or None

    Returns
    -------
    Array, shape (M, L, P)
    """
    if not isinstance(y, np.ndarray):
        return _values(orders, y, Law(weights, normal_scale))
    num_laws, num_points = y.shape
    most = min(_LAWS_AT_ONCE, _MOST_NUMBERS // num_points)
    if not most:
        law = Law(jnp.asarray(weights), None if normal_scale is None else jnp.asarray(normal_scale))
        return np.asarray(_compiled(orders, jnp.asarray(y), law))
    # Portions of one size, for one program.
    size = -(-num_laws // -(-num_laws // most))

    def portion(start: int) -> HostArray:
        part = slice(start, start + size)
        scale = None if normal_scale is None else normal_scale[part]
        return _evaluate_now(orders, y[part], weights[:, part], scale, size)

    return np.concatenate([portion(start) for start in range(0, num_laws, size)], axis=1)


def _evaluate_now(
    orders: Orders, y: HostArray, weights: HostArray, normal_scale: HostArray | None, size: int
) -> HostArray:
    """At most `size` laws, by a program for few sizes; points outside the table singly."""
    (count, num_laws), num_points = weights.shape, y.shape[1]
    rows, laws = capacity(count, 16, 2), capacity(size, 4, 2)
    points = capacity(num_points, 4 * _COLUMNS_AT_ONCE, 4)
    law = Law(
        padded(weights, (rows, laws)),
        None if normal_scale is None else padded(normal_scale, (laws,)),
        rows_in_use(count),
    )
    found = _table_program(orders, padded(y, (laws, points)), law, np.int32(num_points))
    value, holds = (np.array(np.asarray(part)[..., :num_laws, :num_points]) for part in found)
    hard = ~holds
    if hard.any():
        of_law = np.nonzero(hard)[0]
        scale = None if normal_scale is None else normal_scale[of_law]
        value[:, hard] = values_of_points(orders, y[hard], weights[:, of_law], scale)
    return value


@partial(jax.jit, static_argnums=0)
def _table_program(orders: Orders, y: Array, law: Law, num_points: Array) -> tuple[Array, Array]:
    return _by_table(orders, y, law, jnp.asarray(num_points))


# Compiled here, so that eager calls with shapes seen before do not compile their loops anew.
@partial(jax.jit, static_argnums=0)
def _compiled(orders: Orders, y: Array, law: Law) -> Array:
    return _values(orders, y, law)


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def _values(orders: Orders, y: Array, law: Law) -> Array:
    if y.shape[0] <= _LAWS_AT_ONCE:
        return _of_laws(orders, y, law)

    def one_law(part: tuple[Array, Array, Array | None]) -> Array:
        y, weights, scale = part
        law = Law(weights[:, None], None if scale is None else scale[None])
        return _of_laws(orders, y[None], law)[:, 0]

    return jnp.moveaxis(lax.map(one_law, (y, law.weights.T, law.normal_scale)), 0, 1)


@_values.defjvp
def _values_jvp(
    orders: Orders, primals: tuple[Array, Law], tangents: tuple[Array, Law]
) -> tuple[Array, Array]:
    # Derivatives with respect to weights cost a factor n for each point anyway.
    return jax.jvp(partial(_singly, orders), primals, tangents)


def _of_laws(orders: Orders, y: Array, law: Law) -> Array:
    value, holds = _by_table(orders, y, law)
    return lax.cond(any_point(~holds), lambda: _singly(orders, y, law), lambda: value)


def _singly(orders: Orders, y: Array, law: Law) -> Array:
    """The same without a table, each point with its own copy of the law; shape (M, L, P)."""
    num_points = y.shape[1]
    scale = law.normal_scale
    values: Array = values_of_points(
        orders,
        y.reshape(-1),
        jnp.repeat(law.weights, num_points, axis=1),
        None if scale is None else jnp.repeat(scale, num_points),
    )
    return values.reshape(len(orders), *y.shape)
