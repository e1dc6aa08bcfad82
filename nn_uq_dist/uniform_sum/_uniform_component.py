r"""The distribution of one component, ``w U`` with ``U ~ Uniform(-1, 1)``, on the complex contour.

Everything that is specific to the uniform distribution is here: the part of its cumulant generating
function that remains when the edge of the support is split off,

.. math:: \log\frac{\sinh(wz)}{wz} = wz + \log\frac{1 - e^{-2wz}}{2wz},

its first two derivatives, a bound on its factor of the tilted characteristic function, and the
Langevin function ``L(x) = coth x - 1/x`` that derivatives with respect to a weight need. The split
is what keeps relative accuracy near the edge: ``K(t) - t x = t (W - |x|) + ...`` has no
cancellation between ``t W`` and ``t x``.

Sines and cosines are polynomials here: they vectorize, unlike those of XLA on the CPU, which call a
scalar routine. Factors and their derivatives have squares of sines and products of sine and cosine
alone. These repeat after half a turn, so that no quadrant has to be selected.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import jax.numpy as jnp
from jax import Array, lax

# Taylor coefficients of L(x)/x in powers of x^2: 2^(2k) B_2k / (2k)!, of alternating sign, which
# tend to 2/pi^(2k).
LANGEVIN_SERIES = (
    1 / 3,
    -1 / 45,
    2 / 945,
    -1 / 4725,
    2 / 93555,
    -1382 / 638512875,
    4 / 18243225,
    -3617 / 162820783125,
    87734 / 38979295480125,
    -349222 / 1531329465290625,
    310732 / 13447856940643125,
    -472728182 / 201919571963756521875,
)
# Below this the closed forms of the Langevin function cancel; later terms of its series are below
# rounding.
_SERIES_BELOW = 0.6
# Minimax coefficients (Remez exchange in 50 digits) on [-pi/2, pi/2] of (sin r - r)/r^3 and
# (cos r - 1 + r^2/2)/r^4 in powers of r^2; largest errors 7e-9, 6e-10 and 4e-19, 1e-17.
_SINE = {
    "float32": (-0.1666666597, 0.008333242512, -0.0001982277947, 2.634862436e-6),
    "float64": (
        -0.16666666666666666633,
        0.0083333333333333158953,
        -0.00019841269841254990095,
        2.7557319219166975932e-6,
        -2.5052107617402543281e-8,
        1.6058977334996032743e-10,
        -7.6439709128267837906e-13,
        2.7314513414197118504e-15,
    ),
}
_COSINE = {
    "float32": (0.04166666608, -0.001388881282, 2.478611068e-5, -2.654681219e-7),
    "float64": (
        0.041666666666666656315,
        -0.0013888888888884774294,
        0.000024801587298916832064,
        -2.7557318573905834669e-7,
        2.0876681598846568481e-9,
        -1.146625362004100219e-11,
        4.6464532519793522557e-14,
    ),
}
# pi as a sum of parts with trailing zeros, so that k times the leading parts is exact.
_PI = {
    "float32": (3.140625, 9.675025939941406e-4, 1.5099580252808664e-7),
    "float64": (3.141592502593994, 1.5099578831723193e-7, 1.0780605716316238e-14),
}


def log_mgf_below_edge(weights: Array, tilt: Array) -> Array:
    """``log((1 - exp(-2 w t)) / (2 w t))``: the log moment generating function minus ``w t``."""
    product = weights * tilt
    small = product < 0.3
    # The quotient is close to one and is rounded to a multiple of epsilon: with thousands of small
    # weights these errors would add up to a bias. The series is the integral of that of the
    # Langevin function.
    near = jnp.where(small, product, 0.0)
    square = near * near
    series = polynomial([c / (2 * k + 2) for k, c in enumerate(LANGEVIN_SERIES[:6])], square)
    double = 2.0 * jnp.where(small, 1.0, product)
    return jnp.where(small, series * square - near, jnp.log(-jnp.expm1(-double) / double))


def sums_of_excess(weights: Array, tilt: Array) -> tuple[Array, Array]:
    """Sums of ``w (coth(w t) - 1)`` and ``w^2 (coth(w t)^2 - 1)`` over the weights.

    They fall short of ``1/t`` and ``1/t^2`` for each weight by ``w - K'(t)``, the distance from the
    edge, and by ``K''(t)``. These lose relative accuracy for ``w t`` near zero, where they are only
    compared with quantities of order ``1/t`` and ``1/t^2``.
    """
    # The barrier keeps the exponentials out of the sum, where they are not vectorized.
    part = lax.optimization_barrier(weights * excess_coth(weights, tilt))
    # One complex sum instead of two real ones: XLA would evaluate the terms twice.
    total = jnp.sum(lax.complex(part, part * (part + 2.0 * weights)), axis=0)
    return total.real, total.imag


def excess_coth(weights: Array, tilt: Array) -> Array:
    """``coth(w t) - 1``, exact for small and for large ``w t``."""
    return 2.0 / jnp.expm1(2.0 * (weights * tilt))


def squared_envelope(weights: Array, excess: Array, shrink: Array, frequency: Array) -> Array:
    """Largest squared modulus of the factor at this and all larger frequencies ``a``.

    ``shrink`` is ``1/(1 + (a/t)^2)``.

    ``|cos v + i coth u sin v|^2 = 1 + (coth^2 u - 1) sin^2 v`` over ``1 + (v/u)^2`` decreases for
    ``v`` in (0, pi), as ``v cos v <= sin v`` there. Hence ``sin^2`` is bounded by its Taylor series
    up to the point where that is one, and by one beyond.
    """
    square = (weights * frequency) ** 2
    sine = jnp.minimum(square * (1.0 + square * (square * (2.0 / 45.0) - 1.0 / 3.0)), 1.0)
    # Nothing here is the same for all frequencies, which in a loop would be kernels before it.
    scaled = excess * sine
    return jnp.minimum((1.0 + (scaled * excess + 2.0 * scaled)) * shrink, 1.0)


class TiltedComponent(NamedTuple):
    """Constants of each component for `langevin`, at the tilt, with ``u = w t``; shape (n, B).

    Attributes
    ----------
    inverse : Array
        ``1/u``.
    langevin : Array
        ``coth u - 1/u``.
    curvature : Array
        ``1/sinh^2 u - 1/u^2``.
    """

    inverse: Array
    langevin: Array
    curvature: Array


def tilted_component(weights: Array, tilt: Array, excess: Array) -> TiltedComponent:
    """The constants of each component; ``excess`` is ``coth u - 1``."""
    u = weights * tilt
    inverse = 1.0 / u
    small = u < _SERIES_BELOW
    near = jnp.where(small, u, 0.0)
    square = near * near
    slope = polynomial([(2 * k + 1) * c for k, c in enumerate(LANGEVIN_SERIES)], square)
    langevin = jnp.where(small, near * polynomial(LANGEVIN_SERIES, square), 1.0 + excess - inverse)
    curvature = jnp.where(small, -slope, excess * (excess + 2.0) - inverse * inverse)
    return TiltedComponent(inverse, langevin, curvature)


def langevin(
    weight: Array, component: TiltedComponent, frequency: Array, ratio: Array
) -> tuple[Array, Array]:
    r"""Real and imaginary part of ``L(u + i v) = coth(u + i v) - 1/(u + i v)``, ``v = w a``.

    With ``r = v/u``, which is ``a/t`` for every component, ``l = L(u)``,
    ``k = 1/sinh^2 u - 1/u^2`` and ``s, c`` sine and cosine of ``v``,

    .. math::
        \delta = k s^2 - r^2 (1 - s^2/v^2), \qquad D = 1 + r^2 + \delta, \\
        \operatorname{Re} L = \frac{1}{D}\Bigl(l - \frac{\delta/u}{1 + r^2}\Bigr), \qquad
        \operatorname{Im} L = \frac{1}{D}\Bigl(r^2 \frac{v - s c}{v^2} - k s c
            + \frac{r\,\delta/u}{1 + r^2}\Bigr).

    Where a difference would cancel, a polynomial replaces it, so that no digit is lost at small
    arguments, where ``coth x`` and ``1/x`` are nearly equal. The arithmetic is real, because a
    complex division would not vectorize.
    """
    # 1/v = (1/u)/r and 1/(1 + r^2), with one division for each node instead of one for each weight.
    inverse = component.inverse * (1.0 / ratio)
    whole = 1.0 + ratio * ratio
    squared, product, of_square, of_product = square_product_and_deficits(
        weight * frequency, inverse
    )
    delta = component.curvature * squared - (ratio * ratio) * of_square
    shift = delta * component.inverse * (1.0 / whole)
    inverse = 1.0 / (whole + delta)
    real = inverse * (component.langevin - shift)
    bend = (ratio * ratio) * of_product
    imaginary = inverse * (bend - component.curvature * product + ratio * shift)
    return real, imaginary


def sine_and_cosine(angle: Array) -> tuple[Array, Array]:
    """Sine and cosine of moderate angles (up to about 1e5), in one vectorizable expression."""
    half_turns, reduced, square = _reduced(angle)
    bend, fall = _bend_and_fall(square)
    odd = half_turns != 2.0 * jnp.round(0.5 * half_turns)
    sine, cosine = reduced + reduced * (square * bend), 1.0 - square * fall
    return jnp.where(odd, -sine, sine), jnp.where(odd, -cosine, cosine)


def square_and_product(angle: Array) -> tuple[Array, Array]:
    """``sin(v)^2`` and ``sin(v) cos(v)``."""
    _, reduced, square = _reduced(angle)
    bend, fall = _bend_and_fall(square)
    sine = reduced + reduced * (square * bend)
    return sine * sine, sine * (1.0 - square * fall)


def square_product_and_deficits(angle: Array, inverse: Array) -> tuple[Array, Array, Array, Array]:
    """`square_and_product`, ``1 - sin(v)^2/v^2`` and ``(v - sin(v) cos(v))/v^2`` for ``v >= 0``.

    All are exact to rounding for small ``v``.

    ``inverse`` is ``1/v``, which callers can compute without a division at each node.
    """
    half_turns, reduced, square = _reduced(angle)
    bend, fall = _bend_and_fall(square)
    loss = square * bend
    sine = reduced + reduced * loss
    squared, product = sine * sine, sine * (1.0 - square * fall)
    small = half_turns == 0
    of_square = jnp.where(small, -loss * (2.0 + loss), 1.0 - squared * (inverse * inverse))
    of_product = jnp.where(
        small, reduced * (fall - bend + loss * fall), (1.0 - product * inverse) * inverse
    )
    return squared, product, of_square, of_product


def _bend_and_fall(square: Array) -> tuple[Array, Array]:
    """``(sin r - r)/r^3`` and ``(1 - cos r)/r^2``."""
    name = square.dtype.name
    return polynomial(_SINE[name], square), 0.5 - square * polynomial(_COSINE[name], square)


def polynomial(coefficients: Sequence[float | Array], x: Array) -> Array:
    """Polynomial with these coefficients of ``1, x, x^2, ...``."""
    value = jnp.full_like(x, coefficients[-1])
    for coefficient in coefficients[-2::-1]:
        value = value * x + coefficient
    return value


def _reduced(angle: Array) -> tuple[Array, Array, Array]:
    """Number of half turns, the remaining angle, and its square."""
    half_turns = jnp.round(angle * (1.0 / math.pi))
    reduced = angle
    for part in _PI[angle.dtype.name]:
        reduced = reduced - half_turns * part
    return half_turns, reduced, reduced * reduced
