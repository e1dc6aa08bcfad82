"""Moments of a sample, sharpened by quantities with known expected values. NumPy only.

The draws get weights under which the controls have exactly their known means; everything else is
estimated with the same weights. This equals regression on the controls, with coefficients from the
sample (S. S. Lavenberg and P. D. Welch, Management Sci. 27 (1981); in surveys, calibration).

To first order an estimate is the mean of its influence function; the part that the controls do not
explain gives the standard error. Outputs that are not used may be NaN.
"""

import dataclasses
from collections.abc import Callable
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nn_uq_dist.basics._summary_line import summary_line

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]

# Directions of the controls with less than this share of the largest variance are rounding errors.
_NEGLIGIBLE = 1e-10
# An interval of this many standard errors to either side should hold in 95% of the cases.
TWO_SIDED_95 = 1.959963984540054


class PairedEstimate(NamedTuple):
    """A statistic of a network, estimated from pairs.

    Attributes
    ----------
    value
        The estimate.
    standard_error
        Its standard error.
    worth
        Number of plain draws of the network with the same standard error; infinite if it is zero.

    Examples
    --------
    >>> import jax
    >>> import jax.numpy as jnp
    >>> import nn_uq_dist as nuq
    >>> lin = nuq.linearize(jnp.tanh, nuq.InputLaw([0.2], half_width=0.4))
    >>> pairs = nuq.paired_draws(jnp.tanh, lin, jax.random.key(0), 1000, progress=False)
    >>> mean = nuq.paired_statistics(pairs).mean
    >>> bool(mean.worth[0] > 1e5)
    True
    """

    value: Array
    standard_error: Array
    worth: Array

    def __repr__(self) -> str:
        return summary_line(self)


@dataclasses.dataclass(frozen=True, eq=False)
class ControlledSample:
    """Weights of draws under which the controls have their known means.

    Attributes
    ----------
    weights : Array, shape (n,)
        They sum to 1 over all draws; some may be negative.
    basis : Array, shape (k, n)
        Orthonormal, centered combinations of the controls.
    used : Mask, shape (n,)
        The draws that enter the statistics: those with a finite output.
    num_randomizations : int
        Number of independent sequences that the draws consist of, 0 for independent draws.
    """

    weights: Array
    basis: Array
    used: Mask
    num_randomizations: int

    @classmethod
    def make(cls, controls: Array, used: Mask, num_randomizations: int) -> "ControlledSample":
        """Make it from controls with expected value 0, shape ``(k, n)``."""
        mean = controls.mean(axis=1)
        centered = controls - mean[:, None]
        variances, directions = np.linalg.eigh(centered @ centered.T)
        kept = variances > _NEGLIGIBLE * variances.max(initial=0)
        scaled = directions[:, kept] / np.sqrt(variances[kept])
        basis = scaled.T @ centered
        weights = 1 / controls.shape[1] - (mean @ scaled) @ basis
        return cls(weights, basis, used, num_randomizations)

    @cached_property
    def _share(self) -> float:
        """Estimated probability of a draw that is used."""
        return float(self.weights @ self.used)

    @cached_property
    def _enlarged(self) -> Array:
        """Weights, enlarged so that residuals are as in a fit that leaves the draw out."""
        leverage = 1 / self.used.size + np.einsum("ij,ij->j", self.basis, self.basis)
        # A draw with leverage 1 is fitted exactly by the controls.
        return self.weights / np.maximum(1 - leverage, 1e-6)

    @property
    def is_enough(self) -> bool:
        """Whether there are enough draws for the controls."""
        return int(self.used.sum()) >= 2 * (len(self.basis) + 2)

    def mean(self, response: Array) -> float:
        """Estimated mean of a response over the draws that are used."""
        return float(self.weights @ np.where(self.used, response, 0.0)) / self._share

    def contributions(self, influence: Array) -> Array:
        """Contribution of each draw to the error of a statistic with this influence function.

        These are the residuals of the regression, enlarged by their leverage as if the draw had
        been left out (HC3 of J. G. MacKinnon and H. White, J. Econometrics 29 (1985)): valid with
        few draws and if the residuals grow along the controls.

        Parameters
        ----------
        influence
            First-order influence of each draw on the statistic, shape ``(n,)``, with a mean of
            about 0 over the draws that are used.
        """
        centered = self._of_all(influence)
        return self._enlarged * (centered - (self.basis @ centered) @ self.basis)

    def estimate(self, value: float, influence: Array) -> tuple[float, float, float]:
        """Value, standard error and worth of a statistic with this influence function."""
        error = float(standard_error(self.contributions(influence), self.num_randomizations))
        count = len(influence)
        plain = float(np.mean(self._of_all(influence) ** 2)) / count
        return value, error, worth(plain, error, count)

    def _of_all(self, influence: Array) -> Array:
        # Draws that are not used have no influence themselves, but their controls count.
        scaled = np.where(self.used, influence, 0.0) / self._share
        return scaled - scaled.mean()


def standard_error(contributions: Array, num_randomizations: int) -> Any:
    """Standard error of a sum of contributions of mean 0, along the first axis.

    For independent draws it is the root of the summed squares. For Sobol points, draws of one
    sequence depend on each other, and only the sums over the sequences are independent. With few
    sequences the spread is itself uncertain; it is multiplied by the ratio of the quantiles of
    Student's t and the normal law, so that 1.96 standard errors hold in 95% of the cases. NaN for a
    single sequence.
    """
    number, shape = num_randomizations, np.shape(contributions)[1:]
    if not number:
        return np.sqrt(np.sum(contributions**2, axis=0))
    if number == 1:
        return np.full(shape, np.nan)
    from scipy.special import stdtrit

    sums = contributions.reshape(number, -1, *shape).sum(axis=1)
    spread = np.sqrt(number * np.var(sums, axis=0, ddof=1))
    return spread * stdtrit(number - 1, 0.975) / TWO_SIDED_95


def worth(plain_variance: float, error: float, count: int) -> float:
    """Number of plain draws with standard error `error`, if `count` of them have this variance."""
    return float(count * plain_variance / error**2) if error else float("inf")


# Value, standard error, worth.
Triple = tuple[float, float, float]


def estimated(
    statistic: Callable[..., Triple], sample: ControlledSample, *outputs: Array
) -> Triple:
    """One of the statistics below; NaN if there are too few draws for the controls."""
    unknown = float("nan")
    return statistic(sample, *outputs) if sample.is_enough else (unknown, unknown, unknown)


def mean(sample: ControlledSample, y: Array) -> Triple:
    """Mean."""
    return sample.estimate(*_centered(sample, y))


def variance(sample: ControlledSample, y: Array) -> Triple:
    """Variance; unbiased to first order."""
    center, deviation = _centered(sample, y)
    _, error, _ = sample.estimate(center, deviation)
    square = sample.mean(deviation**2)
    # The estimated mean is closer to the draws than the true one, by its own variance.
    bias = error**2 if np.isfinite(error) else 0.0
    return sample.estimate(max(square, 0.0) + bias, deviation**2 - square)


def skewness(sample: ControlledSample, y: Array) -> Triple:
    """Third standardized moment; NaN for a constant output."""
    z, third, _ = _standardized(sample, y)
    square = z * z
    return sample.estimate(third, z * square - third - 3 * z - 1.5 * third * (square - 1))


def excess_kurtosis(sample: ControlledSample, y: Array) -> Triple:
    """Fourth standardized moment minus 3; NaN for a constant output."""
    z, third, fourth = _standardized(sample, y)
    square = z * z
    influence = square**2 - fourth - 4 * third * z - 2 * fourth * (square - 1)
    return sample.estimate(fourth - 3, influence)


def covariance(sample: ControlledSample, x: Array, y: Array) -> Triple:
    """Covariance; unbiased to first order."""
    x, y = (_centered(sample, part)[1] for part in (x, y))
    product = sample.mean(x * y)
    # As for the variance; with Sobol points the errors of the means are of lower order.
    bias = 0.0
    if not sample.num_randomizations:
        bias = float(sample.contributions(x) @ sample.contributions(y))
    return sample.estimate(product + bias, x * y - product)


def correlation(sample: ControlledSample, x: Array, y: Array) -> Triple:
    """Correlation, clipped to [-1, 1]; NaN for constant outputs."""
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
