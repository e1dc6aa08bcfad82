"""Upper quantiles of the squared length of a uniform random vector, by Bernstein's inequality."""

import numpy as np

from nn_uq_dist.basics._float64 import FloatArray
from nn_uq_dist.inputs._terms import UNIFORM_VARIANCE


def bernstein_squared_norm(half_width: FloatArray, delta: float) -> FloatArray:
    r"""Bound that :math:`|z|^2 = \sum_k b_k^2 U_k^2` exceeds with probability at most `delta`.

    The terms are independent with mean :math:`b_k^2/3`, variance :math:`4 b_k^4/45`, and exceed
    their mean by at most :math:`2 b_k^2/3`. Bernstein: with v the sum of the variances and M the
    largest excess, :math:`P(|z|^2 - \sum_k b_k^2/3 \ge t) \le \exp(-t^2/(2 (v + M t/3)))`, which is
    `delta` at :math:`t = M l/3 + \sqrt{M^2 l^2/9 + 2 v l}`, :math:`l = \log(1/\delta)`. The result
    is at most the certain bound :math:`\sum_k b_k^2`.

    Maps shape ``(..., N_x)`` to ``(...)``.
    """
    squares = half_width**2
    certain = squares.sum(axis=-1)
    log_odds = -np.log(delta)
    variance = 4 / 45 * (squares**2).sum(axis=-1)
    linear = 2 / 9 * squares.max(axis=-1) * log_odds
    excess = linear + np.sqrt(linear**2 + 2 * variance * log_odds)
    return np.minimum(UNIFORM_VARIANCE * certain + excess, certain)


def printed_squared_norm(half_width: FloatArray, delta: float) -> FloatArray:
    r"""The paper's ``eq:z1_bound``, with :math:`\sum_k b_k^2` for :math:`N_x \beta^2`."""
    log_odds = -np.log(delta)
    certain = (half_width**2).sum(axis=-1)
    return certain * (UNIFORM_VARIANCE + np.sqrt(8 / 45 * log_odds) + 2 / 3 * log_odds)
