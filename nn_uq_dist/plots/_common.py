"""What the figures share: colors, the options of visuals, layout, and the legend."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from nn_uq_dist.diagnostics._arguments import require_extra

# From the palette of M. Okabe and K. Ito, Color Universal Design (2008), which readers with any
# color vision can tell apart; the lines also differ in lightness, for print without color.
BLUE = "#0072B2"
SKY = "#56B4E9"
VERMILION = "#D55E00"
LIGHT_GRAY = "#B8B8B8"

# Within 1, 2, 3 standard deviations of the mean: the bands lie on top of each other.
BAND_ALPHAS = (0.45, 0.25, 0.13)
PANEL_INCHES = (2.4, 1.75)
MAX_COLUMNS = 4

Visuals = Mapping[str, Mapping[str, Any] | bool]


def as_visuals(
    visuals: Visuals | None, defaults: Mapping[str, Mapping[str, Any]]
) -> dict[str, dict[str, Any] | None]:
    """Merge the options of each visual into its defaults; None marks a visual that is off."""
    given = dict(visuals or {})
    unknown = [name for name in given if name not in defaults]
    if unknown:
        raise ValueError(
            f"visuals must have keys from {', '.join(defaults)}, got {', '.join(unknown)}"
        )
    merged: dict[str, dict[str, Any] | None] = {}
    for name, options in defaults.items():
        choice = given.get(name, True)
        if choice is False:
            merged[name] = None
        else:
            merged[name] = {**options, **(choice if isinstance(choice, Mapping) else {})}
    return merged


def as_outputs(outputs: Sequence[int | str] | None, names: Sequence[str]) -> list[int]:
    """Return the positions of the outputs to show; they are given as positions or names."""
    if outputs is None:
        return list(range(len(names)))
    if isinstance(outputs, str):
        raise TypeError(f"outputs must be a sequence, got the string {outputs!r}; pass a list")
    positions = []
    for output in outputs:
        if isinstance(output, str):
            if output not in names:
                raise ValueError(
                    f"outputs must name outputs, got {output!r}; the names are {', '.join(names)}"
                )
            positions.append(list(names).index(output))
        else:
            if not -len(names) <= output < len(names):
                raise ValueError(f"outputs must lie between 0 and {len(names) - 1}, got {output}")
            positions.append(int(output) % len(names))
    if not positions or len(set(positions)) != len(positions):
        raise ValueError(
            f"outputs must hold at least one output and none twice, got {list(outputs)!r}"
        )
    return positions


def nice_ticks(low: float, high: float, most: int = 4) -> list[float]:
    """Return two to `most` round numbers between `low` and `high`."""
    step = 10.0 ** np.floor(np.log10((high - low) / most))
    for factor in (1, 2, 2.5, 5, 10, 20):
        first, last = np.ceil(low / (factor * step)), np.floor(high / (factor * step))
        if last - first < most:
            break
    return [float(k * factor * step) for k in np.arange(first, last + 1)]


def tick_labels(values: Sequence[float]) -> list[str]:
    """Return the numbers as text with the same number of decimals."""
    texts = [f"{value:g}" for value in values]
    if any("e" in text for text in texts):
        return texts
    decimals = max(len(text.partition(".")[2]) for text in texts)
    return [f"{value:.{decimals}f}" for value in values]


def wrap(data: Any, backend: str | None, pc_kwargs: dict[str, Any]) -> Any:
    """Make a collection with one panel per output, sized for a page."""
    plots = require_extra("arviz_plots", "a figure")
    if backend is None:
        backend = require_extra("arviz_base", "a figure").rcParams["plot.backend"]
    columns = pc_kwargs.setdefault("col_wrap", min(MAX_COLUMNS, data.sizes["output"]))
    figure = dict(pc_kwargs.pop("figure_kwargs", {}))
    if "figsize" not in figure:
        rows = -(-data.sizes["output"] // columns)
        columns = min(columns, data.sizes["output"])
        # A single panel is wider: the legend above it must fit.
        width = max(PANEL_INCHES[0] * columns, 4.8)
        figure["figsize"] = (width, PANEL_INCHES[1] * rows * (1.5 if rows == 1 else 1) + 0.6)
        figure["figsize_units"] = "inches"
    if backend == "matplotlib":
        figure.setdefault("layout", "constrained")  # of this figure only; leaves room for legends
    pc_kwargs.setdefault("cols", ["output"])
    return plots.PlotCollection.wrap(data, backend=backend, figure_kwargs=figure, **pc_kwargs)


def bottom_outputs(plot_collection: Any) -> list[Any]:
    """Return the outputs whose panels have none below, where the axis label belongs."""
    rows, columns = plot_collection.viz["row_index"], plot_collection.viz["col_index"]
    lowest = {
        int(column): int(rows.where(columns == column).max()) for column in np.unique(columns)
    }
    return [
        name
        for name, row, column in zip(
            rows["output"].values, rows.values.ravel(), columns.values.ravel(), strict=True
        )
        if row == lowest[int(column)]
    ]


def add_legend(
    plot_collection: Any, entries: Mapping[str, Mapping[str, Any]], options: Mapping[str, Any]
) -> None:
    """Add a legend of lines above the panels; wide lines stand for areas."""
    module = require_extra(f"arviz_plots.backend.{plot_collection.backend}", "a figure")
    options = dict(options)
    if plot_collection.backend == "matplotlib":
        figure = plot_collection.get_viz("figure")
        fitting = int(figure.get_size_inches()[0] / 1.55)
        rows = -(-len(entries) // max(1, fitting))
        options = {
            "loc": "outside upper center",
            "ncols": -(-len(entries) // rows),
            "frameon": False,
            "fontsize": "small",
            **options,
        }
    plot_collection.viz["legend/marginals"] = _scalar(
        module.legend(plot_collection, list(entries.values()), list(entries), **options)
    )


def _scalar(artist: Any) -> Any:
    """Wrap a backend's object so that the collection stores it as it is."""
    xarray = require_extra("xarray", "a figure")
    holder = np.empty((), dtype=object)
    holder[()] = artist
    return xarray.DataArray(holder)
