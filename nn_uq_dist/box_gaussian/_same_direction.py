r"""Pairs of uniforms that the outputs see in the same direction: those of a triangular input.

The outputs depend on such a pair by a sum :math:`x = a u_i + b u_j` alone. Given the sites of the
others, its likelihood is normal, :math:`N(x; c, v)`, so the integral over both intervals is that of
a trapezoid times a normal density. Expectation propagation has two sites there instead, whose
product is not a function of the sum: its log density is off by up to .08 for a single pair. The
logarithm of the ratio of both integrals, added to the log density, is the correction for one pair
of factors (M. Opper, U. Paquet and O. Winther, J. Mach. Learn. Res. 14, 2013), to all orders.
"""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from nn_uq_dist.basics._row_algebra import norm
from nn_uq_dist.box_gaussian._gaussian_part import Posterior, Sites
from nn_uq_dist.box_gaussian._tilted_moments import tilted_moments

type Pairs = tuple[tuple[int, int], ...]


class PairCorrection(NamedTuple):
    """What is added to the log density for each pair, and where it is known.

    Attributes
    ----------
    log_ratio : Array, shape (..., p)
        Zero where it is not known.
    is_known : Array of bool, shape (..., p)
        False where the outputs do not see a variable of the pair, or see the sum so sharply that
        the covariance has no digits left.
    """

    log_ratio: Array
    is_known: Array


def pair_correction(
    weights: Array, law: Posterior, covariance: Array, sites: Sites, terms: Array, pairs: Pairs
) -> PairCorrection:
    """Compare the integrals over two intervals with those of their sites.

    Parameters
    ----------
    weights : Array, shape (..., d, n)
        The columns of a pair are parallel.
    law : Posterior
    covariance : Array, shape (..., n, n)
        Of the uniforms, under the sites.
    sites : Sites
    terms : Array, shape (..., n)
        Logarithms of the integrals over single intervals, relative to those of their sites.
    pairs : tuple of pairs of int
    """
    i, j = np.array(pairs).T
    sizes = norm(weights.mT)
    a, b = sizes[..., i], sizes[..., j]
    sign = jnp.where(jnp.sum(weights[..., i] * weights[..., j], axis=-2) < 0, -1.0, 1.0)
    own = jnp.diagonal(covariance, axis1=-2, axis2=-1)
    first, second, shared = own[..., i], own[..., j], sign * covariance[..., i, j]
    means = law.mean[..., i], sign * law.mean[..., j]
    determinant = first * second - shared * shared
    eps = float(jnp.finfo(own.dtype).eps)
    is_known = (a > 0) & (b > 0) & (determinant > 1e3 * eps * first * second)
    is_known &= -shared > 1e2 * eps * jnp.sqrt(first * second)
    a, b, determinant = (jnp.where(is_known, part, 1.0) for part in (a, b, determinant))
    # Without the sites, what is left of the precision of the pair is that of the sum.
    precision = jnp.where(is_known, -shared / (determinant * a * b), 1.0)
    slope = ((second * means[0] - shared * means[1]) / determinant - sites.slope[..., i]) / a
    center = slope / precision
    gap = a * means[0] + b * means[1] - center
    ratio = _log_trapezoid(center, precision, a, b) - terms[..., i] - terms[..., j]
    ratio = ratio + 0.5 * (precision * gap * gap - jnp.log(determinant))
    is_known &= jnp.isfinite(ratio)
    return PairCorrection(jnp.where(is_known, ratio, 0.0), is_known)


def _log_trapezoid(center: Array, precision: Array, a: Array, b: Array) -> Array:
    """Log integral of the density of ``a u + b u'`` times ``exp(-precision gap^2/2)``."""
    wide, narrow = jnp.maximum(a, b), jnp.minimum(a, b)
    end, step = wide + narrow, wide - narrow

    def piece(distance: Array, width: Array) -> tuple[Array, Array]:
        """Log mass and mean of the normal factor on (0, width), its center at the distance."""
        point = jnp.clip(distance, 0.0, width)
        gap = distance - point
        found = tilted_moments(precision, precision * gap, -point, width - point)
        return found.log_mass - 0.5 * precision * gap * gap, point + found.mean

    total = piece(center + step, 2.0 * step)[0] - jnp.log(2.0 * wide)
    for distance in (end + center, end - center):
        mass, mean = piece(distance, 2.0 * narrow)
        # The density rises from zero at the end, so the mean tells its integral.
        total = jnp.logaddexp(total, mass + jnp.log(mean) - jnp.log(4.0 * wide * narrow))
    return total
