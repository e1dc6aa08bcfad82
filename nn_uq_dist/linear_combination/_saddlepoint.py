r"""Where the contour crosses the real axis: the tilt ``t`` with ``K'(t) - order/t = y``.

The integral does not depend on the tilt; its conditioning does. The tilt therefore needs to be
accurate only to a fraction of a standard deviation of the tilted law, and is never differentiated.
"""

import jax.numpy as jnp
from jax import Array, lax

from nn_uq_dist.linear_combination._any_point import any_point
from nn_uq_dist.linear_combination._law import Law
from nn_uq_dist.linear_combination._precision import precision
from nn_uq_dist.linear_combination._uniform_component import (
    sums_of_distance_and_variance,
)

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
    of_weights = sums_of_distance_and_variance(law.weights, tilt)
    distance, variance = distance + of_weights[0], variance + of_weights[1]
    # Rounding may leave the variance of an almost degenerate law negative.
    return distance, jnp.maximum(variance, 1e-6 * variance_floor(order, tilt))


def variance_floor(order: Array, tilt: Array) -> Array:
    """A scale below which a tilted variance is rounding error."""
    return (order + 1e-6) / (tilt * tilt)


def _initial_tilt(
    order: Array, y: Array, distance: Array, law: Law, inverse_variance: Array
) -> Array:
    # Inverse Langevin function of equal weights with this width and variance (the approximation of
    # A. Cohen, Rheologica Acta 30, 1991), then the contribution of the pole from t sigma^2 -
    # order/t = y.
    width, normal_variance = law.width, law.normal_variance
    inverse_width = 1.0 / jnp.maximum(width, 1e-30)
    share = jnp.clip(y * inverse_width, 0.0, 1.0)
    gap = jnp.clip(distance * inverse_width, 1e-30, 1.0)
    stretch = (1.0 - share * share / 3.0) / (gap * (1.0 + share))
    bounded = y * inverse_variance * jnp.where(width > 0, stretch, 1.0)
    # With a normal part the tilt is at most the one that the normal part alone needs beyond the
    # edge.
    reach = lax.rsqrt(jnp.maximum(normal_variance, 1e-30))
    cap = (jnp.maximum(-distance, 0.0) * reach + 3.0) * reach
    tilt = jnp.where(normal_variance > 0, jnp.minimum(bounded, cap), bounded)
    return 0.5 * (tilt + jnp.sqrt(tilt * tilt + 4.0 * order * inverse_variance))


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
    inverse = lax.rsqrt(law.moments()[0])
    # The tilt stays away from zero, where the pole is and coth(w t) is infinite.
    lowest = 0.5 * inverse
    start = jnp.maximum(_initial_tilt(order, y, distance, law, inverse * inverse), lowest)
    State = tuple[Array, Array, Array, Array, Array, Array]

    def step(state: State) -> State:
        count, _, tilt, _, left, right = state
        at_tilt, spread = tilted_moments(order, law, tilt)
        excess = at_tilt - distance
        left = jnp.where(excess >= 0, tilt, left)
        right = jnp.where(excess < 0, tilt, right)
        plain = excess / spread
        bent = (distance > 0) & (excess > -distance)
        move = plain + jnp.where(bent, plain * excess / jnp.where(bent, distance, 1.0), 0.0)
        proposal = tilt + move
        inside = (proposal > left) & (proposal < right)
        middle = jnp.where(jnp.isinf(right), tilt + plain, jnp.sqrt(left * right))
        proposal = jnp.maximum(jnp.where(inside, proposal, middle), lowest)
        near = excess * excess < tolerance * tolerance * spread
        done = near | ((excess < 0) & (tilt <= lowest))
        tilt = jnp.where(done, tilt, proposal)
        more = any_point(active & ~done) & (count < _MAX_ITERATIONS)
        return count + 1, more, tilt, spread, left, right

    nothing = jnp.zeros_like(start)
    state = (jnp.asarray(1), jnp.asarray(True), start, nothing, lowest, nothing + jnp.inf)
    state = lax.while_loop(lambda state: state[1], step, state)
    return state[2], state[3]
