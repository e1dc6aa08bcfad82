"""Histograms of single outputs, and ranges that hold their draws."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

# Range of a density panel: this much on either side, or more to include most draws.
RANGE_IN_SD = 4.0
TAIL = 1e-4  # share of the draws that may lie outside the panel on either side


def cover_draws(low: Array, high: Array, columns: Sequence[Array], tail: float) -> None:
    """Widen ranges in place to hold all but the fraction `tail` of the draws on either side."""
    for k, column in enumerate(columns):
        if column.size:
            inner = np.quantile(column, [tail, 1 - tail])
            low[k], high[k] = min(low[k], inner[0]), max(high[k], inner[1])


def histograms(
    columns: Sequence[Array], num_draws: int | Sequence[int], low: Array, high: Array, num_bins: int
) -> Array:
    """Return histograms of sorted draws, normalized by `num_draws`: one number, or one per column.

    Shape ``(len(columns), 3, num_bins)``: heights, left and right edges.
    """
    totals = np.broadcast_to(np.asarray(num_draws), (len(columns),))
    bars = []
    for column, total, a, b in zip(columns, totals, low, high, strict=True):
        edges = np.linspace(a, b, num_bins + 1)
        heights = np.diff(np.searchsorted(column, edges)) / (total * np.diff(edges))
        bars.append([heights, edges[:-1], edges[1:]])
    return np.array(bars)
