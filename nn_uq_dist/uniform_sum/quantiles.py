r"""Normal scores of points, and quantiles: points with given normal scores.

A quantile is sought from the saddlepoint approximation. The distribution tilted by ``exp(t x)`` has
the mean ``K'(t)``. The normal score of that point under the distribution itself is, with
``r^2/2 = t K'(t) - K(t)`` (Chernoff's exponent) and ``v^2 = t^2 K''(t)``,

.. math:: z \approx r + \frac{1}{r} \log\frac{v}{r}

(O. E. Barndorff-Nielsen, Biometrika 73, 1986). For sums of uniforms and a normal the tail
probability is accurate to a few percent *everywhere*: at the center, near the edge of the support,
where a small normal part takes over from the uniforms, and beyond.
"""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from nn_uq_dist.basics.chunks import any_point
from nn_uq_dist.basics.concrete import as_jax
from nn_uq_dist.basics.normal_tails import (
    log_normal_density,
    quantile_at_score,
    score_from_log_survival,
)
from nn_uq_dist.basics.row_algebra import namespace
from nn_uq_dist.uniform_sum._each_point import BOTH
from nn_uq_dist.uniform_sum._uniform_sum import distance_from_edge, sums_of
from nn_uq_dist.uniform_sum.points import MOST_POINTS, evaluate

# Weights of all points up to which a search runs outside of a program.
_MOST_NUMBERS = 2**22


# Below this product of weight and tilt the closed forms cancel; the series are accurate to 1e-5.
_SMALL = 0.5
# This close to the center the distribution is practically normal, and the correction would be
# rounding error.
_LEAST_SCORE = 1e-3
_LEAST_CORRECTED = 0.1
_MAX_ITERATIONS = 30
_NEAR_ENOUGH = 0.1


def at_most_half(x: Any, log_tail: Any) -> Any:
    """The tail beyond ``|x|``: ``log(1/2)`` at the center, at most that elsewhere.

    Rounding may miss or exceed this. The derivative passes through.
    """
    xp = namespace(log_tail)
    excess = log_tail - math.log(0.5)
    kept = (excess > 0) | ((x == 0) & xp.isfinite(excess))
    excess = xp.where(kept, excess, 0.0).astype(log_tail.dtype)
    return log_tail - (excess if xp is np else lax.stop_gradient(excess))


def score_at(x: Any, log_tail: Any) -> Any:
    """Normal score of points from the log tails beyond their magnitudes."""
    score = score_of_tail(at_most_half(x, log_tail))
    xp = namespace(x)
    if xp is np:
        # Otherwise the rounding of log(1/2) would be visible.
        score = np.where((x == 0) & np.isfinite(score), score.dtype.type(0.0), score)
    return xp.where(x < 0, -score, score)


def score_of_tail(log_tail: Any) -> Any:
    """Normal score whose upper tail has this log probability."""
    if namespace(log_tail) is not np:
        return score_from_log_survival(log_tail)
    from scipy.special import ndtri_exp

    return -ndtri_exp(log_tail.astype(np.float64)).astype(log_tail.dtype)


def value_at_score(score: Any, weights: Any, normal_scale: Any) -> Any:
    """``x >= 0`` whose normal score is ``score >= 0``; NumPy arrays give NumPy arrays.

    Parameters
    ----------
    score : Array, shape (...)
        Infinite at the end of the support.
    weights : Array, shape (..., n)
    normal_scale : Array, shape (...), or None

    Notes
    -----
    Two or three evaluations from the saddlepoint approximation, for nearly all distributions.
    """
    if namespace(score) is not np:
        return _value_at_score(score, weights, normal_scale)
    scale_shape = () if normal_scale is None else normal_scale.shape
    size = math.prod(np.broadcast_shapes(score.shape, weights.shape[:-1], scale_shape))
    if size > MOST_POINTS or size * weights.shape[-1] > _MOST_NUMBERS:
        return np.asarray(_value_at_score(*jax.tree.map(as_jax, (score, weights, normal_scale))))
    with np.errstate(all="ignore"):
        return _solved(score, weights, normal_scale)


def _solved(score: Any, weights: Any, normal_scale: Any) -> Any:
    xp = namespace(score)
    eps = float(jnp.finfo(score.dtype).eps)
    scale = xp.zeros((), score.dtype) if normal_scale is None else normal_scale
    magnitudes = xp.abs(weights)
    width = _width(magnitudes)
    unit = width + scale
    proper = (unit > 0) & xp.isfinite(unit)
    unit = xp.where(proper, unit, 1.0).astype(score.dtype)
    target = xp.where(xp.isfinite(score), score, 1.0).astype(score.dtype)
    # A normal part too small for the type to resolve at the edge is always added: it bounds the
    # tilts that lead to the edge.
    least = xp.where(proper, xp.maximum(scale / unit, 0.25 * eps), 1.0).astype(score.dtype)
    parts = xp.where(proper[..., None], magnitudes / unit[..., None], 1.0).astype(score.dtype)
    start = unit * saddlepoint_quantile(target, parts, least)
    start, score, target, width, scale, proper = xp.broadcast_arrays(
        start, score, target, width, scale, proper
    )
    usable = proper & xp.isfinite(score)
    # P(X > width + s z) <= P(s N > s z)
    high = xp.where(proper, width + scale * target, 1.0)
    # Nothing can be evaluated at the edge of the support itself.
    last = xp.where(scale > 0, high, width * (1 - eps))
    start = xp.where(score == 0, 0.0, xp.clip(start, 0.0, last)).astype(score.dtype)

    def score_and_log_density(x: Any) -> tuple[Any, Any]:
        density, tail = evaluate(BOTH, x, weights, normal_scale)
        return score_at(x, tail), density

    target = xp.where(usable, target, xp.nan).astype(score.dtype)
    x = quantile_at_score(target, start, xp.zeros_like(start), high, score_and_log_density)
    end = xp.where(scale > 0, xp.inf, width).astype(score.dtype)
    return xp.where(proper & (score == xp.inf), end, x)


# Compiled here, so that eager derivatives do not compile their loops anew.
_value_at_score = jax.custom_jvp(jax.jit(_solved))


@_value_at_score.defjvp
def _value_at_score_jvp(
    primals: tuple[Array, Array, Array | None], tangents: tuple[Array, Array, Array | None]
) -> tuple[Array, Array]:
    # Implicit function theorem: P(X > x(z, w, s); w, s) = Phi(-z).
    score, *distribution = primals
    x = _value_at_score(score, *distribution)
    inside = jnp.isfinite(x)
    safe = jnp.where(inside, x, 0.0)
    (density, tail), (_, moved) = jax.jvp(
        lambda distribution: evaluate(BOTH, safe, *distribution),
        (tuple(distribution),),
        (tuple(tangents[1:]),),
    )
    inside = inside & jnp.isfinite(density)
    density = jnp.where(inside, density, 0.0)
    of_score = jnp.exp(log_normal_density(score) - density) * tangents[0]
    of_distribution = jnp.exp(tail - density) * jnp.where(inside, moved, 0.0)
    return x, jnp.where(inside, of_score + of_distribution, 0.0)


def _width(magnitudes: Any) -> Any:
    """Half-width of the support, as accurate as distances from the edge.

    Rounding must not put the last point inside beyond the edge.
    """
    if namespace(magnitudes) is np:
        return magnitudes.sum(axis=-1, dtype=np.longdouble).astype(magnitudes.dtype)
    sizes = jnp.moveaxis(magnitudes, -1, 0)
    return distance_from_edge(jnp.zeros(sizes.shape[1:], sizes.dtype), sizes)


def resolved_scale(normal_scale: Any, weights: Any) -> Any:
    """The normal scale, zero where it is below the rounding of values at the edge of the uniforms.

    There the difference that it makes is between neighboring values, and integrands that resolve
    it would need frequencies whose powers overflow.
    """
    xp = namespace(weights, normal_scale)
    # Not times the sum, which may overflow.
    least = (xp.abs(weights) * float(jnp.finfo(weights.dtype).eps)).sum(axis=-1)
    lost = xp.where(normal_scale <= least, normal_scale, 0).astype(normal_scale.dtype)
    # Derivatives are those at zero; that of a selected zero would be zero, the second one, too.
    return normal_scale - (lost if xp is np else lax.stop_gradient(lost))


def saddlepoint_quantile(score: Any, weights: Any, normal_scale: Any) -> Any:
    """Point with approximately this normal score; NumPy arrays give NumPy arrays.

    Parameters
    ----------
    score : Array, shape (...)
        Non-negative and finite.
    weights : Array, shape (..., n)
        Not negative; of a finite sum.
    normal_scale : Array, shape (...)
        Positive: a bounded distribution gets one too small to matter.

    Notes
    -----
    Newton's method in ``log t``, in which Chernoff's exponent is convex: from the right it
    converges monotonically. The start is on the right, because the exponent of one component is at
    least ``log(1 + (w t)^2/3)/2``, and the product of such brackets at least one plus the sum.
    """
    xp = namespace(score)
    score = xp.maximum(score, _LEAST_SCORE)
    missing = tuple(range(max(score.ndim, normal_scale.ndim) + 1 - weights.ndim))
    weights = xp.moveaxis(xp.expand_dims(weights, missing), -1, 0)
    width = xp.sum(weights, axis=0)
    deviation = xp.sqrt(xp.sum(weights * weights, axis=0) / 3.0)
    root = xp.sqrt(xp.expm1(xp.minimum(score * score, 80.0)))
    start = xp.minimum(root / xp.maximum(deviation, normal_scale), score / normal_scale)

    def step(state: tuple[Any, ...]) -> tuple[Any, ...]:
        count, log_tilt, _ = state
        tilt = xp.exp(log_tilt)
        exponent, spread, _ = _tilted(xp, tilt, weights, normal_scale)
        root = xp.sqrt(2.0 * exponent)
        corrected = root > _LEAST_CORRECTED
        safe = xp.where(corrected, root, 1.0)
        correction = xp.where(corrected, xp.log(xp.sqrt(spread) / safe) / safe, 0.0)
        wanted = score - correction
        move = (0.5 * wanted * wanted - exponent) / spread
        return count + 1, log_tilt + move, xp.abs(move)

    def unfinished(state: tuple[Any, ...]) -> Any:
        return (state[0] < _MAX_ITERATIONS) & any_point(state[2] > _NEAR_ENOUGH)

    state: tuple[Any, ...] = (0, xp.log(start), xp.full_like(start, np.inf))
    if xp is np:
        while state[0] < _MAX_ITERATIONS and (state[2] > _NEAR_ENOUGH).any():
            state = step(state)
    else:
        state = lax.while_loop(unfinished, step, (jnp.asarray(0), *state[1:]))
    tilt = xp.exp(state[1])
    gap = _tilted(xp, tilt, weights, normal_scale)[2]
    return width - gap + normal_scale * (normal_scale * tilt)


def _tilted(xp: Any, tilt: Any, weights: Any, normal_scale: Any) -> tuple[Any, Any, Any]:
    """``t K'(t) - K(t)``, ``t^2 K''(t)``, and the distance of the uniforms' mean from the edge."""
    product = weights * tilt
    small = product < _SMALL
    square = xp.where(small, product * product, 0.0)
    a = xp.where(small, 1.0, product)
    decay = xp.exp(-2.0 * a)
    rest = 1.0 - decay
    ratio = decay / rest
    exponent = xp.where(
        small,
        square * (1.0 / 6.0 - square * (1.0 / 60.0 - square / 567.0)),
        2.0 * a * ratio - 1.0 + xp.log(2.0 * a / rest),
    )
    spread = xp.where(
        small,
        square * (1.0 / 3.0 - square * (1.0 / 15.0 - square * 2.0 / 189.0)),
        1.0 - 4.0 * a * a * ratio / rest,
    )
    # 1 - L(a), L(a) = coth a - 1/a the Langevin function
    gap = xp.where(
        small,
        1.0 - product * (1.0 / 3.0 - square * (1.0 / 45.0 - square * 2.0 / 945.0)),
        1.0 / a - 2.0 * ratio,
    )
    normal = normal_scale * tilt
    terms = exponent, spread, weights * gap
    exponent, spread, gap = [part.sum(axis=0) for part in terms] if xp is np else sums_of(*terms)
    return exponent + 0.5 * normal * normal, spread + normal * normal, gap


def corners(weights: Any) -> Any:
    """``|w_1 +- w_2 +- w_3|`` of the largest weights, where the density bends, shape (4, ...).

    The density of a sum of uniforms is a spline with knots at the sums of ``+-w_k``. From four
    weights on it is smooth enough at the others. NumPy arrays give NumPy arrays.
    """
    xp = namespace(weights)
    missing = [(0, 0)] * (weights.ndim - 1) + [(0, max(3 - weights.shape[-1], 0))]
    sizes = xp.pad(xp.abs(weights), missing)
    largest = -np.sort(-sizes)[..., :3] if xp is np else lax.top_k(sizes, 3)[0]
    first, second, third = xp.moveaxis(largest, -1, 0)
    inner = first - second
    return xp.stack(
        [first + second + third, first + second - third, inner + third, abs(inner - third)]
    )
