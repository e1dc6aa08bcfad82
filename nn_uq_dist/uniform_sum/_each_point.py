"""Log density and log survival if every point has its own distribution.

The contour integral is tried first; points for which it does not converge are conditioned on their
largest weights, up to four. Both are passes of one loop over the same integral: the plain integral
is a tree of one leaf, so the program is compiled once. Points come in chunks: memory stays bounded,
and a difficult distribution delays only its own chunk.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from nn_uq_dist.basics.chunks import any_point, chunk_size, in_chunks
from nn_uq_dist.uniform_sum._conditioning import (
    MOST_CONDITIONED,
    Leaves,
    Rows,
    conditioned,
    whole,
    without_largest,
)
from nn_uq_dist.uniform_sum._contour import choose_contour
from nn_uq_dist.uniform_sum._contour_sum import Slopes, contour_sum
from nn_uq_dist.uniform_sum._uniform_sum import (
    UniformSum,
    alias_corrections,
    binary_scale,
    distance_from_edge,
    in_units,
    relative_correction,
)

# Points at a time on a CPU (measured with 12 to 12,000 distributions) and elsewhere; in programs
# that hold any smaller number of points, and in those for a given number.
_PADDED_CHUNK, CHUNK = (64, 1024), (512, 2048)

Orders = tuple[int, ...]
DENSITY: Orders = (0,)
SURVIVAL: Orders = (1,)
BOTH: Orders = (0, 1)


class Values(NamedTuple):
    """Results of a method.

    Attributes
    ----------
    logs : Array, shape (M, B)
        ``-inf`` beyond the support, NaN for a distribution that is a point mass or not finite.
    done : Array of bool, shape (B,)
        Where the method has converged.
    gradient : Array, shape (R, M, B)
        Derivatives in the point, in the normal scale if there is one, and in each weight; no rows
        if they are not requested.
    """

    logs: Array
    done: Array
    gradient: Array


def evaluate_each_point(
    orders: Orders,
    y: Array,
    distribution: UniformSum,
    active: Array,
    *,
    derivatives: int,
    conditioning: bool = True,
) -> Values:
    """Log density (order 0), log survival (1) or both at ``y >= 0``, a sum for each point.

    Parameters
    ----------
    orders : tuple of int
        `DENSITY`, `SURVIVAL` or `BOTH`, which costs little more than one of them.
    y : Array, shape (B,)
    distribution : UniformSum
        Weights of any sign.
    active : Array of bool, shape (B,)
        Points that are requested.
    derivatives : int
        0 for values only; 1 or 2 for the gradient, with enough nodes for that many derivatives.
    conditioning : bool
        Whether to use conditioning where the plain integral does not converge.
    """
    # abs with derivative one at zero: all functions are even in each weight, and the second
    # derivative at a zero weight needs the chain rule to pass.
    sign = jnp.where(distribution.weights < 0, -1.0, 1.0).astype(y.dtype)
    scale = binary_scale(distribution)
    scaled = in_units(distribution._replace(weights=distribution.weights * sign), scale)
    order = jnp.broadcast_to(jnp.asarray(orders)[:, None], (len(orders), *y.shape))
    point = y / scale
    if scaled.normal_scale is not None:
        # Beyond, the logarithm overflows, too.
        root = float(jnp.finfo(y.dtype).max) ** 0.5
        ends = 2.0 * (jnp.sum(scaled.weights, axis=0) + root * scaled.normal_scale)
        point = jnp.minimum(point, ends)
    distance = distance_from_edge(point, scaled.weights)
    problem = order, point, distance, scaled
    if scaled.normal_scale is None and len(scaled.weights) <= MOST_CONDITIONED:
        leaves, done = whole(*problem, derivatives), jnp.ones(y.shape, bool)
        rows = Rows(scaled, leaves, derivatives).zeros(order)
        leaves, rows = conditioned(order, leaves, rows, scaled, done, derivatives, on_all=True)
        sums = _Sums(jnp.zeros(order.shape, y.dtype), rows)
    else:
        sums, leaves, done = _integrals(*problem, active, derivatives, conditioning)
    value = sums.rows[0]
    is_zero = value <= 0  # not where a sum is NaN
    if scaled.normal_scale is None:
        is_zero = is_zero | (distance <= 0)
    safe = jnp.where(is_zero, 1.0, value)
    logs = jnp.where(is_zero, -jnp.inf, sums.unit + jnp.log(safe))
    logs = logs - jnp.where(order == 0, jnp.log(scale), 0.0)
    second = scaled.moments()[0]
    valid = (second > 0) & jnp.isfinite(second) & ~jnp.isnan(y)
    gradient = jnp.zeros((0, *logs.shape), logs.dtype)
    if derivatives:
        slopes = Rows(scaled, leaves, derivatives).gradient(sums.rows)
        slopes = jnp.where(is_zero, 0.0, slopes / safe) / scale
        others = len(slopes) - len(sign)
        gradient = jnp.concatenate([slopes[:others], slopes[others:] * sign[:, None]])
    return Values(jnp.where(valid, logs, jnp.nan), done | ~valid, gradient)


class TailIntegral(NamedTuple):
    """M tail integrals of each point, with derivatives if they were requested.

    Attributes
    ----------
    log_sum : Array, shape (M, B)
        Logarithm of the midpoint sum; ``-inf`` for points without density (at or beyond the edge of
        a bounded distribution).
    slopes : Slopes or None
        Its derivatives.
    aliases : Array, shape (K, M, B)
        The aliases that the sum lacks, relative to it, and those of the lower orders that their
        derivatives need.
    converged : Array of bool, shape (B,)
        Where all orders converged.
    """

    log_sum: Array
    slopes: Slopes | None
    aliases: Array
    converged: Array


def tail_integral(
    order: Array,
    y: Array,
    distance: Array,
    distribution: UniformSum,
    active: Array,
    last: Array,
    derivatives: int,
) -> TailIntegral:
    """``I_order(y)`` for ``y >= 0`` by the contour integral.

    Parameters
    ----------
    order : Array of int, shape (M, B)
        Ascending by one.
    y, distance : Array, shape (B,)
        Point, at or above the center, and its distance from the edge of the support.
    distribution : UniformSum
        Weights not negative.
    active : Array of bool, shape (B,)
        Points that matter; elsewhere the value is arbitrary but finite or ``-inf``.
    last : Array of bool, shape ()
        Whether no other method follows.
    derivatives : int
        How many derivatives the quadrature must resolve.
    """
    # A comparison of the variance alone would be a kernel of its own, before the loop over leaves.
    reach = jnp.maximum(distance, distribution.normal_variance)
    inside = active & (jnp.minimum(reach, distribution.moments()[0]) > 0)
    # Zero weights become tiny ones, and derivatives pass through: the integral is even in each
    # weight, and its second derivative at zero is not zero.
    smallest = jnp.finfo(y.dtype).eps ** 1.5
    lift = lax.stop_gradient(jnp.maximum(smallest - distribution.weights, 0.0))
    # Where nothing is computed, use the center of a distribution with weights of one; those that
    # are not in use have no factors, with which a sum of negative terms would be NaN.
    scale, num_rows = distribution.normal_scale, distribution.num_rows
    count: Any = len(lift) if num_rows is None else num_rows
    is_used: Any = num_rows is None or np.arange(len(lift))[:, None] < num_rows
    ones = jnp.where(is_used, 1.0, smallest)
    safe = distribution._replace(
        weights=jnp.where(inside, distribution.weights + lift, ones).astype(y.dtype),
        normal_scale=None if scale is None else jnp.where(inside, scale, 1.0),
    )
    y = jnp.where(inside, y, 0.0)
    distance = jnp.where(inside, distance, jnp.asarray(count, y.dtype))
    constants = lax.stop_gradient((y, distance, safe, inside))
    contour = choose_contour(order, *constants, last, derivatives)
    converged = (contour.num_nodes > 0) | ~inside
    log_sum, slopes = contour_sum(distance, safe, contour, derivatives)
    moments, decay = safe.moments(), contour.alias_decay
    # Of points without aliases powers may overflow.
    near = jnp.where(contour.polynomial_aliases, y, 0.0)
    aliases = alias_corrections(order, near, moments, decay, contour.spacing, derivatives > 0)
    aliases = relative_correction(aliases, log_sum)
    return TailIntegral(jnp.where(inside, log_sum, -jnp.inf), slopes, aliases, converged)


class _Sums(NamedTuple):
    """Sums over leaves, ``exp(unit)`` times rows of values and gradients.

    Attributes
    ----------
    unit : Array, shape (M, B)
    rows : Array, shape (R, M, B)
    """

    unit: Array
    rows: Array


def _integrals(
    order: Array,
    y: Array,
    distance: Array,
    distribution: UniformSum,
    active: Array,
    derivatives: int,
    conditioning: bool,
) -> tuple[_Sums, Leaves, Array]:
    """Sums for weights that are not negative, the last leaves, and where the sums have converged.

    The plain integral is the first pass of a loop; the leaves of points for which it does not
    converge are the others. One program of the integral serves all.
    """

    def add_leaf(
        index: Array, used: Array, is_last: Array, leaves: Leaves, sums: _Sums
    ) -> tuple[_Sums, Array]:
        """Add a leaf at some points, in units of the largest value, because tails may underflow."""
        number = leaves.number
        numbers, signs = (
            lax.dynamic_index_in_dim(part, index, 1, keepdims=False)
            for part in (leaves.numbers, leaves.signs)
        )
        (point, distance), coefficient = numbers[:2], numbers[2:]
        rest = without_largest(distribution, leaves.ranks, number)
        tail = tail_integral(order + number, point, distance, rest, used, is_last, derivatives)
        finite = jnp.isfinite(tail.log_sum) & (coefficient != 0)
        logs = jnp.where(finite, tail.log_sum, 0.0)
        size = jnp.log(jnp.abs(jnp.where(finite, coefficient, 1.0)))
        unit = jnp.maximum(sums.unit, jnp.where(finite, logs + size, -jnp.inf))
        # Points that did not converge in the plain pass start again.
        kept = used & (tail.converged | is_last)
        unit = lax.stop_gradient(jnp.where(kept, unit, sums.unit))
        safe = jnp.where(jnp.isfinite(unit), unit, 0.0)
        share = jnp.exp(jnp.where(finite, logs - safe, 0.0))
        value = jnp.where(finite, coefficient * share, 0.0)
        aliases = value * tail.aliases
        if derivatives:  # else there is one row
            # The barrier keeps the compiler from computing these anew for each row.
            value, aliases = lax.optimization_barrier((value, aliases))
        rows = Rows(distribution, leaves, derivatives)
        added = rows.of_polynomials(aliases[:, :, None], -signs[:, None, None], number)
        added = added + rows.of_tail(value, tail.slopes, signs, number)
        total = sums.rows * jnp.exp(sums.unit - safe) + added
        return _Sums(unit, jnp.where(kept, total, sums.rows)), tail.converged

    leaves = whole(order, y, distance, distribution, derivatives)
    nothing = Rows(distribution, leaves, derivatives).zeros(order)
    sums = _Sums(jnp.full(order.shape, -jnp.inf, y.dtype), nothing)
    if not conditioning:
        sums, converged = add_leaf(jnp.asarray(0), active, jnp.asarray(False), leaves, sums)
        return sums, leaves, converged

    def one_pass(state: tuple[Any, ...]) -> tuple[Any, ...]:
        _, index, used, is_tree, leaves, sums = state
        sums, converged = add_leaf(index, used, is_tree, leaves, sums)
        used = used & jnp.where(is_tree, index + 1 < 1 << leaves.number, ~converged)
        more = any_point(used)

        def begin_tree() -> tuple[Leaves, _Sums]:
            tree, rows = conditioned(order, leaves, sums.rows, distribution, used, derivatives)
            return tree, _Sums(jnp.where(used & (rows[0] != 0), 0.0, sums.unit), rows)

        leaves, sums = lax.cond(more & ~is_tree, begin_tree, lambda: (leaves, sums))
        index = jnp.where(is_tree, index + 1, 0)
        return more, index, used, jnp.asarray(True), leaves, sums

    false, true = jnp.asarray(False), jnp.asarray(True)
    first = true, jnp.asarray(0), active, false, leaves, sums
    *_, leaves, sums = lax.while_loop(lambda state: state[0], one_pass, first)
    return sums, leaves, jnp.ones(y.shape, bool)


# Compiled here, so that eager calls with shapes seen before do not compile their loops anew.
@partial(jax.jit, static_argnames=("orders", "derivatives", "conditioning"))
def evaluate_in_chunks(
    orders: Orders,
    y: Array,
    distribution: UniformSum,
    *,
    derivatives: int,
    conditioning: bool = True,
    num_points: Array | None = None,
) -> Values:
    """`evaluate_each_point` for N points, a chunk at a time.

    Parameters
    ----------
    orders, derivatives, conditioning
        As in `evaluate_each_point`.
    y : Array, shape (N,)
    distribution : UniformSum
        Weights of shape (n, N).
    num_points : Array of int, shape (), optional
        Number of leading points that matter; later chunks cost nothing. Default: all.
    """

    def chunk(y: Array, rows: Array, scale: Array | None, active: Array) -> list[Array]:
        some = distribution._replace(weights=rows.T, normal_scale=scale)
        values = evaluate_each_point(
            orders, y, some, active, derivatives=derivatives, conditioning=conditioning
        )
        return [jnp.moveaxis(part, -1, 0) for part in values]

    count = len(y)
    active = jnp.ones(count, bool) if num_points is None else jnp.arange(count) < num_points
    # Weights come as a transpose. XLA takes back a transpose of it that is outside of the loop.
    parts = y, distribution.weights.T, distribution.normal_scale, active
    size = chunk_size(*(CHUNK if num_points is None else _PADDED_CHUNK))
    by_point = in_chunks(chunk, *parts, size=size, num_rows=num_points)
    return Values(*[jnp.moveaxis(part, 0, -1) for part in by_point])
