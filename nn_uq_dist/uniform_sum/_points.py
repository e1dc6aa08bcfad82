"""Points that each have their own distribution: values, with first and second derivatives.

Known numbers go to programs for few sizes (`_eager`); traced ones are compiled for their shape.
First derivatives are sums over the nodes of the values: automatic differentiation is used only for
second derivatives.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from nn_uq_dist.basics.checks import refused
from nn_uq_dist.basics.concrete import as_jax, runs_in_numpy
from nn_uq_dist.uniform_sum._each_point import (
    Gradient,
    Orders,
    Values,
    evaluate_in_chunks,
    gradient_of,
)
from nn_uq_dist.uniform_sum._uniform_sum import UniformSum
from nn_uq_dist.uniform_sum.concrete import MOST_POINTS, ConcreteSum, evaluate_now

Primals = tuple[Array, Array, Array | None]

_twice_differentiable = refused(
    "third derivatives of uniform_sum functions are not implemented: "
    "expected at most two nested differentiations; use finite differences of the second"
)


def values_of_points(orders: Orders, y: Any, weights: Any, normal_scale: Any) -> Any:
    """Values for each order, shape (M, N), at ``y`` (N,) with weights (n, N) and scales (N,)."""
    if isinstance(y, np.ndarray):
        if y.size <= MOST_POINTS:
            return evaluate_now(orders, y, ConcreteSum(weights, normal_scale)).logs
        distribution = UniformSum(weights, normal_scale)
        return np.asarray(_compiled(orders, 0, y, distribution).logs)
    return _values(orders, y, weights, normal_scale)


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def _values(orders: Orders, y: Array, weights: Array, normal_scale: Array | None) -> Array:
    return _compiled(orders, 0, y, UniformSum(weights, normal_scale)).logs


@_values.defjvp
def _values_jvp(orders: Orders, primals: Primals, tangents: Primals) -> tuple[Array, Array]:
    values, gradient = _values_and_gradient(orders, *primals)
    return values, _along(gradient, tangents)


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def _values_and_gradient(
    orders: Orders, y: Array, weights: Array, normal_scale: Array | None
) -> tuple[Array, Gradient]:
    if runs_in_numpy(y, weights, normal_scale) and 0 < y.size <= MOST_POINTS:
        # `jax.grad` outside of `jit`: the primal values are known.
        scale = None if normal_scale is None else np.asarray(normal_scale)
        found = evaluate_now(orders, np.asarray(y), ConcreteSum(np.asarray(weights), scale), 1)
        found = jax.tree.map(as_jax, found)
    else:
        found = _compiled(orders, 1, y, UniformSum(weights, normal_scale))
    return found.logs, gradient_of(found)


@_values_and_gradient.defjvp
def _values_and_gradient_jvp(
    orders: Orders, primals: Primals, tangents: Primals
) -> tuple[tuple[Array, Gradient], tuple[Array, Gradient]]:
    """Hessian times direction, linear in the direction and self-adjoint.

    A loop with a run-time number of iterations cannot be transposed. The Hessian is symmetric, so
    it is its own transpose: ``custom_linear_solve`` is told so, and reverse-mode differentiation of
    a gradient works.
    """
    primals = _twice_differentiable(primals)
    found = _compiled(orders, 2, primals[0], UniformSum(*primals[1:]))
    values, gradient = found.logs, gradient_of(found)

    def multiply(_: object, packed: Array) -> Array:
        # Each order has its own Hessian; together they are the blocks of a symmetric matrix.
        def of_order(m: Array, direction: Array) -> Array:
            along = _unpack(direction, primals[2])
            moved = _moved_gradient(orders, primals, along)
            return _pack(jax.tree.map(lambda part: part[..., m, :], moved))

        return jax.vmap(of_order, (0, 1), 1)(jnp.arange(len(orders)), packed)

    direction = _pack(Gradient(*tangents))
    direction = jnp.broadcast_to(direction[:, None], (len(direction), *values.shape))
    product = lax.custom_linear_solve(
        lambda x: x, direction, multiply, transpose_solve=multiply, symmetric=True
    )
    return (values, gradient), (_along(gradient, tangents), Gradient(*_unpack(product, primals[2])))


# Compiled here, so that the product and its transpose are traced once.
@partial(jax.jit, static_argnums=0)
def _moved_gradient(orders: Orders, primals: Primals, along: Primals) -> Gradient:
    """Derivative of the gradient along a direction."""

    def differentiated(y: Array, weights: Array, scale: Array | None) -> Gradient:
        return gradient_of(evaluate_in_chunks(orders, y, UniformSum(weights, scale), derivatives=2))

    moved: Gradient = jax.jvp(differentiated, primals, along)[1]
    return moved


# One program, and one for its transpose.
@jax.jit
def _along(gradient: Gradient, tangents: Primals) -> Array:
    y, weights, scale = tangents
    moved = gradient.y * y + jnp.sum(gradient.weights * weights[:, None], axis=0)
    slope = gradient.normal_scale
    return moved if scale is None or slope is None else moved + slope * scale


def _pack(parts: Gradient) -> Array:
    """One array, not three: transposition accepts only an operand that is linear as a whole."""
    scale = [] if parts.normal_scale is None else [parts.normal_scale[None]]
    return jnp.concatenate([parts.y[None], *scale, parts.weights])


def _unpack(packed: Array, normal_scale: Array | None) -> Primals:
    if normal_scale is None:
        return packed[0], packed[1:], None
    return packed[0], packed[2:], packed[1]


# Compiled here, so that eager calls with shapes seen before do not compile their loops anew.
@partial(jax.jit, static_argnums=(0, 1))
def _compiled(orders: Orders, derivatives: int, y: Array, distribution: UniformSum) -> Values:
    return evaluate_in_chunks(orders, y, distribution, derivatives=derivatives)
