"""Regions of joint densities: filled, as outlines, and in the legend."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nn_uq_dist.plots.parts._backends import PIXELS_PER_POINT
from nn_uq_dist.plots.parts._from_diagnostics import require_extra
from nn_uq_dist.plots.parts._legend import AREA_POINTS, Entries
from nn_uq_dist.plots.parts._palette import tones
from nn_uq_dist.plots.parts._regions import Region

# Backends whose filled contours accept skewed grids; the others show outlines.
FILLING = ("matplotlib", "none")
OUTLINE_POINTS = 2


def draw_filled(target: Any, backend: str, region: Region, colors: Sequence[str]) -> Any:
    """Fill the regions, or draw their outlines if the backend has no skewed grids."""
    bounds: dict[float, str] = {}
    for level, color in zip(region.levels, colors, strict=True):
        bounds.setdefault(float(level), color)  # of equal levels, keep the smallest mass
    levels = sorted(level for level in bounds if 0 < level < region.density.max())
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
    if backend not in FILLING:
        return draw_lines(target, region, colors, width=OUTLINE_POINTS * PIXELS_PER_POINT)[-1]
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


def draw_outlines(target: Any, region: Region, style: Mapping[str, Any]) -> list[Any]:
    """Draw the outlines of all levels in the same style."""
    others = {key: value for key, value in style.items() if key != "color"}
    return draw_lines(target, region, [style["color"]] * len(region.levels), **others)


def shade_entries(texts: Sequence[str], color: str, backend: str) -> Entries:
    """Return the entries of filled regions, or of their outlines."""
    width = AREA_POINTS if backend in FILLING else OUTLINE_POINTS * PIXELS_PER_POINT
    return {
        text: {"color": shade, "width": width}
        for text, shade in zip(texts, tones(color, len(texts)), strict=True)
    }


def extent(regions: Sequence[Region]) -> NDArray[np.float64]:
    """Return the box around the outermost lines, ``((x_low, y_low), (x_high, y_high))``."""
    lines = np.concatenate([line for region in regions for line in region.lines()], axis=1)
    return np.array([np.nanmin(lines, axis=1), np.nanmax(lines, axis=1)])
