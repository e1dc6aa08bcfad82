"""Correlation matrices of Monte Carlo draws and of the analytic law, and their difference."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from jax.typing import ArrayLike
from numpy.typing import NDArray

from nn_uq_dist.linearization._linearization import Linearization
from nn_uq_dist.plots.parts._arguments import Options, Visuals, choose_outputs
from nn_uq_dist.plots.parts._backends import figure_options
from nn_uq_dist.plots.parts._figure import Figure
from nn_uq_dist.plots.parts._from_diagnostics import (
    MINIMUM_DRAWS,
    as_draws,
    complete_rows,
    require_extra,
    sample_correlation,
    unbatched,
)
from nn_uq_dist.plots.parts._heat_map import add_colorbar, draw_image, label_cells, print_values
from nn_uq_dist.plots.parts._joint_argument import Law, check_law, drawn_law

if TYPE_CHECKING:
    from arviz_plots import PlotCollection

Array = NDArray[np.float64]

PANELS = ("Monte Carlo", "analytic", "difference")
LARGEST_WITH_VALUES = 8
FIGURE_INCHES = (7.0, 3.4)

# Diverging color maps of ColorBrewer that readers with any color vision can tell apart; the
# difference has a map of its own because its scale differs.
VISUALS: dict[str, Mapping[str, Any]] = {
    "heatmap": {"cmap": "RdBu_r"},
    "difference": {"cmap": "PuOr_r"},
    "values": {},
    "colorbar": {},
    "title": {"size": 10},
    "ticks": {"size": 8},
}


def plot_correlation(
    linearization: Linearization,
    draws: ArrayLike,
    *,
    law: Law = "linear",
    correlation: Literal["nataf", "linear"] = "nataf",
    min_eigenvalue: ArrayLike | None = 1e-4,
    outputs: Sequence[int | str] | None = None,
    output_names: Sequence[str] | None = None,
    plot_collection: "PlotCollection | None" = None,
    backend: str | None = None,
    visuals: Visuals | None = None,
    **pc_kwargs: Any,
) -> "PlotCollection":
    """Plot the correlations of Monte Carlo draws, those of the analytic law, and the difference.

    Three heat maps side by side. The first two share a scale from -1 to 1; the difference,
    analytic minus Monte Carlo, has its own, symmetric about zero. Below it are the largest
    difference and the largest standard error of the draws, which is the size of chance differences.
    With at most eight outputs the cells show the values.

    Parameters
    ----------
    linearization
        The linearized network, without batch axes.
    draws
        Monte Carlo draws, shape ``(n, N_y)``, ``n >= 100``.
    law
        ``"linear"`` for the exact correlation of the linear model, ``"copula"`` for that of the
        outputs under `Linearization.joint`, which differs if that was repaired, or any
        `nn_uq_dist.laws.JointLaw` of the `N_y` outputs; the title shows its `kind`.
    correlation, min_eigenvalue
        For the copula, as in `Linearization.joint`.
    outputs
        At least two outputs to show, by position or name. Default: all.
    output_names
        Names of all `N_y` outputs. Default ``y[0]``, ``y[1]``, ...
    plot_collection
        Draw into this collection, which must be faceted by the dimension `panel` with the values
        ``"Monte Carlo"``, ``"analytic"``, ``"difference"``. Default: a new one.
    backend
        ``"matplotlib"`` or ``"none"``: ArviZ has no heat maps. Default: that of `plot_collection`,
        or ArviZ's own default.
    visuals
        Options of each visual, or False to leave it out. Keys: `heatmap`, `difference` (both for
        Matplotlib's ``imshow``), `values`, `colorbar`, `title`, `ticks`.
    **pc_kwargs
        Passed to ``arviz_plots.PlotCollection.wrap``: `figure_kwargs` and others.

    Returns
    -------
    arviz_plots.PlotCollection
        With `savefig`, `show`, and the artists in `viz`; its `data` hold the matrices. No global
        style is changed.

    Raises
    ------
    ImportError
        If ArviZ or Matplotlib is missing.
    TypeError, ValueError
        If shapes, names, outputs, backend or visuals do not fit, or fewer than 100 draws are
        finite.

    Warns
    -----
    RuntimeWarning
        If draws are NaN or infinite; their rows are left out.

    Notes
    -----
    An output that does not vary has no correlations; its cells are gray.

    Examples
    --------
    >>> import jax, jax.numpy as jnp, nn_uq_dist as nuq
    >>> law = nuq.InputLaw(jnp.zeros(3), half_width=1.0)
    >>> lin = nuq.Linearization(jnp.zeros(2), [[1.0, 2.0, 1.0], [1.0, 1.0, 0.0]], law)
    >>> draws = lin.sample(jax.random.key(0), (4_000,))
    >>> figure = nuq.plots.plot_correlation(lin, draws, output_names=["a", "b"], backend="none")
    >>> matrices = figure.data.correlation.sel(output="a", other_output="b")
    >>> matrices.sel(panel=["Monte Carlo", "analytic"]).values.round(2)
    array([0.87, 0.87])
    """
    num_outputs = unbatched(linearization).num_outputs
    shown, names = choose_outputs(outputs, output_names, num_outputs)
    if len(shown) < 2:
        raise ValueError(
            f"outputs must name at least 2 outputs, got {len(shown)}; pass two or more"
        )
    check_law(law, num_outputs)
    values = as_draws(draws, num_outputs)[:, shown]
    figure = Figure(
        "plot_correlation", VISUALS, visuals=visuals, plot_collection=plot_collection,
        backend=backend, pc_kwargs=pc_kwargs,
    )  # fmt: skip
    if figure.backend not in {"matplotlib", "none"}:
        raise ValueError(
            f"backend must be 'matplotlib' or 'none' for heat maps, got {figure.backend!r}; "
            "ArviZ has no heat maps for other backends"
        )

    found, error = _from_draws(values, names)
    drawn = drawn_law(law, linearization, shown, names, correlation, min_eigenvalue)
    analytic = drawn.correlation()
    difference = analytic - found

    xarray = require_extra("xarray", "a figure")
    dims = ("panel", "output", "other_output")
    data = xarray.Dataset(
        {"correlation": (dims, np.stack([found, analytic, difference]))},
        {"panel": list(PANELS), "output": names, "other_output": names},
    )
    figure.new_collection(lambda backend, kwargs: _new_panels(data, backend, kwargs))
    _draw(figure.collection, data, figure.options, _titles(drawn.kind, difference, error))
    return figure.collection


def _new_panels(data: Any, backend: str, pc_kwargs: dict[str, Any]) -> Any:
    figure = figure_options(backend, FIGURE_INCHES, pc_kwargs)
    pc_kwargs.setdefault("cols", ["panel"])
    plots = require_extra("arviz_plots", "plots.plot_correlation")
    return plots.PlotCollection.wrap(data, backend=backend, figure_kwargs=figure, **pc_kwargs)


def _from_draws(values: NDArray[Any], names: Sequence[str]) -> tuple[Array, Array]:
    # Use one memory layout, because rounding errors of sums depend on it.
    complete = np.ascontiguousarray(complete_rows(values, names))
    if len(complete) < MINIMUM_DRAWS:
        raise ValueError(
            f"draws must hold at least {MINIMUM_DRAWS} rows that are finite in all shown outputs, "
            f"got {len(complete)}; leave out the outputs that are not, or fix the network"
        )
    return sample_correlation(complete)


def _titles(kind: str, difference: Array, error: Array) -> dict[str, str]:
    largest, chance = (
        float(np.max(np.abs(x), where=~np.isnan(x), initial=0.0)) for x in (difference, error)
    )
    return {
        "Monte Carlo": "Monte Carlo",
        "analytic": f"analytic, {kind}",
        "difference": "analytic - Monte Carlo",
        "note": f"largest {largest:.2g}, standard error {chance:.1g}",
    }


def _draw(
    plot_collection: Any,
    data: Any,
    options: Options,
    titles: Mapping[str, str],
) -> None:
    from arviz_plots import visuals as draw

    names = data["output"].values
    backend = plot_collection.backend
    last = data["correlation"].sel(panel="difference").values
    # At least the size of rounding: a scale needs a nonzero width.
    limit = max(float(np.max(np.abs(last), where=~np.isnan(last), initial=0.0)), 1e-12)

    def heatmap(da: Any, target: Any, *, sel: Mapping[str, Any], **_: Any) -> Any:
        is_difference = sel["panel"] == "difference"
        style = options["difference" if is_difference else "heatmap"]
        if style is None:
            return None
        ends = (-limit, limit) if is_difference else (-1.0, 1.0)
        if backend == "none":
            artist = {"function": "heatmap", "values": da.values, "limits": ends, **style}
            target.append(artist)
            return artist
        return draw_image(target, da.values, ends, style)

    def axes(_: Any, target: Any, *, sel: Mapping[str, Any], **__: Any) -> None:
        if (style := options["title"]) is not None:
            draw.labelled_title(None, target, text=titles[sel["panel"]], **style)
        if (style := options["ticks"]) is not None and backend == "matplotlib":
            label_cells(target, names, style, is_first=sel["panel"] == PANELS[0])

    plot_collection.map(heatmap, "heatmap", data=data, subset_info=True)
    if backend == "matplotlib":
        _annotate(plot_collection, data, options, titles["note"])
    plot_collection.map(axes, data=data, subset_info=True, store_artist=False)


def _annotate(plot_collection: Any, data: Any, options: Options, note: str) -> None:
    """Add the values of the cells and the color bars."""

    def cells(da: Any, target: Any, **_: Any) -> None:
        is_large = np.max(np.abs(da.values), where=~np.isnan(da.values), initial=0) >= 0.095
        print_values(target, da.values, 2 if is_large else 3, options["values"] or {})

    def colorbar(_: Any, target: Any, *, sel: Mapping[str, Any], **__: Any) -> None:
        text = note if sel["panel"] == "difference" else None
        add_colorbar(target, text, options["colorbar"] or {})

    for function, name in ((cells, "values"), (colorbar, "colorbar")):
        is_readable = name != "values" or data.sizes["output"] <= LARGEST_WITH_VALUES
        if options[name] is not None and is_readable:
            plot_collection.map(function, data=data, subset_info=True, store_artist=False)
