"""Sobol indices of outputs and inputs as a heat map."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from nn_uq_dist.diagnostics._arguments import as_input_names, unbatched
from nn_uq_dist.diagnostics._sensitivity import first_order_indices
from nn_uq_dist.linearization._linear_model import LinearModel
from nn_uq_dist.plots.parts._figure import Figure, Visuals
from nn_uq_dist.plots.parts._frame import FRAME_VISUALS, Frame
from nn_uq_dist.plots.parts._palette import GRAY, area_entry
from nn_uq_dist.plots.parts._shapes import LINE, area, write
from nn_uq_dist.plots.parts._shown_outputs import choose_outputs

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
    **FRAME_VISUALS,
    "ticks": {},
}


def plot_sensitivity(
    linearization: LinearModel,
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
        The linearized network, or any other `LinearModel`, without batch axes.
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
        the word "constant" instead of cells. If inputs are correlated, or the model is not linear,
        the title says that the indices of an output need not sum to 100%.

    Raises
    ------
    ImportError
        If ArviZ or Matplotlib is missing.
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
    num_inputs = unbatched(linearization, "take one point: linearization[i]").input.num_inputs
    columns = as_input_names(input_names, num_inputs)
    shown, names = choose_outputs(outputs, output_names, linearization.num_outputs)
    figure = Figure("plot_sensitivity", VISUALS, visuals, plot_collection, backend, pc_kwargs)

    found = first_order_indices(linearization)
    indices = found.value[shown]
    num_rows = len(shown)
    heights = np.arange(num_rows)[::-1].astype(np.float64)  # the first output on top
    longest = max(len(name) for name in columns)
    upright = num_inputs * (longest + 2) > 80
    inches = (
        min(7.0, max(4.0, 1.9 + 0.42 * num_inputs)),
        min(9.0, 1.5 + (0.3 if num_rows <= 16 else 0.2) * num_rows + 0.06 * longest * upright),
    )
    figure.one_panel(np.zeros((2, 1)), LINE, inches)
    _draw_cells(figure, indices, heights)
    if (ticks := figure.options["ticks"]) is not None:
        size = {"size": 8 if max(num_rows, num_inputs) <= 16 else 7}
        figure.options["ticks"] = size | ({"rotation": 90} if upright else {}) | ticks
    title = "share of the variance of each output (%)"
    if not found.is_additive:
        title = "first-order index (%); rows need not sum to 100"
    return figure.finish(
        Frame(-0.6, num_inputs - 0.4, -0.6, num_rows - 0.4),
        xlabel=xlabel,
        ylabel=ylabel,
        title=title,
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
        styles = [{"color": shade, **style} for shade in shades]
        filled = zip(rows, styles, strict=True)
        fills = [partial(area, row, **style) for row, style in filled if row.size]
        figure.several("cells", "shade", fills)
        for low, high, style in zip(limits[:-1], limits[1:], styles, strict=True):
            figure.legend[f"{percent(low)} to {percent(high)}%"] = area_entry(style)
    if (style := figure.options["values"]) is not None and indices.size <= MOST_TEXTS:
        size = 8 if num_inputs <= 16 else 6
        texts = []
        for r, c in np.argwhere(~np.isnan(indices)):
            color = "white" if shades[classes[r, c]] in SHADES[5:] else "black"
            text = f"{100 * indices[r, c]:.0f}"
            at = {"x": c, "y": heights[r], "size": size, "color": color}
            texts.append(partial(write, text=text, **{**at, **style}))
        figure.several("values", "cell", texts)
    if (style := figure.options["unknown"]) is not None:
        middle = (num_inputs - 1) / 2
        figure.several("unknown", "cell", [
            partial(write, x=middle, y=float(y), text="constant", **{"size": 8, **style})
            for y in heights[unknown]
        ])  # fmt: skip


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
