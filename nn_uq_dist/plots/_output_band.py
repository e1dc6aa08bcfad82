"""The mean curve of the outputs with bands, and densities at single outputs, drawn sideways."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from jax.typing import ArrayLike
from numpy.typing import NDArray

from nn_uq_dist.basics._checks import positive_int
from nn_uq_dist.plots.parts._arguments import Visuals, as_outputs
from nn_uq_dist.plots.parts._figure import AREA, LINE, Figure
from nn_uq_dist.plots.parts._frame import Frame, frame_visuals
from nn_uq_dist.plots.parts._from_diagnostics import (
    Marginals,
    as_marginals,
    as_output_names,
    require_extra,
)
from nn_uq_dist.plots.parts._legend import area_entry
from nn_uq_dist.plots.parts._output_curves import cover_draws, histograms
from nn_uq_dist.plots.parts._outputs import Outputs, prepare_outputs
from nn_uq_dist.plots.parts._palette import BLUE, DASHED, GRAY, SKY, VERMILION
from nn_uq_dist.plots.parts._positions import as_positions, position_ticks
from nn_uq_dist.plots.parts._shapes import area, sideways, staircase

if TYPE_CHECKING:
    from arviz_plots import PlotCollection

Array = NDArray[np.float64]

RANGE_IN_SD = 3.6
GRID_POINTS = 320
MOST_DENSITIES = 12
WIDTH = 0.42  # of the widest density, as a share of the distance to the next one
MOST_WIDTH = 0.07  # of the widest density, as a share of all positions: bands and mean stay visible
VISIBLE = 0.01  # shapes end where they are lower than this share of the tallest one
TAIL = 1e-3  # share of the draws that may lie outside the figure on either side
VISUALS: dict[str, Mapping[str, Any]] = {
    "bands": {"color": SKY},
    "mean": {"color": VERMILION, "linestyle": DASHED, "width": 1.2},
    "histogram": {"color": GRAY},
    "density": {"color": BLUE},
    **frame_visuals(without="title"),
}


def plot_output_band(
    marginals: Marginals,
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
    to the same scale; each pair has a scale of its own. Both end where they are lower than a
    hundredth of the tallest.

    Parameters
    ----------
    marginals
        Laws of the `N_y` outputs, two or more, as in `plot_marginals`.
    draws
        Monte Carlo draws, shape ``(n, N_y)``, ``n >= 100``. Default: no histograms. Draws that are
        NaN or infinite are warned about and count as lying outside the figure.
    x
        Positions of the outputs, ascending, shape ``(N_y,)``. Default: 0, 1, ...
    outputs
        Outputs with a density, by position or name. Default: all if there are at most 12, else 8 of
        them.
    output_names
        Names of the outputs; as many as fit are shown below the axis. Default: the positions.
    deviation
        Whether to show deviations from the mean. It helps if the bands are narrow compared with the
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
        If arguments do not fit or there is a single output; this is checked before anything is
        drawn.

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
    few = None if num_outputs <= MOST_DENSITIES else _spread_out(num_outputs)
    all_names = as_output_names(output_names, num_outputs)
    shown = sorted(as_outputs(few if outputs is None else outputs, all_names))
    laws = prepare_outputs(law, draws, shown, output_names)
    bins = positive_int("num_bins", num_bins)
    figure = Figure(
        "plot_output_band", VISUALS, visuals=visuals, plot_collection=plot_collection,
        backend=backend, pc_kwargs=pc_kwargs,
    )  # fmt: skip

    mean, sd = laws.functions.mean, laws.functions.sd  # of all outputs
    origin = mean if deviation else np.zeros_like(mean)
    low, high = (laws.mean + side * RANGE_IN_SD * laws.sd for side in (-1, 1))
    cover_draws(low, high, laws.columns, TAIL)
    densities = list(zip(*laws.density_curves(low, high, GRID_POINTS), strict=True))
    steps = _outlines(laws, low, high, bins)
    tallest = np.max([[heights.max() for _, heights in x] for x in (densities, steps) if x], axis=0)
    densities, steps = (
        [_visible(*curve, top) for curve, top in zip(curves, tallest, strict=False)]
        for curves in (densities, steps)
    )
    places, base = positions[laws.shown], origin[laws.shown]
    width = MOST_WIDTH * float(np.ptp(positions))
    if len(places) > 1:
        width = min(width, WIDTH * float(np.diff(places).min()))
    scale = width / tallest

    line = np.stack([positions, mean - origin])
    figure.one_panel(line, LINE)
    figure.bands(lambda k: np.stack([positions, mean - origin - k * sd, mean - origin + k * sd]))
    figure.line("mean", line, "mean")
    for visual, entry, side, outlines in (
        ("density", "analytic density", 1.0, densities),
        ("histogram", "Monte Carlo", -1.0, steps),
    ):
        rows = [
            sideways(place, side * s * heights, at - b)
            for place, s, (at, heights), b in zip(places, scale, outlines, base, strict=False)
        ]
        if rows:
            _fill(figure, visual, np.array(rows), entry)

    drawn = [np.array([at[[0, -1]] for at, _ in curves]) for curves in (densities, steps) if curves]
    ends = np.array(drawn) - base[:, None]  # (curves, outputs, 2)
    bottom = min(np.min(mean - origin - 3 * sd), ends.min())
    top = max(np.max(mean - origin + 3 * sd), ends.max())
    margin = 0.04 * (top - bottom)
    left, right, ticks = position_ticks(positions, None if output_names is None else all_names)
    left, right = min(left, places[0] - 1.2 * width), max(right, places[-1] + 1.2 * width)
    frame = Frame(left, right, bottom - margin, top + margin)
    return figure.finish(frame, xlabel=xlabel, ylabel=ylabel, xticks=ticks)


def _spread_out(num_outputs: int) -> list[int]:
    return [int(j) for j in np.linspace(0, num_outputs - 1, 8).round()]


def _outlines(laws: Outputs, low: Array, high: Array, num_bins: int) -> list[tuple[Array, Array]]:
    """Return the outlines of the histograms, positions and heights; none without draws."""
    if laws.draws is None:
        return []
    bars = histograms(laws.columns, laws.num_draws, low, high, num_bins)
    return [staircase(np.append(left, right[-1]), heights) for heights, left, right in bars]


def _visible(at: Array, heights: Array, tallest: float) -> tuple[Array, Array]:
    """Draw an outline together where it is too low to be seen; the number of points stays."""
    inside = np.flatnonzero(heights >= VISIBLE * tallest)
    first, last = inside[0], inside[-1]
    position = np.arange(at.size)
    kept = np.where((position >= first) & (position <= last), heights, 0.0)
    return np.clip(at, at[first], at[last]), kept


def _fill(figure: Figure, visual: str, rows: Array, entry: str) -> None:
    """Fill one outline per chosen output, `rows` of shape ``(outputs, 3, points)``."""
    if (style := figure.options[visual]) is None:
        return
    xarray = require_extra("xarray", "plots.plot_output_band")
    dims = ["density_output", "plot_axis", "point"]
    data = xarray.Dataset({"values": (dims, rows)}, coords={"plot_axis": list(AREA)})

    def fill_all(da: Any, target: Any, **style: Any) -> Any:
        artists = np.empty(da.sizes["density_output"], dtype=object)
        for k in range(artists.size):
            artists[k] = area(da.isel(density_output=k), target, **style)
        return artists

    # Drawing order and line widths are left to the backend, which puts later artists on top.
    sizes = {"density_output": len(rows)}
    figure.collection.map(fill_all, visual, data=data, artist_dims=sizes, **style)
    figure.legend[entry] = area_entry(style)
