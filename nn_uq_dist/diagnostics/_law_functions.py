"""Scores, quantiles, moments and grids of the laws of several outputs.

Only here do tables and figures evaluate a law. They use normal scores and log densities, which take
one pass over the law and are accurate in both tails. They are not compiled as a whole: laws have
programs of their own, for few sizes, and quadrature for moments in one program took ten seconds to
compile. Points come in portions of one shape. Quantiles are found from the scores, whose programs
are compiled anyway for the draws.
"""

from functools import cached_property

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from nn_uq_dist.basics._compiled_once import in_portions
from nn_uq_dist.diagnostics._quantiles import values_at_scores
from nn_uq_dist.laws._output_law import OutputLaw

Array = NDArray[np.float64]

# Points per output in one call: a call of another shape would be compiled anew.
POINTS_PER_CALL = 2048
# A grid lies between minus and plus this score: the probability beyond is 1e-17 on either side.
GRID_SCORE = 8.5
# A grid is linear between the values of this many scores, which also suits laws with one long tail.
_PANELS, _POINTS_PER_PANEL = 63, 65


class LawFunctions:
    """Functions and constants of the laws, in float64, one column or entry per output.

    Parameters
    ----------
    law
        An `OutputLaw` with batch shape ``(N_y,)``, or ``()`` for one output.
    num_outputs
        The number of outputs.

    Attributes
    ----------
    mean, sd
        Moments, shape ``(N_y,)``.
    low, high
        Ends of the supports, infinite where there are none, shape ``(N_y,)``.
    """

    def __init__(self, law: OutputLaw, num_outputs: int) -> None:
        self.law = law
        self.num_outputs = num_outputs
        constants = law.mean, jnp.sqrt(law.variance), *law.bounds
        self.mean, self.sd, self.low, self.high = (self._each(part) for part in constants)

    def _each(self, value: jax.Array) -> Array:
        return np.broadcast_to(np.asarray(value, np.float64), (self.num_outputs,))

    @cached_property
    def shape(self) -> tuple[Array, Array]:
        """Third standardized moments, and fourth ones minus 3."""
        return self._each(self.law.skewness), self._each(self.law.excess_kurtosis)

    def scores_and_log_densities(self, points: Array) -> tuple[Array, Array]:
        """Normal scores and log densities at points, all of shape ``(p, N_y)``.

        Beyond the support the scores are infinite and the log densities ``-inf``.
        """
        # A float64 may be beyond the range of the law's type.
        largest = float(jnp.finfo(self.law.mean.dtype).max)
        points = np.clip(points, -largest, largest)
        evaluate = self.law.normal_score_and_log_prob
        found: tuple[Array, Array] = in_portions(evaluate, points, size=POINTS_PER_CALL)
        return found

    def scores(self, points: Array) -> Array:
        """Normal scores at points of shape ``(p, N_y)``."""
        return self.scores_and_log_densities(points)[0]

    def values(self, scores: Array, *, error_in_sd: float = 0.0) -> Array:
        """Values at normal scores of shape ``(q,)``, shape ``(q, N_y)``.

        Parameters
        ----------
        scores
            Finite.
        error_in_sd
            Acceptable error, in standard deviations. Default: full precision of JAX's type.
        """
        eps = float(jnp.finfo(jnp.result_type(float)).eps)
        tolerance = (0.5 * eps, max(error_in_sd, 1e-3 * eps) * self.sd)
        # 40 standard deviations: a normal law has scores up to 38 in float64.
        start = (
            np.maximum(self.low, self.mean - 40 * self.sd),
            np.minimum(self.high, self.mean + 40 * self.sd),
        )
        ends = (self.low, self.high)
        return values_at_scores(scores, self.scores, start, ends, tolerance, POINTS_PER_CALL)

    def grid(self) -> tuple[Array, Array]:
        """Points over the relevant range of each law, and the distribution functions there.

        Returns
        -------
        (Array, Array)
            Both ``(4096, N_y)``, ascending, between the scores -8.5 and 8.5.
        """
        from scipy.special import ndtr

        knots = self.values(np.linspace(-GRID_SCORE, GRID_SCORE, _PANELS + 1), error_in_sd=1e-3)
        knots = np.maximum.accumulate(knots, axis=0)
        panels = np.linspace(knots[:-1], knots[1:], _POINTS_PER_PANEL, endpoint=False, axis=1)
        points = np.concatenate([panels.reshape(-1, self.num_outputs), knots[-1:]])
        return points, ndtr(self.scores(points))
