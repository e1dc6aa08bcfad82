"""Positions of the outputs or inputs of a network along a horizontal axis."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from jax.typing import ArrayLike
from numpy.typing import NDArray

Array = NDArray[np.float64]
MOST_CHARACTERS = 80  # of all names that fit below a figure as wide as a page


def as_positions(x: ArrayLike | None, count: int, kind: str) -> Array:
    """Return the positions, ascending, shape ``(count,)``: 0, 1, ... unless given."""
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
    positions: Array, names: Sequence[str] | None, margin: float = 0.02
) -> tuple[float, float, Any]:
    """Return the ends of the axis, with a margin relative to the range, and ticks for the names."""
    width = float(positions[-1] - positions[0]) or 1.0
    left, right = positions[0] - margin * width, positions[-1] + margin * width
    if names is None:
        if positions.size <= 12 and np.array_equal(positions, np.arange(positions.size)):
            names = [str(j) for j in range(positions.size)]
        else:
            return float(left), float(right), None
    longest = max(len(name) for name in names) + 2
    apart = 0.999 * longest / MOST_CHARACTERS * (width if len(names) > 1 else 0.0)
    kept = [0]
    for k in range(1, len(names)):  # positions may crowd at the ends, as quadrature nodes do
        if positions[k] - positions[kept[-1]] >= apart:
            kept.append(k)
    return float(left), float(right), (positions[kept].tolist(), [names[k] for k in kept])
