r"""Tail integrals left of the center, where they are polynomials, with derivatives.

Left of the support ``I_m(-u) = E[(R + u)^(m-1)]/(m-1)!`` for ``u >= 0``: no quadrature is needed,
and the alternating sum over all aliases of the midpoint rule is known in closed form.

Derivatives are polynomials of lower orders. With ``P_m`` the polynomial of order ``m``, ``v`` the
normal variance and the second and fourth cumulant ``w^2/3`` and ``-2 w^4/15`` of ``w U``,

.. math:: \frac{dP_m}{du} = P_{m-1}, \qquad \frac{dP_m}{dv} = \frac{P_{m-2}}{2}, \qquad
    \frac{dP_m}{dw} = \frac{w}{3} P_{m-2} - \frac{w^3}{45} P_{m-4}.
"""

import math

import jax.numpy as jnp
import numpy as np
from jax import Array

from nn_uq_dist.uniform_sum._uniform_component import polynomial

# Order for the survival function of a distribution conditioned on its four largest weights.
_MAX_ORDER = 5
# How far the orders lie below that of the value: for the value itself and for its derivatives.
_LOWER = (0, 1, 2, 4)

# Sum over k >= 1 of -(-q)^k k^p is q times these polynomials in q over (1 + q)^(p + 1) (Euler).
_EULERIAN = ((1,), (1,), (1, -1), (1, -4, 1), (1, -11, 11, -1))


def alias_corrections(
    order: Array,
    y: Array,
    moments: tuple[Array, Array],
    decay: Array,
    spacing: Array,
    derivatives: bool,
) -> Array:
    """Sum of the aliases ``I_m(y - k L)``, ``k >= 1``, with factors ``-(-q)^k``.

    Parameters
    ----------
    order, moments, derivatives
        As for `tail_polynomials`, as is the result.
    y : Array, shape (B,)
    decay : Array, shape (B,)
        ``q = exp(-t L)``; zero where the aliases are not corrected.
    spacing : Array, shape (B,)
        ``L``.
    """
    share, scaled, sums = 1.0 / (1.0 + decay), decay, []
    for numerator in _EULERIAN:
        # (k L)^p, summed over k
        scaled = scaled * share
        sums.append(scaled * polynomial(numerator, decay))
        scaled = scaled * spacing
    of_point = powers(-y)
    rows = [
        sum(  # the binomial sum over powers of k L - y
            (math.comb(r, p) * sums[p] * of_point[r - p] for p in range(r)),
            start=sums[r],
        )
        for r in range(_MAX_ORDER)
    ]
    return tail_polynomials(order, rows, moments, derivatives)


def relative_correction(correction: Array, log_sum: Array) -> Array:
    """``correction / exp(log_sum)``; zero for a zero correction even if the sum underflows."""
    some = correction > 0
    log_correction = jnp.log(jnp.where(some, correction, 1.0))
    return jnp.where(some, jnp.exp(jnp.where(some, log_correction - log_sum, 0.0)), 0.0)


def powers(base: Array) -> list[Array]:
    """``base^0, ..., base^4``."""
    square = base * base
    return [jnp.ones_like(base), base, square, square * base, square * square]


def tail_polynomials(
    order: Array, a: list[Array], moments: tuple[Array, Array], derivatives: bool
) -> Array:
    """``I_order(-u)`` left of the support, and those of the lower orders for derivatives.

    Parameters
    ----------
    order : Array of int, shape (M, ..., B)
        From 0 (a density: the value is zero) to 5.
    a : list of Array, shape (..., B)
        `powers` of ``u``, or any linear functional of them.
    moments : tuple of Array
        Second and fourth moment of ``R``; the odd ones vanish by symmetry.
    derivatives : bool
        Whether to add the lower orders.

    Returns
    -------
    Array, shape (K, M, ..., B)
        Orders ``m``, ``m - 1``, ``m - 2`` and ``m - 4``, or ``m`` alone.
    """
    second, fourth = moments
    values = (
        a[0],
        a[1],
        (a[2] + second * a[0]) / 2.0,
        (a[3] + 3.0 * second * a[1]) / 6.0,
        (a[4] + 6.0 * second * a[2] + fourth * a[0]) / 24.0,
    )
    lower = np.array(_LOWER if derivatives else _LOWER[:1])
    order = order - lower.reshape(-1, *[1] * order.ndim)
    result = jnp.zeros_like(a[0])
    for p, value in enumerate(values):
        result = jnp.where(order == p + 1, value, result)
    return result
