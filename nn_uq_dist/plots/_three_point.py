"""Level sets of the joint density of three outputs, analytic above Monte Carlo, in slices."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from jax.typing import ArrayLike
from numpy.typing import NDArray

from nn_uq_dist.diagnostics._arguments import as_draws, finite_draws
from nn_uq_dist.diagnostics._sensitivity import unbatched
from nn_uq_dist.plots._arguments import (
    Options,
    Visuals,
    as_law,
    as_visuals,
    choose_outputs,
    law_name,
)
from nn_uq_dist.plots._backends import as_backend
from nn_uq_dist.plots._contours import draw_filled, draw_outlines, extent, shade_entries
from nn_uq_dist.plots._frame import put_ticks
from nn_uq_dist.plots._law_regions import (
    copula_slice,
    linear_slices,
    output_tables,
    score_correlation,
)
from nn_uq_dist.plots._legend import Entries, add_legend, line_entry
from nn_uq_dist.plots._palette import BLUE, DARK_GRAY, tones
from nn_uq_dist.plots._regions import Region, as_masses, kernel_region
from nn_uq_dist.plots._slices import (
    as_levels,
    as_probabilities,
    draws_near_quantile,
    levels_as_data,
    new_grid,
    slice_panels,
)
from nn_uq_dist.plots._ticks import blank, ticks

if TYPE_CHECKING:
    from arviz_plots import PlotCollection

    from nn_uq_dist._linearization import Linearization

Array = NDArray[np.float64]
Slice = tuple[Region, float] | None

VISUALS: dict[str, Mapping[str, Any]] = {
    "analytic": {"color": BLUE},
    "monte_carlo": {"color": DARK_GRAY},
    "contour": {"color": BLUE, "width": 1.2},
    "title": {"size": 9},
    "ticks": {"size": 8},
    "labels": {"size": 9},
    "legend": {},
}


def plot_three_point(
    linearization: "Linearization",
    draws: ArrayLike,
    outputs: Sequence[int | str],
    *,
    output_names: Sequence[str] | None = None,
    masses: Sequence[float] | None = None,
    levels: Sequence[float] | None = None,
    quantiles: Sequence[float] = (0.1, 0.5, 0.9),
    window: float = 0.1,
    law: Literal["copula", "linear"] = "copula",
    correlation: Literal["nataf", "linear"] = "nataf",
    min_eigenvalue: ArrayLike | None = 1e-4,
    unit: str | None = None,
    plot_collection: "PlotCollection | None" = None,
    backend: str | None = None,
    visuals: Visuals | None = None,
    **pc_kwargs: Any,
) -> "PlotCollection":
    r"""Plot level sets of the density of three outputs, the analytic law above Monte Carlo.

    Surfaces in three dimensions hide each other in print, so the third output is held at some
    values, one column each: quantiles of its draws. The upper row shows the analytic law of the
    other two given that value, the lower row that of the draws, with the analytic lines over it.
    The axes of a column are shared; those of different columns differ.

    Parameters
    ----------
    linearization
        The linearized network, without batch axes.
    draws
        Monte Carlo draws, shape ``(n, N_y)``; at least 100 must lie in each window.
    outputs
        Three outputs, by position or name: horizontal axis, vertical axis, held fixed.
    output_names
        Names of all `N_y` outputs. Default ``y[0]``, ``y[1]``, ...
    masses
        Probabilities, given the third output, of the regions of highest density. Default
        ``(0.5, 0.9, 0.99)``.
    levels
        Instead of masses: values of the joint density of the three outputs, as in the paper's
        figures of three-point densities; units are one over the product of those of the outputs.
    quantiles
        Probabilities of the values at which the third output is held.
    window
        Fraction of the draws, those nearest in rank to a quantile, that stand for the condition.
        They are moved to it along their linear regression on the third output (Beaumont, Zhang and
        Balding 2002), and smoothed as in `plot_joint`.
    law
        ``"copula"`` for the law of `Linearization.joint`, ``"linear"`` for the exact law of the
        linear model, `Linearization.joint_density_grid`.
    correlation, min_eigenvalue
        Of the copula, as in `Linearization.joint`.
    unit
        Unit of all outputs, for the labels, such as ``"°C"``.
    plot_collection
        Draw into this collection, which must be faceted in rows by the dimension `law` (values
        ``"analytic"``, ``"Monte Carlo"``) and in columns by `quantile`. Default: a new one.
    backend
        As in `plot_marginals`. Plotly and Bokeh show outlines instead of filled regions.
    visuals
        Options of each visual, or False to leave it out. Keys: `analytic`, `monte_carlo` (filled),
        `contour`, `title`, `ticks`, `labels`, `legend`.
    **pc_kwargs
        Passed to ``arviz_plots.PlotCollection.grid``: `figure_kwargs` and others.

    Returns
    -------
    arviz_plots.PlotCollection
        With `savefig`, `show`, and the artists in `viz`; its `data` hold the levels, NaN where the
        value of the third output lies outside the analytic support: that panel stays empty. No
        global style is changed.

    Raises
    ------
    ImportError
        If ArviZ or the backend is missing.
    TypeError, ValueError
        If arguments do not fit, a window holds fewer than 100 draws, its draws lie on a line, or,
        for ``law="linear"``, the outputs are linearly dependent.

    Warns
    -----
    RuntimeWarning
        If draws are NaN or infinite; their rows are left out.

    Examples
    --------
    >>> import jax, jax.numpy as jnp, nn_uq_dist as nuq
    >>> law = nuq.InputLaw(jnp.zeros(3), half_width=1.0)
    >>> lin = nuq.Linearization(jnp.zeros(3), jnp.eye(3) + 0.5, law)
    >>> draws = lin.sample(jax.random.key(0), (4_000,))
    >>> figure = nuq.plots.plot_three_point(lin, draws, (0, 1, 2), backend="none")
    >>> print(dict(figure.data.level.sizes))
    {'law': 2, 'quantile': 3, 'region': 3}
    """
    num_outputs = unbatched(linearization).num_outputs
    shown, names = choose_outputs(outputs, output_names, num_outputs)
    if len(shown) != 3:
        raise ValueError(
            f"outputs must name 3 outputs, got {len(shown)}; pass (horizontal, vertical, fixed)"
        )
    if masses is not None and levels is not None:
        raise ValueError("masses and levels exclude each other, got both; pass one of them")
    fractions = as_masses((0.5, 0.9, 0.99) if masses is None else masses)
    given = None if levels is None else as_levels(levels)
    as_law(law)
    if not 0 < window <= 1:
        raise ValueError(f"window must lie between 0 and 1, got {window}; pass 0.1")
    probabilities = as_probabilities(quantiles)
    values = as_draws(draws, num_outputs)[:, shown]
    backend = as_backend(backend, plot_collection, "plots.plot_three_point")
    options = as_visuals(visuals, VISUALS, backend)

    finite_draws(values, names)  # warns
    complete = values[np.isfinite(values).all(axis=1)].astype(np.float64)
    windows = [draws_near_quantile(complete, probability, window) for probability in probabilities]
    at = [part.value for part in windows]
    if law == "linear":
        linearization.marginals()  # an output that is constant
        analytic = linear_slices(linearization, shown, at, fractions, names)
    else:
        tables = output_tables(linearization, shown)
        matrix = score_correlation(linearization, shown, correlation, min_eigenvalue)
        analytic = [copula_slice(tables, matrix, value, fractions) for value in at]
    found: list[Slice] = [
        (kernel_region(part.points, fractions, names[:2]), part.density) for part in windows
    ]
    regions = [[_with_levels(x, given) for x in row] for row in (analytic, found)]

    data = levels_as_data(regions, probabilities, fractions if given is None else given)
    if plot_collection is None:
        plot_collection = new_grid(data, backend, pc_kwargs)
    _draw_regions(plot_collection, options, regions)
    _draw_axes(plot_collection, options, regions, at, names, unit, law)
    entries = _legend(options, fractions, given, backend)
    add_legend(plot_collection, entries, options["legend"])
    return plot_collection


def _with_levels(found: Slice, levels: Sequence[float] | None) -> Region | None:
    if found is None:
        return None
    region, density = found
    return region if levels is None else region.scaled(density, levels)


def _draw_regions(
    plot_collection: Any,
    options: Options,
    regions: Sequence[Sequence[Region | None]],
) -> None:
    from arviz_plots import visuals as draw

    def filled(da: Any, target: Any, *, isel: Mapping[str, int], **_: Any) -> Any:
        region = regions[isel["law"]][isel["quantile"]]
        style = options["analytic" if isel["law"] == 0 else "monte_carlo"]
        if style is None:
            return None
        if region is None:
            other = regions[1][isel["quantile"]]
            assert other is not None  # noqa: S101 (there are always draws)
            x, y = extent([other]).mean(axis=0)
            text = "outside the\nanalytic support"
            return draw.annotate_xy(
                da, target, text=text, x=x, y=y, horizontal_align="center", size=9
            )
        shades = tones(style["color"], len(region.levels))
        return draw_filled(target, plot_collection.backend, region, shades)

    def contour(_: Any, target: Any, *, isel: Mapping[str, int], **__: Any) -> Any:
        region = regions[0][isel["quantile"]]
        style = options["contour"]
        count = plot_collection.data.sizes["region"]
        if region is None or style is None:
            return np.full(count, None)
        return draw_outlines(target, region, style)

    panels = slice_panels(plot_collection, regions)
    plot_collection.map(filled, "filled", data=panels, subset_info=True)
    plot_collection.map(
        contour,
        "contour",
        data=panels,
        subset_info=True,
        artist_dims={"region": plot_collection.data.sizes["region"]},
    )


def _draw_axes(
    plot_collection: Any,
    options: Options,
    regions: Sequence[Sequence[Region | None]],
    at: Sequence[float],
    names: Sequence[str],
    unit: str | None,
    law: str,
) -> None:
    from arviz_plots import visuals as draw

    suffix = "" if unit is None else f" ({unit})"
    rows = (law_name(law), "Monte Carlo")
    boxes = []
    for column in zip(*regions, strict=True):
        box = extent([region for region in column if region is not None])
        margin = 0.1 * (box[1] - box[0])
        boxes.append((box[0] - margin, box[1] + margin))

    def axes(_: Any, target: Any, *, isel: Mapping[str, int], **__: Any) -> None:
        row, column = isel["law"], isel["quantile"]
        low, high = boxes[column]
        draw.set_xlim(None, target, (low[0], high[0]))
        draw.set_ylim(None, target, (low[1], high[1]))
        if (style := options["ticks"]) is not None:
            values, labels = ticks(low[0], high[0])
            put_ticks(target, "x", (values, labels if row == 1 else blank(labels)), style)
            put_ticks(target, "y", ticks(low[1], high[1]), style)
        if (style := options["labels"]) is not None:
            if row == 1:
                draw.labelled_x(None, target, text=f"{names[0]}{suffix}", **style)
            if column == 0:
                draw.labelled_y(None, target, text=f"{rows[row]}\n{names[1]}{suffix}", **style)
        if row == 0 and (style := options["title"]) is not None:
            value = f"{at[column]:.4g}" + ("" if unit is None else f" {unit}")
            percent = f"{100 * plot_collection.data['quantile'].values[column]:g}%"
            draw.labelled_title(
                None, target, text=f"{names[2]} = {value}\n({percent} quantile)", **style
            )

    plot_collection.map(
        axes, data=slice_panels(plot_collection, regions), subset_info=True, store_artist=False
    )


def _legend(
    options: Options, masses: Sequence[float], levels: Sequence[float] | None, backend: str
) -> Entries:
    texts = (
        [f"{100 * m:g}%" for m in masses]
        if levels is None
        else [f"density {v:.2g}" for v in levels]
    )
    legend: Entries = {}
    if (style := options["contour"]) is not None:
        legend["analytic"] = line_entry(style)
    if (style := options["monte_carlo"]) is not None:
        legend |= shade_entries(texts, style["color"], backend)
    return legend
