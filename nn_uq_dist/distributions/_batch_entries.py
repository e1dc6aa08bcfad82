"""Entries of a batch of distributions, made anew from the arguments of their constructors.

Every distribution of ours keeps these arguments, and so do most of NumPyro's.
"""

import inspect
import math
from functools import cache
from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

from nn_uq_dist.basics.pytree import positions


@cache
def constructor_arguments(kind: Any) -> tuple[str, ...]:
    """Names of the arguments of the constructor, which distributions keep as attributes."""
    names = inspect.signature(kind.__init__).parameters
    return tuple(name for name in names if name not in {"self", "validate_args"})


def made[D: dist.Distribution](kind: type[D], arguments: dict[str, Any]) -> D:
    """A distribution with valid arguments, which are not checked again."""
    checks = "validate_args" in inspect.signature(kind.__init__).parameters
    return kind(**arguments, validate_args=False) if checks else kind(**arguments)


def shape_of_parameters(distribution: dist.Distribution) -> tuple[int, ...] | None:
    """The batch shape that follows from the parameters; None where these are no arrays.

    JAX also makes distributions of axis numbers, and of objects without a shape.
    """
    kind: Any = type(distribution)
    shapes = []
    for name in constructor_arguments(kind):
        argument, event_dim = distribution.__dict__.get(name, name), len(distribution.event_shape)
        if argument is None:
            continue
        if isinstance(argument, dist.Distribution):
            shape: Any = argument.batch_shape
        elif name in distribution.arg_constraints:
            shape = () if isinstance(argument, int | float) else getattr(argument, "shape", None)
            event_dim = distribution.arg_constraints[name].event_dim
        else:
            return distribution.batch_shape
        if not isinstance(shape, tuple) or len(shape) < event_dim:
            return None
        shapes.append(shape[: len(shape) - event_dim])
    try:
        return jnp.broadcast_shapes(*shapes)
    except ValueError:  # of parts of NumPyro with axes elsewhere than in front
        return None


def batch_entries(distribution: dist.Distribution, index: Any) -> dist.Distribution:
    """Return the distributions at an index of the batch; ``distribution[index]`` for our own.

    Parameters
    ----------
    distribution : numpyro.distributions.Distribution
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
    >>> distributions = dist.Normal(jnp.array([1.0, 2.0, 3.0]), 1.0)
    >>> print(nuq.distributions.batch_entries(distributions, [2, 0]).mean)
    [3. 1.]
    """
    own: Any = getattr(type(distribution), "__getitem__", None)
    return rebuilt_entries(distribution, index) if own is None else distribution[index]


def rebuilt_entries(distribution: dist.Distribution, index: Any) -> dist.Distribution:
    """The same, made anew from the arguments of the constructor."""
    places = positions(distribution.batch_shape, index)
    part = _with_entries(distribution, distribution.batch_shape, places)
    return part.expand(places.shape)


def _with_entries(
    distribution: dist.Distribution,
    batch_shape: tuple[int, ...],
    places: np.ndarray,
    extra: int = 0,
) -> dist.Distribution:
    """A distribution of the same kind with entries of its parameters, as for `_take_entries`.

    Parameters
    ----------
    extra : int
        Number of the batch axes of `distribution` behind `batch_shape`.

    Raises
    ------
    TypeError
        If the distribution does not keep an argument of its constructor as an attribute.
    """
    if isinstance(distribution, dist.ExpandedDistribution):
        return _with_entries(distribution.base_dist, batch_shape, places, extra)
    arguments: dict[str, Any] = {}
    kind: Any = type(distribution)
    for name in constructor_arguments(kind):
        if name not in distribution.__dict__:
            raise TypeError(
                f"entries of a batch can be taken of distributions that keep the arguments of "
                f"their constructor, got {kind.__name__} without {name}; make it for "
                "the wanted entries, or define its method __getitem__"
            )
        argument = distribution.__dict__[name]
        if isinstance(argument, dist.Distribution):
            # Its batch axes beyond those of the distribution, such as the outputs', come last.
            more = max(len(argument.batch_shape) - len(distribution.batch_shape), 0)
            argument = _with_entries(argument, batch_shape, places, extra + more)
        elif argument is not None and name in distribution.arg_constraints:
            lead = jnp.ndim(argument) - distribution.arg_constraints[name].event_dim - extra
            argument = _take_entries(argument, lead, batch_shape, places)
        arguments[name] = argument
    return made(kind, arguments)


def _take_entries(
    argument: Any, lead: int, batch_shape: tuple[int, ...], places: np.ndarray
) -> Any:
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
    if isinstance(table, np.ndarray):
        return table[chosen]
    # Python's indexing of JAX's arrays takes several times longer. An empty table is taken as it
    # is, whatever the index.
    return jnp.take(table, chosen, 0, mode="clip").reshape(*chosen.shape, *shape[lead:])
