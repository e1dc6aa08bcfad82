r"""The contour integral behind every function of the law.

With ``R`` a sum of uniform components (and a normal one), the integral

.. math::
    I_m(y) = \frac{1}{2\pi i}\int_{t - i\infty}^{t + i\infty} e^{K(z) - z y} z^{-m}\, dz

is the density (``m = 0``), the survival function (``m = 1``), and its repeated integrals
``E[(R - y)_+^(m-1)]/(m-1)!`` (``m >= 2``), which conditioning on further weights needs. On the
vertical line through the saddlepoint the integrand is the characteristic function of the tilted
law, so the relative accuracy does not depend on how far out ``y`` lies (H. E. Daniels,
Annals of Mathematical Statistics 25, 1954; R. Lugannani and S. Rice, Advances in Applied
Probability 12, 1980, for the pole).

The midpoint rule with step ``h`` has no error but aliases at multiples of ``L = 2 pi/h``
(Poisson summation): on the right they vanish, on the left ``I_m`` is a polynomial whose
alternating sum is known in closed form.
"""

import functools
import math
import operator
from collections.abc import Sequence
from typing import NamedTuple

import jax.numpy as jnp
from jax import Array, lax

from nn_uq_dist.linear_combination._any_point import any_point
from nn_uq_dist.linear_combination._precision import NODES_PER_CHUNK, precision
from nn_uq_dist.linear_combination._saddlepoint import solve_tilt
from nn_uq_dist.linear_combination._trigonometry import sine_and_cosine
from nn_uq_dist.linear_combination._uniform_component import (
    excess_coth,
    log_mgf_below_edge,
    squared_envelope,
)

# Survival function of a law conditioned on its four largest weights.
MAX_ORDER = 5


class Contour(NamedTuple):
    """The vertical line and the nodes on it, one for each point; constants of differentiation.

    Attributes
    ----------
    order : Array of int, shape (M, B)
        Orders ``m`` of the pole at zero, ascending by one: M integrals share the line and the
        product of the factors of all components, which is nearly all of the work.
    tilt, step : Array, shape (B,)
        Real part ``t`` of the line, distance ``h`` of the nodes.
    scale : Array, shape (B,)
        Frequency scale of the tilted law: one over its standard deviation, or the tilt.
    num_nodes : Array of int, shape (B,)
        Most nodes that a point may take; zero for points that do not matter.
    polynomial_aliases : Array of bool, shape (B,)
        Points whose aliases lie left of the center, where ``I_m`` is a polynomial but for the
        tail beyond. Those of the others are negligible, and far below the polynomial.
    """

    order: Array
    tilt: Array
    step: Array
    scale: Array
    num_nodes: Array
    polynomial_aliases: Array


def choose_contour(
    order: Array,
    y: Array,
    distance: Array,
    weights: Array,
    normal_variance: Array,
    active: Array,
    derivatives: int = 0,
    *,
    last: bool = False,
) -> tuple[Contour, Array]:
    """Contour through the saddlepoint of each point, and whether the quadrature converges on it.

    Parameters
    ----------
    order : Array of int, shape (M, B)
        Orders of the pole at zero: 0 for the density, 1 for the survival function, ...
    y, distance : Array, shape (B,)
        Point, at or above the center, and its distance ``sum(weights) - y`` from the edge.
    weights : Array, shape (n, B)
    normal_variance : Array, shape (B,)
    active : Array of bool, shape (B,)
        Points that matter.
    derivatives : int
        How many derivatives must converge as well; each costs one power of the frequency.
    last : bool
        Whether no other method follows: points that do not converge are then summed as
        far as allowed, otherwise not at all.
    """
    # The highest order keeps farthest off the pole, which a lower one does not mind.
    tilt, variance = solve_tilt(order[-1], y, distance, weights, normal_variance, active)
    contour = contour_at(order, tilt, variance, y, 2.0 * y + distance, weights, normal_variance)
    tolerances = precision(y.dtype)
    most = tolerances.most_nodes if last else tolerances.max_nodes
    bound = envelope_at(weights, normal_variance, contour, most)
    bound = bound * (1.0 + most * contour.step / contour.scale) ** derivatives
    converges = (bound < tolerances.acceptable) | ~active
    worth = active if last else active & converges
    return contour._replace(num_nodes=jnp.where(worth, most, 0)), converges


def contour_at(
    order: Array,
    tilt: Array,
    variance: Array,
    y: Array,
    span: Array,
    weights: Array,
    normal_variance: Array,
    margin: float = 0.0,
) -> Contour:
    r"""Contour at a given tilt.

    The step follows from how far apart aliases must be, which is the least of three distances:

    - beyond the support on both sides (``span``, the distance from ``y`` to the far edge);
    - where the tilted density has decayed. Its right tail is Gaussian with the tilted variance; its
      left one may be exponential with rate ``t``, which Bernstein's inequality covers;
    - where the law itself has. Since ``K''`` is largest at zero, Chernoff's bound on what an
      alias at distance ``L`` leaves, be it right of the center or less its polynomial, is
      ``K(t - r) - K(t) + r K'(t) - r L <= r^2 K''(0)/2 - r L`` for each ``r``, at best
      ``-L^2/(2 K''(0))``. Aliases on the right are nearer to the tilted mean, by as much as that
      lies beyond ``y``: ``order/t``, and what the root-finding leaves.

    ``margin`` is how many tilted standard deviations the points may lie from the tilted mean.
    """
    tolerances = precision(tilt.dtype)
    exponent = tolerances.alias_exponent
    deviation = jnp.sqrt(variance)
    rate = 1.0 / tilt
    slowest = 0.45 * jnp.max(weights, axis=0, initial=0.0)
    rate = jnp.where(order[-1] == 0, jnp.minimum(rate, slowest), rate)
    tail = (2.0 * exponent) ** 0.5
    decayed = tail * deviation + (2.0 / 3.0) * exponent * rate
    untilted = tail * jnp.sqrt(jnp.sum(weights * weights, axis=0) / 3.0 + normal_variance)
    ahead = order[-1].astype(tilt.dtype) / tilt + tolerances.tilt_tolerance * deviation
    beyond = span + 2.0 * (tilt * normal_variance + tail * jnp.sqrt(normal_variance))
    spacing = jnp.minimum(decayed, untilted + ahead) + margin * deviation
    spacing = jnp.minimum(spacing, beyond)
    return Contour(
        order=order,
        tilt=tilt,
        step=2.0 * jnp.pi / spacing,
        scale=jnp.maximum(1.0 / deviation, tilt),
        num_nodes=jnp.zeros(tilt.shape, jnp.int32),
        polynomial_aliases=y < spacing,
    )


def envelope_at(
    weights: Array,
    normal_variance: Array,
    contour: Contour,
    node: Array | int,
) -> Array:
    """Bound on the modulus of the normalized integrand, of the lowest order, from this node on."""
    frequency = node * contour.step
    squares = squared_envelope(weights, contour.tilt, frequency)
    ratio = frequency / contour.tilt
    return (
        jnp.sqrt(jnp.prod(squares, axis=0))
        * (1.0 + ratio * ratio) ** (-0.5 * contour.order[0].astype(ratio.dtype))
        * jnp.exp(-0.5 * normal_variance * frequency * frequency)
    )


def log_scale(distance: Array, weights: Array, normal_variance: Array, contour: Contour) -> Array:
    """Exponents ``K(t) - t y - order log t`` at the tilt, written with the distance ``W - y``."""
    tilt = contour.tilt
    value = tilt * distance + 0.5 * normal_variance * tilt * tilt
    value = value - contour.order.astype(tilt.dtype) * jnp.log(tilt)
    return value + _sum_in_blocks(log_mgf_below_edge(weights, tilt))


def _sum_in_blocks(terms: Array, size: int = 64) -> Array:
    """Sum over the first axis; one running sum of thousands would lose digits in float32."""
    count = terms.shape[0]
    if count <= size:
        return jnp.sum(terms, axis=0)
    padding = [(0, -count % size)] + [(0, 0)] * (terms.ndim - 1)
    blocks = jnp.pad(terms, padding).reshape(-1, size, *terms.shape[1:])
    # The barrier keeps the compiler from merging the two sums into one again.
    return jnp.sum(lax.optimization_barrier(jnp.sum(blocks, axis=1)), axis=0)


class Nodes(NamedTuple):
    """A chunk of nodes ``z = t + i a``: all arrays have shape (J, B)."""

    frequency: Array
    z: Array
    shrink: Array
    direction: Array


def nodes_of_chunk(contour: Contour, chunk: Array | int, size: int = NODES_PER_CHUNK) -> Nodes:
    """Nodes ``a = (j + 1/2) h`` of one chunk; ``t/z = shrink * direction``."""
    index = jnp.arange(size, dtype=contour.tilt.dtype) + 0.5
    index = index + jnp.asarray(chunk).astype(contour.tilt.dtype) * size
    frequency = index[:, None] * contour.step
    ratio = frequency / contour.tilt
    shrink = lax.rsqrt(1.0 + ratio * ratio)
    direction = lax.complex(shrink, -ratio * shrink)
    tilt = jnp.broadcast_to(contour.tilt, frequency.shape)
    return Nodes(frequency, lax.complex(tilt, frequency), shrink, direction)


def product_of_factors(weights: Array, tilt: Array, nodes: Nodes) -> Array:
    r"""Product of the factors of all components at the nodes, edge phase split off.

    One factor is ``(t/z) (1 - exp(-2 w z))/(1 - exp(-2 w t))``. In real arithmetic, with
    ``g = coth(w t) - 1``, its second part is ``1 + g sin(w a) (sin(w a) + i cos(w a))``: no
    overflow for large ``w t`` and no cancellation for small. The moduli of ``t/z`` go
    into each factor, so that partial products of thousands of factors stay at most one;
    the common direction is raised to the power ``n`` at the end.
    """
    count = weights.shape[0]
    excess = excess_coth(weights, tilt)

    def multiply(k: Array, product: Array) -> Array:
        sine, cosine = sine_and_cosine(weights[k] * nodes.frequency)
        turned = excess[k] * sine
        factor = lax.complex(nodes.shrink * (1.0 + turned * sine), nodes.shrink * (turned * cosine))
        return product * factor

    ones = jnp.ones_like(nodes.z)
    if not count:
        return ones
    # Four at a time: fewer kernels, which write the product less often.
    product = lax.fori_loop(0, count, multiply, ones, unroll=4)
    return product * lax.integer_pow(nodes.direction, count)


def power_of(base: Array, exponent: Array) -> Array:
    """``base ** exponent`` for an integer array from 0 to 7 that broadcasts against the base."""
    value = jnp.ones_like(base)
    for bit in (1, 2, 4):
        value = jnp.where(exponent & bit, value * base, value)
        base = base * base
    return value


def integrand(
    distance: Array,
    weights: Array,
    normal_variance: Array,
    contour: Contour,
    nodes: Nodes,
) -> Array:
    """Normalized integrands (1 on the real axis) at a chunk of nodes, shape (J, M, B)."""
    pole = nodes.shrink * nodes.direction
    value = product_of_factors(weights, contour.tilt, nodes)
    value = value * power_of(pole, contour.order[0])
    phase = nodes.frequency * (distance + normal_variance * contour.tilt)
    sine, cosine = sine_and_cosine(phase)
    decay = jnp.exp(-0.5 * normal_variance * nodes.frequency * nodes.frequency)
    value = value * lax.complex(decay * cosine, decay * sine)
    values = [value]
    for _ in contour.order[1:]:
        values.append(values[-1] * pole)
    return jnp.stack(values, axis=1)


def needs_more_nodes(
    weights: Array,
    normal_variance: Array,
    contour: Contour,
    chunk: Array,
    derivatives: int,
) -> Array:
    """Whether any point still has an integrand worth summing from this chunk on."""
    tolerances = precision(contour.tilt.dtype)
    node = chunk.astype(contour.tilt.dtype) * NODES_PER_CHUNK
    envelope = envelope_at(weights, normal_variance, contour, node)
    growth = (1.0 + node * contour.step / contour.scale) ** derivatives
    allowed = chunk * NODES_PER_CHUNK < contour.num_nodes
    return (chunk == 0) | any_point(allowed & (envelope * growth > tolerances.target))


def tail_polynomial(order: Array, powers: Sequence[Array], moments: tuple[Array, Array]) -> Array:
    """``E[(R + u)^p]/p!`` with ``p = order - 1``: what ``I_order(-u)`` is left of the support.

    Parameters
    ----------
    order : Array of int, shape (M, B) or (B,)
        From 0 (a density: the value is zero) to 5.
    powers : sequence of Array
        ``u^0, ..., u^4``, or any linear functional of them.
    moments : tuple of Array
        Second and fourth moment of ``R``; the odd ones vanish by symmetry.
    """
    second, fourth = moments
    values = [
        powers[0],
        powers[1],
        (powers[2] + second * powers[0]) / 2.0,
        (powers[3] + 3.0 * second * powers[1]) / 6.0,
        (powers[4] + 6.0 * second * powers[2] + fourth * powers[0]) / 24.0,
    ]
    result = jnp.zeros(jnp.broadcast_shapes(order.shape, powers[0].shape), powers[0].dtype)
    for power, value in enumerate(values):
        result = jnp.where(order == power + 1, value, result)
    return result


def alias_correction(y: Array, moments: tuple[Array, Array], contour: Contour) -> Array:
    """Closed-form sum of the aliases left of the center, to be added to the midpoint sum.

    The aliases are ``I_m(y - k L)``, ``k >= 1``, with factors ``-(-q)^k``,
    ``q = exp(-t L)``. Sums of ``-(-q)^k k^p`` are rational in ``q`` (Eulerian polynomials).
    """
    spacing = 2.0 * jnp.pi / contour.step
    q = jnp.where(contour.polynomial_aliases, jnp.exp(-contour.tilt * spacing), 0.0)
    eulerian = (1.0, 1.0, 1.0 - q, 1.0 + q * (q - 4.0), 1.0 + q * (q * (11.0 - q) - 11.0))
    sums = [q * eulerian[p] / (1.0 + q) ** (p + 1) * spacing**p for p in range(MAX_ORDER)]
    powers = []
    for r in range(MAX_ORDER):
        terms = [math.comb(r, p) * sums[p] * (-y) ** (r - p) for p in range(r + 1)]
        powers.append(functools.reduce(operator.add, terms))
    return tail_polynomial(contour.order, powers, moments)


def relative_correction(correction: Array, log_sum: Array) -> Array:
    """``correction / exp(log_sum)``, zero where there is none even if the sum underflows."""
    some = correction > 0
    log_correction = jnp.log(jnp.where(some, correction, 1.0))
    return jnp.where(some, jnp.exp(jnp.where(some, log_correction - log_sum, 0.0)), 0.0)
