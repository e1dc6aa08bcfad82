r"""Hermite series of outputs in their normal scores, and the covariances that follow from it.

An output is a function of its normal score, ``y = F^{-1}(Phi(z))``. With the normalized Hermite
polynomials ``he_k = He_k/sqrt(k!)`` and ``y = sum_k a_k he_k(z)``, outputs whose scores have
correlation ``rho`` have

.. math:: \operatorname{Cov}(y_i, y_j) = \sum_{k \ge 1} a_{ik} a_{jk} \rho^k

(Mehler's formula): no integral over two variables is left.
"""

from functools import singledispatch
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax import Array, lax
from jax.scipy.stats import norm

from nn_uq_dist.distributions._marginal import LinearizedMarginal
from nn_uq_dist.distributions._univariate import from_normal_score, normal_score

# Odd: the last term takes the rest of the variance, and a symmetric law has odd terms only. An even
# one would keep opposite outputs from the correlation -1.
NUM_TERMS = 127
# he_k phi is at most about sqrt(phi): 1e-11 at the end of the range.
_RANGE = 10.0
_PANEL = 0.7
_NODES_PER_PANEL = 12


class ScoreQuadrature(NamedTuple):
    """Nodes of a quadrature over the standard normal law, and what the outputs are there.

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
    def variance(self) -> Array:
        """Variances of the outputs, shape ``(..., N_y)``."""
        return jnp.sum(self.rule * self.deviations**2, axis=0)


def score_quadrature(
    marginals: dist.Distribution, loc: Array | None = None, scale: Array | None = None
) -> ScoreQuadrature:
    """Outputs at the nodes of a rule over ``x``, where the scores are ``loc + scale x``.

    Parameters
    ----------
    marginals : numpyro.distributions.Distribution
        Univariate, ``batch_shape (..., N_y)``.
    loc, scale : Array, shape (..., N_y), optional
        Mean and standard deviation of the scores. Default: standard normal scores.

    Notes
    -----
    Composite Gauss-Legendre rule. Its panels end where the quantile function bends: Gauss-Hermite
    nodes would leave an error of 1e-4 at such a point.
    """
    kinks = lax.stop_gradient(_kinks(marginals))
    if loc is not None and scale is not None:
        nodes, rule = _rule(lax.stop_gradient((kinks - loc) / scale), -_RANGE)
        values = from_normal_score(marginals, loc + scale * nodes)
    elif isinstance(marginals, LinearizedMarginal):
        # Symmetric: half of the root-finding is enough.
        nodes, rule = _rule(jnp.abs(kinks[: len(kinks) // 2]), 0.0)
        half = from_normal_score(marginals, nodes) - jnp.asarray(marginals.loc)
        return ScoreQuadrature(
            jnp.concatenate([-nodes, nodes]),
            jnp.concatenate([rule, rule]),
            marginals.mean,
            jnp.concatenate([-half, half]),
        )
    else:
        nodes, rule = _rule(kinks, -_RANGE)
        values = from_normal_score(marginals, nodes)
    mean = jnp.sum(rule * values, axis=0)
    return ScoreQuadrature(nodes, rule, mean, values - mean)


@singledispatch
def _kinks(marginals: dist.Distribution) -> Array:
    """Scores at which the quantile function is not smooth, shape ``(m, ..., N_y)``."""
    return jnp.zeros((0, *marginals.batch_shape), jnp.result_type(marginals.mean))


@_kinks.register
def _(marginals: LinearizedMarginal) -> Array:
    # The density of a sum of uniforms is a spline with knots at the sums of +-w_k. Those of the
    # three largest weights matter: from four weights on the quantile function is smooth enough.
    weights = jnp.abs(jnp.asarray(marginals.weights))
    missing = max(3 - weights.shape[-1], 0)
    weights = jnp.pad(weights, [(0, 0)] * (weights.ndim - 1) + [(0, missing)])
    first, second, third = jnp.moveaxis(lax.top_k(weights, 3)[0], -1, 0)
    signs = [(1, 1), (1, -1), (-1, 1), (-1, -1)]
    corners = jnp.stack([jnp.abs(first + a * second + b * third) for a, b in signs])
    scores = normal_score(marginals, jnp.asarray(marginals.loc) + corners)
    return jnp.concatenate([-scores, scores])


@_kinks.register
def _(marginals: dist.Laplace) -> Array:
    return jnp.zeros((1, *marginals.batch_shape), jnp.result_type(marginals.mean))


def _rule(kinks: Array, low: float) -> tuple[Array, Array]:
    """Nodes and weights against the standard normal density, shape ``(Q, ..., N_y)``."""
    dtype = kinks.dtype
    kinks = jnp.clip(jnp.where(jnp.isnan(kinks), _RANGE, kinks), low, _RANGE)
    panels = round((_RANGE - low) / _PANEL)
    regular = jnp.linspace(low, _RANGE, panels + 1, dtype=dtype)
    regular = regular.reshape((-1,) + (1,) * (kinks.ndim - 1))
    regular = jnp.broadcast_to(regular, (panels + 1, *kinks.shape[1:]))
    ends = jnp.sort(jnp.concatenate([regular, kinks]), axis=0)
    column = (-1,) + (1,) * ends.ndim
    points, weights = (
        jnp.asarray(part, dtype).reshape(column)
        for part in np.polynomial.legendre.leggauss(_NODES_PER_PANEL)
    )
    center, half = 0.5 * (ends[1:] + ends[:-1]), 0.5 * (ends[1:] - ends[:-1])
    nodes = (center + half * points).reshape(-1, *ends.shape[1:])
    rule = (half * weights).reshape(nodes.shape) * norm.pdf(nodes)
    return nodes, rule


def hermite_coefficients(quadrature: ScoreQuadrature, num_terms: int = NUM_TERMS) -> Array:
    """Coefficients ``a_1, ..., a_K`` of each output, shape ``(K, ..., N_y)``.

    The last coefficient holds what is left of the variance, so that the covariance of outputs of
    one shape tends to their variance as ``rho`` tends to one, however slowly the series converges.
    """
    nodes = quadrature.nodes
    weighted = quadrature.rule * quadrature.deviations

    def following(state: tuple[Array, Array], k: Array) -> tuple[tuple[Array, Array], Array]:
        before, current = state
        coefficient = jnp.sum(weighted * current, axis=0)
        after = (nodes * current - jnp.sqrt(k) * before) / jnp.sqrt(k + 1)
        return (current, after), coefficient

    degrees = jnp.arange(1, num_terms, dtype=nodes.dtype)
    coefficients = lax.scan(following, (jnp.ones_like(nodes), nodes), degrees)[1]
    rest = lax.stop_gradient(quadrature.variance - jnp.sum(coefficients**2, axis=0))
    return jnp.concatenate([coefficients, jnp.sqrt(jnp.maximum(rest, 0))[None]])


def covariance_of_scores(coefficients: Array, correlation: Array) -> tuple[Array, Array]:
    """Covariance of the outputs and its derivative, entry by entry in the scores' correlation.

    Parameters
    ----------
    coefficients : Array, shape (K, ..., N_y)
    correlation : Array, shape (..., N_y, N_y)
    """

    def horner(state: tuple[Array, Array], a: Array) -> tuple[tuple[Array, Array], None]:
        value, slope = state
        slope = slope * correlation + value
        value = value * correlation + a[..., :, None] * a[..., None, :]
        return (value, slope), None

    shape = jnp.broadcast_shapes(
        correlation.shape, (*coefficients.shape[1:], coefficients.shape[-1])
    )
    zero = jnp.zeros(shape, jnp.result_type(correlation, coefficients))
    (value, slope), _ = lax.scan(horner, (zero, zero), coefficients, reverse=True)
    return value * correlation, slope * correlation + value


def covariance_of_outputs(quadrature: ScoreQuadrature, correlation: Array) -> Array:
    """Covariance matrix of outputs whose scores have this correlation matrix."""
    coefficients = hermite_coefficients(quadrature)
    covariance, _ = covariance_of_scores(coefficients, correlation)
    diagonal = jnp.eye(correlation.shape[-1], dtype=bool)
    return jnp.where(diagonal, quadrature.variance[..., None], covariance)
