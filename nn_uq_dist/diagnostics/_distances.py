"""Distances between draws and a law, or of two samples, with their standard errors.

One output is a sorted one-dimensional float64 array: its finite draws, or the probabilities
``F(x)`` at them. NumPy and SciPy only.
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


def wasserstein(draws: Array, grid: Array, cdf: Array) -> Distance:
    r"""Area between the distribution functions of the draws and of the law, in units of the output.

    ``int |F_n - F| dx`` is the mean distance that draws of one law must move to become draws of the
    other. `F` is taken as linear between grid points; for that `F` the integral is exact.

    Parameters
    ----------
    draws
        Shape ``(n,)``.
    grid, cdf
        Ascending points that hold all but a negligible part of the law, and `F` there.

    Returns
    -------
    Distance
        With ``h(x)`` the integral of ``sign(F_n - F)`` up to `x`, the standard error is the
        standard deviation of ``h(X)`` over ``sqrt(n)`` (first order in the change of `F_n`, valid
        when the laws differ). The noise floor is ``int sqrt(2 F (1 - F) / (pi n)) dx``, the
        integral of the mean absolute deviation of `F_n`.

    References
    ----------
    S. S. Vallender, Calculation of the Wasserstein distance between probability distributions on
    the line, Theory Probab. Appl. 18 (1974).
    """
    count = draws.size
    points = np.sort(np.concatenate([draws, grid]), kind="stable")
    values = np.interp(points, grid, cdf, left=0.0, right=1.0)
    below = np.searchsorted(draws, points[:-1], side="right") / count
    width, left, right = np.diff(points), below - values[:-1], below - values[1:]
    crosses = left * right < 0
    apart = np.where(crosses, np.abs(left - right), 1.0)
    # Two triangles where the lines cross, else a trapezoid.
    height = np.where(
        crosses, (left**2 + right**2) / (2 * apart), (np.abs(left) + np.abs(right)) / 2
    )
    signs = np.where(crosses, np.sign(left) * (np.abs(left) - np.abs(right)) / apart,
                     np.sign(left + right))  # fmt: skip
    influence = np.concatenate([[0.0], np.cumsum(signs * width)])
    at_draws = influence[np.searchsorted(points, draws)]
    mass = np.clip(cdf * (1 - cdf), 0, None)
    return Distance(
        float(np.sum(height * width)),
        float(at_draws.std() / np.sqrt(count)),
        float(np.trapezoid(np.sqrt(2 * mass / (np.pi * count)), grid)),
    )


def wasserstein_of_probabilities(probabilities: Array) -> Distance:
    """Area between the distribution function of probabilities and that of the uniform law.

    Dimensionless, between 0 and 1/2: the mean probability by which a draw is misplaced.
    """
    grid = np.linspace(0, 1, 3)
    found = wasserstein(probabilities, grid, grid)
    # The floor of the uniform law in closed form: int sqrt(u (1 - u)) du = pi / 8.
    floor = np.sqrt(2 / (np.pi * probabilities.size)) * np.pi / 8
    return found._replace(noise_floor=float(floor))


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


def total_variation(draws: Array, edges: Array, masses: Array) -> Distance:
    r"""Total-variation distance between the draws and a law, both reduced to bins.

    ``0.5 sum_b |n_b / n - p_b|``, whose limit for many draws is at most the distance of the laws
    themselves: differences within a bin are not seen. Draws of the law itself do not give 0 but, on
    average, the noise floor ``sum_b sqrt(p_b (1 - p_b) / (2 pi n))``, half the mean absolute
    deviation of each bin's count.

    Parameters
    ----------
    draws
        Shape ``(n,)``.
    edges
        Edges between the bins, ascending, shape ``(bins - 1,)``; the outer bins reach to infinity.
    masses
        Mass of the law in each bin, shape ``(bins,)``.

    Returns
    -------
    Distance
        The standard error is that of the multinomial delta method, ``sqrt((1 - (sum_b s_b n_b /
        n)^2) / (4 n))`` with `s_b` the sign of the deviation; near the floor it is an upper bound.
    """
    count = draws.size
    below = np.searchsorted(draws, edges, side="right")
    observed = np.diff(np.concatenate([[0], below, [count]])) / count
    deviation = observed - masses
    distance = 0.5 * np.abs(deviation).sum()
    tilt = np.sum(np.sign(deviation) * observed)
    error = np.sqrt(max(1 - tilt**2, 0.0) / (4 * count))
    floor = np.sqrt(np.clip(masses * (1 - masses), 0, None) / (2 * np.pi * count)).sum()
    return Distance(float(distance), float(error), float(floor))


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
