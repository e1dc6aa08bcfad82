r"""Log density and log tails of an output plus normal noise, by quadrature over its normal score.

With the quantile function :math:`q(z) = F^{-1}(\Phi(z))` of the output they are

.. math::
    p(x) = \int \phi(z)\, \phi\Big(\frac{x - q(z)}{\sigma}\Big) \frac{dz}{\sigma},
    \qquad
    P(Y + \sigma N \le x) = \int \phi(z)\, \Phi\Big(\frac{x - q(z)}{\sigma}\Big)\, dz.

All terms are positive, so that small probabilities have small relative errors. A Gauss-Legendre
rule covers the scores that matter for a point, which may be few, from one kink of `q` to the next.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.scipy.special import log_ndtr

from nn_uq_dist.basics._blocks import any_point
from nn_uq_dist.basics._normal_tails import (
    log_normal_density,
    score_from_log_survival,
    score_from_log_tails,
)
from nn_uq_dist.basics._quantile_search import quantile_at_score
from nn_uq_dist.laws._quantile_pieces import QuantilePieces, polynomial, position


class _Rule(NamedTuple):
    """What makes the quadrature as accurate as the type."""

    reach: float  # beyond this, in standard deviations, a normal density is nothing
    nodes: int  # in each part of the range
    length: float  # of a part, in standard deviations of score and noise together
    least: float  # the least noise, in standard deviations of the output
    far: float  # the largest distance of a point, in standard deviations of the noise


_RULES = {
    "float32": _Rule(6.0, 4, 0.9, 1e-4, 1e15),
    "float64": _Rule(7.8, 6, 1.0, 1e-9, 1e100),
}
# Parts of the range of a point, besides those that kinks add. A normal law with normal noise needs
# 2 sqrt(2) times the reach; parts are longer where more are needed.
_PARTS = 32
_MANY_POINTS = 256
_ITERATIONS = 12


class _Range(NamedTuple):
    """The scores that matter for a point; each field has the shape of the points."""

    low: Array
    high: Array
    at_low: Array  # quantiles at both ends, minus the center
    at_high: Array
    first: Array  # indices of the pieces at both ends
    last: Array
    top: Array  # about the largest log density of score and noise
    beyond: Array  # log probability of the scores where the noise is surely on the side asked for


def in_columns(
    function: Callable[[Array, Array, QuantilePieces], Array],
    value: Array,
    sigma: Array,
    pieces: QuantilePieces,
    shape: tuple[int, ...],
) -> Array:
    """A function of points ``(b, n)`` of ``b`` outputs, at values that broadcast to `shape`.

    Axes along which all values have the same law are axes of points: they share the polynomials.
    """
    dtype = jnp.result_type(value, sigma, pieces.center)
    batch = (1,) * (len(shape) - pieces.center.ndim) + pieces.center.shape
    axes = sorted(range(len(shape)), key=lambda axis: batch[axis] == 1)
    count = math.prod(batch)
    x, scale = (
        jnp.broadcast_to(part, shape).astype(dtype).transpose(axes).reshape(count, -1)
        for part in (value, sigma)
    )
    rank = pieces.center.ndim
    flat = jax.tree.map(
        lambda part: part.reshape(*part.shape[: part.ndim - rank], count).astype(dtype), pieces
    )
    found = function(x, scale, flat).reshape([shape[axis] for axis in axes])
    return found.transpose(np.argsort(axes))


@jax.jit
def log_density_at(x: Array, sigma: Array, pieces: QuantilePieces) -> Array:
    """Log density of ``Y + sigma N``.

    Parameters
    ----------
    x, sigma : Array, shape (b, n)
        Points of each of ``b`` outputs, and noise scales; NaN for negative ones.
    pieces : QuantilePieces
        The quantile functions of the outputs, batch shape ``(b,)``.
    """
    safe, scale = _safe(x, sigma, pieces)
    log_mass = _log_integral(safe, scale, pieces, None) - math.log(2 * math.pi)
    return _with_limits(x, safe, sigma, log_mass - jnp.log(scale), -jnp.inf, -jnp.inf)


@jax.jit
def log_lower_at(x: Array, sigma: Array, pieces: QuantilePieces) -> Array:
    """``log P(Y + sigma N <= x)``."""
    safe, scale = _safe(x, sigma, pieces)
    return _with_limits(x, safe, sigma, _log_tails(safe, scale, pieces)[0], -jnp.inf, 0.0)


@jax.jit
def log_upper_at(x: Array, sigma: Array, pieces: QuantilePieces) -> Array:
    """``log P(Y + sigma N > x)``."""
    safe, scale = _safe(x, sigma, pieces)
    return _with_limits(x, safe, sigma, _log_tails(safe, scale, pieces)[1], 0.0, -jnp.inf)


@jax.jit
def score_at(x: Array, sigma: Array, pieces: QuantilePieces) -> Array:
    """Normal score of ``Y + sigma N`` at ``x``."""
    safe, scale = _safe(x, sigma, pieces)
    score = score_from_log_tails(*_log_tails(safe, scale, pieces))
    return _with_limits(x, safe, sigma, score, -jnp.inf, jnp.inf)


@jax.custom_jvp
@jax.jit
def quantile_at(z: Array, sigma: Array, pieces: QuantilePieces) -> Array:
    """``x`` at which the normal score of ``Y + sigma N`` is ``z``."""
    target = jnp.where(jnp.isfinite(z) & (sigma >= 0), z, jnp.nan)
    # Y + sigma N is below q(a) + sigma a only if Y is below q(a) or N below a.
    low, high = (
        -side * score_from_log_survival(log_ndtr(side * target) - math.log(2)) for side in (1, -1)
    )
    low, high, middle = (pieces.at(part.T).T + sigma * part for part in (low, high, 0 * target))
    spread = jnp.hypot(1.0, sigma / jnp.maximum(_unit(pieces)[:, None], sigma))
    start = jnp.clip(middle + (pieces.at(target.T).T - middle) * spread, low, high)
    found = quantile_at_score(
        target,
        start,
        low,
        high,
        lambda x: (score_at(x, sigma, pieces), log_density_at(x, sigma, pieces)),
    )
    return jnp.where(jnp.isinf(z) & (sigma >= 0), z, found)


@quantile_at.defjvp
def _quantile_jvp(primals: Any, tangents: Any) -> tuple[Array, Array]:
    # Implicit function theorem: score(x(z, parameters), parameters) = z.
    z, *parameters = primals
    x = quantile_at(z, *parameters)
    inside = jnp.isfinite(x)
    safe = jnp.where(inside, x, parameters[1].center[:, None])
    score, moved = jax.jvp(
        lambda *parts: score_at(safe, *parts), tuple(parameters), tuple(tangents[1:])
    )
    steepness = jnp.exp(log_normal_density(score) - log_density_at(safe, *parameters))
    return x, jnp.where(inside, steepness * (tangents[0] - moved), 0)


def _unit(pieces: QuantilePieces) -> Array:
    """About the standard deviation: a sixth of the distance from score -3 to 3."""
    bottoms, tops = _ends(lax.stop_gradient(pieces.coefficients))
    low = jnp.min(jnp.where(pieces.breaks[:-1] >= -3, bottoms, jnp.inf), axis=0)
    high = jnp.max(jnp.where(pieces.breaks[1:] <= 3, tops, -jnp.inf), axis=0)
    return (high - low) / 6


def _safe(x: Array, sigma: Array, pieces: QuantilePieces) -> tuple[Array, Array]:
    """Points and scales that overflow nowhere, with which the integrals are computed."""
    rule = _RULES[str(x.dtype)]
    unit, center = _unit(pieces)[:, None], pieces.center[:, None]
    least = jnp.maximum(rule.least * unit, jnp.finfo(x.dtype).tiny)
    scale = jnp.where(sigma > least, sigma, least)
    return jnp.where(jnp.abs(x - center) < rule.far * scale, x, center), scale


def _with_limits(
    x: Array, safe: Array, sigma: Array, inside: Array, below: float, above: float
) -> Array:
    """Values at the safe points, those at both ends, and NaN where that is the argument."""
    known = ~jnp.isnan(x) & (sigma >= 0) & jnp.isfinite(sigma)
    ends = jnp.where(x > 0, above, below)
    return jnp.where(known, jnp.where(x == safe, inside, ends), jnp.nan).astype(x.dtype)


def _log_tails(safe: Array, scale: Array, pieces: QuantilePieces) -> tuple[Array, Array]:
    """Logs of both tails, from an integral for the smaller one."""
    side = jnp.where(safe < pieces.center[:, None], 1, -1).astype(safe.dtype)
    small = _log_integral(safe, scale, pieces, side) - 0.5 * math.log(2 * math.pi)
    small = jnp.minimum(small, -jnp.finfo(safe.dtype).tiny)
    large = jnp.log1p(-jnp.exp(small))
    return jnp.where(side > 0, small, large), jnp.where(side > 0, large, small)


def _log_integral(x: Array, sigma: Array, pieces: QuantilePieces, side: Array | None) -> Array:
    rule = _RULES[str(x.dtype)]

    def of_outputs(x: Array, sigma: Array, pieces: QuantilePieces, side: Array | None) -> Array:
        found = _range(*lax.stop_gradient((x, sigma, pieces)), side, rule)
        return _sum(x, sigma, pieces, found, side, rule)

    if x.shape[1] < _MANY_POINTS or len(x) == 1:
        return of_outputs(x, sigma, pieces, side)

    def of_one(parts: Any) -> Array:
        (x, sigma, side), pieces = parts
        pieces = jax.tree.map(lambda part: part[..., None], pieces)
        return of_outputs(x[None], sigma[None], pieces, None if side is None else side[None])[0]

    rows = jax.tree.map(lambda part: jnp.moveaxis(part, -1, 0), pieces)
    return lax.map(jax.checkpoint(of_one), ((x, sigma, side), rows))


def _piece(pieces: QuantilePieces, index: Array) -> tuple[Array, Array, Array]:
    """Ends and coefficients of the piece at ``index[..., b, n]`` of each output ``b``."""
    count = index.shape[-2]
    flat = index * count + jnp.arange(count, dtype=index.dtype)[:, None]
    rows = jnp.concatenate([pieces.breaks[:-1], pieces.breaks[1:]]).reshape(2, -1)
    table = jnp.concatenate([rows, pieces.coefficients.reshape(len(pieces.coefficients), -1)])
    found = jnp.take(table, flat, axis=1, mode="clip")
    return found[0], found[1], found[2:]


def _ends(coefficients: Any) -> tuple[Any, Any]:
    """Values of the polynomials at both ends, where the Chebyshev polynomials are 1 or -1."""
    even, odd = sum(coefficients[::2]), sum(coefficients[1::2])
    return even - odd, even + odd


def _range(
    x: Array, sigma: Array, pieces: QuantilePieces, side: Array | None, rule: _Rule
) -> _Range:
    """Where the log density of score and noise is close enough to its largest value."""
    reach, breaks, coefficients = rule.reach, pieces.breaks[..., None], pieces.coefficients
    x, precision = x - pieces.center[:, None], 1 / sigma
    bottoms, tops = _ends(coefficients)
    last = len(tops) - 1

    def height(z: Array, u: Array) -> Array:
        # Beyond zero, the log of a normal tail is up to a few units less than this.
        excess = u if side is None else jnp.maximum(-side * u, 0)
        return -0.5 * (z * z + excess * excess)

    # The score of the point itself: with little noise, no break is near it.
    low, high, parts = _piece(pieces, jnp.sum(x >= tops[:-1, :, None], axis=0))
    ones = jnp.ones_like(x)
    t = _root(lambda t: polynomial(parts, t) - x, -ones, ones)
    own, own_u = low + 0.5 * (high - low) * (1 + t), (x - polynomial(parts, t)) * precision
    own_height = height(own, own_u)
    # At a break the quantile function may jump.
    above = (x - jnp.concatenate([bottoms, tops[-1:]])[..., None]) * precision
    below = (x - jnp.concatenate([bottoms[:1], tops])[..., None]) * precision
    heights = jnp.maximum(height(breaks, above), height(breaks, below))
    top = jnp.maximum(jnp.max(heights, axis=0), own_height)

    def is_inside(height: Array, u: Array) -> Array:
        inside = top - height <= 0.5 * reach * reach
        return inside if side is None else inside & (side * u <= reach)

    def outside(height: Array, u: Array) -> Array:
        """Positive out of the range; nearly linear in the score, which makes roots easy."""
        far = jnp.sqrt(2 * jnp.maximum(top - height, 0)) - reach
        return far if side is None else jnp.maximum(far, side * u - reach)

    # No root and no division here: what is cheap is not stored for all breaks.
    inside = is_inside(heights, above if side is None else jnp.where(side > 0, below, above))
    begin = jnp.min(jnp.where(inside, breaks, jnp.inf), axis=0)
    end = jnp.max(jnp.where(inside, breaks, -jnp.inf), axis=0)
    with_own = is_inside(own_height, own_u) | jnp.isinf(begin)
    begin = jnp.where(with_own, jnp.minimum(begin, own), begin)
    end = jnp.where(with_own, jnp.maximum(end, own), end)
    index = jnp.stack([jnp.sum(breaks < begin, axis=0), jnp.sum(breaks <= end, axis=0)]) - 1
    index = jnp.clip(index, 0, last)
    low, high, parts = _piece(pieces, index)

    def noise(z: Array) -> Array:
        return (x - polynomial(parts, position(z, low, high))) * precision

    def crossing(z: Array) -> Array:
        u = noise(z)
        return outside(height(z, u), u)

    ends = _root(crossing, jnp.stack([low[0], high[1]]), jnp.stack([begin, end]))
    u = noise(ends)
    beyond = jnp.full_like(x, -jnp.inf)
    if side is not None:
        sure = jnp.where(side > 0, u[0], -u[1]) > 0.5 * reach
        rest = log_ndtr(jnp.where(side > 0, ends[0], -ends[1]))
        beyond = jnp.where(sure, rest + 0.5 * math.log(2 * math.pi), -jnp.inf)
    at_ends = x - sigma * u
    return _Range(ends[0], ends[1], at_ends[0], at_ends[1], index[0], index[1], top, beyond)


def _root(function: Callable[[Array], Array], start: Array, stop: Array) -> Array:
    """A root between two points, or the point where the function is nearer to zero.

    N. Anderson and A. Bjorck, BIT 13 (1973).
    """
    f_start, f_stop = function(start), function(stop)

    def step(_: int, state: tuple[Array, ...]) -> tuple[Array, ...]:
        a, fa, b, fb = state
        gap = fb - fa
        c = b - fb * ((b - a) / jnp.where(gap == 0, 1, gap))
        fc = function(c)
        crossed = (fc > 0) != (fb > 0)
        share = 1 - fc / jnp.where(fb == 0, 1, fb)
        share = jnp.where(share > 0, share, 0.5)
        return jnp.where(crossed, b, a), jnp.where(crossed, fb, share * fa), c, fc

    found = lax.fori_loop(0, _ITERATIONS, step, (start, f_start, stop, f_stop))[2]
    nearer = jnp.where(jnp.abs(f_start) < jnp.abs(f_stop), start, stop)
    return jnp.where((f_start > 0) == (f_stop > 0), nearer, found)


def _sum(
    x: Array,
    sigma: Array,
    pieces: QuantilePieces,
    found: _Range,
    side: Array | None,
    rule: _Rule,
) -> Array:
    """Log of the integral over the range, part by part."""
    fixed_sigma = lax.stop_gradient(sigma)
    x = x - pieces.center[:, None]
    points, weights = np.polynomial.legendre.leggauss(rule.nodes)
    whole = found.high - found.low + (found.at_high - found.at_low) / fixed_sigma
    length = jnp.maximum(rule.length, whole / _PARTS)

    @jax.checkpoint
    def part_of(index: Array, number: Array) -> tuple[Array, Array]:
        """Integral over one of the parts of a piece, and how many the piece has."""
        low, high, coefficients = _piece(pieces, index)
        bottom, top = _ends(lax.stop_gradient(coefficients))
        begin, end = jnp.maximum(low, found.low), jnp.minimum(high, found.high)
        rise = jnp.minimum(top, found.at_high) - jnp.maximum(bottom, found.at_low)
        many = jnp.maximum(jnp.ceil((end - begin + rise / fixed_sigma) / length), 1)
        # The ends of a part are exactly those of its neighbors. Pieces above the range have no
        # length, nor has what comes after the last one.
        begin_t, end_t = position(begin, low, high), position(end, low, high)
        share = jnp.maximum(end_t - begin_t, 0) / many
        scale = 0.5 * (high - low)
        # The first coefficient is taken off first: what remains is small, and rounds less.
        own = x - coefficients[0]
        rest = [jnp.zeros_like(own), *coefficients[1:]]
        total = jnp.zeros_like(own)
        for point, weight in zip(points, weights, strict=True):
            t = begin_t + share * (number + 0.5 * (1 + point))
            z = low + scale * (1 + t)
            u = (own - polynomial(rest, t)) / sigma
            noise = -0.5 * u * u if side is None else log_ndtr(side * u)
            total = total + 0.5 * weight * jnp.exp(noise - 0.5 * z * z - found.top)
        return total * (share * scale), many

    def step(state: tuple[Array, Array, Array], _: None) -> tuple[Any, None]:
        total, index, number = state

        def add() -> tuple[Array, Array, Array]:
            part, many = part_of(index, number)
            passed = number + 1 >= many
            return total + part, index + passed, jnp.where(passed, 0, number + 1)

        return lax.cond(any_point(index <= found.last), add, lambda: state), None

    begun = jnp.zeros_like(x), found.first, jnp.zeros_like(x)
    most = _PARTS + pieces.coefficients.shape[1]
    total = lax.scan(step, begun, None, length=most)[0][0]
    if side is not None:
        total = total + jnp.exp(found.beyond - found.top)
    return found.top + jnp.log(total)
