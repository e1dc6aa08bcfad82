"""Quantiles held inside of an interval that draws alone give for each."""

from typing import Any

import numpy as np
from jax import Array

from nn_uq_dist.basics._row_algebra import namespace

# Half the length of the interval in standard deviations of a rank. At three an exactly linear
# network would be moved by its draws: the worst of many quantiles goes beyond.
_REACH = 4.0
# Ratios below are an average over ranks; single ones scatter more.
_LEAST_RATIO = 0.25
# How far beyond the draws a tail may go, in units of the span of the outermost of them.
_BEYOND_DRAWS, _SPACINGS = 10.0, 5


def hold_in_interval(wanted: Array, network: Array, scores: np.ndarray, ratio: Array) -> Array:
    """Clip quantiles to order statistics, some ranks above and below.

    What regression and smoothing gain in standard deviations of the output can be far off in
    probability, where many outputs are nearly equal: those of a unit that saturates.

    Parameters
    ----------
    wanted
        Quantiles, shape ``(J, k)``.
    network
        Draws, ``(n, J)``.
    scores
        Normal scores of the quantiles, ``(k,)``.
    ratio
        Variance of a rank over that for independent draws, ``(J,)``.
    """
    from scipy.special import ndtr

    xp: Any = namespace(wanted, network)
    count = network.shape[0]
    middle = count * ndtr(scores)
    scale = np.sqrt(middle * (1 - middle / count)).astype(network.dtype)
    reach = 1 + _REACH * scale[:, None] * xp.sqrt(xp.maximum(ratio, _LEAST_RATIO))
    below, above = (xp.floor(middle[:, None] + s * reach).astype(int) for s in (-1, 1))
    ordered = xp.sort(network, axis=0)
    low, high = (
        xp.take_along_axis(ordered, xp.clip(rank, 0, count - 1), axis=0) for rank in (below, above)
    )
    span = min(_SPACINGS, count - 1)
    least = ordered[0] - _BEYOND_DRAWS * (ordered[span] - ordered[0])
    most = ordered[-1] + _BEYOND_DRAWS * (ordered[-1] - ordered[-1 - span])
    low, high = xp.where(below < 0, least, low), xp.where(above > count - 1, most, high)
    held: Array = xp.clip(wanted, low.T, high.T)
    return held
