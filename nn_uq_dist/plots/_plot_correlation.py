"""Correlation matrices of Monte Carlo draws and of the analytic law, and their difference."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from jax.typing import ArrayLike
from numpy.typing import NDArray

from nn_uq_dist.diagnostics._arguments import as_draws, complete_rows, unbatched
from nn_uq_dist.diagnostics._estimates import sample_correlation
from nn_uq_dist.linearization._linear_model import LinearModel
from nn_uq_dist.plots.parts import _drawn_law, _figure, _shapes, _shown_outputs
from nn_uq_dist.plots.parts._figure import Figure, PlotCollection, Visuals

Array = NDArray[np.float64]

PANELS = ("Monte Carlo", "analytic", "difference")
LARGEST_WITH_VALUES = 8
MOST_TICKS = 12
MOST_LETTERS = 34  # number of characters that fit side by side under a panel
FIGURE_INCHES = (7.0, 3.4)

# Diverging color maps of ColorBrewer that readers with any color vision can tell apart; the
# difference has a map of its own because its scale differs.
VISUALS: _figure.Styles = {
    "heatmap": {"cmap": "RdBu_r"},
    "difference": {"cmap": "PuOr_r"},
    "values": {},
    "colorbar": {"location": "bottom", "shrink": 0.9, "aspect": 18},
    "title": {"size": 10},
    "ticks": {"size": 8},
}


def plot_correlation(
    linearization: LinearModel,
    draws: ArrayLike,
    *,
    law: _drawn_law.Law | None = None,
    outputs: Sequence[int | str] | None = None,
    output_names: Sequence[str] | None = None,
    plot_collection: PlotCollection | None = None,
    backend: str | None = None,
    visuals: Visuals | None = None,
    **pc_kwargs: Any,
) -> PlotCollection:
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
        its `kind`.
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
    shown, names = _shown_outputs.choose_outputs(outputs, output_names, num_outputs)
    if len(shown) < 2:
        raise ValueError(
            f"outputs must name at least 2 outputs, got {len(shown)}; pass two or more"
        )
    kind, analytic = _analytic(law, model, shown, names)
    values = as_draws(draws, (num_outputs,))[:, shown]
    figure = Figure("plot_correlation", VISUALS, visuals, plot_collection, backend, pc_kwargs)
    # Use one memory layout, because rounding errors of sums depend on it.
    found, error = sample_correlation(np.ascontiguousarray(complete_rows(values, names)))
    difference = analytic - found

    import arviz_plots
    import xarray as xr

    matrices = np.stack([found, analytic, difference])
    data = xr.Dataset(
        {"correlation": (("panel", "output", "other_output"), matrices)},
        {"panel": list(PANELS), "output": names, "other_output": names},
    )
    figure.new_collection(
        arviz_plots.PlotCollection.wrap, data, FIGURE_INCHES, ["panel"], cols=["panel"]
    )
    titles = ("Monte Carlo", f"analytic, {kind}", "analytic - Monte Carlo")
    note = f"largest {_largest(difference):.2g},\nstandard error {_largest(error):.1g}"
    _draw(figure, matrices, names, titles, note)
    return figure.collection


def _analytic(
    law: _drawn_law.Law | None, model: LinearModel, shown: Sequence[int], names: Sequence[str]
) -> tuple[str, Array]:
    """Return name and correlation of the law that is shown."""
    if law is None:
        return "model", np.asarray(model.correlation, np.float64)[np.ix_(shown, shown)]
    drawn = _drawn_law.drawn_law(law, model, shown, names)
    return drawn.kind, drawn.correlation()


def _largest(values: Array) -> float:
    """Return the largest absolute value, 0 if there is none but NaN."""
    return float(np.max(np.abs(values), where=~np.isnan(values), initial=0.0))


def _draw(
    figure: Figure, matrices: Array, names: Sequence[str], titles: Sequence[str], note: str
) -> None:
    options = figure.options
    # At least the size of rounding: a scale needs a nonzero width.
    limits = (1.0, 1.0, max(_largest(matrices[2]), 1e-12))
    # As many names as fit.
    step = -(-len(names) // MOST_TICKS)
    ticks, labels = np.arange(0, len(names), step), names[::step]
    widest = max(len(label) + 1 for label in labels)
    rotation = 90 if widest * len(labels) > MOST_LETTERS else 0

    def heatmap(target: Any, k: int) -> Any:
        style = options["heatmap" if k < 2 else "difference"]
        if style is None:
            return None
        return _shapes.draw_cells(target, matrices[k], (-limits[k], limits[k]), style)

    def surroundings(target: Any, k: int) -> None:
        if (style := options["title"]) is not None:
            _figure.drawing(target).title(titles[k], target, **style)
        if len(names) <= LARGEST_WITH_VALUES and (style := options["values"]) is not None:
            size = 9 if len(names) <= 4 else 7 if len(names) <= 6 else 5.5
            digits = 2 if _largest(matrices[k]) >= 0.095 else 3
            style = {"size": size, **style}
            _shapes.write_values(target, matrices[k], partial(_short, digits), style)
        if (style := options["colorbar"]) is not None:
            label = note if k == 2 else "correlation"
            _shapes.add_colorbar(target, label, style, is_symmetric=k == 2)
        if (style := options["ticks"]) is not None:
            _figure.drawing(target).xticks(ticks, labels, target, **{"rotation": rotation, **style})
            # Only the first panel names its rows.
            _figure.drawing(target).yticks(
                ticks, [""] * len(labels) if k else labels, target, **style
            )

    figure.each_panel(heatmap, "heatmap")
    figure.each_panel(surroundings)


def _short(digits: int, value: float) -> str:
    """Drop the zero before the decimal point, which takes a fifth of the room."""
    text = f"{value:.{digits}f}".replace("0.", ".", 1)
    return text if float(text) else "0"
