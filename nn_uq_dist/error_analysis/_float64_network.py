r"""A network in NumPy's float64, in which bounds are computed; checks of it and of its input.

In float32, rigorous rounding bounds would let many neurons of a deep network seem to flip that do
not, and JAX has no float64 unless it is enabled for the whole program. Vectors have shape ``(...,
N)`` and matrices ``(..., N, M)``: leading axes of networks and inputs broadcast.
"""

from typing import NamedTuple

import numpy as np
from numpyro.distributions import Distribution

from nn_uq_dist.basics import checks
from nn_uq_dist.basics.concrete import FloatArray
from nn_uq_dist.error_analysis._leaky_relu_network import LeakyReLUNetwork
from nn_uq_dist.inputs import Input, as_input

# Twice the unit roundoff.
EPS = float(np.finfo(np.float64).eps)


def require_network(network: LeakyReLUNetwork) -> None:
    """Raise ``TypeError`` if `network` is another callable, whose layers are not accessible."""
    if not isinstance(network, LeakyReLUNetwork):
        raise TypeError(
            f"network must be a LeakyReLUNetwork, got {type(network).__name__}; convert it with "
            f"LeakyReLUNetwork.from_network"
        )


def require_single(network: LeakyReLUNetwork) -> None:
    """Raise ``ValueError`` for stacked networks, which are one pytree with batched leaves."""
    if np.ndim(network.output_matrix) != 2:
        raise ValueError(
            f"network must be one network, got stacked ones with output_matrix of shape "
            f"{np.shape(network.output_matrix)}; use jax.vmap over them"
        )


def input_distribution_of(network: LeakyReLUNetwork, f: Distribution | Input) -> Input:
    """Return `f` as an input of `network`, or raise an error that says why it is not one."""
    require_network(network)
    distribution = vector_distribution(f)
    if distribution.num_inputs != network.num_inputs:
        raise ValueError(
            f"f must have N_x = {network.num_inputs} inputs as network, got "
            f"{distribution.num_inputs}; pass "
            f"one coordinate per input of the network"
        )
    return distribution


def vector_distribution(f: Distribution | Input) -> Input:
    """Return the distribution, or raise a ``TypeError`` if it is not one of vectors."""
    distribution = as_input(f)
    if not distribution.is_vector:
        raise TypeError(
            f"f must be an input of the vector that network takes, got {distribution!r}; pass a "
            "uniform or "
            f"Gaussian distribution over vectors, or an nn_uq_dist.Input"
        )
    return distribution


class Float64Network(NamedTuple):
    """Parameters of a `LeakyReLUNetwork`, without skip connection and output bias."""

    hidden_weights: list[FloatArray]
    biases: list[FloatArray]
    output_matrix: FloatArray
    alpha: FloatArray  # shape (..., 1)


def as_float64(network: LeakyReLUNetwork) -> Float64Network:
    """Convert; raise ``ValueError`` if a parameter is NaN or infinite."""
    # The constructor has checked this, but a transformation may have rebuilt the network since.
    checks.require_finite("negative_slope", network.negative_slope, "pass a number in [0, 1]")
    for part in (*network.hidden_weights, *network.biases, network.output_matrix):
        checks.require_finite("every weight and bias of network", part)
    return Float64Network(
        [np.asarray(part, np.float64) for part in network.hidden_weights],
        [np.asarray(part, np.float64) for part in network.biases],
        np.asarray(network.output_matrix, np.float64),
        np.asarray(network.negative_slope, np.float64)[..., None],
    )


def apply(matrix: FloatArray, vector: FloatArray) -> FloatArray:
    """Matrix times vector, batched."""
    product: FloatArray = (matrix @ vector[..., None])[..., 0]
    return product
