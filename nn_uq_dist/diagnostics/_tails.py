"""Probabilities and normal scores of draws under symmetric laws, right in both tails."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

# Points per output in one call: a call of another shape would be compiled anew.
POINTS_PER_CALL = 2048
# Draws beyond the support have the probability 0 or 1, which no logit, score or logarithm bears.
CLIP = float(np.finfo(np.float64).eps)
# The normal score of the smallest positive float64.
LARGEST_SCORE = 38.0


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

    Attributes
    ----------
    log_tail
        ``log P(X > m + |x - m|)`` with the center `m`, shape ``(n, N_y)``: ``-inf`` at and beyond
        the end of the support, NaN for draws that are not finite.
    is_above
        Whether the draw is above the center.
    """

    def __init__(self, law: Any, draws: NDArray[Any]) -> None:
        count, num_outputs = draws.shape
        self.log_tail = np.empty((count, num_outputs))
        self.is_above = np.empty((count, num_outputs), dtype=bool)
        center = np.broadcast_to(np.asarray(law.mean, dtype=np.float64), (num_outputs,))
        for start in range(0, count, POINTS_PER_CALL):
            rows = slice(start, start + POINTS_PER_CALL)
            part = draws[rows].astype(np.float64)
            finite = np.isfinite(part)
            points = center + np.abs(np.where(finite, part - center, 0))
            padded = np.pad(points, [(0, POINTS_PER_CALL - len(part)), (0, 0)], mode="edge")
            log_tail = np.asarray(_log_sf(law, jnp.asarray(padded)), np.float64)[: len(part)]
            # At the center rounding may exceed one half.
            log_tail = np.minimum(log_tail, -np.log(2))
            self.log_tail[rows] = np.where(finite, log_tail, np.nan)
            self.is_above[rows] = part > center

    @property
    def is_outside(self) -> NDArray[np.bool_]:
        """Whether a draw lies at or beyond an end of the support."""
        outside: NDArray[np.bool_] = np.isneginf(self.log_tail)
        return outside

    def probabilities(self) -> Array:
        """``F(x)``, held within 2.2e-16 of 0 and 1: the probability integral transform."""
        tail = np.maximum(np.exp(self.log_tail), CLIP)
        return np.where(self.is_above, 1 - tail, tail)

    def normal_scores(self) -> Array:
        """``Phi^-1(F(x))``, held between -38 and 38; draws beyond the support have those."""
        from scipy.special import ndtri_exp

        below = np.maximum(ndtri_exp(self.log_tail), -LARGEST_SCORE)
        return np.where(self.is_above, -below, below)


@jax.jit
def _log_sf(law: Any, x: jax.Array) -> jax.Array:
    values: jax.Array = law.log_sf(x)
    return values
