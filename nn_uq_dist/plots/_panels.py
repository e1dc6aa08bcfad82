"""Axes of the figures: new or given ones, their legend, notes, limits, and names along an axis."""

import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

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


class Panels(NamedTuple):
    """The axes of a figure, and whether the figure is new."""

    figure: "Figure"
    axes: "list[Axes]"
    is_new: bool

    def add_legend(self, handles: Sequence[Any] | None = None, place: Any = "best") -> None:
        """Put the legend above a new figure, or at a place in the first of the given axes."""
        if handles is None:
            handles = self.axes[0].get_legend_handles_labels()[0]
        if not handles:
            return
        if not self.is_new:
            self.axes[0].legend(handles=handles, fontsize=SMALL, loc=place)
            return
        longest = max(len(str(handle.get_label())) for handle in handles)
        fitting = int(self.figure.get_size_inches()[0] / (0.7 + 0.075 * longest))
        self.figure.legend(
            handles=handles, loc="outside upper center", frameon=False, fontsize=SMALL + 1,
            ncols=max(1, min(len(handles), fitting)),
        )  # fmt: skip


def panels(
    name: str,
    count: int,
    ax: Any,
    *,
    shape: tuple[int, int] | None = None,
    inches: tuple[float, float] | None = None,
) -> Panels:
    """Return as many axes as there are panels: the given ones, or those of a new figure.

    Parameters
    ----------
    name
        Of the figure, for messages.
    count
        Number of panels.
    ax
        Axes or an array of them; None for a new figure.
    shape
        Rows and columns of a new figure, which then has axes at all places.
    inches
        Width and height of a new figure.
    """
    checks.require_extra("matplotlib", f"plots.{name}")
    from matplotlib.axes import Axes

    if ax is not None:
        axes = list(np.ravel(np.asarray(ax, dtype=object)))
        if len(axes) != count or not all(isinstance(axis, Axes) for axis in axes):
            kinds = {type(axis).__name__ for axis in axes}
            raise ValueError(
                f"ax must hold {count} Matplotlib axes, one for each panel, got {len(axes)} of "
                f"type {', '.join(sorted(kinds))}; leave it out for a new figure"
            )
        return Panels(axes[0].get_figure(root=True), axes, is_new=False)
    import matplotlib.pyplot as plt

    rows = -(-count // (3 if count <= 9 else MOST_COLUMNS))
    # Filled evenly: four panels are two rows of two.
    rows, columns = shape or (rows, -(-count // rows))
    if inches is None:
        inches = max(PANEL_INCHES[0] * columns, 5.2), PANEL_INCHES[1] * rows + 0.8
    figure, grid = plt.subplots(rows, columns, figsize=inches, squeeze=False, layout="constrained")
    for axis in grid.flat[count:]:
        axis.remove()
    return Panels(figure, list(grid.flat[:count]), is_new=True)


def wrapped(name: str) -> str:
    """A name in lines that fit below or above a panel."""
    return textwrap.fill(name, LONGEST_LINE)


def set_range(axis: "Axes", values: Sequence[float], which: str = "x") -> None:
    """Show all of these values along an axis."""
    low, high = min(values), max(values)
    margin = 0.04 * (high - low)
    getattr(axis, f"set_{which}lim")(low - margin, high + margin)


def add_note(axis: "Axes", lines: Sequence[str]) -> None:
    """Write lines into the upper left corner of a panel."""
    if lines:
        axis.annotate(
            "\n".join(lines), (0.02, 0.98), xycoords="axes fraction", va="top", fontsize=SMALL - 1
        )


def add_limits(axis: "Axes", words: dict[float, str]) -> None:
    """Draw a vertical line at each limit, with its words beside it in the upper part."""
    left, right = axis.get_xlim()
    for k, (limit, text) in enumerate(words.items()):
        axis.axvline(limit, color=VERMILION, lw=1.2)
        side = -1 if limit > (left + right) / 2 else 1
        axis.annotate(
            text, (limit, 0.97 - 0.2 * k), xycoords=axis.get_xaxis_transform(),
            xytext=(3 * side, 0), textcoords="offset points", va="top", color=VERMILION,
            ha="right" if side < 0 else "left", fontsize=SMALL, bbox=BEHIND,
        )  # fmt: skip


def write_names(axis: "Axes", which: str, places: ArrayLike, names: Sequence[str]) -> None:
    """Write names along an axis, upright where they would run into each other."""
    step = -(-len(names) // MOST_NAMES)
    shown = [wrapped(name) for name in names[::step]]
    is_crowded = which == "x" and sum(len(name) + 2 for name in shown) > 70
    getattr(axis, f"set_{which}ticks")(
        np.asarray(places)[::step], shown, fontsize=SMALL, rotation=90 if is_crowded else 0
    )
