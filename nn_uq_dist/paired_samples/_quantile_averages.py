r"""Averages of quantile functions over bins of probability, from draws, and their noise.

The average over a bin, :math:`\frac{1}{v - u} \int_u^v Q(p)\,dp`, is linear in the order
statistics. To first order in :math:`1/n` its error is the mean of the influence function

.. math:: \psi(y) = \frac{\min(\max(y, Q(u)), Q(v))}{v - u} + \mathrm{const}

(R. J. Serfling, Approximation Theorems of Mathematical Statistics (1980), chapter 8): no density
needs to be estimated, and the noise of a difference of paired samples is that of the difference
of their influence functions.
"""

import numpy as np
from jax import Array

from nn_uq_dist.basics._row_algebra import namespace
from nn_uq_dist.paired_samples._score_bins import ScoreBins


def sample_averages(ordered: Array, bins: ScoreBins) -> Array:
    """Averages of the quantile function of a sample.

    Parameters
    ----------
    ordered
        Ascending along the first axis, shape ``(n, J)``.
    bins
        The bins.

    Returns
    -------
    Array
        Shape ``(m, J)``.
    """
    xp = namespace(ordered)
    count = ordered.shape[0]
    # The integral of the quantile function, a step function, up to each probability. The median is
    # subtracted first: sums with a large mean would lose digits.
    center = ordered[count // 2]
    sums = xp.cumsum(ordered - center, axis=0)
    sums = xp.concatenate([xp.zeros_like(sums[:1]), sums]) / count
    position = bins.probabilities * count
    below = np.minimum(position.astype(int), count - 1)
    share = (position - below)[:, None].astype(ordered.dtype)
    at_edges = sums[below] * (1 - share) + sums[below + 1] * share
    widths = np.diff(bins.probabilities)[:, None].astype(ordered.dtype)
    averages: Array = center + (at_edges[1:] - at_edges[:-1]) / widths
    return averages


def influence(sample: Array, ordered: Array, bins: ScoreBins) -> Array:
    """Influence functions of `sample_averages` at the draws, minus their means.

    Parameters
    ----------
    sample, ordered
        The draws in their own order and ascending, both ``(n, J)``.
    bins
        The bins.

    Returns
    -------
    Array
        Shape ``(m, n, J)``.
    """
    xp = namespace(sample)
    count = sample.shape[0]
    position = bins.probabilities[1:-1] * (count - 1)
    below = np.minimum(position.astype(int), count - 2)
    share = (position - below)[:, None].astype(sample.dtype)
    at_edges = ordered[below] * (1 - share) + ordered[below + 1] * share
    low = xp.concatenate([ordered[:1], at_edges])[:, None]
    high = xp.concatenate([at_edges, ordered[-1:]])[:, None]
    widths = np.diff(bins.probabilities)[:, None, None].astype(sample.dtype)
    clipped = xp.minimum(xp.maximum(sample, low), high) / widths
    centered: Array = clipped - xp.mean(clipped, axis=1, keepdims=True)
    return centered
