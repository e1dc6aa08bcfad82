r"""Weighted samples, calibrated to quantities with known mean values, and their moments.

Every estimate is a function of weighted means. Columns :math:`x_i` with mean value 0 are known for
each of `n` draws; the weights

.. math:: w_i = \frac 1 n \bigl(1 - \bar x^T S^{-1} (x_i - \bar x)\bigr), \qquad
    S = \frac 1 n \sum_i (x_i - \bar x)(x_i - \bar x)^T

are as equal as they can be with :math:`\sum w_i x_i = 0` (J.-C. Deville and C.-E. Sarndal, J. Amer.
Statist. Assoc. 87 (1992)). A weighted mean is that of a regression on the columns (control
variates: S. S. Lavenberg and P. D. Welch, Management Sci. 27 (1981)), and its error that of the
residuals. Plain draws have no columns and equal weights.

To first order each moment is the mean of its influence function. With the standardized output `z`,
``g = E z^3`` and ``k = E z^4`` the influence functions are

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

import dataclasses
from functools import cached_property
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from nn_uq_dist.basics.concrete import FloatArray
from nn_uq_dist.basics.summary_line import summary_line

Mask = NDArray[np.bool_]

# Directions of the columns with less than this share of the largest variance are rounding errors.
NEGLIGIBLE = 1e-10
# An interval of this many standard errors to either side should hold in 95% of the cases.
_TWO_SIDED_95 = 1.959963984540054


class PairedEstimate(NamedTuple):
    """A statistic of a network, estimated from draws or from pairs.

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
    >>> import numpy as np
    >>> from nn_uq_dist.sampling import PairedEstimate
    >>> PairedEstimate(np.ones(2), np.full(2, 0.1), np.full(2, 400.0))
    PairedEstimate(value=float64[2], standard_error=float64[2], worth=float64[2])
    """

    value: FloatArray
    standard_error: FloatArray
    worth: FloatArray

    def __repr__(self) -> str:
        return summary_line(self)


@dataclasses.dataclass(frozen=True, eq=False)
class WeightedSample:
    """Draws with weights under which the columns have their known mean values.

    Attributes
    ----------
    weights : FloatArray, shape (n,)
        They sum to 1; some may be negative.
    basis : FloatArray, shape (k, n)
        Orthonormal, centered combinations of the columns.
    used : Mask, shape (n,)
        The draws that enter the statistics: those with a finite output.
    num_randomizations : int
        Number of independent sequences that the draws consist of, 0 for independent draws.
    """

    weights: FloatArray
    basis: FloatArray
    used: Mask
    num_randomizations: int = 0

    @classmethod
    def equal(cls, count: int) -> Self:
        """Plain draws."""
        return cls(np.full(count, 1 / count), np.empty((0, count)), np.full(count, True))

    @classmethod
    def calibrated(cls, columns: FloatArray, used: Mask, num_randomizations: int) -> Self:
        """Draws with columns of mean value 0, shape ``(k, n)``."""
        mean = columns.mean(axis=1)
        centered = columns - mean[:, None]
        variances, directions = np.linalg.eigh(centered @ centered.T)
        kept = variances > NEGLIGIBLE * variances.max(initial=0)
        scaled = directions[:, kept] / np.sqrt(variances[kept])
        basis = scaled.T @ centered
        weights = 1 / used.size - (mean @ scaled) @ basis
        return cls(weights, basis, used, num_randomizations)

    @property
    def is_enough(self) -> bool:
        """Whether there are enough draws for the columns."""
        return int(self.used.sum()) >= 2 * (len(self.basis) + 2)

    def mean(self, response: Any) -> Any:
        """Weighted mean along the last axis, over the draws that are used."""
        return self.zeroed(response) @ self.weights / self._share

    def residuals(self, response: FloatArray) -> FloatArray:
        """Parts of responses, shape ``(..., n)``, that a regression on the columns leaves."""
        left: FloatArray = response - response.mean(axis=-1, keepdims=True)
        if len(self.basis):
            left -= (left @ self.basis.T) @ self.basis
        return left

    def of_all(self, influence: Any) -> FloatArray:
        """Influences on a mean over the used draws; the others have none, but have columns."""
        influences: FloatArray = self.zeroed(influence) / self._share
        return influences

    def zeroed(self, response: Any) -> Any:
        """Responses, 0 for draws that are not used."""
        return np.where(self.used, response, 0.0)

    def error(self, residuals: FloatArray) -> Any:
        """Standard error of the weighted mean of responses with these residuals.

        Each is enlarged by its leverage, as if its draw had been left out of the regression (HC3 of
        J. G. MacKinnon and H. White, J. Econometrics 29 (1985)): this holds with few draws, and if
        the residuals grow along the columns. Draws of one Sobol sequence depend on each other;
        there the sums over sequences are independent. Few of them tell their own spread badly, for
        which the ratio of the quantiles of Student's t and the normal distribution makes up: 1.96
        standard errors hold in 95% of the cases. NaN for a single sequence.
        """
        number, parts = self.num_randomizations, self.enlarged * residuals
        if not number:
            return np.sqrt(np.sum(parts**2, axis=-1))
        if number == 1:
            return np.full(parts.shape[:-1], np.nan)
        from scipy.special import stdtrit

        sums = parts.reshape(*parts.shape[:-1], number, -1).sum(axis=-1)
        spread = np.sqrt(number * np.var(sums, axis=-1, ddof=1))
        return spread * stdtrit(number - 1, 0.975) / _TWO_SIDED_95

    def estimate(self, value: Any, influence: FloatArray) -> PairedEstimate:
        """A statistic with this influence function, which has a mean of about 0, as an estimate."""
        influence = self.of_all(influence)
        error = self.error(self.residuals(influence))
        worth: Any = np.var(influence) / error**2 if error != 0 else np.inf
        return PairedEstimate(value, error, worth)

    @cached_property
    def enlarged(self) -> FloatArray:
        """Weights, enlarged by the leverages of the draws."""
        leverage = 1 / self.used.size + np.einsum("ij,ij->j", self.basis, self.basis)
        # A draw with leverage 1 is fitted exactly by the columns.
        return self.weights / np.maximum(1 - leverage, 1e-6)

    @cached_property
    def _share(self) -> float:
        """Estimated probability of a draw that is used."""
        return float(self.weights @ self.used)


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
