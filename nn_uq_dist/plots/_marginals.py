"""Analytic densities of outputs over histograms of their Monte Carlo draws."""

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from numpy.typing import NDArray

from nn_uq_dist._checks import positive_int
from nn_uq_dist.diagnostics._arguments import (
    as_draws,
    as_marginals,
    as_output_names,
    finite_draws,
    require_extra,
)
from nn_uq_dist.plots._common import (
    BAND_ALPHAS,
    BLUE,
    LIGHT_GRAY,
    SKY,
    VERMILION,
    Visuals,
    add_legend,
    as_outputs,
    as_visuals,
    bottom_outputs,
    nice_ticks,
    tick_labels,
    wrap,
)

if TYPE_CHECKING:
    from arviz_plots import PlotCollection

    from nn_uq_dist._linearization import Linearization
    from nn_uq_dist.distributions import LinearizedMarginal

GRID_POINTS = 401
RANGE_IN_SD = 4.0
TAIL = 1e-4  # of the draws on either side may lie outside the panel

VISUALS: dict[str, Mapping[str, Any]] = {
    "bands": {"color": SKY},
    "histogram": {"color": LIGHT_GRAY},
    "density": {"color": BLUE, "width": 1.6},
    "mean": {"color": VERMILION, "linestyle": "--", "width": 1.0},
    "title": {"size": 10},
    "ticks": {"size": 8},
    "xlabel": {"size": 9},
    "remove_axis": {"axis": "y"},
    "legend": {},
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
        Plotting backend of ArviZ, such as ``"matplotlib"`` or ``"none"``. Default: that of
        `plot_collection`, or ArviZ's own default.
    visuals
        Options of each visual, or False to leave it out. Keys: `bands`, `histogram`, `density`,
        `mean`, `title`, `ticks`, `xlabel`, `remove_axis`, `legend`.
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
    >>> list(figure.viz["density"]["marginal"].output.values)
    [np.str_('level'), np.str_('slope')]
    """
    law, num_outputs = as_marginals(marginals)
    names = as_output_names(output_names, num_outputs)
    shown = as_outputs(outputs, names)
    options = as_visuals(visuals, VISUALS)
    values = None if draws is None else as_draws(draws, num_outputs)[:, shown]
    bins = positive_int("num_bins", num_bins)
    require_extra("arviz_plots", "plots.plot_marginals")
    from arviz_plots import visuals as draw

    shown_names = [names[j] for j in shown]
    columns = [] if values is None else finite_draws(values, shown_names)
    mean, sd = (_to_numpy(x, num_outputs)[shown] for x in (law.mean, np.sqrt(law.variance)))
    inner = _ranges(law, mean, sd, columns, shown)
    margin = 0.04 * (inner[1] - inner[0])
    low, high = inner[0] - margin, inner[1] + margin
    grid, density = _density(law, low, high, shown, num_outputs)

    curve = _dataset(np.stack([grid, density], axis=1), ["x", "y"], shown_names)
    if plot_collection is None:
        plot_collection = wrap(curve, backend, pc_kwargs)
        labelled = bottom_outputs(plot_collection)
    else:
        labelled = shown_names

    top = density.max(axis=1)
    legend: dict[str, dict[str, Any]] = {}
    if (style := options["bands"]) is not None:
        for k, alpha in reversed(list(enumerate(BAND_ALPHAS, start=1))):
            sides = np.clip(
                np.stack([mean - k * sd, mean + k * sd], axis=1), low[:, None], high[:, None]
            )
            data = _dataset(sides, ["low", "high"], shown_names)
            plot_collection.map(draw.vspan, f"band_{k}_sd", data=data, alpha=alpha, **style)
        legend |= {
            f"±{k} sd": {
                "alpha": 1 - math.prod(1 - a for a in BAND_ALPHAS[k - 1 :]),
                "width": 8,
                **style,
            }
            for k in (1, 2, 3)
        }
    if values is not None and (style := options["histogram"]) is not None:
        # Without the margin, so that no bin straddles the end of a bounded support.
        bars = _histograms(columns, values.shape[0], *inner, bins)
        top = np.maximum(top, bars[:, 0].max(axis=1))
        data = _dataset(bars, ["histogram", "left_edges", "right_edges"], shown_names)
        plot_collection.map(draw.hist, "histogram", data=data, **style)
        legend["Monte Carlo"] = {"width": 8, **style}
    if (style := options["density"]) is not None:
        plot_collection.map(draw.line_xy, "density", data=curve, **style)
        legend["analytic density"] = dict(style)
    if (style := options["mean"]) is not None:
        # A line of its own: the vertical lines of ArviZ lie behind the histogram.
        height = np.array([np.interp(m, x, p) for m, x, p in zip(mean, grid, density, strict=True)])
        ends = np.stack([[mean, mean], [0 * height, height]]).transpose(2, 0, 1)
        data = _dataset(ends, ["x", "y"], shown_names)
        plot_collection.map(draw.line_xy, "mean", data=data, **style)
        legend["mean"] = dict(style)
    _finish(plot_collection, options, curve, (low, high, 1.06 * top), labelled, xlabel)
    if (style := options["legend"]) is not None:
        add_legend(plot_collection, legend, style)
    return plot_collection


@jax.jit
def _log_prob(law: Any, x: jax.Array) -> jax.Array:
    """Compile once per shape; under jit the points beyond the support give no warning."""
    values: jax.Array = law.log_prob(x)
    return values


def _to_numpy(value: Any, num_outputs: int) -> NDArray[np.float64]:
    return np.broadcast_to(np.asarray(value, dtype=np.float64), (num_outputs,))


def _ranges(
    law: Any,
    mean: NDArray[np.float64],
    sd: NDArray[np.float64],
    columns: Sequence[NDArray[np.float64]],
    shown: Sequence[int],
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    low, high = mean - RANGE_IN_SD * sd, mean + RANGE_IN_SD * sd
    if hasattr(law.support, "lower_bound"):
        num_outputs = (law.batch_shape or (1,))[0]
        low = np.maximum(low, _to_numpy(law.support.lower_bound, num_outputs)[shown])
        high = np.minimum(high, _to_numpy(law.support.upper_bound, num_outputs)[shown])
    for j, column in enumerate(columns):
        if column.size:
            inner = np.quantile(column, [TAIL, 1 - TAIL])
            low[j], high[j] = min(low[j], inner[0]), max(high[j], inner[1])
    return low, high


def _density(
    law: Any,
    low: NDArray[np.float64],
    high: NDArray[np.float64],
    shown: Sequence[int],
    num_outputs: int,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return grids and densities of the shown outputs, shape ``(len(shown), GRID_POINTS)`` each."""
    grid = np.linspace(low, high, GRID_POINTS)
    points = np.broadcast_to(_to_numpy(law.mean, num_outputs), (GRID_POINTS, num_outputs)).copy()
    points[:, shown] = grid
    log_density = np.asarray(_log_prob(law, jnp.asarray(points)), dtype=np.float64)
    return grid.T, np.exp(log_density[:, shown]).T


def _histograms(
    columns: Sequence[NDArray[np.float64]],
    num_draws: int,
    low: NDArray[np.float64],
    high: NDArray[np.float64],
    num_bins: int,
) -> NDArray[np.float64]:
    """Return heights, left and right edges, shape ``(len(columns), 3, num_bins)``."""
    bars = []
    for column, a, b in zip(columns, low, high, strict=True):
        edges = np.linspace(a, b, num_bins + 1)
        counts = np.diff(np.searchsorted(column, edges))
        bars.append([counts / (num_draws * np.diff(edges)), edges[:-1], edges[1:]])
    return np.array(bars)


def _dataset(values: NDArray[np.float64], axes: Sequence[str], names: Sequence[str]) -> Any:
    """Wrap ``values (outputs, axes, ...)`` the way the visuals of ArviZ read them."""
    xarray = require_extra("xarray", "plots.plot_marginals")
    dims = ["output", "plot_axis", "point"][: values.ndim]
    coords = {"output": list(names), "plot_axis": list(axes)}
    return xarray.Dataset({"marginal": (dims, values)}, coords=coords)


def _finish(
    plot_collection: Any,
    options: Mapping[str, dict[str, Any] | None],
    curve: Any,
    limits: tuple[NDArray[np.float64], ...],
    labelled: Sequence[str],
    xlabel: str | None,
) -> None:
    """Add limits, ticks, titles and labels to the panels."""
    from arviz_plots import visuals as draw

    def frame(_: Any, target: Any, *, low: float, high: float, top: float) -> None:
        draw.set_xlim(None, target, (low, high))
        draw.set_ylim(None, target, (0.0, top))

    def ticks(_: Any, target: Any, *, low: float, high: float, **style: Any) -> None:
        values = nice_ticks(low, high)
        draw.set_xticks(None, target, values, tick_labels(values), **style)

    def title(_: Any, target: Any, *, sel: Mapping[str, Any], **style: Any) -> Any:
        return draw.labelled_title(None, target, text=str(sel["output"]), **_artist(style))

    def label(_: Any, target: Any, *, sel: Mapping[str, Any], **style: Any) -> Any:
        # ArviZ wants an artist for every panel, so those with a neighbor below get no text.
        text = xlabel if sel["output"] in labelled else ""
        return draw.labelled_x(None, target, text=text, **_artist(style))

    names = curve["output"].values
    low, high, top = (_dataset(x[:, None], ["x"], names).isel(plot_axis=0) for x in limits)
    draw_in_all = partial(plot_collection.map, data=curve)
    draw_in_all(frame, low=low, high=high, top=top, store_artist=False)
    if (style := options["ticks"]) is not None:
        draw_in_all(ticks, low=low, high=high, store_artist=False, **style)
    if (style := options["title"]) is not None:
        draw_in_all(title, "title", subset_info=True, **style)
    if (style := options["xlabel"]) is not None and xlabel is not None:
        draw_in_all(label, "xlabel", subset_info=True, **style)
    if (style := options["remove_axis"]) is not None:
        draw_in_all(draw.remove_axis, store_artist=False, **style)


def _artist(style: dict[str, Any]) -> dict[str, Any]:
    """Drop what ``map(subset_info=True)`` adds to the options of an artist."""
    return {key: value for key, value in style.items() if key not in ("var_name", "isel")}
