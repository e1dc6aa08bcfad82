"""Quantiles at given normal scores, by a bracketed Newton method on the scores."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from nn_uq_dist.basics.chunks import any_point
from nn_uq_dist.basics.row_algebra import namespace

# A bisection for each bit of the type, and Newton steps between them.
_MAX_STEPS = 100
# Scores this far from what is asked for are near enough for a step that rounding makes vanish.
_NEAR = 1e-2
# The last step squares what is missing, here in roots of the rounding of the type.
_LAST = 0.1

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
    The score of a distribution near a normal one is nearly linear, far out as well, where a
    probability is not. A step that leaves the bracket or does not halve the one before is replaced
    by a bisection, so that gaps and jumps of the distribution function cost a bisection for each
    bit at most.
    """
    xp = namespace(target)
    begun = _Search(start, low, high, high - low, xp.isnan(target))

    def step(at: _Search) -> _Search:
        score, log_density = evaluate(at.x)
        return _step(xp, at, score - target, score, log_density)

    if xp is np:
        for _ in range(_MAX_STEPS):
            if begun.ready.all():
                break
            begun = step(begun)
        return _found(xp, begun, target)

    def unfinished(state: tuple[Array, _Search]) -> Array:
        return (state[0] < _MAX_STEPS) & any_point(~state[1].ready)

    state = lax.while_loop(
        unfinished, lambda state: (state[0] + 1, step(state[1])), (jnp.asarray(0), begun)
    )
    return _found(xp, state[1], target)


def _found(xp: Any, at: _Search, target: Any) -> Any:
    return xp.where(at.ready & ~xp.isnan(target), at.x, xp.nan).astype(at.x.dtype)


def _step(xp: Any, at: _Search, excess: Any, score: Any, log_density: Any) -> _Search:
    eps = float(jnp.finfo(at.x.dtype).eps)
    low = xp.where(excess < 0, at.x, at.low)
    high = xp.where(excess > 0, at.x, at.high)
    slope = xp.exp(log_density + 0.5 * score * score + 0.5 * math.log(2 * math.pi))
    usable = xp.isfinite(excess) & (slope > 0) & xp.isfinite(slope)
    newton = -xp.where(usable, excess, 0) / xp.where(usable, slope, 1)
    small = 2 * eps * xp.abs(at.x)
    near = usable & (xp.abs(excess) <= _NEAR)
    # At the edge of a support the score is steep: a step may vanish beside the root, which the
    # least step encloses, or far from it, where the next one bisects.
    least = xp.copysign(xp.maximum(xp.abs(newton), small), -excess)
    change = xp.where(near, newton, least)
    proposal = at.x + change
    found = near & ((xp.abs(newton) <= small) | (xp.abs(excess) <= _LAST * math.sqrt(eps)))
    found = found | (high - low <= small) | (excess == 0)
    within = usable & (proposal > low) & (proposal < high)
    within = within & (xp.abs(change) <= 0.5 * xp.abs(at.change))
    # Rounding of the function near the root may put a last step outside of the bracket.
    last = xp.where(usable, xp.clip(at.x + newton, low, high), at.x)
    x = xp.where(found, last, xp.where(within, proposal, 0.5 * (low + high)))
    ready = at.ready | found | xp.isnan(excess)
    x = xp.where(xp.isnan(excess), xp.nan, xp.where(at.ready, at.x, x)).astype(at.x.dtype)
    return _Search(x, low.astype(x.dtype), high.astype(x.dtype), x - at.x, ready)
