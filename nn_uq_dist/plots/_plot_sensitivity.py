"""Sobol indices of outputs and inputs as a heat map."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nn_uq_dist.diagnostics._arguments import names_of_inputs, unbatched
from nn_uq_dist.diagnostics._sensitivity import first_order_indices
from nn_uq_dist.linearization._linear_model import LinearModel
from nn_uq_dist.plots.parts import _figure, _shapes, _shown_outputs
from nn_uq_dist.plots.parts._figure import Figure, Frame, PlotCollection, Visuals

Array = NDArray[np.float64]

MOST_TEXTS = 200
VISUALS: _figure.Styles = {
    "cells": {"cmap": "Blues", "aspect": "auto"},
    "values": {},
    "unknown": {"size": 8, "vertical_align": "center", "horizontal_align": "center"},
    "colorbar": {"location": "right", "shrink": 0.9},
    **_figure.frame_visuals(without="legend"),
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
    plot_collection: PlotCollection | None = None,
    backend: str | None = None,
    visuals: Visuals | None = None,
    **pc_kwargs: Any,
) -> PlotCollection:
    """Plot the share of the variance of each output that is due to each input.

    One row per output and one column per input: the first-order Sobol indices of the linear law.
    With up to 200 cells, the percentages are written in them.

    Parameters
    ----------
    linearization
        The linearized network, or any other `LinearModel`, without batch axes.
    outputs
        Outputs to show, by position or name. Default: all.
    output_names, input_names
        Names of all outputs and inputs. Default as in `nn_uq_dist.diagnostics.sensitivity`.
    xlabel, ylabel
        Labels of the axes; None for none.
    plot_collection
        Draw into this collection, which must have a single panel. Default: a new one.
    backend, **pc_kwargs
        As in `plot_marginals`.
    visuals
        Options of each visual, or False to leave it out. Keys: `cells` (for Matplotlib's
        ``imshow``), `values`, `unknown`, `colorbar`, `ticks`, `title`, `xlabel`, `ylabel`.

    Returns
    -------
    arviz_plots.PlotCollection
        Outputs that do not depend on the input show the word "constant". If inputs are correlated,
        or the model is not linear, the title says that the indices of an output need not sum to
        100%.

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
    >>> lin = nuq.Linearization([0.0], [[1.0, 2.0]], nuq.Input.box([0.0, 0.0], half_width=1.0))
    >>> figure = nuq.plots.plot_sensitivity(lin, input_names=["wind", "tide"], backend="none")
    >>> [text["string"] for text in figure.viz["values"]["values"].values]
    ['20', '80']
    """
    model = unbatched(linearization, "take one point: linearization[i]")
    columns, num_inputs = names_of_inputs(model, input_names), model.input.num_inputs
    shown, names = _shown_outputs.choose_outputs(model, outputs, output_names, model.num_outputs)
    figure = Figure("plot_sensitivity", VISUALS, visuals, plot_collection, backend, pc_kwargs)

    found = first_order_indices(model)
    shares = 100 * found.value[shown]
    num_rows = len(shown)
    longest = max(len(name) for name in columns)
    upright = num_inputs * (longest + 2) > 80
    inches = (
        min(7.0, max(4.0, 2.3 + 0.42 * num_inputs)),
        min(9.0, 1.1 + (0.3 if num_rows <= 16 else 0.2) * num_rows + 0.06 * longest * upright),
    )
    figure.one_panel(np.zeros((2, 1)), inches)
    _draw(figure, shares)
    if (ticks := figure.options["ticks"]) is not None:
        size = {"size": 8 if max(num_rows, num_inputs) <= 16 else 7}
        figure.options["ticks"] = size | ({"rotation": 90} if upright else {}) | ticks
    title = "share of the variance of each output (%)"
    if not found.is_additive:
        title = "first-order index (%); rows need not sum to 100"
    return figure.finish(
        Frame(-0.5, num_inputs - 0.5, num_rows - 0.5, -0.5),  # the first output on top
        xlabel=xlabel,
        ylabel=ylabel,
        title=title,
        xticks=(range(num_inputs), columns),
        yticks=(range(num_rows), names),
    )


def _draw(figure: Figure, shares: Array) -> None:
    """Fill the cells and write into them; a row of NaN belongs to a constant output."""
    num_inputs = shares.shape[1]
    if (style := figure.options["cells"]) is not None:
        limits = (0.0, float(np.nanmax(shares, initial=0.0)) or 1.0)
        figure.each_panel(
            partial(_shapes.draw_cells, values=shares, limits=limits, style=style), "cells"
        )
    if (style := figure.options["values"]) is not None and shares.size <= MOST_TEXTS:
        style = {"size": 8 if num_inputs <= 16 else 6, **style}
        count = {"cell": int(np.sum(~np.isnan(shares)))}
        write = partial(_shapes.write_values, values=shares, style=style)
        figure.each_panel(write, "values", artist_dims=count)
    constant = np.flatnonzero(np.isnan(shares).all(axis=1)).tolist()
    words = [((num_inputs - 1) / 2, row, "constant") for row in constant]
    figure.several("unknown", "cell", "text", words)
    if (style := figure.options["colorbar"]) is not None:
        figure.each_panel(partial(_shapes.add_colorbar, style=style))
