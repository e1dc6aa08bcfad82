"""Values of outputs as arguments of `log_prob` and `condition`, checked."""

from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike
from numpyro.distributions import constraints

from nn_uq_dist.basics import _checks
from nn_uq_dist.basics._known_values import evaluated_now


def fitting_value(value: ArrayLike, shape: tuple[int, ...]) -> Array:
    """A value that broadcasts against ``batch_shape + event_shape``, or an error."""
    array = jnp.asarray(_checks.as_numeric("value", value))
    if array.shape[-1:] != shape[-1:]:
        raise ValueError(
            f"value must have shape (..., {shape[-1]}), one entry per output, got shape "
            f"{array.shape}; for some outputs use marginalize(indices)"
        )
    try:
        jnp.broadcast_shapes(array.shape, shape)
    except ValueError as error:
        raise ValueError(
            f"value must broadcast against batch_shape + event_shape {shape}, got shape "
            f"{array.shape}; insert axes of size 1 in front of the last one"
        ) from error
    return array


def split_outputs(
    indices: int | Sequence[int], num_outputs: int
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Known outputs in the order given, and the others in ascending order."""
    observed = _checks.as_indices(indices, num_outputs)
    remaining = tuple(index for index in range(num_outputs) if index not in observed)
    if not remaining:
        raise ValueError(
            f"indices must leave an output to describe, got all {num_outputs}; "
            f"use log_prob for the density of all outputs"
        )
    return observed, remaining


def observed_values(
    values: ArrayLike,
    observed: tuple[int, ...],
    support: constraints.Constraint,
    batch_shape: tuple[int, ...],
) -> Array:
    """Values of known outputs, checked.

    Parameters
    ----------
    values : array_like, shape (..., len(observed))
        For one output a single number suffices.
    observed : tuple of int
        Which outputs are known, for error messages.
    support : constraint
        Support of each known output.
    batch_shape : tuple of int
        Batch shape of the joint law, against which the leading axes broadcast.
    """
    values = _checks.as_numeric("values", values)
    shape, count = jnp.shape(values), len(observed)
    if shape == () and count == 1:
        values, shape = jnp.asarray(values)[None], (1,)
    if shape[-1:] != (count,):
        raise ValueError(
            f"values must have shape (..., {count}), one per index, got shape {shape} for "
            f"indices {observed}; pass as many values as indices"
        )
    _checks.broadcast_shapes(
        "the leading axes of values must broadcast against batch_shape",
        values=shape[:-1],
        batch_shape=batch_shape,
    )
    if _checks.is_concrete(values, support):
        # In a model under `jit` known values would otherwise become traced.
        with evaluated_now():
            inside = np.asarray(support(jnp.asarray(values)))
        if not inside.all():
            *_, position = where = _checks.first_index(~inside)
            value = np.broadcast_to(values, inside.shape)[where]
            raise ValueError(
                f"values must lie within the support of their outputs, got {value} for output "
                f"{observed[position]}; that output cannot take it: see support"
            )
    return jnp.asarray(values)
