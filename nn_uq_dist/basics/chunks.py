"""Many points in a program: a block of them at a time, and decisions that hold for all of them."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.custom_batching import custom_vmap
from numpy.typing import NDArray


def chunk_size(on_cpu: int, elsewhere: int) -> int:
    """Rows at a time: on a CPU they should stay in the cache, an accelerator needs long chunks."""
    return on_cpu if jax.default_backend() == "cpu" else elsewhere


def in_chunks[Result](
    function: Callable[..., Result], *parts: Any, size: int, num_rows: Array | None = None
) -> Result:
    """Return ``function(*parts)``, computed for some rows at a time.

    Memory stays bounded, and a point that takes many steps delays only its own block.

    Parameters
    ----------
    function
        Of pytrees whose arrays have a row for each point, as those that it returns.
    *parts
        Its arguments, with any number of rows.
    size
        Most rows of a block.
    num_rows : Array of int, shape (), optional
        Number of leading rows that matter; later blocks cost nothing and are zero. Default: all.
    """
    count = len(jax.tree.leaves(parts)[0])
    if count <= size and num_rows is None:
        return function(*parts)
    size = -(-count // -(-count // size))
    stop = count if num_rows is None else num_rows

    # Compiled, and so traced once, for the shapes of its results and for the loop.
    @jax.jit
    def block(start: Array) -> Result:
        # Cut inside of the loop: cut before it, all blocks are a copy of the arguments.
        def cut(part: Array) -> Array:
            return lax.dynamic_slice_in_dim(part, start, size)

        return function(*jax.tree.map(cut, parts))

    def fill(index: Array, results: Any) -> Any:
        # The last block begins early enough to be full: some points are evaluated twice.
        start = jnp.minimum(index * size, count - size)

        def put(all_: Array, part: Array) -> Array:
            return lax.dynamic_update_slice_in_dim(all_, part, start, axis=0)

        return jax.tree.map(put, results, block(start))

    shapes = jax.eval_shape(block, jnp.asarray(0))
    empty = jax.tree.map(lambda s: jnp.zeros((count, *s.shape[1:]), s.dtype), shapes)
    results: Result = lax.fori_loop(0, -(-stop // size), fill, empty)
    return results


def in_padded_chunks(function: Callable[..., Any], *arrays: NDArray[Any], size: int) -> Any:
    """Apply a function to chunks of rows, all of one shape, so that it is compiled once.

    Parameters
    ----------
    function
        Takes and returns arrays with a row for each point; it may return a tuple of them.
    *arrays
        With the same number of rows, at least one.
    size
        Rows of a chunk; the last one is filled up by its last row.

    Returns
    -------
    Any
        What the function returns for all rows at once, as NumPy arrays in float64.
    """
    count = len(arrays[0])
    parts = []
    for start in range(0, count, size):
        rows = np.minimum(np.arange(start, start + size), count - 1)
        # Rows in float64 go to distributions of any type.
        with jax.numpy_dtype_promotion("standard"):
            parts.append(function(*(jnp.asarray(array[rows]) for array in arrays)))

    def joined(*same: Any) -> NDArray[np.float64]:
        return np.concatenate([np.asarray(part, np.float64) for part in same])[:count]

    return jax.tree.map(joined, *parts)


@custom_vmap
def any_point(condition: Array) -> Array:
    """Whether a condition holds anywhere, including along axes that `jax.vmap` adds.

    Such a decision, whether to continue a loop or to try a harder method, is made for all points at
    once and changes only those that need it. With `jnp.any` each member of a mapped axis would
    decide for itself: `lax.cond` would become a selection and run every method for all points,
    which made four NumPyro chains in parallel cost 12 to 28 times one chain.
    """
    return jnp.any(condition)


@any_point.def_vmap
def _any_point_of_all(
    _axis_size: int, in_batched: Sequence[bool], condition: Array
) -> tuple[Array, bool]:
    del in_batched
    # Call the mapped function again, for axes mapped further out.
    return any_point(condition), False
