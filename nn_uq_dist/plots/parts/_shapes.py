"""What panels hold: shapes as rows of coordinates, heat maps, and positions along an axis."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jax.typing import ArrayLike
from numpy.typing import NDArray

from nn_uq_dist.plots.parts._figure import Marks, drawing
from nn_uq_dist.plots.parts._palette import LIGHT_GRAY

Array = NDArray[np.float64]

# Range of a density panel: this much on either side, or more to include most draws.
RANGE_IN_SD = 4.0
TAIL = 1e-4  # share of the draws that may lie outside the panel on either side
MOST_CHARACTERS = 80  # of all names that fit below a figure as wide as a page


def upright(ends: Array, top: Array) -> Array:
    """Return rows for `area` of rectangles from 0 to `top`, shape ``(panels, 3, 2)``.

    `ends` are the left and right ends, shape ``(2, panels)``.
    """
    sides = np.transpose(ends)
    return np.stack([sides, np.zeros_like(sides), np.stack([top, top], -1)], axis=1)


def vertical_lines(at: Array, top: Array) -> Array:
    """Return lines from 0 to `top`, shape ``(panels, 2, 2)``.

    ArviZ draws its own vertical lines behind a histogram.
    """
    return np.stack([np.stack([at, at], -1), np.stack([0 * top, top], -1)], axis=1)


def stacked(curves: Sequence[Array]) -> Array:
    """Stack curves of different lengths; repeats of the last point are invisible."""
    longest = max(curve.shape[1] for curve in curves)
    return np.stack([np.pad(c, [(0, 0), (0, longest - c.shape[1])], mode="edge") for c in curves])


def density_range(
    mean: Array, sd: Array, ends: tuple[Array, Array], columns: Sequence[Array]
) -> tuple[Array, Array]:
    """Return the range of a density panel, cut at the ends of the support, with most draws."""
    low, high = (
        np.maximum(mean - RANGE_IN_SD * sd, ends[0]),
        np.minimum(mean + RANGE_IN_SD * sd, ends[1]),
    )
    cover_draws(low, high, columns, TAIL)
    return low, high


def cover_draws(low: Array, high: Array, columns: Sequence[Array], tail: float) -> None:
    """Widen ranges in place to hold all but the fraction `tail` of the draws on either side."""
    for k, column in enumerate(columns):
        if column.size:
            inner = np.quantile(column, [tail, 1 - tail])
            low[k], high[k] = min(low[k], inner[0]), max(high[k], inner[1])


def histograms(
    columns: Sequence[Array], num_draws: int, low: Array, high: Array, num_bins: int
) -> Array:
    """Return histograms of sorted draws, normalized by `num_draws`.

    Shape ``(len(columns), 3, num_bins)``: heights, left and right edges.
    """
    bars = []
    for column, a, b in zip(columns, low, high, strict=True):
        edges = np.linspace(a, b, num_bins + 1)
        heights = np.diff(np.searchsorted(column, edges)) / (num_draws * np.diff(edges))
        bars.append([heights, edges[:-1], edges[1:]])
    return np.array(bars)


def draw_cells(
    target: Any, values: Array, limits: tuple[float, float], style: Mapping[str, Any]
) -> Any:
    """Draw a cell for each value, row by row from the top, gray where it is NaN.

    ArviZ has no heat maps.
    """
    if isinstance(target, list):
        target.append({"function": "heatmap", "values": values, "limits": limits, **style})
        return target[-1]
    target.set_facecolor(LIGHT_GRAY)
    low, high = limits
    image = target.imshow(values, vmin=low, vmax=high, interpolation="nearest", **style)
    target.spines[:].set_visible(False)
    target.tick_params(length=0)
    return image


def write_values(target: Any, values: Array, style: Mapping[str, Any]) -> NDArray[Any]:
    """Write the values, rounded, into their cells, dark on light cells and light on dark ones."""
    image = next(iter(getattr(target, "images", [])), None)
    known = np.argwhere(~np.isnan(values))
    texts = np.empty(len(known), dtype=object)
    for k, (row, column) in enumerate(known):
        value = values[row, column]
        color = "black"
        if image is not None:
            luminance = np.dot(image.cmap(image.norm(value))[:3], (0.299, 0.587, 0.114))
            color = "black" if luminance > 0.5 else "white"
        middle = {"vertical_align": "center", "horizontal_align": "center"}
        options = {"color": color, **middle, **style}
        texts[k] = drawing(target).text(column, row, f"{value:.0f}", target, **options)
    return texts


def add_colorbar(target: Any, style: Mapping[str, Any]) -> None:
    """Add a color bar; the backend "none" has none, nor have panels without cells."""
    if not getattr(target, "images", None):
        return
    from matplotlib.ticker import MaxNLocator

    bar = target.figure.colorbar(target.images[0], ax=target, **style)
    bar.locator = MaxNLocator(4)
    bar.update_ticks()
    bar.ax.tick_params(labelsize=7)
    bar.outline.set_visible(False)


def as_positions(x: ArrayLike | None, count: int, kind: str) -> Array:
    """Return positions along the horizontal axis, ascending: 0, 1, ... unless given."""
    if x is None:
        return np.arange(count, dtype=np.float64)
    positions = np.asarray(x)
    if positions.shape != (count,):
        raise ValueError(
            f"x must hold one position per {kind}, got shape {positions.shape}; pass {count}"
        )
    if positions.dtype.kind not in "fiu":
        raise TypeError(f"x must be real numbers, got dtype {positions.dtype}; pass floats")
    positions = positions.astype(np.float64)
    if not np.all(np.isfinite(positions)) or np.any(np.diff(positions) <= 0):
        raise ValueError(f"x must be finite and ascending, got {x!r}; sort the {kind}s by position")
    return positions


def position_ticks(
    positions: Array, names: Sequence[str] | None
) -> tuple[float, float, Marks | None]:
    """Return the ends of an axis of positions, with a margin, and ticks for the names."""
    width = float(positions[-1] - positions[0]) or 1.0
    left, right = float(positions[0] - 0.02 * width), float(positions[-1] + 0.02 * width)
    if names is None:
        if positions.size > 12 or not np.array_equal(positions, np.arange(positions.size)):
            return left, right, None
        names = [str(j) for j in range(positions.size)]
    longest = max(len(name) for name in names) + 2
    apart = 0.999 * longest / MOST_CHARACTERS * (width if len(names) > 1 else 0.0)
    kept = [0]
    for k in range(1, len(names)):  # positions may crowd at the ends, as quadrature nodes do
        if positions[k] - positions[kept[-1]] >= apart:
            kept.append(k)
    return left, right, (positions[kept].tolist(), [names[k] for k in kept])
