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

    def cut(part: Array | None) -> Array | None:
        if part is None:
            return None
        # The last block is padded with its last point, whose law needs no special treatment.
        padding = [(0, 0)] * (part.ndim - 1) + [(0, blocks * size - count)]
        part = jnp.pad(part, padding, mode="edge") if blocks * size > count else part
        return jnp.moveaxis(part.reshape(*part.shape[:-1], blocks, size), -2, 0)

    def one_block(start: Array, y: Array, weights: Array, scale: Array | None) -> Values:
        stop = count if num_points is None else num_points
        active = start * size + jnp.arange(size) < stop
        return evaluate(y, law._replace(weights=weights, normal_scale=scale), active)

    parts = (cut(y), cut(law.weights), cut(law.normal_scale))
    if num_points is None:
        found = lax.map(lambda at: one_block(*at), (jnp.arange(blocks), *parts))
    else:
        shapes = jax.eval_shape(one_block, jnp.asarray(0), *jax.tree.map(lambda p: p[0], parts))
        empty = jax.tree.map(lambda s: jnp.zeros((blocks, *s.shape), s.dtype), shapes)

        def fill(index: Array, results: Values) -> Values:
            found = one_block(index, *jax.tree.map(lambda part: part[index], parts))
            return jax.tree.map(lambda all_, one: all_.at[index].set(one), results, found)

        found = lax.fori_loop(0, -(-num_points // size), fill, empty)

    def join(part: Array) -> Array:
        part = jnp.moveaxis(part, 0, -2)
        return part.reshape(*part.shape[:-2], blocks * size)[..., :count]

    joined: Values = jax.tree.map(join, found)
    return joined
