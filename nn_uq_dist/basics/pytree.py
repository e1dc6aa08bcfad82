"""Frozen dataclasses as pytrees with leaves in a fixed order, and entries of a batch of them."""

import dataclasses
import math
from collections.abc import Iterable
from typing import Any

import jax
import numpy as np
from numpyro.distributions import Distribution

from nn_uq_dist.basics.checks import is_concrete


def register_frozen[T](cls: type[T]) -> type[T]:
    """Register a frozen dataclass; its fields are pytree children unless marked as static.

    A field ``dataclasses.field(metadata={"static": True})`` is kept in the structure of the pytree:
    it must be hashable and is never traced. A private field ``_x`` has the key path ``.x``, that of
    the public attribute by which users know it. The leaves of NumPyro distributions among the
    children come in a fixed order, see `in_order`.

    Rebuilding an instance from its children skips ``__init__`` and ``__post_init__``: JAX rebuilds
    with tracers, axis numbers and placeholder objects, and none of these may be validated or
    converted. This is why `jax.tree_util.register_dataclass`, which calls the constructor, is not
    used here.
    """
    static: list[str] = []
    names: list[str] = []
    for field in dataclasses.fields(cls):  # type: ignore[arg-type]
        (static if field.metadata.get("static") else names).append(field.name)
    keys = [jax.tree_util.GetAttrKey(name.removeprefix("_")) for name in names]

    def flatten(instance: T) -> tuple[list[Any], tuple[Any, ...]]:
        children = [getattr(instance, name) for name in names]
        children = [part if isinstance(part, jax.Array) else in_order(part) for part in children]
        return children, tuple([getattr(instance, name) for name in static])

    def flatten_with_keys(instance: T) -> tuple[list[tuple[Any, Any]], tuple[Any, ...]]:
        children, constants = flatten(instance)
        return list(zip(keys, children, strict=True)), constants

    def unflatten(constants: tuple[Any, ...], children: Iterable[Any]) -> T:
        instance = object.__new__(cls)
        for name, value in zip((*names, *static), (*children, *constants), strict=True):
            object.__setattr__(instance, name, value)
        return instance

    jax.tree_util.register_pytree_with_keys(cls, flatten_with_keys, unflatten, flatten)
    return cls


class _InOrder:
    """A distribution as a node of a pytree with its children by name, sorted."""

    def __init__(self, distribution: Distribution) -> None:
        self.distribution = distribution

    @staticmethod
    def flatten(node: "_InOrder") -> tuple[list[tuple[Any, Any]], Any]:
        """Return the children, with their names as keys, and what makes a distribution of them."""
        kind = type(node.distribution)
        children, static = node.distribution.tree_flatten()
        by_name = dict(zip(kind.gather_pytree_data_fields(), children, strict=True))
        constants = sorted(zip(kind.gather_pytree_aux_fields(), static, strict=True))
        keyed = [(jax.tree_util.GetAttrKey(n), in_order(by_name[n])) for n in sorted(by_name)]
        return keyed, (kind, tuple(constants))

    @staticmethod
    def unflatten(structure: Any, children: Iterable[Any]) -> Any:
        """Return the distribution itself, from its children in the order of their names."""
        kind, static = structure
        names, of_name = kind.gather_pytree_data_fields(), dict(static)
        by_name = dict(zip(sorted(names), children, strict=True))
        constants = tuple([of_name[name] for name in kind.gather_pytree_aux_fields()])
        return kind.tree_unflatten(constants, tuple([by_name[name] for name in names]))


jax.tree_util.register_pytree_with_keys(_InOrder, _InOrder.flatten, _InOrder.unflatten)


def in_order(child: Any) -> Any:
    """Return a child of a pytree such that its leaves have the same order in every process.

    NumPyro collects the names of the fields of a distribution in a set, whose order depends on
    PYTHONHASHSEED: arrays saved by their place would be loaded as others. Here they are sorted by
    name, in distributions within distributions and in lists of these as well.
    """
    # Those that flatten themselves, as ours do, have an order of their own.
    if isinstance(child, Distribution) and type(child).tree_flatten is Distribution.tree_flatten:
        return _InOrder(child)
    if type(child) in {list, tuple}:
        return type(child)(in_order(part) for part in child)
    return child


def positions(batch_shape: tuple[int, ...], index: Any) -> np.ndarray:
    """Where in the flattened batch the entries at an index are, in the shape of the result.

    Parameters
    ----------
    batch_shape
        Shape of the batch.
    index
        Integers, slices, masks, arrays of integers and tuples of these, as for NumPy arrays.

    Raises
    ------
    IndexError
        If the index does not fit the batch.
    TypeError
        If there is no batch, or the index is traced.
    """
    if not is_concrete(index):
        raise TypeError(
            "the index of a batch must be known, got a traced one; use jax.vmap, or index the "
            "arrays of the result"
        )
    if not batch_shape:
        # Not an `IndexError`, which would end a `for` loop over the object without a word.
        raise TypeError(
            f"the index of a batch needs batch axes, got {index!r} for batch shape (); linearize "
            f"at several means at once, or leave the index out"
        )
    index = jax.tree.map(
        lambda leaf: np.asarray(leaf) if isinstance(leaf, jax.Array) else leaf, index
    )
    numbers = np.arange(math.prod(batch_shape)).reshape(batch_shape)
    try:
        return np.asarray(numbers[index])
    except IndexError as error:
        if isinstance(index, str):
            raise TypeError(
                f"the index must be a number, a slice or an array, got {index!r}; the position of "
                f"an output is output_names.index({index!r}) of the linearization"
            ) from error
        raise IndexError(f"the index must fit the batch shape {batch_shape}: {error}") from error


def entries[T](tree: T, batch_shape: tuple[int, ...], index: Any) -> T:
    """The same pytree with the entries at this index, if each leaf leads with the batch axes."""
    where = positions(batch_shape, index)
    rank = len(batch_shape)

    entry: T = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[rank:])[where], tree)
    return entry
