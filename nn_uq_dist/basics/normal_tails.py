"""Normal scores from log tail probabilities, and values at scores by a bracketed Newton method.

Scores are accurate in both tails. The score of a distribution near a normal one is nearly linear,
far out as well, where a probability is not.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.scipy.special import log_ndtr

from nn_uq_dist.basics.chunks import any_point
from nn_uq_dist.basics.row_algebra import namespace

# Of Newton's method for a score: the first leaves an error of 7e-8, the second only rounding.
_ITERATIONS = 2
# A bisection for each bit of the type, and Newton steps between them.
_MAX_STEPS = 100
# Scores this far from what is asked for are near enough for a step that rounding makes vanish.
_NEAR = 1e-2
# The last step squares what is missing, here in roots of the rounding of the type.
_LAST = 0.1


def log_normal_density(z: Array) -> Array:
    """Log density of the standard normal distribution."""
    return -0.5 * z * z - 0.5 * math.log(2.0 * math.pi)


@jax.custom_jvp
@jax.jit
def score_from_log_survival(log_survival: Array) -> Array:
    r"""``z >= 0`` with ``log(1 - Phi(z)) = log_survival``, for ``log_survival <= log(1/2)``.

    Newton's method from a start that is accurate to 4.5e-4 everywhere (M. Abramowitz and I. A.
    Stegun, Handbook of Mathematical Functions (1964), 26.2.23): one step leaves an error of 7e-8,
    two steps only rounding.
    """
    finite = jnp.isfinite(log_survival)
    target = jnp.where(finite, log_survival, -1.0)
    t = jnp.sqrt(jnp.maximum(-2.0 * target, 0.0))
    above = 2.515517 + t * (0.802853 + t * 0.010328)
    below = 1.0 + t * (1.432788 + t * (0.189269 + t * 0.001308))
    start = jnp.maximum(t - above / below, 0.0)

    def step(_: int, z: Array) -> Array:
        value = log_ndtr(-z)
        return jnp.maximum(z + (value - target) / _hazard(z, value), 0.0)

    z = lax.fori_loop(0, _ITERATIONS, step, start)
    beyond = jnp.where(log_survival == -jnp.inf, jnp.inf, jnp.nan)
    return jnp.where(finite, z, beyond)


def _hazard(z: Array, log_survival: Array) -> Array:
    """Density over survival probability of a standard normal variable at ``z >= 0``.

    It lies between ``z`` and ``z + 1/z`` (R. D. Gordon, Ann. Math. Stat. 12 (1941)). Far out both
    logarithms are huge, and their difference is a rounding error, which the exponential would
    magnify.
    """
    ratio = jnp.exp(log_normal_density(z) - log_survival)
    return jnp.clip(ratio, z, z + 1 / jnp.maximum(z, jnp.finfo(z.dtype).tiny))


@score_from_log_survival.defjvp
def _score_from_log_survival_jvp(
    primals: tuple[Array], tangents: tuple[Array]
) -> tuple[Array, Array]:
    z = score_from_log_survival(*primals)
    safe = jnp.where(jnp.isfinite(z), z, 0.0)
    return z, -tangents[0] / _hazard(safe, log_ndtr(-safe))


def score_from_log_tails(log_lower: Array, log_upper: Array) -> Array:
    """Normal score from the logs of both tail probabilities, of which the smaller one is used."""
    below = log_lower < log_upper
    smaller = jnp.where(below, log_lower, log_upper)
    excess = jnp.maximum(smaller - math.log(0.5), 0.0)
    score = score_from_log_survival(smaller - lax.stop_gradient(excess))
    return jnp.where(below, -score, score)


type ScoreAndLogDensity = Callable[[Any], tuple[Any, Any]]


class _Search(NamedTuple):
    """Points, the bracket around each, their last change, and whether they are found."""

    x: Any
    low: Any
    high: Any
    change: Any
    ready: Any


def quantile_at_score(
    target: Any, start: Any, low: Any, high: Any, evaluate: ScoreAndLogDensity
) -> Any:
    """``x`` with normal score ``target``.

    Parameters
    ----------
    target : Array
        Finite normal scores; NaN stays NaN. With NumPy arrays nothing is compiled here.
    start, low, high : Array
        Where to begin, and a bracket; all of the shape of ``target``.
    evaluate : callable
        Normal scores and log densities of the distribution at points.

    Notes
    -----
    A step that leaves the bracket or does not halve the one before is replaced
    by a bisection, so that gaps and jumps of the distribution function cost a bisection for each
    bit at most.
    """
    xp = namespace(target)
    search = _Search(start, low, high, high - low, xp.isnan(target))

    def step(search: _Search) -> _Search:
        score, log_density = evaluate(search.x)
        return _step(xp, search, score - target, score, log_density)

    def unfinished(state: tuple[Array, _Search]) -> Array:
        return (state[0] < _MAX_STEPS) & any_point(~state[1].ready)

    if xp is np:
        for _ in range(_MAX_STEPS):
            if search.ready.all():
                break
            search = step(search)
    else:
        begun = jnp.asarray(0), search
        _, search = lax.while_loop(unfinished, lambda state: (state[0] + 1, step(state[1])), begun)
    return xp.where(search.ready & ~xp.isnan(target), search.x, xp.nan).astype(search.x.dtype)


def _step(xp: Any, search: _Search, excess: Any, score: Any, log_density: Any) -> _Search:
    eps = float(jnp.finfo(search.x.dtype).eps)
    low = xp.where(excess < 0, search.x, search.low)
    high = xp.where(excess > 0, search.x, search.high)
    slope = xp.exp(log_density + 0.5 * score * score + 0.5 * math.log(2 * math.pi))
    usable = xp.isfinite(excess) & (slope > 0) & xp.isfinite(slope)
    newton = -xp.where(usable, excess, 0) / xp.where(usable, slope, 1)
    small = 2 * eps * xp.abs(search.x)
    near = usable & (xp.abs(excess) <= _NEAR)
    # At the edge of a support the score is steep: a step may vanish beside the root, which the
    # least step encloses, or far from it, where the next one bisects.
    least = xp.copysign(xp.maximum(xp.abs(newton), small), -excess)
    change = xp.where(near, newton, least)
    proposal = search.x + change
    is_last = near & ((xp.abs(newton) <= small) | (xp.abs(excess) <= _LAST * math.sqrt(eps)))
    is_last = is_last | (high - low <= small) | (excess == 0)
    within = usable & (proposal > low) & (proposal < high)
    within = within & (xp.abs(change) <= 0.5 * xp.abs(search.change))
    # Rounding of the function near the root may put a last step outside of the bracket.
    last = xp.where(usable, xp.clip(search.x + newton, low, high), search.x)
    x = xp.where(is_last, last, xp.where(within, proposal, 0.5 * (low + high)))
    ready = search.ready | is_last | xp.isnan(excess)
    x = xp.where(xp.isnan(excess), xp.nan, xp.where(search.ready, search.x, x))
    x = x.astype(search.x.dtype)
    return _Search(x, low.astype(x.dtype), high.astype(x.dtype), x - search.x, ready)
