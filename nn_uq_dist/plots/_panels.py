"""Axes of the figures: new or given ones, their legend, notes, and names along an axis."""

import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from nn_uq_dist.basics import checks

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# From the palette of M. Okabe and K. Ito, Color Universal Design (2008), which readers with any
# color vision can tell apart; the lines also differ in lightness, for print without color.
# Bands are opaque, so that they look as in the legend where one lies on the other.
BLUE, SKY, PALE, VERMILION = "#0072B2", "#97D1F1", "#CCE9F8", "#D55E00"
LIGHT_GRAY, GRAY = "#C4C4C4", "#606060"

PANEL_INCHES = (2.6, 2.0)
LONGEST_LINE = 26  # characters of the standard font that are as wide as a panel
MOST_COLUMNS = 4
# The smallest font that prints legibly, for notes and ticks.
SMALL = 8
# Keeps words legible that stand on lines.
BEHIND = {"facecolor": "white", "alpha": 0.75, "linewidth": 0, "pad": 1}
# More names along an axis than this are not all written.
MOST_NAMES = 40


def panels(
    name: str,
    count: int,
    ax: Any,
    *,
    shape: tuple[int, int] | None = None,
    inches: tuple[float, float] | None = None,
) -> "list[Axes]":
    """Return as many axes as there are panels: the given ones, or those of a new figure.

    A new one has `shape`, rows and columns, if it is given, and then axes at all places.
    """
    checks.require_extra("matplotlib", f"plots.{name}")
    from matplotlib.axes import Axes

    if ax is None:
        import matplotlib.pyplot as plt

        rows = -(-count // (3 if count <= 9 else MOST_COLUMNS))
        # Filled evenly: four panels are two rows of two.
        rows, columns = shape or (rows, -(-count // rows))
        inches = inches or (max(PANEL_INCHES[0] * columns, 5.2), PANEL_INCHES[1] * rows + 0.8)
        _, grid = plt.subplots(rows, columns, figsize=inches, squeeze=False, layout="constrained")
        for axis in grid.flat[count:]:
            axis.remove()
        ax = grid.flat[:count]
    axes = list(np.ravel(np.asarray(ax, dtype=object)))
    if len(axes) != count or not all(isinstance(axis, Axes) for axis in axes):
        kinds = ", ".join(sorted({type(axis).__name__ for axis in axes}))
        raise ValueError(
            f"ax must hold {count} Matplotlib axes, one for each panel, got {len(axes)} of type "
            f"{kinds}; leave it out for a new figure"
        )
    for axis in axes:
        axis.tick_params(labelsize=SMALL)
    return axes


def finished(
    axes: "Sequence[Axes]", ax: Any, handles: Sequence[Any] | None = None, **place: Any
) -> "Figure":
    """Put the legend above a new figure, or into the first of the given axes; return the figure."""
    figure: Any = axes[0].get_figure(root=True)
    if handles is None:
        handles = axes[0].get_legend_handles_labels()[0]
    if ax is not None:
        axes[0].legend(handles=handles, fontsize=SMALL, handlelength=1.2, **place)
        return figure
    longest = max(len(str(handle.get_label())) for handle in handles)
    fitting = int(figure.get_size_inches()[0] / (0.7 + 0.075 * longest))
    figure.legend(
        handles=handles, loc="outside upper center", frameon=False, fontsize=SMALL + 1,
        ncols=max(1, min(len(handles), fitting)),
    )  # fmt: skip
    return figure


def wrapped(name: str) -> str:
    """A name in lines that fit below or above a panel."""
    return textwrap.fill(name, LONGEST_LINE)


def add_note(axis: "Axes", lines: Sequence[str]) -> None:
    """Write lines into the upper left corner of a panel."""
    if lines:
        axis.annotate(
            "\n".join(lines), (0.02, 0.98), xycoords="axes fraction", va="top", fontsize=SMALL - 1
        )


def write_names(axis: "Axes", which: str, places: ArrayLike, names: Sequence[str]) -> None:
    """Write names along an axis, upright where they would run into each other."""
    step = -(-len(names) // MOST_NAMES)
    shown = [wrapped(name) for name in names[::step]]
    is_crowded = which == "x" and sum(len(name) + 2 for name in shown) > 70
    getattr(axis, f"set_{which}ticks")(
        np.asarray(places)[::step], shown, fontsize=SMALL, rotation=90 if is_crowded else 0
    )
