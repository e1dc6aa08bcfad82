"""Statistics of joint draws: correlations, energy distances, uniformity. NumPy and SciPy only."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

# Rows that are worked on at a time: bounds the memory.
BLOCK_ROWS = 2**15
# Numbers in one block of distances.
BLOCK_NUMBERS = 2**21


def sample_correlation(draws: NDArray[np.floating]) -> tuple[Array, Array]:
    r"""Correlation matrix of the rows, and the standard errors of its entries.

    To first order in ``1/n`` a correlation `r` is the average of its influence function
    ``z_i z_j - r (z_i^2 + z_j^2) / 2`` of the standardized draw, whose variance needs the fourth
    moments only, which are taken from the sample: no normality is assumed. For normal draws it is
    the textbook ``(1 - r^2) / sqrt(n)``.

    Parameters
    ----------
    draws
        Finite, shape ``(n, N_y)``.

    Returns
    -------
    (Array, Array)
        Both ``(N_y, N_y)``; NaN for constant columns.

    References
    ----------
    H. Cramer, Mathematical Methods of Statistics (1946).
    """
    count, size = draws.shape
    mean = draws.mean(axis=0, dtype=np.float64)
    largest = np.abs(draws).max(axis=0).astype(np.float64)
    scale = np.sqrt(sum(np.sum((x - mean) ** 2, axis=0) for x in _blocks(draws)) / count)
    # A constant column has a spread of rounding errors only.
    scale = np.where(scale > 4 * np.finfo(np.float64).eps * largest, scale, np.nan)
    products, squares, cubes = np.zeros((3, size, size))
    for x in _blocks(draws):
        z = (x - mean) / scale
        square = z * z
        products += z.T @ z
        squares += square.T @ square
        cubes += (square * z).T @ z
    r, m22, m31 = products / count, squares / count, cubes / count
    m40 = np.diag(m22)
    variance = m22 - r * (m31 + m31.T) + r**2 / 4 * (m40[:, None] + 2 * m22 + m40)
    error = np.sqrt(np.maximum(variance, 0) / count)
    np.fill_diagonal(error, np.where(np.isnan(scale), np.nan, 0))
    r = np.clip(r, -1, 1)
    np.fill_diagonal(r, np.where(np.isnan(scale), np.nan, 1))
    return r, error


class EnergyDistance(NamedTuple):
    """Energy distance of two samples.

    Attributes
    ----------
    value
        Unbiased estimate of ``2 E|X - Y| - E|X - X'| - E|Y - Y'|``; it scatters about 0 for
        samples of one law, so that it may be negative.
    standard_error
        Of `value`, for laws that differ.
    coefficient
        `value` over ``2 E|X - Y|``: 0 for equal laws, at most 1.
    """

    value: float
    standard_error: float
    coefficient: float


def energy_distance(x: Array, y: Array) -> EnergyDistance:
    r"""Energy distance of two samples of vectors, shapes ``(m, d)`` and ``(n, d)``.

    The U-statistic, with its standard error from the projections
    ``2 (mean_j |x_i - y_j| - mean_j |x_i - x_j|)`` of every row (Hoeffding's).

    References
    ----------
    G. J. Szekely and M. L. Rizzo, Energy statistics: a class of statistics based on distances,
    J. Statist. Plann. Inference 143 (2013).
    """
    m, n = len(x), len(y)
    to_y = _sums_of_distances(x, y, np.ones((n, 1)))[:, 0] / n
    to_x = _sums_of_distances(y, x, np.ones((m, 1)))[:, 0] / m
    within_x = _sums_of_distances(x, x, np.ones((m, 1)))[:, 0] / (m - 1)
    within_y = _sums_of_distances(y, y, np.ones((n, 1)))[:, 0] / (n - 1)
    value = 2 * to_y.mean() - within_x.mean() - within_y.mean()
    error = 2 * np.sqrt(np.var(to_y - within_x) / m + np.var(to_x - within_y) / n)
    # All draws in one point: equal laws.
    coefficient = value / (2 * to_y.mean()) if to_y.mean() > 0 else 0.0
    return EnergyDistance(float(value), float(error), float(coefficient))


def energy_of_random_halves(x: Array, num_splits: int, seed: int) -> Array:
    """Energy distances between random halves of one sample: what equal laws give.

    Parameters
    ----------
    x
        Shape ``(2 m, d)``.
    num_splits
        Number of random splits; all share one pass over the distances.
    seed
        Of NumPy's generator.

    Returns
    -------
    Array, shape ``(num_splits,)``
        As ``energy_distance(half, other_half).value``.
    """
    count = len(x)
    half = count // 2
    generator = np.random.default_rng(seed)
    signs = np.where(np.arange(count) < half, 1.0, -1.0)
    signs = np.stack([generator.permutation(signs) for _ in range(num_splits)], axis=1)
    # With s the signs, s' D s = within - 2 between, and 1' D 1 = within + 2 between.
    sums = _sums_of_distances(x, x, np.hstack([signs, np.ones((count, 1))]))
    total = sums[:, -1].sum()
    difference = np.sum(signs * sums[:, :-1], axis=0)
    between, within = (total - difference) / 4, (total + difference) / 2
    distances: Array = 2 * between / half**2 - within / (half * (half - 1))
    return distances


def whitened(scores: Array, correlation: Array) -> Array:
    """``L^-1 z`` for each row `z`, with the Cholesky factor `L` of the correlation.

    Entry `j` is the standardized residual of ``z_j`` given the entries before it; independent
    standard normal if `z` is normal with this correlation (Rosenblatt's transformation).
    """
    from scipy.linalg import cholesky, solve_triangular

    factor = cholesky(correlation, lower=True)
    white: Array = solve_triangular(factor, scores.T, lower=True).T
    return white


def uniform_distance(u: Array) -> tuple[Array, Array]:
    """Kolmogorov-Smirnov distance of each column from the uniform law on (0, 1), and its p-value.

    Parameters
    ----------
    u
        Shape ``(n, d)``.

    Returns
    -------
    (Array, Array)
        Both ``(d,)``. The p-value is Kolmogorov's limit with Vrbik's correction, right to 0.001
        for 100 draws and more, and much faster than the exact one.

    References
    ----------
    J. Vrbik, Small-sample corrections to Kolmogorov-Smirnov test statistic, Pioneer J. Theoret.
    Appl. Statist. 15 (2018).
    """
    from scipy.special import kolmogorov

    count = len(u)
    ordered = np.sort(u, axis=0)
    ranks = np.arange(count + 1)[:, None] / count
    distance = np.maximum(ranks[1:] - ordered, ordered - ranks[:-1]).max(axis=0)
    root = np.sqrt(count)
    scaled = root * distance
    return distance, kolmogorov(scaled + 1 / (6 * root) + (scaled - 1) / (4 * count))


def _blocks(draws: NDArray[np.floating]) -> Iterator[Array]:
    for start in range(0, len(draws), BLOCK_ROWS):
        yield draws[start : start + BLOCK_ROWS].astype(np.float64)


def _sums_of_distances(x: Array, y: Array, coefficients: Array) -> Array:
    """``sum_j |x_i - y_j| c_jk`` for all `i` and `k`, with the distances of some rows at a time."""
    from scipy.spatial.distance import cdist

    rows = max(1, BLOCK_NUMBERS // len(y))
    parts = [cdist(x[k : k + rows], y) @ coefficients for k in range(0, len(x), rows)]
    return np.concatenate(parts)
