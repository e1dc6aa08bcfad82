r"""Exact conditioning on the largest weights, for distributions whose integrand decays slowly.

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

from nn_uq_dist.uniform_sum._polynomials import tail_polynomials
from nn_uq_dist.uniform_sum._rows import Rows
from nn_uq_dist.uniform_sum._uniform_sum import UniformSum, moments_of, sums_of

# Largest number of weights that are conditioned on.
MOST_CONDITIONED = 4


class Tree(NamedTuple):
    """Which weights to condition on, and what is left at each level; level 0 is the whole sum.

    Attributes
    ----------
    ranks : Array of int, shape (n, B)
        0, 1, ... for the largest weights, `MOST_CONDITIONED` for the others.
    number : Array of int, shape (B,)
        How many weights are conditioned on.
    largest : Array, shape (MOST_CONDITIONED, B)
        The largest weights.
    width, square, quartic : Array, shape (B,)
        Sums of the other weights and of their powers.
    """

    ranks: Array
    number: Array
    largest: Array
    width: Array
    square: Array
    quartic: Array

    def sums_at(self, level: Array) -> tuple[Array, Array, Array]:
        """Sums of the weights that are left at a level and of their powers, shape (B,)."""
        width, square, quartic = self.width, self.square, self.quartic
        for rank, weight in enumerate(self.largest):
            left = jnp.where(rank >= level, weight, 0.0)
            power = left * left
            width, square, quartic = width + left, square + power, quartic + power * power
        return width, square, quartic

    def rest(self, distribution: UniformSum) -> UniformSum:
        """The distribution without the weights that are conditioned on."""
        return distribution._replace(
            weights=jnp.where(self.ranks < self.number, 0.0, distribution.weights)
        )


def no_tree(distribution: UniformSum) -> Tree:
    """The distribution itself, without conditioning."""
    zeros = jnp.zeros(distribution.weights.shape[1:], distribution.weights.dtype)
    ranks = jnp.full(distribution.weights.shape, MOST_CONDITIONED)
    largest = jnp.zeros((MOST_CONDITIONED, *zeros.shape), zeros.dtype)
    return Tree(ranks, jnp.zeros(zeros.shape, int), largest, zeros, zeros, zeros)


def tree_of(distribution: UniformSum, number: int | None = None) -> Tree:
    """The tree of the largest weights.

    ``number`` weights are conditioned on, by default as many as dominate: up to the last weight
    that exceeds twice the standard deviation of the smaller parts; if there is none, all of them,
    because the quadrature is then slow due to few comparable weights.
    """
    weights = distribution.weights
    count = min(MOST_CONDITIONED, weights.shape[0])
    largest, index = lax.top_k(weights.T, count)
    # A transpose would have another layout than the tree before it, and be copied twice.
    nothing = [jnp.zeros_like(largest[:, 0])] * (MOST_CONDITIONED - count)
    largest = jnp.stack([*(largest[:, rank] for rank in range(count)), *nothing])
    ranks = jnp.full(weights.shape, MOST_CONDITIONED)
    for rank in range(count):
        is_it = jnp.arange(weights.shape[0])[:, None] == index[:, rank]
        ranks = jnp.where(is_it, rank, ranks)
    left = jnp.where(ranks < MOST_CONDITIONED, 0.0, weights)
    square = left * left
    sums = sums_of(left, square, square * square)
    tree = Tree(ranks, jnp.full(weights.shape[1:], number or 0), largest, *sums)
    if number is not None:
        return tree
    dominating = jnp.zeros_like(tree.number)
    for rank in range(count):
        variance = tree.sums_at(jnp.asarray(rank + 1))[1] / 3.0 + distribution.normal_variance
        dominates = largest[rank] > 2.0 * jnp.sqrt(variance)
        dominating = jnp.where(dominates, rank + 1, dominating)
    return tree._replace(number=jnp.where(dominating == 0, MOST_CONDITIONED, dominating))


class Leaf(NamedTuple):
    """One leaf of the tree: the point of its tail integral, and its contribution at the root.

    Attributes
    ----------
    point, distance : Array, shape (B,)
        Point on the tail side of the rest, and its distance from the edge.
    coefficient : Array, shape (M, B)
        The leaf adds ``coefficient * I(point)``.
    direction : Array, shape (R, B)
        Derivatives of the point.
    polynomial : Array, shape (R, M, B)
        The polynomials that the leaf adds, and their derivatives.
    """

    point: Array
    distance: Array
    coefficient: Array
    direction: Array
    polynomial: Array


def leaf_of(
    index: Array, levels: Array, order: Array, y: Array, distance: Array, tree: Tree, rows: Rows
) -> Leaf:
    """The leaf with the steps given by the bits of ``index``: 0 to ``y - w``, 1 to ``y + w``.

    Parameters
    ----------
    index : Array of int, shape ()
        Below ``2^number``; polynomials at a node are added in the first leaf below it.
    levels : Array of int, shape ()
        ``MOST_CONDITIONED + 1``; or 0 for the distribution itself.
    order : Array of int, shape (M, B)
        0 for the density and 1 for the survival function.
    y, distance : Array, shape (B,)
    tree : Tree
    rows : Rows
    """
    State = tuple[Array, Array, Array]

    def step(level: Array, state: State) -> State:
        numbers, *rest = state
        leaf = Leaf(numbers[0], numbers[1], numbers[2:], *rest)
        width, square, quartic = tree.sums_at(level)
        weight = lax.dynamic_index_in_dim(
            tree.largest, jnp.minimum(level, MOST_CONDITIONED - 1), keepdims=False
        )
        moments = moments_of(square, quartic, rows.normal_variance)
        # Mirror to the tail side of the sum at this level.
        here = order + level
        mirrored = (leaf.point < 0) & (level <= tree.number)
        point = jnp.where(mirrored, -leaf.point, leaf.point)
        distance = jnp.where(mirrored, width - point, leaf.distance)
        direction = jnp.where(mirrored, -leaf.direction, leaf.direction)
        counts = mirrored & (index >> level == 0)
        values = tail_polynomials(here, point, moments, rows.derivatives)
        values = values * jnp.where(counts, leaf.coefficient, 0.0)
        polynomial = leaf.polynomial + rows.of_polynomial(values, direction, level)
        coefficient = jnp.where(mirrored & (here % 2 == 1), -leaf.coefficient, leaf.coefficient)
        # Condition on its largest weight.
        conditions = level < tree.number
        is_far = (index >> level) & 1 == 1
        sign = jnp.where(is_far, 1.0, -1.0).astype(y.dtype)
        # Beyond the support, and at a weight of zero, which means a point mass, nothing is left.
        inside = jnp.minimum(weight, jnp.maximum(distance, rows.normal_variance)) > 0
        share = jnp.where(inside, -0.5 * sign / jnp.where(inside, weight, 1.0), 0.0)
        moved = jnp.where(conditions & inside, weight, 0.0)
        point = point + sign * moved
        distance = jnp.where(is_far, distance - 2.0 * moved, distance)
        coefficient = jnp.where(conditions, coefficient * share, coefficient)
        direction = jnp.where(conditions & (rows.ranks == level), sign, direction)
        # One array, and so one kernel, for the numbers of all points.
        return jnp.stack([point, distance, *coefficient]), direction, polynomial

    root = root_leaf(order, y, distance, rows)
    start = jnp.stack([y, distance, *root.coefficient]), root.direction, root.polynomial
    numbers, *rest = lax.fori_loop(0, levels, step, start)
    return Leaf(numbers[0], numbers[1], numbers[2:], *rest)


def root_leaf(order: Array, y: Array, distance: Array, rows: Rows) -> Leaf:
    """The whole distribution as a leaf."""
    return Leaf(y, distance, jnp.ones(order.shape, y.dtype), rows.of_y, rows.zeros(order))
