"""Analytic densities of outputs over histograms of their Monte Carlo draws."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from jax.typing import ArrayLike
from numpy.typing import NDArray

from nn_uq_dist._checks import positive_int
from nn_uq_dist.diagnostics._arguments import as_draws, as_marginals, finite_draws
from nn_uq_dist.plots._arguments import Visuals, as_visuals, choose_outputs
from nn_uq_dist.plots._backends import as_backend, in_front
from nn_uq_dist.plots._frame import Frame, finish, frame_visuals
from nn_uq_dist.plots._legend import Entries, add_legend, area_entry, band_entries, line_entry
from nn_uq_dist.plots._output_curves import (
    cover_draws,
    density_curves,
    histograms,
    mean_and_sd,
    per_output,
)
from nn_uq_dist.plots._palette import BAND_ALPHAS, BLUE, DASHED, LIGHT_GRAY, SKY, VERMILION
from nn_uq_dist.plots._panels import outer_panels, output_panels, panel_data
from nn_uq_dist.plots._shapes import area, upright, vertical_lines

if TYPE_CHECKING:
    from arviz_plots import PlotCollection

    from nn_uq_dist._linearization import Linearization
    from nn_uq_dist.distributions import LinearizedMarginal

Array = NDArray[np.float64]

GRID_POINTS = 401
RANGE_IN_SD = 4.0
TAIL = 1e-4  # of the draws on either side may lie outside the panel

VISUALS: dict[str, Mapping[str, Any]] = {
    "bands": {"color": SKY},
    "histogram": {"color": LIGHT_GRAY},
    "density": {"color": BLUE, "width": 1.6},
    "mean": {"color": VERMILION, "linestyle": DASHED, "width": 1.0},
    "remove_axis": {"axis": "y"},
    **frame_visuals(without="ylabel"),
}


def plot_marginals(
    marginals: "LinearizedMarginal | Linearization",
    draws: ArrayLike | None = None,
    *,
    outputs: Sequence[int | str] | None = None,
    output_names: Sequence[str] | None = None,
    xlabel: str | None = None,
    num_bins: int = 50,
    plot_collection: "PlotCollection | None" = None,
    backend: str | None = None,
    visuals: Visuals | None = None,
    **pc_kwargs: Any,
) -> "PlotCollection":
    """Plot the analytic density of each output over a histogram of Monte Carlo draws.

    One panel per output: the density, bands of 1, 2 and 3 standard deviations about the mean, and
    the draws. A panel shows 4 standard deviations on either side, cut at the support, and all but
    ``1e-4`` of the draws on either side; the histogram is normalized by all draws.

    Parameters
    ----------
    marginals
        Laws of the `N_y` outputs: a `LinearizedMarginal` with batch shape ``(N_y,)`` or a
        `Linearization`.
    draws
        Monte Carlo draws, shape ``(n, N_y)``, ``n >= 100``. Default: no histogram. Draws that are
        NaN or infinite are warned about and count as lying outside the panel.
    outputs
        Outputs to show, by position or name. Default: all.
    output_names
        Names of all `N_y` outputs, the titles of the panels. Default ``y[0]``, ``y[1]``, ...
    xlabel
        Label of the horizontal axes with the unit, such as ``"temperature (°C)"``.
    num_bins
        Bins of the histogram over the range of the panel.
    plot_collection
        Draw into this collection, which must be faceted by the dimension `output` with the shown
        names as its values. Default: a new one.
    backend
        ``"matplotlib"``, ``"plotly"``, ``"bokeh"`` or ``"none"`` (draws nothing, keeps the
        numbers). Default: that of `plot_collection`, or ArviZ's own default.
    visuals
        Options of each visual, or False to leave it out. Keys: `bands`, `histogram`, `density`,
        `mean`, `remove_axis`, `title`, `ticks`, `xlabel`, `legend`. Lengths are in the units of the
        backend: pixels for Plotly and Bokeh.
    **pc_kwargs
        Passed to ``arviz_plots.PlotCollection.wrap``: `col_wrap`, `figure_kwargs` and others.

    Returns
    -------
    arviz_plots.PlotCollection
        With `savefig`, `show`, `add_title`, and the artists in `viz`. No global style is changed.

    Raises
    ------
    ImportError
        If ArviZ or the backend is missing.
    TypeError, ValueError
        If shapes, names, outputs or visuals do not fit; nothing is drawn before that is known.

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
    law, num_outputs = as_marginals(marginals)
    shown, names = choose_outputs(outputs, output_names, num_outputs)
    values = None if draws is None else as_draws(draws, num_outputs)[:, shown]
    bins = positive_int("num_bins", num_bins)
    backend = as_backend(backend, plot_collection, "plots.plot_marginals")
    options = as_visuals(visuals, VISUALS, backend)
    from arviz_plots import visuals as draw

    columns = [] if values is None else finite_draws(values, names)
    mean, sd = (x[shown] for x in mean_and_sd(law, num_outputs))
    inner = _ranges(law, mean, sd, columns, shown)
    margin = 0.04 * (inner[1] - inner[0])
    low, high = inner[0] - margin, inner[1] + margin
    grid, density = density_curves(law, low, high, shown, num_outputs, GRID_POINTS)
    top = density.max(axis=1)
    bars = None
    if values is not None and options["histogram"] is not None:
        # Without the margin, so that no bin straddles the end of a bounded support.
        bars = histograms(columns, len(values), *inner, bins)
        top = np.maximum(top, bars[:, 0].max(axis=1))
    frame = Frame(low, high, 0 * top, 1.06 * top)

    curve = panel_data(np.stack([grid, density], axis=1), ["x", "y"], names)
    is_own = plot_collection is None
    figure = output_panels(curve, plot_collection, backend, pc_kwargs)
    legend: Entries = {}
    if (style := options["bands"]) is not None:
        _draw_bands(figure, names, frame, mean, sd, style)
        legend |= band_entries(style)
    if bars is not None and (style := options["histogram"]) is not None:
        data = panel_data(bars, ["histogram", "left_edges", "right_edges"], names)
        figure.map(draw.hist, "histogram", data=data, **in_front(backend, 1) | style)
        legend["Monte Carlo"] = area_entry(style)
    if (style := options["density"]) is not None:
        figure.map(draw.line_xy, "density", data=curve, **in_front(backend, 2) | style)
        legend["analytic density"] = line_entry(style)
    if (style := options["mean"]) is not None:
        height = np.array([np.interp(m, x, p) for m, x, p in zip(mean, grid, density, strict=True)])
        data = panel_data(vertical_lines(mean, height), ["x", "y"], names)
        figure.map(draw.line_xy, "mean", data=data, **in_front(backend, 2) | style)
        legend["mean"] = line_entry(style)
    finish(
        figure,
        options,
        names,
        frame,
        labels=(xlabel, None),
        outer=outer_panels(figure, is_own),
        removed=options["remove_axis"],
    )
    add_legend(figure, legend, options["legend"])
    return figure


def _draw_bands(
    figure: Any, names: Sequence[str], frame: Frame, mean: Array, sd: Array, style: dict[str, Any]
) -> None:
    """Draw the bands, the widest first, as areas: spans of some backends hide what they hold."""
    for k, alpha in reversed(list(enumerate(BAND_ALPHAS, start=1))):
        low, high = np.clip([mean - k * sd, mean + k * sd], frame.left, frame.right)
        data = panel_data(upright(low, high, frame.top), ["x", "y_bottom", "y_top"], names)
        figure.map(area, f"band_{k}_sd", data=data, **{"alpha": alpha, **style})


def _ranges(
    law: Any, mean: Array, sd: Array, columns: Sequence[Array], shown: Sequence[int]
) -> tuple[Array, Array]:
    """Return the ends of the panels, but for a margin."""
    low, high = mean - RANGE_IN_SD * sd, mean + RANGE_IN_SD * sd
    if hasattr(law.support, "lower_bound"):
        num_outputs = (law.batch_shape or (1,))[0]
        low = np.maximum(low, per_output(law.support.lower_bound, num_outputs)[shown])
        high = np.minimum(high, per_output(law.support.upper_bound, num_outputs)[shown])
    cover_draws(low, high, columns, TAIL)
    return low, high
