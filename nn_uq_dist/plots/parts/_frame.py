"""What surrounds a panel: limits, ticks, titles and labels, and texts in its corner."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from nn_uq_dist.plots.parts._arguments import Options
from nn_uq_dist.plots.parts._panels import panel_data
from nn_uq_dist.plots.parts._ticks import Ticks, ticks

# Visuals that all panels have, besides what is drawn in them.
FRAME_VISUALS: dict[str, Mapping[str, Any]] = {
    "title": {"size": 10},
    "ticks": {"size": 8},
    "xlabel": {"size": 9},
    "ylabel": {"size": 9},
    "legend": {},
}


class Frame(NamedTuple):
    """Limits of the axes, each of shape ``(panels,)`` or, for a single panel, ``()``.

    Examples
    --------
    >>> from nn_uq_dist.plots import parts
    >>> parts.Frame(left=-1, right=1, bottom=0, top=2).top
    2
    """

    left: Any
    right: Any
    bottom: Any
    top: Any


def frame_visuals(without: str) -> dict[str, Mapping[str, Any]]:
    """Return the visuals that all panels have, except one.

    Examples
    --------
    >>> from nn_uq_dist.plots import parts
    >>> list(parts.frame_visuals(without="title"))
    ['ticks', 'xlabel', 'ylabel', 'legend']
    """
    return {name: style for name, style in FRAME_VISUALS.items() if name != without}


def finish_panels(
    plot_collection: Any,
    options: Options,
    names: Sequence[str] | None,
    frame: Frame,
    *,
    labels: tuple[str | None, str | None],
    outer: tuple[list[Any], list[Any]] | None,
    xticks: Ticks | None = None,
    yticks: Ticks | None = None,
    removed: Mapping[str, Any] | None = None,
) -> None:
    """Add limits, ticks, titles (the names of the outputs) and labels to the panels.

    `removed` are options of ArviZ's `remove_axis`; the vertical axes then have no ticks.
    """
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
        put_ticks(target, "x", xticks or ticks(float(left), float(right)), style)
        if removed is None:
            put_ticks(target, "y", yticks or ticks(float(bottom), float(top)), upright)

    plot_collection.map(_set_limits, data=data, store_artist=False, **limits)
    if removed is not None:
        plot_collection.map(draw.remove_axis, data=data, store_artist=False, **removed)
    if (style := options["ticks"]) is not None:
        plot_collection.map(set_ticks, data=data, store_artist=False, **limits, **style)
    if names is not None and (style := options["title"]) is not None:
        plot_collection.map(_title, "title", data=data, subset_info=True, **style)
    for axis, text in zip("xy", labels, strict=True):
        style = options.get(f"{axis}label")
        if style is not None and text is not None:
            _label(plot_collection, data, axis, text, outer, style)


def _label(
    plot_collection: Any,
    data: Any,
    axis: str,
    text: str,
    outer: tuple[list[Any], list[Any]] | None,
    style: Mapping[str, Any],
) -> None:
    """Label the outer panels; the others get an empty text, because ArviZ stores one per panel."""
    from arviz_plots import visuals as draw

    put: Any = draw.labelled_y if axis == "y" else draw.labelled_x
    above_gap = [] if outer is None or axis == "y" else _above_gaps(plot_collection, outer[0])

    def label(_: Any, target: Any, *, sel: Mapping[str, Any], **style: Any) -> Any:
        is_outer = outer is None or sel["output"] in outer[axis == "y"]
        if plot_collection.backend == "matplotlib" and sel.get("output") in above_gap:
            # Nothing is below this panel, so its label has room. If the layout counted the label,
            # it would move the whole next row down.
            target.xaxis.set_in_layout(False)
        return put(None, target, text=text if is_outer else "", **_artist(style))

    plot_collection.map(label, f"{axis}label", data=data, subset_info=True, **style)


def _above_gaps(plot_collection: Any, bottom: Sequence[Any]) -> list[Any]:
    """Return the outputs without a panel below that are not in the last row."""
    rows = plot_collection.viz["row_index"]
    last = int(rows.max())
    return [name for name in bottom if int(rows.sel(output=name)) < last]


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


def put_ticks(target: Any, axis: str, marks: Ticks, style: Mapping[str, Any]) -> None:
    """Set the ticks of one axis; ArviZ has a visual for the horizontal axis only."""
    from arviz_plots.plot_collection import backend_from_object

    backend = backend_from_object(target)
    put: Any = backend.xticks if axis == "x" else backend.yticks
    put(*marks, target, **style)


def _set_limits(_: Any, target: Any, *, left: Any, right: Any, bottom: Any, top: Any) -> None:
    from arviz_plots import visuals as draw

    draw.set_xlim(None, target, (float(left), float(right)))
    draw.set_ylim(None, target, (float(bottom), float(top)))


def _title(_: Any, target: Any, *, sel: Mapping[str, Any], **style: Any) -> Any:
    from arviz_plots import visuals as draw

    return draw.labelled_title(None, target, text=str(sel["output"]), **_artist(style))


def _artist(style: dict[str, Any]) -> dict[str, Any]:
    """Drop what ``map(subset_info=True)`` adds to the options of an artist."""
    return {key: value for key, value in style.items() if key not in {"var_name", "isel", "sel"}}
