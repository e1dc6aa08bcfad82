"""Moments of a normal law restricted to an interval: the law of one uniform given its cavity."""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.typing import DTypeLike


class TiltedMoments(NamedTuple):
    """Logarithm of the mass, mean and variance, all of the same shape."""

    log_mass: Array
    mean: Array
    variance: Array


class _Rule(NamedTuple):
    """Gauss-Legendre nodes and weights on (-1, 1), and how far the log integrand falls."""

    nodes: np.ndarray
    weights: np.ndarray
    fall: float


def _rule(dtype: DTypeLike) -> _Rule:
    # If the integrand falls by exp(-fall) on either side, this many nodes are exact to that level.
    count, fall = (16, 15.0) if jnp.dtype(dtype) == jnp.float32 else (28, 30.0)
    nodes, weights = np.polynomial.legendre.leggauss(count)
    return _Rule(nodes.astype(dtype), weights.astype(dtype), fall)


class _Nodes(NamedTuple):
    """Nodes as differences from the peak, their weights, and other constants of the integrals."""

    at: Array
    mass: Array
    peak: Array
    half: Array
    log_peak: Array


def _nodes(precision: Array, slope: Array, low: Array, high: Array) -> _Nodes:
    nodes, weights, fall = _rule(slope.dtype)
    curved = precision > 0
    peak = jnp.where(curved, slope / jnp.where(curved, precision, 1.0), slope * jnp.inf)
    peak = jnp.clip(jnp.where(slope == 0, 0.0, peak), low, high)
    slope_there = slope - precision * peak
    # Solves slope t + precision t^2/2 = fall; practically infinite if slope and precision are zero.
    steep = jnp.abs(slope_there)
    reach = 2.0 * fall / (steep + jnp.sqrt(steep * steep + 2.0 * fall * precision) + 1e-30)
    start = jnp.maximum(low - peak, -reach)
    half = 0.5 * (jnp.minimum(high - peak, reach) - start)
    axes = (-1, *[1] * slope.ndim)
    at = start + half * (1.0 + nodes.reshape(axes))
    mass = jnp.exp(at * (slope_there - 0.5 * precision * at)) * weights.reshape(axes)
    # The barriers keep the compiler from evaluating the exponentials anew in each sum.
    at, mass = lax.optimization_barrier((at, mass))
    return _Nodes(at, mass, peak, half, peak * (slope - 0.5 * precision * peak))


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
