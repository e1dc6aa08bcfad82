"""The mean curve of the outputs with bands, and densities at single outputs, drawn sideways."""

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

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
from nn_uq_dist.diagnostics._datatree import _log_densities
from nn_uq_dist.plots._common import (
    BAND_ALPHAS,
    BLUE,
    SKY,
    VERMILION,
    Visuals,
    as_outputs,
    as_visuals,
)
from nn_uq_dist.plots._panels import (
    DASHED,
    FRAME_VISUALS,
    Frame,
    add_legend,
    area,
    finish,
    panel_data,
    sideways,
    single_panel,
    staircase,
)
from nn_uq_dist.plots._positions import as_positions, position_ticks

if TYPE_CHECKING:
    from arviz_plots import PlotCollection

    from nn_uq_dist._linearization import Linearization
    from nn_uq_dist.distributions import LinearizedMarginal

Array = NDArray[np.float64]

GRAY = "#7A7A7A"  # darker than that of the other figures: it lies on the bands
RANGE_IN_SD = 3.6
GRID_POINTS = 320
MOST_DENSITIES = 12
WIDTH = 0.42  # of the distance to the next density that the widest one takes
TAIL = 1e-3  # of the draws on either side may lie outside the figure
VISUALS: dict[str, Mapping[str, Any]] = {
    "bands": {"color": SKY},
    "mean": {"color": VERMILION, "linestyle": DASHED, "width": 1.2},
    "histogram": {"color": GRAY},
    "density": {"color": BLUE},
    **{name: style for name, style in FRAME_VISUALS.items() if name != "title"},
}


def plot_output_band(
    marginals: "LinearizedMarginal | Linearization",
    draws: ArrayLike | None = None,
    *,
    x: ArrayLike | None = None,
    outputs: Sequence[int | str] | None = None,
    output_names: Sequence[str] | None = None,
    deviation: bool = False,
    xlabel: str | None = "output",
    ylabel: str | None = None,
    num_bins: int = 40,
    plot_collection: "PlotCollection | None" = None,
    backend: str | None = None,
    visuals: Visuals | None = None,
    **pc_kwargs: Any,
) -> "PlotCollection":
    """Plot the mean over the outputs with bands, and sideways densities at some of them.

    The bands are 1, 2 and 3 standard deviations about the mean. At each chosen output its analytic
    density is drawn to the right of its position and the histogram of its draws to the left, both
    to the same scale; each pair has a scale of its own.

    Parameters
    ----------
    marginals
        Laws of the `N_y` outputs, two or more: a `LinearizedMarginal` with batch shape ``(N_y,)``
        or a `Linearization`.
    draws
        Monte Carlo draws, shape ``(n, N_y)``, ``n >= 100``. Default: no histograms. Draws that are
        NaN or infinite are warned about and count as lying outside the figure.
    x
        Positions of the outputs, ascending, shape ``(N_y,)``. Default: 0, 1, ...
    outputs
        Outputs with a density, by position or name. Default: all up to 12, else 8 of them.
    output_names
        Names of the outputs, shown below as many of them as have room. Default: the positions.
    deviation
        Whether to show deviations from the mean. It helps where the bands are narrow beside the
        changes of the mean.
    xlabel, ylabel
        Labels of the axes with the unit; None for none.
    num_bins
        Bins of a histogram over 3.6 standard deviations to either side, or more if needed for all
        but ``1e-3`` of the draws on either side.
    plot_collection
        Draw into this collection, which must have a single panel. Default: a new one.
    backend, **pc_kwargs
        As in `plot_marginals`.
    visuals
        Options of each visual, or False to leave it out. Keys: `bands`, `mean`, `histogram`,
        `density`, `ticks`, `xlabel`, `ylabel`, `legend`.

    Returns
    -------
    arviz_plots.PlotCollection
        The artists of `density` and `histogram` have a dimension `density_output`.

    Raises
    ------
    ImportError
        If ArviZ or the backend is missing.
    TypeError, ValueError
        If arguments do not fit or there is a single output; nothing is drawn before that is known.

    Examples
    --------
    >>> import jax, jax.numpy as jnp, nn_uq_dist as nuq
    >>> law = nuq.InputLaw(jnp.zeros(2), half_width=1.0)
    >>> lin = nuq.linearize(lambda f: jnp.array([f[0], f[0] + f[1], 3 * f[1] + 1]), law)
    >>> draws = lin.sample(jax.random.key(0), (5_000,))
    >>> figure = nuq.plots.plot_output_band(lin, draws, ylabel="metres", backend="none")
    >>> print(figure.viz["band_1_sd"]["values"].item()["y_top"].round(3))
    [0.577 0.816 2.732]
    """
    law, num_outputs = as_marginals(marginals)
    if num_outputs < 2:
        raise ValueError("marginals must hold two or more outputs, got 1; use plot_marginals")
    positions = as_positions(x, num_outputs, "output")
    names = as_output_names(output_names, num_outputs)
    few = None if num_outputs <= MOST_DENSITIES else _spread_out(num_outputs)
    shown = sorted(as_outputs(few if outputs is None else outputs, names))
    options = as_visuals(visuals, VISUALS)
    values = None if draws is None else as_draws(draws, num_outputs)[:, shown]
    bins = positive_int("num_bins", num_bins)
    require_extra("arviz_plots", "plots.plot_output_band")
    from arviz_plots import visuals as draw

    mean, sd = (
        np.broadcast_to(np.asarray(value, np.float64), (num_outputs,))
        for value in (law.mean, np.sqrt(law.variance))
    )
    origin = mean if deviation else np.zeros_like(mean)
    columns = [] if values is None else finite_draws(values, [names[j] for j in shown])
    low, high = _ranges(mean[shown], sd[shown], columns)
    points = np.tile(mean, (GRID_POINTS, 1))
    points[:, shown] = np.linspace(low, high, GRID_POINTS)
    grid, density = points[:, shown].T, np.exp(_log_densities(law, points)[:, shown]).T
    count = 0 if values is None else len(values)
    steps = [
        _histogram(column, a, b, bins, count)
        for column, a, b in zip(columns, low, high, strict=False)
    ]
    tallest = density.max(axis=1)
    for k, (_, heights) in enumerate(steps):
        tallest[k] = max(tallest[k], heights.max())
    places = positions[shown]
    room = float(np.diff(places).min()) if len(shown) > 1 else 0.15 * np.ptp(positions)
    scale = WIDTH * room / tallest
    base = origin[shown]

    line = panel_data(np.stack([positions, mean - origin]), ["x", "y"], None)
    figure = single_panel(line, plot_collection, backend, pc_kwargs)
    legend: dict[str, dict[str, Any]] = {}
    if (style := options["bands"]) is not None:
        legend |= _draw_bands(figure, positions, mean - origin, sd, style)
    if (style := options["mean"]) is not None:
        figure.map(draw.line_xy, "mean", data=line, **style)
        legend["mean"] = dict(style)
    shapes = [
        ("density", "analytic density", 1.0, list(zip(grid, density, strict=True))),
        ("histogram", "Monte Carlo", -1.0, steps),
    ]
    for name, entry, side, outlines in shapes:
        if (style := options[name]) is not None and outlines:
            outline = [
                sideways(place, side * s * heights, at - b)
                for place, s, (at, heights), b in zip(places, scale, outlines, base, strict=True)
            ]
            _fill(figure, name, np.array(outline), style)
            legend[entry] = {"width": 8, **style}

    bottom = min(np.min(mean - origin - 3 * sd), np.min(low - base))
    top = max(np.max(mean - origin + 3 * sd), np.max(high - base))
    margin = 0.04 * (top - bottom)
    left, right, ticks = position_ticks(positions, None if output_names is None else names)
    left, right = min(left, places[0] - 0.5 * room), max(right, places[-1] + 0.5 * room)
    frame = Frame(left, right, bottom - margin, top + margin)
    finish(figure, options, None, frame, labels=(xlabel, ylabel), outer=None, xticks=ticks)
    if (style := options["legend"]) is not None:
        add_legend(figure, legend, style)
    return figure


def _spread_out(num_outputs: int) -> list[int]:
    return [int(j) for j in np.linspace(0, num_outputs - 1, 8).round()]


def _ranges(mean: Array, sd: Array, columns: Sequence[Array]) -> tuple[Array, Array]:
    low, high = mean - RANGE_IN_SD * sd, mean + RANGE_IN_SD * sd
    for k, column in enumerate(columns):
        if column.size:
            inner = np.quantile(column, [TAIL, 1 - TAIL])
            low[k], high[k] = min(low[k], inner[0]), max(high[k], inner[1])
    return low, high


def _histogram(
    column: Array, low: float, high: float, num_bins: int, num_draws: int
) -> tuple[Array, Array]:
    """Return the outline of the histogram, normalized by all draws."""
    edges = np.linspace(low, high, num_bins + 1)
    counts = np.diff(np.searchsorted(column, edges))
    return staircase(edges, counts / (num_draws * np.diff(edges)))


def _draw_bands(
    figure: Any, positions: Array, mean: Array, sd: Array, style: Mapping[str, Any]
) -> dict[str, dict[str, Any]]:
    """Draw the bands, the widest first, and return their entries in the legend."""
    for k, alpha in reversed(list(enumerate(BAND_ALPHAS, start=1))):
        rows = np.stack([positions, mean - k * sd, mean + k * sd])
        data = panel_data(rows, ["x", "y_bottom", "y_top"], None)
        figure.map(area, f"band_{k}_sd", data=data, **{"alpha": alpha, **style})
    return {
        f"±{k} sd": {
            "alpha": 1 - math.prod(1 - a for a in BAND_ALPHAS[k - 1 :]),
            "width": 8,
            **style,
        }
        for k in (1, 2, 3)
    }


def _fill(figure: Any, label: str, rows: Array, style: Mapping[str, Any]) -> None:
    """Fill one outline per chosen output, `rows` of shape ``(outputs, 3, points)``."""
    xarray = require_extra("xarray", "plots.plot_output_band")
    dims = ["density_output", "plot_axis", "point"]
    coords = {"plot_axis": ["x", "y_bottom", "y_top"]}
    data = xarray.Dataset({"values": (dims, rows)}, coords=coords)

    def fill_all(da: Any, target: Any, **style: Any) -> Any:
        artists = np.empty(da.sizes["density_output"], dtype=object)
        for k in range(artists.size):
            artists[k] = area(da.isel(density_output=k), target, **style)
        return artists

    # zorder and line widths are left to the backend: what is drawn later lies on top.
    figure.map(fill_all, label, data=data, artist_dims={"density_output": len(rows)}, **style)
