"""Moments of one and of two outputs from weighted draws, with their standard errors. NumPy only.

To first order an estimate is the mean of its influence function; the part that the controls do not
explain gives the standard error. Outputs that are not used may be NaN.
"""

import numpy as np
from numpy.typing import NDArray

from nn_uq_dist.sampling._control_variates import ControlledSample

Array = NDArray[np.float64]
# Value, standard error, worth.
Triple = tuple[float, float, float]

UNKNOWN: Triple = (float("nan"), float("nan"), float("nan"))


def mean(sample: ControlledSample, y: Array) -> Triple:
    """Mean."""
    return sample.estimate(*_centered(sample, y)) if sample.is_enough else UNKNOWN


def variance(sample: ControlledSample, y: Array) -> Triple:
    """Variance; unbiased to first order."""
    if not sample.is_enough:
        return UNKNOWN
    center, deviation = _centered(sample, y)
    _, error, _ = sample.estimate(center, deviation)
    square = sample.mean(deviation**2)
    # The estimated mean is closer to the draws than the true one, by its own variance.
    bias = error**2 if np.isfinite(error) else 0.0
    return sample.estimate(max(square, 0.0) + bias, deviation**2 - square)


def skewness(sample: ControlledSample, y: Array) -> Triple:
    """Third standardized moment; NaN for a constant output."""
    if not sample.is_enough:
        return UNKNOWN
    z, third, _ = _standardized(sample, y)
    square = z * z
    return sample.estimate(third, z * square - third - 3 * z - 1.5 * third * (square - 1))


def excess_kurtosis(sample: ControlledSample, y: Array) -> Triple:
    """Fourth standardized moment minus 3; NaN for a constant output."""
    if not sample.is_enough:
        return UNKNOWN
    z, third, fourth = _standardized(sample, y)
    square = z * z
    influence = square**2 - fourth - 4 * third * z - 2 * fourth * (square - 1)
    return sample.estimate(fourth - 3, influence)


def covariance(sample: ControlledSample, x: Array, y: Array) -> Triple:
    """Covariance; unbiased to first order."""
    if not sample.is_enough:
        return UNKNOWN
    x, y = (_centered(sample, part)[1] for part in (x, y))
    product = sample.mean(x * y)
    # As for the variance; with Sobol points the errors of the means are of lower order.
    bias = 0.0
    if not sample.num_randomizations:
        bias = float(sample.contributions(x) @ sample.contributions(y))
    return sample.estimate(product + bias, x * y - product)


def correlation(sample: ControlledSample, x: Array, y: Array) -> Triple:
    """Correlation, clipped to [-1, 1]; NaN for constant outputs."""
    if not sample.is_enough:
        return UNKNOWN
    x, y = (_standardized(sample, part)[0] for part in (x, y))
    value = sample.mean(x * y)
    influence = x * y - value - value * (x**2 + y**2 - 2) / 2
    return sample.estimate(float(np.clip(value, -1, 1)), influence)


def _centered(sample: ControlledSample, y: Array) -> tuple[float, Array]:
    """Mean, and deviations of the outputs from it; 0 for those that are not used."""
    center = sample.mean(y)
    return center, np.where(sample.used, y - center, 0.0)


def _standardized(sample: ControlledSample, y: Array) -> tuple[Array, float, float]:
    """Standardized outputs, their third moment and their fourth."""
    center, deviation = _centered(sample, y)
    variance = sample.mean(deviation**2)
    # The spread of a constant output is only rounding error, whose shape means nothing.
    rounding = 4 * np.finfo(np.float64).eps * abs(center)
    z = deviation / np.sqrt(variance) if variance > rounding**2 else np.full_like(deviation, np.nan)
    square = z * z
    return z, sample.mean(z * square), sample.mean(square**2)
