"""Moments of weighted samples: to first order each is the mean of its influence function.

With the standardized output `z`, ``g = E z^3`` and ``k = E z^4`` the influence functions are

- mean and sd: ``sd z`` and ``sd (z^2 - 1) / 2``,
- skewness: ``z^3 - g - 3 z - 3 g (z^2 - 1) / 2``,
- excess kurtosis: ``z^4 - k - 4 g z - 2 k (z^2 - 1)``,
- correlation `r`: ``x z - r - r (x^2 + z^2 - 2) / 2``

(H. Cramer, Mathematical Methods of Statistics (1946); R. J. Serfling, Approximation Theorems of
Mathematical Statistics (1980)). Their variances need moments up to the eighth, which are taken from
the sample: no normality is assumed. For normal draws they are the textbook's, such as
``sqrt(24 / n)`` for the kurtosis.

With heavy tails the standard error of the excess kurtosis is too small and its error is skewed,
because the sample lacks the rare draws that dominate the eighth moment. For plain draws of
Student's t, the ratio of the median standard error to the true one and the share of errors within
two standard errors (0.954 if correct) are: with 20 degrees of freedom 0.85 and 0.92 at n = 4000,
correct at n = 100000; with 10 degrees 0.57 and 0.85 at n = 4000, 0.85 and 0.90 at n = 100000. With
8 or fewer the eighth moment does not exist and the standard error is meaningless (6 degrees: 0.17
and 0.62, 0.43 and 0.74). The standard errors of mean, sd and quantiles remain valid there; that of
the skewness needs the sixth moment.
"""

from typing import Any

import numpy as np

from nn_uq_dist.basics.concrete import FloatArray
from nn_uq_dist.sampling.weighted_sample import PairedEstimate, WeightedSample


def mean(sample: WeightedSample, y: FloatArray) -> PairedEstimate:
    """Mean."""
    center, deviation = _centered(sample, y)
    unit = _unit(deviation)
    _, error, worth = sample.estimate(center, deviation / unit)
    return PairedEstimate(center, unit * error, worth)


def sd(sample: WeightedSample, y: FloatArray) -> PairedEstimate:
    """Root of the variance."""
    _, deviation = _centered(sample, y)
    unit = _unit(deviation)
    square, error, worth = covariance(sample, deviation / unit, deviation / unit)
    root = np.sqrt(np.maximum(square, 0.0))
    return PairedEstimate(unit * root, unit * error / (2 * root if root > 0 else 1.0), worth)


def skewness(sample: WeightedSample, y: FloatArray) -> PairedEstimate:
    """Third standardized moment; NaN for a constant output."""
    z = _standardized(sample, y)
    square = z * z
    third = sample.mean(z * square)
    return sample.estimate(third, z * square - third - 3 * z - 1.5 * third * (square - 1))


def excess_kurtosis(sample: WeightedSample, y: FloatArray) -> PairedEstimate:
    """Fourth standardized moment minus 3; NaN for a constant output."""
    z = _standardized(sample, y)
    square = z * z
    third, fourth = sample.mean(np.stack([z * square, square**2]))
    influence = square**2 - fourth - 4 * third * z - 2 * fourth * (square - 1)
    return sample.estimate(fourth - 3, influence)


def covariance(sample: WeightedSample, x: FloatArray, y: FloatArray) -> PairedEstimate:
    """Covariance; unbiased to first order."""
    x, y = (_centered(sample, part)[1] for part in (x, y))
    product = sample.mean(x * y)
    # The estimated means are closer to the draws than the true ones. With equal weights the divisor
    # becomes n - 1; with Sobol points the errors of the means are of lower order.
    bias = 0.0
    if not sample.num_randomizations:
        left = sample.residuals(sample.of_all(np.stack([x, y])))
        bias = np.sum(sample.weights * sample.enlarged * left[0] * left[1])
    return sample.estimate(product + bias, x * y - product)


def correlation(sample: WeightedSample, x: FloatArray, y: FloatArray) -> PairedEstimate:
    """Correlation, clipped to [-1, 1]; NaN for constant outputs."""
    x, y = (_standardized(sample, part) for part in (x, y))
    value = sample.mean(x * y)
    influence = x * y - value / 2 * (x * x + y * y)
    return sample.estimate(np.clip(value, -1, 1), influence)


MOMENTS = {f.__name__: f for f in (mean, sd, skewness, excess_kurtosis)}


def _centered(sample: WeightedSample, y: FloatArray) -> tuple[Any, FloatArray]:
    """Mean, and deviations of the outputs from it; 0 for those that are not used."""
    # Without the first output, whose digits a sum would lose.
    first = y[np.argmax(sample.used)]
    deviation = sample.zeroed(y - first)
    center = sample.mean(deviation)
    return first + center, sample.zeroed(deviation - center)


def _unit(deviation: FloatArray) -> float:
    """A unit for deviations: the squares of small numbers would be zero."""
    return float(np.abs(deviation).max(initial=0)) or 1.0


def _standardized(sample: WeightedSample, y: FloatArray) -> FloatArray:
    """Outputs with mean 0 and variance 1; NaN for a constant output."""
    center, deviation = _centered(sample, y)
    unit = _unit(deviation)
    scaled = deviation / unit
    variance = sample.mean(scaled * scaled)
    # The spread of a constant output is only rounding error, whose shape means nothing.
    rounding = 4 * np.finfo(np.float64).eps * (abs(center) / unit + 1)
    return scaled / (np.sqrt(variance) if variance > rounding**2 else np.nan)
