"""Many points in a program, a block of them at a time."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax


def in_blocks[Result](function: Callable[..., Result], *parts: Any, size: int) -> Result:
    """Return ``function(*parts)``, computed for some rows at a time.

    Memory stays bounded, and a point that takes many steps delays only its own block.

    Parameters
    ----------
    function
        Of pytrees whose arrays have a row for each point, as those that it returns.
    *parts
        Its arguments, with any number of rows.
    size
        Most rows of a block; the last one is filled up by its last row, which needs no treatment
        of its own.
    """
    count = len(jax.tree.leaves(parts)[0])
    if count <= size:
        return function(*parts)
    blocks = -(-count // size)
    size = -(-count // blocks)

    def cut(part: Array) -> Array:
        padding = [(0, blocks * size - count)] + [(0, 0)] * (part.ndim - 1)
        return jnp.pad(part, padding, mode="edge").reshape(blocks, size, *part.shape[1:])

    found = lax.map(lambda block: function(*block), jax.tree.map(cut, parts))
    joined: Result = jax.tree.map(lambda part: part.reshape(-1, *part.shape[2:])[:count], found)
    return joined
