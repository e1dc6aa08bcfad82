"""The tail integral ``I_m(y)`` by the contour integral alone, and where it converges."""

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array, lax

from nn_uq_dist.linear_combination._contour import choose_contour
from nn_uq_dist.linear_combination._contour_sum import Slopes, contour_sum
from nn_uq_dist.linear_combination._law import Law
from nn_uq_dist.linear_combination._polynomials import alias_corrections


class TailIntegral(NamedTuple):
    """M tail integrals of each point, with derivatives if they were requested.

    Attributes
    ----------
    log_sum : Array, shape (M, B)
        Logarithm of the midpoint sum; ``-inf`` for points without density (at or beyond the edge of
        a bounded law).
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
    law: Law,
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
    law : Law
        Weights not negative.
    active : Array of bool, shape (B,)
        Points that matter; elsewhere the value is arbitrary but finite or ``-inf``.
    last : Array of bool, shape ()
        Whether no other method follows.
    derivatives : int
        How many derivatives the quadrature must resolve.
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
    y = jnp.where(inside, y, 0.0)
    distance = jnp.where(inside, distance, float(law.weights.shape[0]))
    constants = lax.stop_gradient((y, distance, safe, inside))
    contour, converged = choose_contour(order, *constants, last, derivatives)
    log_sum, slopes = contour_sum(distance, safe, contour, derivatives)
    moments, decay = safe.moments(), contour.alias_decay
    aliases = alias_corrections(order, y, moments, decay, contour.spacing, derivatives > 0)
    aliases = relative_correction(aliases, log_sum)
    return TailIntegral(jnp.where(inside, log_sum, -jnp.inf), slopes, aliases, converged)


def relative_correction(correction: Array, log_sum: Array) -> Array:
    """``correction / exp(log_sum)``; zero for a zero correction even if the sum underflows."""
    some = correction > 0
    log_correction = jnp.log(jnp.where(some, correction, 1.0))
    return jnp.where(some, jnp.exp(jnp.where(some, log_correction - log_sum, 0.0)), 0.0)
