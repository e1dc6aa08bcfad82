"""What figures of joint densities share: filled regions, outlines, shades and ticks."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nn_uq_dist.diagnostics._arguments import require_extra
from nn_uq_dist.plots._common import nice_ticks, tick_labels
from nn_uq_dist.plots._regions import Region

DARK_GRAY = "#606060"
PAGE_INCHES = 7.0
LIGHT, DARK = 0.25, 0.85


def tones(color: str, count: int) -> list[str]:
    """Return shades of a color from dark, for the smallest region, to light."""
    channels = np.array([int(color[k : k + 2], 16) for k in (1, 3, 5)])
    strengths = np.linspace(DARK, LIGHT, count) if count > 1 else [(LIGHT + DARK) / 2]
    shades = [np.rint(255 - s * (255 - channels)).astype(int) for s in strengths]
    return ["#" + "".join(f"{channel:02X}" for channel in shade) for shade in shades]


def draw_filled(target: Any, backend: str, region: Region, colors: Sequence[str]) -> Any:
    """Fill the regions; where the backend has no skewed grids, draw their outlines."""
    bounds: dict[float, str] = {}
    for level, color in zip(region.levels, colors, strict=True):
        bounds.setdefault(float(level), color)  # of equal levels the smallest mass stays
    levels = sorted(level for level in bounds if level < region.density.max())
    if backend == "none":
        artist = {
            "function": "contourf",
            "levels": levels,
            "x": region.x,
            "y": region.y,
            "density": region.density,
        }
        target.append(artist)
        return artist
    if backend != "matplotlib":
        lines = draw_lines(target, region, colors)
        return lines[-1]
    if not levels:
        return None
    return target.contourf(
        region.x,
        region.y,
        region.density,
        levels=[*levels, 2 * region.density.max()],
        colors=[bounds[level] for level in levels],
    )


def draw_lines(target: Any, region: Region, colors: Sequence[str], **style: Any) -> list[Any]:
    """Draw the outlines, one artist for each level."""
    backend = require_extra("arviz_plots.plot_collection", "a figure").backend_from_object(target)
    return [
        backend.line(x, y, target, color=color, **style)
        for (x, y), color in zip(region.lines(), colors, strict=True)
    ]


def extent(regions: Sequence[Region]) -> NDArray[np.float64]:
    """Return the box about the outermost lines, ``((x_low, y_low), (x_high, y_high))``."""
    lines = np.concatenate([line for region in regions for line in region.lines()], axis=1)
    return np.array([np.nanmin(lines, axis=1), np.nanmax(lines, axis=1)])


def figure_options(
    pc_kwargs: dict[str, Any], backend: str | None, inches: tuple[float, float]
) -> tuple[str, dict[str, Any]]:
    """Return the backend and the options of a new figure of a given size."""
    if backend is None:
        backend = require_extra("arviz_base", "a figure").rcParams["plot.backend"]
    given = dict(pc_kwargs.pop("figure_kwargs", {}))
    options = {"figsize": inches, "figsize_units": "inches"} | given
    if backend == "matplotlib":
        options.setdefault("layout", "constrained")  # of this figure only; leaves room for legends
    return backend, options


def ticks(low: float, high: float, most: int) -> tuple[list[float], list[str]]:
    """Return round numbers between the ends, and their texts."""
    values = [value + 0.0 for value in nice_ticks(low, high, most)]  # no negative zero
    return values, tick_labels(values)


def blank(labels: Sequence[str]) -> list[str]:
    """Return as many empty labels: ticks of a panel whose neighbor has the numbers."""
    return [""] * len(labels)
