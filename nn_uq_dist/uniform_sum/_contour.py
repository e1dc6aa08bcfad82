r"""The contour integral behind every function of the distribution: its tilt and its step.

With ``R`` a sum of uniform components (and a normal one), the integral

.. math::
    I_m(y) = \frac{1}{2\pi i}\int_{t - i\infty}^{t + i\infty} e^{K(z) - z y} z^{-m}\, dz,
    \qquad t > 0,

is the density (``m = 0``), the survival function (``m = 1``), and its repeated integrals
``E[(R - y)_+^(m-1)]/(m-1)!`` (``m >= 2``), which conditioning on further weights needs. On the
vertical line through the saddlepoint the integrand is the characteristic function of the tilted
distribution, so the relative accuracy does not depend on how far out ``y`` lies (H. E. Daniels,
Annals of Mathematical Statistics 25, 1954; R. Lugannani and S. Rice, Advances in Applied
Probability 12, 1980, for the pole).

The only errors of the midpoint rule with step ``h`` are aliases at multiples of ``L = 2 pi/h``
(Poisson summation): on the right they vanish, on the left ``I_m`` is a polynomial whose alternating
sum has a closed form (`_uniform_sum`).
"""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from nn_uq_dist.basics.chunks import any_point
from nn_uq_dist.uniform_sum._uniform_component import (
    excess_coth,
    log_mgf_below_edge,
    squared_envelope,
    sums_of_excess,
)
from nn_uq_dist.uniform_sum._uniform_sum import UniformSum, tolerances_of

_MOST_NEWTON_STEPS = 60
# Tolerance of the tilt at the saddlepoint, in standard deviations of the tilted distribution.
_TILT_TOLERANCE = 0.3


class Contour(NamedTuple):
    """The vertical line and its nodes, for each point; constant under differentiation.

    Attributes
    ----------
    order : Array of int, shape (M, B)
        Orders ``m`` of the pole at zero, ascending by one: M integrals share the line and the
        product of the factors of all components, which is almost all of the work.
    tilt, spacing : Array, shape (B,)
        Real part ``t`` of the line, distance ``L`` of the aliases.
    scale : Array, shape (B,)
        Frequency scale of the tilted distribution: one over its standard deviation, or the tilt.
    num_nodes : Array of int, shape (B,)
        Most nodes that a point may use; zero for points that do not matter.
    polynomial_aliases : Array of bool, shape (B,)
        Points whose aliases lie left of the center, where ``I_m`` is a polynomial except for the
        tail. Aliases of the other points are negligible, and far below the polynomial.
    """

    order: Array
    tilt: Array
    spacing: Array
    scale: Array
    num_nodes: Array
    polynomial_aliases: Array

    @property
    def step(self) -> Array:
        """Distance ``h`` of the nodes."""
        return 2.0 * jnp.pi / self.spacing

    @property
    def alias_decay(self) -> Array:
        """``exp(-t L)`` where the aliases are polynomials, else zero."""
        return jnp.where(self.polynomial_aliases, jnp.exp(-self.tilt * self.spacing), 0.0)


def choose_contour(
    order: Array,
    y: Array,
    distance: Array,
    distribution: UniformSum,
    active: Array,
    last: Array,
    derivatives: int,
) -> Contour:
    """Contour through the saddlepoint of each point, without nodes where it does not converge.

    Parameters
    ----------
    order : Array of int, shape (M, B)
        Orders of the pole at zero: 0 for the density, 1 for the survival function, ...
    y, distance : Array, shape (B,)
        Point, at or above the center, and its distance ``sum(weights) - y`` from the edge.
    distribution : UniformSum
        With positive weights.
    active : Array of bool, shape (B,)
        Points that matter.
    last : Array of bool, shape ()
        Whether no other method follows: points that do not converge are then summed as
        far as allowed, otherwise not at all.
    derivatives : int
        Number of derivatives that must converge as well; each adds one power of the frequency.
    """
    # The highest order stays farthest from the pole, which does no harm for lower orders.
    tilt, variance = solve_tilt(order[-1], y, distance, distribution, active)
    contour = contour_at(order, tilt, variance, y, 2.0 * y + distance, distribution)
    tolerances = tolerances_of(y.dtype)
    most = jnp.where(last, tolerances.most_nodes, tolerances.max_nodes)
    excess = excess_coth(distribution.weights, tilt)
    bound = envelope_at(distribution, excess, contour, most) * growth_at(contour, most, derivatives)
    worth = active & ((bound < tolerances.acceptable) | last)
    # The barrier keeps what leads to the bound in one kernel.
    return contour._replace(num_nodes=lax.optimization_barrier(jnp.where(worth, most, 0)))


def contour_at(
    order: Array,
    tilt: Array,
    variance: Array,
    y: Array,
    span: Array,
    distribution: UniformSum,
    margin: float = 0.0,
) -> Contour:
    r"""Contour at a given tilt.

    The step follows from the required distance between aliases, the least of three distances:

    - beyond the support on both sides (``span``, the distance from ``y`` to the far edge);
    - where the tilted density has decayed. Its right tail is Gaussian with the tilted variance; its
      left tail may be exponential with rate ``t``, as bounded by Bernstein's inequality;
    - where the distribution itself has decayed. ``K''`` is largest at zero. By Chernoff's bound an
      alias at distance ``L``, on the left after subtraction of its polynomial, contributes at most
      ``exp(r^2 K''(0)/2 - r L)`` for each ``r``, at best ``exp(-L^2/(2 K''(0)))``. Aliases on the
      right are closer to the tilted mean, because it lies beyond ``y`` by ``order/t`` and the
      remaining error of the root-finding.

    ``margin`` is how many tilted standard deviations the points may lie from the tilted mean.
    """
    tolerances = tolerances_of(tilt.dtype)
    weights, normal_variance = distribution.weights, distribution.normal_variance
    exponent = tolerances.alias_exponent
    inverse = lax.rsqrt(variance)
    deviation = variance * inverse
    rate = 1.0 / tilt
    ahead = order[-1].astype(tilt.dtype) * rate + _TILT_TOLERANCE * deviation
    slowest = 0.45 * jnp.max(weights, axis=0, initial=0.0)
    rate = jnp.where(order[-1] == 0, jnp.minimum(rate, slowest), rate)
    tail = (2.0 * exponent) ** 0.5
    decayed = tail * deviation + (2.0 / 3.0) * exponent * rate
    untilted = tail * jnp.sqrt(distribution.moments()[0])
    beyond = span + 2.0 * (tilt * normal_variance + tail * jnp.sqrt(normal_variance))
    spacing = jnp.minimum(decayed, untilted + ahead) + margin * deviation
    spacing = jnp.minimum(spacing, beyond)
    return Contour(
        order=order,
        tilt=tilt,
        spacing=spacing,
        scale=jnp.maximum(inverse, tilt),
        num_nodes=jnp.zeros(tilt.shape, jnp.int32),
        polynomial_aliases=y < spacing,
    )


def envelope_at(
    distribution: UniformSum, excess: Array, contour: Contour, node: Array | int
) -> Array:
    """Bound on the modulus of the normalized integrand, of the lowest order, from this node on.

    ``excess`` is ``coth(w t) - 1``, shape (n, B).
    """
    frequency = node * contour.step
    ratio = frequency * (1.0 / contour.tilt)
    shrink = 1.0 / (1.0 + ratio * ratio)
    squares = squared_envelope(distribution.weights, excess, shrink, frequency)
    decay = jnp.exp(-0.5 * (distribution.normal_variance * (frequency * frequency)))
    pole = power_of(shrink, contour.order[0])
    return jnp.sqrt(jnp.prod(squares, axis=0) * pole) * decay


def power_of(base: Array, exponent: Array) -> Array:
    """``base ** exponent`` for an integer array from 0 to 7 that broadcasts against the base."""
    value = jnp.ones_like(base)
    # In a loop these do not change, and are one kernel before it.
    bits = exponent & np.array([1, 2, 4], exponent.dtype).reshape(3, *[1] * exponent.ndim) != 0
    for bit in bits:
        value = jnp.where(bit, value * base, value)
        base = base * base
    return value


def growth_at(contour: Contour, node: Array | int, derivatives: int) -> Array:
    """Factor by which the integrands of derivatives exceed the integrand at a node."""
    if not derivatives:
        return jnp.ones_like(contour.step)
    return (1.0 + node * contour.step / contour.scale) ** derivatives


def log_scale(distance: Array, distribution: UniformSum, contour: Contour) -> Array:
    """Exponents ``K(t) - t y - order log t`` at the tilt, written with the distance ``W - y``."""
    tilt = contour.tilt
    value = tilt * (distance + 0.5 * distribution.normal_variance * tilt)
    value = value - contour.order.astype(tilt.dtype) * jnp.log(tilt)
    return value + sum_in_blocks(log_mgf_below_edge(distribution.weights, tilt))


def sum_in_blocks(terms: Array, size: int = 64) -> Array:
    """Sum over the first axis; one running sum of thousands would lose digits in float32."""
    while terms.shape[0] > size:
        padding = [(0, -terms.shape[0] % size)] + [(0, 0)] * (terms.ndim - 1)
        blocks = jnp.pad(terms, padding).reshape(-1, size, *terms.shape[1:])
        # The barrier keeps the compiler from merging the sums into one again.
        terms = lax.optimization_barrier(jnp.sum(blocks, axis=1))
    return jnp.sum(terms, axis=0)


def moments_at_tilt(order: Array, distribution: UniformSum, tilt: Array) -> tuple[Array, Array]:
    """Distance from the edge and variance of the tilted sum, the pole ``z^-order`` included.

    Parameters
    ----------
    order : Array, shape (B,)
        Order of the pole at zero, in floating point.
    distribution : UniformSum
    tilt : Array, shape (B,)

    Returns
    -------
    tuple of Array, shape (B,)
        ``W - K'(t) + order/t`` and ``K''(t) + order/t^2``.
    """
    of_distance, of_variance = sums_of_excess(distribution.weights, tilt)
    rate = 1.0 / tilt
    pole = order * rate
    poles = pole + distribution.weights.shape[0] * rate
    variance = poles * rate - of_variance + distribution.normal_variance
    # Rounding may leave the variance of an almost degenerate distribution below that of its pole.
    variance = jnp.maximum(jnp.maximum(variance, pole * rate), 1e-12 * rate * rate)
    return poles - of_distance - distribution.normal_variance * tilt, variance


def _initial_tilt(
    order: Array, y: Array, distance: Array, distribution: UniformSum, inverse_variance: Array
) -> Array:
    # Inverse Langevin function of equal weights with this width and variance (the approximation of
    # A. Cohen, Rheologica Acta 30, 1991), then the contribution of the pole from t sigma^2 -
    # order/t = y.
    width, normal_variance = y + distance, distribution.normal_variance
    inverse_width = 1.0 / jnp.maximum(width, 1e-30)
    share = jnp.clip(y * inverse_width, 0.0, 1.0)
    gap = jnp.clip(distance * inverse_width, 1e-30, 1.0)
    stretch = (1.0 - share * share / 3.0) / (gap * (1.0 + share))
    bounded = y * inverse_variance * jnp.where(width > 0, stretch, 1.0)
    # With a normal part the tilt is at most the one that the normal part alone needs beyond the
    # edge.
    reach = lax.rsqrt(jnp.maximum(normal_variance, 1e-30))
    cap = (jnp.maximum(-distance, 0.0) * reach + 3.0) * reach
    tilt = jnp.where(normal_variance > 0, jnp.minimum(bounded, cap), bounded)
    return 0.5 * (tilt + jnp.hypot(tilt, 2.0 * jnp.sqrt(order * inverse_variance)))


def solve_tilt(
    order: Array, y: Array, distance: Array, distribution: UniformSum, active: Array
) -> tuple[Array, Array]:
    """Tilt ``t`` with ``K'(t) - order/t = y`` for each point, and the variance there.

    Parameters
    ----------
    order : Array of int, shape (B,)
        Order of the pole at zero: 0 for the density, 1 for the survival function, ...
    y, distance : Array, shape (B,)
        Point, at or above the center, and its distance ``sum(weights) - y`` from the edge.
    distribution : UniformSum
    active : Array of bool, shape (B,)
        Points that decide when the iteration ends.

    Notes
    -----
    The integral does not depend on the tilt; its conditioning does. So it needs to be accurate only
    to a fraction of a standard deviation of the tilted distribution, and is never differentiated.

    Newton's method for ``1/(W - K'(t))``, which is nearly linear in ``t`` for every pattern of
    weights, safeguarded by a bracket. ``W - K'`` is convex and decreasing, so a plain Newton step
    from the left of the root never overshoots; this is the fallback.
    """
    order = order.astype(y.dtype)
    # The tilt stays away from zero, where the pole is and coth(w t) is infinite.
    lowest = lax.rsqrt(4.0 * distribution.moments()[0])
    inverse_variance = 4.0 * lowest * lowest
    start = jnp.maximum(_initial_tilt(order, y, distance, distribution, inverse_variance), lowest)

    def step(state: tuple[Array, Array]) -> tuple[Array, Array]:
        # One array, and so one kernel, for the numbers of all steps.
        tilt, _, left, right, count = state[1]
        at_tilt, spread = moments_at_tilt(order, distribution, tilt)
        excess = at_tilt - distance
        left = jnp.where(excess >= 0, tilt, left)
        right = jnp.where(excess < 0, tilt, right)
        bent = jnp.minimum(at_tilt, distance) > 0
        stretch = jnp.where(bent, at_tilt / jnp.where(bent, distance, 1.0), 1.0)
        proposal = tilt + excess / spread * stretch
        inside = (proposal > left) & (proposal < right)
        middle = jnp.where(jnp.isinf(right), 2.0 * tilt, jnp.sqrt(left * right))
        proposal = jnp.maximum(jnp.where(inside, proposal, middle), lowest)
        near = excess * excess < _TILT_TOLERANCE**2 * spread
        done = near | ((excess < 0) & (tilt <= lowest))
        tilt = jnp.where(done, tilt, proposal)
        more = any_point(active & ~done & (count < _MOST_NEWTON_STEPS))
        return more, jnp.stack([tilt, spread, left, right, count + 1.0])

    nothing = jnp.zeros_like(start)
    numbers = jnp.stack([start, nothing, lowest, nothing + jnp.inf, nothing + 1.0])
    state = lax.while_loop(lambda state: state[0], step, (jnp.asarray(True), numbers))
    return state[1][0], state[1][1]
