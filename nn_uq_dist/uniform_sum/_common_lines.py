r"""Many points of one distribution: the integrand on common lines, looked up at all points.

On a vertical line the integrand depends on the point only through ``exp(z d)``, ``d`` the distance
from the edge of the support. Tilts advance outward in steps of a few tilted standard deviations, so
that relative accuracy holds up to the edge. Lines are tabulated once, up to the outermost that a
point needs; each point takes the line whose tilted mean is nearest and sums one short series: no
root-finding and no factor ``n``. Points beyond the last line, or on a line that needs more nodes,
go singly.
"""

import math
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.typing import DTypeLike

from nn_uq_dist.basics.chunks import any_point, chunk_size, in_chunks
from nn_uq_dist.uniform_sum._conditioning import MOST_CONDITIONED
from nn_uq_dist.uniform_sum._contour import (
    contour_at,
    envelope_at,
    log_scale,
    moments_at_tilt,
)
from nn_uq_dist.uniform_sum._contour_sum import integrand, nodes_of_chunk
from nn_uq_dist.uniform_sum._each_point import Orders
from nn_uq_dist.uniform_sum._uniform_component import excess_coth, sine_and_cosine
from nn_uq_dist.uniform_sum._uniform_sum import (
    UniformSum,
    binary_scale,
    distance_from_edge,
    in_units,
    relative_correction,
    tolerances_of,
)

# Step from one line to the next, in the largest distance of a point from a line.
_STEP = 1.6
# Lines at a time on a CPU and elsewhere: 8 take 1.2 to 2 times as long on two cores.
_LINES = (1, 8)
# Lines of fewer weights need more nodes.
_MANY_WEIGHTS = 24
# With fewer factors (points times weights) common lines cost more than they save, and with fewer
# points of each distribution; unless a copy of the weights for each point would be large.
_FEWEST_FACTORS = 2**15
_FEWEST_POINTS = 128
_TOO_MANY_TO_COPY = 1024
# Points that are looked up at a time, if the program is compiled for their number and if not.
_POINTS_AT_ONCE, _CONCRETE_POINTS_AT_ONCE = 2**14, 256


def is_worth_lines(
    orders: Orders, num_points: int, num_distributions: int, count: int, dtype: DTypeLike
) -> bool:
    """Whether common lines save time for this many points of distributions of ``count`` weights."""
    if num_points * num_distributions * count < _FEWEST_FACTORS or count <= MOST_CONDITIONED:
        return False
    if count >= _TOO_MANY_TO_COPY:
        return num_points > 1
    return num_points >= min(_FEWEST_POINTS, 2 * _most_lines(orders, count, dtype))


def _most_lines(orders: Orders, count: int, dtype: DTypeLike) -> int:
    """Lines up to the nearest distance from the edge."""
    tolerances = tolerances_of(dtype)
    # t^2 K''(t) is at most n (plus the pole), which bounds the growth of the tilt in one step.
    growth = math.log1p(_STEP * tolerances.line_reach / math.sqrt(count + max(orders) + 1))
    return math.ceil(math.log(10.0 * math.sqrt(count + 1) / tolerances.line_end) / growth) + 2


class Lines(NamedTuple):
    """T lines of one distribution, for M orders of the pole.

    Attributes
    ----------
    numbers : Array, shape (T, 3 + M)
        Tilt, step and decay of the aliases, as of `Contour`, and the exponents at the edge: NaN for
        lines that need more nodes.
    values : Array, shape (T, J, M)
        Normalized integrand at the edge, complex, at J nodes.
    """

    numbers: Array
    values: Array


def _tilts(orders: Orders, nearest: Array, distribution: UniformSum) -> tuple[Array, Array]:
    """Tilts up to the first one beyond ``nearest``, the least distance of a point.

    All orders share the tilts of the highest one, which stays farthest from the pole.

    Returns
    -------
    tuple of Array
        Shape (3, T + 1): tilts, distances of the tilted means from the edge, ``-inf`` after the
        first one beyond all points, and variances. Number of the lines that points need, at most T.
    """
    dtype, order = distribution.weights.dtype, max(orders)
    pole, reach = jnp.full(1, order, dtype), tolerances_of(dtype).line_reach
    # The tilted mean of the first one is left of the center by less than a standard deviation.
    least = max(0.5 * reach, order**0.5)
    start = least * lax.rsqrt(distribution.moments()[0])
    # A normal part has points beyond the edge.
    most = _most_lines(orders, distribution.weights.shape[0], dtype) + 12 * (
        distribution.normal_scale is not None
    )

    def advance(state: tuple[Any, ...]) -> tuple[Any, ...]:
        _, tilt, numbers, count = state
        distance, variance = moments_at_tilt(pole, distribution, tilt)
        column = jnp.stack([tilt, distance, variance])
        numbers = lax.dynamic_update_slice_in_dim(numbers, column, count, axis=1)
        more = any_point(distance > nearest) & (count < most)
        tilt = tilt + _STEP * reach * lax.rsqrt(variance)
        return more, tilt, numbers, count + 1

    unused = np.broadcast_to(np.array([[1.0], [-np.inf], [1.0]], dtype), (3, most + 1))
    empty = jnp.asarray(True), start, jnp.asarray(unused), jnp.asarray(0)
    *_, numbers, count = lax.while_loop(lambda state: state[0], advance, empty)
    return numbers, jnp.minimum(count, most)


def _tabulate(orders: Orders, distribution: UniformSum, tilts: Array) -> Lines:
    """Lines at given tilts, with distances and variances, shape (T, 3)."""
    tilt, distance, variance = tilts.T
    dtype, (count, _) = distribution.weights.dtype, distribution.weights.shape
    scale = distribution.normal_scale
    distribution = distribution._replace(
        weights=jnp.broadcast_to(distribution.weights, (count, len(tilt))),
        normal_scale=None if scale is None else jnp.broadcast_to(scale, tilt.shape),
    )
    width, at_edge = jnp.sum(distribution.weights, axis=0), jnp.zeros_like(tilt)
    order = jnp.broadcast_to(np.array(orders)[:, None], (len(orders), len(tilt)))
    tolerances = tolerances_of(dtype)
    margin = tolerances.line_reach
    contour = contour_at(order, tilt, variance, width - distance, 2.0 * width, distribution, margin)
    excess = excess_coth(distribution.weights, contour.tilt)
    size = tolerances.line_nodes * (1 if count >= _MANY_WEIGHTS else tolerances.more_nodes)
    nodes = nodes_of_chunk(contour, 0, size)
    shift = distribution.normal_variance * tilt
    values = integrand(shift, distribution, excess, contour, nodes)
    bound = envelope_at(distribution, excess, contour, size)
    exponents = log_scale(at_edge, distribution, contour)
    # As in a sum that goes on until all is small: the bound takes all sines for one.
    end = jnp.max(jnp.abs(values[-2:, 0]), axis=0)
    seen = (end < tolerances.acceptable) & (bound < tolerances.unseen)
    exponents = jnp.where((bound < tolerances.acceptable) | seen, exponents, jnp.nan)
    # One array, and so one kernel, for all numbers.
    numbers = jnp.stack([contour.tilt, contour.step, contour.alias_decay, *exponents], axis=1)
    return Lines(numbers, values.transpose(2, 0, 1))


def _look_up(orders: Orders, distance: Array, index: Array, lines: Lines) -> tuple[Array, Array]:
    """Log tail integrals (P, M) at distances (P,) on lines, by index, and where they hold."""
    tilt, step, decay, *exponents = lines.numbers[index].T
    table = lines.values.transpose(1, 2, 0)
    sine, cosine = sine_and_cosine(0.5 * step * distance)
    half_turn = lax.complex(cosine, sine)
    turn = half_turn * half_turn
    num_nodes = len(table)

    def horner(j: Array, totals: list[Array]) -> list[Array]:
        rows = table[num_nodes - 1 - j]
        return [total * turn + row[index] for row, total in zip(rows, totals, strict=True)]

    totals = lax.fori_loop(0, num_nodes, horner, [jnp.zeros_like(turn) for _ in orders])
    values = []
    for order, total, exponent in zip(orders, totals, exponents, strict=True):
        unit = exponent + tilt * distance
        sums = (total * half_turn).real * step / jnp.pi
        if order:
            # The survival function is one at every alias, see `alias_corrections`.
            sums = sums + relative_correction(decay / (1.0 + decay), unit)
        values.append(unit + jnp.log(jnp.where(sums > 0, sums, jnp.nan)))
    logs = jnp.stack(values, axis=1)
    return logs, jnp.all(jnp.isfinite(logs), axis=1)


def _of_one_distribution(
    orders: Orders, y: Array, distribution: UniformSum, num_points: Array | None
) -> tuple[Array, Array]:
    """Values (P, M) at points (P,) of a distribution with weights (n, 1), and where they hold.

    No value of a valid distribution is NaN: with `jax_debug_nans` that would be an error.
    """
    distribution = distribution._replace(weights=jnp.abs(distribution.weights))
    unit = binary_scale(distribution)
    distribution = in_units(distribution, unit)
    distance = distance_from_edge(y / unit, distribution.weights)
    outside = (distance <= 0) & (
        True if distribution.normal_scale is None else distribution.normal_scale == 0
    )
    second = distribution.moments()[0]
    valid = (second > 0) & jnp.isfinite(second)
    smallest = jnp.finfo(y.dtype).eps ** 1.5
    distribution = distribution._replace(weights=jnp.maximum(distribution.weights, smallest))
    # NaN, as points outside, needs no line.
    nearest = jnp.min(jnp.where(outside | jnp.isnan(distance), jnp.inf, distance))
    tilts, count = _tilts(orders, nearest, distribution)
    # The barrier keeps the compiler from computing these anew for each point.
    between = lax.optimization_barrier(0.5 * (tilts[1, 1:] + tilts[1, :-1]))
    index = jnp.sum(distance[:, None] < between[:-1], axis=1)
    tabulate = partial(_tabulate, orders, distribution)
    lines = in_chunks(tabulate, tilts[:, :-1].T, size=chunk_size(*_LINES), num_rows=count)
    size = _POINTS_AT_ONCE if num_points is None else _CONCRETE_POINTS_AT_ONCE

    def some_points(distance: Array, index: Array) -> tuple[Array, Array]:
        return _look_up(orders, distance, index, lines)

    values, holds = in_chunks(some_points, distance, index, size=size, num_rows=num_points)
    values = values - jnp.where(np.array(orders) == 0, jnp.log(unit), 0.0)
    holds = holds & (distance >= between[-1])
    values = jnp.where((holds & ~outside)[:, None], values, -jnp.inf)
    return jnp.where(valid, values, jnp.nan), holds | outside | ~valid


@partial(jax.jit, static_argnums=0)
def by_lines(
    orders: Orders,
    y: Array,
    distribution: UniformSum,
    num_distributions: Array | None = None,
    num_points: Array | None = None,
) -> tuple[Array, Array]:
    """Values (L, P, M) at points (L, P), weights (n, L), and where they hold."""

    def one(y: Array, weights: Array, scale: Array | None) -> tuple[Array, Array]:
        single = UniformSum(weights.T, scale, distribution.num_rows)
        values, holds = _of_one_distribution(orders, y[0], single, num_points)
        return values[None], holds[None]

    parts = y, distribution.weights.T, distribution.normal_scale
    return in_chunks(one, *parts, size=1, num_rows=num_distributions)
