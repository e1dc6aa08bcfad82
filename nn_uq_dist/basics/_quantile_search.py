"""Quantiles of any law at given normal scores, by a bracketed Newton method on the scores."""

import math
from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
from jax import Array, lax

# A bisection for each bit of the type, and Newton steps between them.
_MAX_STEPS = 100
# Scores this far from what is asked for are near enough for the last step.
_NEAR = 1e-2
# Scores are rounded to a few units; at the value zero, nothing else would end the search.
_ROUNDING = 64

type ScoreAndLogDensity = Callable[[Array], tuple[Array, Array]]


class Search(NamedTuple):
    """Points, the bracket around each, their last change, and whether they are found."""

    x: Array
    low: Array
    high: Array
    change: Array
    ready: Array


def quantile_at_score(
    target: Array,
    start: Array,
    low: Array,
    high: Array,
    evaluate: ScoreAndLogDensity,
    tolerance: float | None = None,
) -> Array:
    """``x`` with normal score ``target``.

    Parameters
    ----------
    target : Array
        Finite normal scores; NaN stays NaN.
    start, low, high : Array
        Where to begin, and a bracket; all of the shape of ``target``.
    evaluate : callable
        Normal scores and log densities of the law at points.
    tolerance : float, optional
        Relative change of the last step. Default: rounding.

    Notes
    -----
    The score of a law near a normal one is nearly linear, far out as well, where a probability is
    not. A step that leaves the bracket or does not halve the one before is replaced by a bisection,
    so that gaps and jumps of the distribution function cost a bisection for each bit at most.
    """
    eps = float(jnp.finfo(target.dtype).eps) if tolerance is None else tolerance
    begun = Search(start, low, high, high - low, jnp.isnan(target))

    def step(at: Search) -> Search:
        score, log_density = evaluate(at.x)
        return _step(at, score - target, score, log_density, eps)

    def unfinished(state: tuple[Array, Search]) -> Array:
        return (state[0] < _MAX_STEPS) & ~jnp.all(state[1].ready)

    found: tuple[Array, Search] = lax.while_loop(
        unfinished,
        lambda state: (state[0] + 1, step(state[1])),
        (jnp.asarray(0), begun),
    )
    return jnp.where(found[1].ready & ~jnp.isnan(target), found[1].x, jnp.nan)


def _step(at: Search, excess: Array, score: Array, log_density: Array, eps: float) -> Search:
    low = jnp.where(excess < 0, at.x, at.low)
    high = jnp.where(excess > 0, at.x, at.high)
    slope = jnp.exp(log_density + 0.5 * score * score + 0.5 * math.log(2 * math.pi))
    usable = jnp.isfinite(excess) & (slope > 0) & jnp.isfinite(slope)
    newton = -jnp.where(usable, excess, 0) / jnp.where(usable, slope, 1)
    proposal = at.x + newton
    small = 2 * eps * jnp.abs(at.x)
    # At the edge of a support the score is steep, and a step may vanish far from the root.
    near = usable & (jnp.abs(excess) <= _NEAR)
    rounding = max(eps, _ROUNDING * float(jnp.finfo(at.x.dtype).eps))
    found = near & ((jnp.abs(newton) <= small) | (jnp.abs(excess) <= rounding))
    found = found | (high - low <= small) | (excess == 0)
    within = usable & (proposal > low) & (proposal < high) & (near | (jnp.abs(newton) > small))
    within = within & (jnp.abs(newton) <= 0.5 * jnp.abs(at.change))
    # Rounding of the function near the root may put a last step outside of the bracket.
    last = jnp.where(usable, jnp.clip(proposal, low, high), at.x)
    x = jnp.where(found, last, jnp.where(within, proposal, 0.5 * (low + high)))
    ready = at.ready | found | jnp.isnan(excess)
    x = jnp.where(jnp.isnan(excess), jnp.nan, jnp.where(at.ready, at.x, x)).astype(at.x.dtype)
    return Search(x, low.astype(x.dtype), high.astype(x.dtype), x - at.x, ready)
