"""Level sets of the joint density of three outputs, analytic above Monte Carlo, in slices."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from jax.typing import ArrayLike

from nn_uq_dist.diagnostics._arguments import as_draws, complete_rows, unbatched
from nn_uq_dist.linearization._linear_model import LinearModel
from nn_uq_dist.plots.parts import _drawn_law, _figure, _palette, _regions, _shown_outputs
from nn_uq_dist.plots.parts._figure import Figure, PlotCollection, Visuals

ROW_INCHES = 2.5
ROWS = ("analytic", "Monte Carlo")
VISUALS: _figure.Styles = {
    "analytic": {"color": _palette.SKY},  # lighter than the lines on it
    "monte_carlo": {"color": _palette.DARK_GRAY},
    "contour": {"color": _palette.BLUE, "width": 0.9},
    "title": {"size": 9},
    "ticks": {"size": 8},
    "labels": {"size": 9},
    "legend": {},
}


def plot_three_point(
    linearization: LinearModel,
    draws: ArrayLike,
    outputs: Sequence[int | str],
    *,
    output_names: Sequence[str] | None = None,
    masses: Sequence[float] = (0.5, 0.9, 0.99),
    quantiles: Sequence[float] = (0.1, 0.5, 0.9),
    window: float = 0.1,
    law: _drawn_law.Law | None = None,
    unit: str | None = None,
    plot_collection: PlotCollection | None = None,
    backend: str | None = None,
    visuals: Visuals | None = None,
    **pc_kwargs: Any,
) -> PlotCollection:
    r"""Plot level sets of the density of three outputs, the analytic law above Monte Carlo.

    Surfaces in three dimensions hide each other in print, so the third output is held fixed at
    quantiles of its draws, one column for each. The upper row shows the analytic law of the other
    two given that value, the lower row that of the draws, with the analytic lines over it. The axes
    of a column are shared; those of different columns differ.

    Parameters
    ----------
    linearization
        The linearized network, or any other `LinearModel`, without batch axes.
    draws
        Monte Carlo draws, shape ``(n, N_y)``; at least 100 must lie in each window.
    outputs
        Three outputs, by position or name: horizontal axis, vertical axis, held fixed.
    output_names
        Names of all `N_y` outputs. Default ``y[0]``, ``y[1]``, ...
    masses
        Probabilities, given the third output, of the regions of highest density.
    quantiles
        Probabilities of the values at which the third output is held.
    window
        Fraction of the draws, those nearest in rank to a quantile, that represent the condition.
        They are moved to it along their linear regression on the third output (Beaumont, Zhang and
        Balding 2002), and smoothed as in `plot_joint`.
    law
        Which joint distribution: ``"joint"``, the default, for that of the model,
        ``linearization.joint()``; ``"copula"`` for `LinearModel.gaussian_copula`, an approximation,
        which is drawn also where the outputs depend on each other so that they have no joint
        density; or any `nn_uq_dist.laws.JointLaw` of the `N_y` outputs. The label of the
        upper row names it.
    unit
        Unit of all outputs, for the labels, such as ``"°C"``.
    plot_collection
        Draw into this collection, which must be faceted in rows by the dimension `law` (values
        ``"analytic"``, ``"Monte Carlo"``) and in columns by `quantile`, with the values of
        `quantiles`. Default: a new one.
    backend
        As in `plot_marginals`.
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
        If ArviZ or Matplotlib is missing.
    TypeError, ValueError
        If arguments do not fit, a window holds fewer than 100 draws, its draws lie on a line, or
        the outputs are linearly dependent (pass ``law="copula"``).

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
    model = unbatched(linearization)
    num_outputs = model.num_outputs
    shown, names = _shown_outputs.choose_outputs(outputs, output_names, num_outputs)
    if len(shown) != 3:
        raise ValueError(
            f"outputs must name 3 outputs, got {len(shown)}; pass (horizontal, vertical, fixed)"
        )
    fractions = _regions.as_probabilities("masses", masses)
    drawn = _drawn_law.drawn_law(law, model, shown, names)
    if not 0 < window <= 1:
        raise ValueError(f"window must lie between 0 and 1, got {window}; pass 0.1")
    probabilities = _regions.as_probabilities("quantiles", quantiles)
    values = as_draws(draws, (num_outputs,))[:, shown]
    figure = Figure("plot_three_point", VISUALS, visuals, plot_collection, backend, pc_kwargs)

    complete = complete_rows(values, names).astype(np.float64)
    at = np.quantile(complete[:, 2], probabilities).tolist()
    near = [
        _regions.draws_near_quantile(complete, *pair, window)
        for pair in zip(probabilities, at, strict=True)
    ]
    found = [_regions.kernel_region(points, fractions, names[:2]) for points in near]
    regions: list[Sequence[_regions.Region | None]] = [drawn.slices(at, fractions), found]
    unknown = np.full(len(fractions), np.nan)
    levels = [[unknown if x is None else x.levels for x in row] for row in regions]

    import arviz_plots
    import xarray as xr

    data = xr.Dataset(
        {"level": (("law", "quantile", "region"), np.array(levels))},
        {"law": list(ROWS), "quantile": probabilities, "region": fractions},
    )
    width = min(_figure.PAGE_INCHES, max(5.0, ROW_INCHES * len(at)))
    inches = (width, 2 * ROW_INCHES + 0.3)
    rows, columns = ["law"], ["quantile"]
    make = arviz_plots.PlotCollection.grid
    figure.new_collection(make, data, inches, rows + columns, rows=rows, cols=columns)
    _draw_regions(figure, regions)
    suffix = "" if unit is None else f" {unit}"
    titles = [
        f"{names[2]} = {value:.4g}{suffix}\n({100 * probability:g}% quantile)"
        for value, probability in zip(at, probabilities, strict=True)
    ]
    labels = [name if unit is None else f"{name} ({unit})" for name in names[:2]]
    _draw_axes(figure, regions, titles, labels, (drawn.kind, "Monte Carlo"))
    if (style := figure.options["contour"]) is not None:
        figure.legend["analytic"] = _palette.line_entry(style)
    if (style := figure.options["monte_carlo"]) is not None:
        texts = [f"{100 * mass:g}%" for mass in fractions]
        figure.legend |= _palette.shade_entries(texts, style["color"])
    return figure.with_legend()


def _draw_regions(figure: Figure, regions: Sequence[Sequence[_regions.Region | None]]) -> None:
    options = figure.options
    count = figure.collection.data.sizes["region"]

    def filled(target: Any, row: int, column: int) -> Any:
        region = regions[row][column]
        style = options["analytic" if row == 0 else "monte_carlo"]
        if style is None:
            return None
        if region is None:
            x, y = _regions.extent(regions[1][column : column + 1]).mean(axis=0)
            text = "outside the\nanalytic support"
            return _figure.drawing(target).text(
                x, y, text, target, horizontal_align="center", size=9
            )
        return _regions.draw_filled(target, region, style["color"])

    def contour(target: Any, _: int, column: int) -> Any:
        region, style = regions[0][column], options["contour"]
        if region is None or style is None:
            return np.full(count, None)
        return _regions.draw_outlines(target, region, **style)

    figure.each_panel(filled, "filled")
    figure.each_panel(contour, "contour", artist_dims={"region": count})


def _draw_axes(
    figure: Figure,
    regions: Sequence[Sequence[_regions.Region | None]],
    titles: Sequence[str],
    labels: Sequence[str],
    rows: Sequence[str],
) -> None:
    """Set the limits of each column; label its top and bottom, and the rows at the left."""
    boxes = []
    for column in zip(*regions, strict=True):
        box = _regions.extent(column)
        margin = 0.1 * (box[1] - box[0])
        boxes.append(np.transpose([box[0] - margin, box[1] + margin]))

    def axes(target: Any, row: int, column: int) -> None:
        x, y = map(tuple, boxes[column])
        is_lowest = row == 1
        figure.axis(target, "x", x, label=labels[0] if is_lowest else None, is_numbered=is_lowest)
        figure.axis(target, "y", y, label=None if column else f"{rows[row]}\n{labels[1]}")
        if row == 0 and (style := figure.options["title"]) is not None:
            _figure.drawing(target).title(titles[column], target, **style)

    figure.each_panel(axes)
