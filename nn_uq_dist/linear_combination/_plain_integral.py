"""The tail integral ``log I_m(y)`` by the contour integral alone, and where it converges."""

from functools import partial

import jax
import jax.numpy as jnp
from jax import Array, lax

from nn_uq_dist.linear_combination._aliases import alias_correction, first_alias_correction
from nn_uq_dist.linear_combination._contour import Contour, choose_contour
from nn_uq_dist.linear_combination._contour_sum import contour_sum
from nn_uq_dist.linear_combination._law import Law

Arguments = tuple[Array, Array, Law, Contour]


def log_tail_integral(
    order: Array,
    y: Array,
    distance: Array,
    law: Law,
    active: Array,
    last: Array,
    derivatives: int,
    *,
    conditioned: bool = True,
) -> tuple[Array, Array]:
    """``log I_order(y)`` for ``y >= 0`` by the contour integral, and where all orders converged.

    Parameters
    ----------
    order : Array of int, shape (M, B)
        Ascending by one.
    y, distance : Array, shape (B,)
        Point, at or above the center, and its distance from the edge of the support.
    law : Law
        Weights not negative.
    active : Array of bool, shape (B,)
        Points that matter; elsewhere the value is arbitrary but finite or ``-inf``.
    last : Array of bool, shape ()
        Whether no other method follows.
    derivatives : int
        How many derivatives the quadrature must resolve.
    conditioned : bool
        Whether orders above one may occur.

    Returns
    -------
    tuple of Array, shapes (M, B) and (B,)
        Points without density (at or beyond the edge of a bounded law) give ``-inf``.
    """
    inside = active & ((distance > 0) | (law.normal_variance > 0)) & (law.moments()[0] > 0)
    # Zero weights become tiny ones, and derivatives pass through: the integral is even in each
    # weight, and its second derivative at zero is not zero.
    smallest = jnp.finfo(y.dtype).eps ** 1.5
    lift = lax.stop_gradient(jnp.maximum(smallest - law.weights, 0.0))
    # Where nothing is computed, use the center of a law with all weights equal to one.
    scale = law.normal_scale
    safe = law._replace(
        weights=jnp.where(inside, law.weights + lift, 1.0),
        normal_scale=None if scale is None else jnp.where(inside, scale, 1.0),
    )
    safe_y = jnp.where(inside, y, 0.0)
    safe_distance = jnp.where(inside, distance, float(law.weights.shape[0]))
    constants = lax.stop_gradient((safe_y, safe_distance, safe, inside))
    contour, converged = choose_contour(order, *constants, last, derivatives)
    log_sum = _log_contour_sum(max(derivatives, 1), safe_y, safe_distance, safe, contour)
    decay, spacing = contour.alias_decay, contour.spacing

    def general(y: Array, moments: tuple[Array, Array]) -> Array:
        return alias_correction(order, y, moments, decay, spacing)

    def simple(*_: object) -> Array:
        return first_alias_correction(order, decay)

    # Only conditioning, the last method, uses higher orders.
    correction = (
        lax.cond(last, general, simple, safe_y, safe.moments()) if conditioned else simple()
    )
    log_sum = log_sum + jnp.log1p(relative_correction(correction, log_sum))
    return jnp.where(inside, log_sum, -jnp.inf), converged


def relative_correction(correction: Array, log_sum: Array) -> Array:
    """``correction / exp(log_sum)``; zero for a zero correction even if the sum underflows."""
    some = correction > 0
    log_correction = jnp.log(jnp.where(some, correction, 1.0))
    return jnp.where(some, jnp.exp(jnp.where(some, log_correction - log_sum, 0.0)), 0.0)


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def _log_contour_sum(
    derivatives: int, _y: Array, distance: Array, law: Law, contour: Contour
) -> Array:
    """Logs of the midpoint sums; ``y`` is for derivatives, its value enters by ``distance``."""
    del derivatives
    return contour_sum(distance, law, contour, 0)[0]


@_log_contour_sum.defjvp
def _log_contour_sum_jvp(
    derivatives: int, primals: Arguments, tangents: Arguments
) -> tuple[Array, Array]:
    _, distance, law, contour = primals
    y_dot, _, law_dot, _ = tangents
    value, slopes = contour_sum(distance, law, contour, derivatives)
    assert slopes is not None  # noqa: S101 (known from the number of derivatives)
    tangent = slopes.y * y_dot + jnp.sum(slopes.weights * law_dot.weights[:, None], axis=0)
    scale, scale_dot = law.normal_scale, law_dot.normal_scale
    if scale is not None and scale_dot is not None:
        tangent = tangent + slopes.normal_variance * (2.0 * scale * scale_dot)
    return value, tangent
