r"""Differential entropy by quadrature, with nodes over the values of the distribution.

An integral :math:`\int f(z(x))\,dx` of a function of the normal score ``z`` needs dense nodes
where ``z`` bends: near the edge of the support and where a small weight or a small normal part
rounds off a corner of the density. Quantiles at equidistant scores would work, but must be solved
for. The means of the exponentially tilted distribution,

.. math:: x(t) = K'(t), \qquad dx = K''(t)\,dt,

work as well and are explicit. The score of ``x(t)`` is close to the signed root ``r(t) = sqrt(2 (t
K'(t) - K(t)))`` of the saddlepoint approximation (Daniels 1954; Lugannani and Rice 1980) for all
patterns of weights, so that panels at equal steps of ``r`` are panels at about equal steps of
``z``.
"""

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.typing import ArrayLike

from nn_uq_dist.basics.nodes import gauss_legendre
from nn_uq_dist.basics.row_algebra import binary_unit
from nn_uq_dist.uniform_sum._functions import logpdf, prepare
from nn_uq_dist.uniform_sum._uniform_component import (
    distance_from_one,
    langevin_and_slope,
    log_mgf_below_edge,
)

# he_k phi is at most about sqrt(phi): 1e-11 at the end of the range.
_RANGE = 10.0
_PANELS = 14
# Up to this many weights times nodes, going point by point is as fast as the common lines of
# the nodes, and compiles in less than two thirds of the time.
_FEW_FACTORS = 2**19


def entropy(weights: ArrayLike, normal_scale: ArrayLike | None = None) -> Array:
    r"""Differential entropy ``-E[log p(X)]`` in nats.

    Parameters
    ----------
    weights : array_like, shape (..., n)
        Weights of the uniforms on [-1, 1].
    normal_scale : array_like, shape (...), optional
        Standard deviation of the normal part.

    Returns
    -------
    Array, shape (...)

    Raises
    ------
    ValueError, TypeError
        As in `logpdf`.

    Notes
    -----
    Quadrature of ``-2 p log p`` over the upper half of the distribution, with panels that are dense
    near the edge of the support and where a small weight or a small normal part rounds off a corner
    of the density. The error is below 1e-9 in float64 and below 1e-5 in float32.

    Examples
    --------
    >>> import math
    >>> from nn_uq_dist import uniform_sum
    >>> value = uniform_sum.entropy([1.0])  # log 2
    >>> abs(float(value) - math.log(2.0)) < 1e-6
    True
    """
    a = prepare("x", 0.0, weights, normal_scale)
    magnitudes, scale = a.numpy.abs(a.weights), a.normal_scale
    largest = magnitudes.max(axis=-1)
    if scale is not None:
        largest = a.numpy.maximum(largest, scale)
    # In a unit of the size of the distribution: otherwise errors in the mass of the quadrature
    # would be multiplied by the logarithm of the unit.
    unit = binary_unit(largest)
    magnitudes, scale = magnitudes / unit[..., None], None if scale is None else scale / unit
    values, lengths = value_nodes(magnitudes, scale)
    # The nodes stop where the type does not resolve the distance from the edge any more: a density
    # that jumps there is the same up to the edge.
    width = jnp.sum(magnitudes, axis=-1)
    rest = jnp.maximum(width - jnp.sum(lengths, axis=0), 0.0)
    values = jnp.concatenate([values, (width - 0.5 * rest)[None]])
    lengths = jnp.concatenate([lengths, rest[None]])
    if values.size * magnitudes.shape[-1] <= _FEW_FACTORS:  # else the nodes share a distribution
        magnitudes = jnp.broadcast_to(magnitudes, (*values.shape, magnitudes.shape[-1]))
    logs = logpdf(values, magnitudes, scale)
    # An end in the far tail may underflow to a density of zero.
    safe = jnp.where(logs == -jnp.inf, 0.0, logs)
    share = lengths * jnp.exp(logs)
    mass = jnp.sum(share, axis=0)
    # In units of the mass found, which cancels the errors that all densities have in common.
    return jnp.log(2.0 * mass) - jnp.sum(share * safe, axis=0) / mass + jnp.log(unit)


@jax.jit
def value_nodes(weights: Array, normal_scale: Array | None) -> tuple[Array, Array]:
    """Nodes over the values of each distribution, about 500 of them.

    Parameters
    ----------
    weights : Array, shape (..., n)
    normal_scale : Array, shape (...), or None

    Returns
    -------
    tuple of Array, shape (Q, ...)
        Nodes, at or above the center, and their weights against ``dx``.

    Notes
    -----
    Panels end at the knots of the density at the sums of the three largest weights, where the score
    is not smooth, and as far around them as the rest of the distribution rounds them off. The nodes
    move with the distribution at fixed tilts: at fixed values the derivative of an integral in a
    weight would have a boundary layer at the edge.
    """
    scale = jnp.zeros((), weights.dtype) if normal_scale is None else normal_scale
    scale = jnp.where(scale >= 0, scale, jnp.nan)
    lead = jnp.broadcast_shapes(weights.shape[:-1], scale.shape)
    magnitudes = jnp.moveaxis(jnp.abs(weights), -1, 0)
    magnitudes = jnp.broadcast_to(
        magnitudes.reshape(-1, *(1,) * (len(lead) + 1 - magnitudes.ndim), *magnitudes.shape[1:]),
        (weights.shape[-1], *lead),
    )
    scale = jnp.broadcast_to(scale, lead)
    # The largest parameter is the unit, so that no square over- or underflows.
    unit = lax.stop_gradient(jnp.maximum(jnp.max(magnitudes, axis=0), scale))
    parts, normal_variance = magnitudes / unit, (scale / unit) ** 2
    variance = jnp.sum(parts**2, axis=0) / 3 + normal_variance
    given = (lax.stop_gradient(part) for part in (parts, normal_variance, variance))
    tilts, steps = _tilts(*given)
    langevin, slope = langevin_and_slope(parts[:, None] * tilts)
    mean, spread = _sums(parts[:, None] * langevin, parts[:, None] ** 2 * slope)
    mean, spread = mean + normal_variance * tilts, spread + normal_variance
    return unit * mean, unit * spread * steps


def _tilts(weights: Array, normal_variance: Array, variance: Array) -> tuple[Array, Array]:
    """Nodes in the tilt and their weights, shape (Q, ...)."""
    width = jnp.sum(weights, axis=0)
    deviation, scale = jnp.sqrt(variance), jnp.sqrt(normal_variance)
    # Closer to the edge than this, the type does not resolve the distance from the edge; nor does
    # it resolve a normal part of less than its rounding.
    eps = jnp.finfo(weights.dtype).eps
    rounded = scale > eps * width
    highest = jnp.where(rounded, _RANGE / jnp.where(rounded, scale, 1), 0.01 / (eps * width))

    # r grows like the tilt near the center and like the root of its logarithm near an edge.
    def tilt_at(v: Array) -> Array:
        return jnp.sinh(v) / deviation

    last = jnp.arcsinh(highest * deviation)
    furthest = _root_and_distance(weights, normal_variance, tilt_at(last[None]))[0]
    share = jnp.arange(1, _PANELS + 1, dtype=weights.dtype) / _PANELS
    levels = share.reshape(-1, *(1,) * variance.ndim) * jnp.minimum(furthest, _RANGE)
    corners = _with_surroundings(_corners(weights), weights, normal_variance)

    def halve(_: int, bracket: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = bracket
        middle = 0.5 * (low + high)
        root, distance = _root_and_distance(weights, normal_variance, tilt_at(middle))
        is_left = jnp.concatenate([root[:_PANELS] < levels, distance[_PANELS:] > corners])
        return jnp.where(is_left, middle, low), jnp.where(is_left, high, middle)

    high = jnp.broadcast_to(last, (_PANELS + len(corners), *last.shape))
    steps = jnp.finfo(weights.dtype).nmant + 4
    low, _ = lax.fori_loop(0, steps, halve, (jnp.zeros_like(high), high))
    ends = jnp.sort(jnp.concatenate([jnp.zeros_like(last)[None], low]), axis=0)
    nodes, rule = gauss_legendre(ends)
    return tilt_at(nodes), rule * jnp.cosh(nodes) / deviation


def _corners(weights: Array) -> Array:
    """Distances from the edge of the knots at ``|w_1 +- w_2 +- w_3|``, shape (4, ...)."""
    ordered = -jnp.sort(-weights, axis=0)
    ordered = jnp.pad(ordered, [(0, max(3 - len(ordered), 0))] + [(0, 0)] * (ordered.ndim - 1))
    first, second, third = ordered[:3]
    inner = [jnp.zeros_like(first), third, second, jnp.minimum(first, second + third)]
    return jnp.sum(ordered[3:], axis=0) + 2 * jnp.stack(inner)


def _with_surroundings(corners: Array, weights: Array, normal_variance: Array) -> Array:
    """The corners, and how far the other weights and the normal part round them off."""
    rest = -jnp.sort(-weights, axis=0)[3:]
    spread = jnp.sqrt(jnp.sum(rest**2, axis=0) / 3 + normal_variance)
    largest = jnp.max(rest, axis=0, initial=0.0)
    # Smooth distributions have no more corner at 7 standard deviations; a fourth weight has its own
    # there.
    offsets = (largest, 3 * spread, 7 * spread)
    moved = [corners + sign * offset for offset in offsets for sign in (-1, 1)]
    return jnp.concatenate([corners, *moved])


def _root_and_distance(weights: Array, normal_variance: Array, tilt: Array) -> tuple[Array, Array]:
    """Signed root ``r`` and distance ``sum(w) - K'`` of the tilted mean from the edge.

    Weights of shape (n, ...) and tilts of shape (m, ...); the distance is negative beyond the edge.
    """
    weights = weights[:, None]
    product = weights * tilt
    distance = weights * distance_from_one(product)
    terms = -tilt * distance - log_mgf_below_edge(weights, tilt)
    half_square, total = _sums(terms, distance)
    half_square = half_square + 0.5 * normal_variance * tilt**2
    return jnp.sqrt(2 * jnp.maximum(half_square, 0)), total - normal_variance * tilt


def _sums(first: Array, second: Array) -> tuple[Array, Array]:
    """Both sums over the weights, as one complex sum: XLA would evaluate the terms of two twice."""
    total = jnp.sum(lax.complex(first, second), axis=0)
    return total.real, total.imag
