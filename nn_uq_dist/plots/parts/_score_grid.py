"""Outputs at points spaced by their normal scores: one in a table, two on a grid."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nn_uq_dist.diagnostics._law_functions import LawFunctions
from nn_uq_dist.laws import OutputLaw
from nn_uq_dist.laws._abstract import batch_entries

Array = NDArray[np.float64]

SCORE_REACH = 8.0
# Points of a table, and of one call: a call of another shape would be compiled anew.
NUM_POINTS = 512
# The points of a table are linear between the values of this many scores.
NUM_KNOTS = 64
GRID_REACH = 5.0
GRID_POINTS = 161


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
    functions = LawFunctions(batch_entries(laws, (..., (index,))), 1, points_per_call=NUM_POINTS)
    knots = np.linspace(-SCORE_REACH, SCORE_REACH, NUM_KNOTS)
    values = functions.values(knots)[:, 0]
    points = np.interp(np.linspace(-SCORE_REACH, SCORE_REACH, NUM_POINTS), knots, values)
    # Round the points to the precision of the law, so that its values belong to them exactly.
    points = np.unique(points.astype(functions.law.mean.dtype)).astype(np.float64)
    scores, log_densities = (x[:, 0] for x in functions.scores_and_log_densities(points[:, None]))
    # Rounding may swap neighbors, and far out some laws have the same score everywhere.
    inside = np.flatnonzero(np.abs(scores) <= SCORE_REACH)
    largest = np.maximum.accumulate(scores[inside])
    kept = inside[np.append(True, scores[inside][1:] > largest[:-1])]
    mean, sd, low, high = (
        float(x[0]) for x in (functions.mean, functions.sd, functions.low, functions.high)
    )
    return OutputTable(
        functions, origin, origin + mean, sd, origin + low, origin + high,
        origin + points[kept], scores[kept], log_densities[kept],
    )  # fmt: skip


class ScoreGrid(NamedTuple):
    """Points of two outputs, all arrays of shape ``(161, 161)``.

    Attributes
    ----------
    x, y
        The points.
    scores, log_densities
        Normal scores of the two outputs, and the log density of each output alone.
    """

    x: Array
    y: Array
    scores: tuple[Array, Array]
    log_densities: tuple[Array, Array]


def score_grid(x: OutputTable, y: OutputTable, loc: Array, factor: Array) -> ScoreGrid:
    """Points with scores ``z = loc + factor w`` for regular `w`, which resolve any correlation.

    Each row of constant ``w[0]`` is moved along the second output by the nearest whole number of
    steps. So the second output has few different values, at each of which its law is evaluated
    once; unrounded shifts would need 161 times 161 values.

    Parameters
    ----------
    x, y
        The laws of the outputs.
    loc, factor
        Mean ``(2,)`` and lower Cholesky factor ``(2, 2)`` of the scores.
    """
    w = np.linspace(-GRID_REACH, GRID_REACH, GRID_POINTS)
    step = w[1] - w[0]
    middle = GRID_POINTS // 2
    shift = np.round(factor[1, 0] * w / (factor[1, 1] * step)).astype(int)
    steps = shift[:, None] + np.arange(-middle, middle + 1)
    different, position = np.unique(steps, return_inverse=True)
    position = position.reshape(steps.shape)
    across = x.near_scores(loc[0] + factor[0, 0] * w)
    along = y.near_scores(loc[1] + factor[1, 1] * step * different)
    first = [np.broadcast_to(values[:, None], steps.shape) for values in across]
    second = [values[position] for values in along]
    return ScoreGrid(first[0], second[0], (first[1], second[1]), (first[2], second[2]))
