"""Shapes that panels hold, as rows of coordinates: histograms, areas, lines and texts."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

# Names of the rows.
LINE = ("x", "y")
AREA = ("x", "y_bottom", "y_top")
HISTOGRAM = ("histogram", "left_edges", "right_edges")

# Range of a density panel: this much on either side, or more to include most draws.
RANGE_IN_SD = 4.0
TAIL = 1e-4  # share of the draws that may lie outside the panel on either side


def panel_data(rows: Any, axes: Sequence[str], facets: Mapping[str, Any]) -> Any:
    """Wrap rows in the form that ArviZ reads, shape ``(panels, axes, points)``."""
    import xarray as xr

    coords = {**facets, "plot_axis": list(axes)}
    return xr.Dataset({"values": ([*coords, "point"], np.asarray(rows))}, coords)


def area(rows: Any, target: Any, **style: Any) -> Any:
    """Fill between the rows `y_bottom` and `y_top` over the row `x`."""
    from arviz_plots.plot_collection import backend_from_object

    return backend_from_object(target).fill_between_y(*rows, target, **style)


def write(target: Any, x: float, y: float, text: str, **style: Any) -> Any:
    """Write a text into a panel."""
    from arviz_plots.plot_collection import backend_from_object

    return backend_from_object(target).text(x, y, text, target, **style)


def upright(ends: Array, top: Array) -> Array:
    """Return rows for `area` of rectangles from 0 to `top`, shape ``(panels, 3, 2)``.

    `ends` are the left and right ends, shape ``(2, panels)``.
    """
    sides = np.transpose(ends)
    return np.stack([sides, np.zeros_like(sides), np.stack([top, top], -1)], axis=1)


def vertical_lines(at: Array, top: Array) -> Array:
    """Return lines from 0 to `top`, shape ``(panels, 2, 2)``.

    ArviZ draws its own vertical lines behind a histogram.
    """
    return np.stack([np.stack([at, at], -1), np.stack([0 * top, top], -1)], axis=1)


def stacked(curves: Sequence[Array]) -> Array:
    """Stack curves of different lengths; repeats of the last point are invisible."""
    longest = max(curve.shape[1] for curve in curves)
    return np.stack([np.pad(c, [(0, 0), (0, longest - c.shape[1])], mode="edge") for c in curves])


def density_range(
    mean: Array, sd: Array, ends: tuple[Array, Array], columns: Sequence[Array]
) -> tuple[Array, Array]:
    """Return the range of a density panel, cut at the ends of the support, with most draws."""
    low, high = (
        np.maximum(mean - RANGE_IN_SD * sd, ends[0]),
        np.minimum(mean + RANGE_IN_SD * sd, ends[1]),
    )
    cover_draws(low, high, columns, TAIL)
    return low, high


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
