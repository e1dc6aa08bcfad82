r"""A law with very many weights as a few large weights and the power sums of the others.

With ``S_p`` the sum of the ``p``-th powers of the small weights, their cumulant generating function
is

.. math:: \sum_k \log\frac{\sinh w_k z}{w_k z} = \frac{S_2 z^2}{6} - \frac{S_4 z^4}{180} + \dots,

exact to rounding while ``|w z|`` is at most `FARTHEST` for each of them (the series converges up to
``pi``). The first term is that of a normal part, and is treated as one; the others are the
correction computed here. The sums are computed once for a law: a point then costs only the large
weights.
"""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from nn_uq_dist.linear_combination._contour import sum_in_blocks
from nn_uq_dist.linear_combination._law import Law, binary_scale
from nn_uq_dist.linear_combination._uniform_component import LANGEVIN_SERIES

# Weights that are kept individually. The next one is then at most 0.22 standard deviations.
NUM_LARGE = 64
# The first omitted power adds (FARTHEST/pi)^42/21 = 1e-15 times the number of weights that are this
# large.
FARTHEST = 1.5
# Coefficients of x^2, x^4, ...; beyond those of the table, 2 zeta(2k)/pi^(2k), of alternating sign.
_SERIES = tuple(
    coefficient / (2 * k)
    for k, coefficient in enumerate(
        (
            *LANGEVIN_SERIES,
            *(
                (-1) ** (k + 1) * 2.0 * (1.0 + 4.0**-k + 9.0**-k) / math.pi ** (2 * k)
                for k in range(len(LANGEVIN_SERIES) + 1, 21)
            ),
        ),
        start=1,
    )
)
# Most numbers in the laws that are reduced together.
_MOST_NUMBERS = 2**20


class ReducedLaw(NamedTuple):
    """A batch of laws, column ``b`` is the law of point ``b``; scaled to weights of order one.

    Attributes
    ----------
    scale : Array, shape (B,)
        Power of two by which everything has been divided.
    large : Array, shape (NUM_LARGE, B)
        The largest weights, none of them zero.
    normal_scale : Array, shape (B,)
        Standard deviation of the normal part and the small weights together.
    unit : Array, shape (B,)
        The largest of the small weights.
    coefficients : Array, shape (J, B)
        Coefficients of ``x^4, x^6, ...``, with ``x = unit * z``, in the cumulant generating
        function.
    """

    scale: Array
    large: Array
    normal_scale: Array
    unit: Array
    coefficients: Array

    @property
    def normal_like(self) -> Law:
        """The law with the small weights replaced by a normal part of their variance."""
        return Law(self.large, self.normal_scale)

    def take(self, index: Array) -> "ReducedLaw":
        """The laws of points, given by their columns."""
        return jax.tree.map(lambda part: part[..., index], self)


def reduce(weights: Array, normal_scale: Array | None) -> ReducedLaw:
    """Reduce L laws, weights of shape (L, n) and any sign, normal scales (L,)."""
    count = weights.shape[-1]
    if normal_scale is None:
        normal_scale = jnp.zeros(weights.shape[:-1], weights.dtype)
    size = max(1, _MOST_NUMBERS // count)
    rows: ReducedLaw = lax.map(
        lambda law: _reduce_one(*law),
        (weights, normal_scale),
        batch_size=size if size > 1 else None,
    )
    return jax.tree.map(lambda part: jnp.moveaxis(part, 0, -1), rows)


def _reduce_one(weights: Array, normal_scale: Array) -> ReducedLaw:
    scale = binary_scale(Law(weights, normal_scale))
    magnitudes = jnp.abs(weights) / scale
    large, index = lax.top_k(magnitudes, NUM_LARGE)
    # Large weights are set to zero, not subtracted from the sums, which may be far smaller.
    small = magnitudes.at[index].set(0.0)
    unit = jnp.max(small)
    square = (small / jnp.where(unit > 0, unit, 1.0)) ** 2

    def following(power: Array, coefficient: Array) -> tuple[Array, Array]:
        power = power * square
        return power, coefficient * sum_in_blocks(power)

    series = jnp.asarray(_SERIES, weights.dtype)
    coefficients = lax.scan(following, jnp.ones_like(square), series)[1]
    variance = (normal_scale / scale) ** 2 + 2.0 * coefficients[0] * unit * unit
    # The factor of a zero weight is one, but its formula gives NaN.
    large = jnp.maximum(large, jnp.finfo(weights.dtype).eps ** 1.5)
    return ReducedLaw(scale, large, jnp.sqrt(variance), unit, coefficients[1:])


def correction_at(law: ReducedLaw, z: Array) -> Array:
    """Cumulant generating function minus that of `ReducedLaw.normal_like`."""
    square = (law.unit * z) ** 2
    (value,) = _series(law, square, 0)
    return value * square * square


def correction_slopes(law: ReducedLaw, tilt: Array) -> tuple[Array, Array]:
    """First and second derivative of `correction_at` on the real axis."""
    x = law.unit * tilt
    square = x * x
    value, slope, half_bend = _series(law, square, 2)
    # Of the series in the square, times the square twice.
    first = square * (2 * value + square * slope)
    second = 2 * (value + square * (2 * slope + square * half_bend))
    return 2 * law.unit * x * first, law.unit**2 * (2 * first + 4 * square * second)


def _series(law: ReducedLaw, square: Array, order: int) -> tuple[Array, ...]:
    """Sum of ``coefficients[j] square^j`` and its derivatives, the j-th over ``j!``."""

    # A loop: written out, each multiple of a coefficient is a kernel of its own to the compiler.
    def horner(state: tuple[Array, ...], coefficient: Array) -> tuple[tuple[Array, ...], None]:
        added = (coefficient, *state)
        return tuple(s * square + a for s, a in zip(state, added, strict=False)), None

    start = (jnp.zeros_like(square),) * (order + 1)
    return lax.scan(horner, start, law.coefficients, reverse=True)[0]
