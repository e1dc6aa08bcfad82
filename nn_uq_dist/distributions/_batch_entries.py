"""Entries of a batch of distributions, made anew from the arguments of their constructors.

Every distribution of ours keeps these arguments, and so do most of NumPyro's. Others that are
univariate are made from the leaves of their pytree.
"""

import inspect
import math
from functools import cache, partial
from typing import Any

import jax
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


def _parts(distribution: dist.Distribution) -> dict[str, Any]:
    """Arguments of the constructor by name, or the fields of the pytree, where it keeps none.

    Transformed distributions and mixtures of NumPyro keep none.
    """
    kind: Any = type(distribution)
    kept = distribution.__dict__
    names = constructor_arguments(kind)
    if not all(name in kept for name in names):
        names = kind.gather_pytree_data_fields()
    return {name: kept.get(name) for name in names}


def _axes_behind(distribution: dist.Distribution, name: str, part: Any) -> int | None:
    """Number of axes of a part behind those of the batch; None for what has no axes.

    What is no parameter, such as the numbers of a transform, is taken for one for each output.
    """
    if isinstance(part, dist.Distribution):
        components = name == "_component_distribution"  # of `MixtureSameFamily`
        return max(distribution.event_dim - part.event_dim, 0) + components
    if name in distribution.arg_constraints:
        axes: int = distribution.arg_constraints[name].event_dim
        return axes
    is_array = name in type(distribution).gather_pytree_data_fields()
    return 0 if is_array and not distribution.event_shape else None


def _is_distribution(part: object) -> bool:
    return isinstance(part, dist.Distribution)


def _is_tree(distribution: dist.Distribution, name: str, part: Any) -> bool:
    """Whether a part holds others: it is no distribution and, also as a list, no parameter."""
    return part is None or not (name in distribution.arg_constraints or _is_distribution(part))


def shape_of_parameters(distribution: dist.Distribution) -> tuple[int, ...] | None:
    """The batch shape that follows from the parameters; None where these are no arrays.

    JAX also makes distributions of axis numbers, and of objects without a shape.
    """
    if isinstance(distribution, dist.ExpandedDistribution):
        return distribution.batch_shape
    shapes = []
    for name, tree in _parts(distribution).items():
        inner = _is_tree(distribution, name, tree)
        for part in jax.tree.leaves(tree, is_leaf=_is_distribution) if inner else (tree,):
            axes = _axes_behind(distribution, name, part)
            if axes is None:
                return distribution.batch_shape
            if isinstance(part, dist.Distribution):
                shape: Any = part.batch_shape
            else:
                shape = () if isinstance(part, int | float) else getattr(part, "shape", None)
            if not isinstance(shape, tuple) or len(shape) < axes:
                return None
            shapes.append(shape[: len(shape) - axes])
    try:
        return jnp.broadcast_shapes(*shapes)
    except ValueError:  # of parts of NumPyro with axes elsewhere than in front
        return None


def drop_lost_axes(distribution: dist.Distribution) -> None:
    """Take from a distribution of NumPyro those batch axes that its parameters have lost.

    NumPyro keeps the batch shape in a private attribute, and has no way to set it.
    """
    for tree in _parts(distribution).values():
        for part in tree if isinstance(tree, list) else [tree]:
            if _is_distribution(part):
                drop_lost_axes(part)
    shape = shape_of_parameters(distribution)
    if shape is not None and len(shape) < len(distribution.batch_shape):
        distribution._batch_shape = shape  # noqa: SLF001


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
        If there is no batch, the index is traced, or the distribution is multivariate and does not
        keep the arguments of its constructor, from which it is made anew.

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
        If the distribution is multivariate and does not keep the arguments of its constructor, or
        has arrays that `arg_constraints` does not name.
    """
    if isinstance(distribution, dist.ExpandedDistribution):
        return _with_entries(distribution.base_dist, batch_shape, places, extra)
    kind: Any = type(distribution)
    is_made = all(name in distribution.__dict__ for name in constructor_arguments(kind))
    behind = distribution.batch_shape[len(distribution.batch_shape) - extra :]

    def entries_of(name: str, part: Any) -> Any:
        axes = _axes_behind(distribution, name, part)
        if axes is None:
            if np.ndim(part):
                raise _unknown_axes(kind, name)
            return part
        if isinstance(part, dist.Distribution):
            found = _with_entries(part, batch_shape, places, extra + axes)
            # Draws of what wraps one other distribution have the shape of those of the other.
            wraps = not is_made and part.batch_shape == distribution.batch_shape
            return found.expand((*places.shape, *behind)) if wraps else found
        return _take_entries(part, jnp.ndim(part) - axes - extra, batch_shape, places)

    if not is_made and distribution.event_shape:
        raise _unknown_axes(kind, ", ".join(constructor_arguments(kind)))
    parts = {
        name: jax.tree.map(partial(entries_of, name), tree, is_leaf=_is_distribution)
        if _is_tree(distribution, name, tree)
        else entries_of(name, tree)
        for name, tree in _parts(distribution).items()
    }
    if is_made:
        return made(kind, parts)
    static = distribution.tree_flatten()[1]
    found: dist.Distribution = kind.tree_unflatten(static, tuple(parts.values()))
    found._batch_shape = (*places.shape, *behind)  # noqa: SLF001 (NumPyro has no way to set it)
    return found


def _unknown_axes(kind: type, name: str) -> TypeError:
    return TypeError(
        "entries of a batch can be taken of distributions that are univariate or keep the "
        f"arguments of their constructor, got {kind.__name__} with {name}; make it for the wanted "
        "entries, or define its method __getitem__"
    )


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
