r"""Aliases of the midpoint rule left of the center, where ``I_m`` is a polynomial.

Left of the support ``I_m(-u) = E[(R + u)^(m-1)]/(m-1)!`` for ``u >= 0``: no quadrature is needed,
and the alternating sum over all aliases is known in closed form.
"""

import math

import jax.numpy as jnp
import numpy as np
from jax import Array

# Order for the survival function of a law conditioned on its four largest weights.
MAX_ORDER = 5

# Sum over k >= 1 of -(-q)^k k^p is q times these polynomials in q over (1 + q)^(p + 1) (Euler).
_EULERIAN = np.array(
    [[1, 0, 0, 0], [1, 0, 0, 0], [1, -1, 0, 0], [1, -4, 1, 0], [1, -11, 11, -1]], float
)
_BINOMIAL = np.array([[math.comb(r, p) for p in range(MAX_ORDER)] for r in range(MAX_ORDER)], float)


def powers(base: Array) -> Array:
    """``base^0, ..., base^4`` along a new first axis."""
    square = base * base
    return jnp.stack([jnp.ones_like(base), base, square, square * base, square * square])


def tail_polynomial(order: Array, moments_of_point: Array, moments: tuple[Array, Array]) -> Array:
    """``E[(R + u)^p]/p!`` with ``p = order - 1``: the value of ``I_order(-u)`` left of the support.

    Parameters
    ----------
    order : Array of int, shape (M, B)
        From 0 (a density: the value is zero) to `MAX_ORDER`.
    moments_of_point : Array, shape (5, B)
        ``u^0, ..., u^4``, or any linear functional of them.
    moments : tuple of Array
        Second and fourth moment of ``R``; the odd ones vanish by symmetry.
    """
    second, fourth = moments
    a = moments_of_point
    values = (
        a[0],
        a[1],
        (a[2] + second * a[0]) / 2.0,
        (a[3] + 3.0 * second * a[1]) / 6.0,
        (a[4] + 6.0 * second * a[2] + fourth * a[0]) / 24.0,
    )
    result = jnp.zeros(order.shape, a.dtype)
    for p, value in enumerate(values):
        result = jnp.where(order == p + 1, value, result)
    return result


def alias_correction(
    order: Array, y: Array, moments: tuple[Array, Array], decay: Array, spacing: Array
) -> Array:
    """Sum of the aliases ``I_m(y - k L)``, ``k >= 1``, with factors ``-(-q)^k``.

    Parameters
    ----------
    order : Array of int, shape (M, B)
    y : Array, shape (B,)
    moments : tuple of Array
        As for `tail_polynomial`.
    decay : Array, shape (B,)
        ``q = exp(-t L)``; zero where the aliases are not corrected.
    spacing : Array, shape (B,)
        ``L``.

    Returns
    -------
    Array, shape (M, B)
    """
    if order.shape[0] == 0:
        return jnp.zeros(order.shape, y.dtype)
    eulerian = jnp.asarray(_EULERIAN, y.dtype)
    numerator = jnp.einsum("pc,cb->pb", eulerian, powers(decay)[:4], precision="highest")
    sums = numerator * decay / (1.0 + decay) / powers(1.0 + decay) * powers(spacing)
    of_point = powers(-y)
    # Binomial sums over k of the powers of k L - y.
    rows = []
    for r in range(MAX_ORDER):
        terms = _BINOMIAL[r, : r + 1, None].astype(y.dtype) * sums[: r + 1] * of_point[r::-1]
        rows.append(jnp.sum(terms, axis=0))
    return tail_polynomial(order, jnp.stack(rows), moments)


def first_alias_correction(order: Array, decay: Array) -> Array:
    """The same for orders 0 and 1, whose polynomials are 0 and 1."""
    return jnp.where(order == 1, decay / (1.0 + decay), 0.0)
