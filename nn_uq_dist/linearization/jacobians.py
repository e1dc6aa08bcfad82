"""Values and Jacobians of a network, in portions whose memory is bounded.

Forward mode costs a pass for each input, reverse mode one for each output: the mode with fewer
passes is used. As many passes run together as `_MOST_NUMBERS` allows; each basis vector is made
from its index when it is needed, so no large identity matrix is held in memory.
"""

import dataclasses
import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.typing import DTypeLike

from nn_uq_dist.inputs import Input
from nn_uq_dist.sampling.flat_network import FlatNetwork

# Numbers in the inputs or the outputs of all passes that run together, and in the Jacobians of all
# points that are handled together.
_MOST_NUMBERS = 2**22


def value_and_jacobian(
    network: Callable[[Array], Array], point: Array, num_outputs: int
) -> tuple[Array, Array]:
    """Value ``(N_y,)`` and Jacobian ``(N_y, N_x)`` at a point ``(N_x,)``.

    Parameters
    ----------
    network
        Maps ``(N_x,)`` to ``(N_y,)``.
    point
        Point, shape ``(N_x,)``.
    num_outputs
        ``N_y``.
    """
    num_inputs = point.shape[0]
    if num_inputs <= num_outputs:
        value, forward = jax.linearize(network, point)
        return value, _images_of_basis(forward, num_inputs, num_outputs, point.dtype).T
    value, pull_back = jax.vjp(network, point)
    rows = _images_of_basis(lambda row: pull_back(row)[0], num_outputs, num_inputs, value.dtype)
    return value, rows


def values_and_jacobians(
    network: FlatNetwork, points: Array, num_outputs: int, batch_size: int | None = None
) -> tuple[Array, Array]:
    """Values ``(..., N_y)`` and Jacobians ``(..., N_y, N_x)`` at points ``(..., N_x)``.

    Parameters
    ----------
    network
        A network between vectors. Where its map to what the network takes differs over the batch of
        its distribution, there is a point for each entry.
    points
        Points, shape ``(..., N_x)``.
    num_outputs
        ``N_y``.
    batch_size
        Points that are handled together. Default: as many as have `_MOST_NUMBERS` in their
        Jacobians.
    """
    shape, varying = points.shape[:-1], None
    if network.distribution.varies_over_batch:
        shape, varying = network.distribution.batch_shape, network.distribution
        points = jnp.broadcast_to(points, (*shape, points.shape[-1]))

    def at_one(entry: tuple[Input | None, Array]) -> tuple[Array, Array]:
        distribution, point = entry
        here = dataclasses.replace(network, distribution=distribution or network.distribution)
        return value_and_jacobian(here, point, num_outputs)

    if not shape:
        return at_one((varying, points))
    rows = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[len(shape) :]), (varying, points))
    size = batch_size or max(1, _MOST_NUMBERS // (points.shape[-1] * num_outputs))
    if math.prod(shape) <= size:
        results = jax.vmap(at_one)(rows)
    else:
        results = lax.map(at_one, rows, batch_size=size if size > 1 else None)
    return jax.tree.map(lambda array: array.reshape(*shape, *array.shape[1:]), results)


def _images_of_basis(
    linear: Callable[[Array], Array], count: int, width: int, dtype: DTypeLike
) -> Array:
    """Images of ``count`` basis vectors as rows of this width, some at a time."""
    if count * max(count, width) <= _MOST_NUMBERS:
        # Outside `jit` this needs no compiled loop.
        return jax.vmap(linear)(jnp.eye(count, dtype=dtype))

    def image(index: Array) -> Array:
        return linear((jnp.arange(count) == index).astype(dtype))

    # Portions of nearly equal size: the last one, compiled separately, is not much smaller.
    portions = -(-count * max(count, width) // _MOST_NUMBERS)
    size = max(1, -(-count // portions))
    return lax.map(image, jnp.arange(count), batch_size=size if size > 1 else None)
