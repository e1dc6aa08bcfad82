"""Quantiles of the upper tail, solved on the log survival scale."""

import jax
import jax.numpy as jnp
from jax import Array, lax

from nn_uq_dist.linear_combination._any_point import any_point
from nn_uq_dist.linear_combination._dispatch import log_density_and_survival
from nn_uq_dist.linear_combination._normal_score import score_from_log_survival
from nn_uq_dist.linear_combination._precision import precision

_MAX_ITERATIONS = 100


@jax.custom_jvp
@jax.jit
def upper_quantile(log_survival: Array, weights: Array, normal_scale: Array | None) -> Array:
    """``x >= 0`` with ``log P(X > x) = log_survival``, for ``log_survival <= log(1/2)``.

    Parameters
    ----------
    log_survival : Array, shape (...)
    weights : Array, shape (..., n)
    normal_scale : Array, shape (...), or None

    Notes
    -----
    Newton's method, safeguarded by a bracket. For a bounded law the unknown is the logarithm of the
    distance ``d`` from the edge: there ``log P`` is nearly linear, ``n log d``, while
    it is infinitely steep in ``x``. With a normal part it is ``x``, in which ``log P`` is concave.
    """
    return iterate_quantile(log_survival, weights, normal_scale)[0]


def iterate_quantile(
    log_survival: Array, weights: Array, normal_scale: Array | None
) -> tuple[Array, Array]:
    """`upper_quantile` and the number of steps that the slowest point took."""
    width = jnp.sum(jnp.abs(weights), axis=-1)
    variance = jnp.sum(weights * weights, axis=-1) / 3.0
    bounded = jnp.ones(width.shape, bool)
    if normal_scale is not None:
        variance = variance + normal_scale * normal_scale
        bounded = normal_scale == 0
    shape = jnp.broadcast_shapes(log_survival.shape, variance.shape)
    target, width, deviation, bounded = (
        jnp.broadcast_to(part, shape) for part in (log_survival, width, jnp.sqrt(variance), bounded)
    )
    tolerance = precision(log_survival.dtype).root_tolerance
    eps = jnp.finfo(log_survival.dtype).eps
    usable = jnp.isfinite(target) & (deviation > 0) & jnp.isfinite(width)
    start = deviation * score_from_log_survival(jnp.where(usable, target, -1.0))
    start = jnp.where(bounded, jnp.minimum(start, 0.9 * width), start)
    # The normal tail is the heavier one beyond the bounded part.
    highest = jnp.where(bounded, width, jnp.inf)

    last_inside = width * (1 - eps)

    State = tuple[Array, Array, Array, Array, Array, Array]

    def step(state: State) -> State:
        count, x, low, high, last_change, ready = state
        density, value = log_density_and_survival(x, weights, normal_scale)
        excess = value - target
        low = jnp.where(excess > 0, x, low)
        high = jnp.where(excess < 0, x, high)
        change = excess * jnp.exp(value - density)
        gap = width - x
        bent = x - gap * jnp.expm1(-change / jnp.where(bounded, gap, 1.0))
        # Nothing can be evaluated at the edge itself; one step of the type inside tells whether
        # the quantile lies beyond what the type resolves.
        at_edge = bounded & (bent >= last_inside)
        bent = jnp.where(at_edge & (x < last_inside), last_inside, jnp.minimum(bent, width))
        proposal = jnp.where(bounded, bent, x + change)
        middle = jnp.where(jnp.isinf(high), 2.0 * x + deviation, 0.5 * (low + high))
        within = (proposal >= low) & (proposal <= high)
        small = tolerance * jnp.where(bounded, jnp.minimum(deviation, gap) + eps * width, deviation)
        # Steps that no longer shrink are rounding of the tail function, which grows with the
        # number of factors.
        size = jnp.abs(change)
        rounding = 30 * small + 4 * eps * x + 2 * eps * weights.shape[-1] * deviation
        stalled = (size <= rounding) & (size >= 0.5 * last_change)
        stalled = stalled | (proposal == x)
        settled = (size <= small) | stalled | (at_edge & (x >= last_inside))
        # Rounding of the function near the root may put a settled proposal outside the bracket.
        proposal = jnp.where(within | settled, proposal, middle)
        done = settled | (jnp.isfinite(high) & (high - low <= eps * jnp.maximum(high, deviation)))
        x = jnp.where(ready, x, proposal)
        return count + 1, x, low, high, size, done | ready

    def unfinished(state: State) -> Array:
        return (state[0] < _MAX_ITERATIONS) & any_point(usable & ~state[-1])

    zeros = jnp.zeros(shape, log_survival.dtype)
    state = (jnp.asarray(0), start, zeros, highest, zeros + jnp.inf, jnp.zeros(shape, bool))
    count, x, *_ = lax.while_loop(unfinished, step, state)
    beyond = jnp.where((target == -jnp.inf) & (deviation > 0), highest, jnp.nan)
    return jnp.where(usable, x, beyond), count


@upper_quantile.defjvp
def _upper_quantile_jvp(
    primals: tuple[Array, Array, Array | None], tangents: tuple[Array, Array, Array | None]
) -> tuple[Array, Array]:
    # Implicit function theorem: log P(X > x(l, w, s); w, s) = l.
    log_survival, weights, normal_scale = primals
    log_survival_dot, weights_dot, scale_dot = tangents
    x = upper_quantile(log_survival, weights, normal_scale)
    safe = jnp.where(jnp.isfinite(x), x, 0.0)
    if normal_scale is None:
        (density, value), (_, moved) = jax.jvp(
            lambda w: log_density_and_survival(safe, w, None), (weights,), (weights_dot,)
        )
    else:
        (density, value), (_, moved) = jax.jvp(
            lambda w, s: log_density_and_survival(safe, w, s),
            (weights, normal_scale),
            (weights_dot, scale_dot),
        )
    slope = -jnp.exp(value - density)
    inside = jnp.isfinite(slope) & jnp.isfinite(x)
    tangent = jnp.where(inside, slope, 0.0) * (log_survival_dot - jnp.where(inside, moved, 0.0))
    return x, tangent
