r"""Log density and log tails of an output with normal noise, by quadrature over its linear value.

The output is ``T(L)``, where ``L`` has the density :math:`p_L` and the distribution function
:math:`F_L`, and ``T`` is an increasing map. With :math:`u(l) = (x - T(l))/s`

.. math::
    p(x) = \int p_L(l)\, \phi(u(l))\, \frac{dl}{s},
    \qquad
    P(T(L) + s N \le x) = \int p_L(l)\, \Phi(u(l))\, dl,

of which :math:`F_L` is the part of values so small that the noise makes no difference. All terms
are positive, so that small probabilities have small relative errors. For each point the rule covers
the values that matter, which may be few. The slope of the map, which has kinks at its knots, is in
neither integral.
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

from nn_uq_dist.basics.chunks import in_chunks
from nn_uq_dist.basics.normal_tails import (
    log_normal_density,
    quantile_at_score,
    score_from_log_tails,
)
from nn_uq_dist.basics.row_algebra import binary_unit
from nn_uq_dist.distributions._contract import rebuilt
from nn_uq_dist.distributions._contract_output import OutputDistribution
from nn_uq_dist.distributions._corrected_marginal import CorrectedMarginal
from nn_uq_dist.distributions._linearized_marginal import LinearizedMarginal
from nn_uq_dist.distributions._transforms import MonotoneSpline

# Points that are evaluated at once.
_BLOCK = 2**14


# Beyond the last of these scores of `Y` log densities are those of the noise around that value: far
# too small, but with slopes that lead back. Log densities have values where densities underflow.
_FAR_SCORES = 18, 25, 40, 60, 100


class _Rule(NamedTuple):
    """What makes the quadrature as accurate as the type."""

    reach: int  # beyond this, in standard deviations, a normal density is nothing
    panels: int
    nodes: int  # in each panel
    knots: int  # of the map, at most, at which panels end; maps of many knots bend less at each
    scores: tuple[int, ...]  # positive ones, no panel is far from them
    least: float  # the least noise, in standard deviations of the output
    far: float  # the largest distance of a point, in standard deviations of the noise


_RULES = {
    "float32": _Rule(6, 40, 3, 6, (*range(1, 9), 10, 13, *_FAR_SCORES), 1e-4, 1e15),
    "float64": _Rule(8, 64, 5, 12, (*range(1, 11), 12, 15, *_FAR_SCORES), 1e-9, 1e100),
}


class _Landmarks(NamedTuple):
    """Normal scores, where about they are among the values, and their images, ascending.

    Each of shape ``(k, ...)`` with as many axes behind the first as the points have.
    """

    scores: Array
    values: Array
    images: Array


@jax.jit
def log_density_at(x: Array, sigma: Array, base: OutputDistribution) -> Array:
    """Log density of ``Y + sigma N``.

    Points and noise scales have all axes of the result; negative scales are NaN.
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
        score, slope = jax.jvp(lambda x: score_at(x, sigma, base), (x,), (jnp.ones_like(x),))
        return score, jnp.log(slope) + log_normal_density(score)

    # Y + sigma N is below q(a) + sigma a only if Y is below q(a) or N below a, and it is if both
    # are: then the probability is at least the square. Further out, as quantiles are approximate.
    both = target / math.sqrt(2)
    ends = jnp.minimum(target, both) - 2, jnp.maximum(target, both) + 2
    levels = jnp.stack([ends[0], jnp.zeros_like(target), target, ends[1]])
    low, center, middle, high = base.approximate_quantile(levels) + sigma * levels
    start = jnp.clip(center + (middle - center) / math.sqrt(2), low, high)
    quantiles = quantile_at_score(target, start, low, high, evaluate)
    return jnp.where(jnp.isinf(z) & (sigma >= 0), z, quantiles)


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
        return distribution, transform, jnp.asarray(0.0), jnp.asarray(1.0)
    loc: Any = jnp.asarray(distribution.loc)
    center, unit_before = transform(loc), binary_unit(distribution.standard_deviation)
    unit = unit_before
    if isinstance(transform, MonotoneSpline):
        center = lax.stop_gradient(center)
        knots, images, slopes = transform.parameters
        unit = binary_unit(lax.stop_gradient(images[..., -1] - images[..., 0]))
        transform = MonotoneSpline(
            (knots - loc[..., None]) / unit_before[..., None],
            (images - center[..., None]) / unit[..., None],
            slopes * (unit_before / unit)[..., None],
        )
    scale = distribution.normal_scale
    standardized = rebuilt(
        distribution,
        loc=jnp.zeros_like(loc),
        weights=distribution.weights / unit_before[..., None],
        normal_scale=None if scale is None else scale / unit_before,
    )
    return standardized, transform, center, unit


def _in_blocks(
    evaluate: Callable[[Array, Array], Any], x: Array, sigma: Array, batch_shape: tuple[int, ...]
) -> Any:
    """Evaluate many points of some distributions a part at a time: memory stays bounded."""
    shared = next((k for k, size in enumerate(batch_shape) if size > 1), len(batch_shape))
    rest = x.shape[x.ndim - len(batch_shape) + shared :]
    # One axis for all points that share distributions, and then those of the distributions.
    shape = (-1, *(1,) * max(shared - 1, 0), *rest)
    points, scales = x.reshape(shape), sigma.reshape(shape)
    size = max(_BLOCK // max(math.prod(rest), 1), 1)
    function = evaluate if len(points) <= size else jax.checkpoint(evaluate)
    blocks = in_chunks(function, points, scales, size=size)
    return jax.tree.map(lambda values: values.reshape(x.shape), blocks)


def _prepare(
    x: Array, sigma: Array, distribution: Any, transform: Any
) -> tuple[Array, Array, _Landmarks]:
    """Points and scales that overflow nowhere, and the landmarks of the distribution."""
    rule = _RULES[str(x.dtype)]
    scores = np.array([*(-k for k in rule.scores[::-1]), 0, *rule.scores], x.dtype)
    column = jnp.asarray(scores.reshape(-1, *(1,) * x.ndim))
    fixed: Any = lax.stop_gradient((distribution, transform))
    # Of heavy tails some are infinite.
    most = float(jnp.finfo(x.dtype).max) ** 0.45
    values = jnp.clip(fixed[0].approximate_quantile(column), -most, most).astype(x.dtype)
    images, middle = fixed[1](values), len(scores) // 2
    # A value within rounding of an end of the support is that end, and moves with it.
    lowest, highest = distribution.bounds
    slack = _rounding(values, values)
    values = jnp.where(values <= lowest + slack, lowest, values)
    values = jnp.where(values >= highest - slack, highest, values).astype(x.dtype)
    # If several values lie at one end, the innermost of their scores stands for all.
    first = jnp.max(jnp.where(values <= values[0], column, column[0]), axis=0)
    last = jnp.min(jnp.where(values >= values[-1], column, column[-1]), axis=0)
    column = jnp.clip(column, first, last)
    unit = (images[middle + 3] - images[middle - 3]) / 6
    least = jnp.maximum(rule.least * unit, jnp.finfo(x.dtype).tiny)
    scale = jnp.where(sigma > least, sigma, least)
    center = images[middle]
    safe = jnp.where(jnp.abs(x - center) < rule.far * scale, x, center)
    return safe, scale, _Landmarks(column, values, images)


def _rounding(values: Array, landmarks: Array) -> Array:
    """Differences from values that are rounding errors."""
    middle = len(landmarks) // 2
    unit = landmarks[middle + 3] - landmarks[middle - 3]
    return 4 * jnp.finfo(values.dtype).eps * jnp.maximum(jnp.abs(values), unit)


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
    rule = _RULES[str(x.dtype)]
    low, high = _window(x, sigma, transform, marks)
    shares = lax.stop_gradient(_shares(low, high, sigma, distribution, transform, marks))
    points, weights = (
        jnp.asarray(values.reshape(-1, *(1,) * shares.ndim), x.dtype)
        for values in np.polynomial.legendre.leggauss(rule.nodes)
    )
    half = 0.5 * (shares[1:] - shares[:-1])
    nodes = low + (high - low) * (0.5 * (shares[1:] + shares[:-1]) + half * points)
    lengths = ((high - low) * half * weights).reshape(rule.panels * rule.nodes, *x.shape)
    nodes = nodes.reshape(lengths.shape)
    u = (x - transform(nodes)) / sigma
    if side is None:
        logs = distribution.log_prob(nodes) + log_normal_density(u) - jnp.log(sigma)
        beyond = jnp.full_like(x, -jnp.inf)
    else:
        logs = distribution.log_prob(nodes) + log_ndtr(side * u)
        # Before the first of the values the noise makes no difference.
        first = jnp.where(side > 0, low, high)
        beyond = log_ndtr(side * distribution.normal_score(first))
        beyond = beyond + log_ndtr(side * (x - transform(first)) / sigma)
    top = lax.stop_gradient(jnp.maximum(jnp.max(logs, axis=0), beyond))
    return top + jnp.log(jnp.sum(lengths * jnp.exp(logs - top), axis=0) + jnp.exp(beyond - top))


def _window(x: Array, sigma: Array, transform: Any, marks: _Landmarks) -> tuple[Array, Array]:
    """The values that matter for each point; their ends move with those of the support alone.

    In the normal scores `z` of the values and `u` of the noise the density is ``exp(-(z^2 +
    u^2)/2)``. With its largest value known, neither can be larger than some number.
    """
    x, sigma, transform, (scores, fixed, images) = lax.stop_gradient((x, sigma, transform, marks))
    rule = _RULES[str(x.dtype)]
    nearest = jnp.clip(x, images[0], images[-1])
    away = (x - nearest) / sigma
    step = (nearest - images) / sigma
    heights = scores**2 + step * (step + 2 * away)
    # The least exponent of any mark, and what the integrand may fall below it.
    score = _on_lines(transform.inv(nearest), fixed, scores)
    most = jnp.minimum(score**2, jnp.min(heights, axis=0)) + rule.reach**2
    reach = sigma * most / (jnp.abs(away) + jnp.sqrt(away**2 + most))
    radius = jnp.sqrt(most)
    first, last = transform.inv(
        jnp.clip(jnp.stack([nearest - reach, nearest + reach]), images[0], images[-1])
    )
    low = jnp.max(jnp.where(scores <= -radius, marks.values, marks.values[0]), axis=0)
    high = jnp.min(jnp.where(scores >= radius, marks.values, marks.values[-1]), axis=0)
    # The inverse of the map may be rounded to beyond an end of the support.
    ends = jnp.clip(jnp.stack([first, last]), low, high)
    slack = _rounding(ends, fixed)
    return jnp.maximum(low, ends[0] - slack[0]), jnp.minimum(high, ends[1] + slack[1])


def _on_lines(x: Array, knots: Array, values: Array) -> Array:
    """Linear interpolation between knots that ascend along the first axis, constant beyond them."""
    # The sum is over the last axis: over the first it takes ten times as long.
    knots, values = jnp.moveaxis(knots, 0, -1), jnp.moveaxis(values, 0, -1)
    widths = jnp.diff(knots)
    parts = jnp.clip((x[..., None] - knots[..., :-1]) / jnp.where(widths > 0, widths, 1), 0, 1)
    return values[..., 0] + jnp.sum(jnp.diff(values) * parts, axis=-1)


def _shares(
    low: Array, high: Array, sigma: Array, distribution: Any, transform: Any, marks: _Landmarks
) -> Array:
    """Ends of the panels as shares of the way from `low` to `high`.

    Panels end where the density bends, and at knots of the map. Between these places they are about
    equally long in normal scores of the value plus units of the noise: a map may have slopes of all
    sizes.
    """
    rule = _RULES[str(low.dtype)]

    def joined(*parts: Array) -> Array:
        wide = [
            values.reshape(len(values), *(1,) * (low.ndim + 1 - values.ndim), *values.shape[1:])
            for values in parts
        ]
        shape = jnp.broadcast_shapes(*(values.shape[1:] for values in wide))
        wide = [jnp.broadcast_to(values, (len(values), *shape)) for values in wide]
        return jnp.sort(jnp.concatenate(wide), axis=0)

    def places(values: Array) -> Array:
        # Scores and images have no axis of the points where these share a distribution.
        scores = _on_lines(values, marks.values, marks.scores)
        return scores + jax.vmap(transform)(values) / sigma

    bends = values = distribution.kinks()
    if isinstance(transform, MonotoneSpline):
        knots = jnp.moveaxis(jnp.asarray(transform.knots), -1, 0)
        chosen = np.unique(np.linspace(0, len(knots) - 1, rule.knots).astype(int))
        bends, values = joined(bends, knots[chosen]), joined(bends, knots)
    bends, values = joined(bends), joined(values, marks.values)
    first, last = outer = places(jnp.stack([low, high]))
    ends = jnp.clip(places(bends), first, last)
    others = rule.panels - jnp.sum((ends > first) & (ends < last), axis=0, dtype=low.dtype)
    ends = jnp.concatenate([outer[:1], ends, outer[1:]])
    lengths = jnp.diff(ends, axis=0)
    # Rounding must not add a panel: the last one would be left out.
    counts = jnp.ceil(lengths / (last - first) * others - 0.01)
    before = jnp.cumsum(counts, axis=0) - counts
    steps = joined(jnp.arange(rule.panels + 1, dtype=low.dtype))[:, None] - before
    ends = first + jnp.sum(lengths * jnp.clip(steps / jnp.maximum(counts, 1), 0, 1), axis=1)
    # Back to values: between all these, places are about on lines.
    at_values = jnp.concatenate([outer[:1], jnp.clip(places(values), first, last), outer[1:]])
    values = jnp.concatenate([low[None], jnp.clip(values, low, high), high[None]])
    length = jnp.where(high > low, high - low, 1)
    return (_on_lines(ends, at_values, values) - low) / length
