"""Joint densities of outputs against Monte Carlo draws, pair by pair, in a corner plot."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from jax.typing import ArrayLike
from numpy.typing import NDArray

from nn_uq_dist.basics._checks import positive_int
from nn_uq_dist.diagnostics._arguments import as_draws, complete_rows, unbatched
from nn_uq_dist.linearization._linear_model import LinearModel
from nn_uq_dist.plots.parts import _drawn_law, _figure, _palette, _regions, _shapes, _shown_outputs
from nn_uq_dist.plots.parts._figure import Figure, PlotMatrix, Visuals

Array = NDArray[np.float64]
Regions = Mapping[tuple[int, ...], _regions.Region]

MAXIMUM_OUTPUTS = 6

VISUALS: _figure.Styles = {
    "histogram": {"color": _palette.LIGHT_GRAY},
    "density": {"color": _palette.BLUE, "width": 1.6},
    "filled": {"color": _palette.DARK_GRAY},
    "contour": {"color": _palette.BLUE, "width": 1.2},
    "ticks": {"size": 8},
    "labels": {"size": 9},
    "legend": {},
}


def plot_joint(
    linearization: LinearModel,
    draws: ArrayLike | None = None,
    *,
    outputs: Sequence[int | str] | None = None,
    output_names: Sequence[str] | None = None,
    masses: Sequence[float] = (0.5, 0.9, 0.99),
    law: _drawn_law.Law | None = None,
    unit: str | None = None,
    num_bins: int = 50,
    plot_collection: PlotMatrix | None = None,
    backend: str | None = None,
    visuals: Visuals | None = None,
    **pc_kwargs: Any,
) -> PlotMatrix:
    r"""Plot the joint density of each pair of outputs as lines over filled Monte Carlo regions.

    On the diagonal: the density of each output over a histogram of the draws. Below: regions of
    highest density that hold the given masses, for the analytic law and for the draws. Where both
    laws agree, the lines follow the edges of the filled regions.

    Parameters
    ----------
    linearization
        The linearized network, or any other `LinearModel`, without batch axes.
    draws
        Monte Carlo draws, shape ``(n, N_y)``, ``n >= 100``. Default: only the analytic law. Their
        density is smoothed with a normal kernel of Scott's width, ``n**(-1/6)`` standard deviations
        in any direction; the level of a region is chosen so that it holds that fraction of the
        draws.
    outputs
        Two to six outputs, by position or name. Default: all, if there are at most six.
    output_names
        Names of all `N_y` outputs, the labels of the axes. Default: those of the model, else
        ``y[0]``, ``y[1]``, ...
    masses
        Probabilities of the regions, between 0 and 1.
    law
        Which joint distribution: ``"joint"``, the default, for that of the model,
        ``linearization.joint()``; ``"copula"`` for `LinearModel.gaussian_copula`, an approximation,
        which is drawn also where the outputs depend on each other so that they have no joint
        density; or any `nn_uq_dist.laws.JointLaw` of the `N_y` outputs. The legend names it.
    unit
        Unit of all outputs, for the labels of the axes, such as ``"°C"``.
    num_bins
        Bins of the histograms.
    plot_collection
        Draw into this matrix, which must be faceted by the dimension `output` with the shown names
        as its values. Default: a new one.
    backend
        As in `plot_marginals`.
    visuals
        Options of each visual, or False to leave it out. Keys: `histogram`, `density`, `filled`,
        `contour`, `ticks`, `labels`, `legend`.
    **pc_kwargs
        Passed to ``arviz_plots.PlotMatrix``: `figure_kwargs` and others.

    Returns
    -------
    arviz_plots.PlotMatrix
        With `savefig`, `show`, and the artists in `viz`; ``viz["levels"]`` holds the levels. No
        global style is changed.

    Raises
    ------
    ImportError
        If ArviZ or Matplotlib is missing.
    TypeError, ValueError
        If shapes, names, outputs, masses or visuals do not fit; if outputs are linearly dependent,
        so that there is no joint density (pass ``law="copula"``); if draws lie on a line.

    Warns
    -----
    RuntimeWarning
        If draws are NaN or infinite; their rows are left out.

    Examples
    --------
    >>> import jax, jax.numpy as jnp, nn_uq_dist as nuq
    >>> law = nuq.Input.box(jnp.zeros(3), half_width=1.0)
    >>> lin = nuq.Linearization(jnp.zeros(2), [[1.0, 2.0, 1.0], [1.0, 1.0, 0.0]], law)
    >>> draws = lin.sample(jax.random.key(0), (4_000,))
    >>> figure = nuq.plots.plot_joint(lin, draws, output_names=["a", "b"], backend="none")
    >>> levels = figure.viz["levels"].to_dataset()
    >>> levels.analytic.sel(pair="a, b", mass=0.5).round(2).item()
    0.12
    """
    model = unbatched(linearization)
    num_outputs = model.num_outputs
    shown, names = _shown_outputs.choose_outputs(model, outputs, output_names, num_outputs)
    if not 2 <= len(shown) <= MAXIMUM_OUTPUTS:
        remedy = "pass some of them, such as outputs=(0, 1)"
        raise ValueError(
            f"outputs must name 2 to {MAXIMUM_OUTPUTS} outputs, got {len(shown)}; "
            f"{remedy if num_outputs > 1 else 'use plot_marginals'}"
        )
    fractions = _regions.as_masses(masses)
    drawn = _drawn_law.drawn_law(law, model, shown, names)
    bins = positive_int("num_bins", num_bins)
    values = None if draws is None else as_draws(draws, (num_outputs,))[:, shown]
    figure = Figure("plot_joint", VISUALS, visuals, plot_collection, backend, pc_kwargs)

    pairs = [(a, b) for b in range(len(shown)) for a in range(b)]
    regions: dict[str, Regions] = {}
    columns = []
    if values is not None:
        complete = complete_rows(values, names).astype(np.float64)
        columns = list(np.sort(complete, axis=0).T)
        regions["monte_carlo"] = {
            (a, b): _regions.kernel_region(complete[:, [a, b]], fractions, (names[a], names[b]))
            for a, b in pairs
        }
    regions["analytic"] = {pair: drawn.region(pair, fractions) for pair in pairs}
    mean, sd, *ends = np.transpose([[x.mean, x.sd, x.low, x.high] for x in drawn.tables])
    low, high = _shapes.density_range(mean, sd, (ends[0], ends[1]), columns)

    import arviz_plots
    import xarray as xr

    side = min(_figure.PAGE_INCHES, 2.4 * len(names))
    inches = (max(side, 5.0), max(side, 4.4) + 0.3)  # with room for the legend above
    data = xr.Dataset({"values": ("output", np.zeros(len(names)))}, {"output": names})
    rows = ["__variable__", "output"]
    figure.new_collection(arviz_plots.PlotMatrix, data, inches, ["output"], facet_dims=rows)
    curves = _shapes.stacked([table.curve() for table in drawn.tables])
    top = curves[:, 1].max(axis=1)
    if columns and figure.options["histogram"] is not None:
        # No bin straddles an end of the support.
        bars = _shapes.histograms(columns, len(columns[0]), low, high, bins)
        top = np.maximum(top, bars[:, 0].max(axis=1))
        figure.bars("histogram", bars)
    percents = [f"{100 * mass:g}" for mass in fractions]
    entry = f"{drawn.kind} {', '.join(percents)}%"
    # Lines of one color have one entry: they are of the same distribution.
    styles = [figure.options[visual] for visual in ("density", "contour")]
    colors = [None if style is None else style.get("color") for style in styles]
    figure.line("density", curves, entry if colors[0] == colors[1] else "analytic density")
    _draw_pairs(figure, regions, percents, entry)
    margin = 0.04 * (high - low)
    texts = [name if unit is None else f"{name} ({unit})" for name in names]
    _draw_axes(figure, texts, low - margin, high + margin, top)
    coords = {"pair": [f"{names[a]}, {names[b]}" for a, b in pairs], "mass": fractions}
    for name, found in regions.items():
        levels = np.array([found[pair].levels for pair in pairs])
        figure.collection.viz[f"levels/{name}"] = xr.DataArray(levels, coords, ("pair", "mass"))
    return figure.with_legend()


def _each_pair(
    figure: Figure,
    function: Callable[..., Any],
    visual: str | None = None,
    **options: Any,
) -> None:
    """Call a function of each panel below the diagonal, its column and its row."""

    def call(_x: Any, _y: Any, target: Any, *, isel_x: Any, isel_y: Any, **_: Any) -> Any:
        return function(target, isel_x["output"], isel_y["output"])

    keeps = visual is not None
    figure.collection.map_lower(call, visual, subset_info=True, store_artist=keeps, **options)


def _draw_pairs(
    figure: Figure, regions: Mapping[str, Regions], percents: Sequence[str], entry: str
) -> None:
    from arviz_plots import visuals as draw

    shaded = {}
    if "monte_carlo" in regions and (style := figure.options["filled"]) is not None:
        color = style["color"]

        def filled(target: Any, *at: int) -> Any:
            return _regions.draw_filled(target, regions["monte_carlo"][at], color)

        _each_pair(figure, filled, "filled")
        shaded = _palette.shade_entries([f"Monte Carlo {text}%" for text in percents], color)
    if (style := figure.options["contour"]) is not None:
        lines = dict(style)

        def contour(target: Any, *at: int) -> Any:
            return _regions.draw_outlines(target, regions["analytic"][at], **lines)

        _each_pair(figure, contour, "contour", artist_dims={"mass": len(percents)})
        figure.legend[entry] = _palette.line_entry(style)
    figure.legend |= shaded
    figure.collection.map_upper(draw.remove_matrix_axis, axis="both", store_artist=False)


def _draw_axes(figure: Figure, texts: Sequence[str], low: Array, high: Array, top: Array) -> None:
    """Set equal limits along rows and columns; label the left and the lower edge."""
    last = len(texts) - 1

    def axis_of(target: Any, axis: str, j: int, *, is_outer: bool) -> None:
        label = texts[j] if is_outer else None
        figure.axis(target, axis, (low[j], high[j]), label=label, most=3, is_numbered=is_outer)

    def on_diagonal(target: Any, j: int) -> None:
        _figure.drawing(target).ylim((0.0, float(1.06 * top[j])), target)
        _figure.drawing(target).remove_axis(target, axis="y")
        axis_of(target, "x", j, is_outer=j == last)

    def below(target: Any, column: int, row: int) -> None:
        axis_of(target, "x", column, is_outer=row == last)
        axis_of(target, "y", row, is_outer=column == 0)

    figure.each_panel(on_diagonal)
    _each_pair(figure, below)
