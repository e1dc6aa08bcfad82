r"""The law of one component, ``w U`` with ``U ~ Uniform(-1, 1)``, on the complex contour.

Everything that is special to the uniform law stands here: the part of its cumulant generating
function that remains when the edge of the support is split off,

.. math:: \log\frac{\sinh(wz)}{wz} = wz + \log\frac{1 - e^{-2wz}}{2wz},

its first two derivatives, its factor of the tilted characteristic function, and the Langevin
function ``L(x) = coth x - 1/x`` that derivatives with respect to a weight need. The split is
what keeps relative accuracy near the edge: ``K(t) - t x = t (W - |x|) + ...`` has no
cancellation between ``t W`` and ``t x``.
"""

import jax.numpy as jnp
from jax import Array, lax

from nn_uq_dist.linear_combination._trigonometry import sine_and_cosine

# Taylor coefficients of L(x)/x in powers of x^2: 2^(2k) B_2k / (2k)!.
_LANGEVIN_SERIES = (
    1 / 3,
    -1 / 45,
    2 / 945,
    -1 / 4725,
    2 / 93555,
    -1382 / 638512875,
    4 / 18243225,
    -3617 / 162820783125,
)


def log_mgf_below_edge(weights: Array, tilt: Array) -> Array:
    """``log((1 - exp(-2 w t)) / (2 w t))``: the log moment generating function less ``w t``."""
    product = weights * tilt
    small = product < 0.3
    # The quotient is near one and rounds to a multiple of epsilon: thousands of small weights
    # would add up to a bias. The series is the integral of that of the Langevin function.
    at = jnp.where(small, product, 0.0)
    square = at * at
    series = jnp.zeros_like(square)
    for k in reversed(range(6)):
        series = series * square + _LANGEVIN_SERIES[k] / (2 * k + 2)
    double = 2.0 * jnp.where(small, 1.0, product)
    return jnp.where(small, series * square - at, jnp.log(-jnp.expm1(-double) / double))


def distance_and_variance(weights: Array, tilt: Array) -> tuple[Array, Array]:
    """Distance ``w - K'(t)`` of the tilted mean from the edge, and the tilted variance ``K''(t)``.

    Both lose relative accuracy for ``w t`` near zero, where they are compared with
    quantities of order ``1/t`` and ``1/t^2`` only.
    """
    complement = -jnp.expm1(-2.0 * weights * tilt)
    decay = 1.0 - complement
    ratio = 2.0 * weights / complement
    return 1.0 / tilt - ratio * decay, 1.0 / (tilt * tilt) - ratio * ratio * decay


def excess_coth(weights: Array, tilt: Array) -> Array:
    """``coth(w t) - 1``, exact for small and for large ``w t``."""
    return 2.0 / jnp.expm1(2.0 * weights * tilt)


def squared_envelope(weights: Array, tilt: Array, frequency: Array) -> Array:
    """Bound on the squared modulus of the factor at this and all larger frequencies."""
    excess = excess_coth(weights, tilt)
    angle = jnp.minimum(weights * frequency, 1.0)
    # |cos + i coth(wt) sin|^2 = 1 + (coth^2 - 1) sin^2, with sin^2 replaced by its bound
    numerator = 1.0 + excess * (excess + 2.0) * angle * angle
    ratio = frequency / tilt
    return jnp.minimum(numerator / (1.0 + ratio * ratio), 1.0)


def weight_slope(weight: Array, tilt: Array, z: Array, square: Array) -> tuple[Array, Array]:
    r"""Derivative ``z L(w z)`` of the cumulant generating function in the weight, and the next one.

    With ``x = w z = u + i v``, ``L(x) = coth x - 1/x``: the first is ``z coth x - 1/w``, the second
    ``1/w^2 - z^2/sinh^2 x``, and

    .. math:: \coth x = \frac{\coth u - i q \sin v \cos v}{1 + q \sin^2 v},
              \qquad q = \coth^2 u - 1,

    where all that depends on ``u`` is the same at every node. For small ``x`` both are differences
    of large numbers, and a series of ``L(x)/x`` takes their place.

    Parameters
    ----------
    weight, tilt : Array, shape (B,)
    z, square : Array, shape (J, B)
        Nodes ``t + i a`` and their squares, complex.

    Notes
    -----
    In real arithmetic but for products: a complex division would not vectorize.
    """
    excess = excess_coth(weight, tilt)
    steep = excess * (excess + 2.0)
    sine, cosine = sine_and_cosine(weight * z.imag)
    turned = steep * sine
    inverse = 1.0 / (1.0 + turned * sine)
    coth = lax.complex((1.0 + excess) * inverse, -turned * cosine * inverse)
    # Above the bound `coth x - 1/x` loses less than two digits, below it the series is exact.
    terms, bound = (4, 0.15) if weight.dtype == jnp.float32 else (8, 0.06)
    scale = weight * weight
    small = scale * (z.real * z.real + z.imag * z.imag) < bound
    argument = scale * square
    series = jnp.full_like(argument, _LANGEVIN_SERIES[terms - 1])
    for coefficient in _LANGEVIN_SERIES[terms - 2 :: -1]:
        series = series * argument + coefficient
    first = jnp.where(small, weight * square * series, z * coth - 1.0 / weight)
    near = square * (1.0 - argument * series * series - 2.0 * series)
    return first, jnp.where(small, near, square * (1.0 - coth * coth) + 1.0 / scale)
