r"""Quadrature over the values of outputs: moments and Hermite coefficients.

Panels are about half a normal score wide, so that they are dense where the distribution bends, and
end where the density does: a rule that does not know these places would leave an error of 1e-4.
"""

from typing import Any, NamedTuple

import numpy as np
from jax import Array, lax

from nn_uq_dist.basics.concrete import one_program
from nn_uq_dist.basics.quadrature_nodes import gauss_legendre
from nn_uq_dist.basics.row_algebra import binary_unit, namespace

# he_k phi is at most about sqrt(phi): 1e-11 at the end of the range.
_ENDS = (*np.arange(0, 6, 0.5), 6, 7, 8, 10)


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


def score_ends(dtype: Any, rank: int) -> np.ndarray:
    """Normal scores of the ends of the panels, with axes for so many axes of a batch."""
    ends = np.array([*(-end for end in _ENDS[:0:-1]), *_ENDS], dtype)
    return ends.reshape(-1, *(1,) * rank)


@one_program
def rule_between(
    ends: Array, kinks: Array, low: Array, high: Array, mean: Array, scale: Array
) -> ValueRule:
    """The rule with these panels, which also end at kinks, between the ends of the support.

    Derivatives are those of nodes that move with the ends of the support, or with mean and standard
    deviation where there are none: at fixed values they would have a layer at the edge.
    """
    xp: Any = namespace(ends)
    shape = np.broadcast_shapes(ends.shape[1:], low.shape)
    ends, kinks = (xp.broadcast_to(_constant(part), (len(part), *shape)) for part in (ends, kinks))
    ends = xp.sort(xp.concatenate([ends, xp.clip(kinks, ends[:1], ends[-1:])]), axis=0)
    values, lengths = gauss_legendre(xp.clip(ends, _constant(low), _constant(high)))
    low = xp.where(xp.isfinite(low), low, mean - scale)
    high = xp.where(xp.isfinite(high), high, mean + scale)
    width = _constant(high - low)
    moved = low + (high - low) * _constant((values - low) / width)
    return ValueRule(values + (moved - _constant(moved)), lengths * ((high - low) / width))


def _constant(part: Array) -> Array:
    return part if namespace(part) is np else lax.stop_gradient(part)


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
    center = rule.values[len(rule.values) // 2]
    shift = xp.sum(weights * (rule.values - center), axis=0)
    return Moments(weights, center + shift, rule.values - center - shift)


@one_program
def _standard_deviation(rule: Array, deviations: Array) -> Array:
    xp: Any = namespace(deviations)
    # Squares of small deviations underflow long before their root does.
    unit = binary_unit(xp.max(xp.abs(deviations), axis=0))
    variance = xp.sum(rule * (deviations / unit) ** 2, axis=0)
    varies = variance > 0
    # The root has an infinite slope at 0.
    root: Array = xp.where(varies, xp.sqrt(xp.where(varies, variance, 1)), variance)
    return unit * root


@one_program
def standardized(moments: Moments, order: int) -> Array:
    """``E[(Y - mean)^order] / standard_deviation^order``."""
    xp: Any = namespace(moments.deviations)
    powers: Array = (moments.deviations / moments.standard_deviation) ** order
    return xp.sum(moments.probabilities * powers, axis=0)
