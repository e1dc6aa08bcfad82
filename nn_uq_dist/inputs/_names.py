"""Names of the numbers in what a network takes or returns: from the keys of dicts and of trees."""

import math
from typing import Any

import jax
import numpy as np


def names_of_leaves(tree: Any, letter: str) -> list[str]:
    """A name for each leaf: its keys joined by dots, indices in brackets; `letter` without keys."""
    return [_name(path, letter) for path, _ in jax.tree_util.tree_flatten_with_path(tree)[0]]


def names_of_entries(name: str, shape: tuple[int, ...], size: int | None = None) -> list[str]:
    """A name for each number of an array, last axis fastest; by position if it has another size."""
    if shape == () and size in {None, 1}:
        return [name]
    if size is not None and math.prod(shape) != size:
        shape = (size,)
    return [f"{name}[{','.join(map(str, at))}]" for at in np.ndindex(*shape)]


def _name(path: tuple[Any, ...], letter: str) -> str:
    text = ""
    for key in path:
        if isinstance(key, jax.tree_util.SequenceKey | jax.tree_util.FlattenedIndexKey):
            number = getattr(key, "idx", getattr(key, "key", None))
            text = f"{text or letter}[{number}]"
        else:
            own = str(getattr(key, "name", getattr(key, "key", key)))
            text = f"{text}.{own}" if text else own
    return text or letter
