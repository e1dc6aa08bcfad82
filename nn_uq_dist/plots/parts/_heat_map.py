"""Heat maps of matrices in Matplotlib; ArviZ has none."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nn_uq_dist.plots.parts._palette import LIGHT_GRAY

Array = NDArray[np.float64]

MOST_TICKS = 12
MOST_LETTERS = 34  # number of characters that fit side by side under a panel


def draw_image(target: Any, values: Array, ends: tuple[float, float], style: dict[str, Any]) -> Any:
    """Draw the cells, colored between the ends of a scale."""
    target.set_facecolor(LIGHT_GRAY)  # shows where values are NaN
    image = target.imshow(values, vmin=ends[0], vmax=ends[1], interpolation="nearest", **style)
    target.spines[:].set_visible(False)
    target.tick_params(length=0)
    return image


def print_values(target: Any, values: Array, digits: int, style: Mapping[str, Any]) -> None:
    """Write the values into the cells, dark on light cells and light on dark ones."""
    if not target.images:
        return
    image = target.images[0]
    size = 9 if len(values) <= 4 else 7 if len(values) <= 6 else 5.5
    for (row, column), value in np.ndenumerate(values):
        if np.isnan(value):
            continue
        shade = image.cmap(image.norm(value))
        luminance = 0.299 * shade[0] + 0.587 * shade[1] + 0.114 * shade[2]
        # Drop the zero before the decimal point, which takes a fifth of the room.
        text = f"{value:.{digits}f}".replace("0.", ".", 1)
        if float(text) == 0:
            text = "0"
        target.text(
            column, row, text,
            **{"ha": "center", "va": "center", "fontsize": size,
               "color": "black" if luminance > 0.5 else "white", **style},
        )  # fmt: skip


def add_colorbar(target: Any, note: str | None, style: Mapping[str, Any]) -> None:
    """Add a color bar below, with a note as its label."""
    from matplotlib.ticker import MaxNLocator

    if not target.images:
        return
    bar = target.figure.colorbar(
        target.images[0], ax=target, **{"location": "bottom", "shrink": 0.9, "aspect": 18, **style}
    )
    bar.locator = MaxNLocator(4, symmetric=note is not None)
    bar.update_ticks()
    bar.ax.tick_params(labelsize=7)
    bar.set_label(note or "correlation", fontsize=8)
    bar.outline.set_visible(False)


def label_cells(
    target: Any, names: Sequence[str], style: Mapping[str, Any], *, is_first: bool
) -> None:
    """Name rows and columns, as many as fit; only the first panel names its rows."""
    step = -(-len(names) // MOST_TICKS)
    ticks = np.arange(0, len(names), step)
    labels = [str(name) for name in names[::step]]
    is_long = sum(len(label) + 1 for label in labels) > MOST_LETTERS
    target.set_xticks(ticks, labels, fontsize=style["size"], rotation=90 if is_long else 0)
    target.set_yticks(ticks, labels if is_first else [""] * len(labels), fontsize=style["size"])
