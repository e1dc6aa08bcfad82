"""The legend of a figure, above the panels: lines, and wide lines for areas."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from nn_uq_dist.plots.parts._backends import DOTS_PER_INCH, PIXELS_PER_POINT
from nn_uq_dist.plots.parts._from_diagnostics import require_extra
from nn_uq_dist.plots.parts._palette import BAND_ALPHAS

Entries = dict[str, dict[str, Any]]

AREA_POINTS = 8
ROW_PIXELS = 24
LABEL_PIXELS = 12
# Options that lines have in every backend; other options apply to the visual only.
LINE_OPTIONS = ("color", "alpha", "width", "linestyle")


def line_entry(style: Mapping[str, Any]) -> dict[str, Any]:
    """Return the entry of a visual that is a line."""
    return {key: style[key] for key in LINE_OPTIONS if key in style}


def area_entry(style: Mapping[str, Any]) -> dict[str, Any]:
    """Return the entry of a visual that is an area."""
    return {**line_entry(style), "width": AREA_POINTS}


def band_entries(style: Mapping[str, Any]) -> Entries:
    """Return the entries of the bands of 1, 2, 3 standard deviations, which overlap."""
    return {
        f"±{k} sd": {
            "alpha": 1 - math.prod(1 - a for a in BAND_ALPHAS[k - 1 :]),
            **area_entry(style),
        }
        for k in (1, 2, 3)
    }


def add_legend(plot_collection: Any, entries: Entries, options: Mapping[str, Any] | None) -> None:
    """Add a legend above the panels, or nothing if `options` is None.

    Bokeh has no figure legends: with several panels the legend is to the right of the first row.
    """
    if options is None or not entries:
        return
    backend = plot_collection.backend
    labels = list(entries)
    place = {"matplotlib": _above_axes, "plotly": _above_subplots, "bokeh": _at_a_plot}
    placed = place[backend](plot_collection, labels) if backend in place else {}
    module = require_extra(f"arviz_plots.backend.{backend}", "a figure")
    styles = [_for_backend(style, backend) for style in entries.values()]
    legend = module.legend(plot_collection, styles, labels, **placed | dict(options))
    plot_collection.viz["legend/entries"] = _scalar(legend)


def _for_backend(style: Mapping[str, Any], backend: str) -> dict[str, Any]:
    style = dict(style)
    if backend in {"plotly", "bokeh"} and style.get("width") == AREA_POINTS:
        style["width"] = AREA_POINTS * PIXELS_PER_POINT
    if backend == "plotly" and "alpha" in style:
        style["opacity"] = style.pop("alpha")
    return style


def _above_axes(plot_collection: Any, labels: Sequence[str]) -> dict[str, Any]:
    width = plot_collection.get_viz("figure").get_size_inches()[0]
    return {
        "loc": "outside upper center",
        "ncols": legend_columns(labels, width),
        "frameon": False,
        "fontsize": "small",
    }


def _above_subplots(plot_collection: Any, labels: Sequence[str]) -> dict[str, Any]:
    """Make room for the buttons that Plotly shows, the legend, and the titles of the panels."""
    figure = plot_collection.get_viz("figure")
    columns = legend_columns(labels, figure.layout.width / DOTS_PER_INCH)
    titles = [
        note.text.count("<br>") + 1 for note in figure.layout.annotations if note.text.strip()
    ]
    lines = 1 + -(-len(labels) // columns) + max(titles, default=0)
    figure.update_layout(margin={"t": ROW_PIXELS * lines + 20, "b": 60, "l": 60, "r": 20})
    return {
        # Plotly would look for a dimension behind the entries, and there is none.
        "update_visuals": False,
        "legend_orientation": "h",
        "legend_traceorder": "normal",  # it would reverse entries filled to the previous line
        "legend_x": 0.5,
        "legend_xanchor": "center",
        "legend_yref": "container",
        "legend_y": 1 - (ROW_PIXELS + 6) / figure.layout.height,
        "legend_yanchor": "top",
    }


def _at_a_plot(plot_collection: Any, labels: Sequence[str]) -> dict[str, Any]:
    """Place the legend right of the first row, or in the empty corner of a matrix of panels."""
    small = {
        "label_text_font_size": f"{LABEL_PIXELS}px",
        "label_height": LABEL_PIXELS,
        "glyph_height": LABEL_PIXELS,
        "spacing": 2,
        "padding": 4,
    }
    if type(plot_collection).__name__ == "PlotMatrix":
        return {"side": "center", **small}
    # Bokeh aligns the panels of a column, so all of them get wider by the legend's width.
    width = int(25 + 0.5 * LABEL_PIXELS * max(map(len, labels)))
    cells = plot_collection.get_viz("figure").children
    last = max(column for _, _, column in cells)
    for plot, _, column in cells:
        if column == last:
            plot.width += width
    return {"side": "right", "margin": 5, **small}


def legend_columns(labels: Sequence[str], width: float) -> int:
    """Return how many columns of labels, filled from top to bottom, fit into inches."""
    inches = [0.62 + 0.073 * len(label) for label in labels]  # in a small font, with its line
    for rows in range(1, len(labels)):
        columns = [inches[k : k + rows] for k in range(0, len(labels), rows)]
        if sum(map(max, columns)) <= width - 0.1:
            return len(columns)
    return 1


def _scalar(artist: Any) -> Any:
    """Wrap a backend's object so that the collection stores it as it is."""
    xarray = require_extra("xarray", "a figure")
    holder = np.empty((), dtype=object)
    holder[()] = artist
    return xarray.DataArray(holder)
