"""Log density and log survival of laws with very many weights, a thousand or more.

Nearly all of the weights enter through their power sums (`_power_sums`). Points so far out that the
series does not converge (about ten standard deviations) use all weights one by one, as derivatives
do; both are computed in blocks, so that memory stays close to that of the weights.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from nn_uq_dist.basics._blocks import any_point, in_blocks
from nn_uq_dist.basics._row_algebra import namespace
from nn_uq_dist.linear_combination._contour import (
    Contour,
    contour_at,
    envelope_at,
    log_scale,
    solve_tilt,
    tilted_moments,
)
from nn_uq_dist.linear_combination._contour_sum import (
    edge_phase,
    nodes_of_chunk,
    product_of_factors,
)
from nn_uq_dist.linear_combination._each_point import Orders, block_size, evaluate_each_point
from nn_uq_dist.linear_combination._law import Law, distance_from_edge
from nn_uq_dist.linear_combination._points import values_of_points
from nn_uq_dist.linear_combination._polynomials import first_alias_correction, relative_correction
from nn_uq_dist.linear_combination._power_sums import (
    FARTHEST,
    ReducedLaw,
    correction_at,
    correction_slopes,
    reduce,
)
from nn_uq_dist.linear_combination._precision import precision
from nn_uq_dist.linear_combination._uniform_component import excess_coth

# With fewer weights the sums cost more than they save, and the series converges only closer to the
# center.
FEWEST_WEIGHTS = 1024
_MOST_NEWTON_STEPS = 4
# Most numbers in the weights of a block of points that use all weights.
_MOST_NUMBERS = 2**21


def values_of_many_weights(orders: Orders, y: Any, weights: Any, normal_scale: Any) -> Any:
    """Log density (order 0), log survival (order 1) or both of P points under each of L laws.

    Parameters
    ----------
    orders : tuple of int
    y : Array, shape (L, P)
        Points at or above the center. NumPy arrays give NumPy arrays.
    weights : Array, shape (L, n)
        Any sign.
    normal_scale : Array, shape (L,), or None

    Returns
    -------
    Array, shape (M, L, P)
    """
    if not isinstance(y, np.ndarray):
        return _values(orders, y, weights, normal_scale)
    points, of_law = _flat(y)
    values, holds = (
        np.array(part) for part in _easy(orders, points, of_law, weights, normal_scale)
    )
    hard = ~holds
    if hard.any():
        # Compiled when a point first needs it.
        easy = np.zeros(int(hard.sum()), bool)
        rest = points[hard], of_law[hard], values[hard], easy
        values[hard] = _with_all_weights(orders, *rest, weights, normal_scale)
    return values.T.reshape(len(orders), *y.shape)


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def _values(orders: Orders, y: Array, weights: Array, normal_scale: Array | None) -> Array:
    points, of_law = _flat(y)
    found = _easy(orders, points, of_law, weights, normal_scale)
    values = _with_all_weights(orders, points, of_law, *found, weights, normal_scale)
    return values.T.reshape(len(orders), *y.shape)


# Compiled here, so that eager calls with shapes seen before do not compile their loops anew.
@partial(jax.jit, static_argnums=0)
def _easy(
    orders: Orders, points: Array, of_law: Array, weights: Array, normal_scale: Array | None
) -> tuple[Array, Array]:
    """Values (N, M) by the power sums, and where they are valid."""
    reduced = reduce(weights, normal_scale)

    def block(points: Array, of_law: Array) -> tuple[Array, Array]:
        values, holds = _by_power_sums(orders, points, reduced.take(of_law))
        return values.T, holds

    found: tuple[Array, Array] = in_blocks(block, points, of_law, size=block_size().traced)
    return found


@partial(jax.jit, static_argnums=0)
def _with_all_weights(
    orders: Orders,
    points: Array,
    of_law: Array,
    values: Array,
    holds: Array,
    weights: Array,
    normal_scale: Array | None,
) -> Array:
    """The values (N, M); invalid ones are recomputed from all weights."""

    def block(points: Array, of_law: Array, values: Array, holds: Array) -> Array:
        def singly() -> Array:
            law = _laws_of_points(weights, normal_scale, of_law)
            found = evaluate_each_point(orders, points, law, ~holds).logs.T
            return jnp.where(holds[:, None], values, found)

        return lax.cond(any_point(~holds), singly, lambda: values)

    found: Array = in_blocks(block, points, of_law, values, holds, size=_hard_block(weights))
    return found


@_values.defjvp
def _values_jvp(
    orders: Orders, primals: tuple[Any, ...], tangents: tuple[Any, ...]
) -> tuple[Array, Array]:
    # Derivatives with respect to weights cost a factor n for each point anyway.
    return jax.jvp(partial(_singly, orders), primals, tangents)


def _singly(orders: Orders, y: Array, weights: Array, normal_scale: Array | None) -> Array:
    """The same with all weights at each point; shape (M, L, P)."""

    # Do not keep a copy of the law for each point for the backward pass.
    @jax.checkpoint
    def block(points: Array, of_law: Array) -> Array:
        law = _laws_of_points(weights, normal_scale, of_law)
        values: Array = values_of_points(orders, points, law.weights, law.normal_scale)
        return values.T

    values: Array = in_blocks(block, *_flat(y), size=_hard_block(weights))
    return values.T.reshape(len(orders), *y.shape)


def _flat(y: Any) -> tuple[Any, Any]:
    """Points of all laws, and the index of the law of each."""
    xp, num_points = namespace(y), y.shape[1]
    return y.reshape(-1), xp.arange(y.size, dtype=np.int32) // np.int32(num_points)


def _laws_of_points(weights: Array, normal_scale: Array | None, of_law: Array) -> Law:
    of_points = jnp.asarray(weights)[of_law]
    return Law(of_points.T, None if normal_scale is None else jnp.asarray(normal_scale)[of_law])


def _hard_block(weights: Array) -> int:
    """Points in a block that uses all weights."""
    return max(1, min(block_size().traced, _MOST_NUMBERS // weights.shape[-1]))


def _by_power_sums(orders: Orders, y: Array, law: ReducedLaw) -> tuple[Array, Array]:
    """Values (M, B) at points (B,), and where they are valid."""
    like, y = law.normal_like, y / law.scale
    order = jnp.broadcast_to(jnp.asarray(orders)[:, None], (len(orders), *y.shape))
    distance = distance_from_edge(y, law.large)
    tilt, variance, is_near = _tilt(order[-1], y, distance, law)
    contour = contour_at(order, tilt, variance, y, 2.0 * y + distance, like)
    total, converged = _sum(distance, law, contour)
    holds = is_near & converged & jnp.all(total > 0, axis=0)
    unit = log_scale(distance, like, contour) + correction_at(law, tilt)
    value = unit + jnp.log(jnp.where(holds, total * contour.step / jnp.pi, 1.0))
    aliases = first_alias_correction(order, contour.alias_decay)
    value = value + jnp.log1p(relative_correction(aliases, value))
    return value - jnp.where(order == 0, jnp.log(law.scale), 0.0), holds


def _tilt(order: Array, y: Array, distance: Array, law: ReducedLaw) -> tuple[Array, Array, Array]:
    """Tilt, tilted variance, and whether the tilt is near the saddlepoint, by the series."""
    like, pole = law.normal_like, order.astype(y.dtype)
    everywhere = jnp.ones(y.shape, bool)
    lowest = 0.5 / jnp.sqrt(like.moments()[0])
    highest = FARTHEST / jnp.where(law.unit > 0, law.unit, jnp.finfo(y.dtype).tiny)

    def moments(tilt: Array) -> tuple[Array, Array]:
        at_tilt, variance = tilted_moments(pole, like, tilt)
        slope, bend = correction_slopes(law, tilt)
        return at_tilt - slope, variance + bend

    def newton(_: int, tilt: Array) -> Array:
        at_tilt, variance = moments(tilt)
        return jnp.clip(tilt + (at_tilt - distance) / variance, lowest, highest)

    tilt = jnp.clip(solve_tilt(order, y, distance, like, everywhere)[0], lowest, highest)
    tilt = lax.fori_loop(0, _MOST_NEWTON_STEPS, newton, tilt)
    at_tilt, variance = moments(tilt)
    off = (at_tilt - distance) / jnp.sqrt(variance)
    is_near = (jnp.abs(off) < precision(y.dtype).tilt_tolerance) | ((off < 0) & (tilt <= lowest))
    return tilt, variance, is_near & (variance > 0)


def _sum(distance: Array, law: ReducedLaw, contour: Contour) -> tuple[Array, Array]:
    """Midpoint sums (M, B), and where they and the series converge."""
    tolerances, like = precision(distance.dtype), law.normal_like
    size = tolerances.nodes_per_chunk
    excess = excess_coth(like.weights, contour.tilt)
    at_tilt = correction_at(law, contour.tilt)
    State = tuple[Array, Array, Array, Array]

    def add_chunk(state: State) -> State:
        chunk, unfinished, valid, total = state
        nodes = nodes_of_chunk(contour, chunk, size)
        moved = correction_at(law, nodes.z) - at_tilt
        density = product_of_factors(like, excess, contour.order[0], nodes)
        density = density * edge_phase(distance, like, contour, nodes) * jnp.exp(moved)
        rows = [jnp.sum(density.real, axis=0)]
        for _ in contour.order[1:]:
            density = density * nodes.pole
            rows.append(jnp.sum(density.real, axis=0))
        total = total + jnp.where(unfinished, jnp.stack(rows), 0.0)
        # The series must be valid at all nodes that count.
        valid = valid & (~unfinished | (law.unit * jnp.abs(nodes.z[-1]) <= FARTHEST))
        node = ((chunk + 1) * size).astype(distance.dtype)
        bound = envelope_at(like, excess, contour, node) * jnp.exp(moved[-1].real)
        return chunk + 1, unfinished & valid & (bound > tolerances.target), valid, total

    def more(state: State) -> Array:
        return any_point(state[1]) & (state[0] * size < tolerances.max_nodes)

    true = jnp.ones(distance.shape, bool)
    nothing = jnp.zeros(contour.order.shape, distance.dtype)
    start = (jnp.asarray(0), true, true, nothing)
    _, unfinished, valid, total = lax.while_loop(more, add_chunk, start)
    return total, valid & ~unfinished
