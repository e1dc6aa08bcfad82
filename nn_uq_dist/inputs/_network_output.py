"""What a network makes of an input of this law: its shape and type, or what is wrong with it."""

import re
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from nn_uq_dist.inputs._abstract_input_law import AbstractInputLaw
from nn_uq_dist.inputs._foreign_networks import remedy_for

_COLORS = re.compile(r"\x1b\[[0-9;]*m")


def check_network(net: Callable[[Array], Array], law: AbstractInputLaw) -> jax.ShapeDtypeStruct:
    """Return shape ``(N_y,)`` and dtype of the network's output, or say what is wrong with it.

    The network is only traced, not run.
    """
    if not callable(net):
        raise TypeError(
            f"net must be a callable (N_x,) -> (N_y,), got {type(net).__name__}; "
            f"{remedy_for(net) or 'pass a function or a module'}"
        )
    shape = (law.num_inputs,)
    one_input = "for a network of batches pass lambda x: net(x[None])[0]"
    try:
        # Not `eval_shape(net, ...)`: JAX needs a hashable function, which a module may not be, and
        # would remember the shape after the weights of a module were replaced by other ones.
        output: Any = jax.eval_shape(
            lambda x: net(x),  # noqa: PLW0108
            jax.ShapeDtypeStruct(shape, law.dtype),
        )
    except Exception as error:
        remedy = remedy_for(net, error, jax.ShapeDtypeStruct(shape, law.dtype)) or (
            f"{one_input}, and switch modules with dropout or batch statistics to inference mode"
        )
        raise ValueError(
            f"net must accept one input of shape {shape} and dtype {law.dtype}, got "
            f"{type(error).__name__} from it: {_first_line(error)}; {remedy}"
        ) from error
    if not isinstance(output, jax.ShapeDtypeStruct):
        raise TypeError(
            f"net must return one array of shape (N_y,), got {type(output).__name__}; "
            f"return a single array: lambda x: net(x)[0] for the first of several, "
            f"jnp.concatenate for all"
        )
    if len(output.shape) != 1 or output.shape[0] == 0:
        raise ValueError(
            f"net must map an input of shape {shape} to a vector (N_y,), got output of shape "
            f"{output.shape}; for a scalar or array output pass lambda x: net(x).reshape(-1); "
            f"{one_input}"
        )
    if not jnp.issubdtype(output.dtype, jnp.floating):
        raise TypeError(
            f"net must return real floats, got dtype {output.dtype}, which has no derivative; "
            f"return the continuous output, such as logits instead of labels"
        )
    return output


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    # Keras says in the first line only where it happened.
    if len(lines) > 1 and lines[0].startswith("Exception encountered when calling"):
        lines = lines[1:]
    return _COLORS.sub("", lines[0]) if lines else "no message"
