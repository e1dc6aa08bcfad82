"""Normal scores of points, and points with given normal scores."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from nn_uq_dist.basics.concrete import as_jax
from nn_uq_dist.basics.normal_tails import log_normal_density, score_from_log_survival
from nn_uq_dist.basics.quantile_search import quantile_at_score
from nn_uq_dist.basics.row_algebra import namespace
from nn_uq_dist.uniform_sum._evaluate import log_density_and_survival
from nn_uq_dist.uniform_sum._uniform_sum import distance_from_edge
from nn_uq_dist.uniform_sum.concrete import MOST_POINTS
from nn_uq_dist.uniform_sum.saddlepoint_quantile import saddlepoint_quantile

# Weights of all points up to which a search runs outside of a program.
_MOST_NUMBERS = 2**22


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
    log_tail = at_most_half(x, log_tail)
    xp = namespace(x)
    if xp is np:
        score = score_now(log_tail)
        # Otherwise the rounding of log(1/2) would be visible.
        score = np.where((x == 0) & np.isfinite(score), score.dtype.type(0.0), score)
    else:
        score = score_from_log_survival(log_tail)
    return xp.where(x < 0, -score, score)


def score_now(log_tail: Any) -> Any:
    """`score_from_log_survival` of NumPy arrays."""
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
        given = (None if part is None else as_jax(part) for part in (score, weights, normal_scale))
        return np.asarray(_value_at_score(*given))
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

    def evaluate(x: Any) -> tuple[Any, Any]:
        density, tail = log_density_and_survival(x, weights, normal_scale)
        return score_at(x, tail), density

    target = xp.where(usable, target, xp.nan).astype(score.dtype)
    x = quantile_at_score(target, start, xp.zeros_like(start), high, evaluate)
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
        lambda distribution: log_density_and_survival(safe, *distribution),
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
