"""Means and covariances given some outputs: of the inputs behind them, and of other outputs."""

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

from nn_uq_dist.basics._row_algebra import matmul, matvec
from nn_uq_dist.basics._summary_line import summary_line
from nn_uq_dist.box_gaussian._expectation_propagation import fixed_point
from nn_uq_dist.box_gaussian._gaussian_part import (
    Problem,
    input_covariance,
    normal_factor,
    posterior,
    solve_lower,
    whiten,
)
from nn_uq_dist.box_gaussian._no_derivatives import undifferentiated
from nn_uq_dist.box_gaussian._own_units import in_own_units


class Moments(NamedTuple):
    """Mean (..., n) and covariance (..., n, n).

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from nn_uq_dist.box_gaussian import Moments
    >>> Moments(jnp.zeros(2), jnp.eye(2)).covariance.shape
    (2, 2)
    """

    mean: Array
    covariance: Array

    def __repr__(self) -> str:
        return summary_line(self)


def input_moments(deviation: Array, weights: Array, covariance: Array | None) -> Moments:
    """Mean and covariance of the uniforms behind observed outputs.

    Parameters
    ----------
    deviation : Array, shape (..., d)
    weights : Array, shape (..., d, n)
    covariance : Array, shape (..., d, d), or None
        All three arguments have the leading axes of the points.

    Returns
    -------
    Moments
        NaN where the passes have not converged.

    Notes
    -----
    These are the moments of the normal law from expectation propagation.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from nn_uq_dist.box_gaussian import input_moments
    >>> found = input_moments(jnp.array([1.0]), jnp.array([[1.0, 1.0]]), jnp.array([[1e-4]]))
    >>> bool(jnp.allclose(found.mean, 0.5, atol=1e-3))  # two inputs share what was seen
    True
    """
    given = in_own_units(deviation, weights, covariance)
    return uniform_moments(given.deviation, given.weights, given.covariance)


def uniform_moments(deviation: Array, weights: Array, covariance: Array | None) -> Moments:
    """`input_moments` for outputs in their own units."""
    problem = undifferentiated(Problem(deviation, weights, covariance))
    whitened = whiten(problem)
    found = fixed_point(problem, whitened, jnp.ones(deviation.shape[:-1], bool))
    law = posterior(problem, whitened, found.sites)
    spread = input_covariance(problem, found.sites, law.root)
    valid = found.converged & ~found.outside
    return Moments(
        jnp.where(valid[..., None], law.mean, jnp.nan),
        jnp.where(valid[..., None, None], spread, jnp.nan),
    )


class Regression(NamedTuple):
    r"""Other outputs as ``columns u + gain r`` plus a normal part, given deviations ``r`` of some.

    Attributes
    ----------
    columns : Array, shape (..., e, n)
        :math:`W_r - G W_k`.
    gain : Array, shape (..., e, d), or None
        :math:`G = S_{0,rk} S_{0,kk}^{-1}`; None without a normal part.
    spread : Array, shape (..., e, e), or None
        :math:`S_{0,rr} - G S_{0,kr}`.
    """

    columns: Array
    gain: Array | None
    spread: Array | None

    def of_inputs(self, inputs: Array, deviation: Array) -> Array:
        """The part explained by the uniforms and the known outputs."""
        explained = matvec(self.columns, inputs)
        return explained if self.gain is None else explained + matvec(self.gain, deviation)


def regression(weights: Array, covariance: Array | None, known: int) -> Regression:
    """Regression of the other outputs on the first ``known`` ones, by their normal parts.

    All outputs in their own units.

    Parameters
    ----------
    weights : Array, shape (..., d + e, n)
    covariance : Array, shape (..., d + e, d + e), or None
    known : int
        ``d``.
    """
    own, seen = weights[..., known:, :], weights[..., :known, :]
    if covariance is None:
        return Regression(own, None, None)
    factor = normal_factor(seen, covariance[..., :known, :known])
    half = solve_lower(factor, covariance[..., :known, known:])
    gain = solve_lower(factor, half, transposed=True).mT
    spread = covariance[..., known:, known:] - matmul(half.mT, half)
    return Regression(own - matmul(gain, seen), gain, spread)


def output_moments(deviation: Array, weights: Array, covariance: Array | None) -> Moments:
    """Mean and covariance of other outputs given the first ones; means relative to the prior means.

    Parameters
    ----------
    deviation : Array, shape (..., d)
        Deviations of the known outputs; like all outputs, in their own units.
    weights : Array, shape (..., d + e, n)
        Weights of all outputs, the known ones first.
    covariance : Array, shape (..., d + e, d + e), or None
        All three arguments have the leading axes of the points.

    Returns
    -------
    Moments
        Moments of the e others; NaN where the passes have not converged.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from nn_uq_dist.box_gaussian._moments import output_moments
    >>> weights = jnp.array([[1.0, 1.0], [1.0, 0.0]])  # a sum, and one of its two terms
    >>> bool(jnp.allclose(output_moments(jnp.array([1.0]), weights, None).mean, 0.5, atol=1e-3))
    True
    """
    known = deviation.shape[-1]
    seen = None if covariance is None else covariance[..., :known, :known]
    uniforms = uniform_moments(deviation, weights[..., :known, :], seen)
    others = regression(weights, covariance, known)
    spread = matmul(matmul(others.columns, uniforms.covariance), others.columns.mT)
    mean = others.of_inputs(uniforms.mean, deviation)
    return Moments(mean, spread if others.spread is None else spread + others.spread)
