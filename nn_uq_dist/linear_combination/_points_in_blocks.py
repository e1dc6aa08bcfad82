"""Points in blocks: memory stays bounded, and a difficult law delays only its own block."""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from nn_uq_dist.linear_combination._each_point import (
    Orders,
    Values,
    evaluate_each_point,
)
from nn_uq_dist.linear_combination._law import Law


class BlockSize(NamedTuple):
    """Points in a block, if the program is compiled for their number and if it is not.

    On a CPU the arrays of a block should stay in the cache (measured with 12 to 12,000 laws). An
    accelerator needs long blocks.
    """

    traced: int
    known: int


def block_size() -> BlockSize:
    """Block sizes for the default platform."""
    return BlockSize(512, 64) if jax.default_backend() == "cpu" else BlockSize(2048, 1024)


def evaluate_in_blocks(
    orders: Orders,
    y: Array,
    law: Law,
    *,
    derivatives: int = 0,
    conditioning: bool = True,
    num_points: Array | None = None,
    size: int | None = None,
) -> Values:
    """`evaluate_each_point` for N points, a block at a time.

    Parameters
    ----------
    orders, derivatives, conditioning
        As in `evaluate_each_point`.
    y : Array, shape (N,)
    law : Law
        Weights of shape (n, N).
    num_points : Array of int, shape (), optional
        Number of leading points that matter; later blocks cost nothing. Default: all.
    size : int, optional
        Points in a block. Default: `block_size` for a traced number of points.
    """
    count = y.shape[0]
    size = block_size().traced if size is None else size
    evaluate = partial(
        evaluate_each_point, orders, derivatives=derivatives, conditioning=conditioning
    )
    if count <= size and num_points is None:
        return evaluate(y, law, jnp.ones(y.shape, bool))
    blocks = -(-count // size)
    size = -(-count // blocks)
    stop = count if num_points is None else num_points
    # Rows of the weights are cut inside of the loop. Cut before it, or from columns, all of them
    # are copied: XLA takes back this transpose of a transpose, but not one inside of the loop.
    rows = law.weights.T

    def one_block(start: Array) -> Values:
        def cut(part: Array) -> Array:
            return lax.dynamic_slice_in_dim(part, start, size)

        active = start + jnp.arange(size) < stop
        scale = None if law.normal_scale is None else cut(law.normal_scale)
        own = law._replace(weights=cut(rows).T, normal_scale=scale)
        return evaluate(cut(y), own, active)

    def fill(index: Array, results: Values) -> Values:
        # The last block begins early enough to be full: some points are evaluated twice.
        start = jnp.minimum(index * size, count - size)

        def put(all_: Array, part: Array) -> Array:
            return lax.dynamic_update_slice_in_dim(all_, part, start, axis=-1)

        return jax.tree.map(put, results, one_block(start))

    shapes = jax.eval_shape(one_block, jnp.asarray(0))
    empty = jax.tree.map(lambda s: jnp.zeros((*s.shape[:-1], count), s.dtype), shapes)
    found: Values = lax.fori_loop(0, -(-stop // size), fill, empty)
    return found
