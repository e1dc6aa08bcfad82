"""Quantile functions of normal scores as polynomials between the scores at which they bend."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

# Ends of the pieces of a smooth quantile function, for positive scores. Far out, where a piece
# holds little probability, pieces may be wider.
_ENDS = {
    "float32": (*range(7), 8, 10, 13),
    "float64": (*range(11), 12, 15, 20, 28, 38),
}
# Beyond them the density of the scores underflows, and the function is taken for a straight line.
_STRAIGHT = {"float32": (18, 25, 40), "float64": (50, 65, 100)}
# Rounding errors of quantiles count in slopes as the square of the degree.
_COEFFICIENTS = {"float32": 8, "float64": 16}


class QuantilePieces(NamedTuple):
    r"""Quantiles :math:`F^{-1}(\Phi(z))`: a polynomial of the normal score `z` in each piece.

    Attributes
    ----------
    breaks : Array, shape (p + 1, ...)
        Ends of the pieces, ascending, where the function may bend. Pieces of length zero are
        allowed. Without derivatives.
    coefficients : Array, shape (k, p, ...)
        Coefficients of the quantile minus `center` in each piece: of the powers of the position in
        it, from -1 to 1.
    center : Array, shape (...)
        The median. Without derivatives.
    """

    breaks: Array
    coefficients: Array
    center: Array

    def at(self, scores: Array) -> Array:
        """Quantiles at scores of shape ``(q, ...)``."""
        held = jnp.clip(scores, self.breaks[0], self.breaks[-1])
        index = jnp.sum(held >= self.breaks[1:-1, None], axis=0)
        low, high = (jnp.take_along_axis(self.breaks, index + shift, 0) for shift in (0, 1))
        parts = [jnp.take_along_axis(part, index, 0) for part in self.coefficients]
        return self.center + polynomial(parts, position(held, low, high))


def position(scores: Array, low: Array, high: Array) -> Array:
    """Where scores lie in their pieces, from -1 to 1."""
    width = high - low
    return 2 * (scores - low) / jnp.where(width > 0, width, 1) - 1


def polynomial(coefficients: Sequence[Array] | Array, t: Array) -> Array:
    """Value of a polynomial, by W. G. Horner's method."""
    value = coefficients[-1]
    for k in range(len(coefficients) - 2, -1, -1):
        value = value * t + coefficients[k]
    return value


def smooth_pieces(from_normal_score: Callable[[Array], Array], kinks: Array) -> QuantilePieces:
    """Pieces of a quantile function that is smooth but for kinks at the scores ``(m, ...)``."""
    kind = str(kinks.dtype)
    ends: Any = np.asarray(_ENDS[kind], kinks.dtype)
    ends = np.concatenate([-ends[:0:-1], ends]).reshape(-1, *(1,) * (kinks.ndim - 1))
    return _with_straight_ends(_fitted(from_normal_score, ends, kinks))


def mapped_pieces(
    pieces: QuantilePieces, transform: Callable[[Array], Array], kinks: Array
) -> QuantilePieces:
    """Pieces of the quantiles that an increasing map with kinks at the scores ``kinks`` makes."""
    count = len(_STRAIGHT[str(kinks.dtype)])
    ends = pieces.breaks[count:-count]
    return _with_straight_ends(_fitted(lambda z: transform(pieces.at(z)), ends, kinks))


def _fitted(function: Callable[[Array], Array], ends: Array, kinks: Array) -> QuantilePieces:
    # What is not inside becomes a piece of length zero.
    kinks = jnp.where(jnp.abs(kinks) < ends[-1], kinks, 0)
    wide = jnp.broadcast_to(ends, (len(ends), *kinks.shape[1:]))
    breaks = lax.stop_gradient(jnp.sort(jnp.concatenate([wide, kinks]), axis=0))
    count = _COEFFICIENTS[str(kinks.dtype)]
    angles = np.pi * (np.arange(count) + 0.5) / count
    cosines = np.cos(np.arange(count)[:, None] * angles) * (2 / count)
    cosines[0] /= 2
    half = 0.5 * (breaks[1:] - breaks[:-1])
    column = (-1, *(1,) * half.ndim)
    nodes = breaks[:-1] + half * (1 + jnp.asarray(np.cos(angles), half.dtype).reshape(column))
    # The median comes with them: a second call of the quantile function is a second program.
    scores = jnp.concatenate([nodes.reshape(-1, *half.shape[1:]), jnp.zeros_like(breaks[:1])])
    found = function(scores)
    center = lax.stop_gradient(found[-1])
    values = found[:-1].reshape(nodes.shape) - center
    # First Chebyshev coefficients, which decrease: those of powers, made from values directly,
    # would be differences of large numbers.
    powers = np.zeros((count, count))
    for k in range(count):
        powers[: k + 1, k] = np.polynomial.chebyshev.cheb2poly(np.eye(count)[k, : k + 1])
    coefficients = values
    for matrix in (cosines, powers):
        factor = jnp.asarray(matrix, half.dtype)
        coefficients = jnp.tensordot(factor, coefficients, axes=1, precision=lax.Precision.HIGHEST)
    return QuantilePieces(breaks, coefficients, center)


def _with_straight_ends(pieces: QuantilePieces) -> QuantilePieces:
    breaks, coefficients = pieces.breaks, pieces.coefficients
    far = jnp.asarray(_STRAIGHT[str(breaks.dtype)], breaks.dtype)
    wide = jnp.broadcast_to(far.reshape(-1, *(1,) * (breaks.ndim - 1)), (3, *breaks.shape[1:]))
    # The slope of the last chord is not subject to rounding as that of the polynomial is.
    parts = []
    for side in (-1, 1):
        piece, end, inner = (0, 0, 1) if side < 0 else (-1, -1, -2)
        at_end, before = (
            polynomial(coefficients[:, piece], jnp.full_like(breaks[0], t))
            for t in (float(side), 0.5 * side)
        )
        slope = 4 * (at_end - before) / (breaks[end] - breaks[inner])
        ends = jnp.concatenate([breaks[end][None], side * wide])
        middle, half = 0.5 * (ends[1:] + ends[:-1]), 0.5 * jnp.abs(ends[1:] - ends[:-1])
        straight = jnp.zeros((len(coefficients), *middle.shape), breaks.dtype)
        straight = straight.at[0].set(at_end + slope * (middle - breaks[end]))
        parts.append(straight.at[1].set(slope * half))
    return QuantilePieces(
        jnp.concatenate([-wide[::-1], breaks, wide]),
        jnp.concatenate([parts[0][:, ::-1], coefficients, parts[1]], axis=1),
        pieces.center,
    )
