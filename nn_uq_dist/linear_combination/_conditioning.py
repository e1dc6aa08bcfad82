r"""Exact conditioning on the largest weights, for laws whose integrand decays slowly.

With ``R_i`` the sum without the ``i`` largest weights and
``I_m^(i)(y) = E[(R_i - y)_+^(m-1)]/(m-1)!``,

.. math:: I_m^{(i)}(y) = \frac{I_{m+1}^{(i+1)}(y - w) - I_{m+1}^{(i+1)}(y + w)}{2 w},
          \qquad w = w_{i+1},

(conditioning on ``U_{i+1}`` and integrating over it). Each level is evaluated only on the tail
side, since the other side is a polynomial plus or minus the tail, and only inside the support of
``R_i``: arguments stay at the scale of ``R_i``, so weights that differ by many orders of magnitude
cost no digits.

Unrolled, ``I_m(y)`` is a sum over the ``2^i`` leaves of a tree: a coefficient times a tail integral
of ``R_i``, plus polynomials. Each leaf is a path from the root, and is computed here. If no weight
and no normal part is left, the polynomials are the closed form of a piecewise polynomial density.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array, lax

from nn_uq_dist.linear_combination._aliases import powers, tail_polynomial
from nn_uq_dist.linear_combination._law import Law

# Largest number of weights that are conditioned on.
MOST_CONDITIONED = 4


def ranks_of_largest(weights: Array, depth: int) -> Array:
    """Ranks 0, 1, ... of the ``depth`` largest weights of each law, ``depth`` for the others."""
    index = jnp.arange(weights.shape[0])[:, None]
    ranks = jnp.full(weights.shape, depth)
    for rank in range(min(depth, weights.shape[0])):
        left = jnp.where(ranks < depth, -1.0, weights)
        ranks = jnp.where(index == jnp.argmax(left, axis=0), rank, ranks)
    return ranks


def number_of_dominating(law: Law, ranks: Array, depth: int) -> Array:
    """How many of the largest weights to condition on, at most ``depth``.

    This is the rank of the last weight that exceeds twice the standard deviation of the smaller
    parts; if there is none, ``depth``: then the quadrature is slow because of few comparable
    weights.
    """
    last = jnp.zeros(ranks.shape[1:], ranks.dtype)
    for rank in range(depth):
        weight = jnp.sum(jnp.where(ranks == rank, law.weights, 0.0), axis=0)
        smaller = jnp.where(ranks > rank, law.weights, 0.0)
        variance = jnp.sum(smaller * smaller, axis=0) / 3.0 + law.normal_variance
        last = jnp.where(weight > 2.0 * jnp.sqrt(variance), rank + 1, last)
    return jnp.where(last == 0, depth, last)


class Leaf(NamedTuple):
    """One leaf of the tree: the point of its tail integral, and its contribution at the root.

    Attributes
    ----------
    order : Array of int, shape (M, B)
    point, distance : Array, shape (B,)
        Point on the tail side of the rest, and its distance from the edge.
    rest : Law
        The law without the weights conditioned on.
    coefficient, polynomial : Array, shape (M, B)
        The leaf adds ``coefficient * I_order(point) + polynomial``.
    """

    order: Array
    point: Array
    distance: Array
    rest: Law
    coefficient: Array
    polynomial: Array


def whole_law(order: Array, y: Array, distance: Array, law: Law) -> Leaf:
    """The root itself: nothing is conditioned on."""
    ones = jnp.ones(order.shape, y.dtype)
    return Leaf(order, y, distance, law, ones, jnp.zeros_like(ones))


def leaf_of(
    index: Array, order: Array, y: Array, distance: Array, law: Law, ranks: Array, number: Array
) -> Leaf:
    """The leaf with the steps given by the bits of ``index``: 0 to ``y - w``, 1 to ``y + w``.

    Parameters
    ----------
    index : Array of int, shape ()
        Below ``2^number``; polynomials at a node are added in the first leaf below it.
    order : Array of int, shape (M, B)
        0 for the density and 1 for the survival function.
    y, distance : Array, shape (B,)
    law : Law
    ranks : Array of int, shape (n, B)
    number : Array of int, shape (B,)
        How many weights are conditioned on; zero gives the integral itself.
    """
    State = tuple[Array, Array, Array, Array]

    def rest_at(level: Array) -> Law:
        left_out = ranks < jnp.minimum(number, level)
        return law._replace(weights=jnp.where(left_out, 0.0, law.weights))

    def node(state: State, level: Array) -> State:
        """Mirror to the tail side of the sum at this level."""
        point, distance, coefficient, polynomial = state
        rest = rest_at(level)
        here = order + jnp.minimum(number, level)
        mirrored = point < 0
        point = jnp.where(mirrored, -point, point)
        distance = jnp.where(mirrored, rest.width - point, distance)
        other = tail_polynomial(here, powers(point), rest.moments())
        counts = mirrored & (level <= number) & (index >> level == 0)
        polynomial = polynomial + jnp.where(counts, coefficient * other, 0.0)
        flipped = mirrored & (here % 2 == 1)
        return point, distance, jnp.where(flipped, -coefficient, coefficient), polynomial

    def step(state: State, level: Array) -> tuple[State, None]:
        point, distance, coefficient, polynomial = node(state, level)
        conditions = level < number
        weight = jnp.sum(jnp.where(ranks == level, law.weights, 0.0), axis=0)
        # Beyond the support, and at a weight of zero, which means a point mass, nothing is left.
        inside = weight > 0
        if law.normal_scale is None:
            inside = inside & (distance > 0)
        else:
            inside = inside & ((distance > 0) | (law.normal_scale > 0))
        weight = jnp.where(conditions & inside, weight, 0.0)
        share = 0.5 / jnp.where(weight > 0, weight, 1.0)
        is_far = (index >> level) & 1 == 1
        share = jnp.where(is_far, -share, share)
        share = jnp.where(inside, share, 0.0)
        coefficient = jnp.where(conditions, coefficient * share, coefficient)
        point = jnp.where(is_far, point + weight, point - weight)
        distance = jnp.where(is_far, distance - 2.0 * weight, distance)
        return (point, distance, coefficient, polynomial), None

    ones = jnp.ones(order.shape, y.dtype)
    state = (y, distance, ones, jnp.zeros_like(ones))
    depth = MOST_CONDITIONED
    state, _ = lax.scan(step, state, jnp.arange(depth))
    point, distance, coefficient, polynomial = node(state, jnp.asarray(depth))
    return Leaf(
        order + number, point, distance, rest_at(jnp.asarray(depth)), coefficient, polynomial
    )
