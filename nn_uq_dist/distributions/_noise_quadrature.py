r"""Log density and log tails of an output with normal noise, by quadrature over its linear value.

The output is ``T(L)``, where ``L`` has the density :math:`p_L` and the distribution function
:math:`F_L`, and ``T`` is an increasing map. With :math:`u(l) = (x - T(l))/s`

.. math::
    p(x) = \int p_L(l)\, \phi(u(l))\, \frac{dl}{s},
    \qquad
    P(T(L) + s N \le x) = \int F_L(l)\, \phi(u(l))\, \frac{T'(l)}{s}\, dl.

All terms are positive, so that small probabilities have small relative errors. For each point the
rule covers the values that matter, which may be few, with panels that end where the integrand
bends.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.scipy.special import log_ndtr
from numpyro.distributions.transforms import IdentityTransform

from nn_uq_dist.basics.normal_tails import log_normal_density, score_from_log_tails
from nn_uq_dist.basics.quantile_search import quantile_at_score
from nn_uq_dist.basics.row_algebra import binary_unit
from nn_uq_dist.distributions._contract import rebuilt
from nn_uq_dist.distributions._contract_output import OutputDistribution
from nn_uq_dist.distributions._corrected_marginal import CorrectedMarginal
from nn_uq_dist.distributions._linearized_marginal import LinearizedMarginal
from nn_uq_dist.distributions._monotone_spline import MonotoneSpline

# Points that are evaluated at once.
_BLOCK = 2**14


class _Rule(NamedTuple):
    """What makes the quadrature as accurate as the type."""

    reach: int  # beyond this, in standard deviations, a normal density is nothing
    panels: int
    nodes: int  # in each panel
    knots: int  # of the map, at most, at which panels end; evenly chosen ones of those in range
    scores: tuple[int, ...]  # positive ones, up to where densities underflow
    least: float  # the least noise, in standard deviations of the output
    far: float  # the largest distance of a point, in standard deviations of the noise


_RULES = {
    "float32": _Rule(6, 18, 3, 6, (*range(1, 9), 10, 13), 1e-4, 1e15),
    "float64": _Rule(8, 28, 5, 12, (*range(1, 11), 12, 15, 20, 28, 38), 1e-9, 1e100),
}


class _Landmarks(NamedTuple):
    """Normal scores, where about they are among the values, and their images, ascending.

    Each of shape ``(k, ...)`` with as many axes behind the first as the points have.
    """

    scores: Array
    values: Array
    images: Array


class _Window(NamedTuple):
    """Ends of the values that matter for a point, and whether there is nothing beyond them."""

    low: Array
    high: Array
    is_lowest: Array
    is_highest: Array


@jax.jit
def log_density_at(x: Array, sigma: Array, base: OutputDistribution) -> Array:
    """Log density of ``Y + sigma N``.

    Parameters
    ----------
    x, sigma : Array
        Points and noise scales, both with all axes of the result; NaN for negative scales.
    base : OutputDistribution
        The distribution of ``Y``, a `CorrectedMarginal` or any other.
    """
    distribution, transform, center, unit = _linear_part(base)

    def evaluate(x: Array, sigma: Array) -> Array:
        safe, scale, marks = _prepare(x, sigma, distribution, transform)
        logs = _log_integral(safe, scale, distribution, transform, marks, None)
        return _with_limits(x, safe, sigma, logs, -jnp.inf, -jnp.inf)

    logs = _in_blocks(evaluate, (x - center) / unit, sigma / unit, distribution.batch_shape)
    return logs - jnp.log(unit)


@jax.jit
def log_tails_at(x: Array, sigma: Array, base: OutputDistribution) -> tuple[Array, Array]:
    """``log P(Y + sigma N <= x)`` and the log of the rest, from an integral for the smaller."""
    distribution, transform, center, unit = _linear_part(base)

    def evaluate(x: Array, sigma: Array) -> tuple[Array, Array]:
        safe, scale, marks = _prepare(x, sigma, distribution, transform)
        side = jnp.where(safe < marks.images[len(marks.images) // 2], 1, -1).astype(safe.dtype)
        small = _log_integral(safe, scale, distribution, transform, marks, side)
        small = jnp.minimum(small, -jnp.finfo(safe.dtype).tiny)
        large = jnp.log1p(-jnp.exp(small))
        lower, upper = jnp.where(side > 0, small, large), jnp.where(side > 0, large, small)
        return (
            _with_limits(x, safe, sigma, lower, -jnp.inf, 0.0),
            _with_limits(x, safe, sigma, upper, 0.0, -jnp.inf),
        )

    return _in_blocks(evaluate, (x - center) / unit, sigma / unit, distribution.batch_shape)


def score_at(x: Array, sigma: Array, base: OutputDistribution) -> Array:
    """Normal score of ``Y + sigma N`` at ``x``."""
    return score_from_log_tails(*log_tails_at(x, sigma, base))


@jax.custom_jvp
@jax.jit
def quantile_at(z: Array, sigma: Array, base: OutputDistribution) -> Array:
    """``x`` at which the normal score of ``Y + sigma N`` is ``z``."""
    target = jnp.where(jnp.isfinite(z) & (sigma >= 0), z, jnp.nan)

    def evaluate(x: Array) -> tuple[Array, Array]:
        # The slope of the score costs far less than another integral.
        score, slope = jax.jvp(lambda at: score_at(at, sigma, base), (x,), (jnp.ones_like(x),))
        return score, jnp.log(slope) + log_normal_density(score)

    # Y + sigma N is below q(a) + sigma a only if Y is below q(a) or N below a; one unit further,
    # since these quantiles are approximate.
    low, center, middle, high = (
        base.approximate_quantile(level) + sigma * level
        for level in (target - 2, 0 * target, target, target + 2)
    )
    start = jnp.clip(center + (middle - center) / math.sqrt(2), low, high)
    found = quantile_at_score(target, start, low, high, evaluate)
    return jnp.where(jnp.isinf(z) & (sigma >= 0), z, found)


@quantile_at.defjvp
def _quantile_jvp(primals: Any, tangents: Any) -> tuple[Array, Array]:
    # Implicit function theorem: score(x(z, parameters), parameters) = z.
    z, *parameters = primals
    x = quantile_at(z, *parameters)
    inside = jnp.isfinite(x)
    safe = jnp.where(inside, x, 0)
    score, moved = jax.jvp(
        lambda *parts: score_at(safe, *parts), tuple(parameters), tuple(tangents[1:])
    )
    steepness = jnp.exp(log_normal_density(score) - log_density_at(safe, *parameters))
    return x, jnp.where(inside, steepness * (tangents[0] - moved), 0)


def _linear_part(base: OutputDistribution) -> tuple[OutputDistribution, Any, Array, Array]:
    """Distribution of ``L``, the map, what is subtracted from the points, unit of the rest.

    With little noise, and means far from zero, differences of values would be rounded; lengths and
    products of very small and large units would leave the type.
    """
    distribution, transform = base, IdentityTransform()
    if isinstance(base, CorrectedMarginal):
        distribution, transform = base.base, base.transform
    if not isinstance(distribution, LinearizedMarginal):
        return distribution, transform, jnp.zeros(()), jnp.ones(())
    loc: Any = jnp.asarray(distribution.loc)
    center, own = transform(loc), binary_unit(distribution.standard_deviation)
    unit = own
    if isinstance(transform, MonotoneSpline):
        center = lax.stop_gradient(center)
        knots, images, slopes = transform.parameters
        unit = binary_unit(lax.stop_gradient(images[..., -1] - images[..., 0]))
        transform = MonotoneSpline(
            (knots - loc[..., None]) / own[..., None],
            (images - center[..., None]) / unit[..., None],
            slopes * (own / unit)[..., None],
        )
    scale = distribution.normal_scale
    standardized = rebuilt(
        distribution,
        loc=jnp.zeros_like(loc),
        weights=distribution.weights / own[..., None],
        normal_scale=None if scale is None else scale / own,
    )
    return standardized, transform, center, unit


def _in_blocks[T](
    evaluate: Callable[[Array, Array], T], x: Array, sigma: Array, batch_shape: tuple[int, ...]
) -> T:
    """Evaluate many points of some distributions a part at a time: memory stays bounded."""
    shared = next((k for k, size in enumerate(batch_shape) if size > 1), len(batch_shape))
    rank = x.ndim - len(batch_shape) + shared
    own = x.shape[rank:]
    rows, count = math.prod(x.shape[:rank]), max(_BLOCK // max(math.prod(own), 1), 1)
    if rows <= count:
        return evaluate(x, sigma)

    def blocks(part: Array) -> Array:
        flat = part.reshape(rows, *own)
        more = jnp.broadcast_to(flat[:1], (-rows % count, *own))
        ones = (1,) * max(shared - 1, 0)
        return jnp.concatenate([flat, more]).reshape(-1, count, *ones, *own)

    def of_block(parts: tuple[Array, Array]) -> T:
        return evaluate(*parts)

    found = lax.map(jax.checkpoint(of_block), (blocks(x), blocks(sigma)))
    whole: T = jax.tree.map(lambda part: part.reshape(-1, *own)[:rows].reshape(x.shape), found)
    return whole


def _prepare(
    x: Array, sigma: Array, distribution: Any, transform: Any
) -> tuple[Array, Array, _Landmarks]:
    """Points and scales that overflow nowhere, and the landmarks of the distribution."""
    rule = _RULES[str(x.dtype)]
    scores = np.array([*(-k for k in rule.scores[::-1]), 0, *rule.scores], x.dtype)
    column = jnp.asarray(scores.reshape(-1, *(1,) * x.ndim))
    fixed: Any = lax.stop_gradient((distribution, transform))
    values = fixed[0].approximate_quantile(column).astype(x.dtype)
    marks = _Landmarks(column, values, fixed[1](values))
    middle = len(scores) // 2
    unit = (marks.images[middle + 3] - marks.images[middle - 3]) / 6
    least = jnp.maximum(rule.least * unit, jnp.finfo(x.dtype).tiny)
    scale = jnp.where(sigma > least, sigma, least)
    center = marks.images[middle]
    return jnp.where(jnp.abs(x - center) < rule.far * scale, x, center), scale, marks


def _with_limits(
    x: Array, safe: Array, sigma: Array, inside: Array, below: float, above: float
) -> Array:
    """Values at the safe points, those at both ends, and NaN where that is the argument."""
    valid = ~jnp.isnan(x) & (sigma >= 0) & jnp.isfinite(sigma)
    ends = jnp.where(x > 0, above, below)
    return jnp.where(valid, jnp.where(x == safe, inside, ends), jnp.nan).astype(x.dtype)


def _log_integral(
    x: Array, sigma: Array, distribution: Any, transform: Any, marks: _Landmarks, side: Array | None
) -> Array:
    """Log of the density, or of the tail below (`side` 1) or above (-1) of the points."""
    fixed_x, fixed_sigma, fixed = lax.stop_gradient((x, sigma, transform))
    window = _window(fixed_x, fixed_sigma, fixed, marks, side)
    ends = _ends(window, distribution, fixed)
    points, weights = (
        jnp.asarray(part.reshape(-1, *(1,) * ends.ndim), x.dtype)
        for part in np.polynomial.legendre.leggauss(_RULES[str(x.dtype)].nodes)
    )
    half = 0.5 * (ends[1:] - ends[:-1])
    nodes = (0.5 * (ends[1:] + ends[:-1]) + half * points).reshape(-1, *x.shape)
    lengths = (half * weights).reshape(nodes.shape)
    u = (x - transform(nodes)) / sigma
    logs = -0.5 * u * u - 0.5 * math.log(2 * math.pi)
    if side is None:
        logs = logs + distribution.log_prob(nodes)
        beyond = jnp.full_like(x, -jnp.inf)
    else:
        slopes = transform.log_abs_det_jacobian(nodes, None)
        logs = logs + log_ndtr(side * distribution.normal_score(nodes)) + slopes
        # Beyond the values of the output the noise alone decides.
        end = jnp.where(side > 0, ends[-1], ends[0])
        is_last = jnp.where(side > 0, window.is_highest, window.is_lowest)
        rest = log_ndtr(side * (x - transform(end)) / sigma) + jnp.log(sigma)
        beyond = jnp.where(is_last, rest, -jnp.inf)
    top = lax.stop_gradient(jnp.maximum(jnp.max(logs, axis=0), beyond))
    total = jnp.sum(lengths * jnp.exp(logs - top), axis=0) + jnp.exp(beyond - top)
    return top + jnp.log(total) - jnp.log(sigma)


def _window(
    x: Array, sigma: Array, transform: Any, marks: _Landmarks, side: Array | None
) -> _Window:
    """Where the integrand is close enough to its largest value, up to the next candidate.

    Candidates are the landmarks of the distribution, and values a step of noise apart around the
    point.
    """
    reach = _RULES[str(x.dtype)].reach
    scores, values, images = marks
    nearest = jnp.clip(x, images[0], images[-1])
    away = jnp.abs(x - nearest) / sigma
    # Half the square of the noise grows from one to the next as from one whole number to the next,
    # also at the end of the values, far from the point.
    levels = jnp.arange(1, reach + 2, dtype=x.dtype).reshape(-1, *(1,) * x.ndim)
    steps = sigma * levels**2 / (away + jnp.sqrt(away**2 + levels**2))
    near = jnp.concatenate([nearest - steps, nearest[None], nearest + steps])
    near = jnp.clip(transform.inv(jnp.clip(near, images[0], images[-1])), values[0], values[-1])
    # Scores between landmarks, as shares of all steps below them.
    width = jnp.diff(values, axis=0)[:, None]
    share = (near - values[:-1, None]) / jnp.where(width > 0, width, 1)
    between = jnp.diff(scores, axis=0)[:, None] * jnp.clip(share, 0, 1)
    z = jnp.concatenate(
        [jnp.broadcast_to(scores, (len(scores), *x.shape)), scores[0] + jnp.sum(between, axis=0)]
    )
    at = jnp.concatenate([jnp.broadcast_to(values, (len(values), *x.shape)), near])
    if side is not None:
        z = jnp.minimum(side * z, 0)
    u = (x - transform(at)) / sigma
    height = 0.5 * (z * z + u * u)
    inside = height - jnp.min(height, axis=0) <= 0.5 * reach * reach
    first = jnp.min(jnp.where(inside, at, jnp.inf), axis=0)
    last = jnp.max(jnp.where(inside, at, -jnp.inf), axis=0)
    low = jnp.max(jnp.where(at < first, at, values[0]), axis=0)
    high = jnp.min(jnp.where(at > last, at, values[-1]), axis=0)
    return _Window(low, high, low <= values[0], high >= values[-1])


def _ends(window: _Window, distribution: Any, transform: Any) -> Array:
    """Ends of the panels: those of the support have derivatives, the others have none."""
    low, high = window.low, window.high
    rule = _RULES[str(low.dtype)]
    panels = rule.panels

    def wide(rows: Array) -> Array:
        rows = rows.reshape(len(rows), *(1,) * (low.ndim + 1 - rows.ndim), *rows.shape[1:])
        return jnp.broadcast_to(rows, (len(rows), *low.shape)).astype(low.dtype)

    breaks = wide(lax.stop_gradient(distribution.kinks()))
    if isinstance(transform, MonotoneSpline):
        knots = wide(jnp.moveaxis(jnp.asarray(transform.knots), -1, 0))
        if len(knots) > rule.knots:
            first = jnp.sum(knots <= low, axis=0)
            count = jnp.sum(knots < high, axis=0) - first
            index = jnp.arange(rule.knots).reshape(-1, *(1,) * low.ndim)
            index = jnp.minimum(first + index * count // rule.knots, len(knots) - 1)
            knots = jnp.take_along_axis(knots, index, axis=0)
        breaks = jnp.concatenate([breaks, knots])
    is_inside = (breaks > low) & (breaks < high)
    # The others are equally long. What is sorted behind the upper end is left out.
    others = panels - jnp.sum(is_inside, axis=0)
    share = jnp.arange(panels + 1, dtype=low.dtype).reshape(-1, *(1,) * low.ndim) / others
    even = jnp.where(share < 1, low + share * (high - low), high)
    ends = jnp.sort(jnp.concatenate([even, jnp.where(is_inside, breaks, high)]), axis=0)
    ends = ends[: panels + 1]
    lowest, highest = distribution.bounds
    ends = jnp.where((ends == low) & window.is_lowest & jnp.isfinite(lowest), lowest, ends)
    return jnp.where((ends == high) & window.is_highest & jnp.isfinite(highest), highest, ends)
