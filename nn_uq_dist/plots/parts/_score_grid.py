"""A grid of two outputs that is regular in their whitened normal scores."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nn_uq_dist.plots.parts._output_table import OutputTable

Array = NDArray[np.float64]

GRID_REACH = 5.0
GRID_POINTS = 161


class ScoreGrid(NamedTuple):
    """Points of two outputs, all arrays of shape ``(161, 161)``.

    Attributes
    ----------
    x, y
        The points.
    scores, log_densities
        Normal scores of the two outputs, and the log density of each output alone.
    weights
        Probabilities of the cells if the scores are jointly normal, as the grid assumes.
    """

    x: Array
    y: Array
    scores: tuple[Array, Array]
    log_densities: tuple[Array, Array]
    weights: Array


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
    v = steps * step - (factor[1, 0] / factor[1, 1] * w)[:, None]
    weights = np.exp(-(w[:, None] ** 2 + v**2) / 2) / (2 * np.pi) * step**2
    return ScoreGrid(
        first[0], second[0], (first[1], second[1]), (first[2], second[2]), weights
    )  # fmt: skip
