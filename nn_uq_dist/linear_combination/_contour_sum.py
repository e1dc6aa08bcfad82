r"""Logarithm of the midpoint sum on a fixed contour, with exact derivatives of two orders.

The sum is a smooth function of the point ``y``, the weights and the normal variance for any
fixed tilt and step, so that its derivatives are sums of the same kind: averages of

.. math::
    e_y = -z, \qquad e_k = z L(w_k z), \qquad e_v = z^2/2

under the complex weights of the integrand. Nothing is unrolled and no product of ``n`` factors
is kept: the number of nodes may be decided at run time, which reverse-mode differentiation
of a loop would not allow.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from nn_uq_dist.linear_combination._contour import (
    Contour,
    Nodes,
    integrand,
    log_scale,
    needs_more_nodes,
    nodes_of_chunk,
)
from nn_uq_dist.linear_combination._uniform_component import weight_slope

Arguments = tuple[Array, Array, Array, Array, Contour]


class Slopes(NamedTuple):
    """One number for each argument: gradient, direction or Hessian times direction.

    A direction that is common to all M integrals has M = 1.

    Attributes
    ----------
    y : Array, shape (M, B)
    weights : Array, shape (n, M, B)
    normal_variance : Array, shape (M, B)
    """

    y: Array
    weights: Array
    normal_variance: Array


def _real_sum(values: Array) -> Array:
    return jnp.sum(values.real, axis=0)


def _for_each_order(values: Array, num_orders: int) -> Array:
    """Values at the nodes, shape (J, B), beside densities of shape (J, M, B)."""
    # Without the barrier the compiler evaluates the values once for each order.
    once = lax.optimization_barrier(values) if num_orders > 1 else values
    return once[:, None, :]


def _slope_sums(density: Array, weights: Array, tilt: Array, nodes: Nodes) -> Slopes:
    square = nodes.z * nodes.z

    def over_weight(carry: None, weight: Array) -> tuple[None, Array]:
        slope = weight_slope(weight, tilt, nodes.z, square)[0]
        return carry, _real_sum(density * _for_each_order(slope, density.shape[1]))

    z = nodes.z[:, None, :]
    moved = density * z
    _, slopes = lax.scan(over_weight, None, weights, unroll=2)
    return Slopes(-_real_sum(moved), slopes, 0.5 * _real_sum(moved * z))


def _curvature_sums(
    density: Array, weights: Array, tilt: Array, nodes: Nodes, direction: Slopes
) -> Slopes:
    square = nodes.z * nodes.z

    def along_weight(k: Array, along: Array) -> Array:
        slope = weight_slope(weights[k], tilt, nodes.z, square)[0]
        return along + direction.weights[k] * _for_each_order(slope, density.shape[1])

    z = nodes.z[:, None, :]
    along = -direction.y * z + 0.5 * direction.normal_variance * z * z
    if weights.shape[0]:
        along = lax.fori_loop(0, weights.shape[0], along_weight, along)

    def over_weight(carry: None, at: tuple[Array, Array]) -> tuple[None, Array]:
        weight, amount = at
        parts = weight_slope(weight, tilt, nodes.z, square)
        first, second = (_for_each_order(part, density.shape[1]) for part in parts)
        return carry, _real_sum(density * (along * first + amount * second))

    moved = density * along * z
    _, slopes = lax.scan(over_weight, None, (weights, direction.weights))
    return Slopes(-_real_sum(moved), slopes, 0.5 * _real_sum(moved * z))


def _accumulate(
    distance: Array,
    weights: Array,
    normal_variance: Array,
    contour: Contour,
    direction: Slopes | None,
    derivatives: int,
) -> tuple[Array, Slopes | None, Slopes | None]:
    """Sums over as many chunks of nodes as the slowest point needs."""
    nothing = jnp.zeros(contour.order.shape, distance.dtype)
    zeros = Slopes(nothing, jnp.zeros((len(weights), *nothing.shape), distance.dtype), nothing)
    first = zeros if derivatives >= 1 else None
    second = zeros if derivatives >= 2 else None

    State = tuple[Array, Array, Slopes | None, Slopes | None]

    def unfinished(state: State) -> Array:
        return needs_more_nodes(weights, normal_variance, contour, state[0], derivatives)

    def add_chunk(state: State) -> State:
        chunk, total, first, second = state
        nodes = nodes_of_chunk(contour, chunk)
        density = integrand(distance, weights, normal_variance, contour, nodes)
        total = total + _real_sum(density)
        if first is not None:
            first = jax.tree.map(jnp.add, first, _slope_sums(density, weights, contour.tilt, nodes))
        if second is not None and direction is not None:
            curvature = _curvature_sums(density, weights, contour.tilt, nodes, direction)
            second = jax.tree.map(jnp.add, second, curvature)
        return chunk + 1, total, first, second

    state = (jnp.asarray(0), nothing, first, second)
    _, total, first, second = lax.while_loop(unfinished, add_chunk, state)
    return total, first, second


def _dot(a: Slopes, b: Slopes) -> Array:
    return (
        a.y * b.y + jnp.sum(a.weights * b.weights, axis=0) + a.normal_variance * b.normal_variance
    )


@jax.custom_jvp
def _twice_differentiable(values: Arguments) -> Arguments:
    """Identity on what a second derivative is made of; differentiating it raises."""
    return values


@_twice_differentiable.defjvp
def _refuse(primals: tuple[Arguments], tangents: tuple[Arguments]) -> tuple[Arguments, Arguments]:
    msg = (
        "third derivatives of linear_combination functions are not implemented: "
        "expected at most two nested differentiations; use finite differences of the second"
    )
    raise NotImplementedError(msg)


def _hessian_product(arguments: Arguments, direction: Slopes) -> Slopes:
    """Hessian of the log sum times a direction, linear in the direction and self-adjoint.

    A loop with a run-time number of iterations cannot be transposed. The Hessian is symmetric, so
    its transpose is itself: ``custom_linear_solve`` is told so, and reverse-mode
    differentiation of a gradient works.
    """
    _, weights, normal_variance, distance, contour = _twice_differentiable(arguments)
    law = (distance, weights, normal_variance, contour)

    def multiply(_: object, packed: Array) -> Array:
        direction = _unpack(packed)
        total, first, second = _accumulate(*law, direction, 2)
        mean = jax.tree.map(lambda s: s / total, first)
        along = _dot(mean, direction)
        return _pack(jax.tree.map(lambda s, m: s / total - m * along, second, mean))

    # One array, not three: transposition takes operands that are linear as a whole only.
    product = lax.custom_linear_solve(
        lambda x: x, _pack(direction), multiply, transpose_solve=multiply, symmetric=True
    )
    return _unpack(product)


def _common(tangents: tuple[Array, Array, Array]) -> Slopes:
    """Direction of the arguments, with an axis for the orders."""
    return Slopes(*(tangent[..., None, :] for tangent in tangents))


def _pack(slopes: Slopes) -> Array:
    return jnp.concatenate([slopes.y[None], slopes.weights, slopes.normal_variance[None]])


def _unpack(packed: Array) -> Slopes:
    return Slopes(packed[0], packed[1:-1], packed[-1])


@jax.custom_jvp
def _log_sum_and_gradient(
    _y: Array,
    weights: Array,
    normal_variance: Array,
    distance: Array,
    contour: Contour,
) -> tuple[Array, Slopes]:
    total, first, _ = _accumulate(distance, weights, normal_variance, contour, None, 1)
    return _finish(total, distance, weights, normal_variance, contour), jax.tree.map(
        lambda s: s / total, first
    )


@_log_sum_and_gradient.defjvp
def _log_sum_and_gradient_jvp(
    primals: Arguments, tangents: Arguments
) -> tuple[tuple[Array, Slopes], tuple[Array, Slopes]]:
    value, gradient = _log_sum_and_gradient(*primals)
    direction = _common(tangents[:3])
    # Each order has a Hessian of its own: together a symmetric matrix of blocks.
    each = jax.tree.map(lambda part, like: jnp.broadcast_to(part, like.shape), direction, gradient)
    product = _hessian_product(primals, each)
    return (value, gradient), (_dot(gradient, direction), product)


def _finish(
    total: Array,
    distance: Array,
    weights: Array,
    normal_variance: Array,
    contour: Contour,
) -> Array:
    exponent = log_scale(distance, weights, normal_variance, contour)
    return exponent + jnp.log(total * contour.step / jnp.pi)


@jax.custom_jvp
def log_contour_sum(
    _y: Array,
    weights: Array,
    normal_variance: Array,
    distance: Array,
    contour: Contour,
) -> Array:
    """Logs of the midpoint sums for ``I_m(y)``, aliases included.

    Parameters
    ----------
    _y : Array, shape (B,)
        Point, at or above the center; differentiated. Its value enters through ``distance``.
    weights : Array, shape (n, B)
        Positive weights; differentiated.
    normal_variance : Array, shape (B,)
        Variance of the normal part; differentiated.
    distance : Array, shape (B,)
        ``sum(weights) - y`` without the rounding of that difference; not differentiated.
    contour : Contour
        Not differentiated: the sum does not depend on it beyond its aliases.

    Returns
    -------
    Array, shape (M, B)
    """
    total, _, _ = _accumulate(distance, weights, normal_variance, contour, None, 0)
    return _finish(total, distance, weights, normal_variance, contour)


@log_contour_sum.defjvp
def _log_contour_sum_jvp(primals: Arguments, tangents: Arguments) -> tuple[Array, Array]:
    value, gradient = _log_sum_and_gradient(*primals)
    return value, _dot(gradient, _common(tangents[:3]))
