"""Log density and log survival if every point has its own distribution.

The contour integral is tried first; points for which it does not converge are conditioned on their
largest weights, up to four. Both are passes of one loop over the same integral: the plain integral
is the case without a conditioned weight, so the program is compiled once. Points come in blocks:
memory stays bounded, and a difficult distribution delays only its own block.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from nn_uq_dist.basics.chunks import any_point, in_chunks
from nn_uq_dist.uniform_sum._conditioning import (
    MOST_CONDITIONED,
    Leaf,
    Tree,
    leaf_of,
    no_tree,
    root_leaf,
    tree_of,
)
from nn_uq_dist.uniform_sum._contour_sum import TailIntegral, tail_integral
from nn_uq_dist.uniform_sum._rows import Rows, rows_of
from nn_uq_dist.uniform_sum._uniform_sum import (
    UniformSum,
    binary_scale,
    distance_from_edge,
    in_units,
    num_leading_rows,
)

Orders = tuple[int, ...]
DENSITY: Orders = (0,)
SURVIVAL: Orders = (1,)
BOTH: Orders = (0, 1)


class Gradient(NamedTuple):
    """Derivatives of M values; ``weights`` and ``normal_scale`` as those of the distribution.

    Attributes
    ----------
    y : Array, shape (M, B)
    weights : Array, shape (n, M, B)
    normal_scale : Array, shape (M, B), or None
    """

    y: Array
    weights: Array
    normal_scale: Array | None


class Values(NamedTuple):
    """Results of a method.

    Attributes
    ----------
    logs : Array, shape (M, B)
        ``-inf`` beyond the support, NaN for a distribution that is a point mass or not finite.
    done : Array of bool, shape (B,)
        Where the method has converged.
    gradient : Gradient or None
    """

    logs: Array
    done: Array
    gradient: Gradient | None


def gradient_of(values: Values) -> Gradient:
    """The gradient, which must have been requested."""
    assert values.gradient is not None  # noqa: S101 (for the type checker)
    return values.gradient


def evaluate_each_point(
    orders: Orders,
    y: Array,
    distribution: UniformSum,
    active: Array,
    *,
    derivatives: int = 0,
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
    found = _evaluate_scaled(orders, y / scale, scaled, active, derivatives, conditioning)
    is_density = jnp.asarray(orders)[:, None] == 0
    logs = found.logs - jnp.where(is_density, jnp.log(scale), 0.0)
    second = scaled.moments()[0]
    valid = (second > 0) & jnp.isfinite(second) & ~jnp.isnan(y)
    gradient = found.gradient
    if gradient is not None:
        gradient = Gradient(
            gradient.y / scale,
            gradient.weights * (sign / scale)[:, None],
            None if gradient.normal_scale is None else gradient.normal_scale / scale,
        )
    return Values(jnp.where(valid, logs, jnp.nan), found.done | ~valid, gradient)


class _Sums(NamedTuple):
    """Sums over leaves, ``exp(unit)`` times rows of values and gradients.

    Attributes
    ----------
    unit : Array, shape (M, B)
    rows : Array, shape (R, M, B)
    """

    unit: Array
    rows: Array


def _evaluate_scaled(
    orders: Orders,
    y: Array,
    distribution: UniformSum,
    active: Array,
    derivatives: int,
    conditioning: bool,
) -> Values:
    is_closed_form = (
        distribution.normal_scale is None and distribution.weights.shape[0] <= MOST_CONDITIONED
    )
    order = jnp.broadcast_to(jnp.asarray(orders)[:, None], (len(orders), *y.shape))
    distance = distance_from_edge(y, distribution.weights)
    whole = no_tree(distribution)
    root = rows_of(distribution, whole.ranks, derivatives)
    nothing = _Sums(jnp.full(order.shape, -jnp.inf, y.dtype), root.zeros(order))
    if is_closed_form:
        sums = _closed_form(order, y, distance, distribution, derivatives, nothing)
        return _values(sums, jnp.ones(y.shape, bool), distribution)
    if not conditioning:
        leaf = root_leaf(order, y, distance, root)
        last = jnp.asarray(False)
        tail = tail_integral(order, y, distance, distribution, active, last, derivatives)
        return _values(_add(nothing, leaf, tail, whole, root, active), tail.converged, distribution)
    return _with_conditioning(order, y, distance, distribution, active, derivatives, nothing)


def _closed_form(
    order: Array,
    y: Array,
    distance: Array,
    distribution: UniformSum,
    derivatives: int,
    nothing: _Sums,
) -> _Sums:
    """All weights are conditioned on: only polynomials are left."""
    number = distribution.weights.shape[0]
    tree = tree_of(distribution, number)
    rows = rows_of(distribution, tree.ranks, derivatives)

    def add_leaf(index: Array, sums: _Sums) -> _Sums:
        leaf = leaf_of(index, jnp.asarray(number + 1), order, y, distance, tree, rows)
        return _add(sums, leaf, None, tree, rows, jnp.ones(y.shape, bool))

    return lax.fori_loop(0, 2**number, add_leaf, nothing)


def _with_conditioning(
    order: Array,
    y: Array,
    distance: Array,
    distribution: UniformSum,
    active: Array,
    derivatives: int,
    nothing: _Sums,
) -> Values:
    """The plain integral, index -1, then the leaves of points for which it does not converge.

    One program of the integral serves both.
    """
    State = tuple[Array, Array, Array, Tree, _Sums]

    def add_leaf(state: State) -> State:
        index, _, used, tree, sums = state
        is_plain = index < 0
        rows = rows_of(distribution, tree.ranks, derivatives)
        levels = jnp.where(is_plain, 0, MOST_CONDITIONED + 1)
        leaf = leaf_of(index, levels, order, y, distance, tree, rows)
        rest = tree.rest(distribution)
        here = order + tree.number
        tail = tail_integral(here, leaf.point, leaf.distance, rest, used, ~is_plain, derivatives)
        # Points that did not converge in the plain pass start again.
        kept = used & (tail.converged | ~is_plain)
        sums = _add(sums, leaf, tail, tree, rows, kept)
        index = index + 1
        used = used & jnp.where(is_plain, ~tail.converged, index < 1 << tree.number)
        more = any_point(used)
        tree = lax.cond(is_plain & more, lambda: tree_of(distribution), lambda: tree)
        return index, more, used, tree, sums

    first = (jnp.asarray(-1), jnp.asarray(True), active, no_tree(distribution), nothing)
    sums = lax.while_loop(lambda state: state[1], add_leaf, first)[4]
    return _values(sums, jnp.ones(y.shape, bool), distribution)


def _add(
    sums: _Sums, leaf: Leaf, tail: TailIntegral | None, tree: Tree, rows: Rows, kept: Array
) -> _Sums:
    """Add a leaf at some points, in units of the largest value, because tails may underflow."""
    value = leaf.polynomial[0]
    some = value != 0
    size = jnp.where(some, jnp.log(jnp.abs(jnp.where(some, value, 1.0))), -jnp.inf)
    unit = jnp.maximum(sums.unit, size)
    if tail is not None:
        finite = jnp.isfinite(tail.log_sum) & (leaf.coefficient != 0)
        logs = jnp.where(finite, tail.log_sum, 0.0)
        size = jnp.log(jnp.abs(jnp.where(finite, leaf.coefficient, 1.0)))
        unit = jnp.maximum(unit, jnp.where(finite, logs + size, -jnp.inf))
    unit = lax.stop_gradient(jnp.where(kept, unit, sums.unit))
    safe = jnp.where(jnp.isfinite(unit), unit, 0.0)
    total = sums.rows * jnp.exp(sums.unit - safe)
    total = total + jnp.where(some, leaf.polynomial, 0.0) * jnp.where(some, jnp.exp(-safe), 0.0)
    if tail is not None:
        share = jnp.exp(jnp.where(finite, logs - safe, 0.0))
        value = jnp.where(finite, leaf.coefficient * share, 0.0)
        aliases = value * tail.aliases
        if rows.derivatives:  # else there is one row
            # The barrier keeps the compiler from computing these anew for each row.
            value, aliases = lax.optimization_barrier((value, aliases))
        aliases = rows.of_polynomial(aliases, -leaf.direction, tree.number)
        total = total + rows.of_tail(value, tail.slopes, leaf.direction, tree.number) + aliases
    return _Sums(unit, jnp.where(kept, total, sums.rows))


def _values(sums: _Sums, done: Array, distribution: UniformSum) -> Values:
    """Logarithms of the sums, and the derivatives of these."""
    value, *derivatives = sums.rows
    positive = value > 0
    safe = jnp.where(positive, value, 1.0)
    logs = jnp.where(positive, sums.unit + jnp.log(safe), -jnp.inf)
    if not derivatives:
        return Values(logs, done, None)
    slopes = jnp.where(positive, sums.rows / safe, 0.0)
    lead = num_leading_rows(distribution)
    scale = None if distribution.normal_scale is None else slopes[2]
    return Values(logs, done, Gradient(slopes[1], slopes[lead:], scale))


class BlockSize(NamedTuple):
    """Points in a block, if the program is compiled for their number and if it is not.

    On a CPU the arrays of a block should stay in the cache (measured with 12 to 12,000
    distributions). An accelerator needs long blocks.
    """

    traced: int
    known: int


def block_size() -> BlockSize:
    """Block sizes for the default platform."""
    return BlockSize(512, 64) if jax.default_backend() == "cpu" else BlockSize(2048, 1024)


def evaluate_in_chunks(
    orders: Orders,
    y: Array,
    distribution: UniformSum,
    *,
    derivatives: int = 0,
    conditioning: bool = True,
    num_points: Array | None = None,
    size: int | None = None,
) -> Values:
    """`evaluate_each_point` for N points, a block at a time.

    Parameters
    ----------
    orders, derivatives, conditioning
        As in `evaluate_each_point`.
    y : Array, shape (N,)
    distribution : UniformSum
        Weights of shape (n, N).
    num_points : Array of int, shape (), optional
        Number of leading points that matter; later blocks cost nothing. Default: all.
    size : int, optional
        Points in a block. Default: `block_size` for a traced number of points.
    """
    size = block_size().traced if size is None else size
    count = y.shape[0]

    def block(y: Array, rows: Array, scale: Array | None, active: Array) -> Values:
        own = distribution._replace(weights=rows.T, normal_scale=scale)
        values = evaluate_each_point(
            orders, y, own, active, derivatives=derivatives, conditioning=conditioning
        )
        by_point: Values = jax.tree.map(lambda part: jnp.moveaxis(part, -1, 0), values)
        return by_point

    active = jnp.ones(count, bool) if num_points is None else jnp.arange(count) < num_points
    # Weights come as a transpose. XLA takes back a transpose of it that is outside of the loop.
    parts = y, distribution.weights.T, distribution.normal_scale, active
    found = in_chunks(block, *parts, size=size, num_rows=num_points)
    joined: Values = jax.tree.map(lambda part: jnp.moveaxis(part, 0, -1), found)
    return joined
