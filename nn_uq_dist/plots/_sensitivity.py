"""Sobol indices of outputs and inputs as a heat map."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from nn_uq_dist.linearization._linearization import Linearization
from nn_uq_dist.plots.parts._arguments import Visuals, choose_outputs
from nn_uq_dist.plots.parts._backends import in_backend_units
from nn_uq_dist.plots.parts._figure import AREA, Figure
from nn_uq_dist.plots.parts._frame import Frame
from nn_uq_dist.plots.parts._from_diagnostics import (
    as_input_names,
    first_order_indices,
    unbatched,
)
from nn_uq_dist.plots.parts._legend import area_entry
from nn_uq_dist.plots.parts._palette import GRAY
from nn_uq_dist.plots.parts._panels import panel_data
from nn_uq_dist.plots.parts._shapes import area

if TYPE_CHECKING:
    from arviz_plots import PlotCollection

Array = NDArray[np.float64]

# One hue from light to dark in equal steps: the order is visible without color vision.
SHADES = ("#F1F5F9", "#D3E3F1", "#AECDE6", "#7FB2D7", "#4C93C5", "#0072B2", "#00507F", "#00304D")
CELL = 0.46  # half the side of a cell; 0.5 would leave no gap between cells
MOST_TEXTS = 200
VISUALS: dict[str, Mapping[str, Any]] = {
    "cells": {},
    "values": {},
    "unknown": {"color": GRAY},
    "ticks": {},
    "title": {"size": 10},
    "xlabel": {"size": 9},
    "ylabel": {"size": 9},
    "legend": {},
}


def plot_sensitivity(
    linearization: Linearization,
    *,
    outputs: Sequence[int | str] | None = None,
    output_names: Sequence[str] | None = None,
    input_names: Sequence[str] | None = None,
    xlabel: str | None = "input",
    ylabel: str | None = "output",
    plot_collection: "PlotCollection | None" = None,
    backend: str | None = None,
    visuals: Visuals | None = None,
    **pc_kwargs: Any,
) -> "PlotCollection":
    """Plot the share of the variance of each output that is due to each input.

    One row per output and one column per input: the first-order Sobol indices of the linear law,
    in up to eight classes of equal width. With up to 200 cells, the percentages are written in
    them.

    Parameters
    ----------
    linearization
        The linearized network, without batch axes.
    outputs
        Outputs to show, by position or name. Default: all.
    output_names, input_names
        Names of all outputs and inputs. Default ``y[0]``, ... and ``f[0]``, ...
    xlabel, ylabel
        Labels of the axes; None for none.
    plot_collection
        Draw into this collection, which must have a single panel. Default: a new one.
    backend, **pc_kwargs
        As in `plot_marginals`.
    visuals
        Options of each visual, or False to leave it out. Keys: `cells`, `values`, `unknown`,
        `ticks`, `title`, `xlabel`, `ylabel`, `legend`.

    Returns
    -------
    arviz_plots.PlotCollection
        Artists of `cells` with the dimension `shade`. Outputs that do not depend on the input show
        the word "constant" instead of cells. If inputs are correlated, the title says that the
        indices of an output need not sum to 100%.

    Raises
    ------
    ImportError
        If ArviZ or the backend is missing.
    TypeError, ValueError
        If arguments do not fit; this is checked before anything is drawn.

    See Also
    --------
    nn_uq_dist.diagnostics.sensitivity : The numbers, with formula and sources.

    Examples
    --------
    >>> import nn_uq_dist as nuq
    >>> lin = nuq.Linearization([0.0], [[1.0, 2.0]], nuq.InputLaw([0.0, 0.0], half_width=1.0))
    >>> figure = nuq.plots.plot_sensitivity(lin, input_names=["wind", "tide"], backend="none")
    >>> [text["string"] for text in figure.viz["values"]["values"].values]
    ['20', '80']
    """
    num_inputs = unbatched(linearization).input.num_inputs
    columns = as_input_names(input_names, num_inputs)
    shown, names = choose_outputs(outputs, output_names, linearization.num_outputs)
    figure = Figure(
        "plot_sensitivity", VISUALS, visuals=visuals, plot_collection=plot_collection,
        backend=backend, pc_kwargs=pc_kwargs,
    )  # fmt: skip

    indices, is_additive = first_order_indices(linearization)
    indices = indices[shown]
    num_rows = len(shown)
    heights = np.arange(num_rows)[::-1].astype(np.float64)  # the first output on top
    longest = max(len(name) for name in columns)
    upright = num_inputs * (longest + 2) > 80
    inches = (
        min(7.0, max(4.0, 1.9 + 0.42 * num_inputs)),
        min(9.0, 1.5 + (0.3 if num_rows <= 16 else 0.2) * num_rows + 0.06 * longest * upright),
    )
    figure.one_panel(np.zeros(()), None, inches)
    _draw_cells(figure, indices, heights)
    if (style := figure.options["title"]) is not None:
        _title(figure, "share of the variance of each output (%)" if is_additive else
               "first-order index (%); inputs are correlated, rows need not sum to 100",
               style)  # fmt: skip
    if (ticks := figure.options["ticks"]) is not None:
        size = _letters(figure, 8 if max(num_rows, num_inputs) <= 16 else 7)
        figure.options["ticks"] = size | ({"rotation": 90} if upright else {}) | ticks
    return figure.finish(
        Frame(-0.6, num_inputs - 0.4, -0.6, num_rows - 0.4),
        xlabel=xlabel,
        ylabel=ylabel,
        xticks=(list(map(float, range(num_inputs))), columns),
        yticks=(heights.tolist(), names),
    )


def _draw_cells(figure: Figure, indices: Array, heights: Array) -> None:
    """Fill the cells and write into them; a row of NaN belongs to a constant output."""
    num_inputs = indices.shape[1]
    limits = class_limits(indices)
    shades = [
        SHADES[k] for k in np.linspace(0, len(SHADES) - 1, limits.size - 1).round().astype(int)
    ]
    classes = np.searchsorted(limits[1:-1], indices, side="right")  # NaN in the last one
    unknown = np.isnan(indices).all(axis=1)
    classes[unknown] = -1
    if (style := figure.options["cells"]) is not None:
        rows = [cell_rows(classes == k, heights) for k in range(len(shades))]
        used = [k for k, row in enumerate(rows) if row.size]
        _fill_cells(figure, [rows[k] for k in used], [shades[k] for k in used], style)
        figure.legend |= {
            f"{percent(limits[k])} to {percent(limits[k + 1])}%": area_entry(
                {"color": shades[k], **style}
            )
            for k in range(len(shades))
        }
    if (style := figure.options["values"]) is not None and indices.size <= MOST_TEXTS:
        cells = [(r, c) for r in np.flatnonzero(~unknown) for c in range(num_inputs)]
        texts = [f"{100 * indices[cell]:.0f}" for cell in cells]
        colors = ["white" if shades[classes[cell]] in SHADES[5:] else "black" for cell in cells]
        at = [(float(c), float(heights[r])) for r, c in cells]
        size = _letters(figure, 8 if num_inputs <= 16 else 6)
        _write(figure, "values", at, texts, colors, size | style)
    if (style := figure.options["unknown"]) is not None and unknown.any():
        at = [((num_inputs - 1) / 2, float(heights[r])) for r in np.flatnonzero(unknown)]
        style = _letters(figure, 8) | style
        color = style.pop("color")
        _write(figure, "unknown", at, ["constant"] * len(at), [color] * len(at), style)


def _letters(figure: Figure, points: int) -> dict[str, Any]:
    return in_backend_units({"size": points}, figure.backend)


def class_limits(indices: Array) -> Array:
    """Return up to nine limits of classes, from 0 to a round number above the largest index."""
    largest = float(np.nanmax(indices, initial=0.0)) or 1.0
    steps = np.array([1, 2, 2.5, 5, 10]) * 10.0 ** np.floor(np.log10(largest / len(SHADES)))
    step = steps[np.searchsorted(steps, largest / len(SHADES) * (1 - 1e-9))]
    count = max(int(np.ceil(largest / step * (1 - 1e-9))), 1)
    return np.asarray(np.arange(count + 1) * step)


def percent(share: float) -> str:
    """Return a limit in percent without trailing zeros."""
    return f"{100 * share:.6g}"


def cell_rows(is_in_class: NDArray[np.bool_], heights: Array) -> Array:
    """Return rows for `area` that fill all cells of a class at once, shape ``(3, points)``.

    Between cells the area has no height, so one artist per class suffices instead of one per cell.
    """
    parts = []
    for r, c in np.argwhere(is_in_class):
        left, right = c - CELL, c + CELL
        low, high = heights[r] - CELL, heights[r] + CELL
        parts.append([[left, left, right, right], [low] * 4, [low, high, high, low]])
    if not parts:
        return np.empty((3, 0))
    return np.concatenate(np.array(parts), axis=1)


def _fill_cells(
    figure: Figure, rows: Sequence[Array], colors: Sequence[str], style: Mapping[str, Any]
) -> None:
    def fill(_: Any, target: Any, **style: Any) -> Any:
        artists = np.empty(len(rows), dtype=object)
        for k, (row, color) in enumerate(zip(rows, colors, strict=True)):
            da = panel_data(row, AREA, None)["values"]
            artists[k] = area(da, target, **{"color": color, **style})
        return artists

    if rows:
        figure.collection.map(fill, "cells", data=_one(), artist_dims={"shade": len(rows)}, **style)


def _write(
    figure: Figure,
    label: str,
    at: Sequence[tuple[float, float]],
    texts: Sequence[str],
    colors: Sequence[str],
    style: Mapping[str, Any],
) -> None:
    from arviz_plots.plot_collection import backend_from_object

    def write_all(_: Any, target: Any, **style: Any) -> Any:
        artists = np.empty(len(texts), dtype=object)
        for k, ((x, y), text, color) in enumerate(zip(at, texts, colors, strict=True)):
            options = {"color": color, **style}
            artists[k] = backend_from_object(target).text(x, y, text, target, **options)
        return artists

    if texts:
        figure.collection.map(
            write_all, label, data=_one(), artist_dims={"cell": len(texts)}, **style
        )


def _title(figure: Figure, text: str, style: Mapping[str, Any]) -> None:
    from arviz_plots import visuals as draw

    def title(_: Any, target: Any, **style: Any) -> Any:
        return draw.labelled_title(None, target, text=text, **style)

    figure.collection.map(title, "title", data=_one(), **style)


def _one() -> Any:
    return panel_data(np.zeros(()), None, None)
