"""Estimates of tables, from draws and from pairs: statistics, correlations, tests of uniformity.

Statistics are those of `nn_uq_dist.sampling`: draws are a weighted sample with equal weights. Their
standard errors assume independent draws of one distribution and nothing else about it.
"""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from nn_uq_dist.basics import checks
from nn_uq_dist.basics.concrete import FloatArray
from nn_uq_dist.sampling import PairedStatistics
from nn_uq_dist.sampling.distribution_functions import (
    exceedances,
    kolmogorov_smirnov,
    quantiles,
)
from nn_uq_dist.sampling.weighted_sample import MOMENTS, WeightedSample

# Rows of joint draws that are processed at a time; this bounds the memory.
BLOCK_ROWS = 2**15
# Most draws for the uniformity test: with more it takes seconds and rejects every approximation.
UNIFORMITY_DRAWS = 10_000
# p-values of ArviZ's uniformity test, and the share of uniform samples with a smaller one, from
# 120,000 samples of 100 to 10,000 draws; samples of different sizes agree within 0.005.
_NOMINAL = (0.0, 0.005, 0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.49, 0.5)
_ACTUAL = (0.0, 0.0059, 0.0122, 0.0247, 0.0651, 0.1363, 0.2116, 0.292, 0.482, 0.744, 0.9967, 1.0)


def of_draws(draws: FloatArray, levels: FloatArray, points: FloatArray) -> FloatArray:
    """Statistics of the finite draws of an output, ``(n,)``.

    Returns
    -------
    FloatArray
        Value, standard error and worth of the moments, of the quantiles at the levels, and of the
        probabilities above the points, shape ``(3, statistics, 1)``.
    """
    sample = WeightedSample.equal(draws.size)
    moments = [statistic(sample, draws) for statistic in MOMENTS.values()]
    found = *moments, quantiles(sample, draws, levels), exceedances(sample, draws, points)
    return np.concatenate([np.reshape(part, (3, -1, 1)) for part in found], axis=1)


def of_pairs(pairs: PairedStatistics, levels: FloatArray, points: FloatArray) -> FloatArray:
    """The same of all outputs from pairs, with points ``(p, outputs)``."""
    at = points.reshape(-1, *pairs.batch_shape, pairs.num_outputs)
    moments = [getattr(pairs, name) for name in MOMENTS]
    found = *moments, pairs.quantile(levels), pairs.exceedance(at)
    return np.concatenate([np.reshape(p, (3, -1, points.shape[1])) for p in found], axis=1)


def sample_correlation(draws: NDArray[np.floating]) -> tuple[FloatArray, FloatArray]:
    r"""Correlation matrix of the rows, and the standard errors of its entries.

    To first order in ``1/n`` a correlation `r` is the average of its influence function
    ``z_i z_j - r (z_i^2 + z_j^2) / 2`` of the standardized draw, whose variance needs only the
    fourth moments. These are taken from the sample: no normality is assumed. For normal draws the
    standard error is the textbook ``(1 - r^2) / sqrt(n)``.

    Parameters
    ----------
    draws
        Finite, shape ``(n, N_y)``.

    Returns
    -------
    (FloatArray, FloatArray)
        Both ``(N_y, N_y)``; NaN for constant columns.

    References
    ----------
    H. Cramer, Mathematical Methods of Statistics (1946).
    """
    count, size = draws.shape
    largest = np.abs(draws).max(axis=0).astype(np.float64)
    unit = np.where(largest > 0, largest, 1)  # the squares of small numbers would be zero

    def blocks() -> Iterator[FloatArray]:
        for start in range(0, count, BLOCK_ROWS):
            yield draws[start : start + BLOCK_ROWS].astype(np.float64) / unit

    mean = sum(np.sum(x, axis=0) for x in blocks()) / count
    scale = np.sqrt(sum(np.sum((x - mean) ** 2, axis=0) for x in blocks()) / count)
    # The spread of a constant column is only rounding error.
    scale = np.where(scale > 4 * np.finfo(np.float64).eps, scale, np.nan)
    r, m22, m31 = np.zeros((3, size, size))
    for x in blocks():
        z = (x - mean) / scale
        square = z * z
        r += z.T @ z / count
        m22 += square.T @ square / count
        m31 += (square * z).T @ z / count
    m40 = np.diag(m22)
    variance = m22 - r * (m31 + m31.T) + r**2 / 4 * (m40[:, None] + 2 * m22 + m40)
    error = np.sqrt(np.maximum(variance, 0) / count)
    r = np.clip(r, -1, 1)
    np.fill_diagonal(error, np.where(np.isnan(scale), np.nan, 0))
    np.fill_diagonal(r, np.where(np.isnan(scale), np.nan, 1))
    return r, error


def uniformity_p_value(probabilities: FloatArray) -> float:
    """P-value of the hypothesis that probabilities are independent and uniform.

    ArviZ's pointwise order statistics test with a Cauchy combination (``pot_c``), calibrated: in
    simulations its own p-value is below 0.05 for 6.5% of uniform samples, so it is replaced by the
    share of uniform samples with a smaller one.

    Parameters
    ----------
    probabilities
        In the order of the draws, shape ``(n,)``; the first 10,000 are tested.

    References
    ----------
    Tesso and Vehtari (2026), arXiv 2603.02928, as cited by ArviZ for the truncated combination.
    """
    array_stats = checks.require_extra("arviz_stats.base", "diagnostics.summary").array_stats
    p_value, _, _ = array_stats.uniformity_test(probabilities[:UNIFORMITY_DRAWS], method="pot_c")
    return float(np.interp(p_value, _NOMINAL, _ACTUAL))


def uniform_distance(u: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Kolmogorov-Smirnov distance of each column from the uniform distribution, and its p-value.

    Parameters
    ----------
    u
        Shape ``(n, d)``.

    Returns
    -------
    (FloatArray, FloatArray)
        Both ``(d,)``. The p-value is Kolmogorov's limit with Vrbik's correction. It is accurate to
        0.001 for 100 draws and more, and takes much less time than the exact one.

    References
    ----------
    J. Vrbik, Small-sample corrections to Kolmogorov-Smirnov test statistic, Pioneer J. Theoret.
    Appl. Statist. 15 (2018).
    """
    from scipy.special import kolmogorov

    count = len(u)
    distance = np.array([kolmogorov_smirnov(column).value for column in u.T])
    root = np.sqrt(count)
    scaled = root * distance
    return distance, kolmogorov(scaled + 1 / (6 * root) + (scaled - 1) / (4 * count))
