"""Quadrature over the normal scores of outputs: moments, Hermite coefficients, entropies."""

import dataclasses
import math
from typing import Any, NamedTuple

from jax import Array, lax

from nn_uq_dist.basics._known_values import one_program
from nn_uq_dist.basics._nodes import gauss_legendre
from nn_uq_dist.basics._pytree import register_frozen
from nn_uq_dist.basics._row_algebra import binary_unit, namespace
from nn_uq_dist.basics._summary_line import summary_line

# he_k phi is at most about sqrt(phi): 1e-11 at the end of the range.
RANGE = 10.0
_PANEL = 0.7


class ScoreQuadrature(NamedTuple):
    """Nodes of a quadrature over the standard normal law, and the outputs at them.

    Attributes
    ----------
    nodes, rule : Array, shape (Q, ..., N_y)
        Scores and their weights, which sum to one over the first axis.
    mean : Array, shape (..., N_y)
        Means of the outputs.
    deviations : Array, shape (Q, ..., N_y)
        Outputs at the nodes less their means.
    """

    nodes: Array
    rule: Array
    mean: Array
    deviations: Array

    @property
    def standard_deviation(self) -> Array:
        """Standard deviations of the outputs, shape ``(..., N_y)``."""
        return _standard_deviation(self.rule, self.deviations)


def score_quadrature(
    law: Any, loc: Array | None = None, scale: Array | None = None
) -> ScoreQuadrature:
    """Outputs at the nodes of a rule over ``x``, where the scores are ``loc + scale x``.

    Parameters
    ----------
    law : OutputLaw
        ``batch_shape (..., N_y)``.
    loc, scale : Array, shape (..., N_y), optional
        Mean and standard deviation of the scores. Default: standard normal scores.

    Notes
    -----
    Composite Gauss-Legendre rule. Its panels end where the quantile function bends: Gauss-Hermite
    nodes would leave an error of 1e-4 at such a point.
    """
    kinks = lax.stop_gradient(law.normal_score(law.kinks()))
    if loc is not None and scale is not None:
        nodes, rule = _normal_rule(lax.stop_gradient((kinks - loc) / scale))
        values = law.from_normal_score(loc + scale * nodes)
    else:
        nodes, rule = _normal_rule(kinks)
        values = law.from_normal_score(nodes)
    return ScoreQuadrature(nodes, rule, *_centered(rule, values))


def standardized_moment(law: Any, order: int) -> Array:
    """``E[(Y - mean)^order] / sd^order``, shape of the batch."""
    quadrature = score_quadrature(law)
    scale = quadrature.standard_deviation
    return _moment(quadrature.rule, quadrature.deviations, scale, order)


@one_program
def _normal_rule(kinks: Array) -> tuple[Array, Array]:
    """Nodes and weights against the standard normal density, shape ``(Q, ..., N_y)``.

    A composite Gauss-Legendre rule with panels that end at the kinks.
    """
    xp: Any = namespace(kinks)
    kinks = xp.clip(xp.where(xp.isnan(kinks), RANGE, kinks), -RANGE, RANGE)
    panels = round(2 * RANGE / _PANEL)
    regular = xp.linspace(-RANGE, RANGE, panels + 1, dtype=kinks.dtype)
    regular = regular.reshape((-1,) + (1,) * (kinks.ndim - 1))
    regular = xp.broadcast_to(regular, (panels + 1, *kinks.shape[1:]))
    ends = xp.sort(xp.concatenate([regular, kinks]), axis=0)
    nodes, lengths = gauss_legendre(ends)
    return nodes, lengths * xp.exp(-0.5 * nodes**2) / math.sqrt(2 * math.pi)


@one_program
def _moment(rule: Array, deviations: Array, scale: Array, order: int) -> Array:
    xp: Any = namespace(deviations)
    standardized: Array = (deviations / scale) ** order
    return xp.sum(rule * standardized, axis=0)


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
def _centered(rule: Array, values: Array) -> tuple[Array, Array]:
    """Means of values under a rule, and the values less their means."""
    xp: Any = namespace(values)
    mean = xp.sum(rule * values, axis=0)
    return mean, values - mean


@register_frozen
@dataclasses.dataclass(frozen=True)
class ScoreRule:
    r"""Rule for integrals :math:`\int f(z(x))\,dx \approx \sum_q \ell_q f(z_q)` over the values.

    Parameters
    ----------
    scores : Array, shape (Q, ..., N_y)
        Normal scores of the nodes; infinite at and beyond the edge of the support.
    lengths : Array, shape (Q, ..., N_y)
        Weights of the nodes, in the unit of the outputs.
    standard_deviation : Array, shape (..., N_y)
        Standard deviations of the outputs.
    is_half : bool
        Whether the laws are symmetric and the nodes cover their upper halves only.
    """

    scores: Array
    lengths: Array
    standard_deviation: Array
    is_half: bool = dataclasses.field(default=False, metadata={"static": True})

    def __repr__(self) -> str:
        return summary_line(self)
