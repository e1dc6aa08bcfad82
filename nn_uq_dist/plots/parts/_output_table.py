"""The law of one output at points spaced by its normal scores."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nn_uq_dist.laws import OutputLaw
from nn_uq_dist.laws._choose_outputs import take_outputs
from nn_uq_dist.plots.parts._from_diagnostics import LawFunctions

Array = NDArray[np.float64]

SCORE_REACH = 8.0
# Points of a table, and of one call: a call of another shape would be compiled anew.
NUM_POINTS = 512
# Steps of the search for the points with these scores, per factor of two in the distance.
STEPS_PER_OCTAVE = 4
# In standard deviations; by Chebyshev's inequality a score of 8 is at most 2^25 away.
OCTAVES = (-6, 26)
# Distances from an end of the support, down to the resolution of float32 at the end.
END_OCTAVES = 24


class OutputTable(NamedTuple):
    """The law of one output, tabulated evenly in its normal scores between -8 and 8.

    The table locates points with given scores; scores and densities are always evaluated from the
    law itself, never interpolated.

    Attributes
    ----------
    functions
        Functions of the law minus `origin`.
    origin
        Offset added to the points of the law. With a law centered at zero, float32 resolves the
        deviations from a large mean.
    mean, sd, low, high
        Moments and ends of the support, including `origin`.
    points, scores, log_densities
        Ascending points, and scores and log densities there.
    """

    functions: LawFunctions
    origin: float
    mean: float
    sd: float
    low: float
    high: float
    points: Array
    scores: Array
    log_densities: Array

    def curve(self) -> Array:
        """Points and densities, shape ``(2, points)``, down to zero at the ends of the support."""
        x, p = self.points, np.exp(self.log_densities)
        if np.isfinite(self.low):
            x, p = np.append(self.low, x), np.append(0.0, p)
        if np.isfinite(self.high):
            x, p = np.append(x, self.high), np.append(p, 0.0)
        return np.array([x, p])

    def near_scores(self, scores: Array) -> tuple[Array, Array, Array]:
        """Points with roughly these normal scores, and their exact scores and log densities."""
        points = np.interp(scores, self.scores, self.points)
        return points, *self.at(points)

    def at(self, points: Array) -> tuple[Array, Array]:
        """Exact normal scores and log densities at points, shape ``(p,)``."""
        columns = (points - self.origin)[:, None]
        scores, log_densities = self.functions.scores_and_log_densities(columns)
        return scores[:, 0], log_densities[:, 0]


def output_table(laws: OutputLaw, index: int, origin: float) -> OutputTable:
    """Tabulate one of several laws, with offset `origin`."""
    functions = LawFunctions(take_outputs(laws, (index,)), 1, points_per_call=NUM_POINTS)
    constants = (functions.mean, functions.sd, functions.low, functions.high)
    mean, sd, low, high = (float(values[0]) for values in constants)
    points, scores, _ = _evaluated(functions, _search_points(mean, sd, low, high))
    even = np.linspace(scores[0], scores[-1], NUM_POINTS)
    points, scores, log_densities = _evaluated(functions, np.interp(even, scores, points))
    return OutputTable(
        functions, origin, origin + mean, sd, origin + low, origin + high,
        origin + points, scores, log_densities,
    )  # fmt: skip


def _search_points(mean: float, sd: float, low: float, high: float) -> Array:
    """Points among which all scores between -8 and 8 are found, whatever the shape of the law."""
    first, last = OCTAVES
    count = (last - first) * STEPS_PER_OCTAVE + 1
    away = sd * np.logspace(first, last, count, base=2.0)
    parts = [np.array([mean])]
    for sign, end in ((-1, low), (1, high)):
        room = abs(end - mean)
        parts.append(mean + sign * away[away < room])
        if np.isfinite(end):
            left = room * np.logspace(0, -END_OCTAVES, END_OCTAVES * STEPS_PER_OCTAVE, base=2.0)
            parts.append(end - sign * left)
    return np.unique(np.concatenate(parts))


def _evaluated(functions: LawFunctions, points: Array) -> tuple[Array, Array, Array]:
    """Ascending points with ascending scores between -8 and 8, and the log densities there."""
    # Round the points to the precision of the law, so that its values belong to them exactly.
    points = np.unique(points.astype(functions.law.mean.dtype)).astype(np.float64)
    found = functions.scores_and_log_densities(points[:, None])
    scores, log_densities = (values[:, 0] for values in found)
    middle = int(np.argmin(np.abs(points - functions.mean)))
    above = middle + _outward(scores[middle:])
    below = middle - _outward(-scores[middle::-1])
    kept = np.concatenate([below[:0:-1], above])
    return points[kept], scores[kept], log_densities[kept]


def _outward(scores: Array) -> NDArray[np.intp]:
    """Positions of the scores, going outward from the mean, that exceed all previous ones.

    Rounding may swap neighbors, and far out some laws have the same score everywhere. It stops at
    the first score that is beyond 8 or not finite, as at the end of a support.
    """
    beyond = np.flatnonzero(~(np.abs(scores) <= SCORE_REACH))
    inside = scores[: beyond[0]] if beyond.size else scores
    largest = np.maximum.accumulate(inside)
    return np.concatenate([[0], 1 + np.flatnonzero(inside[1:] > largest[:-1])]).astype(np.intp)
