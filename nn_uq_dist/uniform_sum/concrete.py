"""Calls with known numbers: few programs for all numbers of points and weights.

Outside ``jit`` a program is compiled for each shape of its arguments. Here points are padded to one
of few capacities, and weights with zeros; the program gets their true numbers and skips the rest,
so that the next table, figure or notebook cell compiles nothing. Whether some points need
conditioning, for which a traced program needs a branch, is decided in Python: the program of the
harder method is compiled when a point first needs it, and run only for those points.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from nn_uq_dist.uniform_sum._conditioning import MOST_CONDITIONED
from nn_uq_dist.uniform_sum._each_point import (
    BOTH,
    SURVIVAL,
    Gradient,
    Orders,
    Values,
    block_size,
    evaluate_in_chunks,
)
from nn_uq_dist.uniform_sum._uniform_sum import ROWS_PER_GROUP, UniformSum

# With more points than this, the program is compiled for the given shape.
MOST_POINTS = 2**14
_FEWEST_POINTS = 2**10
_FEWEST_WEIGHTS = 16
# Most numbers in the weights of the fewest points.
_MOST_NUMBERS = 2**20

type HostArray = NDArray[Any]


class ConcreteSum(NamedTuple):
    """A distribution in NumPy arrays: weights (n, N) of any sign, normal scale (N,) or None."""

    weights: HostArray
    normal_scale: HostArray | None


def capacity(count: int, fewest: int, factor: int) -> int:
    """The least of ``fewest``, ``fewest * factor``, ... that holds ``count``."""
    size = fewest
    while size < count:
        size *= factor
    return size


def evaluate_now(
    orders: Orders, y: HostArray, distribution: ConcreteSum, derivatives: int = 0
) -> Values:
    """`evaluate_each_point` with NumPy arrays in and out.

    Parameters
    ----------
    orders : tuple of int
    y : numpy.ndarray, shape (N,)
        At most `MOST_POINTS`.
    distribution : ConcreteSum
    derivatives : int
        0 or 1.
    """
    if orders == SURVIVAL and not derivatives:
        # Distribution functions share the program of the quantiles.
        both = evaluate_now(BOTH, y, distribution)
        return both._replace(logs=both.logs[1:])
    found = _run(orders, derivatives, False, y, distribution)
    hard = ~found.done
    if hard.any():
        scale = distribution.normal_scale
        part = ConcreteSum(distribution.weights[:, hard], None if scale is None else scale[hard])
        better = _run(orders, derivatives, True, y[hard], part)
        for old, new in zip(jax.tree.leaves(found), jax.tree.leaves(better), strict=True):
            old[..., hard] = new
    return found


def _run(
    orders: Orders, derivatives: int, conditioning: bool, y: HostArray, distribution: ConcreteSum
) -> Values:
    count, num_points = distribution.weights.shape
    if distribution.normal_scale is None and count <= MOST_CONDITIONED:
        rows = MOST_CONDITIONED
    else:
        rows = capacity(count, _FEWEST_WEIGHTS, 2)
    points = capacity(num_points, max(1, min(_FEWEST_POINTS, _MOST_NUMBERS // rows)), 4)
    whole = UniformSum(
        padded(distribution.weights, (rows, points)),
        None if distribution.normal_scale is None else padded(distribution.normal_scale, (points,)),
        rows_in_use(count),
    )
    arguments = padded(y, (points,)), whole, np.int32(num_points)
    found = _program(orders, derivatives, conditioning, *arguments)
    gradient = found.gradient
    if gradient is not None:
        scales = gradient.normal_scale
        gradient = Gradient(
            _part(gradient.y, num_points),
            _part(np.asarray(gradient.weights)[:count], num_points),
            None if scales is None else _part(scales, num_points),
        )
    return Values(_part(found.logs, num_points), _part(found.done, num_points), gradient)


def rows_in_use(count: int) -> Any:
    """Number of rows in whole groups that hold `count` weights, as an argument of a program."""
    return np.int32(-(-count // ROWS_PER_GROUP) * ROWS_PER_GROUP)


def padded(part: HostArray, shape: tuple[int, ...]) -> Any:
    """The array, padded with zeros at the end of each axis."""
    whole = np.zeros(shape, part.dtype)
    whole[tuple(slice(size) for size in part.shape)] = part
    return whole


def _part(values: Any, num_points: int) -> Any:
    return np.array(np.asarray(values)[..., :num_points])


@partial(jax.jit, static_argnums=(0, 1, 2))
def _program(
    orders: Orders,
    derivatives: int,
    conditioning: bool,
    y: Array,
    distribution: UniformSum,
    num_points: Array,
) -> Values:
    return evaluate_in_chunks(
        orders,
        y,
        distribution,
        derivatives=derivatives,
        conditioning=conditioning,
        num_points=jnp.asarray(num_points),
        size=block_size().known,
    )
