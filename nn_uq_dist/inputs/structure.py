"""Structures whose numbers are joined to one vector, and names of these numbers.

Names come from the keys of dicts and of trees, and from positions in lists and arrays.
"""

import dataclasses
import itertools
import math
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array


@dataclasses.dataclass(frozen=True)
class OutputStructure:
    """Structure of outputs, or of inputs, whose numbers are joined to a vector; hashable.

    Attributes
    ----------
    tree
        Structure of the pytree.
    shapes
        Shape of each array, in its order; their numbers follow each other, last axis fastest.
    """

    tree: Any
    shapes: tuple[tuple[int, ...], ...]

    @classmethod
    def of(cls, output: Any) -> Self:
        """Return the structure of an output, or of its shapes."""
        leaves, tree = jax.tree.flatten(output)
        return cls(tree, tuple(leaf.shape for leaf in leaves))

    @property
    def num_outputs(self) -> int:
        """Numbers in all arrays."""
        return sum(map(math.prod, self.shapes))

    @property
    def names(self) -> list[str]:
        """A name for each number: keys of dicts and trees, positions in arrays."""
        entries = map(names_of_entries, names_of_leaves(self.tree, "y"), self.shapes)
        return list(itertools.chain.from_iterable(entries))

    @property
    def is_vector(self) -> bool:
        """Whether the output is one vector, as it is."""
        return len(self.shapes[0]) == 1 and jax.tree_util.treedef_is_leaf(self.tree)

    def ravel(self, output: Any, dtype: jnp.dtype) -> Array:
        """Join the numbers of one output to a vector."""
        leaves = [jnp.asarray(leaf, dtype).reshape(-1) for leaf in jax.tree.leaves(output)]
        return leaves[0] if len(leaves) == 1 else jnp.concatenate(leaves)

    def unravel(self, values: Any) -> Any:
        """Return values of shape ``(..., N_y)`` as the pytree, leading axes in front."""
        lead, leaves, end = values.shape[:-1], [], 0
        for shape in self.shapes:
            start, end = end, end + math.prod(shape)
            leaves.append(values[..., start:end].reshape(lead + shape))
        return jax.tree.unflatten(self.tree, leaves)


def unraveled(structure: OutputStructure | None, num_outputs: int, values: Any) -> Any:
    """Check the last axis, and return the values as the network's outputs are."""
    if not hasattr(values, "shape"):
        values = jnp.asarray(values)
    if values.shape[-1:] != (num_outputs,):
        raise ValueError(
            f"values must have shape (..., N_y) with N_y = {num_outputs}, got shape "
            f"{values.shape}; pass an array with an entry per output, such as the mean"
        )
    return values if structure is None else structure.unravel(values)


def names_of_leaves(tree: Any, letter: str) -> list[str]:
    """A name for each leaf: its keys joined by dots, indices in brackets; `letter` without keys."""
    leaves = jax.tree.unflatten(tree, range(tree.num_leaves))
    return [_name(path, letter) for path, _ in jax.tree_util.tree_flatten_with_path(leaves)[0]]


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
