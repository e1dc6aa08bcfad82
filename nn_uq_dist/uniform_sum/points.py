"""Points that each have their own distribution: values, with first and second derivatives.

First derivatives are sums over the nodes of the values: automatic differentiation is used only for
second derivatives. Traced numbers are compiled for their shape. Outside of ``jit`` that would be a
program for each number of points and weights, so points are padded to one of few capacities, and
weights with zeros; the program gets their true numbers and skips the rest, so that the next table,
figure or notebook cell compiles nothing. Whether some points need conditioning, for which a traced
program needs a branch, is then decided in Python: the program of the harder method is compiled
when a point first needs it, and run only for those points.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from numpy.typing import NDArray

from nn_uq_dist.basics.checks import refused
from nn_uq_dist.basics.concrete import as_jax, runs_in_numpy
from nn_uq_dist.uniform_sum._conditioning import MOST_CONDITIONED
from nn_uq_dist.uniform_sum._each_point import (
    BOTH,
    SURVIVAL,
    Orders,
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
Primals = tuple[Array, UniformSum]

_twice_differentiable = refused(
    "third derivatives of uniform_sum functions are not implemented: "
    "expected at most two nested differentiations; use finite differences of the second"
)


def values_of_points(orders: Orders, y: Any, distribution: UniformSum) -> Any:
    """Values for each order, shape (M, N), at ``y`` (N,), each with a distribution of its own."""
    if not isinstance(y, np.ndarray):
        return _values(orders, y, distribution)
    if y.size > MOST_POINTS:
        return np.asarray(evaluate_in_chunks(orders, y, distribution, derivatives=0).logs)
    if orders == SURVIVAL:
        # Distribution functions share the program of the quantiles.
        return _concrete(BOTH, 0, y, distribution).logs[1:]
    return _concrete(orders, 0, y, distribution).logs


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def _values(orders: Orders, y: Array, distribution: UniformSum) -> Array:
    return evaluate_in_chunks(orders, y, distribution, derivatives=0).logs


@_values.defjvp
def _values_jvp(orders: Orders, primals: Primals, tangents: Primals) -> tuple[Array, Array]:
    values, gradient = _values_and_gradient(orders, *primals)
    return values, _along(gradient, tangents)


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def _values_and_gradient(orders: Orders, y: Array, distribution: UniformSum) -> tuple[Array, Array]:
    """Values (M, N) and gradients (R, M, N): in the point, the scale if any, and each weight."""
    if runs_in_numpy(y, distribution) and 0 < y.size <= MOST_POINTS:
        # `jax.grad` outside of `jit`: the primal values are known.
        known = jax.tree.map(np.asarray, (y, distribution))
        found = jax.tree.map(as_jax, _concrete(orders, 1, *known))
    else:
        found = evaluate_in_chunks(orders, y, distribution, derivatives=1)
    return found.logs, found.gradient


@_values_and_gradient.defjvp
def _values_and_gradient_jvp(
    orders: Orders, primals: Primals, tangents: Primals
) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
    """Hessian times direction, linear in the direction and self-adjoint.

    A loop with a run-time number of iterations cannot be transposed. The Hessian is symmetric, so
    it is its own transpose: ``custom_linear_solve`` is told so, and reverse-mode differentiation of
    a gradient works.
    """
    primals = _twice_differentiable(primals)
    found = evaluate_in_chunks(orders, *primals, derivatives=2)

    def multiply(_: object, packed: Array) -> Array:
        # Each order has its own Hessian; together they are the blocks of a symmetric matrix.
        def of_order(m: Array, direction: Array) -> Array:
            return _moved_gradient(orders, primals, direction)[:, m]

        return jax.vmap(of_order, (0, 1), 1)(jnp.arange(len(orders)), packed)

    direction = jnp.broadcast_to(_pack(tangents)[:, None], found.gradient.shape)
    product = lax.custom_linear_solve(
        lambda x: x, direction, multiply, transpose_solve=multiply, symmetric=True
    )
    return (found.logs, found.gradient), (_along(found.gradient, tangents), product)


# Compiled here, so that the product and its transpose are traced once.
@partial(jax.jit, static_argnums=0)
def _moved_gradient(orders: Orders, primals: Primals, direction: Array) -> Array:
    """Derivative of the gradient along a direction, shape (R, N)."""

    def gradient(y: Array, distribution: UniformSum) -> Array:
        found = evaluate_in_chunks(orders, y, distribution, derivatives=2)
        return found.gradient

    has_scale = primals[1].normal_scale is not None
    of_point, of_weights = direction[0], direction[1 + has_scale :]
    of_scale = direction[1] if has_scale else None
    return jax.jvp(gradient, primals, (of_point, UniformSum(of_weights, of_scale)))[1]


# One program, and one for its transpose.
@jax.jit
def _along(gradient: Array, tangents: Primals) -> Array:
    return jnp.sum(gradient * _pack(tangents)[:, None], axis=0)


def _pack(tangents: Primals) -> Array:
    """In the order of gradients; transposition needs an operand that is linear as a whole."""
    y, (weights, scale, _) = tangents
    return jnp.concatenate([y[None], *([] if scale is None else [scale[None]]), weights])


def _concrete(
    orders: Orders,
    derivatives: int,
    y: HostArray,
    distribution: UniformSum,
    *,
    conditioning: bool = False,
) -> Any:
    """`Values` of NumPy arrays at no more than `MOST_POINTS`."""
    count, num_points = distribution.weights.shape
    if distribution.normal_scale is None and count <= MOST_CONDITIONED:
        rows = MOST_CONDITIONED
    else:
        rows = capacity(count, _FEWEST_WEIGHTS, 2)
    points = capacity(num_points, max(1, min(_FEWEST_POINTS, _MOST_NUMBERS // rows)), 4)
    found: Any = evaluate_in_chunks(
        orders,
        padded(y, (points,)),
        padded_sum(distribution, rows, points),
        derivatives=derivatives,
        conditioning=conditioning,
        num_points=np.int_(num_points),
    )
    found = jax.tree.map(lambda part: np.array(np.asarray(part)[..., :num_points]), found)
    if derivatives:
        found = found._replace(gradient=found.gradient[: len(found.gradient) - rows + count])
    hard = ~found.done
    if hard.any():  # not if there was conditioning
        some = orders, derivatives, y[hard], distribution.take(hard)
        better = _concrete(*some, conditioning=True)
        for old, new in zip(jax.tree.leaves(found), jax.tree.leaves(better), strict=True):
            old[..., hard] = new
    return found


def capacity(count: int, fewest: int, factor: int) -> int:
    """The least of ``fewest``, ``fewest * factor``, ... that holds ``count``."""
    size = fewest
    while size < count:
        size *= factor
    return size


def padded(part: Any, shape: tuple[int, ...]) -> Any:
    """The array with copies of its last entries at the end of each axis, which need nothing new."""
    more = [(0, most - size) for most, size in zip(shape, part.shape, strict=True)]
    return np.pad(part, more, "edge") if part.size else np.ones(shape, part.dtype)


def padded_sum(distribution: UniformSum, rows: int, columns: int) -> UniformSum:
    """The distributions in larger arrays, with the number of rows of whole groups in use."""
    weights, scale, _ = distribution
    count = len(weights)
    in_use: Any = np.int_(-(-count // ROWS_PER_GROUP) * ROWS_PER_GROUP)
    scale = None if scale is None else padded(scale, (columns,))
    more: Any = np.pad(padded(weights, (count, columns)), [(0, rows - count), (0, 0)])
    return UniformSum(more, scale, in_use)
