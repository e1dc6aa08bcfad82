"""Quantiles of any law at given normal scores, by a bracketed Newton method on the scores."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from nn_uq_dist.basics._row_algebra import namespace

# A bisection for each bit of the type, and Newton steps between them.
_MAX_STEPS = 100
# Scores this far from what is asked for are near enough for the last step.
_NEAR = 1e-2
# Scores are rounded to a few units; at the value zero, nothing else would end the search.
_ROUNDING = 64

# From the points that are not found yet, and their places along the flattened axes if these are
# known, to normal scores and log densities.
type ScoreAndLogDensity = Callable[[Any, Any], tuple[Any, Any]]


class Search(NamedTuple):
    """Points, the bracket around each, their last change, and whether they are found."""

    x: Any
    low: Any
    high: Any
    change: Any
    ready: Any


def quantile_at_score(
    target: Any,
    start: Any,
    low: Any,
    high: Any,
    evaluate: ScoreAndLogDensity,
    tolerance: float | None = None,
) -> Any:
    """``x`` with normal score ``target``.

    Parameters
    ----------
    target : Array
        Finite normal scores; NaN stays NaN.
    start, low, high : Array
        Where to begin, and a bracket; all of the shape of ``target``. NumPy arrays give NumPy
        arrays, and points that are found are then not evaluated again.
    evaluate : callable
        Normal score and log density of the law.
    tolerance : float, optional
        Relative change of the last step. Default: rounding.

    Notes
    -----
    The score of a law near a normal one is nearly linear, far out as well, where a probability is
    not. A step that leaves the bracket or does not halve the one before is replaced by a bisection,
    so that gaps and jumps of the distribution function cost a bisection for each bit at most.
    """
    xp = namespace(target, start, low, high)
    eps = float(jnp.finfo(target.dtype).eps) if tolerance is None else tolerance
    begun = Search(start, low, high, high - low, xp.isnan(target))

    def step(at: Search, target: Any, index: Any) -> Search:
        score, log_density = evaluate(at.x, index)
        return _step(xp, at, score - target, score, log_density, eps)

    if xp is np:
        return _search_now(begun, target, step)

    def unfinished(state: tuple[Array, Search]) -> Array:
        return (state[0] < _MAX_STEPS) & ~jnp.all(state[1].ready)

    found: tuple[Array, Search] = lax.while_loop(
        unfinished,
        lambda state: (state[0] + 1, step(state[1], target, None)),
        (jnp.asarray(0), begun),
    )
    return jnp.where(found[1].ready & ~jnp.isnan(target), found[1].x, jnp.nan)


def _search_now(begun: Search, target: Any, step: Callable[..., Search]) -> Any:
    shape, flat = target.shape, target.reshape(-1)
    state = Search(*(np.array(part).reshape(-1) for part in begun))
    for _ in range(_MAX_STEPS):
        index = np.flatnonzero(~state.ready)
        if not len(index):
            break
        some = step(Search(*(part[index] for part in state)), flat[index], index)
        for all_points, part in zip(state, some, strict=True):
            all_points[index] = part
    return np.where(state.ready & ~np.isnan(flat), state.x, np.nan).reshape(shape)


def _step(xp: Any, at: Search, excess: Any, score: Any, log_density: Any, eps: float) -> Search:
    low = xp.where(excess < 0, at.x, at.low)
    high = xp.where(excess > 0, at.x, at.high)
    slope = xp.exp(log_density + 0.5 * score * score + 0.5 * math.log(2 * math.pi))
    usable = xp.isfinite(excess) & (slope > 0) & xp.isfinite(slope)
    newton = -xp.where(usable, excess, 0) / xp.where(usable, slope, 1)
    proposal = at.x + newton
    small = 2 * eps * xp.abs(at.x)
    # At the edge of a support the score is steep, and a step may vanish far from the root.
    near = usable & (xp.abs(excess) <= _NEAR)
    rounding = max(eps, _ROUNDING * float(jnp.finfo(at.x.dtype).eps))
    found = near & ((xp.abs(newton) <= small) | (xp.abs(excess) <= rounding))
    found = found | (high - low <= small) | (excess == 0)
    within = usable & (proposal > low) & (proposal < high) & (near | (xp.abs(newton) > small))
    within = within & (xp.abs(newton) <= 0.5 * xp.abs(at.change))
    # Rounding of the function near the root may put a last step outside of the bracket.
    last = xp.where(usable, xp.clip(proposal, low, high), at.x)
    x = xp.where(found, last, xp.where(within, proposal, 0.5 * (low + high)))
    ready = at.ready | found | xp.isnan(excess)
    x = xp.where(xp.isnan(excess), xp.nan, xp.where(at.ready, at.x, x)).astype(at.x.dtype)
    return Search(x, low.astype(x.dtype), high.astype(x.dtype), x - at.x, ready)
