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
    87734 / 38979295480125,
    -349222 / 1531329465290625,
)


def log_mgf_below_edge(weights: Array, tilt: Array) -> Array:
    """``log((1 - exp(-2 w t)) / (2 w t))``: the log moment generating function less ``w t``."""
    double = 2.0 * weights * tilt
    return jnp.log(-jnp.expm1(-double) / double)


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


def langevin_ratio(weights: Array, z: Array, sine: Array, cosine: Array) -> Array:
    """``L(w z) / (w z)`` for complex ``z``, given sine and cosine of ``w Im(z)``."""
    zeta = weights * z
    square = zeta * zeta
    modulus = square.real * square.real + square.imag * square.imag
    terms, bound = (6, 0.25) if weights.dtype == jnp.float32 else (10, 0.04)
    small = modulus < bound
    series_at = jnp.where(small, square, 0.0)
    series = jnp.full_like(series_at, _LANGEVIN_SERIES[terms - 1])
    for coefficient in _LANGEVIN_SERIES[terms - 2 :: -1]:
        series = series * series_at + coefficient
    tanh = jnp.tanh(zeta.real)
    slack = 1.0 - tanh * tanh
    tiny = jnp.finfo(weights.dtype).tiny
    denominator = jnp.maximum(tanh * tanh * cosine * cosine + sine * sine, tiny)
    coth = lax.complex(tanh / denominator, -slack * sine * cosine / denominator)
    safe = jnp.where(small, 1.0, zeta)
    inverse = 1.0 / safe
    return jnp.where(small, series, (coth - inverse) * inverse)
