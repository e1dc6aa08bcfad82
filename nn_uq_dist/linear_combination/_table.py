"""A tabulated law: the integrand on the contour for a few dozen tilts, and its look-up at points.

The integrand depends on the point only through ``exp(i a d)``, ``d`` the distance from the edge.
The rest is tabulated once; each point uses the tilt whose tilted mean is closest and sums one short
series: no root-finding and no factor ``n``. The tilts advance outward in steps of a few tilted
standard deviations, so that relative accuracy holds up to the edge of the support.
"""

import math
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.typing import DTypeLike

from nn_uq_dist.linear_combination._contour import (
    Contour,
    contour_at,
    envelope_at,
    log_scale,
    tilted_moments,
)
from nn_uq_dist.linear_combination._contour_sum import (
    edge_phase,
    nodes_of_chunk,
    product_of_factors,
)
from nn_uq_dist.linear_combination._each_point import Orders
from nn_uq_dist.linear_combination._law import Law
from nn_uq_dist.linear_combination._polynomials import first_alias_correction, relative_correction
from nn_uq_dist.linear_combination._precision import precision
from nn_uq_dist.linear_combination._trigonometry import sine_and_cosine
from nn_uq_dist.linear_combination._uniform_component import excess_coth

# Tables end at this fraction of the width from the edge; closer points are evaluated singly.
_NEAREST = {"float32": 1e-4, "float64": 1e-7}
_MANY_WEIGHTS = 24


class Table(NamedTuple):
    """Tilted characteristic functions of L laws at T tilts, for M orders of the pole.

    Attributes
    ----------
    thresholds : Array, shape (L, T - 1)
        Distances from the edge that separate the ranges of the tilts, decreasing.
    nearest : Array, shape (L,)
        Least distance from the edge that the last tilt covers.
    contour : Contour
        Fields of shape (L, T), orders of shape (M, L, T).
    log_scale : Array, shape (M, L, T)
        Exponent at distance zero from the edge.
    values : Array, shape (J, M, L, T)
        Normalized integrand without the phase of the distance, complex.
    usable : Array of bool, shape (L, T)
        Whether the fixed number of nodes suffices.
    """

    thresholds: Array
    nearest: Array
    contour: Contour
    log_scale: Array
    values: Array
    usable: Array


def table_size(
    order: int, count: int, dtype: DTypeLike, *, has_normal_part: bool
) -> tuple[int, int]:
    """Number of tilts and of nodes, known from the shapes."""
    name = jnp.dtype(dtype).name
    # t^2 K''(t) is at most n (plus the pole), which bounds the growth of the tilt in one step.
    growth = math.log1p(_march(name) / math.sqrt(count + order + 1))
    span = math.log(10.0 * math.sqrt(count + 1) / _NEAREST[name])
    num_tilts = math.ceil(span / growth) + (12 if has_normal_part else 2)
    num_nodes = precision(name).table_nodes * (1 if count >= _MANY_WEIGHTS else 3)
    return num_tilts, num_nodes


def _march(dtype_name: str) -> float:
    """Step from one tilt to the next in tilted standard deviations."""
    return 1.6 * precision(dtype_name).table_reach


def _tilts(order: int, law: Law, num_tilts: int) -> tuple[Array, Array, Array]:
    """Tilts, tilted distances from the edge and variances, shape (T + 1, L)."""
    dtype = law.weights.dtype
    step = _march(dtype.name)
    pole = jnp.asarray(order, dtype)
    inverse = lax.rsqrt(law.moments()[0])
    # The tilted mean of the first one is left of the center by less than a standard deviation.
    start = max(0.5 * precision(dtype).table_reach, order**0.5) * inverse

    def advance(tilt: Array, _: None) -> tuple[Array, tuple[Array, Array, Array]]:
        distance, variance = tilted_moments(pole, law, tilt)
        return tilt + step * lax.rsqrt(variance), (tilt, distance, variance)

    columns: tuple[Array, Array, Array] = lax.scan(advance, start, None, length=num_tilts + 1)[1]
    return columns


def tabulate(orders: Orders, law: Law) -> Table:
    """Table of L laws (weights of shape (n, L), positive and of order one).

    All orders share the tilts of the highest one, which stays farthest from the pole.
    """
    order = orders[-1]
    (count, num_laws), dtype = law.weights.shape, law.weights.dtype
    has_normal_part = law.normal_scale is not None
    num_tilts, num_nodes = table_size(order, count, dtype, has_normal_part=has_normal_part)
    tilt, distance, variance = _tilts(order, law, num_tilts)
    # The barrier keeps the compiler from computing these anew for each point.
    between = lax.optimization_barrier(0.5 * (distance[:-1] + distance[1:]))

    def flat(column: Array) -> Array:
        return column[:num_tilts].T.reshape(-1)

    scale = law.normal_scale
    repeated = law._replace(
        weights=jnp.repeat(law.weights, num_tilts, axis=1),
        normal_scale=None if scale is None else jnp.repeat(scale, num_tilts),
    )
    width = jnp.sum(repeated.weights, axis=0)
    each = jnp.broadcast_to(np.array(orders)[:, None], (len(orders), *width.shape))
    point = width - flat(distance)
    margin = precision(dtype).table_reach
    contour = contour_at(each, flat(tilt), flat(variance), point, 2.0 * width, repeated, margin)
    excess = excess_coth(repeated.weights, contour.tilt)
    bound = envelope_at(repeated, excess, contour, num_nodes)
    nodes = nodes_of_chunk(contour, 0, num_nodes)
    values = product_of_factors(repeated, excess, each[0], nodes)
    if scale is not None:
        values = values * edge_phase(jnp.zeros_like(width), repeated, contour, nodes)
    values = jnp.stack([values, *(values * nodes.pole for _ in orders[1:])], axis=1)
    constant = log_scale(jnp.zeros_like(width), repeated, contour)
    shape = (num_laws, num_tilts)
    return Table(
        thresholds=between.T[:, :-1],
        nearest=between.T[:, -1],
        contour=Contour(*(field.reshape(*field.shape[:-1], *shape) for field in contour)),
        log_scale=constant.reshape(-1, *shape),
        values=values.reshape(num_nodes, -1, *shape),
        usable=(bound < 10.0 * precision(dtype).acceptable).reshape(shape),
    )


def look_up(orders: Orders, distance: Array, table: Table) -> tuple[Array, Array]:
    """Log tail integrals, shape (M, L, P), and where they are valid, (L, P).

    Parameters
    ----------
    orders : tuple of int
        Those of the table.
    distance : Array, shape (L, P)
        Of the points from the edge.
    table : Table
    """
    num_laws, num_tilts = table.usable.shape
    index = jnp.sum(distance[:, :, None] < table.thresholds[:, None, :], axis=-1)
    flat = index + num_tilts * jnp.arange(num_laws)[:, None]

    def at(field: Array) -> Array:
        return jnp.take(field.reshape(*field.shape[:-2], -1), flat, axis=-1)

    tilt, step = at(table.contour.tilt), 2.0 * jnp.pi / at(table.contour.spacing)
    sine, cosine = sine_and_cosine(0.5 * step * distance)
    half_turn = lax.complex(cosine, sine)
    turn = half_turn * half_turn
    num_nodes = table.values.shape[0]

    def horner(j: Array, total: Array) -> Array:
        return total * turn + at(table.values[num_nodes - 1 - j])

    empty = jnp.zeros((len(orders), *turn.shape), turn.dtype)
    total = (lax.fori_loop(0, num_nodes, horner, empty) * half_turn).real * step / jnp.pi
    value = at(table.log_scale) + tilt * distance
    if orders[-1]:
        decay = at(table.contour.alias_decay)
        correction = first_alias_correction(np.array(orders)[:, None, None], decay)
        total = total + relative_correction(correction, value)
    holds = at(table.usable) & (distance >= table.nearest[:, None]) & jnp.all(total > 0, axis=0)
    return value + jnp.log(jnp.where(holds, total, 1.0)), holds
