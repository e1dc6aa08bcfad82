"""The law of ``sum_k w_k U_k + s N``, in the layout that all numerics of this package share."""

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array, lax

from nn_uq_dist.basics._row_algebra import binary_unit

# Factors that are multiplied at a time; the number of rows in use is a multiple of this.
ROWS_PER_GROUP = 4


class Law(NamedTuple):
    """A batch of laws, weights first: column ``b`` is the law of point ``b``.

    Attributes
    ----------
    weights : Array, shape (n, B)
        Weights of the uniforms on (-1, 1); non-negative in everything that `evaluate_each_point`
        calls.
    normal_scale : Array, shape (B,), or None
        None means that there is no normal part, which is part of the pytree structure.
    num_rows : Array of int, or None
        How many rows of weights are in use, a multiple of `ROWS_PER_GROUP`; the others are zero and
        cost nothing. None: all of them.
    """

    weights: Array
    normal_scale: Array | None
    num_rows: Array | None = None

    @property
    def normal_variance(self) -> Array:
        """Variance of the normal part, zero without one, shape (B,)."""
        if self.normal_scale is None:
            return jnp.zeros(self.weights.shape[1:], self.weights.dtype)
        return self.normal_scale * self.normal_scale

    @property
    def width(self) -> Array:
        """Half-width of the support without the normal part, shape (B,)."""
        return jnp.sum(self.weights, axis=0)

    def moments(self) -> tuple[Array, Array]:
        """Second and fourth moment, shape (B,)."""
        squares = self.weights * self.weights
        second = jnp.sum(squares, axis=0) / 3.0 + self.normal_variance
        fourth = 3.0 * second * second - 2.0 / 15.0 * jnp.sum(squares * squares, axis=0)
        return second, fourth


def distance_from_edge(y: Array, weights: Array) -> Array:
    """``sum(weights) - y`` without the rounding of the sum (two-sum, D. E. Knuth, TAOCP 2)."""
    if not weights.shape[0]:
        return -y

    def add(k: Array, state: tuple[Array, Array]) -> tuple[Array, Array]:
        total, error = state
        weight = weights[k]
        new = total + weight
        shadow = new - total
        return new, error + ((total - (new - shadow)) + (weight - shadow))

    total, error = lax.fori_loop(0, weights.shape[0], add, (-y, jnp.zeros_like(y)))
    return total + error


def binary_scale(law: Law) -> Array:
    """Power of two near the largest weight: scaling by it causes no rounding."""
    largest = jnp.max(jnp.abs(law.weights), axis=0, initial=0.0)
    if law.normal_scale is not None:
        largest = jnp.maximum(largest, law.normal_scale)
    return binary_unit(largest)
