"""Checks of the arguments that the functions of the error analysis share."""

import numpy as np
from numpy.typing import NDArray
from numpyro.distributions import Distribution

from nn_uq_dist.basics import _checks
from nn_uq_dist.error_analysis._leaky_relu_network import LeakyReLUNetwork
from nn_uq_dist.inputs import AbstractInputLaw, InputLaw, as_input_law


def require_network(net: LeakyReLUNetwork) -> None:
    """Raise ``TypeError`` if `net` is another callable, whose layers are not accessible."""
    if not isinstance(net, LeakyReLUNetwork):
        raise TypeError(
            f"net must be a LeakyReLUNetwork, got {type(net).__name__}; convert it with "
            f"LeakyReLUNetwork.from_flax or LeakyReLUNetwork.from_equinox"
        )


def require_single(net: LeakyReLUNetwork) -> None:
    """Raise ``ValueError`` for stacked networks, which are one pytree with batched leaves."""
    if np.ndim(net.output_matrix) != 2:
        raise ValueError(
            f"net must be one network, got stacked ones with output_matrix of shape "
            f"{np.shape(net.output_matrix)}; use jax.vmap over them"
        )


def input_law_of(net: LeakyReLUNetwork, f: Distribution | AbstractInputLaw) -> AbstractInputLaw:
    """Return the law of the input of `net`, or raise an error that says why `f` is not one."""
    require_network(net)
    law = as_input_law(f)
    if not law.is_vector:
        raise TypeError(
            f"f must be the law of the vector that net takes, got {law!r}; pass a uniform or "
            f"Gaussian distribution over vectors, or an InputLaw"
        )
    if law.num_inputs != net.num_inputs:
        raise ValueError(
            f"f must have N_x = {net.num_inputs} inputs as net, got {law.num_inputs}; pass one "
            f"coordinate per input of the network"
        )
    return law


def as_concrete_law(
    function: str, net: LeakyReLUNetwork, f: Distribution | AbstractInputLaw
) -> tuple[InputLaw, NDArray[np.bool_]]:
    """Return the law, and whether it has a Gaussian part; raise ``TypeError`` for traced values."""
    given = input_law_of(net, f)
    # Bounds start from the box itself: they do not hold for other columns of uniform variables.
    law = InputLaw.from_distribution(given)
    if not _checks.is_concrete(net, law):
        raise TypeError(
            f"{function} must get known numbers, got traced values in net or f; call it outside "
            f"of jit, grad and vmap, and give f a batch shape for many boxes"
        )
    if law.normal_scale is None:
        return law, np.zeros((), bool)
    return law, np.any(np.asarray(law.normal_scale), axis=-1)


def box_half_width(law: InputLaw) -> NDArray[np.float64]:
    """Half-widths of the box part in float64, shape ``batch_shape + (N_x,)``, zero if absent."""
    if law.half_width is None:
        return np.zeros(law.loc.shape)
    return np.asarray(law.half_width, np.float64)


def require_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    """Raise ``ValueError`` if `value` is not among `choices`."""
    if value not in choices:
        listed = ", ".join(map(repr, choices))
        raise ValueError(f"{name} must be one of {listed}, got {value!r}; pass one of them")
