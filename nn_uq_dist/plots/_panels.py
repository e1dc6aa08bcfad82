"""Panels of figures: one per output or a single one, filled, framed and labelled alike."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nn_uq_dist.diagnostics._arguments import require_extra
from nn_uq_dist.plots._common import add_legend as add_common_legend
from nn_uq_dist.plots._common import bottom_outputs, nice_ticks, tick_labels, wrap

Array = NDArray[np.float64]
Ticks = tuple[Sequence[float], Sequence[str]]

# ArviZ's names of line styles, which every backend translates to its own.
DASHED, DOTTED = "C1", "C2"
SINGLE_INCHES = (7.0, 3.6)
NARROW_COLUMNS = 3  # of the usual 2.4 inches on a page of 7
MANY_PANELS = 12

# What all panels have, beside what is drawn in them.
FRAME_VISUALS: dict[str, Mapping[str, Any]] = {
    "title": {"size": 10},
    "ticks": {"size": 8},
    "xlabel": {"size": 9},
    "ylabel": {"size": 9},
    "legend": {},
}
Options = Mapping[str, dict[str, Any] | None]


class Frame(NamedTuple):
    """Limits of the axes, each of shape ``(panels,)`` or, for a single panel, ``()``."""

    left: Any
    right: Any
    bottom: Any
    top: Any


def panel_data(values: Any, axes: Sequence[str] | None, names: Sequence[str] | None) -> Any:
    """Wrap values the way ArviZ reads them.

    Shape ``(panels, axes, points)``, without the first for a single panel (`names` is None) and
    without the last two where `axes` is None.
    """
    xarray = require_extra("xarray", "a figure")
    values = np.asarray(values)
    dims = ([] if names is None else ["output"]) + ["plot_axis", "point"][: 2 * (axes is not None)]
    coords: dict[str, Any] = {} if names is None else {"output": list(names)}
    if axes is not None:
        coords["plot_axis"] = list(axes)
    return xarray.Dataset({"values": (dims, values)}, coords=coords)


def output_panels(
    data: Any, plot_collection: Any | None, backend: str | None, pc_kwargs: dict[str, Any]
) -> Any:
    """Return the given collection or a new one with a panel per output."""
    if plot_collection is not None:
        return plot_collection
    count = data.sizes["output"]
    if count <= MANY_PANELS:
        pc_kwargs.setdefault("col_wrap", min(NARROW_COLUMNS, count))
    return wrap(data, backend, pc_kwargs)


def single_panel(
    data: Any,
    plot_collection: Any | None,
    backend: str | None,
    pc_kwargs: dict[str, Any],
    inches: tuple[float, float] = SINGLE_INCHES,
) -> Any:
    """Return the given collection or a new one of one panel."""
    if plot_collection is not None:
        return plot_collection
    plots = require_extra("arviz_plots", "a figure")
    if backend is None:
        backend = require_extra("arviz_base", "a figure").rcParams["plot.backend"]
    figure = {"figsize": inches, "figsize_units": "inches"} | dict(
        pc_kwargs.pop("figure_kwargs", {})
    )
    if backend == "matplotlib":
        figure.setdefault("layout", "constrained")  # of this figure only; leaves room for legends
    pc_kwargs.setdefault("cols", [])
    return plots.PlotCollection.wrap(data, backend=backend, figure_kwargs=figure, **pc_kwargs)


def area(da: Any, target: Any, **style: Any) -> Any:
    """Fill between the rows `y_bottom` and `y_top` over the row `x`."""
    from arviz_plots.plot_collection import backend_from_object

    x, bottom, top = (da.sel(plot_axis=name).values for name in ("x", "y_bottom", "y_top"))
    return backend_from_object(target).fill_between_y(x, bottom, top, target, **style)


def sideways(base: float, width: Array, y: Array) -> Array:
    """Return rows for `area` that fill from the vertical line at `base` to ``base + width(y)``.

    The backends fill the polygon that runs along `y_bottom` and back along `y_top`. With a constant
    `y_top` the way back has no area, so that the way there may be any curve.
    """
    x = np.concatenate([[base], base + width, [base]])
    bottom = np.concatenate([y[:1], y, y[-1:]])
    return np.stack([x, bottom, np.full_like(x, y[-1])])


def staircase(edges: Array, heights: Array) -> tuple[Array, Array]:
    """Return positions and heights of the outline of a histogram."""
    return np.repeat(edges, 2)[1:-1], np.repeat(heights, 2)


def segments(x: Array, low: Array, high: Array) -> Array:
    """Return vertical lines from `low` to `high` at `x` as one line with gaps, ``(2, 3 n)``."""
    gaps = np.full_like(x, np.nan)
    return np.stack(
        [np.stack([x, x, gaps], axis=-1).ravel(), np.stack([low, high, gaps], axis=-1).ravel()]
    )


def outer_panels(plot_collection: Any, is_own: bool) -> tuple[list[Any], list[Any]] | None:
    """Return the outputs without a panel below and those without one to the left; None for all."""
    if not is_own or "output" not in plot_collection.viz["row_index"].dims:
        return None
    columns = plot_collection.viz["col_index"]
    return bottom_outputs(plot_collection), list(columns["output"].values[columns.values == 0])


def finish(
    plot_collection: Any,
    options: Options,
    names: Sequence[str] | None,
    frame: Frame,
    *,
    labels: tuple[str | None, str | None],
    outer: tuple[list[Any], list[Any]] | None,
    xticks: Ticks | None = None,
    yticks: Ticks | None = None,
    hide_y: bool = False,
) -> None:
    """Add limits, ticks, titles (the names of the outputs) and labels to the panels."""
    from arviz_plots import visuals as draw

    data = panel_data(np.zeros(np.shape(frame.left)), None, names)
    limits = {
        side: panel_data(value, None, names)["values"]
        for side, value in zip(Frame._fields, frame, strict=True)
    }

    def set_ticks(
        _: Any, target: Any, *, left: Any, right: Any, bottom: Any, top: Any, **style: Any
    ) -> None:
        upright = {key: value for key, value in style.items() if key != "rotation"}
        _set_ticks(target, "x", xticks or _ticks(float(left), float(right)), style)
        if not hide_y:
            _set_ticks(target, "y", yticks or _ticks(float(bottom), float(top)), upright)

    def label(
        _: Any, target: Any, *, sel: Mapping[str, Any], text: str, axis: str, **style: Any
    ) -> Any:
        # ArviZ wants an artist for every panel, so those with a neighbor on this side get no text.
        if outer is not None and sel["output"] not in outer[axis == "y"]:
            text = ""
        put: Any = draw.labelled_y if axis == "y" else draw.labelled_x
        return put(None, target, text=text, **_artist(style))

    plot_collection.map(_set_limits, data=data, store_artist=False, **limits)
    if hide_y:
        plot_collection.map(draw.remove_axis, data=data, axis="y", store_artist=False)
    if (style := options["ticks"]) is not None:
        plot_collection.map(set_ticks, data=data, store_artist=False, **limits, **style)
    if names is not None and (style := options["title"]) is not None:
        plot_collection.map(_title, "title", data=data, subset_info=True, **style)
    for axis, text in zip("xy", labels, strict=True):
        style = options.get(f"{axis}label")
        if style is not None and text is not None:
            plot_collection.map(
                label, f"{axis}label", data=data, subset_info=True, text=text, axis=axis, **style
            )


def add_legend(
    plot_collection: Any, entries: Mapping[str, Mapping[str, Any]], options: Mapping[str, Any]
) -> None:
    """Add a legend of lines above the panels; wide lines stand for areas."""
    if plot_collection.backend == "matplotlib":
        width = plot_collection.get_viz("figure").get_size_inches()[0]
        options = {"ncols": _legend_columns(list(entries), width), **options}
    if plot_collection.backend == "plotly":
        # It would look for a dimension that the entries stand for, and there is none.
        options = {"update_visuals": False, **options}
        entries = {
            label: {("opacity" if key == "alpha" else key): value for key, value in entry.items()}
            for label, entry in entries.items()
        }
    add_common_legend(plot_collection, entries, options)


def _legend_columns(labels: Sequence[str], width: float) -> int:
    """Return how many columns of labels, filled from top to bottom, fit into inches."""
    inches = [0.62 + 0.073 * len(label) for label in labels]  # a small font, and its line
    for rows in range(1, len(labels)):
        columns = [inches[k : k + rows] for k in range(0, len(labels), rows)]
        if sum(map(max, columns)) <= width - 0.1:
            return len(columns)
    return 1


def write(plot_collection: Any, label: str, names: Sequence[str], frame: Frame,
          texts: Sequence[str], style: Mapping[str, Any]) -> None:  # fmt: skip
    """Write a text into the upper left corner of each panel."""
    from arviz_plots.plot_collection import backend_from_object

    def text(_: Any, target: Any, *, sel: Mapping[str, Any], **style: Any) -> Any:
        j = list(names).index(sel["output"])
        x = frame.left[j] + 0.03 * (frame.right[j] - frame.left[j])
        y = frame.top[j] - 0.04 * (frame.top[j] - frame.bottom[j])
        return backend_from_object(target).text(x, y, texts[j], target, **_artist(style))

    style = {"vertical_align": "top", "horizontal_align": "left", **style}
    data = panel_data(np.zeros(len(names)), None, names)
    plot_collection.map(text, label, data=data, subset_info=True, **style)


def _set_limits(_: Any, target: Any, *, left: Any, right: Any, bottom: Any, top: Any) -> None:
    from arviz_plots import visuals as draw

    draw.set_xlim(None, target, (float(left), float(right)))
    draw.set_ylim(None, target, (float(bottom), float(top)))


def _title(_: Any, target: Any, *, sel: Mapping[str, Any], **style: Any) -> Any:
    from arviz_plots import visuals as draw

    return draw.labelled_title(None, target, text=str(sel["output"]), **_artist(style))


def _set_ticks(target: Any, axis: str, ticks: Ticks, style: Mapping[str, Any]) -> None:
    from arviz_plots.plot_collection import backend_from_object

    backend = backend_from_object(target)
    put: Any = backend.xticks if axis == "x" else backend.yticks
    put(*ticks, target, **style)


def _ticks(low: float, high: float) -> Ticks:
    values = [value + 0.0 for value in nice_ticks(low, high)]  # no "-0"
    return values, tick_labels(values)


def _artist(style: dict[str, Any]) -> dict[str, Any]:
    """Drop what ``map(subset_info=True)`` adds to the options of an artist."""
    return {key: value for key, value in style.items() if key not in {"var_name", "isel", "sel"}}
