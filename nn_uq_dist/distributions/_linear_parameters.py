"""Parameters of the joint laws of outputs ``loc + W u + e``, with shapes that fit."""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike
from numpyro.distributions.util import promote_shapes

from nn_uq_dist.basics._checks import as_numeric, broadcast_shapes, float_dtype


class LinearParameters(NamedTuple):
    """Means, columns of the uniforms, and covariance of the normal part; of equal rank.

    Attributes
    ----------
    loc : array_like, shape (..., d)
    weights : array_like, shape (..., d, n)
    covariance : array_like, shape (..., d, d), or None
    """

    loc: ArrayLike
    weights: ArrayLike
    covariance: ArrayLike | None

    @property
    def dtype(self) -> jnp.dtype:
        """Type of the results: at least single precision."""
        given = [part for part in self if part is not None]
        return jnp.promote_types(float_dtype(*given), jnp.float32)

    def arrays(self, dtype: jnp.dtype | None = None) -> tuple[Array, Array, Array | None]:
        """The parameters as arrays of one type."""
        dtype = self.dtype if dtype is None else dtype
        covariance = None if self.covariance is None else jnp.asarray(self.covariance, dtype)
        return jnp.asarray(self.loc, dtype), jnp.asarray(self.weights, dtype), covariance

    @property
    def scale(self) -> Array | None:
        """Standard deviation of the normal part of each output, or None without a normal part."""
        covariance = self.arrays()[2]
        if covariance is None:
            return None
        diagonal = jnp.diagonal(covariance, axis1=-2, axis2=-1)
        # The square root has no finite slope at zero.
        return jnp.where(diagonal == 0, 0.0, jnp.sqrt(jnp.where(diagonal == 0, 1.0, diagonal)))


def linear_parameters(
    loc: ArrayLike, weights: ArrayLike, normal_covariance: ArrayLike | None
) -> tuple[LinearParameters, tuple[int, ...]]:
    """Return the parameters, and batch and event shape as one tuple.

    Raises
    ------
    TypeError
        If an argument is not an array of real numbers.
    ValueError
        If shapes do not fit, or there is no normal part and fewer uniforms than outputs.
    """
    loc, weights = as_numeric("loc", loc), as_numeric("weights", weights)
    if jnp.ndim(weights) < 2 or 0 in jnp.shape(weights)[-2:]:
        msg = (
            f"weights must have shape (..., d, n), a row for each output and a column for each "
            f"uniform, got {jnp.shape(weights)}; for one output use LinearizedMarginal"
        )
        raise ValueError(msg)
    num_outputs, count = jnp.shape(weights)[-2:]
    if normal_covariance is not None:
        normal_covariance = as_numeric("normal_covariance", normal_covariance)
        if jnp.shape(normal_covariance)[-2:] != (num_outputs, num_outputs):
            msg = (
                f"normal_covariance must have shape (..., {num_outputs}, {num_outputs}), "
                f"got {jnp.shape(normal_covariance)}; "
                "for independent noise pass jnp.diag(scale**2)"
            )
            raise ValueError(msg)
    elif count < num_outputs:
        msg = (
            f"weights without a normal part must have at least as many columns as rows, got "
            f"{num_outputs} outputs of {count} uniforms, which have no joint density; "
            "pass normal_covariance (noise_scale in Linearization.joint)"
        )
        raise ValueError(msg)
    covariance_shape = () if normal_covariance is None else jnp.shape(normal_covariance)
    shape = broadcast_shapes(
        "loc, weights without their last axis and normal_covariance must broadcast",
        loc=jnp.shape(loc) or (1,),
        weights=jnp.shape(weights)[:-1],
        normal_covariance=covariance_shape[:-1],
    )
    if shape[-1] != num_outputs:
        msg = (
            f"loc must have shape (..., {num_outputs}), an entry for each row of weights, got "
            f"{jnp.shape(loc)}; pass one mean per output"
        )
        raise ValueError(msg)
    # Known numbers stay known under `jit`, where values are checked against the support.
    xp = np if isinstance(loc, np.ndarray) else jnp
    loc = xp.broadcast_to(xp.asarray(loc), (*jnp.shape(loc)[:-1], num_outputs))
    parameters = LinearParameters(loc, weights, normal_covariance)
    return with_batch(parameters, shape[:-1]), shape


def with_batch(parameters: LinearParameters, batch_shape: tuple[int, ...]) -> LinearParameters:
    """The same with axes of size 1 in front, as NumPyro promotes shapes."""
    loc, weights, covariance = parameters
    num_outputs, count = jnp.shape(weights)[-2:]
    shape = (*batch_shape, num_outputs)
    (loc,) = promote_shapes(loc, shape=shape)
    (weights,) = promote_shapes(weights, shape=(*shape, count))
    if covariance is not None:
        (covariance,) = promote_shapes(covariance, shape=(*shape, num_outputs))
    return LinearParameters(loc, weights, covariance)
