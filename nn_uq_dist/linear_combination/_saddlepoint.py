r"""Where the contour crosses the real axis: the tilt ``t`` with ``K'(t) - order/t = y``.

The integral does not depend on the tilt; its conditioning does. The tilt therefore needs to be
accurate only to a fraction of a standard deviation of the tilted law, and is never differentiated.
"""

import jax.numpy as jnp
from jax import Array, lax

from nn_uq_dist.linear_combination._any_point import any_point
from nn_uq_dist.linear_combination._law import Law
from nn_uq_dist.linear_combination._precision import precision
from nn_uq_dist.linear_combination._uniform_component import distance_and_variance

_MAX_ITERATIONS = 60


def tilted_moments(order: Array, law: Law, tilt: Array) -> tuple[Array, Array]:
    """Distance from the edge and variance of the tilted law, the pole ``z^-order`` included.

    Parameters
    ----------
    order : Array, shape (B,)
        Order of the pole at zero, in floating point.
    law : Law
    tilt : Array, shape (B,)

    Returns
    -------
    tuple of Array, shape (B,)
        ``W - K'(t) + order/t`` and ``K''(t) + order/t^2``.
    """
    distance = order / tilt - law.normal_variance * tilt
    variance = order / (tilt * tilt) + law.normal_variance
    if law.weights.shape[0]:
        # One complex sum instead of two real ones: XLA would evaluate the terms twice.
        total = jnp.sum(lax.complex(*distance_and_variance(law.weights, tilt)), axis=0)
        distance, variance = distance + total.real, variance + total.imag
    # Rounding may leave the variance of an almost degenerate law negative.
    return distance, jnp.maximum(variance, 1e-6 * variance_floor(order, tilt))


def variance_floor(order: Array, tilt: Array) -> Array:
    """A scale below which a tilted variance is rounding error."""
    return (order + 1e-6) / (tilt * tilt)


def _initial_tilt(
    order: Array, y: Array, distance: Array, width: Array, variance: Array, normal_variance: Array
) -> Array:
    # Inverse Langevin function of equal weights with this width and variance (the approximation of
    # A. Cohen, Rheologica Acta 30, 1991), then the contribution of the pole from t sigma^2 -
    # order/t = y.
    box_variance = jnp.maximum(variance - normal_variance, 0.0)
    share = jnp.clip(y / jnp.maximum(width, 1e-30), 0.0, 1.0)
    gap = jnp.clip(distance / jnp.maximum(width, 1e-30), 1e-30, 1.0)
    stretch = (1.0 - share * share / 3.0) / (gap * (1.0 + share))
    bounded = y / jnp.maximum(variance, 1e-30) * jnp.where(box_variance > 0, stretch, 1.0)
    # With a normal part the tilt is at most the one that the normal part alone needs beyond the
    # edge.
    reach = jnp.sqrt(jnp.maximum(normal_variance, 1e-30))
    cap = jnp.maximum(-distance, 0.0) / jnp.maximum(normal_variance, 1e-30) + 3.0 / reach
    tilt = jnp.where(normal_variance > 0, jnp.minimum(bounded, cap), bounded)
    return 0.5 * (tilt + jnp.sqrt(tilt * tilt + 4.0 * order / variance))


def solve_tilt(
    order: Array, y: Array, distance: Array, law: Law, active: Array
) -> tuple[Array, Array]:
    """Tilt for each point, near the saddlepoint, and the variance of the tilted law there.

    Parameters
    ----------
    order : Array of int, shape (B,)
        Order of the pole at zero: 0 for the density, 1 for the survival function, ...
    y, distance : Array, shape (B,)
        Point, at or above the center, and its distance ``sum(weights) - y`` from the edge.
    law : Law
    active : Array of bool, shape (B,)
        Points that decide when the iteration ends.

    Notes
    -----
    Newton's method for ``1/(W - K'(t))``, which is nearly linear in ``t`` for every pattern of
    weights, safeguarded by a bracket. ``W - K'`` is convex and decreasing, so a plain Newton step
    from the left of the root never overshoots; this is the fallback.
    """
    tolerance = precision(y.dtype).tilt_tolerance
    order = order.astype(y.dtype)
    width, normal_variance = law.width, law.normal_variance
    variance = jnp.sum(law.weights * law.weights, axis=0) / 3.0 + normal_variance
    # The tilt stays away from zero, where the pole is and coth(w t) is infinite.
    lowest = 0.5 * jnp.sqrt(1.0 / variance)
    start = jnp.maximum(_initial_tilt(order, y, distance, width, variance, normal_variance), lowest)

    def step(
        state: tuple[Array, Array, Array, Array, Array, Array],
    ) -> tuple[Array, Array, Array, Array, Array, Array]:
        count, tilt, _, left, right, _ = state
        at_tilt, spread = tilted_moments(order, law, tilt)
        excess = at_tilt - distance
        left = jnp.where(excess >= 0, tilt, left)
        right = jnp.where(excess < 0, tilt, right)
        plain = excess / spread
        bent = (distance > 0) & (at_tilt > 0)
        move = jnp.where(bent, plain * at_tilt / jnp.where(bent, distance, 1.0), plain)
        proposal = tilt + move
        inside = (proposal > left) & (proposal < right)
        middle = jnp.where(jnp.isinf(right), tilt + plain, jnp.sqrt(left * right))
        proposal = jnp.maximum(jnp.where(inside, proposal, middle), lowest)
        done = (jnp.abs(plain) * jnp.sqrt(spread) < tolerance) | ((excess < 0) & (tilt <= lowest))
        return count + 1, jnp.where(done, tilt, proposal), spread, left, right, done

    def unfinished(state: tuple[Array, Array, Array, Array, Array, Array]) -> Array:
        return (state[0] < _MAX_ITERATIONS) & any_point(active & ~state[5])

    state = (
        jnp.asarray(0),
        start,
        variance,
        lowest,
        jnp.full_like(start, jnp.inf),
        jnp.zeros(start.shape, bool),
    )
    state = lax.while_loop(unfinished, step, state)
    return state[1], state[2]
