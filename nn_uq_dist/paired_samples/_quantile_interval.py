"""Quantiles kept within intervals that come from the draws alone."""

from typing import Any

import numpy as np
from jax import Array

from nn_uq_dist.basics._row_algebra import namespace

# Half the length of the interval in standard deviations of a rank. With three, the draws would move
# quantiles of an exactly linear network: the worst of many quantiles exceeds three.
_REACH = 4.0
# Lower bound of the ratio, which is an average over ranks; single ranks scatter more.
_LEAST_RATIO = 0.25
# How far beyond the draws a tail may reach, in units of the span of the outermost draws.
_BEYOND_DRAWS, _SPACINGS = 10.0, 5


def hold_in_interval(wanted: Array, network: Array, scores: np.ndarray, ratio: Array) -> Array:
    """Clip quantiles to order statistics some ranks above and below.

    An error of regression and smoothing that is small in units of the output can be a large error
    in probability if many outputs are nearly equal, as for a unit that saturates.

    Parameters
    ----------
    wanted
        Quantiles, shape ``(J, k)``.
    network
        Draws, ``(n, J)``.
    scores
        Normal scores of the quantiles, ``(k,)``.
    ratio
        Variance of a rank divided by that for independent draws, ``(J,)``.
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
