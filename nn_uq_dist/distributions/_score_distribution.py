"""Outputs whose normal scores are jointly normal: what Gaussian copulas share."""

import abc
import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax import Array
from jax.scipy.special import ndtr, ndtri
from jax.typing import ArrayLike
from numpyro.distributions import constraints

from nn_uq_dist.basics import checks
from nn_uq_dist.basics.normal_scores import (
    from_normal_score,
    normal_score,
    normal_score_and_log_prob,
)
from nn_uq_dist.basics.normal_tails import log_normal_density
from nn_uq_dist.basics.row_algebra import matvec, solve_lower
from nn_uq_dist.distributions._adapted_distribution import as_output_distribution, with_rank
from nn_uq_dist.distributions._batch_entries import batch_entries
from nn_uq_dist.distributions._contract import (
    pass_validation,
    safe_values,
    validate_sample,
)
from nn_uq_dist.distributions._contract_joint import (
    JointDistribution,
    observed_outputs,
    refuse_values,
)
from nn_uq_dist.distributions._contract_output import Moments
from nn_uq_dist.distributions._nataf import HermiteRule, conditional_moments, covariance_of_outputs
from nn_uq_dist.distributions._support import support_of_event
from nn_uq_dist.distributions._transforms import NormalScoreTransform


class ScoreDistribution(JointDistribution, dist.TransformedDistribution):
    r"""Abstract distribution of ``y_j = F_j^{-1}(Phi(z_j))`` with jointly normal scores ``z``.

    NumPyro sees a multivariate normal base and one transform, so that `TransformReparam` works.
    Both are made from the parameters on access: a stored copy would not receive gradients.

    A subclass is final. Its constructor ends with ``self._keep``, which sets ``marginals`` and its
    own parameters; ``pytree_data_fields`` names all of them. It defines

    - ``_score_loc``, ``_score_tril``: the normal distribution of the scores;
    - ``marginalize(indices)``: the distribution of some outputs;
    - ``_with_scores(marginals, loc, scale_tril)``: the distribution with other scores, for
      `condition`.

    It may override ``_hermite_rule`` if the scores are standard normal, ``entropy`` if that of
    the marginals tells it, and ``mean`` and ``variance`` if they are not those of the marginals. It
    inherits density, draws, distribution functions, quantiles, covariance, `condition` and
    `rosenblatt`.
    """

    marginals: dist.Distribution
    kind = "copula"

    def _keep(
        self, marginals: dist.Distribution, validate_args: bool | None, **arrays: ArrayLike
    ) -> None:
        """Set the parameters, of equal rank, and what every distribution has.

        Equal ranks, so that axes which `vmap` puts in front stay in front of all.
        """
        num_outputs = marginals.batch_shape[-1]
        dims = {name: self.arg_constraints[name].event_dim for name in arrays}
        batch_shape = checks.broadcast_shapes(
            f"the leading axes of marginals and {' and '.join(arrays)} must broadcast",
            marginals=marginals.batch_shape[:-1],
            **{name: jnp.shape(part)[: -dims[name]] for name, part in arrays.items()},
        )
        self.marginals = with_rank(marginals, len(batch_shape) + 1)
        self._set_parameters(batch_shape, **arrays)
        # That of `TransformedDistribution` would store base and transform.
        dist.Distribution.__init__(self, batch_shape, (num_outputs,), validate_args=validate_args)

    @property
    @abc.abstractmethod
    def _score_loc(self) -> Array:
        """Means of the scores, shape ``(..., N_y)``."""

    @property
    @abc.abstractmethod
    def _score_tril(self) -> Array:
        """Lower Cholesky factor of the covariance of the scores, shape ``(..., N_y, N_y)``."""

    @property
    def base_dist(self) -> dist.MultivariateNormal:
        """The distribution of the normal scores."""
        loc = jnp.broadcast_to(self._score_loc, self.shape())
        return dist.MultivariateNormal(loc, scale_tril=self._score_tril, validate_args=False)

    @property
    def transforms(self) -> list[NormalScoreTransform]:
        """The one transform, from normal scores to outputs."""
        return [NormalScoreTransform(self.marginals)]

    @constraints.dependent_property(is_discrete=False, event_dim=1)
    def support(self) -> constraints.Constraint:
        return support_of_event(self.marginals.support, 1)

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        """Exact draws, reparametrized: shape ``sample_shape + batch_shape + (N_y,)``."""
        return self.sample_with_intermediates(key, sample_shape)[0]

    def sample_with_intermediates(
        self, key: Array, sample_shape: tuple[int, ...] = ()
    ) -> tuple[Array, list[Any]]:
        """Draws and their normal scores, with which `log_prob` needs no inversion."""
        key, sample_shape = checks.as_sampling(key, sample_shape)
        # NumPyro draws in JAX's default type, which strict promotion does not mix with another.
        loc, factor = self._score_loc, self._score_tril
        normal = jax.random.normal(key, (*sample_shape, *self.shape()), factor.dtype)
        scores = loc + matvec(factor, normal)
        return from_normal_score(self.marginals, scores), [[scores, None]]

    def _fitting(self, value: ArrayLike) -> Array:
        array = self._fitting_outputs(value)
        return jnp.broadcast_to(array, jnp.broadcast_shapes(array.shape, self.shape()))

    @validate_sample
    def log_prob(self, value: ArrayLike, intermediates: list[Any] | None = None) -> Array:
        """Log density, with relative accuracy up to the edge of the support, ``-inf`` beyond."""
        value = self._fitting(value)
        inside, safe = safe_values(self.marginals.support, value)
        if intermediates is None:
            scores, logs = normal_score_and_log_prob(self.marginals, safe)
        else:
            scores, logs = intermediates[0][0], self.marginals.log_prob(safe)
        return _log_density(value, inside, scores, logs, self._score_loc, self._score_tril)

    def rosenblatt(self, value: ArrayLike) -> Array:
        """``L^-1`` times the residuals of the scores, with their Cholesky factor `L`."""
        value = self._fitting(value)
        return self.rosenblatt_from_scores(value, normal_score(self.marginals, value))

    def rosenblatt_from_scores(self, value: ArrayLike, scores: ArrayLike) -> Array:
        """The same without an inversion of the marginals; the values are not used."""
        del value
        return _whitened(self._score_tril, jnp.asarray(scores) - self._score_loc)

    def marginal_cdf(self, value: ArrayLike) -> Array:
        """Distribution functions of the single outputs, shape as ``value``."""
        scores = normal_score(self.marginals, self._fitting(value))
        return ndtr((scores - self._score_loc) / self._score_scale)

    def marginal_icdf(self, q: ArrayLike) -> Array:
        """Quantiles of the single outputs, the inverse of `marginal_cdf`.

        Parameters
        ----------
        q : array_like, shape (..., N_y) or (..., 1)
            Probabilities; ``q[:, None]`` asks for the same ones of every output.

        Raises
        ------
        ValueError
            If `q` does not broadcast, or a known one is not in [0, 1]; a traced one gives NaN.
        """
        q = checks.as_numeric("q", checks.in_type(q, self._dtype))
        checks.require_probabilities("q", q)
        checks.broadcast_shapes(
            "q must broadcast against batch_shape + event_shape",
            q=jnp.shape(q),
            outputs=self.shape(),
        )
        scores = self._score_loc + self._score_scale * ndtri(jnp.asarray(q))
        return from_normal_score(self.marginals, scores)

    @property
    def covariance_matrix(self) -> Array:
        """Covariance of the outputs (not of their scores) by the Hermite series."""
        scale = self._score_scale
        rows = self._score_tril / scale[..., None]
        correlation = jnp.matmul(rows, jnp.swapaxes(rows, -1, -2), precision="highest")
        covariance = covariance_of_outputs(self._hermite_rule(), correlation)
        return jnp.broadcast_to(covariance, (*self.shape(), *self.event_shape))

    @property
    def _score_scale(self) -> Array:
        return jnp.linalg.norm(self._score_tril, axis=-1)

    def _conditional_moments(self) -> tuple[Array, Array, Moments]:
        """Scores at nodes over the values of each output, lengths, and moments of the outputs."""
        distribution = as_output_distribution(self.marginals)
        return conditional_moments(distribution, self._score_loc, self._score_scale)

    def _hermite_rule(self) -> HermiteRule:
        """What the covariance of the outputs is made from."""
        scores, lengths, moments = self._conditional_moments()
        standardized = (scores - self._score_loc) / self._score_scale
        return HermiteRule(standardized, lengths, moments.standard_deviation)

    def entropy(self) -> Array:
        """Differential entropy: that of the scores plus ``sum E[log dy_j/dz_j]``, by quadrature."""
        scores, _, moments = self._conditional_moments()
        values = moments.mean + moments.deviations
        inside, safe = safe_values(self.marginals.support, values)
        slopes = log_normal_density(scores) - self.marginals.log_prob(safe)
        counted = inside & jnp.isfinite(slopes)
        expected = jnp.sum(jnp.where(counted, moments.probabilities * slopes, 0), axis=0)
        # With infinite outputs no node would be counted.
        expected = jnp.where(jnp.isfinite(moments.mean), expected, jnp.nan)
        log_scales = jnp.log(jnp.diagonal(self._score_tril, axis1=-2, axis2=-1))
        terms = expected + log_scales + 0.5 * (1 + math.log(2 * math.pi))
        return jnp.broadcast_to(jnp.sum(terms, axis=-1), self.batch_shape)

    def condition(self, indices: int | Sequence[int], values: ArrayLike) -> "ScoreDistribution":
        """The distribution of the other outputs, given these; exact if the copula is.

        The copula is not exact: if the outputs are functions of few numbers, its intervals are far
        off. Given two outputs of a trained nonlinear operator (31 outputs of rank 2), its 90%
        intervals for the others contain the truth in 24% of the cases with noise of .05 sd, and in
        36 to 95%, depending on the pair, without noise. Those of `LinearizedJoint.condition`
        contain it in 89 to 91%.

        Parameters
        ----------
        indices : int or sequence of int
            Which outputs are known.
        values : array_like, shape (..., len(indices))
            Their values; the leading axes broadcast against ``batch_shape``.

        Returns
        -------
        GaussianCopulaConditional
            Over the other outputs, in their order. Its scores are normal with the mean and the
            covariance of the Gaussian conditioning formula.

        Raises
        ------
        TypeError, ValueError
            If an index is traced, not an integer, out of range or repeated, if all outputs are
            given, or if a known value is outside its output's support. A traced value outside gives
            NaN.

        Examples
        --------
        >>> import jax.numpy as jnp
        >>> import nn_uq_dist as nuq
        >>> marginals = nuq.LinearizedMarginal(jnp.zeros(2), [[1.0, 0.5], [0.3, 0.3]])
        >>> joint = nuq.GaussianCopulaJoint(marginals, [[1.0, 0.8], [0.8, 1.0]])
        >>> print(f"{joint.condition(0, 1.2).mean[0]:.3f}")
        0.383
        """
        observed, remaining, given, values = observed_outputs(self.marginals, indices, values)
        scores = normal_score(given, values)
        if checks.is_concrete(scores, values):
            at_edge = np.isinf(np.asarray(scores))
            why = ", at its edge, where the density is zero or jumps; pass a value further inside"
            refuse_values(at_edge, values, observed, "inside", why)
        residual = scores - self._score_loc[..., observed]
        # An infinite score, at or beyond the edge of the support, has no conditional distribution.
        valid = jnp.all(jnp.isfinite(residual), axis=-1, keepdims=True)
        shift, factor = _conditional_scores(
            self._score_tril, observed, remaining, jnp.where(valid, residual, 0)
        )
        loc = self._score_loc[..., remaining] + jnp.where(valid, shift, jnp.nan)
        marginals = batch_entries(self.marginals, (..., remaining))
        distribution = self._with_scores(marginals, loc, factor)
        return pass_validation(self, distribution)

    @abc.abstractmethod
    def _with_scores(
        self, marginals: dist.Distribution, loc: Array, scale_tril: Array
    ) -> "ScoreDistribution":
        """The distribution of outputs with these marginals and this distribution of the scores."""


@jax.jit
def _log_density(
    values: Array,
    inside: Array,
    scores: Array,
    log_densities: Array,
    score_loc: Array,
    score_tril: Array,
) -> Array:
    """Log density ``log N(z; loc, L L^T) + sum_j [log p_j(y_j) - log phi(z_j)]``.

    Parameters
    ----------
    values : Array, shape (..., N)
        Outputs; NaN gives NaN.
    inside : Array of bool, shape (..., N)
        False for outputs beyond their support: the density is then zero.
    scores, log_densities : Array, shape (..., N)
        Normal scores of the outputs, and the log densities of their marginals there.
    score_loc : Array, shape (..., N)
    score_tril : Array, shape (..., N, N)
    """
    if not values.size:  # by which number NumPyro's normal distribution divides
        return jnp.zeros(values.shape[:-1], log_densities.dtype)
    # At the very edge of the support the score is infinite.
    inside = inside & (jnp.isfinite(scores) | jnp.isnan(scores))
    scores = jnp.where(inside, scores, 0)
    terms = log_densities - log_normal_density(scores)
    base = dist.MultivariateNormal(score_loc, scale_tril=score_tril, validate_args=False)
    joint = base.log_prob(scores) + jnp.sum(jnp.where(inside, terms, 0), axis=-1)
    joint = jnp.where(jnp.all(inside, axis=-1), joint, -jnp.inf)
    # A sum with NaN is NaN and, unlike a constant, has the derivative NaN.
    return jnp.where(jnp.any(jnp.isnan(values), axis=-1), jnp.sum(values, axis=-1), joint)


def cholesky_of_rows(scale_tril: Array, rows: tuple[int, ...]) -> Array:
    """Lower Cholesky factor of ``A A^T``, with ``A`` these rows of a factor ``(..., N, N)``."""
    if rows == tuple(range(len(rows))):
        return scale_tril[..., : len(rows), : len(rows)]
    taken = scale_tril[..., np.asarray(rows), :]
    # From a QR factorization of A^T, since A A^T would square the condition number.
    upper = jnp.linalg.qr(jnp.swapaxes(taken, -1, -2), mode="r")
    signs = jnp.where(jnp.diagonal(upper, axis1=-2, axis2=-1) < 0, -1, 1)
    return jnp.swapaxes(upper * signs[..., None], -1, -2)


def _conditional_scores(
    scale_tril: Array, observed: tuple[int, ...], remaining: tuple[int, ...], residual: Array
) -> tuple[Array, Array]:
    """Shift of the mean and Cholesky factor of the covariance of scores, given others.

    Parameters
    ----------
    scale_tril : Array, shape (..., N, N)
        Factor of the covariance of all scores.
    observed, remaining : tuple of int
        Coordinates, which together are all coordinates.
    residual : Array, shape (..., len(observed))
        Observed scores minus their means.

    Notes
    -----
    With the observed coordinates first, the blocks of the factor give the conditional distribution
    directly. The textbook formula, a difference of two covariances, would lose a small eigenvalue.
    """
    factor = cholesky_of_rows(scale_tril, observed + remaining)
    count = len(observed)
    white = _whitened(factor[..., :count, :count], residual)
    return matvec(factor[..., count:, :count], white), factor[..., count:, count:]


def _whitened(scale_tril: Array, residual: Array) -> Array:
    """``L^-1 r`` for each residual ``(..., N)``: entries are independent if `L` is correct."""
    return solve_lower(scale_tril, residual[..., None])[..., 0]
