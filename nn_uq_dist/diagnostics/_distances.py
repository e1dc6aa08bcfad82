"""Distances between the distribution functions of draws and of a law, and tests of them.

One output is a one-dimensional float64 array of the probabilities ``F(x)`` at its finite draws.
NumPy and SciPy only.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nn_uq_dist.basics import _checks

Array = NDArray[np.float64]

# Most draws for the uniformity test: with more it takes seconds and rejects every approximation.
UNIFORMITY_DRAWS = 10_000
# p-values of ArviZ's uniformity test, and the share of uniform samples with a smaller one, from
# 120,000 samples of 100 to 10,000 draws; samples of different sizes agree within 0.005.
_NOMINAL = (0.0, 0.005, 0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.49, 0.5)
_ACTUAL = (0.0, 0.0059, 0.0122, 0.0247, 0.0651, 0.1363, 0.2116, 0.292, 0.482, 0.744, 0.9967, 1.0)


class Distance(NamedTuple):
    """A distance between a law and draws, its error, and its expected value if they agree."""

    value: float
    standard_error: float
    noise_floor: float


def kolmogorov_smirnov(probabilities: Array) -> Distance:
    """Largest difference between the distribution functions of the draws and of the law.

    Parameters
    ----------
    probabilities
        ``F(x)`` at the sorted draws, shape ``(n,)``.

    Returns
    -------
    Distance
        The standard error is that of the empirical function where the distance is attained,
        ``sqrt(F_n (1 - F_n) / n)``, valid when the laws differ. The noise floor is the mean of the
        Kolmogorov law, ``sqrt(pi / 2) log(2) / sqrt(n)``. All three are NaN if a probability is
        NaN.
    """
    count = probabilities.size
    ranks = np.arange(count + 1) / count
    gaps = np.maximum(ranks[1:] - probabilities, probabilities - ranks[:-1])
    widest = int(np.argmax(gaps))  # stops at the first NaN
    level = ranks[widest + int(ranks[widest + 1] - probabilities[widest] == gaps[widest])]
    error = np.sqrt(level * (1 - level) / count)
    floor = kolmogorov_noise_floor(count)
    if np.isnan(gaps[widest]):
        error = floor = np.nan
    return Distance(float(gaps[widest]), float(error), floor)


def kolmogorov_noise_floor(count: int) -> float:
    """Mean Kolmogorov-Smirnov distance between this many draws and their own law."""
    return float(np.sqrt(np.pi / 2) * np.log(2) / np.sqrt(count))


def uniformity_p_value(probabilities: Array) -> float:
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
    array_stats = _checks.require_extra("arviz_stats.base", "diagnostics.summary").array_stats
    p_value, _, _ = array_stats.uniformity_test(probabilities[:UNIFORMITY_DRAWS], method="pot_c")
    return float(np.interp(p_value, _NOMINAL, _ACTUAL))


def uniform_distance(u: Array) -> tuple[Array, Array]:
    """Kolmogorov-Smirnov distance of each column from the uniform law on (0, 1), and its p-value.

    Parameters
    ----------
    u
        Shape ``(n, d)``.

    Returns
    -------
    (Array, Array)
        Both ``(d,)``. The p-value is Kolmogorov's limit with Vrbik's correction. It is accurate to
        0.001 for 100 draws and more, and takes much less time than the exact one.

    References
    ----------
    J. Vrbik, Small-sample corrections to Kolmogorov-Smirnov test statistic, Pioneer J. Theoret.
    Appl. Statist. 15 (2018).
    """
    from scipy.special import kolmogorov

    count = len(u)
    distance = np.array([kolmogorov_smirnov(column).value for column in np.sort(u, axis=0).T])
    root = np.sqrt(count)
    scaled = root * distance
    return distance, kolmogorov(scaled + 1 / (6 * root) + (scaled - 1) / (4 * count))
