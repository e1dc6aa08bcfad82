"""Given some outputs: moments of the inputs behind them and of other outputs, scores of the next.

The normal distribution from expectation propagation has standard deviations that are off by 5 to
16% if few outputs with little noise are near the corners of the box. The distribution of one input
alone is, up to a constant, the joint density with that input held fixed, which is far more accurate
(B. Cseke and T. Heskes, J. Mach. Learn. Res. 12, 2011): its moments are taken by quadrature.
Correlations remain those of the normal distribution. The same works for other outputs with a normal
part; without one the density is too rough at corners, and nothing is gained.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.scipy.special import logsumexp

from nn_uq_dist.basics.normal_tails import score_from_log_survival
from nn_uq_dist.basics.row_algebra import matmul, matvec, solve_lower
from nn_uq_dist.basics.summary_line import summary_line
from nn_uq_dist.box_gaussian._expectation_propagation import fixed_point
from nn_uq_dist.box_gaussian._gaussian_part import (
    batch_shape,
    input_covariance,
    normal_factor,
    undifferentiated,
    whitened,
)
from nn_uq_dist.box_gaussian._log_density import corrected_log_evidence
from nn_uq_dist.box_gaussian._own_density import OwnDensity, by_own_density
from nn_uq_dist.uniform_sum import normal_score

# Of the quadrature of scores. Conditional densities are smooth except for jumps at an edge; nodes
# are on either side of the value.
_SCORE_NODES = 24
_SCORE_REACH = 9.0


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

    @property
    def mean_and_scale(self) -> tuple[Array, Array]:
        """Mean and standard deviations."""
        return self.mean, jnp.sqrt(jnp.diagonal(self.covariance, axis1=-2, axis2=-1))

    def corrected(self, own: OwnDensity) -> "Moments":
        """Means and variances by the densities of single entries, correlations as they are."""
        spread = own.factor[..., None] * self.covariance * own.factor[..., None, :]
        return Moments(self.mean + own.shift, spread)


def uniform_moments(deviation: Array, weights: Array, covariance: Array | None) -> Moments:
    """Moments of the uniforms given outputs by the passes alone, shape (..., n); or NaN.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from nn_uq_dist.box_gaussian import uniform_moments
    >>> found = uniform_moments(jnp.array([0.5]), jnp.array([[1.0]]), jnp.array([[1e-4]]))
    >>> print(found.mean.round(2))
    [0.5]
    """
    problem = undifferentiated(whitened(deviation, weights, covariance)[0])
    found = fixed_point(problem)
    spread = input_covariance(problem, found.sites, found.gaussian.root)
    valid = (found.converged & ~found.outside)[:, None]
    shape = (*batch_shape(deviation, weights, covariance), weights.shape[-1])
    return Moments(
        jnp.where(valid, found.gaussian.mean, jnp.nan).reshape(shape),
        jnp.where(valid[..., None], spread, jnp.nan).reshape(*shape, shape[-1]),
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

    Parameters
    ----------
    weights : Array, shape (..., d + e, n)
    covariance : Array, shape (..., d + e, d + e), or None
    known : int
        ``d``.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from nn_uq_dist.box_gaussian import regression
    >>> found = regression(jnp.array([[1.0], [2.0]]), jnp.array([[1.0, 0.5], [0.5, 1.0]]), 1)
    >>> print(found.columns, found.gain)
    [[1.5]] [[0.5]]
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
    """`conditional_moments` by the passes alone.

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


@jax.jit
def posterior_moments(deviation: Array, weights: Array, covariance: Array | None) -> Moments:
    """Mean and covariance of the uniforms behind observed outputs, each from its own density.

    Parameters
    ----------
    deviation : Array, shape (..., d)
    weights : Array, shape (..., d, n)
    covariance : Array, shape (..., d, d), or None

    Returns
    -------
    Moments
        NaN where the passes have not converged.

    Raises
    ------
    NotImplementedError
        For derivatives.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from nn_uq_dist.box_gaussian import posterior_moments
    >>> weights, covariance = jnp.array([[1.0, 1.0]]), jnp.array([[1e-2]])
    >>> found = posterior_moments(jnp.array([1.5]), weights, covariance)
    >>> print(f"{found.mean[0]:.3f}")  # two inputs of sum 1.5, neither beyond 1
    0.740
    """
    moments = uniform_moments(deviation, weights, covariance)
    # A uniform is removed by a zero weight, so that all problems have the same shape.
    one_left = 1.0 - jnp.eye(weights.shape[-1], dtype=weights.dtype)
    others = weights[..., None, :, :] * one_left[:, None, :]

    def log_density(inputs: Array) -> Array:
        rest = deviation[..., None, :] - inputs[..., None] * weights.mT
        normal = None if covariance is None else covariance[..., None, :, :]
        return corrected_log_evidence(rest, others, normal)

    return moments.corrected(by_own_density(*moments.mean_and_scale, log_density, (-1.0, 1.0)))


@jax.jit
def conditional_moments(deviation: Array, weights: Array, covariance: Array | None) -> Moments:
    """Mean and covariance of other outputs given the first ones; means relative to the prior means.

    Parameters
    ----------
    deviation : Array, shape (..., d)
        Deviations of the known outputs.
    weights : Array, shape (..., d + e, n)
        Weights of all outputs, the known ones first, in units near their own size.
    covariance : Array, shape (..., d + e, d + e), or None

    Returns
    -------
    Moments
        Moments of the e others; NaN where the passes have not converged.

    Raises
    ------
    NotImplementedError
        For derivatives.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from nn_uq_dist.box_gaussian import conditional_moments
    >>> weights, covariance = jnp.array([[1.0, 1.0], [1.0, 0.0]]), 1e-2 * jnp.eye(2)
    >>> found = conditional_moments(jnp.array([1.5]), weights, covariance)
    >>> print(f"{found.mean[0]:.3f}")  # one of two terms of the sum 1.5, observed with noise
    0.740
    """
    known = deviation.shape[-1]
    moments = output_moments(deviation, weights, covariance)
    # Means of the uniforms from their own densities do not reproduce the known outputs, which
    # matters if an output is nearly determined. So each output also uses its own density.
    if covariance is not None:
        rows = [np.append(np.arange(known), j) for j in range(known, weights.shape[-2])]
        parts = jnp.stack([weights[..., row, :] for row in rows], axis=-3)
        spreads = jnp.stack([covariance[..., row[:, None], row] for row in rows], axis=-3)

        def log_density(outputs: Array) -> Array:
            seen = jnp.broadcast_to(deviation[..., None, :], (*outputs.shape, known))
            values = jnp.concatenate([seen, outputs[..., None]], axis=-1)
            return corrected_log_evidence(values, parts, spreads)

        own = by_own_density(*moments.mean_and_scale, log_density, (-np.inf, np.inf))
        moments = moments.corrected(own)
    return moments


def conditional_scores(deviation: Array, weights: Array, covariance: Array | None) -> Array:
    r"""``Phi^-1(P(Y_j <= y_j | y_1, ..., y_{j-1}))`` for each output, shape as ``deviation``.

    Parameters
    ----------
    deviation : Array, shape (N, d)
    weights : Array, shape (d, n)
    covariance : Array, shape (d, d), or None

    Notes
    -----
    The first score is that of the marginal distribution. The others come from integrals of ratios
    of two evidences, at nodes out to nine conditional standard deviations: 48 evidences for each
    output.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from nn_uq_dist.box_gaussian import conditional_scores
    >>> weights = jnp.array([[1.0, 1.0, 0.5], [1.0, -1.0, 0.5]])
    >>> scores = conditional_scores(jnp.zeros((1, 2)), weights, 0.01 * jnp.eye(2))
    >>> bool(jnp.allclose(scores, 0.0, atol=1e-3))  # the center is the median of each
    True
    """
    scale = None if covariance is None else jnp.sqrt(covariance[0, 0])
    first = normal_score(deviation[:, 0], weights[0], scale)
    others = (_score(j, deviation, weights, covariance) for j in range(1, deviation.shape[-1]))
    return jnp.stack([first, *others], axis=-1)


def _score(j: int, deviation: Array, weights: Array, covariance: Array | None) -> Array:
    part = weights[: j + 1]
    own = None if covariance is None else covariance[: j + 1, : j + 1]
    moments = output_moments(deviation[:, :j], part, own)
    center = moments.mean[:, 0]
    reach = _SCORE_REACH * jnp.sqrt(moments.covariance[:, 0, 0])
    value = deviation[:, j]

    # Both tails at once: the program of the evidence is compiled once for each output.
    low = jnp.stack([center - reach, jnp.maximum(value, center - reach)])
    high = jnp.stack([jnp.minimum(value, center + reach), center + reach])
    half = 0.5 * jnp.maximum(high - low, 0.0)
    known = jnp.broadcast_to(deviation[:, :j], (2, len(deviation), j))

    def log_density(node: Array) -> Array:
        points = jnp.concatenate([known, (low + half * (1.0 + node))[..., None]], axis=-1)
        logs = corrected_log_evidence(points, part, own)
        return jnp.where(jnp.isnan(logs), -jnp.inf, logs)

    nodes, rule = (
        jnp.asarray(x, value.dtype) for x in np.polynomial.legendre.leggauss(_SCORE_NODES)
    )
    logs = lax.map(log_density, nodes)
    below, above = logsumexp(logs, axis=0, b=rule[:, None, None]) + jnp.log(half)
    total = jnp.logaddexp(below, above)
    upper = above < below
    score = score_from_log_survival(jnp.minimum(below, above) - total)
    return jnp.where(upper, score, -score)
