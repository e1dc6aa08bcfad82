r"""A network and a box in NumPy's float64, in which bounds are computed; checks of both.

In float32, rigorous rounding bounds would let many neurons of a deep network seem to flip that do
not, and JAX has no float64 unless it is enabled for the whole program. Vectors have shape ``(...,
N)`` and matrices ``(..., N, M)``: leading axes of networks and inputs broadcast.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from numpyro.distributions import Distribution

from nn_uq_dist.basics import _checks
from nn_uq_dist.basics._known_values import FloatArray, in_float64
from nn_uq_dist.error_analysis._leaky_relu_network import LeakyReLUNetwork
from nn_uq_dist.inputs import AbstractInputLaw, InputLaw, as_input_law


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


def input_law_of(network: LeakyReLUNetwork, f: Distribution | AbstractInputLaw) -> AbstractInputLaw:
    """Return the law of the input of `network`, or raise an error that says why `f` is not one."""
    require_network(network)
    law = vector_law(f)
    if law.num_inputs != network.num_inputs:
        raise ValueError(
            f"f must have N_x = {network.num_inputs} inputs as network, got {law.num_inputs}; pass "
            f"one coordinate per input of the network"
        )
    return law


def vector_law(f: Distribution | AbstractInputLaw) -> AbstractInputLaw:
    """Return the law, or raise a ``TypeError`` if it is not one of vectors."""
    law = as_input_law(f)
    if not law.is_vector:
        raise TypeError(
            f"f must be the law of the vector that network takes, got {law!r}; pass a uniform or "
            f"Gaussian distribution over vectors, or an InputLaw"
        )
    return law


def with_box(
    function: str, network: LeakyReLUNetwork, f: Distribution | AbstractInputLaw
) -> tuple["Float64Network", InputLaw, FloatArray, NDArray[np.bool_]]:
    """Return network and law in float64, half-widths, and whether there is a Gaussian part.

    Half-widths have the shape ``batch_shape + (N_x,)``, zero where there is no box. A ``TypeError``
    is raised for traced values.
    """
    given = input_law_of(network, f)
    # Bounds start from the box itself: they do not hold for other columns of uniform variables.
    law = InputLaw.from_distribution(given)
    if not _checks.is_concrete(network, law):
        raise TypeError(
            f"{function} must get known numbers, got traced values in network or f; call it "
            f"outside of jit, grad and vmap, and give f a batch shape for many boxes"
        )
    law = in_float64(law)
    half_width, scale = (
        np.zeros(law.loc.shape) if part is None else np.asarray(part)
        for part in (law.half_width, law.normal_scale)
    )
    return as_float64(network), law, half_width, np.any(scale, axis=-1)


class Float64Network(NamedTuple):
    """Parameters of a `LeakyReLUNetwork`, without skip connection and output bias."""

    hidden_weights: list[FloatArray]
    biases: list[FloatArray]
    output_matrix: FloatArray
    alpha: FloatArray  # shape (..., 1)


def as_float64(network: LeakyReLUNetwork) -> Float64Network:
    """Convert; raise ``ValueError`` if a parameter is NaN or infinite."""
    # The constructor has checked this, but a transformation may have rebuilt the network since.
    _checks.require_finite("negative_slope", network.negative_slope, "pass a number in [0, 1]")
    for part in (*network.hidden_weights, *network.biases, network.output_matrix):
        _checks.require_finite("every weight and bias of network", part)
    return Float64Network(
        [np.asarray(part, np.float64) for part in network.hidden_weights],
        [np.asarray(part, np.float64) for part in network.biases],
        np.asarray(network.output_matrix, np.float64),
        np.asarray(network.negative_slope, np.float64)[..., None],
    )


def pre_activations(network: Float64Network, mu: FloatArray) -> list[FloatArray]:
    """Pre-activations ``h_1, ..., h_L`` at `mu`, shapes ``(..., N_n)``."""
    hidden: list[FloatArray] = []
    signal = mu
    for weights, bias in zip(network.hidden_weights, network.biases, strict=True):
        hidden.append(apply(weights, signal) + bias)
        signal = np.where(hidden[-1] >= 0, hidden[-1], network.alpha * hidden[-1])
    return hidden


def slopes_at(network: Float64Network, hidden: list[FloatArray]) -> list[FloatArray]:
    r"""Slopes :math:`\phi'(h_n)`, 1 at zero, shapes ``(..., N_n)``."""
    return [np.where(h >= 0, 1.0, network.alpha) for h in hidden]


def maps_to_output(network: Float64Network, slopes: list[FloatArray]) -> list[FloatArray]:
    r"""Matrices :math:`G_n = A \prod_{k>n} D_k W_k`, shapes ``(..., N_y, N_n)``, n = 0, ..., L.

    The first, :math:`G_0`, is the Jacobian without the identity of a skip connection.
    """
    maps = [network.output_matrix]
    for weights, slope in zip(network.hidden_weights[::-1], slopes[::-1], strict=True):
        maps.append((maps[-1] * slope[..., None, :]) @ weights)
    return maps[::-1]


def apply(matrix: FloatArray, vector: FloatArray) -> FloatArray:
    """Matrix times vector, batched."""
    product: FloatArray = (matrix @ vector[..., None])[..., 0]
    return product


def spectral_norm(matrix: FloatArray) -> FloatArray:
    """Largest singular value, shape ``(...)``."""
    value: FloatArray = np.linalg.norm(matrix, 2, axis=(-2, -1))
    return value


def norm(vector: FloatArray) -> FloatArray:
    """Euclidean norm over the last axis."""
    value: FloatArray = np.linalg.norm(vector, axis=-1)
    return value
