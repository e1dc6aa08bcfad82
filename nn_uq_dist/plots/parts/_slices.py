"""Slices through draws of three outputs: those whose third output lies near a quantile."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nn_uq_dist.plots.parts._backends import figure_options
from nn_uq_dist.plots.parts._from_diagnostics import MINIMUM_DRAWS, require_extra
from nn_uq_dist.plots.parts._panels import PAGE_INCHES
from nn_uq_dist.plots.parts._regions import Region

Array = NDArray[np.float64]

ROW_INCHES = 2.5
ROWS = ("analytic", "Monte Carlo")


class DrawsNearQuantile(NamedTuple):
    """Draws whose third output lies near a quantile."""

    value: float  # the quantile
    points: Array  # the first two outputs, shape (m, 2), moved along their regression to `value`
    density: float  # of the third output, averaged over the window


def as_levels(levels: Sequence[float]) -> list[float]:
    """Return the levels of a density in descending order."""
    values = np.asarray(levels)
    is_number = values.ndim == 1 and values.size and values.dtype.kind in "fi"
    if not is_number or not np.all(values > 0) or len(set(values.tolist())) < values.size:
        raise ValueError(
            f"levels must be different positive densities, got {levels!r}; pass (0.005, 0.1, 0.4)"
        )
    return sorted((float(value) for value in values), reverse=True)


def as_probabilities(quantiles: Sequence[float]) -> list[float]:
    """Return the checked probabilities of quantiles."""
    values = np.asarray(quantiles)
    is_number = values.ndim == 1 and values.size and values.dtype.kind in "fi"
    if not is_number or not np.all((values > 0) & (values < 1)) or np.any(np.diff(values) <= 0):
        raise ValueError(
            f"quantiles must rise and lie between 0 and 1, got {quantiles!r}; pass (0.1, 0.5, 0.9)"
        )
    return [float(value) for value in values]


def draws_near_quantile(draws: Array, probability: float, width: float) -> DrawsNearQuantile:
    """Take the draws whose third output is near the quantile in rank, and move them onto it."""
    count = len(draws)
    first, last = (
        round(count * min(max(probability + side * width / 2, 0), 1)) for side in (-1, 1)
    )
    if last - first < MINIMUM_DRAWS:
        raise ValueError(
            f"draws must hold at least {MINIMUM_DRAWS} finite rows in each window, got "
            f"{last - first} of {count} for window={width:g}; pass more draws or a wider window"
        )
    near = draws[np.argsort(draws[:, 2], kind="stable")[first:last]]
    value = float(np.quantile(draws[:, 2], probability))
    deviation = near[:, 2] - near[:, 2].mean()
    spread = float(near[-1, 2] - near[0, 2])
    if spread == 0:  # all draws at one value: the condition holds exactly, without a density
        return DrawsNearQuantile(value, near[:, :2], np.inf)
    slope = deviation @ (near[:, :2] - near[:, :2].mean(axis=0)) / (deviation @ deviation)
    points = near[:, :2] - np.outer(near[:, 2] - value, slope)
    return DrawsNearQuantile(value, points, (last - first) / count / spread)


def levels_as_data(
    regions: Sequence[Sequence[Region | None]],
    probabilities: Sequence[float],
    asked: Sequence[float],
) -> Any:
    """Return a dataset of the levels in each panel, NaN where there is no law."""
    xarray = require_extra("xarray", "a figure")
    unknown = np.full(len(asked), np.nan)
    values = [[unknown if x is None else x.levels for x in row] for row in regions]
    return xarray.Dataset(
        {"level": (("law", "quantile", "region"), np.array(values))},
        {"law": list(ROWS), "quantile": list(probabilities), "region": list(asked)},
    )


def new_grid(data: Any, backend: str, pc_kwargs: dict[str, Any]) -> Any:
    """Make panels for two laws, one column for each quantile."""
    plots = require_extra("arviz_plots", "a figure")
    width = min(PAGE_INCHES, max(5.0, ROW_INCHES * data.sizes["quantile"]))
    figure = figure_options(backend, (width, 2 * ROW_INCHES + 0.3), pc_kwargs, tight_rows=2)
    return plots.PlotCollection.grid(
        data, rows=["law"], cols=["quantile"], backend=backend, figure_kwargs=figure, **pc_kwargs
    )


def slice_panels(plot_collection: Any, regions: Sequence[Sequence[Region | None]]) -> Any:
    """Return positions of the panels without NaN, so that ArviZ's `map` skips none of them."""
    xarray = require_extra("xarray", "a figure")
    shape = (len(regions), len(regions[0]))
    coords = {name: plot_collection.data[name].values for name in ("law", "quantile")}
    return xarray.Dataset({"level": (("law", "quantile"), np.zeros(shape))}, coords)
