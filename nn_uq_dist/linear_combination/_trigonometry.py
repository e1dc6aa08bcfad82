"""Sine and cosine that vectorize, unlike those of XLA on the CPU, which call a scalar routine."""

import math

import jax.numpy as jnp
from jax import Array

# Minimax coefficients on [-pi/4, pi/4] of (sin r - r)/r^3 and (cos r - 1 + r^2/2)/r^4 in
# powers of r^2 (S. Moshier, Cephes Mathematical Library).
_SINE = {
    "float32": (-1.6666654611e-1, 8.3321608736e-3, -1.9515295891e-4),
    "float64": (
        -1.66666666666666307295e-1,
        8.33333333332211858878e-3,
        -1.98412698295895385996e-4,
        2.75573136213857245213e-6,
        -2.50507477628578072866e-8,
        1.58962301576546568060e-10,
    ),
}
_COSINE = {
    "float32": (4.166664568298827e-2, -1.388731625493765e-3, 2.443315711809948e-5),
    "float64": (
        4.16666666666665929218e-2,
        -1.38888888888730564116e-3,
        2.48015872888517045348e-5,
        -2.75573141792967388112e-7,
        2.08757008419747316778e-9,
        -1.13585365213876817300e-11,
    ),
}
# pi/2 as a sum of parts with trailing zeros, so that k times the leading parts is exact.
_HALF_PI = {
    "float32": (1.5703125, 4.837512969970703125e-4, 7.549789948768648e-8),
    "float64": (1.57079625129699707031, 7.54978941586159635336e-8, 5.39030285815811905290e-15),
}


def _polynomial(coefficients: tuple[float, ...], x: Array) -> Array:
    value = jnp.full_like(x, coefficients[-1])
    for coefficient in coefficients[-2::-1]:
        value = value * x + coefficient
    return value


def sine_and_cosine(angle: Array) -> tuple[Array, Array]:
    """Sine and cosine of moderate angles (up to about 1e5), in one vectorizable expression."""
    turns, reduced, square = _reduced(angle)
    sine = reduced + reduced * square * _polynomial(_SINE[angle.dtype.name], square)
    cosine = 1.0 - 0.5 * square + square * square * _polynomial(_COSINE[angle.dtype.name], square)
    return _turned(turns, sine, cosine)


def sine_cosine_and_deficits(angle: Array, inverse: Array) -> tuple[Array, Array, Array, Array]:
    """Sine, cosine, ``(1 - sin(v)/v)/v`` and ``(1 - cos v)/v``, exact for small ``v >= 0``.

    ``inverse`` is ``1/v``, which callers can compute without a division at each node.
    """
    turns, reduced, square = _reduced(angle)
    bend = _polynomial(_SINE[angle.dtype.name], square)
    fall = 0.5 - square * _polynomial(_COSINE[angle.dtype.name], square)
    sine, cosine = _turned(turns, reduced + reduced * square * bend, 1.0 - square * fall)
    small = turns == 0
    of_sine = jnp.where(small, -reduced * bend, (1.0 - sine * inverse) * inverse)
    of_cosine = jnp.where(small, reduced * fall, (1.0 - cosine) * inverse)
    return sine, cosine, of_sine, of_cosine


def _reduced(angle: Array) -> tuple[Array, Array, Array]:
    """Number of quarter turns, the remaining angle, and its square."""
    turns = jnp.round(angle * (2.0 / math.pi))
    reduced = angle
    for part in _HALF_PI[angle.dtype.name]:
        reduced = reduced - turns * part
    return turns, reduced, reduced * reduced


def _turned(turns: Array, sine: Array, cosine: Array) -> tuple[Array, Array]:
    quadrant = turns.astype(jnp.int32)
    odd = (quadrant & 1) == 1
    new_sine = jnp.where(odd, cosine, sine)
    new_cosine = jnp.where(odd, sine, cosine)
    return (
        jnp.where((quadrant & 2) == 2, -new_sine, new_sine),
        jnp.where(((quadrant + 1) & 2) == 2, -new_cosine, new_cosine),
    )
