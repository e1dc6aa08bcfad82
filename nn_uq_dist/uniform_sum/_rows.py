r"""Values and gradients as rows of one array: one kernel for all of them, whatever they are for.

The first row is the value, the next ones are its derivatives in the point, in the normal scale if
there is one, and in each weight. Every contribution to an integral has derivatives of the same
form, so that they are written down once, here.
"""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from nn_uq_dist.uniform_sum._contour_sum import Slopes
from nn_uq_dist.uniform_sum._uniform_sum import UniformSum


class Rows(NamedTuple):
    """What the derivatives of a distribution depend on; R rows, or the value alone.

    Attributes
    ----------
    sizes : Array, shape (R, B)
        Normal scale and weights; zero for value and point.
    ranks : Array of int, shape (R, B)
        Ranks of the weights that may be conditioned on; large for all other rows.
    normal_variance : Array, shape (B,)
    kinds : numpy.ndarray of int, shape (R,)
        0 for the value, 1 for the point, 2 for the scale and 3 for a weight.
    """

    sizes: Array
    ranks: Array
    normal_variance: Array
    kinds: NDArray[np.int_]

    @property
    def derivatives(self) -> bool:
        """Whether there are derivatives."""
        return len(self.kinds) > 1

    @property
    def of_y(self) -> Array:
        """Derivatives of ``y`` itself, shape (R, B)."""
        return jnp.zeros_like(self.sizes) + self._constant(0.0, 1.0, 0.0, 0.0)[:, 0]

    def zeros(self, order: Array) -> Array:
        """Nothing, shape (R, M, B)."""
        return jnp.zeros((len(self.sizes), *order.shape), self.sizes.dtype)

    def of_polynomial(self, values: Array, direction: Array, level: Array) -> Array:
        """Rows (R, M, B) of a polynomial at a node with ``level`` weights conditioned on.

        Parameters
        ----------
        values : Array, shape (K, M, B)
            The polynomial and those of lower orders, as of `tail_polynomials`.
        direction : Array, shape (R, B)
            Derivatives of its argument.
        level : Array of int, shape () or (B,)
        """
        if not self.derivatives:
            return values
        value, slope, second, fourth = values
        size = jnp.where(self.ranks < level, 0.0, self.sizes)[:, None]
        return (
            self._of_coefficient(level) * value
            + direction[:, None] * slope
            + (self._constant(0.0, 0.0, 1.0, 1 / 3) * size) * second
            + (self._constant(0.0, 0.0, 0.0, -1 / 45) * size * size * size) * fourth
        )

    def of_tail(self, value: Array, slopes: Slopes | None, direction: Array, level: Array) -> Array:
        """Rows of a tail integral: its value (M, B) and the derivatives of its logarithm."""
        if slopes is None:
            return value[None]
        scale = 2.0 * self.sizes[:, None] * slopes.normal_variance
        own = self._constant(0.0, 0.0, 1.0, 0.0) * scale + slopes.weights
        own = jnp.where((self.ranks < level)[:, None], 0.0, own)
        return value * (self._of_coefficient(level) + direction[:, None] * slopes.y + own)

    def _of_coefficient(self, level: Array) -> Array:
        """One for the value; a weight conditioned on divides the coefficient."""
        conditioned = self.ranks < level
        safe = jnp.where(conditioned & (self.sizes > 0), self.sizes, 1.0)
        of_value = self._constant(1.0, 0.0, 0.0, 0.0)
        return jnp.where(conditioned[:, None], -1.0 / safe[:, None], of_value)

    def _constant(self, value: float, point: float, scale: float, weight: float) -> Array:
        """Constants of the rows, shape (R, 1, 1)."""
        constants = [value, point, scale, weight]
        return jnp.asarray(np.array(constants)[self.kinds[:, None, None]], self.sizes.dtype)


def rows_of(distribution: UniformSum, ranks: Array, derivatives: int) -> Rows:
    """Rows of a distribution whose weights have these ranks, shape (n, B)."""
    variance = distribution.normal_variance
    shape = distribution.weights.shape
    parts = [jnp.zeros((2, shape[1]), distribution.weights.dtype), distribution.weights]
    kinds = [0, 1, *[3] * shape[0]]
    if distribution.normal_scale is not None:
        parts.insert(1, distribution.normal_scale[None])
        kinds.insert(2, 2)
    if not derivatives:
        return Rows(parts[0][:1], ranks[:1], variance, np.array(kinds[:1]))
    sizes = jnp.concatenate(parts)
    lead = len(sizes) - shape[0]
    padding = [(lead, 0), (0, 0)]
    ranks = jnp.pad(ranks, padding, constant_values=np.iinfo(np.int32).max)
    return Rows(sizes, ranks, variance, np.array(kinds))
