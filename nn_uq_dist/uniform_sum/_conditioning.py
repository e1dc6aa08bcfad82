r"""Exact conditioning on the largest weights, for distributions whose integrand decays slowly.

With ``R_i`` the sum without the ``i`` largest weights and
``I_m^(i)(y) = E[(R_i - y)_+^(m-1)]/(m-1)!``,

.. math:: I_m^{(i)}(y) = \frac{I_{m+1}^{(i+1)}(y - w) - I_{m+1}^{(i+1)}(y + w)}{2 w},
          \qquad w = w_{i+1},

(conditioning on ``U_{i+1}`` and integrating over it). Each level is evaluated only on the tail
side, since the other side is a polynomial plus or minus the tail, and only inside the support of
``R_i``: arguments stay at the scale of ``R_i``, so weights that differ by many orders of magnitude
cost no digits.

From the root down this is a binary tree. ``I_m(y)`` is the sum over its leaves of a coefficient
times a tail integral of ``R_i``, plus polynomials of all nodes. If no weight and no normal part is
left, the polynomials are the closed form of a piecewise polynomial density.
"""

import itertools
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from nn_uq_dist.uniform_sum._contour_sum import Slopes
from nn_uq_dist.uniform_sum._uniform_sum import (
    UniformSum,
    moments_of,
    powers,
    sums_of,
    tail_polynomials,
)

# Largest number of weights that are conditioned on.
MOST_CONDITIONED = 4


class Leaves(NamedTuple):
    """What is left to integrate: ``I_m(y)`` is the sum of ``coefficient * I(point)``.

    Attributes
    ----------
    ranks : Array of int, shape (n, B)
        0, 1, ... for the C largest weights, `MOST_CONDITIONED` for the others.
    largest : Array, shape (C, B)
        The largest weights.
    number : Array of int, shape (B,)
        How many of these are conditioned on; the first ``2^number`` leaves count.
    numbers : Array, shape (2 + M, L, B)
        Of each leaf the point, on the tail side of the weights that are left, its distance from
        their edge, and M coefficients. One array is one kernel.
    signs : Array, shape (C + 1, L, B)
        Derivatives of the points in ``y`` and in the C largest weights; none for values alone.
    """

    ranks: Array
    largest: Array
    number: Array
    numbers: Array
    signs: Array


def without_largest(distribution: UniformSum, ranks: Array, level: Array) -> UniformSum:
    """The distribution without the weights that are conditioned on at a level."""
    left = jnp.where(ranks < level, 0.0, distribution.weights)
    return distribution._replace(weights=left)


class Rows(NamedTuple):
    """Values and gradients as R rows of one array, or the value alone without derivatives.

    One array is one kernel. Every contribution to an integral has derivatives of the same form: in
    the point, in the normal scale if there is one, in each weight that is left, and in each of the
    largest weights as one that is conditioned on.

    Attributes
    ----------
    distribution : UniformSum
    leaves : Leaves
    derivatives : int
    """

    distribution: UniformSum
    leaves: Leaves
    derivatives: int

    def zeros(self, order: Array) -> Array:
        """Nothing, shape (R, M, B)."""
        weights, scale = self.distribution.weights, self.distribution.normal_scale
        count = 2 + (scale is not None) + len(weights) + len(self.leaves.largest)
        return jnp.zeros((count if self.derivatives else 1, *order.shape), weights.dtype)

    def gradient(self, rows: Array) -> Array:
        """Derivatives in the point, in the normal scale and in each weight."""
        count = len(self.leaves.largest)
        rows, of_largest = rows[1:-count], rows[-count:]
        others = len(rows) - len(self.leaves.ranks)
        of_weights = rows[others:]
        for rank, part in enumerate(of_largest):
            is_it = self.leaves.ranks[:, None] == rank
            of_weights = of_weights + jnp.where(is_it, part, 0.0)
        return jnp.concatenate([rows[:others], of_weights])

    def of_polynomials(self, values: Array, signs: Array, level: Array) -> Array:
        """Rows (R, M, B) of a sum of polynomials at nodes with ``level`` weights conditioned on.

        Parameters
        ----------
        values : Array, shape (K, M, L, B)
            The polynomials and those of lower orders, as of `tail_polynomials`.
        signs : Array, shape (C + 1, 1, L, B)
            Derivatives of their arguments in ``y`` and in the largest weights.
        level : Array of int, shape () or (B,)
        """
        if not self.derivatives:
            return jnp.sum(values, axis=-2)
        sums = jnp.sum(jnp.concatenate([values, signs * values[1]]), axis=-2)
        (value, _, second, fourth), moved = sums[:4], sums[4:]
        weights = self.distribution.weights[:, None]
        of_weights = weights * (second / 3.0 - weights * (weights * (fourth / 45.0)))
        return self._stacked(value, moved, second, of_weights, level)

    def of_tail(self, value: Array, slopes: Slopes | None, signs: Array, level: Array) -> Array:
        """Rows of a tail integral: its value (M, B) and the derivatives of its logarithm."""
        if slopes is None:
            return value[None]
        moved, variance = signs[:, None] * (value * slopes.y), 2.0 * value * slopes.normal_variance
        return self._stacked(value, moved, variance, value * slopes.weights, level)

    def _stacked(
        self, value: Array, moved: Array, of_scale: Array, of_weights: Array, level: Array
    ) -> Array:
        """Rows from the derivatives in the point, over the scale, and in weights that are left.

        A weight conditioned on moves the point, and divides the coefficient.
        """
        scale, largest = self.distribution.normal_scale, self.leaves.largest[:, None]
        of_weights = jnp.where((self.leaves.ranks < level)[:, None], 0.0, of_weights)
        is_conditioned = np.arange(len(largest))[:, None, None] < level
        of_largest = moved[1:] - jnp.where(value == 0, 0.0, value / largest)
        of_largest = jnp.where(is_conditioned, of_largest, 0.0)
        of_normal = [] if scale is None else [(scale * of_scale)[None]]
        return jnp.concatenate([value[None], moved[:1], *of_normal, of_weights, of_largest])


def whole(
    order: Array, y: Array, distance: Array, distribution: UniformSum, derivatives: int
) -> Leaves:
    """The distribution itself as every leaf, without conditioning."""
    count = min(MOST_CONDITIONED, len(distribution.weights))
    shape = (2**count, *y.shape)
    numbers = jnp.stack([y, distance, *[jnp.ones_like(y)] * len(order)])[:, None]
    signs = np.zeros((count + 1 if derivatives else 0, 1, 1), y.dtype)
    signs[:1] = 1.0
    return Leaves(
        ranks=jnp.full(distribution.weights.shape, MOST_CONDITIONED),
        largest=jnp.ones((count, *y.shape), y.dtype),
        number=jnp.zeros(y.shape, int),
        numbers=jnp.broadcast_to(numbers, (len(numbers), *shape)),
        signs=jnp.broadcast_to(signs, (len(signs), *shape)),
    )


def conditioned(
    order: Array,
    leaves: Leaves,
    rows: Array,
    distribution: UniformSum,
    active: Array,
    derivatives: int,
    *,
    on_all: bool = False,
) -> tuple[Leaves, Array]:
    """Leaves of the tree, and the polynomials of all nodes.

    Parameters
    ----------
    order : Array of int, shape (M, B)
        0 for the density and 1 for the survival function.
    leaves : Leaves
        The distribution without conditioning, as of `whole`.
    rows : Array, shape (R, M, B)
        To which polynomials of active points are added, with their derivatives: see `Rows`.
    distribution : UniformSum
        Weights not negative.
    active : Array of bool, shape (B,)
    derivatives : int
    on_all : bool
        Whether all weights are conditioned on. By default as many as dominate: up to the last one
        that exceeds twice the standard deviation of the smaller parts; if there is none, as many as
        possible, because the quadrature is then slow due to few comparable weights.
    """
    dtype = distribution.weights.dtype
    count, normal_variance = len(leaves.largest), distribution.normal_variance
    by_point, index = lax.top_k(distribution.weights.T, count)
    # A transpose would have another layout than the leaves before it, and be copied twice.
    largest, ranks = jnp.stack([by_point[:, rank] for rank in range(count)]), leaves.ranks
    for rank in range(count):
        is_it = jnp.arange(len(ranks), dtype=index.dtype)[:, None] == index[:, rank]
        ranks = jnp.where(is_it, rank, ranks)
    number = jnp.full(active.shape, count)
    if not on_all:
        variance = without_largest(distribution, ranks, jnp.asarray(count)).moments()[0]
        dominating = jnp.zeros_like(number)
        for rank in reversed(range(count)):
            dominates = (largest[rank] > 2.0 * jnp.sqrt(variance)) & (dominating == 0)
            dominating = jnp.where(dominates, rank + 1, dominating)
            variance = variance + largest[rank] * largest[rank] / 3.0
        number = jnp.where(dominating > 0, dominating, number)
    # A step to ``y - w`` is -1, one to ``y + w`` is 1; the last level only mirrors. A node's
    # polynomial is added once, with the first of the leaves below it.
    steps = np.array(list(itertools.product((-1.0, 1.0), repeat=count)), dtype).T[::-1]
    is_first = jnp.asarray([(steps[level:] < 0).all(axis=0) for level in range(count + 1)])
    all_steps = jnp.asarray(np.pad(steps, [(0, 1), (0, 0)]))
    leaves = leaves._replace(ranks=ranks, largest=largest, number=number)
    all_rows = Rows(distribution, leaves, derivatives)

    def descend(level: Array, state: tuple[Array, ...]) -> tuple[Array, ...]:
        numbers, signs, rows = state
        (point, distance), coefficient = numbers[:2], numbers[2:]
        rest = without_largest(distribution, ranks, level).weights
        square = rest * rest
        width, sum_square, sum_quartic = sums_of(rest, square, square * square)
        here = (order + level)[:, None]
        # Mirror to the tail side of the sum at this level.
        is_left = (point < 0) & (level <= number)
        side = jnp.where(is_left, -1.0, 1.0).astype(dtype)
        point, signs = side * point, side * signs
        distance = jnp.where(is_left, width - point, distance)
        moments = moments_of(sum_square, sum_quartic, normal_variance)
        values = tail_polynomials(here, powers(point), moments, derivatives > 0)
        # Powers of points far out may overflow.
        counts = is_left & active & is_first[level][:, None]
        values = jnp.where(counts, values * coefficient, 0.0)
        rows = rows + all_rows.of_polynomials(values, signs[:, None], level)
        coefficient = jnp.where(is_left & (here % 2 == 1), -coefficient, coefficient)
        # Condition on its largest weight. Beyond the support, and at a weight of zero, which means
        # a point mass, nothing is left.
        step, conditions = all_steps[level][:, None], level < number
        weight = largest[jnp.minimum(level, count - 1)]
        inside = jnp.minimum(weight, jnp.maximum(distance, normal_variance)) > 0
        share = jnp.where(inside, -0.5 * step / jnp.where(inside, weight, 1.0), 0.0)
        coefficient = jnp.where(conditions, share * coefficient, coefficient)
        moved = jnp.where(conditions & inside, weight, 0.0)
        point = point + step * moved
        distance = jnp.where(step > 0, distance - 2.0 * moved, distance)
        is_weight = np.arange(len(signs))[:, None, None] == level + 1
        signs = jnp.where(conditions & is_weight, step, signs)
        return jnp.stack([point, distance, *coefficient]), signs, rows

    start = leaves.numbers, leaves.signs, rows
    numbers, signs, rows = lax.fori_loop(0, count + 1, descend, start)
    return leaves._replace(numbers=numbers, signs=signs), rows
