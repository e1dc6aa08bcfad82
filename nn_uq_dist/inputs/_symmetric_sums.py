"""Triangular and trapezoidal inputs: sums of two independent uniform ones."""

import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from nn_uq_dist.basics import _checks
from nn_uq_dist.inputs._input_law import InputLaw
from nn_uq_dist.inputs._input_sum import InputSum

# Ends that were rounded each by itself are still symmetric.
_ROUNDINGS = 8


def triangular(low: ArrayLike, high: ArrayLike, mode: ArrayLike | None = None) -> InputSum:
    r"""Law of independent inputs with symmetric triangular densities.

    Each input is the sum of two independent uniform variables on intervals of half its width. This
    is exact, and takes two columns for each input.

    Parameters
    ----------
    low, high
        Ends of the supports, shape ``(..., N_x)``; one of them may be a scalar.
    mode
        Where the density is largest: the middle, which is also the default.

    Returns
    -------
    InputSum

    Raises
    ------
    TypeError
        If an argument is not an array of real numbers.
    ValueError
        If `low` is known to be above `high`, or `mode` not to be the middle. Under ``jit`` these
        give NaN.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> import nn_uq_dist as nuq
    >>> f = nuq.inputs.triangular(jnp.array([-1.0, 0.0]), jnp.array([1.0, 4.0]))
    >>> law = nuq.linearize(lambda x: x, f).marginals()
    >>> print(f.mean, jnp.exp(law.log_prob(f.mean)))
    [0. 2.] [1.  0.5]
    """
    given = {"low": low, "high": high} | ({} if mode is None else {"mode": mode})
    ends = _ends(given)
    top = (ends[0] + ends[1]) / 2 if mode is None else ends[2]
    return _sum_of_two("mode", "triangular", ends[0], top, top, ends[1])


def trapezoidal(low: ArrayLike, start: ArrayLike, stop: ArrayLike, high: ArrayLike) -> InputSum:
    r"""Law of independent inputs with symmetric trapezoidal densities.

    Each input is the sum of two independent uniform variables of half-widths
    :math:`(b - a \pm (d - c)) / 4` for the support :math:`(a, b)` and the flat top
    :math:`(c, d)`. This is exact, and takes two columns for each input.

    Parameters
    ----------
    low, start, stop, high
        Ends of the supports and of the flat tops, in this order, shape ``(..., N_x)``; scalars and
        other axes broadcast. ``start - low`` must be ``high - stop``.

    Returns
    -------
    InputSum

    Raises
    ------
    TypeError
        If an argument is not an array of real numbers.
    ValueError
        If known values are not in order, or not symmetric. Under ``jit`` these give NaN.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> import nn_uq_dist as nuq
    >>> f = nuq.inputs.trapezoidal(jnp.array([0.0]), 1.0, 3.0, 4.0)
    >>> law = nuq.linearize(lambda x: x, f).marginals()
    >>> print([f"{value:.4f}" for value in jnp.exp(law.log_prob(jnp.array([[0.5], [2.0]])))[:, 0]])
    ['0.1667', '0.3333']
    """
    ends = _ends({"low": low, "start": start, "stop": stop, "high": high})
    return _sum_of_two("start and stop", "trapezoidal", *ends)


def _ends(given: dict[str, ArrayLike]) -> list[Array]:
    """Ends of one shape and type, finite where they are known."""
    names = {name: _checks.as_numeric(name, value) for name, value in given.items()}
    shape = _checks.broadcast_shapes(
        f"{', '.join(names)} must broadcast to (..., N_x)",
        **{name: np.shape(value) for name, value in names.items()},
    )
    if not shape:
        raise ValueError(
            f"{', '.join(names)} must have shape (..., N_x), got scalars; pass arrays with an "
            f"entry per input, such as jnp.array([low])"
        )
    for name, value in names.items():
        _checks.require_finite(name, value)
    dtype = _checks.float_dtype(*names.values())
    return [jnp.broadcast_to(jnp.asarray(value, dtype), shape) for value in names.values()]


def _sum_of_two(
    what: str, kind: str, low: Array, start: Array, stop: Array, high: Array
) -> InputSum:
    _require_symmetric(what, kind, low, start, stop, high)
    wide, narrow = _halves(low, start, stop, high)
    return InputSum(InputLaw((low + high) / 2, wide), InputLaw(jnp.zeros_like(wide), narrow))


def _require_symmetric(
    what: str, kind: str, low: Array, start: Array, stop: Array, high: Array
) -> None:
    """Raise ``ValueError`` for known ends that are out of order or not symmetric."""
    if not _checks.is_concrete(low, start, stop, high):
        return
    ordered = np.asarray((low <= start) & (start <= stop) & (stop <= high))
    if not ordered.all():
        at = _checks.first_index(~ordered)
        values = [float(np.asarray(end)[at]) for end in (low, start, stop, high)]
        raise ValueError(
            f"the ends of a {kind} law must not decrease, got {values} at index {at}; pass low "
            f"below high, with {what} between them"
        )
    bent = np.asarray(_is_asymmetric(low, start, stop, high))
    if bent.any():
        at = _checks.first_index(bent)
        values = [float(np.asarray(end)[at]) for end in (low, start, stop, high)]
        raise ValueError(
            f"a {kind} law must be symmetric, got {values} at index {at}: only then is it a sum of "
            f"two uniform ones; put {what} in the middle, or give a NumPyro distribution with icdf "
            f"of your own, which is linearized by its normal score, or only sample for monte_carlo"
        )


def _is_asymmetric(low: Array, start: Array, stop: Array, high: Array) -> Array:
    largest = jnp.maximum(jnp.abs(low), jnp.abs(high))
    error = jnp.abs((start - low) - (high - stop))
    return error > _ROUNDINGS * jnp.finfo(low.dtype).eps * largest


def _halves(low: Array, start: Array, stop: Array, high: Array) -> tuple[Array, Array]:
    """Half-widths of the two uniform laws; NaN for traced ends that have none."""
    wrong = _is_asymmetric(low, start, stop, high) | (start < low) | (stop < start) | (high < stop)
    width, top = high - low, stop - start
    wide, narrow = (width + top) / 4, (width - top) / 4
    if _checks.is_concrete(wrong):
        # A top that rounding makes wider than the support is as wide.
        return wide, jnp.maximum(narrow, 0)
    return jnp.where(wrong, jnp.nan, wide), jnp.where(wrong, jnp.nan, narrow)
