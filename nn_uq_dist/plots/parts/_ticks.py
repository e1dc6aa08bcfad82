"""Round numbers along an axis, and their texts."""

from collections.abc import Sequence

import numpy as np

Ticks = tuple[Sequence[float], Sequence[str]]


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


def blank(labels: Sequence[str]) -> list[str]:
    """Return as many empty labels, for a panel whose neighbor shows the numbers."""
    return [""] * len(labels)
