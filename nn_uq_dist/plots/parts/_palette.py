"""Colors and line styles of the figures, and the legend that shows them."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

Entries = dict[str, dict[str, Any]]

# From the palette of M. Okabe and K. Ito, Color Universal Design (2008), which readers with any
# color vision can tell apart; the lines also differ in lightness, for print without color.
BLUE = "#0072B2"
SKY = "#56B4E9"
VERMILION = "#D55E00"
LIGHT_GRAY = "#B8B8B8"
GRAY = "#7A7A7A"  # for lines on bands
DARK_GRAY = "#606060"

# ArviZ's names of line styles.
DASHED, DOTTED = "C1", "C2"

# For bands of 1, 2, 3 standard deviations about the mean, which lie on top of each other.
BAND_ALPHAS = (0.45, 0.25, 0.13)

LIGHT, DARK = 0.25, 0.85
AREA_POINTS = 8  # width of the line that stands for an area
LINE_OPTIONS = ("color", "alpha", "width", "linestyle")  # others apply to the visual only


def tones(color: str, count: int) -> list[str]:
    """Return shades of a color from dark, for the smallest region, to light."""
    channels = np.array([int(color[k : k + 2], 16) for k in (1, 3, 5)])
    strengths = np.linspace(DARK, LIGHT, count) if count > 1 else [(LIGHT + DARK) / 2]
    shades = [np.rint(255 - s * (255 - channels)).astype(int) for s in strengths]
    return ["#" + "".join(f"{channel:02X}" for channel in shade) for shade in shades]


def line_entry(style: Mapping[str, Any]) -> dict[str, Any]:
    """Return the entry of a visual that is a line."""
    return {key: style[key] for key in LINE_OPTIONS if key in style}


def marker_entry(style: Mapping[str, Any]) -> dict[str, Any]:
    """Return the entry of a visual that is a set of points."""
    return {**line_entry(style), "linestyle": "none", "marker": "o"}


def area_entry(style: Mapping[str, Any]) -> dict[str, Any]:
    """Return the entry of a visual that is an area."""
    return {**line_entry(style), "width": AREA_POINTS}


def band_entries(style: Mapping[str, Any]) -> Entries:
    """Return the entries of the bands of 1, 2, 3 standard deviations, which overlap."""
    alphas = [1 - math.prod(1 - a for a in BAND_ALPHAS[k:]) for k in range(3)]
    return {f"±{k} sd": {"alpha": a, **area_entry(style)} for k, a in enumerate(alphas, start=1)}


def shade_entries(texts: Sequence[str], color: str) -> Entries:
    """Return the entries of regions that are filled with the shades of a color."""
    shades = tones(color, len(texts))
    return {text: area_entry({"color": shade}) for text, shade in zip(texts, shades, strict=True)}


def add_legend(collection: Any, entries: Entries, style: Mapping[str, Any]) -> None:
    """Add a legend above the panels; the backend "none" has no legends."""
    import xarray as xr

    legend = np.empty((), dtype=object)
    if collection.backend == "matplotlib":
        from arviz_plots.backend import matplotlib as backend

        labels = list(entries)
        columns = legend_columns(labels, collection.get_viz("figure").get_size_inches()[0])
        place = {"loc": "outside upper center", "ncols": columns, "frameon": False}
        options = {**place, "fontsize": "small", **style}
        legend[()] = backend.legend(collection, list(entries.values()), labels, **options)
    collection.viz["legend/entries"] = xr.DataArray(legend)


def legend_columns(labels: Sequence[str], width: float) -> int:
    """Return how many columns of labels, filled from top to bottom, fit into inches."""
    inches = [0.62 + 0.073 * len(label) for label in labels]  # in a small font, with its line
    for rows in range(1, len(labels)):
        columns = [inches[k : k + rows] for k in range(0, len(labels), rows)]
        if sum(map(max, columns)) <= width - 0.1:
            return len(columns)
    return 1
