"""Energy distances between samples of vectors. NumPy and SciPy only."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

# Most numbers in one block of distances.
BLOCK_NUMBERS = 2**21


class EnergyDistance(NamedTuple):
    """Energy distance of two samples.

    Attributes
    ----------
    value
        Unbiased estimate of ``2 E|X - Y| - E|X - X'| - E|Y - Y'|``; for samples of one law it
        scatters about 0 and may be negative.
    standard_error
        Standard error of `value`, for laws that differ.
    coefficient
        `value` over ``2 E|X - Y|``: 0 for equal laws, at most 1.
    """

    value: float
    standard_error: float
    coefficient: float


def energy_distance(x: Array, y: Array) -> EnergyDistance:
    r"""Energy distance of two samples of vectors, shapes ``(m, d)`` and ``(n, d)``.

    The U-statistic, with its standard error from the projections
    ``2 (mean_j |x_i - y_j| - mean_j |x_i - x_j|)`` of every row (Hoeffding).

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
    # If all draws are at one point, the laws are equal.
    coefficient = value / (2 * to_y.mean()) if to_y.mean() > 0 else 0.0
    return EnergyDistance(float(value), float(error), float(coefficient))


def energy_of_random_halves(x: Array, num_splits: int, seed: int) -> Array:
    """Energy distances between random halves of one sample, as a reference for equal laws.

    Parameters
    ----------
    x
        Shape ``(2 m, d)``.
    num_splits
        Number of random splits; all share one pass over the distances.
    seed
        Seed of NumPy's generator.

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


def _sums_of_distances(x: Array, y: Array, coefficients: Array) -> Array:
    """``sum_j |x_i - y_j| c_jk`` for all `i` and `k`, computed for some rows at a time."""
    from scipy.spatial.distance import cdist

    rows = max(1, BLOCK_NUMBERS // len(y))
    parts = [cdist(x[k : k + rows], y) @ coefficients for k in range(0, len(x), rows)]
    return np.concatenate(parts)
