"""Statistics of a network from pairs, sharper than from its draws alone."""

from collections.abc import Callable
from functools import cached_property
from itertools import chain, combinations
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from nn_uq_dist.basics import checks
from nn_uq_dist.basics.chunks import in_padded_chunks
from nn_uq_dist.basics.concrete import FloatArray, in_float64
from nn_uq_dist.basics.summary_line import number_table, to_error
from nn_uq_dist.distributions import OutputDistribution, as_output_distribution
from nn_uq_dist.sampling import distribution_functions as functions
from nn_uq_dist.sampling import weighted_sample as moments
from nn_uq_dist.sampling._pair_correlations import correlations
from nn_uq_dist.sampling._paired_draws import PairedDraws
from nn_uq_dist.sampling.weighted_sample import Mask, PairedEstimate, WeightedSample
from nn_uq_dist.uniform_sum.points import MOST_POINTS

# Scores of the draws are cut off here: the probability beyond is 1e-17.
_LARGEST_SCORE = 8.5
# Width that a constant linear output gets, as a share of its value.
_NARROW = 1e-6
# Differences in standard deviations at which network and linear model are the same.
_SAME = 1e-4

type Statistic = Callable[..., PairedEstimate]


class PairedStatistics:
    r"""Statistics of the outputs of a network, with its linear model as a control.

    Made by `paired_statistics`. Every statistic is a `PairedEstimate` of NumPy arrays in float64:
    ``value``, ``standard_error``, and ``worth``, the number of plain draws of the network with the
    same standard error. If an output equals its linear model in all pairs, the values are those of
    the linear distribution and the standard errors are zero, to rounding. ``print`` shows means and
    standard deviations, of a single point.

    Notes
    -----
    With ``z`` the standardized linear output, the draws get weights under which the means of ``z``
    and ``z^2`` equal their known values (for covariances, the means of all products of two linear
    outputs; for skewness and kurtosis, of powers up to ``z^4``). This equals regression on these
    columns with estimated coefficients. Standard errors come from the residuals, as if each draw
    had been left out of the fit.

    For a probability the regression gets one more column, ``P(Y <= y | z)`` by a line and residuals
    fitted near the point, whose mean value is exact. One draw more than was seen makes an error,
    so the standard error is not zero unless all pairs are equal. Quantiles are where the same
    distribution function attains their levels.

    With Sobol points the standard errors come from the spread between the independent sequences,
    multiplied by the ratio of the quantiles of Student's t and the normal distribution. They are
    NaN for one sequence.

    Intervals of 1.96 standard errors held in 90% to 99% of the cases (100 and 1000 pairs, random or
    8 Sobol sequences, networks with smooth and with kinked units, box and normal inputs); in up to
    100% for tails with fewer than ten pairs. Like plain estimates, those of skewness and kurtosis
    lack rare draws: from 100 pairs they held in 85% to 96%; from 1000 pairs of a trained network
    whose outputs have heavy tails, in 73% and 46%, those of the sd in 92%. Those of the standard
    deviation of a log-normal output (scale 1.4) from 20 to 400 pairs held in 48% to 62%.

    NaN and infinite outputs are left out, output by output: statistics are those of the finite
    values of each output; correlations and covariances those of the pairs in which both are finite.
    With fewer than about ten left, all values are NaN.

    References
    ----------
    J.-C. Deville and C.-E. Sarndal, Calibration estimators in survey sampling, J. Amer. Statist.
    Assoc. 87 (1992); S. S. Lavenberg and P. D. Welch, A perspective on the use of control variables
    to increase the efficiency of Monte Carlo simulations, Management Sci. 27 (1981).

    Examples
    --------
    >>> import jax
    >>> import jax.numpy as jnp
    >>> import nn_uq_dist as nuq
    >>> lin = nuq.linearize(jnp.tanh, nuq.Input.box([0.2], half_width=0.4))
    >>> pairs = nuq.paired_draws(jnp.tanh, lin, jax.random.key(0), 1000, progress=False)
    >>> mean = nuq.paired_statistics(pairs).mean
    >>> bool(mean.standard_error[0] < 0.1 * pairs.network.std() / 1000**0.5)
    True
    """

    def __init__(self, pairs: PairedDraws) -> None:
        if not isinstance(pairs, PairedDraws):
            raise TypeError(
                f"pairs must be PairedDraws, got {type(pairs).__name__}; pass what paired_draws "
                "returns"
            )
        if not checks.is_concrete(pairs):
            raise TypeError(
                "pairs must hold numbers, got traced values; call paired_statistics outside of jit"
            )
        self._shape: tuple[int, ...] = pairs.network.shape[1:]
        # A row for each output of each point of the batch.
        self._network, self._linear = (
            np.asarray(part, np.float64).reshape(len(part), -1).T.copy()
            for part in (pairs.network, pairs.linear)
        )
        self._used = np.isfinite(self._network)
        self._dtype = pairs.network.dtype
        self._precision = float(jnp.finfo(self._dtype).eps)
        self._num_randomizations = pairs.num_randomizations
        self._of_linear, self._names = _LinearDistribution(pairs), pairs.linearization.output_names
        self._z = self._of_linear.standardized(self._linear)

    def __repr__(self) -> str:
        batch = f"batch_shape={self.batch_shape}, " if self.batch_shape else ""
        size = f"num_outputs={self.num_outputs}, num_pairs={self._used.shape[1]}"
        return f"PairedStatistics({batch}{size})"

    def __str__(self) -> str:
        if self.batch_shape:
            return repr(self)
        columns: list[Any] = []
        for found in (self.mean, self.sd):
            columns += [to_error(found.value, found.standard_error), found.standard_error]
        return number_table(("output", "mean", "+-", "sd", "+-"), self._names, *columns)

    @property
    def batch_shape(self) -> tuple[int, ...]:
        """Shape of the batch."""
        return self._shape[:-1]

    @property
    def num_outputs(self) -> int:
        """Number of outputs ``N_y``."""
        return self._shape[-1]

    @cached_property
    def mean(self) -> PairedEstimate:
        """Means, shape ``batch_shape + (N_y,)``."""
        return self._each(self._samples, moments.mean)

    @cached_property
    def variance(self) -> PairedEstimate:
        """Variances, shape ``batch_shape + (N_y,)``."""
        return self._each(self._samples, lambda sample, y: moments.covariance(sample, y, y))

    @cached_property
    def sd(self) -> PairedEstimate:
        """Standard deviations, shape ``batch_shape + (N_y,)``."""
        return self._each(self._samples, moments.sd)

    @cached_property
    def skewness(self) -> PairedEstimate:
        """Third standardized moments, shaped as `mean`; needs linear outputs that vary."""
        return self._each(self._samples_of_shape, moments.skewness)

    @cached_property
    def excess_kurtosis(self) -> PairedEstimate:
        """Fourth standardized moments minus 3, shaped as `mean`; as the skewness."""
        return self._each(self._samples_of_shape, moments.excess_kurtosis)

    @cached_property
    def covariance(self) -> PairedEstimate:
        """Covariance, shape ``batch_shape + (N_y, N_y)``; not necessarily positive definite."""
        return self._each_two(moments.covariance, self.variance)

    @cached_property
    def correlation(self) -> PairedEstimate:
        """Correlation matrix, shape ``batch_shape + (N_y, N_y)``."""
        one = np.where(self.variance.value > 0, 1.0, np.nan)
        return self._each_two(moments.correlation, PairedEstimate(one, one - 1, one * np.inf))

    @cached_property
    def correlation_matrix(self) -> FloatArray:
        """The values of `correlation`, by products of matrices: hundreds of outputs in a second."""
        size = self.num_outputs
        parts = (part.reshape(-1, size, part.shape[-1]) for part in (self._z, self._network))
        known = self._of_linear.correlation.reshape(-1, size, size)
        used = self._used.reshape(-1, size, self._used.shape[-1])
        found = [correlations(*point) for point in zip(*parts, used, known, strict=True)]
        return np.reshape(found, (*self._shape, size))

    def quantile(self, q: ArrayLike) -> PairedEstimate:
        """Quantiles.

        Parameters
        ----------
        q
            Probabilities in (0, 1), any shape.

        Returns
        -------
        PairedEstimate
            Shape ``q.shape + batch_shape + (N_y,)``.

        Raises
        ------
        ValueError
            If `q` is not in (0, 1).
        """
        from scipy.special import ndtri

        levels = np.asarray(checks.as_numeric("q", np.asarray(q)), np.float64)
        if not ((levels > 0) & (levels < 1)).all():
            raise ValueError(f"q must be in (0, 1), got {q}; pass probabilities, not percentages")
        found = self._of_distributions(
            functions.quantiles,
            np.broadcast_to(levels.reshape(-1, 1), (levels.size, self._rows)),
            lambda: self._of_linear.quantiles(ndtri(levels.ravel())),
        )
        return _reshaped(found, (*levels.shape, *self._shape))

    def exceedance(self, points: ArrayLike) -> PairedEstimate:
        """Probabilities ``P(Y > y)``.

        Parameters
        ----------
        points
            Values of the outputs, broadcast against ``batch_shape + (N_y,)``.

        Returns
        -------
        PairedEstimate
            Shape ``(..., N_y)``, as broadcast from `points`.

        Raises
        ------
        TypeError
            If `points` are not real numbers.
        ValueError
            If `points` do not broadcast.
        """
        from scipy.special import ndtr

        given = checks.rounded("points", points, self._dtype)
        sizes = zip(given.shape[::-1], self._shape[::-1], strict=False)
        if any(size not in {1, outputs} for size, outputs in sizes):
            wanted = "batch_shape + (N_y,)" if self.batch_shape else "(N_y,)"
            raise ValueError(
                f"points must broadcast against {wanted} = {self._shape}, got shape {given.shape}; "
                "pass one column per output"
            )
        shape = np.broadcast_shapes(given.shape, self._shape)
        rows = np.broadcast_to(given, shape).reshape(-1, self._rows).astype(np.float64)
        found = self._of_distributions(
            functions.exceedances, rows, lambda: ndtr(-self._of_linear.scores(rows))
        )
        return _reshaped(np.where(np.isnan(rows), np.nan, found), shape)

    def kolmogorov_smirnov(self, j: int, probabilities: FloatArray) -> functions.Distance:
        """Distance of output `j` from a distribution with these probabilities at the draws."""
        return functions.paired_kolmogorov_smirnov(
            self._samples[j], self._network[j], probabilities, self._columns[j]
        )

    @property
    def _rows(self) -> int:
        return len(self._network)

    @cached_property
    def _columns(self) -> list[functions.Columns | None]:
        """Predictions of events; None with a constant linear output: its scores are not normal."""
        # Rounding may put a draw at the end of a support, where the score is infinite.
        scores = np.clip(self._of_linear.scores(self._linear.T).T, -_LARGEST_SCORE, _LARGEST_SCORE)
        rows = zip(scores, self._network, self._used, self._of_linear.sd, strict=True)
        return [functions.conditional_columns(*row) if sd > 0 else None for *row, sd in rows]

    @cached_property
    def _samples(self) -> list[WeightedSample]:
        """The draws of each output, weighted by two moments of the linear output."""
        rows = zip(self._z, self._used, strict=True)
        return [self._weighted([z, z**2 - 1], used) for z, used in rows]

    @cached_property
    def _samples_of_shape(self) -> list[WeightedSample]:
        """The same weighted by four moments."""
        rows = zip(self._z, self._used, *self._of_linear.higher_moments, strict=True)
        return [self._weighted([z, z**2 - 1, z**3 - g, z**4 - k], u) for z, u, g, k in rows]

    def _weighted(self, columns: list[FloatArray], used: Mask) -> WeightedSample:
        return WeightedSample.calibrated(np.stack(columns), used, self._num_randomizations)

    def _of_distributions(
        self, statistic: Statistic, asked: FloatArray, linear: Callable[[], FloatArray]
    ) -> FloatArray:
        """A statistic of distribution functions, at points or levels ``(p, R)``."""
        found = np.full((3, *asked.shape), np.nan)
        # Network and linear model agree in all pairs, to rounding. Of outputs far from zero so many
        # roundings may be all that they vary.
        outputs = np.where(self._used, self._network, np.nan)
        rounding = self._precision * np.nanmax(np.abs(outputs), axis=1, initial=0.0)
        sd = self._of_linear.sd
        rounding = np.where(sd > 0, np.minimum(64 * rounding, _SAME * sd), 2 * rounding)
        is_linear = (np.abs(outputs - self._linear) <= rounding[:, None]).all(axis=1)
        if is_linear.any():
            values = linear()[:, is_linear]
            found[..., is_linear] = values, 0 * values, np.full(values.shape, np.inf)
        for j in np.flatnonzero(~is_linear):
            sample = self._samples[j]
            if sample.is_enough:
                found[..., j] = statistic(sample, self._network[j], asked[:, j], self._columns[j])
        return found

    def _each(self, samples: list[WeightedSample], statistic: Statistic) -> PairedEstimate:
        """A statistic of every output."""
        found = np.full((3, self._rows), np.nan)
        for j, (sample, y) in enumerate(zip(samples, self._network, strict=True)):
            if sample.is_enough:
                found[:, j] = statistic(sample, y)
        return _reshaped(found, self._shape)

    def _each_two(self, statistic: Statistic, diagonal: PairedEstimate) -> PairedEstimate:
        """A statistic of every two outputs, with products of the linear outputs as columns."""
        size, known = self.num_outputs, self._of_linear.correlation.reshape(self._rows, -1)
        matrix = np.full((3, self._rows, size), np.nan)
        rows = np.arange(self._rows)
        matrix[:, rows, rows % size] = np.reshape(diagonal, (3, -1))
        of_points = (combinations(range(k, k + size), 2) for k in range(0, self._rows, size))
        for a, b in chain.from_iterable(of_points):
            x, y = self._z[[a, b]]
            columns = [x, y, x**2 - 1, y**2 - 1, x * y - known[a, b % size]]
            sample = self._weighted(columns, self._used[a] & self._used[b])
            if sample.is_enough:
                found = statistic(sample, self._network[a], self._network[b])
                matrix[:, a, b % size] = matrix[:, b, a % size] = found
        return _reshaped(matrix, (*self._shape, size))


class _LinearDistribution:
    """The distribution of the linear outputs of pairs.

    Its moments are exact to float64 whatever the precision of JAX is, so that a large common value
    of the outputs costs no digits. Distribution functions and quantiles have the precision of the
    linearization, as the pairs themselves.

    Parameters
    ----------
    pairs
        Pairs with known values.

    Attributes
    ----------
    mean, sd
        Shape ``(R,)``: the outputs of each point of a batch in turn.
    correlation
        Shape ``batch_shape + (N_y, N_y)``; 0 in the row and column of a constant output.
    """

    def __init__(self, pairs: PairedDraws) -> None:
        self._linearization = pairs.linearization
        exact = in_float64(pairs.linearization)
        covariance = np.asarray(exact.covariance, np.float64)
        sd = np.sqrt(np.diagonal(covariance, axis1=-2, axis2=-1))
        unit = np.where(sd > 0, sd, 1.0)
        self.correlation = covariance / (unit[..., None] * unit[..., None, :])
        self.mean = np.asarray(exact.mean, np.float64).ravel()
        self.sd = sd.ravel()

    def standardized(self, linear: FloatArray) -> FloatArray:
        """Linear outputs ``(R, n)`` with mean 0 and variance 1; 0 for constant ones."""
        scale = np.where(self.sd > 0, self.sd, np.inf)
        return (linear - self.mean[:, None]) / scale[:, None]

    @cached_property
    def higher_moments(self) -> tuple[FloatArray, FloatArray]:
        """Third and fourth standardized moments."""
        moments = self._distribution.skewness, self._distribution.excess_kurtosis
        third, fourth = (np.asarray(part, np.float64).ravel() for part in moments)
        return third, fourth + 3

    def scores(self, points: FloatArray) -> FloatArray:
        """Normal scores ``Phi^-1(F(l))`` at points of shape ``(p, R)``; NaN at NaN."""
        rows = points.reshape(-1, *self._distribution.batch_shape)
        size = max(1, min(len(rows), MOST_POINTS // points.shape[1]))
        found: FloatArray = in_padded_chunks(self._distribution.normal_score, rows, size=size)
        return found.reshape(points.shape)

    def quantiles(self, scores: FloatArray) -> FloatArray:
        """Quantiles at normal scores of shape ``(p,)``, shape ``(p, R)``."""
        column = jnp.asarray(scores).reshape(-1, *(1,) * len(self._distribution.batch_shape))
        found = np.asarray(self._distribution.from_normal_score(column), np.float64)
        return found.reshape(len(scores), -1)

    @cached_property
    def _distribution(self) -> OutputDistribution:
        noise = None
        if (self.sd == 0).any():
            # A point mass has no density: a narrow distribution is as useless a control, and needs
            # no care.
            narrow = np.where(self.sd > 0, 0.0, _NARROW * np.maximum(np.abs(self.mean), 1))
            noise = jnp.asarray(narrow.reshape(self.correlation.shape[:-1]))
        return as_output_distribution(self._linearization.marginals(noise))


def _reshaped(found: FloatArray, shape: tuple[int, ...]) -> PairedEstimate:
    return PairedEstimate(*(part.reshape(shape) for part in found))


def paired_statistics(pairs: PairedDraws) -> PairedStatistics:
    """Moments, quantiles and probabilities of a network from pairs.

    Parameters
    ----------
    pairs
        From `paired_draws`.

    Returns
    -------
    PairedStatistics
        Each statistic is computed on first access.

    Raises
    ------
    TypeError
        If `pairs` is not a `PairedDraws`, or holds traced values.

    Examples
    --------
    >>> import jax
    >>> import jax.numpy as jnp
    >>> import nn_uq_dist as nuq
    >>> network = lambda f: jnp.tanh(jnp.array([f[0] + f[1]]))
    >>> lin = nuq.linearize(network, nuq.Input.box([0.1, 0.2], half_width=0.5))
    >>> pairs = nuq.paired_draws(network, lin, jax.random.key(0), 1000, progress=False)
    >>> beyond = nuq.paired_statistics(pairs).exceedance(0.6)
    >>> bool(beyond.worth[0] > 1000)
    True
    """
    return PairedStatistics(pairs)
