"""Widths for outputs that are constant in some parts of the input: a density has no atoms."""

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array, lax

from nn_uq_dist.inputs import LinearImage

# Least standard deviation of an output in a part, in units of its usual standard deviation in a
# part. A value of 1e-2 would blur units that are saturated in many parts: their distribution
# functions were off by 0.02 at the bounds, instead of by 0.002.
_LEAST_WIDTH = 1e-4


class LeastWidths(NamedTuple):
    """Where outputs hardly vary, and the standard deviation that they get there.

    Attributes
    ----------
    narrow : Array of bool, shape (..., M, N_y)
    least : Array, shape (..., N_y)
        Zero for an output that is constant over all parts.
    """

    narrow: Array
    least: Array


def least_widths(image: LinearImage, loc: Array, probabilities: Array) -> LeastWidths:
    """A ten-thousandth of the usual standard deviation of an output within a part.

    Parameters
    ----------
    image : LinearImage
        Image of all parts, batch shape (..., M).
    loc : Array, shape (..., M, N_y)
    probabilities : Array, shape (..., M)
    """
    # No gradient: this only decides which parts are widened, and by what small amount.
    scale, loc = lax.stop_gradient((image.standard_deviation, loc))
    shares = lax.stop_gradient(probabilities)[..., None]
    usual = jnp.sqrt(jnp.sum(shares * scale**2, axis=-2))
    # A step function varies between the parts but within none of them.
    gaps = loc - mean_of_parts(shares[..., 0], loc)[..., None, :]
    between = jnp.sqrt(jnp.sum(shares * gaps**2, axis=-2))
    usual = jnp.maximum(usual, between / loc.shape[-2])
    rounding = 16 * jnp.finfo(scale.dtype).eps * jnp.max(jnp.abs(loc), axis=-2)
    least = jnp.where(usual > 0, jnp.maximum(_LEAST_WIDTH * usual, rounding), 0)
    return LeastWidths(scale < least[..., None, :], least)


def with_least_widths(
    image: LinearImage, loc: Array, probabilities: Array
) -> tuple[Array, Array | None]:
    """Weights of the uniforms, ``(..., M, N_y, n)``, normal scales, ``(..., M, N_y)``, or None."""
    narrow, least = least_widths(image, loc, probabilities)
    weights, scale = image.weights, image.normal_scale
    if image.uniform is None and scale is not None:
        return weights, jnp.where(narrow, least[..., None, :], scale)
    first = jnp.arange(weights.shape[-1]) == 0
    instead = first * (jnp.sqrt(3.0) * least[..., None, :, None])
    return jnp.where(narrow[..., None], instead, weights), scale


def mean_of_parts(probabilities: Array, loc: Array) -> Array:
    """Means of the outputs, ``(..., N_y)``, without loss of digits to a large common value."""
    first = loc[..., :1, :]
    shifts: Array = probabilities[..., None] * (loc - first)
    # A method, so that arrays of NumPy stay in NumPy, in float64.
    return first[..., 0, :] + shifts.sum(axis=-2)
