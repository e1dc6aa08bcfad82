"""Entries of a batch of distributions, made anew from the arguments of the constructor."""

import inspect
import math
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax import Array

from nn_uq_dist.basics._pytree import positions

type Change = Callable[[Any, int, int], Any]


def take_matrix(matrix: Array, rows: tuple[int, ...], columns: tuple[int, ...]) -> Array:
    """The block of a matrix ``(..., N, N)`` with these rows and columns."""
    return matrix[..., np.asarray(rows)[:, None], np.asarray(columns)]


def batch_entries(law: dist.Distribution, index: Any) -> dist.Distribution:
    """Return the distributions at an index of the batch; for those of this library ``law[index]``.

    Parameters
    ----------
    law : numpyro.distributions.Distribution
        With batch axes.
    index
        Integers, slices, masks and arrays of integers, as for a NumPy array of shape
        ``batch_shape``. Parameters that entries share stay shared.

    Raises
    ------
    IndexError
        If the index does not fit the batch shape.
    TypeError
        If there is no batch, the index is traced, or the distribution does not keep the arguments
        of its constructor, from which it is made anew.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> import numpyro.distributions as dist
    >>> import nn_uq_dist as nuq
    >>> laws = dist.Normal(jnp.array([1.0, 2.0, 3.0]), 1.0)
    >>> print(nuq.laws.batch_entries(laws, [2, 0]).mean)
    [3. 1.]
    """
    own: Any = getattr(type(law), "__getitem__", None)
    return rebuilt_entries(law, index) if own is None else law[index]


def rebuilt_entries(law: dist.Distribution, index: Any) -> dist.Distribution:
    """The same, made anew from the arguments of the constructor."""
    places = positions(law.batch_shape, index)
    part = with_parameters(
        law, lambda argument, lead, _: take_entries(argument, lead, law.batch_shape, places)
    )
    return part if part.batch_shape == places.shape else part.expand(places.shape)


def with_parameters(law: dist.Distribution, change: Change) -> dist.Distribution:
    """Return a distribution of the same kind with other parameters.

    Parameters
    ----------
    law : numpyro.distributions.Distribution
        A distribution that keeps the arguments of its constructor as attributes.
    change : callable
        Maps a parameter, the number of its axes in front of the event axes, and the number of the
        event axes to the new parameter.

    Raises
    ------
    TypeError
        If the distribution does not keep an argument.
    """
    if isinstance(law, dist.ExpandedDistribution):
        return with_parameters(law.base_dist, change)
    arguments: dict[str, Any] = {}
    for name in constructor_arguments(type(law)):
        if name not in law.__dict__:
            raise TypeError(
                f"entries of a batch can be taken of distributions that keep the arguments of "
                f"their constructor, got {type(law).__name__} without {name}; make it for the "
                f"wanted entries, or define its method __getitem__"
            )
        argument = law.__dict__[name]
        if isinstance(argument, dist.Distribution):
            # Its batch axes beyond those of the law, such as those of components, come last.
            extra = max(len(argument.batch_shape) - len(law.batch_shape), 0)

            def inner(value: Any, lead: int, event_dim: int, extra: int = extra) -> Any:
                return change(value, lead - extra, event_dim + extra)

            argument = with_parameters(argument, inner)
        elif argument is not None and name in law.arg_constraints:
            event_dim = law.arg_constraints[name].event_dim
            argument = change(argument, jnp.ndim(argument) - event_dim, event_dim)
        arguments[name] = argument
    return made(type(law), arguments)


def constructor_arguments(kind: type[dist.Distribution]) -> list[str]:
    """Names of the arguments of the constructor, which laws keep as attributes."""
    names = inspect.signature(kind.__init__).parameters
    return [name for name in names if name not in {"self", "validate_args"}]


def made[D: dist.Distribution](kind: type[D], arguments: dict[str, Any]) -> D:
    """A law with valid arguments, which are not checked again."""
    checks = "validate_args" in inspect.signature(kind.__init__).parameters
    return kind(**arguments, validate_args=False) if checks else kind(**arguments)


def take_entries(argument: Any, lead: int, batch_shape: tuple[int, ...], places: np.ndarray) -> Any:
    """Entries of a parameter whose first axes broadcast against the batch axes.

    Parameters
    ----------
    argument : array_like
        The parameter.
    lead : int
        Number of its axes in front of the event axes.
    batch_shape : tuple of int
        Shape of the batch.
    places : numpy.ndarray of int
        Where the entries are in the flattened batch, in the shape of the result.
    """
    if lead <= 0:
        return argument  # one value for all entries
    shape = jnp.shape(argument)
    rows = np.arange(math.prod(shape[:lead])).reshape(shape[:lead])
    chosen = np.broadcast_to(rows, batch_shape).reshape(-1)[places]
    for axis in range(chosen.ndim):
        start = np.arange(min(chosen.shape[axis], 1))
        first = chosen.take(start, axis)
        # What entries share stays shared; entries that an index repeats are entries of their own.
        if np.all(chosen == first) and not np.all(places == places.take(start, axis)):
            chosen = first
    table = argument.reshape(-1, *shape[lead:])
    # Python's indexing of JAX's arrays takes several times longer.
    return (
        table[chosen] if isinstance(table, np.ndarray) else jnp.take(table, chosen, 0, mode="clip")
    )
