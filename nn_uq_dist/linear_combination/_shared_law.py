"""Log density and log survival of many points under one law: tabulate, then look up.

The integrand on the contour depends on the point only through ``exp(i a d)``, ``d`` the distance
from the edge. The rest is tabulated once for a few dozen tilts; each point takes the tilt
whose tilted mean is near and sums one short series: no root-finding and no factor ``n``.
The tilts are marched outwards in steps of a few tilted standard deviations, so
that relative accuracy holds to the edge of the support.
"""

import math
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from nn_uq_dist.linear_combination._any_point import any_point
from nn_uq_dist.linear_combination._conditioning import Law
from nn_uq_dist.linear_combination._contour import (
    Contour,
    contour_at,
    envelope_at,
    log_scale,
    nodes_of_chunk,
    power_of,
    product_of_factors,
    relative_correction,
)
from nn_uq_dist.linear_combination._law_per_point import (
    Orders,
    binary_scale,
    distance_from_edge,
    in_blocks,
    log_tails,
)
from nn_uq_dist.linear_combination._precision import precision
from nn_uq_dist.linear_combination._saddlepoint import solve_tilt, tilted_moments
from nn_uq_dist.linear_combination._trigonometry import sine_and_cosine

# Tables end at this fraction of the width from the edge; nearer points are evaluated singly.
_NEAREST = {"float32": 1e-4, "float64": 1e-7}
_MANY_WEIGHTS = 24
_LAWS_AT_ONCE = 64


class Table(NamedTuple):
    """Tilted characteristic functions of L laws at T tilts.

    Attributes
    ----------
    thresholds : Array, shape (L, T - 1)
        Distances from the edge that separate the ranges of the tilts, decreasing.
    nearest : Array, shape (L,)
        Distance from the edge that the last tilt still serves.
    contour : Contour
        Fields of shape (L, T).
    log_scale : Array, shape (L, T)
        Exponent at distance zero from the edge.
    values : Array, shape (J, L, T)
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


def table_size(order: int, law: Law) -> tuple[int, int]:
    """Number of tilts and of nodes, known from the shapes."""
    name = law.weights.dtype.name
    tolerances = precision(name)
    count = law.weights.shape[0]
    # t^2 K''(t) is at most n (plus the pole), which bounds the growth of the tilt in one step.
    growth = math.log1p(_march(name) / math.sqrt(count + order + 1))
    span = math.log(10.0 * math.sqrt(count + 1) / _NEAREST[name])
    num_tilts = math.ceil(span / growth) + (2 if law.normal_scale is None else 12)
    num_nodes = tolerances.table_nodes * (1 if count >= _MANY_WEIGHTS else 3)
    return num_tilts, num_nodes


def _march(dtype_name: str) -> float:
    """Step from one tilt to the next in tilted standard deviations."""
    return 1.6 * precision(dtype_name).table_reach


def _tilts(order: int, law: Law, num_tilts: int) -> tuple[Array, Array, Array, Array]:
    """Tilts, tilted distances from the edge, variances, and what separates the ranges; (T, L)."""
    weights, normal_variance = law.weights, law.normal_variance()
    step = _march(weights.dtype.name)
    pole = jnp.asarray(order, weights.dtype)
    second = law.moments()[0]
    center = jnp.zeros_like(second)
    width = jnp.sum(weights, axis=0)
    everywhere = jnp.ones(center.shape, bool)
    orders = jnp.full(center.shape, order)
    lowest = 0.5 * precision(weights.dtype).table_reach / jnp.sqrt(second)
    central, _ = solve_tilt(orders, center, width, weights, normal_variance, everywhere)
    start = jnp.maximum(central, lowest)

    def advance(tilt: Array, _: None) -> tuple[Array, tuple[Array, Array, Array, Array]]:
        distance, variance = tilted_moments(pole, weights, normal_variance, tilt)
        following = tilt + step / jnp.sqrt(variance)
        between = tilted_moments(pole, weights, normal_variance, 0.5 * (tilt + following))[0]
        return following, (tilt, distance, variance, between)

    columns: tuple[Array, Array, Array, Array] = lax.scan(advance, start, None, length=num_tilts)[1]
    return columns


def tabulate(order: int, law: Law) -> Table:
    """Table of L laws (weights of shape (n, L), positive and of order one)."""
    num_tilts, num_nodes = table_size(order, law)
    num_laws = law.weights.shape[1]
    tilt, distance, variance, between = _tilts(order, law, num_tilts)

    def flat(column: Array) -> Array:
        return column.T.reshape(-1)

    weights = jnp.repeat(law.weights, num_tilts, axis=1)
    normal_variance = jnp.repeat(law.normal_variance(), num_tilts)
    width = jnp.sum(weights, axis=0)
    span = 2.0 * width
    reach = precision(weights.dtype).table_reach
    orders = jnp.full((1, *span.shape), order)
    contour = contour_at(
        orders,
        flat(tilt),
        flat(variance),
        width - flat(distance),
        span,
        weights,
        normal_variance,
        margin=reach,
    )
    bound = envelope_at(weights, normal_variance, contour, num_nodes)
    nodes = nodes_of_chunk(contour, 0, num_nodes)
    values = product_of_factors(weights, contour.tilt, nodes)
    values = values * power_of(nodes.shrink * nodes.direction, orders[0])
    phase = nodes.frequency * normal_variance * contour.tilt
    sine, cosine = sine_and_cosine(phase)
    decay = jnp.exp(-0.5 * normal_variance * nodes.frequency * nodes.frequency)
    values = values * lax.complex(decay * cosine, decay * sine)
    constant = log_scale(jnp.zeros_like(contour.tilt), weights, normal_variance, contour)
    shape = (num_laws, num_tilts)
    return Table(
        thresholds=between.T[:, :-1],
        nearest=between.T[:, -1],
        contour=Contour(*(field.reshape(shape) for field in contour)),
        log_scale=constant.reshape(shape),
        values=values.reshape(num_nodes, *shape),
        usable=(bound < 10.0 * precision(weights.dtype).acceptable).reshape(shape),
    )


def look_up(order: int, distance: Array, table: Table) -> tuple[Array, Array]:
    """Log tail integral at points given by their distance from the edge, and where it holds.

    Parameters
    ----------
    order : int
    distance : Array, shape (L, P)
    table : Table
    """
    num_laws, num_tilts = table.log_scale.shape
    index = jnp.sum(distance[:, :, None] < table.thresholds[:, None, :], axis=-1)
    flat = index + num_tilts * jnp.arange(num_laws)[:, None]

    def at(field: Array) -> Array:
        return jnp.take(field.reshape(-1), flat)

    step, tilt = at(table.contour.step), at(table.contour.tilt)
    sine, cosine = sine_and_cosine(0.5 * step * distance)
    half_turn = lax.complex(cosine, sine)
    turn = half_turn * half_turn
    num_nodes = table.values.shape[0]

    def horner(j: Array, total: Array) -> Array:
        return total * turn + at(table.values[num_nodes - 1 - j])

    total = lax.fori_loop(0, num_nodes, horner, jnp.zeros_like(turn))
    total_real = (total * half_turn).real * step / jnp.pi
    value = at(table.log_scale) + tilt * distance
    if order:
        q = jnp.exp(-tilt * 2.0 * jnp.pi / step)
        correction = jnp.where(at(table.contour.polynomial_aliases), q / (1.0 + q), 0.0)
        total_real = total_real + relative_correction(correction, value)
    holds = at(table.usable) & (distance >= table.nearest[:, None]) & (total_real > 0)
    return value + jnp.log(jnp.where(holds, total_real, 1.0)), holds


def _log_tail_of_laws(order: int, y: Array, law: Law) -> Array:
    """Laws with weights (n, L), points (L, P)."""
    magnitudes = law._replace(weights=jnp.abs(law.weights))
    scale = binary_scale(magnitudes)
    scaled = Law(
        jnp.maximum(magnitudes.weights / scale, jnp.finfo(y.dtype).eps ** 1.5),
        None if law.normal_scale is None else law.normal_scale / scale,
    )
    table = tabulate(order, scaled)
    count = law.weights.shape[0]
    spread = jnp.broadcast_to((magnitudes.weights / scale)[:, :, None], (count, *y.shape))
    distance = distance_from_edge(y / scale[:, None], spread)
    value, holds = look_up(order, distance, table)
    if order == 0:
        value = value - jnp.log(scale)[:, None]
    bounded = law.normal_scale is None or law.normal_scale[:, None] == 0
    outside = bounded & (distance <= 0)
    value = jnp.where(outside, -jnp.inf, value)

    def singly(_: None) -> Array:
        return log_tails_singly((order,), y, law)[0]

    return lax.cond(any_point(~(holds | outside)), singly, lambda _: value, None)


def log_tails_singly(orders: Orders, y: Array, law: Law) -> Array:
    """The same without a table, each point with its own copy of the law; shape (M, L, P)."""
    num_points = y.shape[1]
    repeated = Law(
        jnp.repeat(law.weights.T, num_points, axis=0),
        None if law.normal_scale is None else jnp.repeat(law.normal_scale, num_points),
    )
    values = in_blocks(partial(log_tails, orders), y.reshape(-1), repeated)
    return values.reshape(len(orders), *y.shape)


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def log_tails_of_laws(orders: Orders, y: Array, law: Law) -> Array:
    """Log density (order 0), log survival (order 1) or both of P points under each of L laws.

    Parameters
    ----------
    orders : tuple of int
    y : Array, shape (L, P)
        Points at or above the center.
    law : Law
        Weights of shape (n, L), any sign.

    Returns
    -------
    Array, shape (M, L, P)
    """
    return jnp.stack([_in_portions(order, y, law) for order in orders])


def _in_portions(order: int, y: Array, law: Law) -> Array:
    num_laws = y.shape[0]
    if num_laws <= _LAWS_AT_ONCE:
        return _log_tail_of_laws(order, y, law)
    in_turn = Law(law.weights.T, law.normal_scale)

    def one_law(part: tuple[Array, Law]) -> Array:
        y, law = part
        return _log_tail_of_laws(order, y[None], Law(law.weights[:, None], _row(law.normal_scale)))[
            0
        ]

    return lax.map(one_law, (y, in_turn))


def _row(scale: Array | None) -> Array | None:
    return None if scale is None else scale[None]


@log_tails_of_laws.defjvp
def _log_tails_of_laws_jvp(
    orders: Orders, primals: tuple[Array, Law], tangents: tuple[Array, Law]
) -> tuple[Array, Array]:
    # Derivatives with respect to weights need the factor n for each point in any case.
    return jax.jvp(partial(log_tails_singly, orders), primals, tangents)
