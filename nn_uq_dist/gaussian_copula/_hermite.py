r"""Hermite series of outputs in their normal scores, and the resulting covariances.

An output is a function of its normal score, ``y = F^{-1}(Phi(z))``. With the normalized Hermite
polynomials ``he_k = He_k/sqrt(k!)`` and ``y = sum_k a_k he_k(z)``, outputs whose scores have
correlation ``rho`` have

.. math:: \operatorname{Cov}(y_i, y_j) = \sum_{k \ge 1} a_{ik} a_{jk} \rho^k

(Mehler's formula): no integral over two variables is left.
"""

import jax
import jax.numpy as jnp
from jax import Array, lax

from nn_uq_dist.basics._normal_tails import log_normal_density
from nn_uq_dist.basics._row_algebra import binary_unit
from nn_uq_dist.laws._score_quadrature import ScoreQuadrature, ScoreRule

# Odd, because the last term takes the rest of the variance and a symmetric law has only odd terms.
# With an even last term, opposite outputs could not attain the correlation -1.
NUM_TERMS = 127


def hermite_coefficients(rule: ScoreQuadrature | ScoreRule, num_terms: int = NUM_TERMS) -> Array:
    r"""Coefficients ``a_1, ..., a_K`` of each output, shape ``(K, ..., N_y)``.

    From quantiles at scores, :math:`a_k = E[y(Z)\,he_k(Z)]`, or from scores at values: since
    :math:`(he_{k-1} \phi)' = -\sqrt k\, he_k \phi`, integration by parts gives

    .. math:: a_k = \frac{1}{\sqrt k} \int he_{k-1}(z(y))\, \phi(z(y))\, dy.

    The last coefficient holds the rest of the variance, so that the covariance of outputs with laws
    of the same shape tends to their variance as ``rho`` tends to one, however slowly the series
    converges.

    Parameters
    ----------
    rule : ScoreQuadrature or ScoreRule
        ``law.hermite_rule()`` of an `nn_uq_dist.laws.OutputLaw`.
    num_terms : int
        Number of coefficients.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> import nn_uq_dist as nuq
    >>> from nn_uq_dist.gaussian_copula import hermite_coefficients
    >>> uniform = nuq.LinearizedMarginal(jnp.zeros(1), [[1.0]])
    >>> print(f"{hermite_coefficients(uniform.hermite_rule())[0, 0]:.4f}")  # 1/sqrt(pi)
    0.5642
    """
    coefficients, unit = coefficients_in_units(rule, num_terms)
    return unit * coefficients


def coefficients_in_units(
    rule: ScoreQuadrature | ScoreRule, num_terms: int = NUM_TERMS
) -> tuple[Array, Array]:
    """`hermite_coefficients` in powers of two near the standard deviations, and these units.

    Products of the coefficients underflow long before the covariances do.
    """
    unit = binary_unit(jnp.sqrt(rule.variance))
    variance = rule.variance / unit / unit
    degrees = jnp.arange(1, num_terms, dtype=variance.dtype)
    if isinstance(rule, ScoreRule):
        # At the edge of the support the score is infinite and the integrand is zero.
        inside = jnp.isfinite(rule.scores) | jnp.isnan(rule.scores)
        scores = jnp.where(inside, rule.scores, 0)
        measure = jnp.where(inside, rule.lengths / unit * jnp.exp(log_normal_density(scores)), 0)
        projections = _projections(scores, measure, num_terms - 1)
        if rule.is_half:
            # The other half doubles integrands that are even in the score, and cancels odd ones.
            projections = projections * jnp.where(degrees % 2 == 1, 2, 0).reshape(
                -1, *(1,) * variance.ndim
            ).astype(projections.dtype)
        roots = jnp.sqrt(degrees).reshape(-1, *(1,) * variance.ndim)
        coefficients = projections / roots
    else:
        measure = rule.rule * (rule.deviations / unit)
        coefficients = _projections(rule.nodes, measure, num_terms)[1:]
    rest = lax.stop_gradient(variance - jnp.sum(coefficients**2, axis=0))
    return jnp.concatenate([coefficients, jnp.sqrt(jnp.maximum(rest, 0))[None]]), unit


def _projections(nodes: Array, measure: Array, count: int) -> Array:
    """``sum_q measure_q he_k(z_q)`` for ``k = 0, ..., count - 1``, shape ``(count, ...)``."""

    # The recursion is for the product with the measure: a polynomial alone may overflow.
    def following(state: tuple[Array, Array], k: Array) -> tuple[tuple[Array, Array], Array]:
        before, current = state
        after = (nodes * current - jnp.sqrt(k) * before) / jnp.sqrt(k + 1)
        return (current, after), jnp.sum(current, axis=0)

    degrees = jnp.arange(count, dtype=nodes.dtype)
    return lax.scan(following, (jnp.zeros_like(measure), measure), degrees)[1]


def covariance_of_scores(coefficients: Array, correlation: Array) -> tuple[Array, Array]:
    """Covariance of the outputs, and its entrywise derivative in the correlation of the scores.

    Parameters
    ----------
    coefficients : Array, shape (K, ..., N_y)
    correlation : Array, shape (..., N_y, N_y)

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from nn_uq_dist.gaussian_copula import covariance_of_scores
    >>> rho = jnp.array([[1.0, 0.5], [0.5, 1.0]])
    >>> covariance, slope = covariance_of_scores(jnp.array([[1.0, 2.0]]), rho)  # normal outputs
    >>> print(covariance[0, 1], slope[0, 1])
    1.0 2.0
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


@jax.jit
def covariance_of_outputs(rule: ScoreQuadrature | ScoreRule, correlation: Array) -> Array:
    """Covariance matrix of outputs whose scores have this correlation matrix.

    Parameters
    ----------
    rule : ScoreQuadrature or ScoreRule
        ``law.hermite_rule()`` of an `nn_uq_dist.laws.OutputLaw` with ``batch_shape (..., N_y)``.
    correlation : Array, shape (..., N_y, N_y)

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> import nn_uq_dist as nuq
    >>> from nn_uq_dist.gaussian_copula import covariance_of_outputs
    >>> uniform = nuq.LinearizedMarginal(jnp.zeros(2), [[1.0], [2.0]])
    >>> rho = jnp.array([[1.0, 0.5], [0.5, 1.0]])
    >>> print(f"{covariance_of_outputs(uniform.hermite_rule(), rho)[0, 1]:.4f}")
    0.3217
    """
    coefficients, unit = coefficients_in_units(rule)
    covariance, _ = covariance_of_scores(coefficients, correlation)
    covariance = unit[..., None] * covariance * unit[..., None, :]
    diagonal = jnp.eye(correlation.shape[-1], dtype=bool)
    return jnp.where(diagonal, rule.variance[..., None], covariance)
