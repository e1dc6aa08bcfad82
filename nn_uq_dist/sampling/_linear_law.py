"""The known law of the linear outputs of pairs: moments, distribution functions, quantiles."""

from functools import cached_property

import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from nn_uq_dist.basics._float64 import in_float64
from nn_uq_dist.laws._adapted_law import as_output_law
from nn_uq_dist.laws._output_law import OutputLaw
from nn_uq_dist.sampling._paired_draws import PairedDraws

Array = NDArray[np.float64]

# Points per output in one call: a call of another shape would be compiled anew.
_POINTS_PER_CALL = 2048


class LinearLaw:
    """The law of the linear outputs of pairs, their noise included, in float64.

    Parameters
    ----------
    pairs
        Pairs without batch axes, with known values.

    Attributes
    ----------
    mean, sd
        Shape ``(N_y,)``.
    correlation
        Shape ``(N_y, N_y)``; 0 in the row and column of a constant output.
    """

    def __init__(self, pairs: PairedDraws) -> None:
        self._linearization = pairs.linearization
        self._noise_scale = pairs.noise_scale
        exact = in_float64(pairs.linearization)
        covariance = np.array(exact.covariance, np.float64)
        if pairs.noise_scale is not None:
            covariance += np.diag(np.asarray(pairs.noise_scale, np.float64) ** 2)
        self.mean = np.asarray(exact.mean, np.float64)
        self.sd = np.sqrt(np.diag(covariance))
        unit = np.where(self.sd > 0, self.sd, 1.0)
        self.correlation = covariance / np.outer(unit, unit)

    def standardized(self, linear: Array) -> Array:
        """Linear outputs ``(N_y, n)`` with mean 0 and variance 1; 0 for constant ones."""
        scale = np.where(self.sd > 0, self.sd, np.inf)
        return (linear - self.mean[:, None]) / scale[:, None]

    @cached_property
    def shape(self) -> tuple[Array, Array]:
        """Third and fourth standardized moments."""
        third, fourth = self._law.skewness, self._law.excess_kurtosis
        return np.asarray(third, np.float64), np.asarray(fourth, np.float64) + 3

    def cdf(self, points: Array) -> Array:
        """Distribution functions at points of shape ``(p, N_y)``; NaN at NaN."""
        from scipy.special import ndtr

        known = np.where(np.isnan(points), self.mean, points)
        size = _POINTS_PER_CALL
        if len(known) > size:
            known = np.pad(known, [(0, -len(known) % size), (0, 0)], mode="edge")
        portions = np.split(known, max(len(known) // size, 1))
        scores = [np.asarray(self._law.normal_score(x), np.float64) for x in portions]
        below: Array = ndtr(np.concatenate(scores)[: len(points)])
        return np.where(np.isnan(points), np.nan, below)

    def icdf(self, levels: Array) -> Array:
        """Quantiles at levels of shape ``(p, 1)``, shape ``(p, N_y)``."""
        return np.asarray(self._law.icdf(jnp.asarray(levels)), np.float64)

    @cached_property
    def _law(self) -> OutputLaw:
        return as_output_law(self._linearization.marginals(self._noise_scale))
