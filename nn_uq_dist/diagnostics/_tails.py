"""Positions of draws under the laws of the outputs."""

import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from nn_uq_dist.diagnostics._law_functions import POINTS_PER_CALL, LawFunctions
from nn_uq_dist.laws._output_law import OutputLaw

Array = NDArray[np.float64]

# Clips the probabilities 0 and 1 of draws beyond the support, which have no finite logit or score.
CLIP = float(np.finfo(np.float64).eps)
# The normal score of the smallest positive float64.
LARGEST_SCORE = 38.0
# Seconds of work before a progress bar appears.
PROGRESS_DELAY = 2.0


class Tails:
    """Positions of draws under the laws of the outputs.

    The position of a draw is its normal score. It resolves the upper tail as well as the lower one,
    while a distribution function rounds to 1 there: in float32 from five standard deviations on.

    Parameters
    ----------
    law
        An `OutputLaw` with batch shape ``(N_y,)``, or ``()`` for one output.
    draws
        Shape ``(n, N_y)``.
    progress
        Whether a progress bar may appear, which it does after two seconds of work.

    Attributes
    ----------
    points
        The draws in float64. Those that rounding has put at or beyond an end of the support are
        moved just inside; those that are not finite are replaced by the mean.
    scores
        Normal scores, infinite beyond the support, NaN for draws that are not finite.
    log_density
        Log density at the draws, ``-inf`` beyond the support, NaN for draws that are not finite.
    is_finite
        Whether a draw is finite.
    is_outside
        Whether a draw lies beyond an end of the support by more than rounding.
    """

    def __init__(
        self, law: OutputLaw, draws: NDArray[np.generic], *, progress: bool = True
    ) -> None:
        count, num_outputs = draws.shape
        functions = LawFunctions(law, num_outputs)
        self.points, self.scores, self.log_density = np.empty((3, count, num_outputs))
        self.is_finite, self.is_outside = np.empty((2, count, num_outputs), dtype=bool)
        rounding = _rounding(functions, draws)
        # A law narrower than the rounding error is evaluated at its mean.
        innermost = (
            np.minimum(functions.low + rounding, functions.mean),
            np.maximum(functions.high - rounding, functions.mean),
        )
        starts = range(0, count, POINTS_PER_CALL)
        hidden = not progress or len(starts) < 2  # a single portion ends before a bar could move
        for start in tqdm(
            starts, "analytic laws", delay=PROGRESS_DELAY, disable=hidden, leave=False
        ):
            rows = slice(start, start + POINTS_PER_CALL)
            part = draws[rows].astype(np.float64)
            finite = np.isfinite(part)
            part = np.where(finite, part, functions.mean)
            outside = (part < functions.low - rounding) | (part > functions.high + rounding)
            points = np.where(outside, part, np.clip(part, *innermost))
            scores, log_density = functions.scores_and_log_densities(points)
            self.points[rows] = points
            self.scores[rows] = np.where(finite, scores, np.nan)
            self.log_density[rows] = np.where(finite, log_density, np.nan)
            self.is_finite[rows], self.is_outside[rows] = finite, outside

    @property
    def non_finite(self) -> NDArray[np.int64]:
        """Number of draws of each output that are not finite."""
        return np.sum(~self.is_finite, axis=0)

    @property
    def outside_support(self) -> Array:
        """Fraction of the finite draws of each output beyond its support, NaN if there are none."""
        counts = self.is_finite.sum(axis=0)
        return self.is_outside.sum(axis=0) / np.where(counts > 0, counts, np.nan)

    def probabilities(self) -> Array:
        """The probability integral transform ``F(x)``, clipped to 2.2e-16 from 0 and 1."""
        from scipy.special import ndtr

        tail = np.maximum(ndtr(-np.abs(self.scores)), CLIP)
        return np.where(self.scores > 0, 1 - tail, tail)

    def normal_scores(self) -> Array:
        """``Phi^-1(F(x))``, clipped to [-38, 38], also for draws beyond the support."""
        return np.clip(self.scores, -LARGEST_SCORE, LARGEST_SCORE)


def _rounding(functions: LawFunctions, draws: NDArray[np.generic]) -> Array:
    """How far rounding may have moved a draw near an end of its support, shape ``(N_y,)``."""
    types = [functions.law.mean.dtype, draws.dtype]
    eps = max(float(jnp.finfo(t).eps) for t in types if jnp.issubdtype(t, jnp.floating))
    ends = np.abs([functions.low, functions.high])
    return 8 * eps * np.max(ends, axis=0, where=np.isfinite(ends), initial=0)
