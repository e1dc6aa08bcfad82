"""Analytic densities of outputs over histograms of their Monte Carlo draws."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from jax.typing import ArrayLike

from nn_uq_dist.basics._checks import positive_int
from nn_uq_dist.diagnostics._arguments import Marginals
from nn_uq_dist.plots.parts import _figure, _palette, _shapes, _shown_outputs
from nn_uq_dist.plots.parts._figure import Figure, Frame, PlotCollection, Visuals

GRID_POINTS = 401

VISUALS: _figure.Styles = {
    "bands": {"color": _palette.SKY},
    "histogram": {"color": _palette.LIGHT_GRAY},
    "density": {"color": _palette.BLUE, "width": 1.6},
    "mean": {"color": _palette.VERMILION, "linestyle": _palette.DASHED, "width": 1.0},
    "remove_axis": {"axis": "y"},
    **_figure.frame_visuals(without="ylabel"),
}


def plot_marginals(
    marginals: Marginals,
    draws: ArrayLike | None = None,
    *,
    outputs: Sequence[int | str] | None = None,
    output_names: Sequence[str] | None = None,
    xlabel: str | None = None,
    num_bins: int = 50,
    plot_collection: PlotCollection | None = None,
    backend: str | None = None,
    visuals: Visuals | None = None,
    **pc_kwargs: Any,
) -> PlotCollection:
    """Plot the analytic density of each output over a histogram of Monte Carlo draws.

    One panel per output: the density, bands of 1, 2 and 3 standard deviations about the mean, and
    the draws. A panel shows 4 standard deviations on either side, cut at the ends of the support,
    and all but a fraction ``1e-4`` of the draws on either side; the histogram is normalized by all
    draws.

    Parameters
    ----------
    marginals
        Laws of the `N_y` outputs: a `Linearization`, a `LinearizedMarginal` with batch shape
        ``(N_y,)``, or any other univariate continuous distribution (`nn_uq_dist.laws.OutputLaw`, or
        what `nn_uq_dist.laws.as_output_law` adapts).
    draws
        Monte Carlo draws, shape ``(n, N_y)``, ``n >= 100``. Default: no histogram. Draws that are
        NaN or infinite are warned about and count as lying outside the panel.
    outputs
        Outputs to show, by position or name. Default: all.
    output_names
        Names of all `N_y` outputs, the titles of the panels. Default: those of the model, else
        ``y[0]``, ``y[1]``, ...
    xlabel
        Label of the horizontal axes with the unit, such as ``"temperature (°C)"``.
    num_bins
        Bins of the histogram over the range of the panel.
    plot_collection
        Draw into this collection, which must be faceted by the dimension `output` with the shown
        names as its values. Default: a new one.
    backend
        ``"matplotlib"`` or ``"none"`` (draws nothing, keeps what would be drawn). Default: that of
        `plot_collection`, or ``"matplotlib"``. Interactive figures come from the draws that
        `nn_uq_dist.diagnostics.to_datatree` exports.
    visuals
        Options of each visual, or False to leave it out. Keys: `bands`, `histogram`, `density`,
        `mean`, `remove_axis`, `title`, `ticks`, `xlabel`, `legend`.
    **pc_kwargs
        Passed to ``arviz_plots.PlotCollection.wrap``: `col_wrap`, `figure_kwargs` and others.

    Returns
    -------
    arviz_plots.PlotCollection
        With `savefig`, `show`, `add_title`, and the artists in `viz`. No global style is changed.

    Raises
    ------
    ImportError
        If ArviZ or Matplotlib is missing.
    TypeError, ValueError
        If shapes, names, outputs or visuals do not fit; this is checked before anything is drawn.

    Examples
    --------
    >>> import jax, jax.numpy as jnp, nn_uq_dist as nuq
    >>> weights = jnp.array([[0.5, 0.3, 0.1], [0.2, 0.2, 0.4]])
    >>> marginals = nuq.LinearizedMarginal(jnp.zeros(2), weights)
    >>> draws = marginals.sample(jax.random.key(0), (10_000,))
    >>> figure = nuq.plots.plot_marginals(
    ...     marginals, draws, output_names=["level", "slope"], xlabel="metres", backend="none"
    ... )
    >>> list(figure.viz["density"]["values"].output.values)
    [np.str_('level'), np.str_('slope')]
    """
    laws = _shown_outputs.prepare_outputs(marginals, draws, outputs, output_names)
    bins = positive_int("num_bins", num_bins)
    figure = Figure("plot_marginals", VISUALS, visuals, plot_collection, backend, pc_kwargs)

    mean, sd = laws.mean, laws.sd
    inner = _shapes.density_range(mean, sd, laws.bounds, laws.columns)
    margin = 0.04 * (inner[1] - inner[0])
    low, high = inner[0] - margin, inner[1] + margin
    grid, density = laws.density_curves(low, high, GRID_POINTS)
    top = density.max(axis=1)
    bars = None
    if laws.draws is not None and figure.options["histogram"] is not None:
        # Without the margin, so that no bin straddles the end of a bounded support.
        bars = _shapes.histograms(laws.columns, laws.num_draws, *inner, bins)
        top = np.maximum(top, bars[:, 0].max(axis=1))
    frame = Frame(low, high, 0 * top, 1.06 * top)

    curve = np.stack([grid, density], axis=1)
    figure.one_panel_per_output(curve, laws.names)
    figure.bands(
        lambda k: _shapes.upright(np.clip([mean - k * sd, mean + k * sd], low, high), frame.top)
    )
    if bars is not None:
        figure.bars("histogram", bars, "Monte Carlo")
    figure.line("density", curve, "analytic density")
    height = np.array([np.interp(m, x, p) for m, x, p in zip(mean, grid, density, strict=True)])
    figure.line("mean", _shapes.vertical_lines(mean, height), "mean")
    return figure.finish(frame, xlabel=xlabel, removed=figure.options["remove_axis"])
