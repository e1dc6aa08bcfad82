"""Points in blocks: memory stays bounded, and a difficult law delays only its own block."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from nn_uq_dist.basics._blocks import in_blocks
from nn_uq_dist.linear_combination._each_point import Orders, Values, evaluate_each_point
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
    size = block_size().traced if size is None else size
    count = y.shape[0]

    def block(y: Array, rows: Array, scale: Array | None, active: Array) -> Values:
        own = law._replace(weights=rows.T, normal_scale=scale)
        values = evaluate_each_point(
            orders, y, own, active, derivatives=derivatives, conditioning=conditioning
        )
        by_point: Values = jax.tree.map(lambda part: jnp.moveaxis(part, -1, 0), values)
        return by_point

    active = jnp.ones(count, bool) if num_points is None else jnp.arange(count) < num_points
    # Weights come as a transpose. XLA takes back a transpose of it that is outside of the loop.
    parts = y, law.weights.T, law.normal_scale, active
    found = in_blocks(block, *parts, size=size, num_rows=num_points)
    joined: Values = jax.tree.map(lambda part: jnp.moveaxis(part, 0, -1), found)
    return joined
