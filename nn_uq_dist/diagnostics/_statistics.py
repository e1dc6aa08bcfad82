"""Statistics of Monte Carlo draws, each with its standard error: NumPy only, one sample at a time.

Every function takes a sorted one-dimensional float64 array of finite draws, independent and from
one law about which nothing else is assumed.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


class Estimate(NamedTuple):
    """A statistic of a sample and the standard error of it."""

    value: float
    standard_error: float


UNKNOWN = Estimate(float("nan"), float("nan"))


def sample_moments(draws: Array) -> dict[str, Estimate]:
    r"""Mean, standard deviation, skewness and excess kurtosis with standard errors.

    To first order in ``1/n`` each statistic is an average of its influence function, a polynomial
    in the standardized draw `z`, so its standard error is the standard deviation of that polynomial
    over the square root of `n`. With ``g = E z^3`` and ``k = E z^4`` the influence functions are

    - mean: ``sd z``,
    - sd: ``sd (z^2 - 1) / 2``,
    - skewness: ``z^3 - 3 g z^2 / 2 - 3 z + g / 2``,
    - excess kurtosis: ``z^4 - 2 k z^2 - 4 g z + k``.

    Their variances need the moments up to the eighth, which are taken from the sample: no
    normality is assumed. For normal draws the last two are the textbook
    ``sqrt(6 / n)`` and ``sqrt(24 / n)``.

    With heavy tails the standard error of the excess kurtosis is too small and its error skewed,
    because the sample lacks the rare draws that make up the eighth moment. Median standard error
    over the true one, and share of errors within two standard errors (0.954 if right), for draws of
    Student's t: 20 degrees of freedom 0.85 and 0.92 at n = 4000, right at n = 100000; 10 degrees
    0.57 and 0.85, 0.85 and 0.90; with 8 or fewer the eighth moment does not exist and the standard
    error means nothing (6 degrees: 0.17 and 0.62, 0.43 and 0.74). Those of mean, sd and quantiles
    hold there; that of the skewness needs the sixth moment.

    Parameters
    ----------
    draws
        Shape ``(n,)``.

    Returns
    -------
    dict
        Keys `mean`, `sd` (divisor ``n - 1``), `skewness` (``m3 / m2^1.5``), `excess_kurtosis`
        (``m4 / m2^2 - 3``). The last two are NaN for a constant sample.

    References
    ----------
    H. Cramer, Mathematical Methods of Statistics (1946): variances of functions of moments;
    R. J. Serfling, Approximation Theorems of Mathematical Statistics (1980): the delta method.
    """
    count = draws.size
    mean = draws.mean()
    centered = draws - mean
    spread = np.sqrt(np.mean(centered**2))
    # A constant sample has a spread of rounding errors only, and they have no shape to report.
    if not spread > 4 * np.finfo(np.float64).eps * np.abs(draws[[0, -1]]).max():
        zero = Estimate(0.0, 0.0)
        return {
            "mean": Estimate(float(mean), 0.0),
            "sd": zero,
            "skewness": UNKNOWN,
            "excess_kurtosis": UNKNOWN,
        }
    z = centered / spread
    moments = [1.0]
    power = np.ones_like(z)
    for _ in range(8):
        power = power * z
        moments.append(float(power.mean()))
    skewness, kurtosis = moments[3], moments[4]

    def standard_error(*coefficients: float) -> float:
        variance = sum(
            a * b * moments[i + j]
            for i, a in enumerate(coefficients)
            for j, b in enumerate(coefficients)
        )
        # The variance of a two-point sample's kurtosis is 0 and may come out as -1e-17.
        return float(np.sqrt(max(variance, 0.0) / count))

    sd = spread * np.sqrt(count / (count - 1))
    return {
        "mean": Estimate(float(mean), float(spread * standard_error(0, 1))),
        "sd": Estimate(float(sd), float(spread * standard_error(-0.5, 0, 0.5))),
        "skewness": Estimate(skewness, standard_error(skewness / 2, -3, -1.5 * skewness, 1)),
        "excess_kurtosis": Estimate(
            kurtosis - 3, standard_error(kurtosis, -4 * skewness, -2 * kurtosis, 0, 1)
        ),
    }


def sample_quantiles(draws: Array, probabilities: Array) -> list[Estimate]:
    """Quantiles with standard errors from order statistics.

    The textbook standard error is ``sqrt(p (1 - p) / n)`` over the density at the quantile. The
    density is read off the sample: the order statistics two binomial standard deviations below
    and above the quantile are four standard errors apart (Woodruff's interval). Nothing is assumed
    about the law, and the scatter of the estimate is about ``0.5 (n p (1 - p))^-0.25``.

    Parameters
    ----------
    draws
        Shape ``(n,)``.
    probabilities
        Levels in (0, 1), shape ``(q,)``.

    Returns
    -------
    list of Estimate
        Values as ``numpy.quantile`` (linear interpolation). The standard error is NaN where the
        sample is too small to hold the interval (``n min(p, 1 - p)`` below about 4).

    References
    ----------
    R. S. Woodruff, Confidence intervals for medians and other position measures, J. Amer. Statist.
    Assoc. 47 (1952).
    """
    count = draws.size
    rank = np.arange(count, dtype=np.float64)
    position = probabilities * (count - 1)
    margin = 2 * np.sqrt(count * probabilities * (1 - probabilities))
    value, low, high = (np.interp(position + d, rank, draws) for d in (0, -margin, margin))
    inside = (position - margin >= 0) & (position + margin <= count - 1)
    error = np.where(inside, (high - low) / 4, np.nan)
    return [Estimate(float(v), float(e)) for v, e in zip(value, error, strict=True)]


def total_variation(draws: Array, edges: Array, masses: Array) -> tuple[Estimate, float]:
    r"""Total-variation distance between the draws and a law, both reduced to bins.

    ``0.5 sum_b |n_b / n - p_b|``, which is at most the distance of the laws themselves: what
    differs within a bin is not seen. Draws of the law itself do not give 0 but, on average, the
    noise floor ``sum_b sqrt(p_b (1 - p_b) / (2 pi n))``, half the mean absolute
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
    (Estimate, float)
        Distance with its standard error, and the noise floor. The standard error is the
        multinomial delta method's, ``sqrt((1 - (sum_b s_b n_b / n)^2) / (4 n))`` with `s_b` the
        sign of the deviation; near the floor it is an upper bound.
    """
    count = draws.size
    below = np.searchsorted(draws, edges, side="right")
    observed = np.diff(np.concatenate([[0], below, [count]])) / count
    deviation = observed - masses
    distance = 0.5 * np.abs(deviation).sum()
    tilt = np.sum(np.sign(deviation) * observed)
    error = np.sqrt(max(1 - tilt**2, 0.0) / (4 * count))
    floor = np.sqrt(np.clip(masses * (1 - masses), 0, None) / (2 * np.pi * count)).sum()
    return Estimate(float(distance), float(error)), float(floor)
