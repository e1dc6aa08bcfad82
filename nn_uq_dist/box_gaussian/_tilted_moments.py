"""Moments of a normal law restricted to an interval: the law of one uniform given its cavity."""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array, lax


class TiltedMoments(NamedTuple):
    """Logarithm of the mass, mean and variance, all of the same shape."""

    log_mass: Array
    mean: Array
    variance: Array


def _nodes(precision: Array, slope: Array, low: Array, high: Array) -> tuple[Array, ...]:
    """Nodes as differences from the peak, their masses, and other constants of the integrals.

    The constants are the peak, half the length of the range, and the log integrand at the peak.
    """
    # If the integrand falls by exp(-fall) on either side, this many nodes are exact to that level.
    count, fall = (16, 15.0) if slope.dtype == jnp.float32 else (28, 30.0)
    axes = (-1, *[1] * slope.ndim)
    nodes, weights = (
        part.astype(slope.dtype).reshape(axes) for part in np.polynomial.legendre.leggauss(count)
    )
    curved = precision > 0
    peak = jnp.where(curved, slope / jnp.where(curved, precision, 1.0), slope * jnp.inf)
    peak = jnp.clip(jnp.where(slope == 0, 0.0, peak), low, high)
    slope_there = slope - precision * peak
    # Solves slope t + precision t^2/2 = fall; practically infinite if slope and precision are zero.
    steep = jnp.abs(slope_there)
    reach = 2.0 * fall / (steep + jnp.sqrt(steep * steep + 2.0 * fall * precision) + 1e-30)
    start = jnp.maximum(low - peak, -reach)
    half = 0.5 * (jnp.minimum(high - peak, reach) - start)
    at = start + half * (1.0 + nodes)
    mass = jnp.exp(at * (slope_there - 0.5 * precision * at)) * weights
    # The barriers keep the compiler from evaluating the exponentials anew in each sum.
    at, mass = lax.optimization_barrier((at, mass))
    return at, mass, peak, half, peak * (slope - 0.5 * precision * peak)


def tilted_moments(precision: Array, slope: Array, low: Array, high: Array) -> TiltedMoments:
    r"""Mass, mean and variance of ``exp(slope v - precision v^2/2)`` on ``(low, high)``.

    Parameters
    ----------
    precision : Array, shape (...)
        Non-negative; zero gives an exponential law, or a uniform one if the slope is zero as well.
    slope : Array, shape (...)
    low, high : Array, shape (...)
        Ends of the interval, ``low <= 0 <= high``.

    Notes
    -----
    Gauss-Legendre quadrature on the part of the interval where the integrand matters: around its
    largest value, at the peak of the parabola or at an end, until it has fallen to the accuracy of
    the type. Closed forms, which are differences of error functions, cancel if the parabola is
    wide, and need series there; the quadrature is accurate for all arguments.
    """
    at, mass, peak, half, log_peak = _nodes(precision, slope, low, high)
    total = jnp.sum(mass, axis=0)
    mean = jnp.sum(mass * at, axis=0) / total
    variance = jnp.sum(mass * (at - mean) ** 2, axis=0) / total
    return TiltedMoments(jnp.log(total * half) + log_peak, peak + mean, variance)


def skewness_and_kurtosis(
    precision: Array, slope: Array, low: Array, high: Array
) -> tuple[Array, Array]:
    """Third and fourth standardized cumulants of the same law."""
    at, mass, *_ = _nodes(precision, slope, low, high)
    mass = mass / jnp.sum(mass, axis=0)
    gap = at - jnp.sum(mass * at, axis=0)
    gap = gap / jnp.sqrt(jnp.sum(mass * gap**2, axis=0))
    return jnp.sum(mass * gap**3, axis=0), jnp.sum(mass * gap**4, axis=0) - 3.0
