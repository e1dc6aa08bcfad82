r"""Which standard variables of an input are split, and into how many parts.

In a part where variable ``k`` has variance :math:`v_k`, the mean square error of a linearization of
output ``j`` is about

.. math:: e_j = \sum_k \tfrac14 H_{jkk}^2\, c_k v_k^2 + \sum_{k < l} H_{jkl}^2\, v_k v_l

with its second derivatives ``H`` and :math:`c_k = E[u^4]/v^2`, 9/5 for uniform and 3 for normal
variables. The squares of the derivatives are mean squares of differences of Jacobians over half of
the input: at the mean alone, the second derivatives of an odd function are zero.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from nn_uq_dist.basics._known_values import FloatArray
from nn_uq_dist.linearization._normal_parts import MOST_NORMAL_PARTS, normal_parts

# Offsets at which Jacobians are compared with that at the mean.
UNIFORM_OFFSET = 0.6
NORMAL_OFFSET = 1.2
# Errors below 1e-4 standard deviations are accepted.
_NEGLIGIBLE = 1e-8
# Weight of the variance of drawn centers against the mean square error of linearizations, by their
# effect on distribution functions; for Sobol points.
_PRICE_OF_DRAWING = 4.0
_MOST_PARTS_OF_ONE = 2**12


class Curvature(NamedTuple):
    """The properties of a network on which the choice depends.

    Attributes
    ----------
    slopes : numpy.ndarray, shape (N_y, K)
        Derivatives in the standard variables.
    squares : numpy.ndarray, shape (N_y, K, K)
        Squares of second derivatives.
    num_uniform : int
        How many of the variables are uniform; they come first.
    """

    slopes: FloatArray
    squares: FloatArray
    num_uniform: int

    @property
    def whole(self) -> FloatArray:
        """Variances of the variables."""
        count = self.slopes.shape[-1]
        return np.where(np.arange(count) < self.num_uniform, 1 / 3, 1.0)

    def error(self, variances: FloatArray) -> float:
        """Mean square error of linearizations over the variance, averaged over the outputs."""
        left = self._left_out(variances)
        total = self.slopes**2 @ self.whole + self._left_out(self.whole)
        return float(np.mean(np.where(total > 0, left / np.where(total > 0, total, 1), 0)))

    def between(self, variances: FloatArray) -> float:
        """Share of the variance that is due to the centers of the parts."""
        within, total = self.slopes**2 @ variances, self.slopes**2 @ self.whole
        return float(1 - np.mean(np.where(total > 0, within / np.where(total > 0, total, 1), 1)))

    def _left_out(self, variances: FloatArray) -> FloatArray:
        kurtosis = np.where(np.arange(len(variances)) < self.num_uniform, 9 / 5, 3.0)
        # Half of the sum over pairs in both orders.
        factors = np.outer(variances, variances) / 2
        np.fill_diagonal(factors, kurtosis * variances**2 / 4)
        return np.einsum("jkl,kl->j", self.squares, factors)


def choose_splits(curvature: Curvature, num_parts: int, *, may_draw: bool) -> tuple[int, ...]:
    """Parts along each variable; more than ``num_parts`` in total if some of them are to be drawn.

    In each step, one more part goes to the variable that lowers the error most for its cost.
    """

    def loss(cut: tuple[tuple[int, ...], FloatArray]) -> float:
        splits, variances = cut
        error = curvature.error(variances)
        if np.prod(np.array(splits, float)) > num_parts:
            error += _PRICE_OF_DRAWING * curvature.between(variances) / num_parts
        return error

    best, _ = min(_cuts(curvature, num_parts, may_draw=may_draw), key=loss)
    return best


def _cuts(
    curvature: Curvature, num_parts: int, *, may_draw: bool
) -> Iterator[tuple[tuple[int, ...], FloatArray]]:
    """Yield one part, and in each step one more along one of the variables."""
    splits = np.ones(len(curvature.whole), int)
    tables: dict[tuple[bool, int], float] = {}

    def relative(k: int, count: int) -> float:
        is_uniform = k < curvature.num_uniform
        if (is_uniform, count) not in tables:
            squared = 1 / count**2 if is_uniform else normal_parts(count).mean_square
            tables[is_uniform, count] = squared
        return tables[is_uniform, count]

    while True:
        shares = np.array([relative(k, int(count)) for k, count in enumerate(splits)])
        variances = curvature.whole * shares
        yield tuple(int(count) for count in splits), variances
        error = curvature.error(variances)
        if error <= _NEGLIGIBLE:
            return
        product = np.prod(splits.astype(float))
        gains = np.full(len(splits), -np.inf)
        for k, count in enumerate(splits):
            most = num_parts if k < curvature.num_uniform else min(num_parts, MOST_NORMAL_PARTS)
            fits = may_draw or product / count * (count + 1) <= num_parts
            if count >= min(most, _MOST_PARTS_OF_ONE) or not fits:
                continue
            changed = variances.copy()
            changed[k] = curvature.whole[k] * relative(k, int(count) + 1)
            gains[k] = (error - curvature.error(changed)) / np.log1p(1 / count)
        if not (gains.max() > 0):
            return
        splits[np.argmax(gains)] += 1
