"""Numbers of the figures of single outputs: ranges, histograms, intervals, ECDF differences."""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaincinv

from nn_uq_dist.basics.concrete import FloatArray

# Range of a density panel: this much on either side, or more to include most draws.
RANGE_IN_SD = 4.0
TAIL = 1e-4  # share of the draws that may lie outside the panel on either side
DRAWN_RANKS = 1000


def density_range(
    mean: FloatArray,
    sd: FloatArray,
    ends: tuple[FloatArray, FloatArray],
    columns: Sequence[FloatArray],
) -> tuple[FloatArray, FloatArray]:
    """Return the range of a density panel, cut at the ends of the support, with most draws."""
    low = np.maximum(mean - RANGE_IN_SD * sd, ends[0])
    high = np.minimum(mean + RANGE_IN_SD * sd, ends[1])
    for k, column in enumerate(columns):
        if column.size:
            inner = np.quantile(column, [TAIL, 1 - TAIL])
            low[k], high[k] = min(low[k], inner[0]), max(high[k], inner[1])
    return low, high


def histogram(
    column: FloatArray, num_draws: int, low: float, high: float, num_bins: int
) -> tuple[FloatArray, FloatArray]:
    """Heights, normalized by `num_draws`, and edges of the histogram of sorted draws."""
    edges = np.linspace(low, high, num_bins + 1)
    # The draw at the upper end belongs to the last bin.
    counts = np.diff(np.searchsorted(column, [*edges[:-1], np.nextafter(high, np.inf)]))
    return counts / (num_draws * np.diff(edges)), edges


def clopper_pearson(
    count: NDArray[np.int64], total: int, coverage: float
) -> tuple[FloatArray, FloatArray]:
    """Ends of the exact intervals of a binomial probability."""
    tail = (1 - coverage) / 2
    low = np.where(count > 0, betaincinv(np.maximum(count, 1), total - count + 1, tail), 0.0)
    left = np.maximum(total - count, 1)
    high = np.where(count < total, betaincinv(count + 1, left, 1 - tail), 1.0)
    return low, high


def dkw_half_width(count: int, coverage: float) -> float:
    """Half-width of the band about a distribution function that contains the empirical one."""
    return math.sqrt(math.log(2 / (1 - coverage)) / (2 * count))


def ecdf_difference(transforms: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Empirical minus uniform distribution function, and the point of the largest difference.

    Parameters
    ----------
    transforms
        Ascending, shape ``(n,)``.

    Returns
    -------
    (ndarray, ndarray)
        The curve, shape ``(2, points)``: at about a thousand of the draws, just below and at each,
        including the largest difference. The point of the largest difference, shape ``(2,)``.
    """
    count = transforms.size
    steps = np.arange(count + 1) / count
    below, at = steps[:-1] - transforms, steps[1:] - transforms
    widest = int(np.argmax(np.maximum(np.abs(below), np.abs(at))))
    ranks = np.linspace(0, count - 1, min(count, DRAWN_RANKS)).astype(int)
    ranks = np.unique(np.append(ranks, widest))
    x = np.repeat(transforms[ranks], 2)
    y = np.stack([below[ranks], at[ranks]], axis=-1).ravel()
    curve = np.stack([np.concatenate([[0.0], x, [1.0]]), np.concatenate([[0.0], y, [0.0]])])
    value = at[widest] if abs(at[widest]) >= abs(below[widest]) else below[widest]
    return curve, np.array([transforms[widest], value])


def difference_words(curve: FloatArray, band: float) -> str:
    """What a curve of `ecdf_difference` says that leaves the band of chance, or does not."""
    x, y = curve
    low, high = -y.min(), y.max()
    if max(low, high) <= band:
        return "no difference beyond chance"
    if min(low, high) > max(band, max(low, high) / 3):  # an S, not an arch
        return f"predicted too {'wide' if x[y.argmin()] < x[y.argmax()] else 'narrow'}"
    return f"draws {'larger' if low > high else 'smaller'} than predicted"
