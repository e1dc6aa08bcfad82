"""Probabilities, densities and normal scores under symmetric laws, right in both tails."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from nn_uq_dist import linear_combination

Array = NDArray[np.float64]

# Points per output in one call: a call of another shape would be compiled anew.
POINTS_PER_CALL = 2048
# Draws beyond the support have the probability 0 or 1, which no logit, score or logarithm bears.
CLIP = float(np.finfo(np.float64).eps)
# The normal score of the smallest positive float64.
LARGEST_SCORE = 38.0
# Seconds of work before a progress bar appears.
PROGRESS_DELAY = 2.0


class Tails:
    """Where draws lie under the laws of the outputs.

    The laws are symmetric, so that a draw is described by its side and by the log probability of
    the tail beyond it. That resolves the upper tail as well, where a distribution function rounds
    to 1: in float32 from five standard deviations on.

    Parameters
    ----------
    law
        A `LinearizedMarginal` with batch shape ``(N_y,)``, or ``()`` for one output.
    draws
        Shape ``(n, N_y)``.
    progress
        Whether a progress bar may appear, which it does after two seconds of work.

    Attributes
    ----------
    log_tail
        ``log P(X > m + |x - m|)`` with the center `m`, shape ``(n, N_y)``: ``-inf`` at and beyond
        the end of the support, NaN for draws that are not finite.
    is_outside
        Whether a draw lies beyond an end of the support by more than rounding. Draws that rounding
        has put at or beyond it are taken as just inside.
    log_density
        Log density at the draws, ``-inf`` beyond the support, NaN for draws that are not finite.
    is_above
        Whether the draw is above the center.
    """

    def __init__(self, law: Any, draws: NDArray[Any], *, progress: bool = True) -> None:
        count, num_outputs = draws.shape
        self.log_tail = np.empty((count, num_outputs))
        self.log_density = np.empty((count, num_outputs))
        self.is_above = np.empty((count, num_outputs), dtype=bool)
        self.is_outside = np.empty((count, num_outputs), dtype=bool)
        center = centers(law, num_outputs)
        end, rounding = _ends(law, draws, center)
        starts = range(0, count, POINTS_PER_CALL)
        hidden = not progress or len(starts) < 2  # one portion is over before a bar can move
        for start in tqdm(
            starts, "analytic laws", delay=PROGRESS_DELAY, disable=hidden, leave=False
        ):
            rows = slice(start, start + POINTS_PER_CALL)
            part = draws[rows].astype(np.float64)
            finite = np.isfinite(part)
            distance = np.abs(np.where(finite, part - center, 0))
            outside = distance > end + rounding
            distance = np.where(outside, distance, np.minimum(distance, end - rounding))
            points = center + np.maximum(distance, 0)
            log_tail, log_density = upper_tails_and_densities(law, points)
            self.log_tail[rows] = np.where(finite, log_tail, np.nan)
            self.log_density[rows] = np.where(finite, log_density, np.nan)
            self.is_above[rows] = part > center
            self.is_outside[rows] = outside

    def probabilities(self) -> Array:
        """``F(x)``, held within 2.2e-16 of 0 and 1: the probability integral transform."""
        tail = np.maximum(np.exp(self.log_tail), CLIP)
        return np.where(self.is_above, 1 - tail, tail)

    def normal_scores(self) -> Array:
        """``Phi^-1(F(x))``, held between -38 and 38; draws beyond the support have those."""
        from scipy.special import ndtri_exp

        below = np.maximum(ndtri_exp(self.log_tail), -LARGEST_SCORE)
        return np.where(self.is_above, -below, below)


def _ends(law: Any, draws: NDArray[Any], center: Array) -> tuple[Array, Array]:
    """Distances of the ends of the support from the centers, and the rounding errors there."""
    # Not from the support, which is the real line for all outputs if one has a normal part.
    width = np.abs(np.asarray(law.weights, np.float64)).sum(axis=-1)
    if law.normal_scale is not None:
        width = np.where(np.asarray(law.normal_scale) > 0, np.inf, width)
    end = np.broadcast_to(width, center.shape)
    eps = max(float(jnp.finfo(dtype).eps) for dtype in (law.mean.dtype, draws.dtype)
              if jnp.issubdtype(dtype, jnp.floating))  # fmt: skip
    reach = np.where(np.isfinite(end), end, 0)
    return end, 8 * eps * (np.abs(center) + reach)


def centers(law: Any, num_outputs: int) -> Array:
    """Centers of symmetry of the laws, shape ``(N_y,)``."""
    return np.broadcast_to(np.asarray(law.mean, dtype=np.float64), (num_outputs,))


def upper_tails_and_densities(law: Any, points: Array) -> tuple[Array, Array]:
    """Log survival functions and log densities at points in the upper halves of the laws.

    Every table and figure asks here, in portions of one shape: the two functions are one
    pass, and each number of outputs is compiled once.

    Parameters
    ----------
    law
        As of `Tails`.
    points
        At or above the centers, shape ``(p, N_y)``.

    Returns
    -------
    (Array, Array)
        Both of the shape of `points`.
    """
    padded = np.pad(points, [(0, -len(points) % POINTS_PER_CALL), (0, 0)], mode="edge")
    portions = np.split(padded, len(padded) // POINTS_PER_CALL)
    values = [_log_sf_and_log_prob(law, jnp.asarray(portion)) for portion in portions]
    log_tail, log_density = (
        np.concatenate([np.asarray(part, np.float64) for part in parts])[: len(points)]
        for parts in zip(*values, strict=True)
    )
    # At the center rounding may exceed one half.
    return np.minimum(log_tail, -np.log(2)), log_density


def log_densities(law: Any, points: Array) -> Array:
    """Log densities at points of shape ``(p, N_y)``, by symmetry from the upper halves."""
    center = centers(law, points.shape[1])
    return upper_tails_and_densities(law, center + np.abs(points - center))[1]


def distribution_functions(law: Any, points: Array) -> Array:
    """``F_j`` at points of shape ``(p, N_y)``, by symmetry from the upper halves."""
    center = centers(law, points.shape[1])
    tail = np.exp(upper_tails_and_densities(law, center + np.abs(points - center))[0])
    return np.where(points > center, 1 - tail, tail)


@jax.jit
def _log_sf_and_log_prob(law: Any, x: jax.Array) -> tuple[jax.Array, jax.Array]:
    scale = law._scale  # noqa: SLF001 (None where the type has no normal part)
    log_density, log_tail = linear_combination.logpdf_and_logsf(x - law.loc, law.weights, scale)
    return log_tail, log_density
