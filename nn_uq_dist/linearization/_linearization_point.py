"""Where a network is linearized: at a point other than the mean, or by least squares."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.typing import ArrayLike

from nn_uq_dist.basics import _checks
from nn_uq_dist.basics._compiled_once import compiled_once
from nn_uq_dist.inputs import AbstractInputLaw, MappedInput
from nn_uq_dist.inputs._flat_network import FlatNetwork
from nn_uq_dist.linearization._linearized_network import Linearization

_DRAWS_PER_INPUT = 10


def as_point(at: ArrayLike, law: AbstractInputLaw) -> Array:
    """Return the point as an array that broadcasts with the batch of the law."""
    at = _checks.as_numeric("at", at)
    shape = np.shape(at)
    if shape[-1:] != (law.num_inputs,):
        raise ValueError(
            f"at must have shape (..., N_x) with N_x = {law.num_inputs}, got shape {shape}; pass "
            f'a point of the input space, or at="fit"'
        )
    _checks.broadcast_shapes(
        "the leading axes of at must broadcast against the batch shape of f",
        at=shape[:-1],
        f=law.batch_shape,
    )
    _checks.require_finite("at", at)
    return jnp.asarray(at, law.dtype)


def fit_arguments(at: str, key: Any, num_samples: int | None, num_inputs: int) -> tuple[Array, int]:
    """Return the checked key and number of draws of a fit."""
    if at != "fit":
        raise ValueError(f'at must be a point or "fit", got {at!r}')
    if key is None:
        raise TypeError('key must be a JAX random key for at="fit", got None; pass key=...')
    if num_samples is None:
        num_samples = _DRAWS_PER_INPUT * (num_inputs + 1)
    num_samples = _checks.positive_int("num_samples", num_samples)
    if num_samples <= num_inputs:
        raise ValueError(
            f"num_samples must be above the number of inputs, {num_inputs}, got {num_samples}; "
            f"pass several for each input"
        )
    return _checks.as_key("key", key), num_samples


def least_squares(
    network: FlatNetwork, tangent: Linearization, key: Array, num_samples: int
) -> Linearization:
    r"""The linear function with the least mean squared error over random inputs.

    The differences from the tangent are fitted: an exactly linear network gets its own Jacobian,
    not one with noise.
    """
    law = tangent.input
    deviation = law.sample_deviation(key, (num_samples,))
    # In units of the standard deviations: `lstsq` judges the rank by relative size.
    scale = jnp.sqrt(law.variance)
    scale = jnp.where(scale > 0, scale, 1)

    draws = law.loc + deviation
    differences = compiled_once(network.at_draws, draws)(draws) - tangent(draws)

    def fit(x: Array, y: Array) -> Array:
        terms = jnp.concatenate([jnp.ones_like(x[:, :1]), x], axis=1)
        solution: Array = jnp.linalg.lstsq(terms, y)[0]
        return solution

    for _ in law.batch_shape:
        fit = jax.vmap(fit, in_axes=(1, 1))
    solution = fit(deviation / scale, differences)
    jacobian = tangent.jacobian + jnp.swapaxes(solution[..., 1:, :], -1, -2) / scale[..., None, :]
    structure = tangent.output_structure
    return Linearization(
        tangent.loc + solution[..., 0, :], jacobian, law, output_structure=structure
    )


def linearize_each(
    linearize: Callable[..., Linearization],
    network: Callable[[Any], Any],
    law: MappedInput,
    at: ArrayLike | str | None,
    key: Array | None,
    num_samples: int | None,
    batch_size: int | None,
) -> Linearization:
    """Linearize at each element of a batch whose maps to the network's input differ."""
    axes = len(law.batch_shape)
    if at is not None and not isinstance(at, str):
        at = as_point(at, law)
        law = law.expand(jnp.broadcast_shapes(at.shape[:-1], law.batch_shape))
        at = jnp.broadcast_to(at, (*law.batch_shape, law.num_inputs))
        axes = len(law.batch_shape)
    point = at if isinstance(at, jax.Array) else None
    keys = None if key is None else jax.random.split(_checks.as_key("key", key), law.batch_shape)

    def one(law: MappedInput, point: Array | None, key: Array | None) -> Linearization:
        return linearize(
            network, law, at if point is None else point, key=key, num_samples=num_samples
        )

    for _ in range(axes - 1):
        one = jax.vmap(one)
    size = law.batch_shape[0] if batch_size is None else batch_size

    def each(*arguments: Any) -> Linearization:
        found: Linearization = lax.map(lambda at: one(*at), arguments, batch_size=size)
        return found

    found = compiled_once(each, law, point, keys)(law, point, keys)
    remedy = "check the weights of the network and its input"
    _checks.require_finite("network(mean input)", found.loc, remedy)
    _checks.require_finite("the Jacobian of network at the mean input", found.jacobian, remedy)
    return found
