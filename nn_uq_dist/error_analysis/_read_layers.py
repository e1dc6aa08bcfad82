"""The layers of a leaky-ReLU network, read from what it computes: any JAX function or module.

The program of the network is run once with each value written as an affine function of the
activations of the last layer before it. An activation ends a layer and begins the next one. Scaling
of inputs and outputs, and whatever else is affine, thus goes into the weights.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.extend.core import Literal

from nn_uq_dist.basics.checks import is_concrete
from nn_uq_dist.basics.concrete import evaluated_now

# Linear in all operands together; in one of them.
_LINEAR = frozenset(
    {
        *("add", "add_any", "sub", "neg", "reduce_sum", "cumsum", "reduce_window_sum"),
        *("reshape", "transpose", "broadcast_in_dim", "squeeze", "rev", "copy", "copy_p"),
        *("concatenate", "split", "stack", "unstack", "tile", "pad", "slice", "dynamic_slice"),
        *("gather", "convert_element_type"),
    }
)
_BILINEAR = frozenset({"mul", "dot_general", "conv_general_dilated"})
_COMPARISONS = {"ge": True, "gt": True, "lt": False, "le": False}
_REMEDY = (
    "construct a LeakyReLUNetwork from its weights, or compare the network itself with monte_carlo"
)


# Weights and biases of all layers, the negative slope, and whether there is a skip connection.
type Layers = tuple[list[Array], list[Array], float, bool]


@dataclasses.dataclass(eq=False)
class _Affine:
    """``const + sum_n linear[n] . s_n``: ``s_0`` is the input, ``s_n`` the n-th activations."""

    linear: dict[int, Any]  # (size of s_n,) + shape
    const: Any
    # The value of which it is a multiple, and by how much: what activations are told by.
    source: "_Affine | None" = None
    factor: float = 1.0

    @property
    def root(self) -> "_Affine":
        """The value of which it is a multiple, which may be itself."""
        return self.source or self


class _Sign(NamedTuple):
    """Whether a value is positive, or negative."""

    of: _Affine
    positive: bool


def read_layers(network: Callable[[Array], Array], num_inputs: int) -> Layers:
    """Weights and biases of all layers, the last one without activation.

    Raises
    ------
    ValueError
        If the network does anything but affine maps and one leaky ReLU.
    """
    dtype = jnp.result_type(float)
    try:
        # A loop over layers runs as one layer after the other.
        with jax.disable_jit():
            program = jax.make_jaxpr(network)(jax.ShapeDtypeStruct((num_inputs,), dtype))
    except ValueError as error:  # such as a loop over no layers
        raise _unreadable(f"an error without jit: {error}") from error
    reader = _Reader()
    # Numbers that are known stay known, even if the conversion itself is traced.
    with evaluated_now(), jax.default_matmul_precision("highest"):
        start = _Affine({0: jnp.eye(num_inputs, dtype=dtype)}, jnp.zeros(num_inputs, dtype))
        (output,) = reader.run(program.jaxpr, program.consts, [start])
        if not isinstance(output, _Affine):
            raise _unreadable("an output that does not change with the input")
        return reader.layers(output, num_inputs)


class _Reader:
    def __init__(self) -> None:
        self.weights: list[Array] = []
        self.biases: list[Array] = []
        self.slopes: list[float] = []

    def run(self, jaxpr: Any, consts: Any, operands: list[Any]) -> list[Any]:
        """Values of the outputs of a program."""
        known: dict[Any, Any] = dict(zip(jaxpr.constvars, consts, strict=True))
        known.update(zip(jaxpr.invars, operands, strict=True))

        def value(place: Any) -> Any:
            return place.val if isinstance(place, Literal) else known[place]

        for eqn in jaxpr.eqns:
            results = self.apply(eqn, [value(place) for place in eqn.invars])
            known.update(zip(eqn.outvars, results, strict=True))
        return [value(place) for place in jaxpr.outvars]

    def apply(self, eqn: Any, given: list[Any]) -> list[Any]:
        """Values of the results of one operation."""
        inner = eqn.params.get("jaxpr", eqn.params.get("call_jaxpr"))
        if inner is not None:
            return self.run(getattr(inner, "jaxpr", inner), getattr(inner, "consts", ()), given)
        if not any(isinstance(part, _Affine | _Sign) for part in given):
            return _evaluated(eqn, given)
        bent = self.bent(eqn.primitive.name, given)
        return _mapped(eqn, given) if bent is None else [bent]

    def bent(self, name: str, given: list[Any]) -> "_Affine | _Sign | None":
        """The result of an operation that is part of an activation, None if it is none."""
        if name in _COMPARISONS and isinstance(given[0], _Affine) and _is_zero(given[1]):
            return _Sign(given[0], _COMPARISONS[name])
        if name == "select_n" and isinstance(given[0], _Sign):
            sign, *cases = given
            low, high = (_multiple(part, sign.of) for part in cases)
            return self.activated(sign.of, *((low, high) if sign.positive else (high, low)))
        if name == "max":
            moving = (part for part in given if isinstance(part, _Affine) and not _is_zero(part))
            of = max(moving, key=lambda part: abs(part.factor))
            factors = [_multiple(part, of) for part in given]
            return self.activated(of, min(factors), max(factors))
        return None

    def activated(self, before: _Affine, low: float, high: float) -> _Affine:
        """``high h`` where ``h`` is positive, ``low h`` where it is negative: a new layer."""
        if not (high > 0 and 0 <= low <= high):
            raise _unreadable(f"an activation of slope {low} below zero and {high} above")
        self.slopes.append(low / high)
        self.end_layer(before)
        shape = before.const.shape
        size = before.const.size
        unit = high * jnp.eye(size, dtype=before.const.dtype).reshape(size, *shape)
        return _Affine({len(self.weights): unit}, jnp.zeros(shape, before.const.dtype))

    def end_layer(self, value: _Affine) -> None:
        """Keep the weights that lead from the last activations to a value."""
        last = len(self.weights)
        if set(value.linear) != {last}:
            raise _unreadable("a connection that skips or splits layers")
        self.weights.append(value.linear[last].reshape(-1, value.const.size).T)
        self.biases.append(value.const.reshape(-1))

    def layers(self, output: Any, num_inputs: int) -> Layers:
        """The layers, once the output is known."""
        if not self.slopes:
            raise ValueError(
                "network must have a hidden layer with a leaky ReLU, got an affine map; it is its "
                "own linearization"
            )
        slope = self.slopes[0]
        if not np.allclose(self.slopes, slope, rtol=1e-6, atol=0):
            raise _unreadable(f"layers with different negative slopes {sorted(set(self.slopes))}")
        rest = dict(output.linear)
        around = rest.pop(0, None)
        if around is not None and not (
            around.shape == (num_inputs, num_inputs)
            and is_concrete(around)
            and np.array_equal(around, np.eye(num_inputs))
        ):
            raise _unreadable("a skip connection that is not the input itself")
        self.end_layer(dataclasses.replace(output, linear=rest))
        return self.weights, self.biases, slope, around is not None


def _evaluated(eqn: Any, operands: list[Any]) -> list[Any]:
    results = eqn.primitive.bind(*operands, **eqn.params)
    return list(results) if eqn.primitive.multiple_results else [results]


def _mapped(eqn: Any, given: list[Any]) -> list[Any]:
    """An operation that is affine in what depends on the input, of whose parts it maps tangents."""
    name = eqn.primitive.name
    places = [place for place, part in enumerate(given) if isinstance(part, _Affine)]
    is_float = jnp.issubdtype(eqn.params.get("new_dtype", jnp.float32), jnp.floating)
    is_affine = name in _LINEAR or (
        len(places) == 1 and (name in _BILINEAR or (name == "div" and places == [0]))
    )
    if not (is_float and is_affine) or any(isinstance(part, _Sign) for part in given):
        raise _unreadable(f"the operation {name} of values that depend on the input")

    def act(*moving: Any) -> list[Any]:
        operands = dict(enumerate(given)) | dict(zip(places, moving, strict=True))
        return _evaluated(eqn, list(operands.values()))

    moving = [given[place] for place in places]
    at = tuple(part.const for part in moving)
    results = [_Affine({}, const) for const in act(*at)]
    for stage in sorted({stage for part in moving for stage in part.linear}):
        tangents = [part.linear.get(stage, jnp.zeros_like(part.const)) for part in moving]
        axes = [0 if stage in part.linear else None for part in moving]
        moved = jax.vmap(lambda *along: jax.jvp(act, at, along)[1], axes)(*tangents)
        for result, part in zip(results, moved, strict=True):
            result.linear[stage] = part
    factor = _scaling(eqn, given)
    if factor is not None:
        results[0].source = moving[0].root
        results[0].factor = moving[0].factor * factor
    return results


def _scaling(eqn: Any, given: list[Any]) -> float | None:
    """By what number an operation multiplies every entry of a value, None if it does not."""
    name = eqn.primitive.name
    if name in {"convert_element_type", "copy", "copy_p"}:
        return 1.0
    if name == "neg":
        return -1.0
    if name not in {"mul", "div"}:
        return None
    (other,) = (part for part in given if not isinstance(part, _Affine))
    if not is_concrete(other) or np.ptp(np.asarray(other)) != 0 or not np.any(other):
        return None
    number = float(np.asarray(other).flat[0])
    return number if name == "mul" else 1 / number


def _multiple(part: Any, of: _Affine) -> float:
    """By how much one side of an activation multiplies the value before it."""
    if isinstance(part, _Affine) and part.root is of.root:
        return part.factor / of.factor
    if _is_zero(part):
        return 0.0
    raise _unreadable("an activation other than a leaky ReLU with one fixed slope")


def _is_zero(part: Any) -> bool:
    """Whether a value is known to be zero, also as a multiple of what depends on the input."""
    parts = [part.const, *part.linear.values()] if isinstance(part, _Affine) else [part]
    is_known = not isinstance(part, _Sign) and is_concrete(parts)
    return is_known and not any(np.any(number) for number in parts)


def _unreadable(what: str) -> ValueError:
    return ValueError(
        f"network must be affine maps with one leaky ReLU between them, got {what}; {_REMEDY}"
    )
