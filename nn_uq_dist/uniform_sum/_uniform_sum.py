r"""The random variable ``sum_k w_k U_k + s N``: moments, polynomials of the tails, tolerances.

Of the contour integrals ``I_m`` of a sum ``R`` (`_contour`), those left of the support are
polynomials: ``I_m(-u) = E[(R + u)^(m-1)]/(m-1)!`` for ``u >= 0``: no quadrature is needed,
and the alternating sum over all aliases of the midpoint rule is known in closed form.

Derivatives are polynomials of lower orders. With ``P_m`` the polynomial of order ``m``, ``v`` the
normal variance and the second and fourth cumulant ``w^2/3`` and ``-2 w^4/15`` of ``w U``,

.. math:: \frac{dP_m}{du} = P_{m-1}, \qquad \frac{dP_m}{dv} = \frac{P_{m-2}}{2}, \qquad
    \frac{dP_m}{dw} = \frac{w}{3} P_{m-2} - \frac{w^3}{45} P_{m-4}.
"""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.typing import DTypeLike

from nn_uq_dist.basics.row_algebra import binary_unit
from nn_uq_dist.uniform_sum._uniform_component import polynomial

# Factors that are multiplied at a time; the number of rows in use is a multiple of this.
ROWS_PER_GROUP = 4

# Order for the survival function of a distribution conditioned on its four largest weights.
_MAX_ORDER = 5
# How far the orders lie below that of the value: for the value itself and for its derivatives.
_LOWER = (0, 1, 2, 4)

# Sum over k >= 1 of -(-q)^k k^p is q times these polynomials in q over (1 + q)^(p + 1) (Euler).
_EULERIAN = ((1,), (1,), (1, -1), (1, -4, 1), (1, -11, 11, -1))


class UniformSum(NamedTuple):
    """A batch of distributions, weights first: column ``b`` is the distribution of point ``b``.

    Attributes
    ----------
    weights : Array, shape (n, B)
        Weights of the uniforms on (-1, 1); non-negative in everything that `evaluate_each_point`
        calls.
    normal_scale : Array, shape (B,), or None
        None means that there is no normal part, which is part of the pytree structure.
    num_rows : Array of int, or None
        How many rows of weights are in use, a multiple of `ROWS_PER_GROUP`; the others are zero and
        cost nothing. None: all of them.
    """

    weights: Array
    normal_scale: Array | None
    num_rows: Array | None = None

    @property
    def normal_variance(self) -> Array:
        """Variance of the normal part, zero without one, shape (B,)."""
        if self.normal_scale is None:
            return jnp.zeros(self.weights.shape[1:], self.weights.dtype)
        return self.normal_scale * self.normal_scale

    def take(self, columns: Any) -> "UniformSum":
        """Some of the distributions, by index, of which all rows are in use."""
        some: UniformSum = jax.tree.map(lambda part: part[..., columns], self)
        return some

    def moments(self) -> tuple[Array, Array]:
        """Second and fourth moment, shape (B,)."""
        squares = self.weights * self.weights
        sums = jnp.sum(squares, axis=0), jnp.sum(squares * squares, axis=0)
        return moments_of(*sums, self.normal_variance)


def sums_of(*terms: Array) -> tuple[Array, ...]:
    """Sums over the first axis, all in one pass."""
    start = (np.zeros((), terms[0].dtype),) * len(terms)
    sums: tuple[Array, ...] = lax.reduce(
        terms, start, lambda a, b: tuple(x + y for x, y in zip(a, b, strict=True)), (0,)
    )
    return sums


def moments_of(square: Array, quartic: Array, normal_variance: Array) -> tuple[Array, Array]:
    """Second and fourth moment from the sums of squares and fourth powers of the weights."""
    second = square / 3.0 + normal_variance
    return second, 3.0 * second * second - 2.0 / 15.0 * quartic


@jax.custom_jvp
def distance_from_edge(y: Array, weights: Array) -> Array:
    """``sum(weights) - y`` without the rounding of the sum."""
    zeros = jnp.zeros_like(weights)
    start = (np.zeros((), weights.dtype),) * 2
    total, error = lax.reduce((weights, zeros), start, _two_sum, (0,))
    total, error = _two_sum((total, error), (-y, jnp.zeros_like(y)))
    return total + error


@distance_from_edge.defjvp
def _distance_from_edge_jvp(
    primals: tuple[Array, Array], tangents: tuple[Array, Array]
) -> tuple[Array, Array]:
    return distance_from_edge(*primals), jnp.sum(tangents[1], axis=0) - tangents[0]


def _two_sum(a: Any, b: Any) -> Any:
    """Sum of sums, each with its rounding error (D. E. Knuth, TAOCP 2)."""
    total = a[0] + b[0]
    shadow = total - a[0]
    return total, a[1] + b[1] + ((a[0] - (total - shadow)) + (b[0] - shadow))


def in_units(distribution: UniformSum, scale: Array) -> UniformSum:
    """The distribution of the variable divided by a scale."""
    normal = None if distribution.normal_scale is None else distribution.normal_scale / scale
    return distribution._replace(weights=distribution.weights / scale, normal_scale=normal)


def binary_scale(distribution: UniformSum) -> Array:
    """Power of two near the largest weight: scaling by it causes no rounding."""
    largest = jnp.max(jnp.abs(distribution.weights), axis=0, initial=0.0)
    if distribution.normal_scale is not None:
        largest = jnp.maximum(largest, distribution.normal_scale)
    return binary_unit(largest)


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


class Tolerances(NamedTuple):
    """Tolerances for one floating-point type.

    Attributes
    ----------
    alias_exponent
        Aliases of the trapezoidal rule are at most about ``exp(-alias_exponent)``.
    target, seen, unseen
        Nodes are added until the bound on all later terms falls below ``target``; or below
        ``unseen``, if the integrand at the last two nodes is below ``seen``. The bound replaces all
        sines of a product by one; the integrand itself is smaller by a factor of about two to the
        power of the number of weights.
    acceptable
        A distribution whose bound stays above this at ``max_nodes`` is conditioned on more weights.
    max_nodes, most_nodes
        Most nodes of a method that is followed by others, and of the last method.
    line_nodes, more_nodes
        Nodes of a common line of many weights, and by what factor few weights need more.
    line_reach
        Largest distance of a point from the mean of its tilted distribution, in standard deviations
        of that distribution.
    line_end
        Lines end at about this fraction of the width from the edge.
    """

    alias_exponent: float
    target: float
    seen: float
    unseen: float
    acceptable: float
    max_nodes: int
    most_nodes: int
    line_nodes: int
    more_nodes: int
    line_reach: float
    line_end: float


_TOLERANCES = {
    "float32": Tolerances(
        alias_exponent=17.0,
        target=3e-8,
        seen=3e-9,
        unseen=1e-4,
        acceptable=1e-6,
        max_nodes=128,
        most_nodes=256,
        line_nodes=24,
        more_nodes=3,
        line_reach=1.25,
        line_end=1e-4,
    ),
    "float64": Tolerances(
        alias_exponent=31.0,
        target=1e-13,
        seen=1e-14,
        unseen=1e-9,
        acceptable=5e-13,
        max_nodes=384,
        most_nodes=1024,
        line_nodes=40,
        more_nodes=6,
        line_reach=2.5,
        line_end=1e-7,
    ),
}


def tolerances_of(dtype: DTypeLike) -> Tolerances:
    """Tolerances for ``dtype`` (float32 or float64)."""
    return _TOLERANCES[jnp.dtype(dtype).name]
