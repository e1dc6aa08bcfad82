"""Values of outputs as arguments of `log_prob` and `condition`, checked."""

from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax import Array
from jax.typing import ArrayLike

from nn_uq_dist.basics import checks
from nn_uq_dist.basics.concrete import evaluated_now, nan_unless
from nn_uq_dist.distributions._batch_entries import batch_entries
from nn_uq_dist.distributions._contract_joint import JointDistribution


def fitting_value(value: ArrayLike, shape: tuple[int, ...]) -> Array:
    """A value that broadcasts against ``batch_shape + event_shape``, or an error."""
    array = jnp.asarray(checks.as_numeric("value", value))
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


def observed_outputs(
    distribution: JointDistribution, indices: int | Sequence[int], values: ArrayLike
) -> tuple[tuple[int, ...], tuple[int, ...], dist.Distribution, Array]:
    """Known outputs of a joint distribution in the order given, the others in ascending order.

    Parameters
    ----------
    distribution : JointDistribution
        Its batch shape is what the leading axes of the values broadcast against.
    indices : int or sequence of int
        Which outputs are known.
    values : array_like, shape (..., len(indices))
        Their values, which are checked. For one output a single number suffices.

    Returns
    -------
    observed, remaining : tuple of int
    marginals : numpyro.distributions.Distribution
        Of the known outputs.
    values : Array
    """
    num_outputs = distribution.event_shape[0]
    observed = checks.as_indices(indices, num_outputs)
    remaining = tuple(index for index in range(num_outputs) if index not in observed)
    if not remaining:
        raise ValueError(
            f"indices must leave an output to describe, got all {num_outputs}; "
            f"use log_prob for the density of all outputs"
        )
    marginals = batch_entries(distribution.marginals, (..., observed))
    values = checks.as_numeric("values", values)
    shape, count = jnp.shape(values), len(observed)
    if shape == () and count == 1:
        values, shape = jnp.asarray(values)[None], (1,)
    if shape[-1:] != (count,):
        raise ValueError(
            f"values must have shape (..., {count}), one per index, got shape {shape} for "
            f"indices {observed}; pass as many values as indices"
        )
    checks.broadcast_shapes(
        "the leading axes of values must broadcast against batch_shape",
        values=shape[:-1],
        batch_shape=distribution.batch_shape,
    )
    support = marginals.support
    if checks.is_concrete(values, support):
        # In a model under `jit` known values would otherwise become traced.
        with evaluated_now():
            inside = np.asarray(support(jnp.asarray(values)))
        why = "; that output cannot take it: see support"
        refuse_values(~inside, values, observed, "within", why)
    else:
        values = nan_unless(support(jnp.asarray(values)), jnp.asarray(values))
    return observed, remaining, marginals, jnp.asarray(values)


def refuse_values(
    bad: np.ndarray, values: ArrayLike, observed: tuple[int, ...], place: str, why: str
) -> None:
    """Raise ``ValueError`` for the first bad value of known outputs."""
    if bad.any():
        *_, position = where = checks.first_index(bad)
        value = np.broadcast_to(values, bad.shape)[where]
        raise ValueError(
            f"values must lie {place} the support of their outputs, got {value} for output "
            f"{observed[position]}{why}"
        )
