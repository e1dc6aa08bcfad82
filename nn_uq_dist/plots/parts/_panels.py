"""Panels of figures: one per output or a single one, and the data that ArviZ maps to them."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from nn_uq_dist.plots.parts._backends import figure_options
from nn_uq_dist.plots.parts._from_diagnostics import require_extra

PAGE_INCHES = 7.0
SINGLE_INCHES = (PAGE_INCHES, 3.6)
PANEL_INCHES = (2.4, 1.75)
MOST_COLUMNS = 4
NARROW_COLUMNS = 3  # number of columns that fit on a page
MANY_PANELS = 12


def panel_data(values: Any, axes: Sequence[str] | None, names: Sequence[str] | None) -> Any:
    """Wrap values in the form that ArviZ reads.

    Shape ``(panels, axes, points)``, without the first axis for a single panel (`names` is None)
    and without the last two if `axes` is None.
    """
    xarray = require_extra("xarray", "a figure")
    values = np.asarray(values)
    dims = ([] if names is None else ["output"]) + ["plot_axis", "point"][: 2 * (axes is not None)]
    coords: dict[str, Any] = {} if names is None else {"output": list(names)}
    if axes is not None:
        coords["plot_axis"] = list(axes)
    return xarray.Dataset({"values": (dims, values)}, coords=coords)


def output_panels(data: Any, backend: str, pc_kwargs: dict[str, Any]) -> Any:
    """Return a new collection with a panel per output, sized for a page."""
    count = data.sizes["output"]
    most = NARROW_COLUMNS if count <= MANY_PANELS else MOST_COLUMNS
    balanced = -(-count // -(-count // most))  # four panels are two rows of two
    columns = min(pc_kwargs.setdefault("col_wrap", balanced), count)
    rows = -(-count // columns)
    # A single panel is wider, and a single row taller, so that the legend above fits.
    width = max(PANEL_INCHES[0] * columns, 4.8)
    height = PANEL_INCHES[1] * rows * (1.5 if rows == 1 else 1) + 0.6
    pc_kwargs.setdefault("cols", ["output"])
    return _wrap(data, backend, (width, height), pc_kwargs)


def single_panel(
    data: Any, backend: str, pc_kwargs: dict[str, Any], inches: tuple[float, float]
) -> Any:
    """Return a new collection of one panel."""
    pc_kwargs.setdefault("cols", [])
    return _wrap(data, backend, inches, pc_kwargs)


def _wrap(data: Any, backend: str, inches: tuple[float, float], pc_kwargs: dict[str, Any]) -> Any:
    plots = require_extra("arviz_plots", "a figure")
    figure = figure_options(backend, inches, pc_kwargs)
    return plots.PlotCollection.wrap(data, backend=backend, figure_kwargs=figure, **pc_kwargs)


def outer_panels(plot_collection: Any, is_own: bool) -> tuple[list[Any], list[Any]] | None:
    """Return the outputs with no panel below and those with no panel to the left; None for all."""
    if not is_own or "output" not in plot_collection.viz["row_index"].dims:
        return None
    columns = plot_collection.viz["col_index"]
    return _bottom_outputs(plot_collection), list(columns["output"].values[columns.values == 0])


def _bottom_outputs(plot_collection: Any) -> list[Any]:
    """Return the outputs without a panel below, where the axis label belongs."""
    rows, columns = plot_collection.viz["row_index"], plot_collection.viz["col_index"]
    lowest = {
        int(column): int(rows.where(columns == column).max()) for column in np.unique(columns)
    }
    return [
        name
        for name, row, column in zip(
            rows["output"].values, rows.values.ravel(), columns.values.ravel(), strict=True
        )
        if row == lowest[int(column)]
    ]
