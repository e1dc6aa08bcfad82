"""Entries of a batch: the part of a pytree at an index of its batch axes."""

import math
from typing import Any

import jax
import numpy as np


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
        If there is no batch, or the index does not fit it.
    TypeError
        If the index is traced.
    """
    if any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(index)):
        raise TypeError(
            "the index of a batch must be known, got a traced one; use jax.vmap, or index the "
            "arrays of the result"
        )
    if not batch_shape:
        raise IndexError(
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
        raise IndexError(f"the index must fit the batch shape {batch_shape}: {error}") from error


def _in_numpy(leaf: Any) -> Any:
    return np.asarray(leaf) if isinstance(leaf, jax.Array) else leaf


def entries[T](tree: T, batch_shape: tuple[int, ...], index: Any) -> T:
    """The same pytree with the entries at this index, if each leaf leads with the batch axes."""
    where = positions(batch_shape, index)
    rank = len(batch_shape)

    def part(leaf: Any) -> Any:
        return leaf.reshape(-1, *leaf.shape[rank:])[where]

    found: T = jax.tree.map(part, tree)
    return found
