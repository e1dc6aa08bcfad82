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

from nn_uq_dist.linear_combination._contour import (
    alias_correction,
    relative_correction,
    choose_contour,
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
        squares = self.weights * self.weights
        second = jnp.sum(squares, axis=0) / 3.0 + self.normal_variance()
        fourth = 3.0 * second * second - 2.0 / 15.0 * jnp.sum(squares * squares, axis=0)
        return second, fourth

    def without(self, count: int) -> "Law":
        """The law without its first ``count`` weights."""
        return Law(self.weights[count:], self.normal_scale)


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
    order: int, y: Array, distance: Array, law: Law, active: Array, method: Method
) -> tuple[Array, Array]:
    """``log I_order(y)`` for ``y >= 0`` by the contour integral, and where it converged.

    ``active`` marks the points that matter; elsewhere the value is arbitrary but finite. Points
    without density (at or beyond the edge of a bounded law) give ``-inf``.
    """
    weights, variance = law.weights, law.normal_variance()
    inside = active & ((distance > 0) | (variance > 0))
    moments = law.moments()
    inside = inside & (moments[0] > 0)
    # Where nothing is to be computed: the center of a law with the same weights and scale one.
    # Zero weights become tiny ones with the derivative passed through: all is even in them, and
    # the second derivative at zero is not zero.
    smallest = jnp.finfo(y.dtype).eps ** 1.5
    lift = lax.stop_gradient(jnp.maximum(smallest - weights, 0.0))
    safe_weights = jnp.where(inside, weights + lift, 1.0)
    safe_variance = jnp.where(inside, variance, 1.0)
    safe_y = jnp.where(inside, y, 0.0)
    safe_distance = jnp.where(inside, distance, float(weights.shape[0]))
    constants = lax.stop_gradient((safe_y, safe_distance, safe_weights, safe_variance, inside))
    contour, converged = choose_contour(
        order, *constants, method.derivatives, last=method.last
    )
    log_sum = log_contour_sum(order, safe_y, safe_weights, safe_variance, constants[1], contour)
    if order:
        safe_law = Law(safe_weights, None)
        second, fourth = safe_law.moments()
        # the fourth moment gains 6 sigma^2 v + 3 v^2 from an independent normal part
        fourth = fourth + 6.0 * second * safe_variance + 3.0 * safe_variance * safe_variance
        moments = (second + safe_variance, fourth)
        correction = alias_correction(order, safe_y, moments, contour)
        log_sum = log_sum + jnp.log1p(relative_correction(correction, log_sum))
    return jnp.where(inside, log_sum, -jnp.inf), converged


class _Level(NamedTuple):
    """One level of the tree of conditionings: 2^level points for each point of the batch.

    The levels are arrays, not nested calls, so that the program grows linearly with the depth.
    """

    tail_side: Array
    distance: Array
    mirrored: Array


def _descend(y: Array, distance: Array, law: Law, depth: int) -> list[_Level]:
    """Mirror to the tail side at each level, then move by plus and minus the next weight."""
    count = law.weights.shape[0]
    # Running sums of the smaller weights, smallest first, so that they are accurate.
    totals = jnp.cumsum(law.weights[::-1], axis=0)[::-1]
    points, distance = y[None], distance[None]
    levels = []
    for level in range(depth + 1):
        total = totals[level] if level < count else jnp.zeros_like(y)
        mirrored = points < 0
        here = _Level(
            jnp.where(mirrored, -points, points),
            jnp.where(mirrored, total + points, distance),
            mirrored,
        )
        levels.append(here)
        if level < depth:
            weight = law.weights[level]
            points = jnp.concatenate([here.tail_side - weight, here.tail_side + weight])
            distance = jnp.concatenate([here.distance, here.distance - 2.0 * weight])
    return levels


def _ascend(order: int, tail: Array, levels: list[_Level], law: Law, unit: Array) -> Array:
    """Value at the root from the tail integrals at the leaves, in units of ``unit``."""
    for level in reversed(range(len(levels))):
        here = levels[level]
        if level < len(levels) - 1:
            weight = law.weights[level]
            inside = here.distance > 0
            if law.normal_scale is not None:
                inside = inside | (law.normal_scale > 0)
            inside = inside & (weight > 0)
            near, far = jnp.split(tail, 2)
            tail = jnp.where(inside, (near - far) / (2.0 * jnp.where(inside, weight, 1.0)), 0.0)
        order_here = order + level
        if order_here:
            powers = [jnp.ones_like(here.tail_side)]
            powers += [here.tail_side**r for r in range(1, order_here)]
            polynomial = tail_polynomial(order_here, powers, law.without(level).moments()) / unit
            other_side = polynomial - tail if order_here % 2 else polynomial + tail
            tail = jnp.where(here.mirrored, other_side, tail)
    return tail[0]


def log_tail_conditioned(
    order: int,
    y: Array,
    distance: Array,
    law: Law,
    depth: int,
    active: Array,
    method: Method,
) -> tuple[Array, Array]:
    """``log I_order(y)`` for ``y >= 0``, conditioned on the ``depth`` largest weights.

    Parameters
    ----------
    order : int
        0 for the density, 1 for the survival function.
    y, distance : Array, shape (B,)
        Point, at or above the center, and its distance from the edge of the support.
    law : Law
        With weights in descending order.
    depth : int
        How many weights to condition on; costs ``2^depth`` contour integrals.
    active : Array of bool, shape (B,)
        Points that matter.
    method : Method

    Returns
    -------
    tuple of Array, shape (B,)
        The value and whether all integrals converged.
    """
    rest = law.without(depth)
    levels = _descend(y, distance, law, depth)
    points = levels[-1].tail_side
    distances = lax.stop_gradient(levels[-1].distance)
    size = points.shape[0]
    has_rest = rest.weights.shape[0] > 0 or rest.normal_scale is not None
    if has_rest:
        flat = Law(
            jnp.tile(rest.weights, (1, size)),
            None if rest.normal_scale is None else jnp.tile(rest.normal_scale, size),
        )
        logs, converged = log_tail_integral(
            order + depth,
            points.reshape(-1),
            distances.reshape(-1),
            flat,
            jnp.tile(active, size),
            method,
        )
        logs, converged = logs.reshape(points.shape), jnp.all(converged.reshape(points.shape), 0)
    else:
        logs, converged = jnp.full_like(points, -jnp.inf), jnp.ones_like(active)

    # A common unit keeps tail values from underflowing. A mirrored leaf brings in a polynomial
    # of order one, beside which tails below one need no unit.
    finite = jnp.isfinite(logs)
    unit_log = jnp.max(jnp.where(finite, logs, -jnp.inf), axis=0)
    unit_log = jnp.where(jnp.isfinite(unit_log), unit_log, 0.0)
    unit_log = lax.stop_gradient(
        jnp.where(y < jnp.sum(law.weights[:depth], axis=0), jnp.maximum(unit_log, 0.0), unit_log)
    )
    values = jnp.where(finite, jnp.exp(jnp.where(finite, logs, 0.0) - unit_log), 0.0)
    value = _ascend(order, values, levels, law, jnp.exp(unit_log))
    positive = value > 0
    return (
        jnp.where(positive, unit_log + jnp.log(jnp.where(positive, value, 1.0)), -jnp.inf),
        converged,
    )
