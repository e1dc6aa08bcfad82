"""Quadratures over the values of outputs, and the moments that they give.

Panels are about half a normal score wide, so that they are dense where the distribution bends, and
end where the density does: a rule that does not know these places would leave an error of 1e-4.
"""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from nn_uq_dist.basics.concrete import one_program
from nn_uq_dist.basics.quadrature_nodes import gauss_legendre
from nn_uq_dist.basics.row_algebra import binary_unit, namespace


class ValueRule(NamedTuple):
    r"""A rule :math:`\int f(y)\,dy \approx \sum_q \ell_q f(y_q)`.

    Attributes
    ----------
    values, lengths : Array, shape (Q, ...)
        Nodes and their weights.
    """

    values: Array
    lengths: Array


class Moments(NamedTuple):
    """Probabilities of the nodes, means, and the values less their means."""

    probabilities: Array
    mean: Array
    deviations: Array

    @property
    def standard_deviation(self) -> Array:
        """Standard deviations of the outputs."""
        return _standard_deviation(self.probabilities, self.deviations)


@one_program
def rule_between(
    ends: Array, kinks: Array, low: Array, high: Array, mean: Array, scale: Array
) -> ValueRule:
    """The rule with these panels, which also end at kinks, between the ends of the support.

    Derivatives are those of nodes that move with the ends of the support, or with mean and standard
    deviation where there are none: at fixed values they would have a layer at the edge.
    """
    xp: Any = namespace(ends)
    fixed: Any = lax.stop_gradient if xp is jnp else np.asarray
    shape = np.broadcast_shapes(ends.shape[1:], low.shape)
    ends, kinks = (xp.broadcast_to(fixed(x), (len(x), *shape)) for x in (ends, kinks))
    ends = xp.sort(xp.concatenate([ends, xp.clip(kinks, ends[:1], ends[-1:])]), axis=0)
    values, lengths = gauss_legendre(xp.clip(ends, fixed(low), fixed(high)))
    low = xp.where(xp.isfinite(low), low, mean - scale)
    high = xp.where(xp.isfinite(high), high, mean + scale)
    width = fixed(high - low)
    moved = low + (high - low) * fixed((values - low) / width)
    return ValueRule(values + (moved - fixed(moved)), lengths * ((high - low) / width))


@one_program
def moments_of(rule: ValueRule, log_densities: Array) -> Moments:
    """Moments of distributions with these log densities at the nodes, normalized or not."""
    xp: Any = namespace(log_densities)
    inside = (rule.lengths > 0) & xp.isfinite(log_densities)
    inside = inside | xp.isnan(log_densities)
    logs = xp.where(inside, log_densities, 0)
    weights = xp.where(inside, rule.lengths * xp.exp(logs), 0)
    weights = weights / xp.sum(weights, axis=0)
    # Means far from zero would be rounded more than deviations are.
    center = xp.sum(weights * rule.values, axis=0)
    shift = xp.sum(weights * (rule.values - center), axis=0)
    return Moments(weights, center + shift, rule.values - center - shift)


@one_program
def _standard_deviation(probabilities: Array, deviations: Array) -> Any:
    xp: Any = namespace(deviations)
    # Squares of small deviations underflow long before their root does.
    unit = binary_unit(xp.max(xp.abs(deviations), axis=0))
    variance = xp.sum(probabilities * (deviations / unit) ** 2, axis=0)
    varies = variance > 0
    # The root has an infinite slope at 0.
    return unit * xp.where(varies, xp.sqrt(xp.where(varies, variance, 1)), variance)


@one_program
def standardized(moments: Moments, order: int) -> Array:
    """``E[(Y - mean)^order] / standard_deviation^order``."""
    xp: Any = namespace(moments.deviations)
    powers: Array = (moments.deviations / moments.standard_deviation) ** order
    return xp.sum(moments.probabilities * powers, axis=0)


def moments_of_scores(distribution: Any, loc: Array, scale: Array) -> tuple[Array, Array, Moments]:
    """Scores at nodes over the values, lengths ``dy``, and moments, for normal scores of this kind.

    Parameters
    ----------
    distribution : OutputDistribution
        ``batch_shape (..., N_y)``.
    loc, scale : Array, shape (..., N_y)
        Mean and standard deviation of the normal scores.
    """
    rule = distribution.value_rule(loc, scale)
    scores, logs = distribution.normal_score_and_log_prob(rule.values)
    # At the edge of the support, where scores are infinite, there is no probability.
    at_edge = jnp.isinf(scores)
    safe = jnp.where(at_edge, 0, scores)
    weighted = logs + 0.5 * (safe**2 - ((safe - loc) / scale) ** 2)
    return scores, rule.lengths, moments_of(rule, jnp.where(at_edge, -jnp.inf, weighted))
