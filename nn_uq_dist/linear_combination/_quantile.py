"""Quantiles of the upper tail, solved on the log survival scale."""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from nn_uq_dist.basics._blocks import any_point
from nn_uq_dist.basics._known_values import as_jax
from nn_uq_dist.basics._normal_tails import score_from_log_survival
from nn_uq_dist.basics._row_algebra import namespace
from nn_uq_dist.linear_combination._eager import MOST_POINTS, HostArray
from nn_uq_dist.linear_combination._evaluate import log_density_and_survival
from nn_uq_dist.linear_combination._law import distance_from_edge
from nn_uq_dist.linear_combination._precision import precision
from nn_uq_dist.linear_combination._saddlepoint_quantile import saddlepoint_quantile

_MAX_STEPS = 20
# Weights of all points for which the start is found in NumPy.
_MOST_NUMBERS = 2**20


def upper_quantile(log_survival: Any, weights: Any, normal_scale: Any) -> Any:
    """``x >= 0`` with ``log P(X > x) = log_survival``, for ``log_survival <= log(1/2)``.

    Parameters
    ----------
    log_survival : Array, shape (...)
    weights : Array, shape (..., n)
    normal_scale : Array, shape (...), or None

    Notes
    -----
    At most four steps from the saddlepoint approximation, usually two (`iterate_quantile`); NaN
    where 20 do not suffice. NumPy arrays give NumPy arrays.
    """
    if namespace(log_survival) is np:
        return _quantile_now(log_survival, weights, normal_scale)
    return _upper_quantile(log_survival, weights, normal_scale)


@jax.custom_jvp
@jax.jit
def _upper_quantile(log_survival: Array, weights: Array, normal_scale: Array | None) -> Array:
    return iterate_quantile(log_survival, weights, normal_scale)[0]


class _Search(NamedTuple):
    """Constants of all steps, with the shape of the result.

    Attributes
    ----------
    log_survival, target : Array
        The level as given, and the level that is solved for.
    usable, proper, bounded : Array of bool
        Points to be solved, laws that have a quantile function, laws without a normal part.
    width, edge, last : Array
        Half-width of the support, a bound on the quantile, and the last point inside.
    small, rate : Array
        Step that ends the search, and the rate at which the density falls.
    is_center : Array of bool
        Levels of one half.
    """

    log_survival: Any
    target: Any
    usable: Any
    proper: Any
    bounded: Any
    width: Any
    edge: Any
    last: Any
    small: Any
    rate: Any
    is_center: Any


class _State(NamedTuple):
    """Points, their brackets, and which are found."""

    x: Any
    low: Any
    high: Any
    ready: Any


def iterate_quantile(
    log_survival: Array, weights: Array, normal_scale: Array | None
) -> tuple[Array, Array]:
    """`upper_quantile`, and the number of steps of the slowest point.

    Notes
    -----
    A step solves for the quantile as if the density continued to decay at the rate found by the
    saddlepoint approximation. With exact rates the steps converge with third order. With any other
    rate between zero and the hazard ``p/P`` they converge with second order, like Newton's method
    for the probability or for its logarithm, which are the two limits. The steps are safeguarded by
    a bracket.
    """
    scale = jnp.zeros((), log_survival.dtype) if normal_scale is None else normal_scale
    search, start = _begin(log_survival, weights, scale)

    def step(state: tuple[Array, _State]) -> tuple[Array, _State]:
        count, at = state
        return count + 1, _step(
            jnp, search, at, *log_density_and_survival(at.x, weights, normal_scale)
        )

    def unfinished(state: tuple[Array, _State]) -> Array:
        return (state[0] < _MAX_STEPS) & any_point(~state[1].ready)

    count, found = lax.while_loop(unfinished, step, (jnp.asarray(0), start))
    return _end(jnp, search, found), count


def _quantile_now(log_survival: HostArray, weights: Any, normal_scale: Any) -> Any:
    """The same steps in NumPy: only the start and the tails need compiled programs."""
    scale = np.zeros((), weights.dtype) if normal_scale is None else normal_scale
    shape = np.broadcast_shapes(log_survival.shape, weights.shape[:-1], scale.shape)
    if math.prod(shape) > MOST_POINTS:
        return _in_portions(log_survival, weights, normal_scale, shape)
    # The start evaluates some thirty functions of each weight, in NumPy as fast as in a program,
    # which takes more than a second to compile; of more numbers temporary arrays would be large.
    is_small = math.prod(shape) * weights.shape[-1] <= _MOST_NUMBERS
    with np.errstate(all="ignore"):
        begun = (_begin if is_small else _begin_program)(log_survival, weights, scale)
    search, state = jax.tree.map(np.asarray, begun)
    with np.errstate(all="ignore"):
        for _ in range(_MAX_STEPS):
            if state.ready.all():
                break
            state = _step(
                np, search, state, *log_density_and_survival(state.x, weights, normal_scale)
            )
        return _end(np, search, state)


def _in_portions(
    log_survival: HostArray, weights: Any, normal_scale: Any, shape: tuple[int, ...]
) -> Any:
    """Many points: a part of the first axis at a time, so that hard laws delay only their part."""
    rows = MOST_POINTS // max(math.prod(shape[1:]), 1)
    if rows == 0:
        result = _upper_quantile(*map(_on_device, (log_survival, weights, normal_scale)))
        return np.asarray(result)

    def part(array: Any, start: int, rank: int) -> Any:
        if array is None or array.ndim < rank or array.shape[0] == 1:
            return array
        return array[start : start + rows]

    rank = len(shape)
    parts = [
        _quantile_now(
            part(log_survival, start, rank),
            part(weights, start, rank + 1),
            part(normal_scale, start, rank),
        )
        for start in range(0, shape[0], rows)
    ]
    return np.concatenate([np.broadcast_to(p, (*p.shape[:1], *shape[1:])) for p in parts])


def _on_device(array: Any) -> Any:
    return None if array is None else as_jax(array)


def _begin(log_survival: Any, weights: Any, normal_scale: Any) -> tuple[_Search, _State]:
    """The saddlepoint approximation, and bounds on the quantile."""
    xp = namespace(log_survival)
    eps = float(jnp.finfo(log_survival.dtype).eps)
    width, scale = xp.broadcast_arrays(_width(weights), normal_scale)
    proper = (width + scale > 0) & xp.isfinite(width + scale)
    usable = xp.isfinite(log_survival) & proper
    target = xp.where(usable, log_survival, -1.0).astype(log_survival.dtype)
    score = _score_now(target) if xp is np else score_from_log_survival(target)
    approximate = saddlepoint_quantile(score, weights, scale)
    bounded = scale == 0
    # P(X > width + s z) <= P(s N > s z)
    edge = width + scale * score
    # Nothing can be evaluated at the edge of the support itself. The value at the next number
    # inside shows whether the quantile is closer to the edge than the type resolves.
    last = xp.where(bounded, width * (1 - eps), edge)
    # The remaining error after an accepted step is about its square over the deviation.
    small = approximate.deviation * precision(log_survival.dtype).root_tolerance ** 0.5
    start = xp.clip(approximate.x, 0.0, last)
    # If a normal part is narrower than the spacing of the type, the next number may already be too
    # far out.
    resolved = bounded | (approximate.deviation > eps * start)
    constants = (log_survival, target, usable, proper, bounded, width, edge, last, small)
    search = _Search(*xp.broadcast_arrays(*constants, approximate.rate, score == 0))
    state = _State(start, xp.zeros_like(start), search.last, ~(usable & resolved))
    return search, state


def _width(weights: Any) -> Any:
    """Half-width of the support, as accurate as distances from the edge.

    Rounding must not put the last point inside beyond the edge.
    """
    if namespace(weights) is np:
        return np.abs(weights).sum(axis=-1, dtype=np.longdouble).astype(weights.dtype)
    sizes = jnp.moveaxis(jnp.abs(weights), -1, 0)
    return distance_from_edge(jnp.zeros(sizes.shape[1:], sizes.dtype), sizes)


def _score_now(log_survival: HostArray) -> HostArray:
    from scipy.special import ndtri_exp

    # A tail probability exceeds one half only by rounding.
    score = np.maximum(-ndtri_exp(log_survival.astype(np.float64)), 0.0)
    return score.astype(log_survival.dtype)


_begin_program = jax.jit(_begin)


def _step(xp: Any, search: _Search, state: _State, log_density: Any, log_survival: Any) -> _State:
    """The next points from density and survival at the current ones; ``xp`` is NumPy or JAX."""
    x, low, high, ready = state
    eps = float(jnp.finfo(x.dtype).eps)
    excess = log_survival - search.target
    low = xp.where(excess > 0, x, low)
    high = xp.where(excess < 0, x, high)
    log_hazard = log_density - log_survival
    change = _step_in_exponential_tail(xp, excess, log_hazard, search.rate)
    proposal = x + change
    done = xp.abs(change) <= xp.maximum(search.small, 4 * eps * x)
    done = done | (search.bounded & (x >= search.last) & (excess > 0))
    within = (proposal > low) & (proposal < high)
    # Rounding of the function near the root may put a last step outside the bracket.
    inside = xp.clip(proposal, 0.0, search.edge)
    proposal = xp.where(within | done, inside, 0.5 * (low + high))
    return _State(xp.where(ready, x, proposal), low, high, done | ready)


def _step_in_exponential_tail(xp: Any, excess: Any, log_hazard: Any, rate: Any) -> Any:
    """Distance ``d`` at which the log survival is lower by ``excess``.

    ``P(x + d) = P(x) - p(x) (1 - exp(-rate d))/rate`` where the density decays with this rate. As
    the densities of these laws are log-concave, the true rate is at most the hazard ``p/P``.
    """
    hazard = xp.exp(log_hazard)
    rate = xp.clip(rate, 1e-6 * hazard, hazard)
    # Newton's step for the logarithm where exponentials would overflow.
    moderate = xp.clip(excess, -10.0, 10.0)
    step = -xp.log1p(rate / hazard * xp.expm1(-moderate)) / rate
    return step + (excess - moderate) / hazard


def _end(xp: Any, search: _Search, state: _State) -> Any:
    """Zero at the center, the edge where no probability is left, NaN where nothing was found."""
    x = xp.where(search.is_center, 0.0, state.x).astype(state.x.dtype)
    x = xp.where(search.usable & state.ready, x, xp.nan)
    beyond = (search.log_survival == -xp.inf) & search.proper
    end = xp.where(search.bounded, search.width, xp.inf)
    return xp.where(beyond, end, x).astype(state.x.dtype)


@_upper_quantile.defjvp
def _upper_quantile_jvp(
    primals: tuple[Array, Array, Array | None], tangents: tuple[Array, Array, Array | None]
) -> tuple[Array, Array]:
    # Implicit function theorem: log P(X > x(l, w, s); w, s) = l.
    log_survival, weights, normal_scale = primals
    log_survival_dot, weights_dot, scale_dot = tangents
    x = _upper_quantile(log_survival, weights, normal_scale)
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
