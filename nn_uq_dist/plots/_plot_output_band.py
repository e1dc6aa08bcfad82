"""The mean curve of the outputs with bands, and densities at single outputs, drawn sideways."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from jax.typing import ArrayLike
from numpy.typing import NDArray

from nn_uq_dist.basics._checks import positive_int
from nn_uq_dist.diagnostics._arguments import Marginals, as_draws, as_marginals, names_of_outputs
from nn_uq_dist.distributions import OutputLaw, as_output_law, batch_entries
from nn_uq_dist.plots.parts import _figure, _palette, _shapes, _shown_outputs
from nn_uq_dist.plots.parts._figure import Figure, Frame, PlotCollection, Visuals

Array = NDArray[np.float64]

RANGE_IN_SD = 3.6
GRID_POINTS = 320
MOST_DENSITIES = 12
WIDTH = 0.42  # of the widest density, as a share of the distance to the next one
MOST_WIDTH = 0.07  # of the widest density, as a share of all positions: bands and mean stay visible
VISIBLE = 0.01  # shapes end where they are lower than this share of the tallest one
ENTRIES = {"density": ("analytic density", 1.0), "histogram": ("Monte Carlo", -1.0)}
TAIL = 1e-3  # share of the draws that may lie outside the figure on either side
VISUALS: _figure.Styles = {
    "bands": {"color": _palette.SKY},
    "mean": {"color": _palette.VERMILION, "linestyle": _palette.DASHED, "width": 1.2},
    "histogram": {"color": _palette.GRAY},
    "density": {"color": _palette.BLUE},
    **_figure.frame_visuals(without="title"),
}


def plot_output_band(
    marginals: Marginals,
    draws: ArrayLike | None = None,
    *,
    x: ArrayLike | None = None,
    outputs: Sequence[int | str] | None = None,
    points: Sequence[int] | None = None,
    output_names: Sequence[str] | None = None,
    deviation: bool = False,
    xlabel: str | None = "",
    ylabel: str | None = None,
    num_bins: int = 40,
    plot_collection: PlotCollection | None = None,
    backend: str | None = None,
    visuals: Visuals | None = None,
    **pc_kwargs: Any,
) -> PlotCollection:
    """Plot the mean over the outputs, or over points, with bands, and sideways densities at some.

    The bands are 1, 2 and 3 standard deviations about the mean. At each chosen output its analytic
    density is drawn to the right of its position and the histogram of its draws to the left, both
    to the same scale; each pair has a scale of its own. Both end where they are lower than a
    hundredth of the tallest.

    For a batch of points, such as times or patients, the figure shows one output over the points.

    Parameters
    ----------
    marginals
        Laws of the `N_y` outputs, two or more, as in `plot_marginals`; or of a batch of two or more
        points, batch shape ``(P, N_y)``.
    draws
        Monte Carlo draws, shape ``(n, N_y)`` or ``(n, P, N_y)``, ``n >= 100``. Default: no
        histograms. Draws that are NaN or infinite are warned about and count as lying outside the
        figure.
    x
        Positions of the outputs, or of the points, ascending. Default: 0, 1, ...
    outputs
        Outputs with a density, by position or name. Default: all if there are at most 12, else 8 of
        them. Of a batch: the one output to show, needed if there are several.
    points
        Of a batch: points with a density, by position. Default: as for outputs.
    output_names
        Names of the outputs; as many as fit are shown below the axis. Default: those of the model,
        if it has any and `x` is not given, else the positions.
    deviation
        Whether to show deviations from the mean. It helps if the bands are narrow compared with the
        changes of the mean.
    xlabel, ylabel
        Labels of the axes with the unit; None for none. Default: ``"output"``, or ``"point"``.
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
        If ArviZ or Matplotlib is missing.
    TypeError, ValueError
        If arguments do not fit, there is a single output or point, or a batch of several outputs
        and no choice of one; this is checked before anything is drawn.

    Examples
    --------
    >>> import jax, jax.numpy as jnp, nn_uq_dist as nuq
    >>> law = nuq.Input.box(jnp.zeros(2), half_width=1.0)
    >>> lin = nuq.linearize(lambda f: jnp.array([f[0], f[0] + f[1], 3 * f[1] + 1]), law)
    >>> draws = lin.sample(jax.random.key(0), (5_000,))
    >>> figure = nuq.plots.plot_output_band(lin, draws, ylabel="metres", backend="none")
    >>> print(figure.viz["band_1_sd"]["values"].item()["y_top"].round(3))
    [0.577 0.816 2.732]
    """
    law, shape = as_marginals(marginals, batched=True)
    kind, all_names = "output", names_of_outputs(marginals, output_names, shape[-1])
    # Of a vector without names, and at given positions, numbers say more.
    is_named = output_names is not None or (x is None and all_names[0] != "y[0]")
    if len(shape) > 1:
        kind, is_named = "point", False
        law, draws = _one_output(law, draws, shape, outputs, all_names)
        outputs, all_names = points, [f"point {at}" for at in range(shape[0])]
    elif points is not None:
        raise ValueError(f"points must be None without a batch, got {points!r}; leave it out")
    num_places = shape[0]
    if num_places < 2:
        raise ValueError(f"marginals must hold two or more {kind}s, got 1; use plot_marginals")
    positions = _shapes.as_positions(x, num_places, kind)
    few = None
    if num_places > MOST_DENSITIES:
        few = np.linspace(0, num_places - 1, 8).round().astype(int).tolist()
    shown = sorted(_shown_outputs.as_outputs(few if outputs is None else outputs, all_names))
    laws = _shown_outputs.prepare_outputs(law, draws, shown, all_names)
    bins = positive_int("num_bins", num_bins)
    figure = Figure("plot_output_band", VISUALS, visuals, plot_collection, backend, pc_kwargs)

    mean, sd = laws.functions.mean, laws.functions.sd  # of all outputs
    origin = mean if deviation else np.zeros_like(mean)
    low, high = (laws.mean + side * RANGE_IN_SD * laws.sd for side in (-1, 1))
    _shapes.cover_draws(low, high, laws.columns, TAIL)
    outlines = _outlines(laws, low, high, bins)
    places, base = positions[laws.shown], origin[laws.shown]
    width = MOST_WIDTH * float(np.ptp(positions))
    if len(places) > 1:
        width = min(width, WIDTH * float(np.diff(places).min()))

    line = np.stack([positions, mean - origin])
    figure.one_panel(line)
    figure.bands(lambda k: np.stack([positions, mean - origin - k * sd, mean - origin + k * sd]))
    figure.line("mean", line, "mean")
    for visual, curves in outlines.items():
        entry, side = ENTRIES[visual]
        rows = [
            _sideways(place, side * width * heights, at - b)
            for place, (at, heights), b in zip(places, curves, base, strict=True)
        ]
        figure.several(visual, "density_output", "fill_between_y", rows)
        if (style := figure.options[visual]) is not None:
            figure.legend[entry] = _palette.area_entry(style)

    drawn = [[at[[0, -1]] for at, _ in curves] for curves in outlines.values()]
    ends = np.array(drawn) - base[:, None]  # (curves, outputs, 2)
    bottom = min(np.min(mean - origin - 3 * sd), ends.min())
    top = max(np.max(mean - origin + 3 * sd), ends.max())
    margin = 0.04 * (top - bottom)
    left, right, ticks = _shapes.position_ticks(positions, all_names if is_named else None)
    left, right = min(left, places[0] - 1.2 * width), max(right, places[-1] + 1.2 * width)
    frame = Frame(left, right, bottom - margin, top + margin)
    xlabel = kind if xlabel == "" else xlabel
    return figure.finish(frame, xlabel=xlabel, ylabel=ylabel, xticks=ticks)


def _one_output(
    law: OutputLaw,
    draws: Any,
    shape: tuple[int, ...],
    outputs: Sequence[int | str] | None,
    names: Sequence[str],
) -> tuple[OutputLaw, Any]:
    """Return law and draws of one output at all points, from those of all outputs in a row."""
    if len(shape) > 2:
        raise ValueError(
            f"marginals must have batch shape (N_y,) or (P, N_y), got {shape}; take a row of "
            "points: model[i]"
        )
    shown = _shown_outputs.as_outputs(outputs, names)
    if len(shown) != 1:
        raise ValueError(
            f"outputs must name one output of a batch of points, got {len(shown)}; pass outputs=[0]"
        )
    columns = np.arange(shape[0]) * shape[1] + shown[0]
    part = as_output_law(batch_entries(law, columns))
    return part, None if draws is None else as_draws(draws, shape)[:, columns]


def _outlines(
    laws: _shown_outputs.Outputs, low: Array, high: Array, num_bins: int
) -> dict[str, list[tuple[Array, Array]]]:
    """Return positions and heights along densities and histograms, the tallest of both 1."""
    outlines = {"density": list(zip(*laws.density_curves(low, high, GRID_POINTS), strict=True))}
    if laws.draws is not None:
        bars = _shapes.histograms(laws.columns, laws.num_draws, low, high, num_bins)
        outlines["histogram"] = [
            (np.repeat(np.append(left, right[-1]), 2)[1:-1], np.repeat(heights, 2))
            for heights, left, right in bars
        ]
    tallest = np.max([[heights.max() for _, heights in x] for x in outlines.values()], axis=0)
    return {
        visual: [_visible(at, y / top) for (at, y), top in zip(curves, tallest, strict=True)]
        for visual, curves in outlines.items()
    }


def _visible(at: Array, heights: Array) -> tuple[Array, Array]:
    """Draw an outline together where it is too low to be seen; the number of points stays."""
    inside = np.flatnonzero(heights >= VISIBLE)
    # Nothing may be visible: no finite draws, or draws far from the law.
    first, last = (inside[0], inside[-1]) if inside.size else (0, 0)
    position = np.arange(at.size)
    kept = np.where((position >= first) & (position <= last), heights, 0.0)
    return np.clip(at, at[first], at[last]), kept


def _sideways(base: float, width: Array, y: Array) -> Array:
    """Return rows for `area` that fill from the vertical line at `base` to ``base + width(y)``.

    Matplotlib fills the polygon that runs along `y_bottom` and back along `y_top`. With a constant
    `y_top` the return path encloses no area of its own, so the other path may be any curve.
    """
    x = np.concatenate([[base], base + width, [base]])
    bottom = np.concatenate([y[:1], y, y[-1:]])
    return np.stack([x, bottom, np.full_like(x, y[-1])])
