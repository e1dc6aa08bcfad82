"""Outputs whose normal scores are jointly normal: Gaussian copulas, also of some given others."""

import math
from collections.abc import Sequence
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax import Array
from jax.scipy.special import ndtr, ndtri
from jax.typing import ArrayLike
from numpyro.distributions import constraints

from nn_uq_dist.basics import checks, normal_scores
from nn_uq_dist.basics.normal_tails import log_normal_density
from nn_uq_dist.basics.row_algebra import gram, matvec, norm, products
from nn_uq_dist.distributions import _nataf, correlation_matrices
from nn_uq_dist.distributions._adapted_distribution import (
    as_output_distribution,
    require_univariate,
    with_rank,
)
from nn_uq_dist.distributions._axes import batch_entries, support_of_event
from nn_uq_dist.distributions._contract import (
    pass_validation,
    rebuilt,
    safe_values,
    validate_sample,
)
from nn_uq_dist.distributions._contract_joint import (
    JointDistribution,
    observed_outputs,
    refuse_values,
)
from nn_uq_dist.distributions._transforms import NormalScoreTransform, log_density_of_outputs
from nn_uq_dist.distributions._value_rule import Moments, moments_of_scores


class GaussianCopulaJoint(JointDistribution, dist.TransformedDistribution):
    r"""Joint distribution of ``N_y`` outputs: given marginals, coupled by a Gaussian copula.

    Parameters
    ----------
    base_marginals : numpyro.distributions.Distribution
        Univariate and continuous, ``batch_shape (..., N_y)``: a `LinearizedMarginal` or any
        distribution with ``cdf``.
    correlation_matrix : array_like, shape (..., N_y, N_y), optional
        Correlation of the normal scores, positive definite. `nataf_correlation` finds the matrix
        that gives the outputs a desired correlation, `clipped_correlation` repairs a matrix that is
        not positive definite.
    score_loc : array_like, shape (..., N_y), optional
        Means of the scores. Default: 0. In a joint distribution that `condition` makes, scores have
        other means and smaller variances, and ``base_marginals`` are the unconditional
        distributions.
    score_tril : array_like, shape (..., N_y, N_y), optional
        Lower Cholesky factor of the covariance of the scores, in place of ``correlation_matrix``.
    validate_args : bool, optional
        As for every NumPyro distribution.

    Attributes
    ----------
    batch_shape : tuple of int
        The leading axes of the marginals and of the matrix, broadcast.
    support
        A box for bounded marginals, the real vectors for unbounded ones. NUTS and the autoguides
        follow bounds that depend on other latent sites.

    Raises
    ------
    TypeError
        If the marginals are discrete, multivariate or have no ``cdf``.
    ValueError
        If shapes do not fit, or not exactly one of the two matrices is given; with validation on,
        if the correlation is not symmetric and positive definite with unit diagonal, or the factor
        not lower triangular with a positive diagonal. Under ``jit`` a correlation that is not
        positive definite, or off by more than 0.01 in symmetry or diagonal, gives NaN.

    Notes
    -----
    With the scores ``z_j = Phi^{-1}(F_j(y_j))``,

    .. math:: \log p(y) = \log N(z; 0, R) + \sum_j [\log p_j(y_j) - \log \phi(z_j)],

    the paper's ``eq:Gauss_copula`` (whose two-dimensional form has a misprint, ``z_j^2`` twice).
    It is a transformed multivariate normal (`NormalScoreTransform`), so that NumPyro's
    `TransformReparam` applies. See there for the accuracy of the scores.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> import nn_uq_dist as nuq
    >>> marginals = nuq.LinearizedMarginal(jnp.zeros(2), [[1.0, 0.5], [0.3, 0.3]])
    >>> joint = nuq.GaussianCopulaJoint(marginals, [[1.0, 0.8], [0.8, 1.0]])
    >>> joint.event_shape, round(float(joint.log_prob(jnp.zeros(2))), 3)
    ((2,), 0.329)
    """

    arg_constraints: ClassVar[dict[str, constraints.Constraint]] = {
        "correlation_matrix": constraints.corr_matrix,
        "score_loc": constraints.real_vector,
        "score_tril": constraints.lower_cholesky,
    }
    reparametrized_params: ClassVar[list[str]] = ["correlation_matrix", "score_loc", "score_tril"]
    pytree_data_fields = ("base_marginals", "correlation_matrix", "score_loc", "score_tril")
    kind = "copula"
    _instead_of_cdf = "use its marginal_cdf and marginal_icdf, or draws of sample"

    def __init__(
        self,
        base_marginals: dist.Distribution,
        correlation_matrix: ArrayLike | None = None,
        score_loc: ArrayLike | None = None,
        score_tril: ArrayLike | None = None,
        *,
        validate_args: bool | None = None,
    ) -> None:
        require_univariate(base_marginals, "base_marginals")
        num_outputs = base_marginals.batch_shape[-1]
        if (correlation_matrix is None) == (score_tril is None):
            raise ValueError(
                "one of correlation_matrix and score_tril must be given, got "
                f"{'none' if score_tril is None else 'both'}; pass the correlation of the scores"
            )
        arrays = {"correlation_matrix": correlation_matrix, "score_tril": score_tril}
        arrays = {
            n: None if a is None else correlation_matrices.as_square(n, a, num_outputs)
            for n, a in arrays.items()
        }
        if score_loc is not None:
            remedy = "pass one mean per marginal"
            score_loc = checks.as_vectors("score_loc", score_loc, "N_y", num_outputs, remedy)
        arrays["score_loc"] = score_loc
        dims = {name: constraint.event_dim for name, constraint in self.arg_constraints.items()}
        shapes = {n: jnp.shape(a)[: -dims[n]] for n, a in arrays.items() if a is not None}
        batch_shape = checks.broadcast_shapes(
            f"the leading axes of base_marginals and {' and '.join(shapes)} must broadcast",
            base_marginals=base_marginals.batch_shape[:-1],
            **shapes,
        )
        # Of equal rank, so that axes which `vmap` puts in front stay in front of all.
        self.base_marginals = with_rank(base_marginals, len(batch_shape) + 1)
        self._set_parameters(batch_shape, **arrays)
        # That of `TransformedDistribution` would store base and transform: a stored copy of the
        # parameters would receive no gradients.
        dist.Distribution.__init__(self, batch_shape, (num_outputs,), validate_args=validate_args)

    def validate_args(self, strict: bool = True) -> None:
        """As NumPyro's, with messages that name row and column of the correlation."""
        if self.correlation_matrix is not None and checks.is_concrete(self.correlation_matrix):
            correlation_matrices.require_positive_definite(
                "correlation_matrix", self.correlation_matrix
            )
        else:
            super().validate_args(strict)

    @property
    def marginals(self) -> dist.Distribution:
        """Distributions of the single outputs.

        Raises
        ------
        NotImplementedError
            If `condition` made this distribution: `marginal_cdf`, `marginal_icdf`, `mean` and
            `variance` are those of the outputs given the others.
        """
        if self._has_standard_scores:
            return self.base_marginals
        raise self._lacks(
            "marginals as an object", "use its marginal_cdf, marginal_icdf, mean and variance"
        )

    @property
    def correlation_cholesky(self) -> Array:
        """Lower Cholesky factor of the covariance of the scores, NaN if there is none."""
        return self._scores[1]

    @property
    def _scores(self) -> tuple[Array, Array]:
        """Means of the scores, and the Cholesky factor of their covariance."""
        if self.score_tril is None:
            matrix = self.correlation_matrix
            factor = correlation_matrices.valid_cholesky(
                jnp.asarray(matrix, checks.float_dtype(matrix))
            )
        else:
            factor = jnp.asarray(self.score_tril, checks.float_dtype(self.score_tril))
        if self.score_loc is None:
            return jnp.zeros(self.event_shape, factor.dtype), factor
        return jnp.asarray(self.score_loc, checks.float_dtype(self.score_loc)), factor

    @property
    def _has_standard_scores(self) -> bool:
        """Whether the marginals are the distributions of the outputs."""
        return self.score_loc is None and self.score_tril is None

    @property
    def base_dist(self) -> dist.MultivariateNormal:
        """The distribution of the normal scores."""
        loc, factor = self._scores
        loc = jnp.broadcast_to(loc, self.shape())
        return dist.MultivariateNormal(loc, scale_tril=factor, validate_args=False)

    @property
    def transforms(self) -> list[NormalScoreTransform]:
        """The one transform, from normal scores to outputs."""
        return [NormalScoreTransform(self.base_marginals)]

    @constraints.dependent_property(is_discrete=False, event_dim=1)
    def support(self) -> constraints.Constraint:
        return support_of_event(self.base_marginals.support, 1)

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        """Exact draws, reparametrized: shape ``sample_shape + batch_shape + (N_y,)``."""
        return self.sample_with_intermediates(key, sample_shape)[0]

    def sample_with_intermediates(
        self, key: Array, sample_shape: tuple[int, ...] = ()
    ) -> tuple[Array, list[Any]]:
        """Draws and their normal scores, with which `log_prob` needs no inversion."""
        key, sample_shape = checks.as_sampling(key, sample_shape)
        # NumPyro draws in JAX's default type, which strict promotion does not mix with another.
        loc, factor = self._scores
        normal = jax.random.normal(key, (*sample_shape, *self.shape()), factor.dtype)
        scores = loc + matvec(factor, normal)
        return normal_scores.from_normal_score(self.base_marginals, scores), [[scores, None]]

    def _fitting(self, value: ArrayLike) -> Array:
        array = self._fitting_outputs(value)
        return jnp.broadcast_to(array, jnp.broadcast_shapes(array.shape, self.shape()))

    @validate_sample
    def log_prob(self, value: ArrayLike, intermediates: list[Any] | None = None) -> Array:
        """Log density, with relative accuracy up to the edge of the support, ``-inf`` beyond."""
        value = self._fitting(value)
        inside, safe = safe_values(self.base_marginals.support, value)
        if intermediates is None:
            scores, logs = normal_scores.normal_score_and_log_prob(self.base_marginals, safe)
        else:
            scores, logs = intermediates[0][0], self.base_marginals.log_prob(safe)
        return log_density_of_outputs(value, inside, scores, logs, *self._scores)

    def rosenblatt(self, value: ArrayLike) -> Array:
        """``L^-1`` times the residuals of the scores, with their Cholesky factor `L`."""
        value = self._fitting(value)
        return self.rosenblatt_from_scores(
            value, normal_scores.normal_score(self.base_marginals, value)
        )

    def rosenblatt_from_scores(self, value: ArrayLike, scores: ArrayLike) -> Array:
        """The same without an inversion of the marginals; the values are not used."""
        del value
        loc, factor = self._scores
        return correlation_matrices.whitened(factor, jnp.asarray(scores) - loc)

    def marginal_cdf(self, value: ArrayLike) -> Array:
        """Distribution functions of the single outputs, shape as ``value``."""
        scores = normal_scores.normal_score(self.base_marginals, self._fitting(value))
        loc, factor = self._scores
        return ndtr((scores - loc) / norm(factor))

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
        loc, factor = self._scores
        return normal_scores.from_normal_score(
            self.base_marginals, loc + norm(factor) * ndtri(jnp.asarray(q))
        )

    @property
    def mean(self) -> Array:
        """Means of the outputs; by quadrature if their scores are not standard normal."""
        if self._has_standard_scores:
            return super().mean
        return jnp.broadcast_to(self._quadrature()[-1].mean, self.shape())

    @property
    def variance(self) -> Array:
        """Variances of the outputs; by quadrature if their scores are not standard normal."""
        if self._has_standard_scores:
            return super().variance
        return jnp.broadcast_to(products(self._quadrature()[-1].standard_deviation), self.shape())

    @property
    def covariance_matrix(self) -> Array:
        """Covariance of the outputs (not of their scores) by the Hermite series."""
        loc, factor = self._scores
        scale = norm(factor)
        if self._has_standard_scores:
            rule = _nataf.hermite_rule(as_output_distribution(self.base_marginals))
        else:
            scores, lengths, moments = self._quadrature()
            rule = _nataf.HermiteRule((scores - loc) / scale, lengths, moments.standard_deviation)
        covariance = _nataf.covariance_of_outputs(rule, gram(factor / scale[..., None]))
        return jnp.broadcast_to(covariance, (*self.shape(), *self.event_shape))

    def _quadrature(self) -> tuple[Array, Array, Moments]:
        """Scores at nodes over the values of each output, lengths, and moments of the outputs."""
        loc, factor = self._scores
        return moments_of_scores(as_output_distribution(self.base_marginals), loc, norm(factor))

    def entropy(self) -> Array:
        """Differential entropy: the marginals' minus the mutual information ``-log det(R)/2``.

        The part of the copula is exact; the entropy of a `LinearizedMarginal` is a quadrature. For
        marginals without ``entropy``, and scores that are not standard normal, the result is that
        of the scores plus ``sum E[log dy_j/dz_j]``, a quadrature over the values.
        """
        if not self._has_standard_scores:
            return self._entropy_by_quadrature()
        try:
            entropies = self.base_marginals.entropy()
        except NotImplementedError:
            return self._entropy_by_quadrature()
        return self._with_entropy_of_copula(entropies)

    def _entropy_by_quadrature(self) -> Array:
        scores, _, moments = self._quadrature()
        inside, safe = safe_values(self.base_marginals.support, moments.mean + moments.deviations)
        slopes = log_normal_density(scores) - self.base_marginals.log_prob(safe)
        counted = inside & jnp.isfinite(slopes)
        expected = jnp.sum(jnp.where(counted, moments.probabilities * slopes, 0), axis=0)
        # With infinite outputs no node would be counted.
        expected = jnp.where(jnp.isfinite(moments.mean), expected, jnp.nan)
        return self._with_entropy_of_copula(expected + 0.5 * (1 + math.log(2 * math.pi)))

    def _with_entropy_of_copula(self, entropies: Array) -> Array:
        pivots = jnp.diagonal(self.correlation_cholesky, axis1=-2, axis2=-1)
        return jnp.broadcast_to(jnp.sum(entropies + jnp.log(pivots), axis=-1), self.batch_shape)

    def marginalize(self, indices: int | Sequence[int]) -> "GaussianCopulaJoint":
        """The joint distribution of some outputs, in the order of ``indices``."""
        kept = checks.as_indices(indices, self.event_shape[0])
        parameters: dict[str, Any] = {
            "base_marginals": batch_entries(self.base_marginals, (..., kept))
        }
        if self.score_loc is not None:
            parameters["score_loc"] = self._scores[0][..., kept]
        if self.score_tril is None:
            matrix = jnp.asarray(self.correlation_matrix)
            parameters["correlation_matrix"] = matrix[..., kept, :][..., kept]
        else:
            parameters["score_tril"] = correlation_matrices.cholesky_of_rows(
                self.correlation_cholesky, kept
            )
        return rebuilt(self, **parameters)

    def condition(self, indices: int | Sequence[int], values: ArrayLike) -> "GaussianCopulaJoint":
        """The distribution of the other outputs, given these; exact if the copula is.

        The copula is not exact: if the outputs are functions of few numbers, its intervals are far
        off. Given two outputs of a trained nonlinear operator (31 outputs of rank 2), its 90%
        intervals for the others contain the truth in 24% of the cases with noise of .05 sd, and in
        36 to 95%, depending on the pair, without noise. Those of `LinearizedJoint.condition`
        contain it in 89 to 91%.

        Arguments and errors are those of `LinearizedJoint.condition`. The scores of the result are
        normal with the mean and the covariance of the Gaussian conditioning formula. A traced value
        outside of the support gives NaN.

        Examples
        --------
        >>> import jax.numpy as jnp
        >>> import nn_uq_dist as nuq
        >>> marginals = nuq.LinearizedMarginal(jnp.zeros(2), [[1.0, 0.5], [0.3, 0.3]])
        >>> joint = nuq.GaussianCopulaJoint(marginals, [[1.0, 0.8], [0.8, 1.0]])
        >>> print(f"{joint.condition(0, 1.2).mean[0]:.3f}")
        0.383
        """
        observed, remaining, known, values = observed_outputs(self.base_marginals, indices, values)
        scores = normal_scores.normal_score(known, values)
        if checks.is_concrete(scores, values):
            is_inside = ~np.isinf(np.asarray(scores))
            remedy = "at its edge the density is zero or jumps: pass a value further inside"
            refuse_values(is_inside, values, observed, "inside", remedy)
        loc, factor = self._scores
        residual = scores - loc[..., observed]
        # An infinite score, at or beyond the edge of the support, has no conditional distribution.
        valid = jnp.all(jnp.isfinite(residual), axis=-1, keepdims=True)
        shift, factor = correlation_matrices.scores_given_others(
            factor, observed, remaining, jnp.where(valid, residual, 0)
        )
        conditional = GaussianCopulaJoint(
            batch_entries(self.base_marginals, (..., remaining)),
            score_loc=loc[..., remaining] + jnp.where(valid, shift, jnp.nan),
            score_tril=factor,
            validate_args=False,
        )
        return pass_validation(self, conditional)
