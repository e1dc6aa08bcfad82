"""What surrounds a panel: limits, ticks with round numbers or names, and labels."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from jax.typing import ArrayLike
from numpy.typing import NDArray

Array = NDArray[np.float64]
Options = Mapping[str, dict[str, Any] | None]
Ticks = tuple[Sequence[float], Sequence[str]]

# Visuals that all panels have, besides what is drawn in them.
FRAME_VISUALS: dict[str, Mapping[str, Any]] = {
    "title": {"size": 10},
    "ticks": {"size": 8},
    "xlabel": {"size": 9},
    "ylabel": {"size": 9},
    "legend": {},
}
MOST_CHARACTERS = 80  # of all names that fit below a figure as wide as a page


class Frame(NamedTuple):
    """Limits of the axes, each of shape ``(panels,)`` or, for a single panel, ``()``.

    Examples
    --------
    >>> from nn_uq_dist.plots import parts
    >>> parts.Frame(left=-1, right=1, bottom=0, top=2).top
    2
    """

    left: Any
    right: Any
    bottom: Any
    top: Any


def frame_visuals(without: str) -> dict[str, Mapping[str, Any]]:
    """Return the visuals that all panels have, except one.

    Examples
    --------
    >>> from nn_uq_dist.plots import parts
    >>> list(parts.frame_visuals(without="title"))
    ['ticks', 'xlabel', 'ylabel', 'legend']
    """
    return {name: style for name, style in FRAME_VISUALS.items() if name != without}


def put_ticks(target: Any, axis: str, marks: Ticks, style: Mapping[str, Any]) -> None:
    """Set the ticks of one axis; ArviZ has a visual for the horizontal axis only."""
    from arviz_plots.plot_collection import backend_from_object

    getattr(backend_from_object(target), f"{axis}ticks")(*marks, target, **style)


def draw_axis(
    target: Any,
    axis: str,
    ends: tuple[float, float],
    options: Options,
    *,
    label: str | None,
    has_numbers: bool,
    most: int = 4,
) -> None:
    """Set the limits of one axis, its ticks, the numbers at them unless a neighbor has them."""
    from arviz_plots import visuals as draw

    getattr(draw, f"set_{axis}lim")(None, target, ends)
    if (style := options["ticks"]) is not None:
        values, texts = ticks(*ends, most)
        put_ticks(target, axis, (values, texts if has_numbers else [""] * len(texts)), style)
    if label is not None and (style := options["labels"]) is not None:
        getattr(draw, f"labelled_{axis}")(None, target, text=label, **style)


def nice_ticks(low: float, high: float, most: int = 4) -> list[float]:
    """Return up to `most` round numbers between `low` and `high`, none of them ``-0.0``."""
    step = 10.0 ** np.floor(np.log10((high - low) / most))
    for factor in (1, 2, 2.5, 5, 10, 20):
        first, last = np.ceil(low / (factor * step)), np.floor(high / (factor * step))
        if last - first < most:
            break
    return [float(k * factor * step) + 0.0 for k in np.arange(first, last + 1)]


def tick_labels(values: Sequence[float]) -> list[str]:
    """Return the numbers as text with the same number of decimals."""
    texts = [f"{value + 0.0:g}" for value in values]
    if any("e" in text for text in texts):
        return texts
    decimals = max(len(text.partition(".")[2]) for text in texts)
    return [f"{value + 0.0:.{decimals}f}" for value in values]


def ticks(low: float, high: float, most: int = 4) -> Ticks:
    """Return round numbers between the ends, and their texts."""
    values = nice_ticks(low, high, most)
    return values, tick_labels(values)


def as_positions(x: ArrayLike | None, count: int, kind: str) -> Array:
    """Return positions along the horizontal axis, ascending: 0, 1, ... unless given."""
    if x is None:
        return np.arange(count, dtype=np.float64)
    positions = np.asarray(x)
    if positions.shape != (count,):
        raise ValueError(
            f"x must hold one position per {kind}, shape ({count},), got shape {positions.shape}"
        )
    if positions.dtype.kind not in "fiu":
        raise TypeError(f"x must be real numbers, got dtype {positions.dtype}")
    positions = positions.astype(np.float64)
    if not np.all(np.isfinite(positions)) or np.any(np.diff(positions) <= 0):
        raise ValueError(f"x must be finite and ascending; sort the {kind}s by position")
    return positions


def position_ticks(
    positions: Array, names: Sequence[str] | None
) -> tuple[float, float, Ticks | None]:
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
