r"""Moments of each input or output given observed outputs, by quadrature of joint densities.

The normal law from expectation propagation has standard deviations that are off by 5 to 16% if few
outputs with little noise are near the corners of the box. The law of one input alone is, up to a
constant, the joint density with that input held fixed, which is far more accurate (B. Cseke and T.
Heskes, J. Mach. Learn. Res. 12, 2011). Correlations remain those of the normal law. The same works
for other outputs with a normal part; without one the density is too rough at corners, and nothing
is gained.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from nn_uq_dist.box_gaussian._gaussian_part import of_one_shape
from nn_uq_dist.box_gaussian._moments import (
    Moments,
    output_moments,
    uniform_moments,
)
from nn_uq_dist.box_gaussian._own_units import in_own_units
from nn_uq_dist.box_gaussian._second_order import corrected_log_evidence

_NODES = 24
_REACH = 6.5


@jax.jit
def posterior_moments(deviation: Array, weights: Array, covariance: Array | None) -> Moments:
    """Mean and covariance of the uniforms behind observed outputs, each from its own density.

    Parameters
    ----------
    deviation : Array, shape (..., d)
    weights : Array, shape (..., d, n)
    covariance : Array, shape (..., d, d), or None

    Returns
    -------
    Moments
        NaN where the passes have not converged.

    Raises
    ------
    NotImplementedError
        For derivatives.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from nn_uq_dist.box_gaussian import posterior_moments
    >>> weights, covariance = jnp.array([[1.0, 1.0]]), jnp.array([[1e-2]])
    >>> found = posterior_moments(jnp.array([1.5]), weights, covariance)
    >>> print(f"{found.mean[0]:.3f}")  # two inputs of sum 1.5, neither beyond 1
    0.740
    """
    deviation, weights, covariance, _ = in_own_units(deviation, weights, covariance)
    deviation, weights, covariance = of_one_shape(deviation, weights, covariance)
    moments = uniform_moments(deviation, weights, covariance)
    # A uniform is removed by a zero weight, so that all problems have the same shape.
    one_left = 1.0 - jnp.eye(weights.shape[-1], dtype=weights.dtype)
    others = weights[..., None, :, :] * one_left[:, None, :]

    def log_density(inputs: Array) -> Array:
        rest = deviation[..., None, :] - inputs[..., None] * weights.mT
        normal = None if covariance is None else covariance[..., None, :, :]
        return corrected_log_evidence(rest, others, normal)

    return _sharpened(moments, log_density, (-1.0, 1.0))


@jax.jit
def conditional_moments(deviation: Array, weights: Array, covariance: Array | None) -> Moments:
    """Mean and covariance of other outputs given the first ones; means relative to the prior means.

    Parameters
    ----------
    deviation : Array, shape (..., d)
        Deviations of the known outputs.
    weights : Array, shape (..., d + e, n)
        Weights of all outputs, the known ones first.
    covariance : Array, shape (..., d + e, d + e), or None

    Returns
    -------
    Moments
        Moments of the e others; NaN where the passes have not converged.

    Raises
    ------
    NotImplementedError
        For derivatives.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from nn_uq_dist.box_gaussian import conditional_moments
    >>> weights, covariance = jnp.array([[1.0, 1.0], [1.0, 0.0]]), 1e-2 * jnp.eye(2)
    >>> found = conditional_moments(jnp.array([1.5]), weights, covariance)
    >>> print(f"{found.mean[0]:.3f}")  # one of two terms of the sum 1.5, observed with noise
    0.740
    """
    deviation, weights, covariance, units = in_own_units(deviation, weights, covariance)
    deviation, weights, covariance = of_one_shape(deviation, weights, covariance)
    known = deviation.shape[-1]
    units = units[..., known:]

    def in_given_units(found: Moments) -> Moments:
        # One unit at a time, because their product may over- or underflow.
        spread = units[..., None] * found.covariance * units[..., None, :]
        return Moments(units * found.mean, spread)

    moments = output_moments(deviation, weights, covariance)
    # Means of the uniforms from their own densities do not reproduce the known outputs, which
    # matters if an output is nearly determined. So each output also uses its own density.
    if covariance is None:
        return in_given_units(moments)
    rows = [np.append(np.arange(known), j) for j in range(known, weights.shape[-2])]
    parts = jnp.stack([weights[..., row, :] for row in rows], axis=-3)
    spreads = jnp.stack([covariance[..., row[:, None], row] for row in rows], axis=-3)

    def log_density(outputs: Array) -> Array:
        seen = jnp.broadcast_to(deviation[..., None, :], (*outputs.shape, known))
        values = jnp.concatenate([seen, outputs[..., None]], axis=-1)
        return corrected_log_evidence(values, parts, spreads)

    return in_given_units(_sharpened(moments, log_density, (-np.inf, np.inf)))


def _sharpened(
    moments: Moments, log_density: Callable[[Array], Array], ends: tuple[float, float]
) -> Moments:
    """Mean and variance of each entry from its own density, up to a constant."""
    mean = moments.mean
    scale = jnp.sqrt(jnp.diagonal(moments.covariance, axis1=-2, axis2=-1))
    low = jnp.maximum(mean - _REACH * scale, ends[0])
    high = jnp.minimum(mean + _REACH * scale, ends[1])
    middle, half = 0.5 * (low + high), 0.5 * (high - low)
    points, rule = np.polynomial.legendre.leggauss(_NODES)
    logs = lax.map(lambda node: log_density(middle + half * node), jnp.asarray(points, mean.dtype))
    logs = jnp.where(jnp.isnan(logs), -jnp.inf, logs)

    def per_node(values: np.ndarray) -> Array:
        return jnp.asarray(values, mean.dtype).reshape(-1, *[1] * mean.ndim)

    mass = per_node(rule) * jnp.exp(logs - jnp.max(logs, axis=0))
    mass = mass / jnp.sum(mass, axis=0)
    # Relative to the mean, so that variances are not differences.
    gap = middle - mean + half * per_node(points)
    shift = jnp.sum(mass * gap, axis=0)
    factor = jnp.sqrt(jnp.sum(mass * (gap - shift) ** 2, axis=0)) / scale
    # An entry that the known outputs determine has no density of its own.
    has_density = jnp.isfinite(shift) & jnp.isfinite(factor)
    shift, factor = jnp.where(has_density, shift, 0.0), jnp.where(has_density, factor, 1.0)
    return Moments(mean + shift, factor[..., None] * moments.covariance * factor[..., None, :])
