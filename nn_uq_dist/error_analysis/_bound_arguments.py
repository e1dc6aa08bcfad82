"""Checks of the arguments that the functions of the error analysis share."""

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
    law = as_input_law(f)
    if not law.is_vector:
        raise TypeError(
            f"f must be the law of the vector that network takes, got {law!r}; pass a uniform or "
            f"Gaussian distribution over vectors, or an InputLaw"
        )
    if law.num_inputs != network.num_inputs:
        raise ValueError(
            f"f must have N_x = {network.num_inputs} inputs as network, got {law.num_inputs}; pass "
            f"one coordinate per input of the network"
        )
    return law


def box_of(
    function: str, network: LeakyReLUNetwork, f: Distribution | AbstractInputLaw
) -> tuple[InputLaw, FloatArray, NDArray[np.bool_]]:
    """Return the law in float64, its half-widths, and whether it has a Gaussian part.

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
    return law, half_width, np.any(scale, axis=-1)
