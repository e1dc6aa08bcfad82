"""Shapes that panels hold, as rows of coordinates."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def area(da: Any, target: Any, **style: Any) -> Any:
    """Fill between the rows `y_bottom` and `y_top` over the row `x`."""
    from arviz_plots.plot_collection import backend_from_object

    x, bottom, top = (da.sel(plot_axis=name).values for name in ("x", "y_bottom", "y_top"))
    return backend_from_object(target).fill_between_y(x, bottom, top, target, **style)


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


def sideways(base: float, width: Array, y: Array) -> Array:
    """Return rows for `area` that fill from the vertical line at `base` to ``base + width(y)``.

    The backends fill the polygon that runs along `y_bottom` and back along `y_top`. With a constant
    `y_top` the return path encloses no area of its own, so the other path may be any curve.
    """
    x = np.concatenate([[base], base + width, [base]])
    bottom = np.concatenate([y[:1], y, y[-1:]])
    return np.stack([x, bottom, np.full_like(x, y[-1])])


def staircase(edges: Array, heights: Array) -> tuple[Array, Array]:
    """Return positions and heights of the outline of a histogram."""
    return np.repeat(edges, 2)[1:-1], np.repeat(heights, 2)


def segments(x: Array, low: Array, high: Array) -> Array:
    """Return vertical lines from `low` to `high` at `x` as one line with gaps, ``(2, 3 n)``."""
    gaps = np.full_like(x, np.nan)
    return np.stack(
        [np.stack([x, x, gaps], axis=-1).ravel(), np.stack([low, high, gaps], axis=-1).ravel()]
    )
