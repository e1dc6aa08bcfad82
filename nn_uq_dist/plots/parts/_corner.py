"""A corner plot: a matrix of panels, one for each pair of outputs, with shared axes."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nn_uq_dist.plots.parts._arguments import Options
from nn_uq_dist.plots.parts._backends import figure_options
from nn_uq_dist.plots.parts._frame import put_ticks
from nn_uq_dist.plots.parts._from_diagnostics import require_extra
from nn_uq_dist.plots.parts._output_curves import RANGE_IN_SD, TAIL, cover_draws
from nn_uq_dist.plots.parts._output_table import OutputTable
from nn_uq_dist.plots.parts._panels import PAGE_INCHES, panel_data
from nn_uq_dist.plots.parts._ticks import blank, ticks

Array = NDArray[np.float64]


def new_matrix(names: Sequence[str], backend: str, pc_kwargs: dict[str, Any]) -> Any:
    """Make a matrix of panels, sized for a page."""
    plots = require_extra("arviz_plots", "a figure")
    side = min(PAGE_INCHES, 2.4 * len(names))
    # Leave room for the legend above.
    figure = figure_options(backend, (max(side, 5.0), max(side, 4.4) + 0.3), pc_kwargs, len(names))
    data = panel_data(np.zeros(len(names)), None, names)
    return plots.PlotMatrix(
        data, ["__variable__", "output"], backend=backend, figure_kwargs=figure, **pc_kwargs
    )


def corner_limits(tables: Sequence[OutputTable], columns: Sequence[Array]) -> tuple[Array, Array]:
    """Four standard deviations to either side, cut at the support, and room for most draws."""
    low = np.array([max(table.low, table.mean - RANGE_IN_SD * table.sd) for table in tables])
    high = np.array([min(table.high, table.mean + RANGE_IN_SD * table.sd) for table in tables])
    cover_draws(low, high, columns, TAIL)
    margin = 0.04 * (high - low)
    return low - margin, high + margin


def draw_corner_axes(
    matrix_plot: Any,
    options: Options,
    names: Sequence[str],
    limits: tuple[Array, Array],
    unit: str | None,
) -> None:
    """Set equal limits along rows and columns; label the left and the lower edge."""
    from arviz_plots import visuals as draw

    marks = [ticks(a, b, 3) for a, b in zip(*limits, strict=True)]
    texts = [name if unit is None else f"{name} ({unit})" for name in names]
    last = len(names) - 1

    def horizontal(target: Any, column: int, row: int) -> None:
        draw.set_xlim(None, target, (limits[0][column], limits[1][column]))
        is_lowest = row == last
        if (style := options["ticks"]) is not None:
            values, labels = marks[column]
            put_ticks(target, "x", (values, labels if is_lowest else blank(labels)), style)
        if is_lowest and (style := options["labels"]) is not None:
            draw.labelled_x(None, target, text=texts[column], **style)

    def vertical(target: Any, column: int, row: int) -> None:
        draw.set_ylim(None, target, (limits[0][row], limits[1][row]))
        is_left = column == 0
        if (style := options["ticks"]) is not None:
            values, labels = marks[row]
            put_ticks(target, "y", (values, labels if is_left else blank(labels)), style)
        if is_left and (style := options["labels"]) is not None:
            draw.labelled_y(None, target, text=texts[row], **style)

    def on_diagonal(_: Any, target: Any, *, isel: Mapping[str, int], **__: Any) -> None:
        horizontal(target, isel["output"], isel["output"])

    def below(_x: Any, _y: Any, target: Any, *, isel_x: Any, isel_y: Any, **_: Any) -> None:
        horizontal(target, isel_x["output"], isel_y["output"])
        vertical(target, isel_x["output"], isel_y["output"])

    matrix_plot.map(on_diagonal, subset_info=True, store_artist=False)
    matrix_plot.map_lower(below, subset_info=True, store_artist=False)
