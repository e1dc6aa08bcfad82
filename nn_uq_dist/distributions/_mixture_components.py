"""Components of a mixture: broadcast with their probabilities, and selections of them."""

import inspect
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax import Array
from jax.typing import ArrayLike
from numpyro.distributions.util import promote_shapes

from nn_uq_dist.basics._checks import as_numeric, broadcast_shapes
from nn_uq_dist.basics._row_algebra import namespace
from nn_uq_dist.laws._choose_outputs import with_rank

type Change = Callable[[ArrayLike, int], ArrayLike]


def with_parameters(
    law: dist.Distribution, batch_shape: tuple[int, ...], change: Change
) -> dist.Distribution:
    """Return a law of the same kind with other parameters.

    Parameters
    ----------
    law : numpyro.distributions.Distribution
        A law that keeps the arguments of its constructor as attributes.
    batch_shape : tuple of int
        Shape to which its parameters are broadcast first.
    change : callable
        Maps a parameter and the number of its axes after the batch axes to the new parameter.

    Raises
    ------
    TypeError
        If the law does not keep an argument.
    """
    if isinstance(law, dist.ExpandedDistribution):
        return with_parameters(law.base_dist, batch_shape, change)
    arguments: dict[str, Any] = {}
    for name in inspect.signature(type(law).__init__).parameters:
        if name in ("self", "validate_args"):
            continue
        if name not in law.__dict__:
            raise TypeError(
                f"components must keep the arguments of their constructor to be chosen from, got "
                f"{type(law).__name__} without {name}; pass a LinearizedMarginal or a NumPyro "
                "distribution that has them as attributes"
            )
        argument = law.__dict__[name]
        if name == "normal_scale" and not law.__dict__.get("_has_normal_part", True):
            argument = None  # a zero would make the support the real line
        if isinstance(argument, dist.Distribution):
            argument = with_parameters(argument, batch_shape, change)
        elif argument is not None and name in law.arg_constraints:
            event_dim = law.arg_constraints[name].event_dim
            event_shape = jnp.shape(argument)[jnp.ndim(argument) - event_dim :]
            xp = namespace(argument)
            wide = xp.broadcast_to(xp.asarray(argument), (*batch_shape, *event_shape))
            argument = change(wide, event_dim)
        arguments[name] = argument
    return type(law)(**arguments, validate_args=False)


def take_rows(
    law: dist.Distribution, batch_shape: tuple[int, ...], indices: tuple[int, ...]
) -> dist.Distribution:
    """The entries ``indices`` of the last batch axis but one."""

    def rows(argument: ArrayLike, event_dim: int) -> ArrayLike:
        axis = jnp.ndim(argument) - event_dim - 2
        return namespace(argument).take(argument, np.asarray(indices), axis=axis)

    return with_parameters(law, batch_shape, rows)


def take_components(
    law: dist.Distribution, batch_shape: tuple[int, ...], start: int, stop: int
) -> dist.Distribution:
    """The components from ``start`` to ``stop`` along the last batch axis."""

    def part(argument: Any, event_dim: int) -> ArrayLike:
        behind = (slice(None),) * event_dim
        return argument[(..., slice(start, stop), *behind)]

    return with_parameters(law, batch_shape, part)


def take_flat(
    law: dist.Distribution, batch_shape: tuple[int, ...], index: Any
) -> dist.Distribution:
    """All components at ``index`` in the flattened other batch axes, ``(len(index), M)``."""

    def places(argument: Any, event_dim: int) -> ArrayLike:
        event_shape = jnp.shape(argument)[jnp.ndim(argument) - event_dim :]
        return argument.reshape(-1, batch_shape[-1], *event_shape)[index]

    return with_parameters(law, batch_shape, places)


def choose_components(
    law: dist.Distribution, batch_shape: tuple[int, ...], index: Array
) -> dist.Distribution:
    """One component for each entry of ``index``, shape ``(...) + batch_shape[:-1]``."""
    *entries, count = batch_shape

    def chosen(argument: ArrayLike, event_dim: int) -> ArrayLike:
        event_shape = jnp.shape(argument)[jnp.ndim(argument) - event_dim :]
        table = jnp.asarray(argument).reshape(-1, count, *event_shape)
        flat = index.reshape(-1, len(table))
        return table[jnp.arange(len(table)), flat].reshape(*index.shape, *event_shape)

    return with_parameters(law, (*entries, count), chosen)


def fitting_mixture(
    components: dist.Distribution, probabilities: ArrayLike
) -> tuple[Any, Array, tuple[int, ...]]:
    """Components and probabilities of equal rank, and their batch shape with the last axis."""
    probabilities = as_numeric("probabilities", probabilities)
    batch_shape, given = components.batch_shape, jnp.shape(probabilities)
    if not batch_shape or batch_shape[-1:] != given[-1:]:
        raise ValueError(
            f"components and probabilities must have the same last batch axis, that of the "
            f"components, got batch_shape {batch_shape} and shape {given}; pass a law and a "
            "probability for each component"
        )
    shape = broadcast_shapes(
        "the leading axes of components and probabilities must broadcast",
        components=batch_shape,
        probabilities=given,
    )
    # Axes which `vmap` puts in front stay in front of both.
    (promoted,) = promote_shapes(probabilities, shape=shape)
    return with_rank(components, len(shape)), promoted, shape
