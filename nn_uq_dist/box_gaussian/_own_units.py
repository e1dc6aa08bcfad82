"""Outputs in units of their own size, so that no square of them over- or underflows.

In single precision the square of 1e-19 is zero and that of 1e20 infinite, and outputs of one law
may have such different sizes. What the other modules compute in these units needs no care.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from nn_uq_dist.basics._row_algebra import binary_unit, gram


class InOwnUnits(NamedTuple):
    """A problem in units of its outputs, and these units, powers of two.

    Attributes
    ----------
    deviation : Array, shape (..., k)
        Of all outputs, or of the first ``k``.
    weights : Array, shape (..., d, n)
    covariance : Array, shape (..., d, d), or None
    units : Array, shape (..., d)
    """

    deviation: Array
    weights: Array
    covariance: Array | None
    units: Array

    @property
    def log_volume(self) -> Array:
        """Logarithm of the product of the units: what a log density in these units exceeds."""
        return jnp.sum(jnp.log(self.units), axis=-1)


# One program, so that an eager call does not compile each operation separately.
@jax.jit
def in_own_units(deviation: Array, weights: Array, covariance: Array | None) -> InOwnUnits:
    """Divide each output by a power of two near its size, which causes no rounding.

    Parameters
    ----------
    deviation : Array, shape (..., k)
        Deviations of all outputs, or of the first ``k``.
    weights : Array, shape (..., d, n)
    covariance : Array, shape (..., d, d), or None
    """
    size = jnp.max(jnp.abs(weights), axis=-1)
    if covariance is not None:
        diagonal = jnp.diagonal(lax.stop_gradient(covariance), axis1=-2, axis2=-1)
        size = jnp.maximum(size, jnp.sqrt(diagonal))
    units = binary_unit(size)
    if covariance is not None:
        # One unit at a time, because their product may over- or underflow.
        covariance = covariance / units[..., None] / units[..., None, :]
    known = units[..., : deviation.shape[-1]]
    return InOwnUnits(deviation / known, weights / units[..., None], covariance, units)


@jax.jit
def joint_covariance(weights: Array, covariance: Array | None) -> Array:
    """Covariance ``W W^T/3 + S_0`` of all outputs.

    Parameters
    ----------
    weights : Array, shape (..., d, n)
    covariance : Array, shape (..., d, d), or None

    Returns
    -------
    Array, shape (..., d, d)

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from nn_uq_dist.box_gaussian._own_units import joint_covariance
    >>> print(joint_covariance(jnp.array([[3e-18, 0.0]]), None))
    [[3.e-36]]
    """
    given = in_own_units(weights[..., 0], weights, covariance)
    total = gram(given.weights) / 3.0
    total = total if given.covariance is None else total + given.covariance
    return given.units[..., None] * total * given.units[..., None, :]
