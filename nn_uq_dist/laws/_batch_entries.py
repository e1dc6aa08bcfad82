"""Entries of a batch of distributions, made anew from the arguments of the constructor."""

import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

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
        If the index is traced, or the distribution does not keep the arguments of its constructor,
        from which it is made anew.

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
    batch_shape = law.batch_shape
    chosen = where(batch_shape, index)
    part = with_parameters(law, lambda argument, lead, _: chosen.of(argument, lead))
    shape = positions(batch_shape, index).shape
    return part if part.batch_shape == shape else part.expand(shape)


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
    for name in inspect.signature(type(law).__init__).parameters:
        if name == "self":
            continue
        if name == "validate_args":
            arguments[name] = False
            continue
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
    return type(law)(**arguments)


class Where(NamedTuple):
    """An index for each batch axis, to be applied one by one, or arrays of integers together."""

    axes: tuple[Any, ...]
    together: bool

    def of(self, argument: Any, lead: int) -> Any:
        """Entries of a parameter whose first axes broadcast against the batch axes."""
        if lead <= 0:
            return argument  # one value for all entries
        shape = jnp.shape(argument)
        axes = list(self.axes[len(self.axes) - lead :])
        for k, part in enumerate(axes):
            if shape[k] == 1:
                axes[k] = part * 0 if self.together or isinstance(part, int) else slice(None)
        if self.together:
            return argument[tuple(axes)]
        for k in reversed(range(lead)):
            argument = argument[(slice(None),) * k + (axes[k],)]
        return argument


def where(batch_shape: tuple[int, ...], index: Any) -> Where:
    """The index as one for each batch axis; an error if it does not fit."""
    places = positions(batch_shape, index)  # raises if the index does not fit
    parts = list(index) if isinstance(index, tuple) else [index]
    gaps = [k for k, part in enumerate(parts) if part is Ellipsis]
    missing = len(batch_shape) - len(parts) + len(gaps)
    if len(gaps) == 1:
        parts[gaps[0] : gaps[0] + 1] = [slice(None)] * missing
    else:
        parts += [slice(None)] * missing
    axes = [_of_axis(part) for part in parts]
    lists = sum(isinstance(part, np.ndarray) for part in axes)
    if lists > 1 or any(part is None for part in axes):
        return Where(np.unravel_index(places, batch_shape), together=True)
    return Where(tuple(axes), together=False)


def _of_axis(part: Any) -> Any:
    """An index of one axis, or None if it is of another kind."""
    if isinstance(part, slice):
        return part
    array = np.asarray(part)
    if array.dtype.kind not in "iu" or array.ndim > 1:
        return None
    return int(array) if array.ndim == 0 else array
