"""Heat maps: cells, the values in them, and a color bar; ArviZ has none."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nn_uq_dist.plots.parts._figure import drawing
from nn_uq_dist.plots.parts._palette import LIGHT_GRAY

Array = NDArray[np.float64]


def draw_cells(
    target: Any, values: Array, limits: tuple[float, float], style: Mapping[str, Any]
) -> Any:
    """Draw a cell for each value, row by row from the top, gray where it is NaN."""
    if isinstance(target, list):
        target.append({"function": "heatmap", "values": values, "limits": limits, **style})
        return target[-1]
    target.set_facecolor(LIGHT_GRAY)
    low, high = limits
    image = target.imshow(values, vmin=low, vmax=high, interpolation="nearest", **style)
    target.spines[:].set_visible(False)
    target.tick_params(length=0)
    return image


def write_values(
    target: Any, values: Array, as_text: Callable[[float], str], style: Mapping[str, Any]
) -> NDArray[Any]:
    """Write the values into their cells, dark on light cells and light on dark ones."""
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
        texts[k] = drawing(target).text(column, row, as_text(value), target, **options)
    return texts


def add_colorbar(
    target: Any, label: str, style: Mapping[str, Any], *, is_symmetric: bool = False
) -> None:
    """Add a color bar with a label; the backend "none" has none, nor have panels without cells."""
    if not getattr(target, "images", None):
        return
    from matplotlib.ticker import MaxNLocator

    bar = target.figure.colorbar(target.images[0], ax=target, **style)
    bar.locator = MaxNLocator(4, symmetric=is_symmetric)
    bar.update_ticks()
    bar.ax.tick_params(labelsize=7)
    bar.set_label(label, fontsize=8)
    bar.outline.set_visible(False)
