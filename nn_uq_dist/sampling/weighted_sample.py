r"""Weighted samples, calibrated to quantities with known mean values, and their moments.

Every estimate is a function of weighted means. Columns :math:`x_i` with mean value 0 are known for
each of `n` draws; the weights

.. math:: w_i = \frac 1 n \bigl(1 - \bar x^T S^{-1} (x_i - \bar x)\bigr), \qquad
    S = \frac 1 n \sum_i (x_i - \bar x)(x_i - \bar x)^T

are as equal as they can be with :math:`\sum w_i x_i = 0` (J.-C. Deville and C.-E. Sarndal, J. Amer.
Statist. Assoc. 87 (1992)). A weighted mean is that of a regression on the columns (control
variates: S. S. Lavenberg and P. D. Welch, Management Sci. 27 (1981)), and its error that of the
residuals. Plain draws have no columns, and equal weights.

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
from collections.abc import Callable
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

    All arrays may have leading axes: then these are samples of several outputs.

    Attributes
    ----------
    weights : FloatArray, shape (..., n)
        They sum to 1; some may be negative.
    basis : FloatArray, shape (..., k, n)
        Orthonormal rows: the constant, and centered combinations of the columns; or zeros.
    used : Mask, shape (..., n)
        The draws that enter the statistics: those with a finite output.
    num_columns : int, or array of int, shape (...)
        Number of independent columns; 0 for plain draws.
    num_randomizations : int
        Number of independent sequences that the draws consist of, 0 for independent draws.
    """

    weights: FloatArray
    basis: FloatArray
    used: Mask
    num_columns: Any = 0
    num_randomizations: int = 0

    @classmethod
    def equal(cls, used: Mask) -> Self:
        """Plain draws: the used ones have equal weights."""
        indicators = used.astype(np.float64)
        count = np.maximum(indicators.sum(axis=-1, keepdims=True), 1)
        return cls(indicators / count, (indicators / np.sqrt(count))[..., None, :], used)

    @classmethod
    def calibrated(cls, columns: FloatArray, used: Mask, num_randomizations: int) -> Self:
        """Draws with columns of mean value 0, shape ``(..., k, n)``."""
        count = used.shape[-1]
        mean = columns.mean(axis=-1, keepdims=True)
        centered = columns - mean
        variances, directions = np.linalg.eigh(centered @ centered.mT)
        kept = variances > NEGLIGIBLE * variances.max(axis=-1, initial=0, keepdims=True)
        scales = kept / np.sqrt(np.where(kept, variances, 1))
        scaled = directions * scales[..., None, :]
        basis = scaled.mT @ centered
        weights = 1 / count - ((mean.mT @ scaled) @ basis)[..., 0, :]
        constant = np.full((*basis.shape[:-2], 1, count), count**-0.5)
        basis = np.concatenate([constant, basis], axis=-2)
        return cls(weights, basis, used, kept.sum(axis=-1), num_randomizations)

    def __getitem__(self, j: int) -> Self:
        """The sample of one of several outputs."""
        arrays = self.weights[j], self.basis[j], self.used[j], self.num_columns[j]
        return type(self)(*arrays, self.num_randomizations)

    @property
    def is_enough(self) -> Any:
        """Whether there are enough draws for the columns."""
        return self.used.sum(axis=-1) >= 2 * (self.num_columns + 2)

    def mean(self, response: Any) -> Any:
        """Weighted mean along the last axis, over the draws that are used."""
        return np.vecdot(self.zeroed(response), self.weights) / self._share

    def residuals(self, response: FloatArray) -> FloatArray:
        """What a regression on the columns leaves of responses, ``(..., n)``.

        A single sample takes any number of responses, several samples as many for each.
        """
        rows = response if self.basis.ndim == 2 else response[..., None, :]
        left: FloatArray = rows - (rows @ self.basis.mT) @ self.basis
        return left.reshape(response.shape)

    def of_all(self, influence: Any) -> FloatArray:
        """Influences of all draws on a mean over the used ones: 0 for the others."""
        influences: FloatArray = self.zeroed(influence) / np.expand_dims(self._share, -1)
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
        number, influences = self.num_randomizations, self.enlarged * residuals
        if not number:
            return np.sqrt(np.vecdot(influences, influences))
        if number == 1:
            return np.full(influences.shape[:-1], np.nan)
        from scipy.special import stdtrit

        sums = influences.reshape(*influences.shape[:-1], number, -1).sum(axis=-1)
        spread = np.sqrt(number * np.var(sums, axis=-1, ddof=1))
        return spread * stdtrit(number - 1, 0.975) / _TWO_SIDED_95

    def estimate(self, value: Any, influence: FloatArray) -> PairedEstimate:
        """A statistic with this influence function, which has a mean of about 0, as an estimate."""
        influence = self.of_all(influence)
        error = self.error(self.residuals(influence))
        worth = np.full(np.shape(error), np.inf)
        np.divide(influence.var(axis=-1), error**2, out=worth, where=error != 0)
        return PairedEstimate(value, error, worth)

    @cached_property
    def enlarged(self) -> FloatArray:
        """Weights, enlarged by the leverages of the draws."""
        leverage = np.einsum("...ij,...ij->...j", self.basis, self.basis)
        # A draw with leverage 1 is fitted exactly by the columns.
        return self.weights / np.maximum(1 - leverage, 1e-6)

    @cached_property
    def _share(self) -> Any:
        """Estimated probability of a draw that is used."""
        return np.vecdot(self.weights, self.used)


# From a sample and outputs.
type Statistic = Callable[..., PairedEstimate]


def if_enough(sample: WeightedSample, statistic: Statistic, *outputs: FloatArray) -> FloatArray:
    """A statistic of several outputs, ``(3, R)``; NaN with too few draws."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(sample.is_enough, statistic(sample, *outputs), np.nan)


def mean(sample: WeightedSample, y: FloatArray) -> PairedEstimate:
    """Mean."""
    center, scaled, unit = _centered(sample, y)
    _, error, worth = sample.estimate(center, scaled)
    return PairedEstimate(center, unit * error, worth)


def sd(sample: WeightedSample, y: FloatArray) -> PairedEstimate:
    """Root of the variance."""
    _, scaled, unit = _centered(sample, y)
    variance, error, worth = covariance(sample, scaled, scaled)
    root = np.sqrt(np.maximum(variance, 0.0))
    return PairedEstimate(unit * root, unit * error / np.where(root > 0, 2 * root, 1.0), worth)


def skewness(sample: WeightedSample, y: FloatArray) -> PairedEstimate:
    """Third standardized moment; NaN for a constant output."""
    z = _standardized(sample, y)
    square = z * z
    third = sample.mean(z * square)
    g = third[..., None]
    return sample.estimate(third, z * square - g - 3 * z - 1.5 * g * (square - 1))


def excess_kurtosis(sample: WeightedSample, y: FloatArray) -> PairedEstimate:
    """Fourth standardized moment minus 3; NaN for a constant output."""
    z = _standardized(sample, y)
    square = z * z
    third, fourth = sample.mean(np.stack([z * square, square**2]))
    g, k = third[..., None], fourth[..., None]
    return sample.estimate(fourth - 3, square**2 - k - 4 * g * z - 2 * k * (square - 1))


def covariance(sample: WeightedSample, x: FloatArray, y: FloatArray) -> PairedEstimate:
    """Covariance; unbiased to first order."""
    (_, x, x_unit), (_, y, y_unit) = _centered(sample, x), _centered(sample, y)
    product = sample.mean(x * y)
    # The estimated means are closer to the draws than the true ones. With equal weights the divisor
    # becomes n - 1; with Sobol points the errors of the means are of lower order.
    bias = 0.0
    if not sample.num_randomizations:
        left = sample.residuals(sample.of_all(np.stack([x, y])))
        bias = np.vecdot(sample.weights * sample.enlarged, left[0] * left[1])
    value, error, worth = sample.estimate(product + bias, x * y - product[..., None])
    unit = x_unit * y_unit
    return PairedEstimate(unit * value, unit * error, worth)


def correlation(sample: WeightedSample, x: FloatArray, y: FloatArray) -> PairedEstimate:
    """Correlation, clipped to [-1, 1]; NaN for constant outputs."""
    x, y = _standardized(sample, x), _standardized(sample, y)
    value = sample.mean(x * y)
    influence = x * y - value[..., None] / 2 * (x * x + y * y)
    return sample.estimate(np.clip(value, -1, 1), influence)


def _centered(sample: WeightedSample, y: FloatArray) -> tuple[Any, FloatArray, Any]:
    """Mean, deviations from it in a unit, and the unit: squares of small numbers would be zero."""
    # Without the first output, whose digits a sum would lose.
    first = np.take_along_axis(y, np.argmax(sample.used, axis=-1, keepdims=True), axis=-1)
    deviation = sample.zeroed(y - first)
    center = sample.mean(deviation)
    deviation = sample.zeroed(deviation - center[..., None])
    unit = np.abs(deviation).max(axis=-1)
    unit = np.where(unit > 0, unit, 1.0)
    return first[..., 0] + center, deviation / unit[..., None], unit


def _standardized(sample: WeightedSample, y: FloatArray) -> FloatArray:
    """Outputs with mean 0 and variance 1; NaN for a constant output."""
    center, scaled, unit = _centered(sample, y)
    variance = sample.mean(scaled * scaled)
    # The spread of a constant output is only rounding error, whose shape means nothing.
    rounding = 4 * np.finfo(np.float64).eps * (abs(center) / unit + 1)
    scale = np.sqrt(np.where(variance > rounding**2, variance, np.nan))
    standardized: FloatArray = scaled / scale[..., None]
    return standardized
