"""Level sets of the joint density of three outputs, analytic above Monte Carlo, in slices."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from jax.typing import ArrayLike

from nn_uq_dist.linearization._linearization import Linearization
from nn_uq_dist.plots.parts._arguments import Visuals, choose_outputs
from nn_uq_dist.plots.parts._contours import draw_filled, draw_outlines, extent, shade_entries
from nn_uq_dist.plots.parts._drawn_law import Slice
from nn_uq_dist.plots.parts._figure import Figure
from nn_uq_dist.plots.parts._frame import put_ticks
from nn_uq_dist.plots.parts._from_diagnostics import as_draws, complete_rows, unbatched
from nn_uq_dist.plots.parts._joint_argument import Law, check_law, drawn_law
from nn_uq_dist.plots.parts._legend import line_entry
from nn_uq_dist.plots.parts._palette import BLUE, DARK_GRAY, SKY, tones
from nn_uq_dist.plots.parts._regions import Region, as_masses, kernel_region
from nn_uq_dist.plots.parts._slices import (
    as_levels,
    as_probabilities,
    draws_near_quantile,
    levels_as_data,
    new_grid,
    slice_panels,
)
from nn_uq_dist.plots.parts._ticks import blank, ticks

if TYPE_CHECKING:
    from arviz_plots import PlotCollection

VISUALS: dict[str, Mapping[str, Any]] = {
    "analytic": {"color": SKY},  # lighter than the lines on it
    "monte_carlo": {"color": DARK_GRAY},
    "contour": {"color": BLUE, "width": 0.9},
    "title": {"size": 9},
    "ticks": {"size": 8},
    "labels": {"size": 9},
    "legend": {},
}


def plot_three_point(
    linearization: Linearization,
    draws: ArrayLike,
    outputs: Sequence[int | str],
    *,
    output_names: Sequence[str] | None = None,
    masses: Sequence[float] | None = None,
    levels: Sequence[float] | None = None,
    quantiles: Sequence[float] = (0.1, 0.5, 0.9),
    window: float = 0.1,
    law: Law = "copula",
    correlation: Literal["nataf", "linear"] = "nataf",
    min_eigenvalue: ArrayLike | None = 1e-4,
    unit: str | None = None,
    plot_collection: "PlotCollection | None" = None,
    backend: str | None = None,
    visuals: Visuals | None = None,
    **pc_kwargs: Any,
) -> "PlotCollection":
    r"""Plot level sets of the density of three outputs, the analytic law above Monte Carlo.

    Surfaces in three dimensions hide each other in print, so the third output is held fixed at
    quantiles of its draws, one column for each. The upper row shows the analytic law of the other
    two given that value, the lower row that of the draws, with the analytic lines over it. The axes
    of a column are shared; those of different columns differ.

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
        figures of three-point densities; its unit is one over the product of the units of the
        outputs.
    quantiles
        Probabilities of the values at which the third output is held.
    window
        Fraction of the draws, those nearest in rank to a quantile, that represent the condition.
        They are moved to it along their linear regression on the third output (Beaumont, Zhang and
        Balding 2002), and smoothed as in `plot_joint`.
    law
        ``"copula"`` for the law of `Linearization.joint`, ``"linear"`` for the exact law of the
        linear model, `Linearization.joint_density_grid`, or any `nn_uq_dist.laws.JointLaw` of the
        `N_y` outputs; the label of the upper row shows its `kind`.
    correlation, min_eigenvalue
        For the copula, as in `Linearization.joint`.
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
    check_law(law, num_outputs)
    if not 0 < window <= 1:
        raise ValueError(f"window must lie between 0 and 1, got {window}; pass 0.1")
    probabilities = as_probabilities(quantiles)
    values = as_draws(draws, num_outputs)[:, shown]
    figure = Figure(
        "plot_three_point", VISUALS, visuals=visuals, plot_collection=plot_collection,
        backend=backend, pc_kwargs=pc_kwargs,
    )  # fmt: skip

    complete = complete_rows(values, names).astype(np.float64)
    windows = [draws_near_quantile(complete, probability, window) for probability in probabilities]
    at = [part.value for part in windows]
    drawn = drawn_law(law, linearization, shown, names, correlation, min_eigenvalue)
    analytic = drawn.slices(at, fractions)
    found = [
        Slice(kernel_region(part.points, fractions, names[:2]), part.density) for part in windows
    ]
    regions = [[_with_levels(x, given) for x in row] for row in (analytic, found)]

    data = levels_as_data(regions, probabilities, fractions if given is None else given)
    figure.new_collection(lambda backend, kwargs: new_grid(data, backend, kwargs))
    _draw_regions(figure, regions)
    suffix = "" if unit is None else f" {unit}"
    titles = [
        f"{names[2]} = {value:.4g}{suffix}\n({100 * probability:g}% quantile)"
        for value, probability in zip(at, probabilities, strict=True)
    ]
    labels = [name if unit is None else f"{name} ({unit})" for name in names[:2]]
    _draw_axes(figure, regions, titles, labels, (drawn.kind, "Monte Carlo"))
    _add_entries(figure, fractions, given)
    return figure.with_legend()


def _with_levels(found: Slice | None, levels: Sequence[float] | None) -> Region | None:
    if found is None:
        return None
    region, density = found
    return region if levels is None else region.scaled(density, levels)


def _draw_regions(figure: Figure, regions: Sequence[Sequence[Region | None]]) -> None:
    from arviz_plots import visuals as draw

    collection, options = figure.collection, figure.options
    panels = slice_panels(collection, regions)
    count = collection.data.sizes["region"]

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
        return draw_filled(target, figure.backend, region, shades)

    def contour(_: Any, target: Any, *, isel: Mapping[str, int], **__: Any) -> Any:
        region = regions[0][isel["quantile"]]
        style = options["contour"]
        if region is None or style is None:
            return np.full(count, None)
        return draw_outlines(target, region, style)

    collection.map(filled, "filled", data=panels, subset_info=True)
    collection.map(contour, "contour", data=panels, subset_info=True, artist_dims={"region": count})


def _draw_axes(
    figure: Figure,
    regions: Sequence[Sequence[Region | None]],
    titles: Sequence[str],
    labels: Sequence[str],
    rows: Sequence[str],
) -> None:
    """Set the limits of each column; label its top and bottom, and the rows at the left."""
    from arviz_plots import visuals as draw

    options = figure.options
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
            values, texts = ticks(low[0], high[0])
            put_ticks(target, "x", (values, texts if row == 1 else blank(texts)), style)
            put_ticks(target, "y", ticks(low[1], high[1]), style)
        if (style := options["labels"]) is not None:
            if row == 1:
                draw.labelled_x(None, target, text=labels[0], **style)
            if column == 0:
                draw.labelled_y(None, target, text=f"{rows[row]}\n{labels[1]}", **style)
        if row == 0 and (style := options["title"]) is not None:
            draw.labelled_title(None, target, text=titles[column], **style)

    panels = slice_panels(figure.collection, regions)
    figure.collection.map(axes, data=panels, subset_info=True, store_artist=False)


def _add_entries(figure: Figure, masses: Sequence[float], levels: Sequence[float] | None) -> None:
    texts = (
        [f"{100 * m:g}%" for m in masses]
        if levels is None
        else [f"density {v:.2g}" for v in levels]
    )
    if (style := figure.options["contour"]) is not None:
        figure.legend["analytic"] = line_entry(style)
    if (style := figure.options["monte_carlo"]) is not None:
        figure.legend |= shade_entries(texts, style["color"], figure.backend)
