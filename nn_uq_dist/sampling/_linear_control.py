"""The linear outputs of pairs as a control: what is known of them, and what that says of pairs."""

from functools import cached_property
from itertools import combinations_with_replacement

import jax.numpy as jnp
import numpy as np

from nn_uq_dist.basics.chunks import in_padded_chunks
from nn_uq_dist.basics.concrete import FloatArray, in_float64
from nn_uq_dist.distributions import OutputDistribution, as_output_distribution
from nn_uq_dist.sampling._paired_draws import PairedDraws
from nn_uq_dist.sampling.sample_distribution_functions import Columns, conditional_columns
from nn_uq_dist.sampling.weighted_sample import NEGLIGIBLE, Mask
from nn_uq_dist.uniform_sum.points import MOST_POINTS

# Scores of the draws are cut off here: the probability beyond is 1e-17.
_LARGEST_SCORE = 8.5
# Differences in standard deviations at which network and linear model are the same.
_SAME = 1e-4
# Width that a constant linear output gets, as a share of its value.
_NARROW = 1e-6
# Outputs whose pairs with all others are in memory at once.
_BLOCK = 64
# The columns as products of a function of either output, of 1, z and z^2 - 1 by their numbers, and
# what is averaged, of whether it is used, y and y^2.
_COLUMNS = (1, 0), (0, 1), (2, 0), (0, 2), (1, 1)
_RESPONSES = (0, 0), (1, 0), (0, 1), (2, 0), (0, 2), (1, 1)

type Table = list[list[FloatArray]]


class LinearControl:
    """The linear outputs of pairs, whose distribution is known.

    Its moments are exact to float64 whatever the precision of JAX is, so that a large common value
    of the outputs costs no digits. Distribution functions and quantiles have the precision of the
    linearization, as the pairs themselves.

    Parameters
    ----------
    pairs
        Pairs with known values.

    Attributes
    ----------
    linear
        Shape ``(R, n)``: the outputs of each point of a batch in turn.
    standardized
        The same with mean 0 and variance 1; 0 for constant ones.
    mean, sd
        Shape ``(R,)``.
    correlation
        Shape ``batch_shape + (N_y, N_y)``; 0 in the row and column of a constant output.
    """

    def __init__(self, pairs: PairedDraws) -> None:
        self._linearization = pairs.linearization
        self.names, self.num_randomizations = (
            self._linearization.output_names,
            pairs.num_randomizations,
        )
        self.linear = np.reshape(pairs.linear, (pairs.num_samples, -1)).T.astype(np.float64)
        exact = in_float64(pairs.linearization)
        covariance = np.asarray(exact.covariance, np.float64)
        sd = np.sqrt(np.diagonal(covariance, axis1=-2, axis2=-1))
        unit = np.where(sd > 0, sd, 1.0)
        self.correlation = covariance / (unit[..., None] * unit[..., None, :])
        self.mean = np.asarray(exact.mean, np.float64).ravel()
        self.sd = sd.ravel()
        scale = np.where(self.sd > 0, self.sd, np.inf)
        self.standardized = (self.linear - self.mean[:, None]) / scale[:, None]

    @cached_property
    def higher_moments(self) -> tuple[FloatArray, FloatArray]:
        """Third and fourth standardized moments."""
        third = np.asarray(self._distribution.skewness, np.float64)
        excess = np.asarray(self._distribution.excess_kurtosis, np.float64)
        return third.ravel(), excess.ravel() + 3

    def scores(self, points: FloatArray) -> FloatArray:
        """Normal scores ``Phi^-1(F(l))`` at points of shape ``(p, R)``; NaN at NaN."""
        rows = points.reshape(-1, *self._distribution.batch_shape)
        size = max(1, min(len(rows), MOST_POINTS // points.shape[1]))
        scores: FloatArray = in_padded_chunks(self._distribution.normal_score, rows, size=size)
        return scores.reshape(points.shape)

    def quantiles(self, scores: FloatArray) -> FloatArray:
        """Quantiles at normal scores of shape ``(p,)``, shape ``(p, R)``."""
        column = jnp.asarray(scores).reshape(-1, *(1,) * len(self._distribution.batch_shape))
        quantiles = np.asarray(self._distribution.from_normal_score(column), np.float64)
        return quantiles.reshape(len(scores), -1)

    def columns_of_events(self, network: FloatArray, used: Mask) -> list[Columns | None]:
        """Predictions of events from the linear outputs; None of one that is constant."""
        # Rounding may put a draw at the end of a support, where the score is infinite.
        scores = np.clip(self.scores(self.linear.T).T, -_LARGEST_SCORE, _LARGEST_SCORE)
        rows = zip(scores, network, used, self.sd, strict=True)
        return [conditional_columns(*row) if sd > 0 else None for *row, sd in rows]

    def agrees_with(self, network: FloatArray, used: Mask, eps: float) -> Mask:
        """Whether an output is that of the linear model in all pairs, to rounding."""
        outputs = np.where(used, network, np.nan)
        rounding = eps * np.nanmax(np.abs(outputs), axis=1, initial=0.0)
        # Of outputs far from zero so many roundings may be all that they vary.
        varying = np.minimum(64 * rounding, _SAME * self.sd)
        rounding = np.where(self.sd > 0, varying, 2 * rounding)
        agrees: Mask = (np.abs(outputs - self.linear) <= rounding[:, None]).all(axis=1)
        return agrees

    def correlations_of(self, network: FloatArray, used: Mask) -> list[FloatArray]:
        """Correlation matrices of the outputs of each point of a batch."""
        size, count = self.correlation.shape[-1], network.shape[-1]
        rows = (array.reshape(-1, size, count) for array in (self.standardized, network, used))
        known = self.correlation.reshape(-1, size, size)
        return [correlations(*point) for point in zip(*rows, known, strict=True)]

    @cached_property
    def _distribution(self) -> OutputDistribution:
        noise = None
        if (self.sd == 0).any():
            # A point mass has no density: a narrow distribution is as useless a control, and needs
            # no care.
            narrow = np.where(self.sd > 0, 0.0, _NARROW * np.maximum(np.abs(self.mean), 1))
            noise = jnp.asarray(narrow.reshape(self.correlation.shape[:-1]))
        return as_output_distribution(self._linearization.marginals(noise))


def correlations(z: FloatArray, network: FloatArray, used: Mask, known: FloatArray) -> FloatArray:
    r"""Correlations of all outputs, ``(R, R)``; NaN for constants, and where few draws are used.

    Two outputs `a` and `b` have weights of their own, with which :math:`z_a, z_b, z_a^2 - 1, z_b^2
    - 1` and :math:`z_a z_b - r` of their linear outputs have mean 0 (`weighted_sample`). All these
    columns, and all that is averaged, are products of a function of `a` and one of `b`. So the
    averages of all pairs are products of matrices, and a weighted mean is
    :math:`E y - E c^T S^+ \mathrm{cov}(c, y)`.

    Parameters
    ----------
    z, network, used
        Standardized linear outputs, outputs of the network, and which of these are finite, ``(R,
        n)``.
    known
        Correlations of the linear outputs, ``(R, R)``.
    """
    count = np.maximum(used.sum(axis=1, keepdims=True), 1)
    y = np.where(used, network, 0.0)
    center = y.sum(axis=1, keepdims=True) / count
    y = np.where(used, network - center, 0.0)
    largest = np.abs(y).max(axis=1, keepdims=True)
    unit = np.where(largest > 0, largest, 1)
    y = y / unit
    # The spread of a constant output is only rounding error.
    rounding = (4 * np.finfo(np.float64).eps * (np.abs(center) / unit + 1))[:, 0]
    # Functions of the linear output, products of two of them, and with those of the output.
    powers = np.ones_like(z), z, z**2 - 1
    products = [[one * other for other in powers] for one in powers]
    mixed = [[one * other for other in (used.astype(float), y, y**2)] for one in powers]
    matrix = np.full(known.shape, np.nan)
    for start in range(0, len(z), _BLOCK):
        rows = slice(start, start + _BLOCK)
        matrix[rows] = _of_rows(rows, products, mixed, known[rows], rounding**2)
    upper = np.triu(matrix, 1)
    varies = (largest[:, 0] > 0) & (rounding < 1)
    return upper + upper.T + np.diag(np.where(varies, 1.0, np.nan))


def _of_rows(
    rows: slice, products: Table, mixed: Table, known: FloatArray, least: FloatArray
) -> FloatArray:
    """Correlations of some outputs with all."""

    def mean(table: Table, one: tuple[int, int], other: tuple[int, int]) -> FloatArray:
        """Mean of functions of both outputs, each a product of two, by their numbers."""
        (a, b), (c, d) = one, other
        return table[a][c][rows] @ table[b][d].T / table[0][0].shape[1]

    means = [mean(products, column, (0, 0)) for column in _COLUMNS]
    gram = np.empty((*known.shape, 5, 5))
    for i, j in combinations_with_replacement(range(5), 2):
        product = mean(products, _COLUMNS[i], _COLUMNS[j]) - means[i] * means[j]
        gram[..., i, j] = gram[..., j, i] = product
    values, vectors = np.linalg.eigh(gram)
    kept = values > NEGLIGIBLE * values.max(axis=-1, initial=0, keepdims=True)
    off = np.stack([*means[:4], means[4] - known], axis=-1)
    along = (off[..., None, :] @ vectors)[..., 0, :] * kept / np.where(kept, values, 1)
    slopes = np.moveaxis((vectors @ along[..., None])[..., 0], -1, 0)
    weighted = []
    for response in _RESPONSES:
        total = plain = mean(mixed, (0, 0), response)
        for column, center, slope in zip(_COLUMNS, means, slopes, strict=True):
            total = total - slope * (mean(mixed, column, response) - center * plain)
        weighted.append(total)
    share, *moments = weighted
    used = mixed[0][0]
    enough = used[rows] @ used.T >= 2 * (kept.sum(axis=-1) + 2)
    with np.errstate(invalid="ignore", divide="ignore"):
        a, b, aa, bb, ab = (moment / share for moment in moments)
        first, second = aa - a * a, bb - b * b
        valid = enough & (first > least[rows, None]) & (second > least)
        matrix: FloatArray = np.clip((ab - a * b) / np.sqrt(first * second), -1, 1)
    return np.where(valid, matrix, np.nan)
