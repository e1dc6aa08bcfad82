"""Shapes and values of the parameters of an input law, checked before anything is computed."""

import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from nn_uq_dist.basics import _checks


def split_loc_shape(shape: tuple[int, ...]) -> tuple[tuple[int, ...], int]:
    """Return the batch shape of ``loc`` and the number of inputs."""
    if len(shape) == 0 or shape[-1] == 0:
        raise ValueError(
            f"loc must have shape (..., N_x) with N_x >= 1, got shape {shape}; "
            f"pass one entry per network input"
        )
    return shape[:-1], shape[-1]


def vector_batch(
    name: str, shape: tuple[int, ...], batch_shape: tuple[int, ...], num_inputs: int
) -> tuple[int, ...]:
    """Join the batch shape with that of half-widths or scales, one per input or one for all."""
    if len(shape) > 0 and shape[-1] not in {1, num_inputs}:
        raise ValueError(
            f"{name} must have last axis N_x = {num_inputs} (as loc) or 1, got shape {shape}; "
            f"give a {name.replace('_', '-')} per batch entry the shape (..., 1)"
        )
    return _checks.broadcast_shapes(
        f"{name} must broadcast against loc of shape (..., N_x)",
        **{name: shape[:-1], "loc": batch_shape},
    )


def factor_batch(
    shape: tuple[int, ...], batch_shape: tuple[int, ...], num_inputs: int
) -> tuple[int, ...]:
    """Join the batch shape with that of ``scale_tril``."""
    if shape[-2:] != (num_inputs, num_inputs):
        raise ValueError(
            f"scale_tril must have shape (..., N_x, N_x) with N_x = {num_inputs} (as loc), got "
            f"shape {shape}; for independent scales pass jnp.diag(scale), or scale=scale, which "
            f"needs no matrix"
        )
    return _checks.broadcast_shapes(
        "the leading axes of scale_tril must broadcast against those of loc",
        scale_tril=shape[:-2],
        loc=batch_shape,
    )


def require_factor(scale_tril: ArrayLike) -> None:
    """Raise ``ValueError`` if a known matrix is no lower triangular factor of a covariance."""
    _checks.require_finite("scale_tril", scale_tril)
    if not _checks.is_concrete(scale_tril):
        return
    factor = np.asarray(scale_tril)
    _checks.require_nonnegative(
        "the diagonal of scale_tril",
        np.diagonal(factor, axis1=-2, axis2=-1),
        "pass jnp.linalg.cholesky(covariance)",
    )
    above = np.triu(factor, 1) != 0
    if above.any():
        raise ValueError(
            f"scale_tril must be lower triangular, got a nonzero entry at index "
            f"{_checks.first_index(above)}; pass jnp.linalg.cholesky(covariance)"
        )


def nan_where_negative(scale: Array) -> Array:
    """Half-widths or scales with NaN for negative ones that could not be seen before."""
    # A negative one has the law of a positive one: without NaN a traced mistake would go on as a
    # plausible number.
    return jnp.where(scale < 0, jnp.nan, scale) if not _checks.is_concrete(scale) else scale


def nan_where_no_factor(scale_tril: Array) -> Array:
    """A factor with NaN for entries that a factor cannot have and that could not be seen before."""
    if _checks.is_concrete(scale_tril):
        return scale_tril
    size = scale_tril.shape[-1]
    above = jnp.triu(jnp.ones((size, size), bool), 1) & (scale_tril != 0)
    negative = jnp.eye(size, dtype=bool) & (scale_tril < 0)
    return jnp.where(above | negative, jnp.nan, scale_tril)
