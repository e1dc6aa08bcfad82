r"""Quantiles by the saddlepoint approximation, so close that two or three exact steps suffice.

The law tilted by ``exp(t x)`` has the mean ``K'(t)``. The normal score of that point under the law
itself is, with ``r^2/2 = t K'(t) - K(t)`` (Chernoff's exponent) and ``v^2 = t^2 K''(t)``,

.. math:: z \approx r + \frac{1}{r} \log\frac{v}{r}

(O. E. Barndorff-Nielsen, Biometrika 73, 1986). For sums of uniforms and a normal the tail
probability is accurate to a few percent *everywhere*: at the center, near the edge of the support,
where a small normal part takes over from the uniforms, and beyond.
"""

import math
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import lax

from nn_uq_dist.basics._blocks import any_point
from nn_uq_dist.basics._row_algebra import namespace

# Below this product of weight and tilt the closed forms cancel; the series are accurate to 1e-5.
_SMALL = 0.5
# This close to the center the law is practically normal, and the correction would be rounding
# error.
_LEAST_SCORE = 1e-3
_LEAST_CORRECTED = 0.1
_MAX_ITERATIONS = 30
_NEAR_ENOUGH = 0.1
_NUM_KNOTS = 32


class ApproximateQuantile(NamedTuple):
    """A point, and the rate at which the tail falls there; all of shape (...).

    Attributes
    ----------
    x : Array
        Within .01 tilted standard deviations of the quantile for most laws, .4 for all.
    deviation : Array
        Standard deviation of the tilted law: the distance over which tails change their slope.
    rate : Array
        ``-d log p / dx``, non-negative.
    """

    x: Any
    deviation: Any
    rate: Any


class _TiltedLaw(NamedTuple):
    """Tilt, distance of the mean of the uniforms from the edge, standard deviation, rate/tilt."""

    tilt: Any
    gap: Any
    deviation: Any
    decay: Any


def saddlepoint_quantile(score: Any, weights: Any, normal_scale: Any) -> ApproximateQuantile:
    """Point with approximately this normal score; NumPy arrays give NumPy arrays.

    Parameters
    ----------
    score : Array, shape (...)
        Non-negative and finite.
    weights : Array, shape (..., n)
        Any sign, zeros allowed.
    normal_scale : Array, shape (...)
        With all axes of the law; zero for a bounded law.

    Notes
    -----
    Defined for laws with a finite, positive width or scale; arbitrary for others.
    """
    xp = namespace(score)
    weights = xp.abs(weights)
    width = xp.sum(weights, axis=-1)
    unit = width + normal_scale
    valid = (unit > 0) & xp.isfinite(unit)
    unit = xp.where(valid, unit, 1.0)
    weights = xp.where(valid[..., None], weights / unit[..., None], 1.0)
    # A normal part too small for the type to resolve at the edge is always added: it bounds the
    # tilts that lead to the edge.
    scale = xp.maximum(normal_scale / unit, 0.25 * float(jnp.finfo(score.dtype).eps))
    scale = xp.where(valid, scale, 1.0)

    shape = np.broadcast_shapes(score.shape, scale.shape)
    score = xp.broadcast_to(score, shape)
    added = tuple(range(len(shape) - scale.ndim))
    scale = xp.expand_dims(scale, added)
    missing = tuple(range(len(shape) + 1 - weights.ndim))
    weights = xp.moveaxis(xp.expand_dims(weights, missing), -1, 0)

    pays = math.prod(shape) >= 2 * _NUM_KNOTS * scale.size > 0
    law = (_interpolated if pays else _solved)(xp, score, weights, scale)
    distance = law.gap - scale * (scale * law.tilt)
    return ApproximateQuantile(
        width - unit * distance, unit * law.deviation, law.decay * law.tilt / unit
    )


def _solved(xp: Any, score: Any, weights: Any, normal_scale: Any) -> _TiltedLaw:
    """Tilted law whose mean has approximately this score; weights (n, ...), a positive scale.

    Newton's method in ``log t``, in which Chernoff's exponent is convex: from the right it
    converges monotonically. The start is on the right, because the exponent of one component is
    at least ``log(1 + (w t)^2/3)/2``, and the product of such brackets at least one plus the sum.
    """
    score = xp.maximum(score, _LEAST_SCORE)
    deviation = xp.sqrt(xp.sum(weights * weights, axis=0) / 3.0)
    of_uniforms = xp.sqrt(xp.expm1(xp.minimum(score * score, 80.0))) / deviation
    start = xp.log(xp.minimum(of_uniforms, score / normal_scale))

    def step(state: tuple[Any, Any, Any, Any]) -> tuple[Any, Any, Any, Any]:
        count, log_tilt, _, _ = state
        tilt = xp.exp(log_tilt)
        exponent, spread = _exponent_and_spread(xp, weights * tilt, normal_scale * tilt)
        root = xp.sqrt(2.0 * exponent)
        corrected = root > _LEAST_CORRECTED
        safe = xp.where(corrected, root, 1.0)
        correction = xp.where(corrected, xp.log(xp.sqrt(spread) / safe) / safe, 0.0)
        wanted = score - correction
        move = (0.5 * wanted * wanted - exponent) / spread
        return count + 1, log_tilt + move, xp.abs(move), spread

    def unfinished(state: tuple[Any, Any, Any, Any]) -> Any:
        return (state[0] < _MAX_ITERATIONS) & any_point(state[2] > _NEAR_ENOUGH)

    state: tuple[Any, Any, Any, Any] = (0, start, xp.full_like(start, np.inf), start)
    if xp is np:
        while state[0] < _MAX_ITERATIONS and (state[2] > _NEAR_ENOUGH).any():
            state = step(state)
    else:
        state = lax.while_loop(unfinished, step, (jnp.asarray(0), *state[1:]))
    # The last spread belongs to a nearby tilt, which suffices: the mean does not depend on it.
    return _tilted_law(xp, xp.exp(state[1]), state[3], weights)


def _interpolated(xp: Any, score: Any, weights: Any, normal_scale: Any) -> _TiltedLaw:
    """`_solved` for many scores of one law: solved for some, interpolated between them.

    Scores along axes on which ``normal_scale`` has length one share the law.
    """
    shared = tuple(axis for axis in range(score.ndim) if normal_scale.shape[axis] == 1)
    largest = xp.maximum(xp.max(score, axis=shared, keepdims=True), 1.0)
    # Evenly spaced in the inverse hyperbolic sine, so that one far score leaves knots for the
    # others.
    spacing = xp.arcsinh(largest) / (_NUM_KNOTS - 1)
    index = xp.arange(_NUM_KNOTS, dtype=score.dtype).reshape(-1, *[1] * score.ndim)
    knots = xp.maximum(xp.sinh(spacing * index), _LEAST_SCORE)
    law = _solved(xp, knots, weights[:, None], normal_scale)

    position = xp.arcsinh(score) / spacing
    left = xp.clip(xp.floor(position), 0, _NUM_KNOTS - 2)
    share = position - left
    left = left.astype(np.int32)[None]

    def between(values: Any) -> Any:
        low, high = (xp.take_along_axis(values, left + i, axis=0)[0] for i in (0, 1))
        return low + share * (high - low)

    # The tilt starts out proportional to the score; later all values grow or fall roughly
    # exponentially.
    tiny = float(jnp.finfo(score.dtype).tiny)
    return _TiltedLaw(
        tilt=xp.maximum(score, _LEAST_SCORE) * xp.exp(between(xp.log(law.tilt / knots))),
        gap=xp.exp(between(xp.log(xp.maximum(law.gap, tiny)))),
        deviation=xp.exp(between(xp.log(law.deviation))),
        decay=between(law.decay),
    )


def _exponent_and_spread(xp: Any, product: Any, normal: Any) -> tuple[Any, Any]:
    """``t K'(t) - K(t)`` and ``t^2 K''(t)`` from the tilt times the weights and the scale."""
    small, square, a, decay = _arguments(xp, product)
    complement = 1.0 - decay
    ratio = decay / complement
    exponent = xp.where(
        small,
        square * (1.0 / 6.0 - square * (1.0 / 60.0 - square / 567.0)),
        2.0 * a * ratio - 1.0 + xp.log(2.0 * a / complement),
    )
    spread = xp.where(
        small,
        square * (1.0 / 3.0 - square * (1.0 / 15.0 - square * 2.0 / 189.0)),
        1.0 - 4.0 * a * a * ratio / complement,
    )
    exponent, spread = _sums(xp, exponent, spread)
    return exponent + 0.5 * normal * normal, spread + normal * normal


def _tilted_law(xp: Any, tilt: Any, spread: Any, weights: Any) -> _TiltedLaw:
    product = weights * tilt
    small, square, a, decay = _arguments(xp, product)
    complement = 1.0 - decay
    ratio = decay / complement
    # 1 - L(a), L(a) = coth a - 1/a the Langevin function
    gap = xp.where(
        small,
        1.0 - product * (1.0 / 3.0 - square * (1.0 / 45.0 - square * 2.0 / 945.0)),
        1.0 / a - 2.0 * ratio,
    )
    # a^3 L''(a), to which the normal part does not contribute. With p = exp(K - t x)/sqrt(2 pi K'')
    # at x = K'(t), -d log p / dx = t + K'''/(2 K''^2).
    skewness = xp.where(
        small,
        -square * square * (2.0 / 15.0 - square * 8.0 / 189.0),
        8.0 * a * a * a * (1.0 + decay) * ratio / (complement * complement) - 2.0,
    )
    gap, skewness = _sums(xp, weights * gap, skewness)
    return _TiltedLaw(
        tilt=tilt,
        gap=gap,
        deviation=xp.sqrt(spread) / tilt,
        decay=xp.clip(1.0 + 0.5 * skewness / (spread * spread), 0.0, 1.0),
    )


def _sums(xp: Any, first: Any, second: Any) -> tuple[Any, Any]:
    """Sums over the weights."""
    if xp is np:
        return first.sum(axis=0), second.sum(axis=0)
    # One complex sum instead of two real ones: XLA would evaluate the terms twice.
    total = jnp.sum(lax.complex(first, second), axis=0)
    return total.real, total.imag


def _arguments(xp: Any, product: Any) -> tuple[Any, Any, Any, Any]:
    """Where the series hold, their argument, that of the closed forms ``a``, and ``exp(-2 a)``."""
    small = product < _SMALL
    square = xp.where(small, product * product, 0.0)
    a = xp.where(small, 1.0, product)
    return small, square, a, xp.exp(-2.0 * a)
