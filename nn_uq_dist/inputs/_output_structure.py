"""What a network returns, where that is no vector: arrays of any shapes in a pytree."""

import dataclasses
import math
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array


@dataclasses.dataclass(frozen=True)
class OutputStructure:
    """Structure of a network's outputs, whose numbers are joined to a vector; hashable.

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
    def is_vector(self) -> bool:
        """Whether the output is one vector, as it is."""
        return len(self.shapes[0]) == 1 and jax.tree_util.treedef_is_leaf(self.tree)

    def ravel(self, output: Any, dtype: jnp.dtype) -> Array:
        """Join the numbers of one output to a vector."""
        leaves = [leaf.reshape(-1).astype(dtype) for leaf in jax.tree.leaves(output)]
        return leaves[0] if len(leaves) == 1 else jnp.concatenate(leaves)

    def unravel(self, values: Any) -> Any:
        """Return values of shape ``(..., N_y)`` as the pytree, leading axes in front."""
        lead = values.shape[:-1]
        ends = np.cumsum([math.prod(shape) for shape in self.shapes])[:-1]
        xp: Any = np if isinstance(values, np.ndarray) else jnp
        pieces = xp.split(values, ends, axis=-1)
        leaves = [
            piece.reshape(lead + shape) for piece, shape in zip(pieces, self.shapes, strict=True)
        ]
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
