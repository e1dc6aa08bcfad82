"""The linear layers of Flax NNX and Equinox modules; neither library is imported."""

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

if TYPE_CHECKING:
    import equinox as eqx
    from flax import nnx

type Layer = tuple[Array, Array | None]  # weights (rows are neurons), bias

# The large points distinguish functions with a ceiling, such as ReLU6, from the leaky ReLU.
_PROBES = (-1e3, -2.0, -1.0, -1e-3, 0.0, 1e-3, 1.0, 2.0, 1e3)


def flax_layers(layers: "Sequence[nnx.Linear]") -> list[Layer]:
    """Return weights and biases of ``nnx.Linear`` layers, whose kernels multiply from the right."""
    if not isinstance(layers, Iterable):
        raise TypeError(
            f"layers must be a sequence of nnx.Linear layers, got {type(layers).__name__}; pass a "
            f"list, from the input to the output"
        )
    layers = list(layers)
    for index, layer in enumerate(layers):
        if not hasattr(layer, "kernel"):
            raise TypeError(
                f"layers must be nnx.Linear layers, got {type(layer).__name__} at index {index}; "
                f"leave activations out, they are the same for all layers"
            )
    return [(jnp.asarray(layer.kernel).T, _optional(layer.bias)) for layer in layers]


def equinox_layers(mlp: "eqx.nn.MLP") -> tuple[list[Layer], float]:
    """Return weights and biases of an Equinox ``MLP``, and the slope of its activation."""
    fields = ("layers", "activation", "final_activation")
    missing = [name for name in fields if not hasattr(mlp, name)]
    if missing:
        raise TypeError(
            f"mlp must be an equinox.nn.MLP, got {type(mlp).__name__} without "
            f"{', '.join(missing)}; construct a LeakyReLUNetwork from the weights instead"
        )
    slope = _slope("activation", mlp.activation)
    if _slope("final_activation", mlp.final_activation) != 1:
        raise ValueError(
            "final_activation must be the identity, got another function; take it out of the "
            "network"
        )
    layers: list[Layer] = []
    for part in mlp.layers:
        weights, bias = jnp.asarray(part.weight), _optional(part.bias)
        if weights.ndim == 3:  # `scan=True` stacks the hidden layers along a leading axis
            biases = [None] * len(weights) if bias is None else bias
            layers.extend(zip(weights, biases, strict=True))
        else:
            layers.append((weights, bias))
    return layers, slope


def _optional(parameter: object) -> Array | None:
    return None if parameter is None else jnp.asarray(parameter)


def _slope(name: str, function: Callable[[Array], Array]) -> float:
    """Determine the slope of a leaky ReLU from its values; the identity has slope 1."""
    remedy = "only x for x >= 0 and slope * x for x < 0 fits a LeakyReLUNetwork"
    if any(isinstance(leaf, jax.Array | np.ndarray) for leaf in jax.tree.leaves(function)):
        raise ValueError(
            f"{name} must be a leaky ReLU with one fixed slope, got one with parameters; {remedy}"
        )
    # Numbers, even if the conversion itself is traced. JAX 0.8 traces rules of derivatives all the
    # same, unless they are inside of a compiled function.
    compiled = jax.jit(function)
    with jax.ensure_compile_time_eval():
        values = np.array([compiled(jnp.asarray(point)) for point in _PROBES])
    # The shortest decimal that gives the value: 0.01 even if it was rounded to float32.
    slope = float(str(-values[_PROBES.index(-1.0)])) + 0.0  # no -0.0 for the ReLU
    expected = [point if point >= 0 else slope * point for point in _PROBES]
    if not (0 <= slope <= 1 and np.allclose(values, expected, rtol=1e-6, atol=0)):
        raise ValueError(
            f"{name} must be a leaky ReLU with a slope in [0, 1], got values {values.round(4)} at "
            f"{_PROBES}; {remedy}"
        )
    return slope
