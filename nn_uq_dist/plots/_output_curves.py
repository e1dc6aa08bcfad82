"""Densities and histograms of single outputs, over ranges that hold the law and the draws."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nn_uq_dist.diagnostics._tails import log_densities

Array = NDArray[np.float64]


def per_output(value: Any, num_outputs: int) -> Array:
    """Return one number for each output."""
    return np.broadcast_to(np.asarray(value, dtype=np.float64), (num_outputs,))


def mean_and_sd(law: Any, num_outputs: int) -> tuple[Array, Array]:
    """Return means and standard deviations, shape ``(N_y,)`` each."""
    return per_output(law.mean, num_outputs), per_output(np.sqrt(law.variance), num_outputs)


def cover_draws(low: Array, high: Array, columns: Sequence[Array], tail: float) -> None:
    """Widen ranges in place until all but the fraction `tail` of the draws on either side fit."""
    for k, column in enumerate(columns):
        if column.size:
            inner = np.quantile(column, [tail, 1 - tail])
            low[k], high[k] = min(low[k], inner[0]), max(high[k], inner[1])


def density_curves(
    law: Any, low: Array, high: Array, shown: Sequence[int], num_outputs: int, num_points: int
) -> tuple[Array, Array]:
    """Return grids and densities of the shown outputs, shape ``(len(shown), num_points)`` each."""
    grid = np.linspace(low, high, num_points)
    points = np.tile(per_output(law.mean, num_outputs), (num_points, 1))
    points[:, shown] = grid
    return grid.T, np.exp(log_densities(law, points)[:, shown]).T


def histograms(
    columns: Sequence[Array], num_draws: int | Sequence[int], low: Array, high: Array, num_bins: int
) -> Array:
    """Return histograms of sorted draws, normalized by `num_draws`, one for all or one each.

    Shape ``(len(columns), 3, num_bins)``: heights, left and right edges.
    """
    totals = np.broadcast_to(np.asarray(num_draws), (len(columns),))
    bars = []
    for column, total, a, b in zip(columns, totals, low, high, strict=True):
        edges = np.linspace(a, b, num_bins + 1)
        heights = np.diff(np.searchsorted(column, edges)) / (total * np.diff(edges))
        bars.append([heights, edges[:-1], edges[1:]])
    return np.array(bars)
