"""Correlation matrices of Monte Carlo draws and of the analytic law, and their difference."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from jax.typing import ArrayLike
from numpy.typing import NDArray

from nn_uq_dist.diagnostics._arguments import as_draws, unbatched
from nn_uq_dist.diagnostics._estimates import sample_correlation
from nn_uq_dist.diagnostics._tails import complete_rows
from nn_uq_dist.linearization._linear_model import LinearModel
from nn_uq_dist.linearization._linearized_network import Linearization
from nn_uq_dist.plots.parts._drawn_linear import Law, as_law, drawn_law
from nn_uq_dist.plots.parts._figure import Figure, Visuals
from nn_uq_dist.plots.parts._palette import LIGHT_GRAY
from nn_uq_dist.plots.parts._shown_outputs import choose_outputs

if TYPE_CHECKING:
    from arviz_plots import PlotCollection

Array = NDArray[np.float64]

PANELS = ("Monte Carlo", "analytic", "difference")
LARGEST_WITH_VALUES = 8
MOST_TICKS = 12
MOST_LETTERS = 34  # number of characters that fit side by side under a panel
FIGURE_INCHES = (7.0, 3.4)

# Diverging color maps of ColorBrewer that readers with any color vision can tell apart; the
# difference has a map of its own because its scale differs.
VISUALS: dict[str, Mapping[str, Any]] = {
    "heatmap": {"cmap": "RdBu_r"},
    "difference": {"cmap": "PuOr_r"},
    "values": {},
    "colorbar": {},
    "title": {"size": 10},
    "ticks": {"size": 8},
}


def plot_correlation(
    linearization: LinearModel,
    draws: ArrayLike,
    *,
    law: Law | None = None,
    outputs: Sequence[int | str] | None = None,
    output_names: Sequence[str] | None = None,
    plot_collection: "PlotCollection | None" = None,
    backend: str | None = None,
    visuals: Visuals | None = None,
    **pc_kwargs: Any,
) -> "PlotCollection":
    """Plot the correlations of Monte Carlo draws, those of the analytic law, and the difference.

    Three heat maps side by side. The first two share a scale from -1 to 1; the difference,
    analytic minus Monte Carlo, has its own, symmetric about zero. Below it are the largest
    difference and the largest standard error of the draws, which is the size of chance differences.
    With at most eight outputs the cells show the values.

    Parameters
    ----------
    linearization
        The linearized network, or any other `LinearModel`, without batch axes.
    draws
        Monte Carlo draws, shape ``(n, N_y)``, ``n >= 100``.
    law
        Default: the `correlation` of the model. ``"joint"`` for that of its joint distribution,
        ``"copula"`` for that of the outputs under `LinearModel.gaussian_copula`, which differs if
        that was repaired, or any `nn_uq_dist.laws.JointLaw` of the `N_y` outputs; the title shows
        its `kind`. ``"linear"`` is the default for a `Linearization`.
    outputs
        At least two outputs to show, by position or name. Default: all.
    output_names
        Names of all `N_y` outputs. Default ``y[0]``, ``y[1]``, ...
    plot_collection
        Draw into this collection, which must be faceted by the dimension `panel` with the values
        ``"Monte Carlo"``, ``"analytic"``, ``"difference"``. Default: a new one.
    backend
        As in `plot_marginals`.
    visuals
        Options of each visual, or False to leave it out. Keys: `heatmap`, `difference` (both for
        Matplotlib's ``imshow``), `values`, `colorbar`, `title`, `ticks`.
    **pc_kwargs
        Passed to ``arviz_plots.PlotCollection.wrap``: `figure_kwargs` and others.

    Returns
    -------
    arviz_plots.PlotCollection
        With `savefig`, `show`, and the artists in `viz`; its `data` hold the matrices. No global
        style is changed.

    Raises
    ------
    ImportError
        If ArviZ or Matplotlib is missing.
    TypeError, ValueError
        If shapes, names, outputs, backend or visuals do not fit, or fewer than 100 draws are
        finite.

    Warns
    -----
    RuntimeWarning
        If draws are NaN or infinite; their rows are left out.

    Notes
    -----
    An output that does not vary has no correlations; its cells are gray.

    Examples
    --------
    >>> import jax, jax.numpy as jnp, nn_uq_dist as nuq
    >>> law = nuq.InputLaw(jnp.zeros(3), half_width=1.0)
    >>> lin = nuq.Linearization(jnp.zeros(2), [[1.0, 2.0, 1.0], [1.0, 1.0, 0.0]], law)
    >>> draws = lin.sample(jax.random.key(0), (4_000,))
    >>> figure = nuq.plots.plot_correlation(lin, draws, output_names=["a", "b"], backend="none")
    >>> matrices = figure.data.correlation.sel(output="a", other_output="b")
    >>> matrices.sel(panel=["Monte Carlo", "analytic"]).values.round(2)
    array([0.87, 0.87])
    """
    model = unbatched(linearization)
    num_outputs = model.num_outputs
    shown, names = choose_outputs(outputs, output_names, num_outputs)
    if len(shown) < 2:
        raise ValueError(
            f"outputs must name at least 2 outputs, got {len(shown)}; pass two or more"
        )
    chosen = None if law is None else as_law(law, model)
    values = as_draws(draws, (num_outputs,))[:, shown]
    figure = Figure("plot_correlation", VISUALS, visuals, plot_collection, backend, pc_kwargs)
    # Use one memory layout, because rounding errors of sums depend on it.
    found, error = sample_correlation(np.ascontiguousarray(complete_rows(values, names)))
    if chosen is None or chosen == "linear":
        kind = "linear law" if isinstance(model, Linearization) else "model"
        analytic = np.asarray(model.correlation, np.float64)[np.ix_(shown, shown)]
    else:
        drawn = drawn_law(chosen, model, shown, names)
        kind, analytic = drawn.kind, drawn.correlation()
    difference = analytic - found

    import xarray as xr
    from arviz_plots import PlotCollection

    matrices = np.stack([found, analytic, difference])
    data = xr.Dataset(
        {"correlation": (("panel", "output", "other_output"), matrices)},
        {"panel": list(PANELS), "output": names, "other_output": names},
    )
    figure.new_collection(PlotCollection.wrap, data, FIGURE_INCHES, ["panel"], cols=["panel"])
    titles = ("Monte Carlo", f"analytic, {kind}", "analytic - Monte Carlo")
    note = f"largest {_largest(difference):.2g}, standard error {_largest(error):.1g}"
    _draw(figure, matrices, names, titles, note)
    return figure.collection


def _largest(values: Array) -> float:
    """Return the largest absolute value, 0 if there is none but NaN."""
    return float(np.max(np.abs(values), where=~np.isnan(values), initial=0.0))


def _draw(
    figure: Figure, matrices: Array, names: Sequence[str], titles: Sequence[str], note: str
) -> None:
    from arviz_plots import visuals as draw

    options = figure.options
    # At least the size of rounding: a scale needs a nonzero width.
    limits = (1.0, 1.0, max(_largest(matrices[2]), 1e-12))

    def heatmap(target: Any, k: int) -> Any:
        style = options["heatmap" if k < 2 else "difference"]
        return None if style is None else _draw_image(target, matrices[k], limits[k], style)

    def surroundings(target: Any, k: int) -> None:
        if (style := options["title"]) is not None:
            draw.labelled_title(None, target, text=titles[k], **style)
        if figure.backend == "none":
            return
        if target.images and len(names) <= LARGEST_WITH_VALUES and options["values"] is not None:
            _print_values(target, matrices[k], options["values"])
        if target.images and (style := options["colorbar"]) is not None:
            _add_colorbar(target, None if k < 2 else note, style)
        if (style := options["ticks"]) is not None:
            _label_cells(target, names, style, is_first=k == 0)

    figure.each_panel(heatmap, "heatmap")
    figure.each_panel(surroundings)


def _draw_image(target: Any, values: Array, limit: float, style: dict[str, Any]) -> Any:
    """Draw the cells, on a scale that is symmetric about zero; ArviZ has no heat maps."""
    if isinstance(target, list):
        limits = (-limit, limit)
        target.append({"function": "heatmap", "values": values, "limits": limits, **style})
        return target[-1]
    target.set_facecolor(LIGHT_GRAY)  # shows where values are NaN
    image = target.imshow(values, vmin=-limit, vmax=limit, interpolation="nearest", **style)
    target.spines[:].set_visible(False)
    target.tick_params(length=0)
    return image


def _print_values(target: Any, values: Array, style: Mapping[str, Any]) -> None:
    """Write the values into the cells, dark on light cells and light on dark ones."""
    image = target.images[0]
    digits = 2 if _largest(values) >= 0.095 else 3
    size = 9 if len(values) <= 4 else 7 if len(values) <= 6 else 5.5
    for row, column in np.argwhere(~np.isnan(values)):
        value = values[row, column]
        luminance = np.dot(image.cmap(image.norm(value))[:3], (0.299, 0.587, 0.114))
        # Drop the zero before the decimal point, which takes a fifth of the room.
        text = f"{value:.{digits}f}".replace("0.", ".", 1)
        color = "black" if luminance > 0.5 else "white"
        options = {"ha": "center", "va": "center", "fontsize": size, "color": color, **style}
        target.text(column, row, text if float(text) else "0", **options)


def _add_colorbar(target: Any, note: str | None, style: Mapping[str, Any]) -> None:
    """Add a color bar below, with a note as its label."""
    from matplotlib.ticker import MaxNLocator

    options = {"location": "bottom", "shrink": 0.9, "aspect": 18, **style}
    bar = target.figure.colorbar(target.images[0], ax=target, **options)
    bar.locator = MaxNLocator(4, symmetric=note is not None)
    bar.update_ticks()
    bar.ax.tick_params(labelsize=7)
    bar.set_label(note or "correlation", fontsize=8)
    bar.outline.set_visible(False)


def _label_cells(
    target: Any, names: Sequence[str], style: Mapping[str, Any], *, is_first: bool
) -> None:
    """Name rows and columns, as many as fit; only the first panel names its rows."""
    step = -(-len(names) // MOST_TICKS)
    ticks, labels = np.arange(0, len(names), step), names[::step]
    is_long = sum(len(label) + 1 for label in labels) > MOST_LETTERS
    target.set_xticks(ticks, labels, fontsize=style["size"], rotation=90 if is_long else 0)
    target.set_yticks(ticks, labels if is_first else [""] * len(labels), fontsize=style["size"])
