r"""Exact conditioning on the largest weights, for laws whose integrand decays slowly.

With ``R_i`` the sum without the ``i`` largest weights and
``I_m^(i)(y) = E[(R_i - y)_+^(m-1)]/(m-1)!``,

.. math:: I_m^{(i)}(y) = \frac{I_{m+1}^{(i+1)}(y - w) - I_{m+1}^{(i+1)}(y + w)}{2 w},
          \qquad w = w_{i+1},

(conditioning on ``U_{i+1}`` and integrating over it). Each level is evaluated on the tail side
only, the other side being a polynomial plus or minus the tail, and only inside the support of
``R_i``: arguments stay at the scale of ``R_i``, so that a spread of many orders of magnitude
between the weights costs no digits. When no weight and no normal part is left this is the
closed form of the density as a piecewise polynomial.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array, lax

from nn_uq_dist.linear_combination._any_point import any_point
from nn_uq_dist.linear_combination._contour import (
    MAX_ORDER,
    alias_correction,
    choose_contour,
    relative_correction,
    tail_polynomial,
)
from nn_uq_dist.linear_combination._contour_sum import log_contour_sum


class Law(NamedTuple):
    """A batch of laws, weights first: one law for each point.

    Attributes
    ----------
    weights : Array, shape (n, B)
        Positive; descending where weights are conditioned on.
    normal_scale : Array, shape (B,), or None
        None means no normal part, known from the types.
    """

    weights: Array
    normal_scale: Array | None

    def normal_variance(self) -> Array:
        """Variance of the normal part, zero without one."""
        if self.normal_scale is None:
            return jnp.zeros(self.weights.shape[1:], self.weights.dtype)
        return self.normal_scale * self.normal_scale

    def moments(self) -> tuple[Array, Array]:
        """Second and fourth moment."""
        return _moments(self.weights, self.normal_variance())


def _moments(weights: Array, normal_variance: Array) -> tuple[Array, Array]:
    squares = weights * weights
    second = jnp.sum(squares, axis=0) / 3.0 + normal_variance
    fourth = 3.0 * second * second - 2.0 / 15.0 * jnp.sum(squares * squares, axis=0)
    return second, fourth


class Method(NamedTuple):
    """What is asked of a contour integral.

    Attributes
    ----------
    derivatives : int
        How many derivatives must have converged as well.
    last : bool
        Whether no other method follows.
    """

    derivatives: int
    last: bool


def log_tail_integral(
    order: Array, y: Array, distance: Array, law: Law, active: Array, method: Method
) -> tuple[Array, Array]:
    """``log I_order(y)`` for ``y >= 0`` by the contour integral, and where all orders converged.

    ``order`` has shape (M, B), ascending by one; so has the value. ``active`` marks the points that
    matter; elsewhere the value is arbitrary but finite. Points without density (at or beyond the
    edge of a bounded law) give ``-inf``.
    """
    weights, variance = law.weights, law.normal_variance()
    inside = active & ((distance > 0) | (variance > 0))
    inside = inside & (law.moments()[0] > 0)
    # Zero weights become tiny ones with the derivative passed through: all is even in them, and
    # the second derivative at zero is not zero.
    smallest = jnp.finfo(y.dtype).eps ** 1.5
    lift = lax.stop_gradient(jnp.maximum(smallest - weights, 0.0))
    # Where nothing is to be computed: the center of a law with all weights one.
    safe_weights = jnp.where(inside, weights + lift, 1.0)
    safe_variance = jnp.where(inside, variance, 1.0)
    safe_y = jnp.where(inside, y, 0.0)
    safe_distance = jnp.where(inside, distance, float(weights.shape[0]))
    constants = lax.stop_gradient((safe_y, safe_distance, safe_weights, safe_variance, inside))
    contour, converged = choose_contour(order, *constants, method.derivatives, last=method.last)
    log_sum = log_contour_sum(safe_y, safe_weights, safe_variance, constants[1], contour)
    moments = _moments(safe_weights, safe_variance)
    correction = alias_correction(safe_y, moments, contour)
    log_sum = log_sum + jnp.log1p(relative_correction(correction, log_sum))
    return jnp.where(inside, log_sum, -jnp.inf), converged


class _Level(NamedTuple):
    """One level of the tree of conditionings: 2^level points for each point of the batch.

    Attributes
    ----------
    tail_side, distance : Array, shape (2^level, B)
        Points mirrored to the tail side of the sum at this level, distances from its edge.
    mirrored : Array of bool, shape (2^level, B)
    order : Array of int, shape (M, B)
        Orders of the repeated integrals at this level.
    moments : tuple of Array, shape (B,)
        Of the sum at this level.
    """

    tail_side: Array
    distance: Array
    mirrored: Array
    order: Array
    moments: tuple[Array, Array]


def _rest(law: Law, count: Array) -> Law:
    """The law without its first ``count`` weights, which become zero."""
    index = jnp.arange(law.weights.shape[0])[:, None]
    return law._replace(weights=jnp.where(index < count, 0.0, law.weights))


def _descend(
    orders: Array, y: Array, distance: Array, law: Law, depth: int, number: Array
) -> list[_Level]:
    """Mirror to the tail side at each level, then move by plus and minus the next weight.

    Points with a ``number`` of conditioned weights below ``depth`` follow the first branch
    unchanged from there on.
    """
    points, distance = y[None], distance[None]
    levels = []
    for level in range(depth + 1):
        count = jnp.minimum(number, level)
        rest = _rest(law, count)
        mirrored = points < 0
        here = _Level(
            tail_side=jnp.where(mirrored, -points, points),
            distance=jnp.where(mirrored, jnp.sum(rest.weights, axis=0) + points, distance),
            mirrored=mirrored,
            order=orders + count,
            moments=rest.moments(),
        )
        levels.append(here)
        if level < depth:
            weight = jnp.where(level < number, law.weights[level], 0.0)
            points = jnp.concatenate([here.tail_side - weight, here.tail_side + weight])
            distance = jnp.concatenate([here.distance, here.distance - 2.0 * weight])
    return levels


def _ascend(tail: Array, levels: list[_Level], law: Law, number: Array, unit: Array) -> Array:
    """Values at the root from the tail integrals at the leaves, in units of ``unit``.

    Tails have shape (2^level, M, B); the axis of the orders is put into all else.
    """
    for level in reversed(range(len(levels))):
        here = levels[level]
        if level < len(levels) - 1:
            weight = law.weights[level]
            inside = here.distance[:, None] > 0
            if law.normal_scale is not None:
                inside = inside | (law.normal_scale > 0)
            near, far = jnp.split(tail, 2)
            # A conditioned weight of zero leaves a point mass, without values inside.
            safe = jnp.where(weight > 0, weight, 1.0)
            difference = jnp.where(weight > 0, (near - far) / (2.0 * safe), 0.0)
            tail = jnp.where(level < number, jnp.where(inside, difference, 0.0), near)
        point = here.tail_side[:, None]
        powers = [jnp.ones_like(point), point]
        for _ in range(MAX_ORDER - 2):
            powers.append(powers[-1] * point)
        polynomial = tail_polynomial(here.order, powers, here.moments) / unit
        other_side = jnp.where(here.order % 2 == 1, polynomial - tail, polynomial + tail)
        tail = jnp.where(here.mirrored[:, None], other_side, tail)
    return tail[0]


def number_of_dominating(law: Law, depth: int) -> Array:
    """How many of the largest weights to condition on, at most ``depth``.

    The last one that exceeds twice the standard deviation of all that is smaller; if none
    does, ``depth``: then the quadrature is slow because of few comparable weights.
    """
    squares = law.weights * law.weights / 3.0
    smaller = jnp.cumsum(squares[::-1], axis=0)[::-1] - squares + law.normal_variance()
    dominates = law.weights[:depth] > 2.0 * jnp.sqrt(jnp.maximum(smaller[:depth], 0.0))
    index = jnp.arange(1, depth + 1)[:, None]
    last = jnp.max(jnp.where(dominates, index, 0), axis=0)
    return jnp.where(last == 0, depth, last)


def log_tail_conditioned(
    orders: tuple[int, ...],
    y: Array,
    distance: Array,
    law: Law,
    number: Array,
    depth: int,
    active: Array,
    derivatives: int,
) -> Array:
    """``log I_order(y)`` for ``y >= 0``, conditioned on the largest weights.

    Parameters
    ----------
    orders : tuple of int
        Of 0 for the density and 1 for the survival function, ascending.
    y, distance : Array, shape (B,)
        Point, at or above the center, and its distance from the edge of the support.
    law : Law
        With weights in descending order.
    number : Array of int, shape (B,)
        How many weights to condition on; costs ``2^number`` contour integrals, none if
        nothing is left.
    depth : int
        The largest ``number``.
    active : Array of bool, shape (B,)
        Points that matter.
    derivatives : int
        How many derivatives the quadrature must resolve.

    Returns
    -------
    Array, shape (M, B)
        A row for each order.
    """
    column = jnp.broadcast_to(jnp.asarray(orders)[:, None], (len(orders), *y.shape))
    levels = _descend(column, y, distance, law, depth, number)
    leaves = levels[-1]
    if law.normal_scale is None and law.weights.shape[0] <= depth:
        logs = jnp.full((2**depth, *column.shape), -jnp.inf, y.dtype)
    else:
        rest = _rest(law, number)
        method = Method(derivatives, last=True)

        def leaf(_: None, at: tuple[Array, Array, Array]) -> tuple[None, Array]:
            index, point, gap = at
            used = active & (index < 2**number)

            def integral(rest: Law, point: Array) -> Array:
                return log_tail_integral(leaves.order, point, gap, rest, used, method)[0]

            def nothing(_: Law, point: Array) -> Array:
                return jnp.full(column.shape, -jnp.inf, point.dtype)

            return None, lax.cond(any_point(used), integral, nothing, rest, point)

        gaps = lax.stop_gradient(leaves.distance)
        _, logs = lax.scan(leaf, None, (jnp.arange(2**depth), leaves.tail_side, gaps))

    # A common unit keeps tail values from underflowing. A mirrored leaf brings in a polynomial
    # of order one, beside which tails below one need no unit.
    finite = jnp.isfinite(logs)
    unit_log = jnp.max(jnp.where(finite, logs, -jnp.inf), axis=0)
    unit_log = jnp.where(jnp.isfinite(unit_log), unit_log, 0.0)
    conditioned = jnp.sum(law.weights, axis=0) - jnp.sum(_rest(law, number).weights, axis=0)
    unit_log = lax.stop_gradient(jnp.where(y < conditioned, jnp.maximum(unit_log, 0.0), unit_log))
    values = jnp.where(finite, jnp.exp(jnp.where(finite, logs, 0.0) - unit_log), 0.0)
    value = _ascend(values, levels, law, number, jnp.exp(unit_log))
    positive = value > 0
    return jnp.where(positive, unit_log + jnp.log(jnp.where(positive, value, 1.0)), -jnp.inf)
