"""Quantiles from a distribution function alone, NumPy only.

A distribution function of one shape is compiled once, and the distances need it in any case;
compiling the quantile function as well would take longer than the whole table.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

_MAX_ROUNDS = 60


def quantiles_of_symmetric_laws(
    levels: Array,
    cdf: Callable[[Array], Array],
    center: Array,
    lowest: Array,
    points_per_call: int,
) -> Array:
    """Quantiles of several symmetric laws, by brackets that shrink in every call.

    Upper quantiles are mirrored lower ones, since the distribution function resolves only its lower
    tail. Each call divides the brackets of all levels into equal parts, so that nine calls or so
    reach the last digit.

    Parameters
    ----------
    levels
        In (0, 1), shape ``(q,)``.
    cdf
        Takes points ``(p, N_y)`` with ``p`` at most `points_per_call`, column `j` for law `j`.
    center, lowest
        Centers of symmetry and points with no mass to speak of below them, shape ``(N_y,)``.
    points_per_call
        Points per law and call, at least 16.

    Returns
    -------
    Array, shape ``(q, N_y)``
        NaN where the distribution function is NaN.
    """
    tails, position = np.unique(np.minimum(levels, 1 - levels), return_inverse=True)
    most = max(1, points_per_call // 16)
    parts = [tails[k : k + most] for k in range(0, tails.size, most)]
    lower = np.concatenate(
        [_lower_quantiles(part, cdf, center, lowest, points_per_call) for part in parts]
    )[position]
    return np.where((levels > 0.5)[:, None], 2 * center - lower, lower)


def _lower_quantiles(
    tails: Array,
    cdf: Callable[[Array], Array],
    center: Array,
    lowest: Array,
    points_per_call: int,
) -> Array:
    shape = (tails.size, center.size)
    low, high = np.broadcast_to(lowest, shape), np.broadcast_to(center, shape)
    number = points_per_call // tails.size
    fractions = (np.arange(1, number + 1) / (number + 1))[:, None, None]
    width = np.full(shape, np.inf)
    # `lowest` may be a billion times as far away as any quantile asked for.
    smallest = 1e-9 * np.finfo(np.float64).eps * (center - lowest)
    for _ in range(_MAX_ROUNDS):
        inner = low + (high - low) * fractions
        values = cdf(inner.reshape(-1, center.size)).reshape(inner.shape)
        grid = np.concatenate([low[None], inner, high[None]])
        # The first inner point that is not below the level; rounding may order them differently.
        index = np.sum(values < tails[:, None], axis=0)[None]
        low = np.take_along_axis(grid, index, 0)[0]
        high = np.take_along_axis(grid, index + 1, 0)[0]
        low = np.where(np.isnan(values).any(axis=0), np.nan, low)
        last, width = width, high - low
        # Neighboring numbers cannot be divided; those at a center of 0 could be for long.
        if not np.any((width < last) & (width > smallest)):
            break
    return 0.5 * (low + high)
