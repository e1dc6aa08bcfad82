"""Knots of a corrected map, as the draws allow and as the type of the outputs can hold them."""

from typing import Any

import jax.numpy as jnp
import numpy as np

from nn_uq_dist.basics.concrete import FloatArray
from nn_uq_dist.distributions import MonotoneSpline

# Half the length of the interval in standard deviations of a rank. With three, the draws would move
# quantiles of an exactly linear network: the worst of many quantiles exceeds three.
_REACH = 4.0
# How far beyond the draws a tail may reach, in units of the span of the outermost draws.
_BEYOND_DRAWS, SPACINGS = 10.0, 5
# Probability that one of as many draws is beyond what counts as the end of a base without ends.
_UNLIKELY = 0.02

type Knots = tuple[FloatArray, FloatArray, FloatArray]


def settled_knots(
    knots: Knots, draws: FloatArray, ends: FloatArray, scores: FloatArray, dtype: Any
) -> Knots:
    """Knots, values and slopes of one map, from the estimated ones and finite draws.

    The ends are those of the support of the linear output, the scores those of the knots.
    """
    x, wanted, slopes = knots
    y = held(wanted, draws, scores)
    ends = np.where(np.isfinite(ends), ends, _likely_ends(x, scores, draws.size))
    x, y, slopes = _resolved((x, y, np.where(y == wanted, slopes, np.nan)), dtype)
    # A value that was moved has the slope of the chords around it.
    moved = np.isnan(slopes)
    near = moved | np.roll(moved, 1) | np.roll(moved, -1)
    slopes = np.where(near, MonotoneSpline(x, y).slopes, slopes)
    return x, y, _reaching((x, y, slopes), draws, ends)


def held(wanted: FloatArray, draws: FloatArray, scores: FloatArray) -> FloatArray:
    """Clip quantiles to order statistics some ranks above and below.

    An error of regression that is small in units of the output can be a large error in probability
    if many outputs are nearly equal, as for a unit that saturates. The scores are those of the
    wanted quantiles.
    """
    from scipy.special import ndtr

    count, ordered = draws.size, np.sort(draws)
    middle = count * ndtr(scores)
    reach = 1 + _REACH * np.sqrt(middle * (1 - middle / count))
    below, above = (np.floor(middle + sign * reach).astype(int) for sign in (-1, 1))
    span = min(SPACINGS, count - 1)
    least = ordered[0] - _BEYOND_DRAWS * (ordered[span] - ordered[0])
    most = ordered[-1] + _BEYOND_DRAWS * (ordered[-1] - ordered[-1 - span])
    low = np.where(below < 0, least, ordered[np.clip(below, 0, count - 1)])
    high = np.where(above >= count, most, ordered[np.clip(above, 0, count - 1)])
    return np.clip(wanted, low, high)


def _likely_ends(x: FloatArray, scores: FloatArray, count: int) -> FloatArray:
    """Quantiles of the base that few of as many draws exceed, on lines through the outer knots."""
    from scipy.special import ndtri

    last = ndtri(_UNLIKELY / count) * np.array([1, -1])
    rise = (x[[1, -1]] - x[[0, -2]]) / (scores[[1, -1]] - scores[[0, -2]])
    return x[[0, -1]] + rise * (last - scores[[0, -1]])


def _reaching(knots: Knots, draws: FloatArray, ends: FloatArray) -> FloatArray:
    """Slopes with which the image of the linear output's support holds the draws.

    If those of the fit do not, it gets some room beyond them: an outermost spacing of the draws. Of
    a base without ends the part counts that draws are likely to be in.
    """
    (x, y, slopes), ordered = knots, np.sort(draws)
    slopes = slopes.copy()
    some = min(SPACINGS, draws.size - 1)
    for k, inner, sign in ((0, some, -1), (-1, -1 - some, 1)):
        width, last = ends[k] - x[k], ordered[k]
        if np.isfinite(width) and sign * (y[k] + slopes[k] * width - last) < 0:
            slopes[k] = max(slopes[k], (2 * last - ordered[inner] - y[k]) / width)
    return slopes


def _resolved(knots: Knots, dtype: Any) -> Knots:
    """Knots and values that a type tells apart; others move beyond the outermost ones.

    There the map is a straight line, with or without them. To push them apart in place would move
    an output that saturates far from zero by as many roundings as there are knots.
    """
    x, y, slopes = knots
    eps = 2 * float(jnp.finfo(dtype).eps)
    middle = x.size // 2
    # At zero a type would tell apart what means nothing. Half of an output may be zero altogether.
    # One that is constant is as narrow as its variance allows: a standard deviation is a sixth of
    # the way from the middle to the outermost knot, or more, and half a gap is there.
    nothing = 64 * float(jnp.finfo(dtype).tiny) ** 0.5
    least_x, least_y = (eps * eps * float(np.abs(part).max()) for part in (x, y))
    at_zero = least_x, nothing if y[0] == y[-1] else least_y
    upper = _outward(x[middle:], y[middle:], slopes[middle:], eps, at_zero)
    lower = _outward(-x[middle::-1], -y[middle::-1], slopes[middle::-1], eps, at_zero)
    signs = (-1, -1, 1)
    parts = zip(signs, lower, upper, strict=True)
    x, y, slopes = (np.concatenate([sign * a[:0:-1], b]) for sign, a, b in parts)
    return x, y, slopes


def _outward(
    x: FloatArray, y: FloatArray, slopes: FloatArray, eps: float, at_zero: tuple[float, float]
) -> Knots:
    """Knots from the middle to one end, those that are not apart beyond the last one."""
    kept, y = [0], y.copy()
    least_x, least_y = at_zero

    def gap(values: FloatArray, least: float, k: int, last: int) -> float:
        # A skewed output has values near its one end that the type tells apart much better than
        # those at the other.
        return max(eps * abs(float(values[k])), eps * abs(float(values[last])), least)

    for k in range(1, x.size):
        last = kept[-1]
        if x[k] - x[last] <= gap(x, least_x, k, last):
            continue
        least = gap(y, least_y, k, last)
        if y[k] - y[last] <= least and k + 1 < x.size and y[k + 1] - y[last] > 2 * least:
            y[k] = y[last] + 1.5 * least  # the last knot of a plateau, which rises on its way
        if y[k] - y[last] > least:
            kept.append(k)
    number = np.arange(1, x.size - len(kept) + 1)
    last, values = kept[-1], y[kept]
    width = max(x[-1] - x[last], gap(x, least_x, -1, last))
    # Half a gap is a step of the type at least. A plateau ends where it did, so it begins below.
    rise = max(y[-1] - y[last], gap(y, least_y, -1, last) / 2)
    if number.size and last > 0:
        values[-1] = y[-1] - rise
    return (
        np.append(x[kept], x[last] + width * number),
        np.append(values, values[-1] + rise * number),
        np.append(slopes[kept], rise / width + 0.0 * number),
    )
