"""Values at normal scores of several laws at once, by brackets that shrink together."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

# A call evaluates at least this many points of each bracket.
FEWEST_POINTS = 16
_MAX_ROUNDS = 60
# Distances from the expected value, in widths of the bracket, at which the finer points lie.
_NARROWEST = 1e-7


def values_at_scores(
    targets: Array,
    scores: Callable[[Array], Array],
    start: tuple[Array, Array],
    ends: tuple[Array, Array],
    tolerance: tuple[float, Array],
    points_per_call: int,
) -> Array:
    """Solve ``scores(x) = target`` for several laws at once.

    Parameters
    ----------
    targets
        Normal scores, finite, shape ``(q,)``.
    scores
        Takes points ``(p, N_y)`` with ``p`` at most `points_per_call`, column `j` for law `j`, and
        returns their normal scores, which increase along each column.
    start
        A range that holds most of each law; it is widened if a value lies outside.
    ends
        Ends of the supports, where known: values lie between them. Shape ``(N_y,)`` each, as those
        of `start`.
    tolerance
        Width at which a bracket need not shrink further: relative to its position, or, if that is
        smaller, absolute, shape ``(N_y,)``.
    points_per_call
        At least 16.

    Returns
    -------
    Array, shape ``(q, N_y)``
        If the scores of a law are capped below the target, as those of `AdaptedLaw` may be, the
        first value with the largest score; NaN if all scores are NaN.
    """
    distinct, position = np.unique(targets, return_inverse=True)
    most = points_per_call // FEWEST_POINTS
    parts = [
        _solve(distinct[k : k + most], scores, start, ends, tolerance, points_per_call)
        for k in range(0, distinct.size, most)
    ]
    return np.concatenate(parts)[position]


def _solve(
    targets: Array,
    scores: Callable[[Array], Array],
    start: tuple[Array, Array],
    ends: tuple[Array, Array],
    tolerance: tuple[float, Array],
    points_per_call: int,
) -> Array:
    """Shrink the brackets of all targets and laws together, in every call."""
    num_laws = start[0].size
    shape = (targets.size, num_laws)
    low, high = (np.broadcast_to(side, shape) for side in start)
    lowest, highest = (np.broadcast_to(side, shape) for side in ends)
    relative, absolute = tolerance
    goal = np.broadcast_to(targets[:, None], shape)
    regular, around = _fractions(points_per_call // targets.size)
    expected = np.full(shape, 0.5)
    # Infinite where nothing is known yet. The ends of a support are never evaluated, which is slow.
    at_low, at_high = np.full(shape, -np.inf), np.full(shape, np.inf)
    # Sides of the bracket that no score has confirmed. An infinite score confirms a side: it occurs
    # beyond a support whose ends the law does not give.
    is_open = np.full((2, *shape), True)
    is_invalid = np.zeros(shape, bool)
    for _ in range(_MAX_ROUNDS):
        width = high - low
        fine = np.clip(expected + around, regular[0], regular[-1])
        inner = np.sort(np.concatenate([np.broadcast_to(regular, (len(regular), *shape)), fine]), 0)
        points = low + width * inner
        found = scores(points.reshape(-1, num_laws)).reshape(points.shape)
        is_invalid = is_invalid | np.isnan(found).all(axis=0)
        # Scores that a law caps in its upper tail never reach the target: use the first capped one.
        is_held = (found[-1] < goal) & (found[len(found) // 2] == found[-1])
        is_held = is_held & is_open[1] & (high < highest)
        goal = np.where(is_held, found[-1], goal)
        grid = np.concatenate([low[None], points, high[None]])
        at_grid = np.concatenate([at_low[None], found, at_high[None]])
        index = np.clip(np.sum(at_grid < goal, axis=0), 1, len(grid) - 1)[None]
        low, high, at_low, at_high = (
            np.take_along_axis(x, index + k, 0)[0] for x in (grid, at_grid) for k in (-1, 0)
        )
        # The value may lie beyond the range of the first round.
        is_open = is_open & np.stack([index[0] == 1, index[0] == len(grid) - 1])
        low = np.where(is_open[0], np.maximum(low - 16 * width, lowest), low)
        high = np.where(is_open[1], np.minimum(high + 16 * width, highest), high)
        expected = _expected(goal, at_low, at_high)
        enough = np.maximum(relative * np.maximum(np.abs(low), np.abs(high)), absolute)
        is_known = (~is_open[0] | (low == lowest)) & (~is_open[1] | (high == highest))
        is_narrow = is_known & ((high - low <= enough) | (high - low >= width))
        if np.all(is_narrow | is_invalid):
            break
    return np.where(is_invalid, np.nan, low + expected * (high - low))


def _fractions(number: int) -> tuple[Array, Array]:
    """Positions of the points of a round: across a bracket, and around the value expected in it.

    The first kind shrinks every bracket; the second kind shrinks it much faster once the scores are
    nearly linear in it.
    """
    side = number // 4
    distances = np.geomspace(_NARROWEST, 0.3, side)
    return (
        (np.arange(1, number - 2 * side + 1) / (number - 2 * side + 1))[:, None, None],
        np.concatenate([-distances, distances])[:, None, None],
    )


def _expected(goal: Array, left: Array, right: Array) -> Array:
    """Position of a score between those of its bracket's ends; the middle if one is infinite."""
    with np.errstate(invalid="ignore", divide="ignore"):
        place = (goal - left) / (right - left)
    return np.where(np.isfinite(place) & np.isfinite(left) & np.isfinite(right), place, 0.5).clip(
        0, 1
    )
