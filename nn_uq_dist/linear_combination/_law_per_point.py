"""Log density and log survival where every point has a law of its own.

The plain contour integral is tried first; points for which it does not converge are
conditioned on their largest weights, up to four. Points are worked through in blocks, so that
memory stays bounded and a difficult law slows its own block only.
"""

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
from jax import Array, lax

from nn_uq_dist.linear_combination._any_point import any_point
from nn_uq_dist.linear_combination._conditioning import (
    Law,
    Method,
    log_tail_conditioned,
    log_tail_integral,
    number_of_dominating,
)

BLOCK_SIZE = 2048
MOST_CONDITIONED = 4

Rung = Callable[[Array, Law], tuple[Array, Array]]
Gradient = tuple[Array, Law]
Orders = tuple[int, ...]

DENSITY: Orders = (0,)
SURVIVAL: Orders = (1,)
BOTH: Orders = (0, 1)


def distance_from_edge(y: Array, weights: Array) -> Array:
    """``sum(weights) - y`` without the rounding of the sum (two-sum, D. E. Knuth, TAOCP 2)."""
    if not weights.shape[0]:
        return -y

    def add(k: Array, state: tuple[Array, Array]) -> tuple[Array, Array]:
        total, error = state
        weight = weights[k]
        new = total + weight
        shadow = new - total
        return new, error + ((total - (new - shadow)) + (weight - shadow))

    total, error = lax.fori_loop(0, weights.shape[0], add, (-y, jnp.zeros_like(y)))
    return total + error


def binary_scale(law: Law) -> Array:
    """Power of two near the largest weight: scaling by it rounds nothing."""
    largest = jnp.max(jnp.abs(law.weights), axis=0, initial=0.0)
    if law.normal_scale is not None:
        largest = jnp.maximum(largest, law.normal_scale)
    usable = (largest > 0) & jnp.isfinite(largest)
    _, exponent = jnp.frexp(jnp.where(usable, largest, 1.0))
    return lax.stop_gradient(jnp.ldexp(jnp.ones_like(largest), exponent))


def _value_only(rung: Rung, y: Array, law: Law) -> tuple[Array, Array, None]:
    return *rung(y, law), None


def _value_and_gradient(rung: Rung, y: Array, law: Law) -> tuple[Array, Array, Gradient]:
    value, pull_back, converged = jax.vjp(rung, y, law, has_aux=True)
    # Points do not interact, so that one pullback gives the gradient of each. It is cheap: the
    # sums that it multiplies were made with the value.
    rows = range(len(value))
    gradients = [pull_back(jnp.zeros_like(value).at[row].set(1.0)) for row in rows]
    stacked = jax.tree.map(lambda *parts: jnp.stack(parts, axis=-2), *gradients)
    return value, converged, stacked


def _climb(
    orders: Orders, y: Array, law: Law, *, with_gradient: bool
) -> tuple[Array, Gradient | None]:
    """Values (M, B), and gradients for each, by the cheapest method that converges for all."""
    distance = lax.stop_gradient(distance_from_edge(y, law.weights))
    evaluate = _value_and_gradient if with_gradient else _value_only
    # A gradient may be differentiated once more.
    derivatives = 2 if with_gradient else 0
    everywhere = jnp.ones(y.shape, bool)
    count = law.weights.shape[0]
    depth = min(count, MOST_CONDITIONED)
    closed_form = count == depth and law.normal_scale is None

    def conditioned(active: Array) -> Rung:
        def rung(y: Array, law: Law) -> tuple[Array, Array]:
            sorted_law = law._replace(weights=-jnp.sort(-law.weights, axis=0))
            if closed_form:
                number = jnp.full(y.shape, count)
            else:
                number = lax.stop_gradient(number_of_dominating(sorted_law, depth))
            value = log_tail_conditioned(
                orders, y, distance, sorted_law, number, depth, active, derivatives
            )
            return value, active

        return rung

    if closed_form:
        value, _, gradient = evaluate(conditioned(everywhere), y, law)
        return value, gradient

    def plain(y: Array, law: Law) -> tuple[Array, Array]:
        column = jnp.broadcast_to(jnp.asarray(orders)[:, None], (len(orders), *y.shape))
        method = Method(derivatives, last=False)
        return log_tail_integral(column, y, distance, law, everywhere, method)

    value, done, gradient = evaluate(plain, y, law)

    def harder() -> tuple[Array, Gradient | None]:
        better, _, slopes = evaluate(conditioned(~done), y, law)
        pairs = (better, slopes), (value, gradient)
        return jax.tree.map(lambda new, old: jnp.where(done, old, new), *pairs)

    return lax.cond(any_point(~done), harder, lambda: (value, gradient))


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def _log_tails_scaled(orders: Orders, y: Array, law: Law) -> Array:
    return _climb(orders, y, law, with_gradient=False)[0]


@_log_tails_scaled.defjvp
def _log_tails_scaled_jvp(
    orders: Orders, primals: tuple[Array, Law], tangents: tuple[Array, Law]
) -> tuple[Array, Array]:
    # Differentiating through the ladder would keep the residuals of both methods, used or not.
    value, gradient = _climb(orders, *primals, with_gradient=True)
    moved = jax.tree.map(lambda slope, move: slope * move[..., None, :], gradient, tangents)
    products = jax.tree.leaves(moved)
    tangent = jnp.zeros_like(value)
    for product in products:
        tangent = tangent + (jnp.sum(product, axis=0) if product.ndim > value.ndim else product)
    return value, tangent


def log_tails(orders: Orders, y: Array, law: Law) -> Array:
    """Log density (order 0), log survival (order 1) or both at ``y >= 0``, a law for each point.

    Parameters
    ----------
    orders : tuple of int
        ``DENSITY``, ``SURVIVAL`` or ``BOTH``, which costs little more than one of them.
    y : Array, shape (B,)
    law : Law
        ``weights`` of shape (n, B), any sign.

    Returns
    -------
    Array, shape (M, B)
        A row for each order: ``-inf`` beyond the support, NaN for a law that is a point mass or
        not finite.
    """
    # abs with derivative one at zero: all functions are even in each weight, and the second
    # derivative at a zero weight needs the chain rule to go through.
    law = law._replace(weights=jnp.where(law.weights < 0, -law.weights, law.weights))
    scale = binary_scale(law)
    scaled = jax.tree.map(lambda part: part / scale, law)
    value = _log_tails_scaled(orders, y / scale, scaled)
    is_density = jnp.asarray(orders)[:, None] == 0
    value = value - jnp.where(is_density, jnp.log(scale), 0.0)
    second = scaled.moments()[0]
    valid = (second > 0) & jnp.isfinite(second) & ~jnp.isnan(y)
    return jnp.where(valid, value, jnp.nan)


def in_blocks(
    function: Callable[[Array, Law], Array], y: Array, law: Law, size: int = BLOCK_SIZE
) -> Array:
    """Apply ``function`` to blocks of points.

    Parameters
    ----------
    function
        Maps points of shape (B,) and a law with weights of shape (n, B) to shape (M, B).
    y : Array, shape (N,)
    law : Law
        Weights of shape (N, n), as users order them; transposed block by block.
    """
    count = y.shape[0]
    if count <= size:
        return function(y, law._replace(weights=law.weights.T))
    blocks = -(-count // size)
    size = -(-count // blocks)

    def cut(part: Array) -> Array:
        # the last block repeats the last point: a law that needs nothing special
        padding = [(0, blocks * size - count)] + [(0, 0)] * (part.ndim - 1)
        return jnp.pad(part, padding, mode="edge").reshape(blocks, size, *part.shape[1:])

    def one_block(block: tuple[Array, Law]) -> Array:
        y, law = block
        return function(y, law._replace(weights=law.weights.T))

    values = lax.map(one_block, (cut(y), jax.tree.map(cut, law)))
    return jnp.moveaxis(values, 0, 1).reshape(-1, blocks * size)[:, :count]
