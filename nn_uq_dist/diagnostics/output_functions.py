"""Scores, quantiles and moments of the distributions of several outputs, and positions of draws.

Only here do tables and figures evaluate a distribution. They use normal scores and log densities,
which take one pass over the distribution and are accurate in both tails. They are not compiled as a
whole: distributions have programs of their own, for few sizes, and quadrature for moments in one
program took ten seconds to compile. Points come in portions of one shape.
"""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr
from tqdm import tqdm

from nn_uq_dist.basics.chunks import in_padded_chunks
from nn_uq_dist.basics.concrete import FloatArray
from nn_uq_dist.distributions import JointDistribution, OutputDistribution

# Points per output in one call: a call of another shape would be compiled anew.
POINTS_PER_CALL = 2048
QUANTILES_PER_CALL = 64
# Clips the probabilities 0 and 1 of draws beyond the support, which have no finite logit or score.
CLIP = float(np.finfo(np.float64).eps)
# The normal score of the smallest positive float64.
LARGEST_SCORE = 38.0
# Seconds of work before a progress bar appears.
PROGRESS_DELAY = 2.0


class OutputFunctions:
    """Functions and constants of the distributions, in float64, one column or entry per output.

    The batch shape is ``(N_y,)``, or ``()`` for one output. `low` and `high` are the ends of the
    supports, infinite where there are none.
    """

    def __init__(self, distribution: OutputDistribution) -> None:
        self.distribution = distribution
        self.num_outputs = math.prod(distribution.batch_shape)
        constants = distribution.mean, distribution.standard_deviation, *distribution.bounds
        self.mean, self.sd, self.low, self.high = self.each(*constants)

    def each(self, *values: jax.Array) -> FloatArray:
        """Constants of the distributions in float64, a row for each."""
        return np.stack(
            [np.broadcast_to(np.asarray(value, np.float64), self.num_outputs) for value in values]
        )

    def scores_and_log_densities(self, points: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Normal scores and log densities at points, all of shape ``(p, N_y)``.

        Beyond the support the scores are infinite and the log densities ``-inf``.
        """
        # A float64 may be beyond the range of the distribution's type.
        largest = float(jnp.finfo(self.distribution.mean.dtype).max)
        points = np.clip(points, -largest, largest)
        evaluate = self.distribution.normal_score_and_log_prob
        return in_padded_chunks(evaluate, points, size=POINTS_PER_CALL)

    def scores(self, points: FloatArray) -> FloatArray:
        """Normal scores at points of shape ``(p, N_y)``."""
        return self.scores_and_log_densities(points)[0]

    def values(self, scores: FloatArray) -> FloatArray:
        """Values at normal scores of shape ``(q,)``, shape ``(q, N_y)``."""
        of_all = np.repeat(scores[:, None], self.num_outputs, axis=1)
        evaluate = self.distribution.from_normal_score
        return in_padded_chunks(evaluate, of_all, size=QUANTILES_PER_CALL)


class Tails:
    """Positions of draws under the distributions of the outputs.

    The position of a draw is its normal score. It resolves the upper tail as well as the lower one,
    while a distribution function rounds to 1 there: in float32 from five standard deviations on.

    Attributes
    ----------
    points
        The draws in float64. Those that rounding has put at or beyond an end of the support are
        moved just inside; those that are not finite are replaced by the mean.
    scores
        Normal scores, infinite beyond the support, NaN for draws that are not finite.
    is_finite, is_outside
        Whether a draw is finite, and beyond an end of the support by more than rounding.
    """

    def __init__(
        self, functions: OutputFunctions, draws: NDArray[np.generic], *, progress: bool = True
    ) -> None:
        types = [functions.distribution.mean.dtype, draws.dtype]
        eps = max(float(jnp.finfo(t).eps) for t in types if jnp.issubdtype(t, jnp.floating))
        ends = np.abs([functions.low, functions.high])
        # How far rounding may have moved a draw near an end of its support.
        rounding = 8 * eps * np.max(ends, axis=0, where=np.isfinite(ends), initial=0)
        # A distribution narrower than the rounding error is evaluated at its mean.
        least = np.minimum(functions.low + rounding, functions.mean)
        most = np.maximum(functions.high - rounding, functions.mean)
        values = draws.astype(np.float64)
        self.is_finite = np.isfinite(values)
        values = np.where(self.is_finite, values, functions.mean)
        low, high = functions.low - rounding, functions.high + rounding
        self.is_outside = (values < low) | (values > high)
        self.points = np.where(self.is_outside, values, np.clip(values, least, most))
        options: Any = {"delay": PROGRESS_DELAY, "disable": not progress, "leave": False}
        starts = tqdm(range(0, len(draws), POINTS_PER_CALL), "analytic distributions", **options)
        parts = [functions.scores(self.points[k : k + POINTS_PER_CALL]) for k in starts]
        self.scores = np.where(self.is_finite, np.concatenate(parts), np.nan)

    def probabilities(self) -> FloatArray:
        """The probability integral transform ``F(x)``, 2.2e-16 or more from 0 and 1; else NaN."""
        tail = np.maximum(ndtr(-np.abs(self.scores)), CLIP)
        return np.where(self.scores > 0, 1 - tail, tail)

    def normal_scores(self) -> FloatArray:
        """``Phi^-1(F(x))``, clipped to [-38, 38], also for draws beyond the support."""
        return np.clip(self.scores, -LARGEST_SCORE, LARGEST_SCORE)


def joint_correlation(distribution: JointDistribution) -> FloatArray:
    """Correlation of the outputs of a joint distribution, in float64."""
    covariance = np.asarray(distribution.covariance_matrix, np.float64)
    sd = np.sqrt(np.diagonal(covariance, axis1=-2, axis2=-1))
    return covariance / (sd[..., None] * sd[..., None, :])
