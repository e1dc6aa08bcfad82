"""Correlated noise of outputs, added to the Gaussian part of their linear image."""

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from nn_uq_dist.basics import _checks
from nn_uq_dist.inputs import LinearImage


def normal_covariance(image: LinearImage, noise_covariance: ArrayLike | None) -> Array | None:
    """Covariance of the normal part plus the noise, ``(..., N_y, N_y)``, or ``None``."""
    covariance, num_outputs = image.normal_covariance, image.shape[-1]
    if noise_covariance is None:
        return covariance
    noise = jnp.asarray(_checks.as_numeric("noise_covariance", noise_covariance))
    if noise.shape[-2:] != (num_outputs, num_outputs):
        raise ValueError(
            f"noise_covariance must have shape (..., {num_outputs}, {num_outputs}), got "
            f"{noise.shape}; for independent noise use noise_scale"
        )
    return noise if covariance is None else covariance + noise
