"""Checks of what is asked of the outputs of a linearization."""

import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from nn_uq_dist import _checks


def checked_noise(noise_scale: ArrayLike, loc: Array) -> Array:
    """Return the noise of each output, broadcast to at least the shape of ``loc``."""
    noise_scale = _checks.as_numeric("noise_scale", noise_scale)
    shape = _checks.broadcast_shapes(
        "noise_scale must broadcast against the outputs (..., N_y)",
        noise_scale=np.shape(noise_scale),
        outputs=loc.shape,
    )
    _checks.require_finite("noise_scale", noise_scale)
    _checks.require_nonnegative("noise_scale", noise_scale, "pass a standard deviation")
    noise = jnp.asarray(noise_scale, _checks.float_dtype(noise_scale, loc))
    return jnp.broadcast_to(jnp.where(noise < 0, jnp.nan, noise), shape)


def require_spread(weights: Array, normal_scale: Array | None) -> None:
    """Raise ``ValueError`` if an output is known to be constant."""
    if not _checks.is_concrete(weights, normal_scale):
        return
    constant = (np.asarray(weights) == 0).all(axis=-1)
    if normal_scale is not None:
        constant = constant & (np.asarray(normal_scale) == 0)
    if not constant.any():
        return
    *batch, output = _checks.first_index(constant)
    where = f"output {output}" + (f" of batch entry {tuple(batch)}" if batch else "")
    count = int(constant.sum())
    others = f" and {count - 1} more" if count > 1 else ""
    raise ValueError(
        f"every output must vary with the input, got zero sensitivity for {where}{others}: a "
        f"constant has no density; pass noise_scale > 0 or leave the output out of the network"
    )
