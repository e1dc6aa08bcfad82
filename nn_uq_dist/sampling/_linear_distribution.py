"""The linear distribution of pairs: its distribution functions and constants in float64."""

from functools import cached_property

import jax.numpy as jnp
import numpy as np

from nn_uq_dist.basics.concrete import FloatArray, in_float64
from nn_uq_dist.basics.programs import in_portions
from nn_uq_dist.distributions import OutputDistribution, as_output_distribution
from nn_uq_dist.sampling._paired_draws import PairedDraws
from nn_uq_dist.uniform_sum.points import MOST_POINTS

# Width that a constant linear output gets, as a share of its value.
_NARROW = 1e-6


class LinearDistribution:
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
        known = np.where(np.isnan(points), self.mean, points)
        rows = known.reshape(-1, *self._distribution.batch_shape)
        size = max(1, min(len(rows), MOST_POINTS // known.shape[1]))
        found = in_portions(self._distribution.normal_score, rows, size=size).reshape(known.shape)
        return np.where(np.isnan(points), np.nan, found)

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
