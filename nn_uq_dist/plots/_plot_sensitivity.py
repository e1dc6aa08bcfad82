"""Sobol indices of outputs and inputs as a heat map."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from nn_uq_dist.basics.checks import require_extra
from nn_uq_dist.diagnostics import sensitivity
from nn_uq_dist.diagnostics.arguments import as_model, as_names
from nn_uq_dist.inference import SobolIndices
from nn_uq_dist.linearization import CorrectedLinearization, Linearization, LinearModel
from nn_uq_dist.plots import _shared
from nn_uq_dist.plots._shared import LIGHT_GRAY, LONGEST_LINE, SMALL, Figure, Outputs, write_names

MOST_TEXTS = 200


def plot_sensitivity(
    model: LinearModel | SobolIndices,
    *,
    outputs: Outputs | None = None,
    output_names: Sequence[str] | None = None,
    input_names: Sequence[str] | None = None,
    ax: Any = None,
) -> Figure:
    """Plot the share of the variance of each output that is due to each input.

    One row per output and one column per input: the first-order Sobol indices of the tangent or of
    another model, or those of the network that `nn_uq_dist.sobol_indices` found. With up to 200
    cells, the percentages are written in them; with more there is a color bar.

    Parameters
    ----------
    model
        The linearized network, or any other `LinearModel`, without batch axes; or `SobolIndices`,
        of which estimates below zero are shown as zero.
    outputs, output_names, ax
        As in `plot_marginals`.
    input_names
        Names of all inputs, or of all groups of `SobolIndices`. Default as in
        `nn_uq_dist.diagnostics.sensitivity`.

    Returns
    -------
    matplotlib.figure.Figure
        As in `plot_marginals`. Outputs that do not depend on the input show the word "constant". If
        inputs are correlated, or the model is not linear, the title says that the indices of an
        output need not sum to 100%.

    Raises
    ------
    ImportError
        If Matplotlib is missing.
    TypeError, ValueError
        If arguments do not fit; this is checked before anything is drawn.

    See Also
    --------
    nn_uq_dist.diagnostics.sensitivity : The numbers, with formula and sources.

    Examples
    --------
    >>> import nn_uq_dist as nuq
    >>> lin = nuq.Linearization([0.0], [[1.0, 2.0]], nuq.Input.box([0.0, 0.0], half_width=1.0))
    >>> figure = nuq.plots.plot_sensitivity(lin, input_names=["wind", "tide"])
    >>> [text.get_text() for text in figure.axes[0].texts]
    ['20', '80']
    """
    require_extra("matplotlib", "plots.plot_sensitivity")
    if isinstance(model, SobolIndices):
        names = as_names("output", output_names, len(model.output_names), model.output_names)
        columns = as_names("input", input_names, len(model.input_names), model.input_names)
        values, is_additive, kind = np.maximum(model.first_order, 0.0), False, "network"
    else:
        point = as_model(model)
        indices = sensitivity(point, input_names=input_names, output_names=output_names)
        names, columns = (indices[axis].values.tolist() for axis in indices.dims)
        values, is_additive = indices.values, bool(indices.attrs["additive"])
        kinds = {Linearization: "linearized", CorrectedLinearization: "corrected"}
        kind = kinds.get(type(model), "model")
    places = _shared.as_places(outputs, names)
    names, shares = [names[place] for place in places], 100 * values[places]
    left = 0.6 + 0.065 * min(max(map(len, names)), LONGEST_LINE)
    inches = min(7.0, left + max(2.9, 0.42 * len(columns))), min(9.0, 1.5 + 0.3 * len(names))
    (axis,) = _shared.panels("plot_sensitivity", 1, ax, inches=inches)
    figure: Any = axis.get_figure(root=True)
    axis.set_facecolor(LIGHT_GRAY)  # of rows without a variance
    top = float(np.nanmax(shares, initial=0.0)) or 1.0
    image = axis.imshow(shares, cmap="Blues", aspect="auto", vmin=0.0, vmax=top)
    if shares.size <= MOST_TEXTS:
        size = SMALL - (len(columns) > 16)
        for row, column in np.argwhere(~np.isnan(shares)).tolist():
            share = shares[row, column]
            style: Any = {"color": "white" if share > 0.6 * top else "black", "fontsize": size}
            axis.text(column, row, f"{share:.0f}", ha="center", va="center", **style)
    else:
        figure.colorbar(image, ax=axis, label="%")
    for row in np.flatnonzero(np.isnan(shares).all(axis=1)).tolist():
        middle = (len(columns) - 1) / 2
        axis.text(middle, row, "constant", fontsize=SMALL, ha="center", va="center")
    more = "" if is_additive else "\nfirst-order indices: rows need not sum to 100"
    axis.set_title(f"share of variance (%), {kind}{more}", fontsize="medium")
    write_names(axis, "x", np.arange(len(columns)), columns)
    write_names(axis, "y", np.arange(len(names)), names)
    axis.tick_params(length=0)
    axis.set(xlabel="error of the input", ylabel="output")
    axis.spines[:].set_visible(False)
    return figure
