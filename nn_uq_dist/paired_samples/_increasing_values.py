"""Estimated quantiles made to increase, with a minimum slope against those of another law."""

from typing import Any, cast

import numpy as np
from jax import Array, lax

from nn_uq_dist.basics._row_algebra import namespace

# Least slope, in units of the mean slope; a point mass would have slope zero.
_LEAST_SLOPE = 1e-4
# Weights below this share of the largest are lost to rounding.
_LEAST_WEIGHT = 1e-12


def increasing(linear: Array, wanted: Array, log_weights: Array) -> tuple[Array, Array]:
    """The increasing values closest to the wanted ones, by weighted least squares.

    Parameters
    ----------
    linear
        Increasing values, shape ``(J, k)``, against which slopes are measured.
    wanted
        Values that should increase with them, ``(J, k)``.
    log_weights
        Logarithms of weights, ``(J, k)``: inverse variances. Precise values stay where they are,
        and noisy values next to them are moved.

    Returns
    -------
    tuple of Array
        The values, ``(J, k)``, and the share of the wanted values that decreased, ``(J,)``.
    """
    xp = namespace(linear, wanted)
    width = linear[:, 1:] - linear[:, :-1]
    weights = xp.exp(log_weights - xp.max(log_weights, axis=-1, keepdims=True)) + _LEAST_WEIGHT
    mean_slope = (xp.max(wanted, axis=-1) - xp.min(wanted, axis=-1)) / xp.sum(width, axis=-1)
    rise = _LEAST_SLOPE * mean_slope[:, None] * width
    falls = xp.mean(1.0 * (wanted[:, 1:] - wanted[:, :-1] < rise), axis=-1)
    least = xp.concatenate([xp.zeros_like(rise[:, :1]), xp.cumsum(rise, axis=-1)], axis=-1)
    return least + isotonic(wanted - least, weights), falls


def isotonic(rows: Array, weights: Array) -> Array:
    """Isotonic regression along the last axis by its minimax formula, which needs no iteration.

    The value at a position is the maximum, over starts up to it, of the minimum, over ends from it
    on, of the weighted average in between (T. Robertson, F. T. Wright and R. L. Dykstra, Order
    Restricted Statistical Inference (1988), theorem 1.4.4).
    """
    xp: Any = namespace(rows, weights)
    upper = np.triu(np.ones((rows.shape[-1],) * 2, bool))
    # A separate sum for each stretch. Differences of running sums would cancel: weights differ by
    # orders of magnitude.
    totals, sums = (
        xp.cumsum(xp.where(upper, part[..., None, :], 0), axis=-1)
        for part in (weights, weights * rows)
    )
    means = xp.where(upper, sums / xp.where(upper, totals, 1), np.inf)
    smallest = -running_maximum(-means[..., ::-1])[..., ::-1]
    found: Array = xp.max(xp.where(upper, smallest, -np.inf), axis=-2)
    return found


def running_maximum(rows: Array) -> Array:
    """Largest entry so far along the last axis."""
    largest: Any = (
        np.maximum.accumulate(rows, axis=-1)
        if namespace(rows) is np
        else lax.cummax(rows, axis=rows.ndim - 1)
    )
    return cast(Array, largest)
