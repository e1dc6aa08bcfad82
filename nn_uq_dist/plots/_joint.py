"""Joint densities of outputs against Monte Carlo draws, pair by pair, in a corner plot."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from jax.typing import ArrayLike
from numpy.typing import NDArray

from nn_uq_dist.basics._checks import positive_int
from nn_uq_dist.linearization._linearization import Linearization
from nn_uq_dist.plots.parts._arguments import Visuals, choose_outputs
from nn_uq_dist.plots.parts._contours import draw_filled, draw_outlines, shade_entries
from nn_uq_dist.plots.parts._corner import corner_limits, draw_corner_axes, new_matrix
from nn_uq_dist.plots.parts._figure import HISTOGRAM, LINE, Figure
from nn_uq_dist.plots.parts._from_diagnostics import (
    as_draws,
    finite_draws,
    require_extra,
    unbatched,
)
from nn_uq_dist.plots.parts._joint_argument import Law, check_law, drawn_law
from nn_uq_dist.plots.parts._legend import Entries, line_entry
from nn_uq_dist.plots.parts._output_curves import histograms
from nn_uq_dist.plots.parts._output_table import OutputTable
from nn_uq_dist.plots.parts._palette import BLUE, DARK_GRAY, LIGHT_GRAY, tones
from nn_uq_dist.plots.parts._panels import panel_data
from nn_uq_dist.plots.parts._regions import Region, as_masses, kernel_region

if TYPE_CHECKING:
    from arviz_plots import PlotMatrix

Array = NDArray[np.float64]

MAXIMUM_OUTPUTS = 6

VISUALS: dict[str, Mapping[str, Any]] = {
    "histogram": {"color": LIGHT_GRAY},
    "density": {"color": BLUE, "width": 1.6},
    "filled": {"color": DARK_GRAY},
    "contour": {"color": BLUE, "width": 1.2},
    "ticks": {"size": 8},
    "labels": {"size": 9},
    "legend": {},
}


def plot_joint(
    linearization: Linearization,
    draws: ArrayLike | None = None,
    *,
    outputs: Sequence[int | str] | None = None,
    output_names: Sequence[str] | None = None,
    masses: Sequence[float] = (0.5, 0.9, 0.99),
    law: Law = "copula",
    correlation: Literal["nataf", "linear"] = "nataf",
    min_eigenvalue: ArrayLike | None = 1e-4,
    unit: str | None = None,
    num_bins: int = 50,
    plot_collection: "PlotMatrix | None" = None,
    backend: str | None = None,
    visuals: Visuals | None = None,
    **pc_kwargs: Any,
) -> "PlotMatrix":
    r"""Plot the joint density of each pair of outputs as lines over filled Monte Carlo regions.

    On the diagonal: the density of each output over a histogram of the draws. Below: regions of
    highest density that hold the given masses, for the analytic law and for the draws. Where both
    laws agree, the lines follow the edges of the filled regions.

    Parameters
    ----------
    linearization
        The linearized network, without batch axes.
    draws
        Monte Carlo draws, shape ``(n, N_y)``, ``n >= 100``. Default: only the analytic law. Their
        density is smoothed with a normal kernel of Scott's width, ``n**(-1/6)`` standard deviations
        in any direction; the level of a region is chosen so that it holds that fraction of the
        draws.
    outputs
        Two to six outputs, by position or name. Default: all, if there are at most six.
    output_names
        Names of all `N_y` outputs, the labels of the axes. Default ``y[0]``, ``y[1]``, ...
    masses
        Probabilities of the regions, between 0 and 1.
    law
        ``"copula"`` for the law of `Linearization.joint`, ``"linear"`` for the exact law of the
        linear model, `Linearization.joint_density_grid`, or any `nn_uq_dist.laws.JointLaw` of the
        `N_y` outputs; the legend shows its `kind`.
    correlation, min_eigenvalue
        For the copula, as in `Linearization.joint`.
    unit
        Unit of all outputs, for the labels of the axes, such as ``"°C"``.
    num_bins
        Bins of the histograms.
    plot_collection
        Draw into this matrix, which must be faceted by the dimension `output` with the shown names
        as its values. Default: a new one.
    backend
        As in `plot_marginals`. Plotly and Bokeh show outlines instead of filled regions.
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
        If ArviZ or the backend is missing.
    TypeError, ValueError
        If shapes, names, outputs, masses or visuals do not fit; for ``law="linear"``, if two
        outputs are linearly dependent, so that there is no joint density; if draws lie on a line.

    Warns
    -----
    RuntimeWarning
        If draws are NaN or infinite; their rows are left out of the regions.

    Examples
    --------
    >>> import jax, jax.numpy as jnp, nn_uq_dist as nuq
    >>> law = nuq.InputLaw(jnp.zeros(3), half_width=1.0)
    >>> lin = nuq.Linearization(jnp.zeros(2), [[1.0, 2.0, 1.0], [1.0, 1.0, 0.0]], law)
    >>> draws = lin.sample(jax.random.key(0), (4_000,))
    >>> figure = nuq.plots.plot_joint(lin, draws, output_names=["a", "b"], backend="none")
    >>> levels = figure.viz["levels"].to_dataset()
    >>> levels.analytic.sel(pair="a, b", mass=0.5).round(2).item()
    0.13
    """
    num_outputs = unbatched(linearization).num_outputs
    shown, names = choose_outputs(outputs, output_names, num_outputs)
    if not 2 <= len(shown) <= MAXIMUM_OUTPUTS:
        raise ValueError(
            f"outputs must name 2 to {MAXIMUM_OUTPUTS} outputs, got {len(shown)}; "
            f"pass some of them, such as outputs=(0, {min(num_outputs, 2) - 1})"
        )
    fractions = as_masses(masses)
    check_law(law, num_outputs)
    bins = positive_int("num_bins", num_bins)
    values = None if draws is None else as_draws(draws, num_outputs)[:, shown]
    figure = Figure(
        "plot_joint", VISUALS, visuals=visuals, plot_collection=plot_collection,
        backend=backend, pc_kwargs=pc_kwargs,
    )  # fmt: skip

    columns = [] if values is None else finite_draws(values, names)
    pairs = [(a, b) for b in range(len(shown)) for a in range(b)]
    found: dict[tuple[int, int], Region] = {}
    if values is not None:
        points = values[np.isfinite(values).all(axis=1)].astype(np.float64)
        found = {
            (a, b): kernel_region(points[:, [a, b]], fractions, (names[a], names[b]))
            for a, b in pairs
        }
    drawn = drawn_law(law, linearization, shown, names, correlation, min_eigenvalue)
    limits = corner_limits(drawn.tables, columns)
    analytic = {pair: drawn.region(pair, fractions) for pair in pairs}

    figure.new_collection(lambda backend, kwargs: new_matrix(names, backend, kwargs))
    num_draws = None if values is None else len(values)
    _draw_diagonal(figure, drawn.tables, columns, num_draws, limits, bins)
    _draw_pairs(figure, analytic, found, fractions, drawn.kind)
    draw_corner_axes(figure.collection, figure.options, names, limits, unit)
    _store_levels(figure.collection, analytic, found, fractions, names)
    return figure.with_legend()


def _draw_diagonal(
    figure: Figure,
    tables: Sequence[OutputTable],
    columns: Sequence[Array],
    num_draws: int | None,
    limits: tuple[Array, Array],
    num_bins: int,
) -> None:
    from arviz_plots import visuals as draw

    matrix_plot = figure.collection
    names = matrix_plot.data["output"].values
    # Tables of unbounded and bounded laws differ in length: repeat the last point, which is
    # invisible.
    curves = [table.curve() for table in tables]
    most = max(curve.shape[1] for curve in curves)
    padded = [np.pad(c, [(0, 0), (0, most - c.shape[1])], mode="edge") for c in curves]
    top = np.array([curve[1].max() for curve in curves])
    if num_draws is not None and (style := figure.options["histogram"]) is not None:
        # No bin straddles an end of the support.
        margin = 0.04 / 1.08 * (limits[1] - limits[0])
        bars = histograms(columns, num_draws, limits[0] + margin, limits[1] - margin, num_bins)
        top = np.maximum(top, bars[:, 0].max(axis=1))
        matrix_plot.map(draw.hist, "histogram", data=panel_data(bars, HISTOGRAM, names), **style)
    if (style := figure.options["density"]) is not None:
        data = panel_data(np.array(padded), LINE, names)
        matrix_plot.map(draw.line_xy, "density", data=data, **style)
        figure.legend["analytic density"] = line_entry(style)

    def frame(_: Any, target: Any, *, top: float) -> None:
        draw.set_ylim(None, target, (0.0, float(top)))

    tops = panel_data(1.06 * top, None, names)
    matrix_plot.map(frame, data=tops, top=tops["values"], store_artist=False)
    matrix_plot.map(draw.remove_axis, data=tops, axis="y", store_artist=False)


def _draw_pairs(
    figure: Figure,
    analytic: Mapping[tuple[int, int], Region],
    found: Mapping[tuple[int, int], Region],
    masses: Sequence[float],
    kind: str,
) -> None:
    from arviz_plots import visuals as draw

    matrix_plot = figure.collection
    shaded: Entries = {}
    if found and (style := figure.options["filled"]) is not None:
        shades = tones(style["color"], len(masses))

        def filled(_x: Any, _y: Any, target: Any, *, isel_x: Any, isel_y: Any, **_: Any) -> Any:
            region = found[isel_x["output"], isel_y["output"]]
            return draw_filled(target, figure.backend, region, shades)

        matrix_plot.map_lower(filled, "filled", subset_info=True)
        texts = [f"Monte Carlo {100 * mass:g}%" for mass in masses]
        shaded = shade_entries(texts, style["color"], figure.backend)
    if (style := figure.options["contour"]) is not None:
        outline = dict(style)

        def contour(_x: Any, _y: Any, target: Any, *, isel_x: Any, isel_y: Any, **_: Any) -> Any:
            region = analytic[isel_x["output"], isel_y["output"]]
            return draw_outlines(target, region, outline)

        matrix_plot.map_lower(
            contour, "contour", subset_info=True, artist_dims={"mass": len(masses)}
        )
        listed = ", ".join(f"{100 * mass:g}" for mass in masses)
        figure.legend[f"{kind} {listed}%"] = line_entry(style)
    matrix_plot.map_upper(draw.remove_matrix_axis, axis="both", store_artist=False)
    figure.legend |= shaded


def _store_levels(
    matrix_plot: Any,
    analytic: Mapping[tuple[int, int], Region],
    found: Mapping[tuple[int, int], Region],
    masses: Sequence[float],
    names: Sequence[str],
) -> None:
    xarray = require_extra("xarray", "a figure")
    coords = {"pair": [f"{names[a]}, {names[b]}" for a, b in analytic], "mass": list(masses)}
    for name, regions in (("analytic", analytic), ("monte_carlo", found)):
        if regions:
            values = np.array([regions[pair].levels for pair in analytic])
            matrix_plot.viz[f"levels/{name}"] = xarray.DataArray(values, coords, ("pair", "mass"))
