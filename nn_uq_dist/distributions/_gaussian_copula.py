"""Outputs coupled by a Gaussian copula: their joint distribution, and that of some given others."""

from collections.abc import Sequence
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jax import Array
from jax.typing import ArrayLike
from numpyro.distributions import constraints

from nn_uq_dist.basics import checks
from nn_uq_dist.basics.row_algebra import products
from nn_uq_dist.distributions._adapted_distribution import (
    as_output_distribution,
    require_univariate,
)
from nn_uq_dist.distributions._batch_entries import batch_entries
from nn_uq_dist.distributions._contract import rebuilt
from nn_uq_dist.distributions._nataf import HermiteRule, hermite_rule
from nn_uq_dist.distributions._score_distribution import ScoreDistribution, cholesky_of_rows
from nn_uq_dist.distributions.correlation_matrices import (
    as_correlation,
    as_square,
    require_positive_definite,
)


class GaussianCopulaJoint(ScoreDistribution):
    r"""Joint distribution of ``N_y`` outputs: given marginals, coupled by a Gaussian copula.

    Parameters
    ----------
    marginals : numpyro.distributions.Distribution
        Univariate and continuous, ``batch_shape (..., N_y)``: a `LinearizedMarginal` or any
        distribution with ``cdf``.
    correlation_matrix : array_like, shape (..., N_y, N_y)
        Correlation of the normal scores, positive definite. `nataf_correlation` finds the matrix
        that gives the outputs a desired correlation, `clipped_correlation` repairs a matrix that is
        not positive definite.
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
        If shapes do not fit; with validation on, if the matrix is not symmetric and positive
        definite with unit diagonal. Under ``jit`` a matrix that is not positive definite, or off by
        more than 0.01 in symmetry or diagonal, gives NaN.

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
        "correlation_matrix": constraints.corr_matrix
    }
    reparametrized_params: ClassVar[list[str]] = ["correlation_matrix"]
    pytree_data_fields = ("marginals", "correlation_matrix")

    def __init__(
        self,
        marginals: dist.Distribution,
        correlation_matrix: ArrayLike,
        *,
        validate_args: bool | None = None,
    ) -> None:
        require_univariate(marginals)
        num_outputs = marginals.batch_shape[-1]
        matrix = as_square("correlation_matrix", correlation_matrix, num_outputs)
        if self._validate_args if validate_args is None else validate_args:
            require_positive_definite(
                "correlation_matrix", as_correlation("correlation_matrix", matrix)
            )
        self._keep(marginals, validate_args, correlation_matrix=matrix)

    @property
    def correlation_cholesky(self) -> Array:
        """Lower Cholesky factor of ``correlation_matrix``, NaN if there is none."""
        matrix = jnp.asarray(self.correlation_matrix, checks.float_dtype(self.correlation_matrix))
        return _valid_cholesky(matrix)

    @property
    def _score_loc(self) -> Array:
        matrix = self.correlation_matrix
        return jnp.zeros(self.event_shape, checks.float_dtype(matrix))

    _score_tril = correlation_cholesky

    def _hermite_rule(self) -> HermiteRule:
        return hermite_rule(as_output_distribution(self.marginals))

    def entropy(self) -> Array:
        """Differential entropy: the marginals' minus the mutual information ``-log det(R)/2``.

        The part of the copula is exact; the entropy of a `LinearizedMarginal` is a quadrature. For
        marginals without ``entropy`` the result is a quadrature over their normal scores.
        """
        try:
            entropies = self.marginals.entropy()
        except NotImplementedError:
            return super().entropy()
        log_scales = jnp.log(jnp.diagonal(self.correlation_cholesky, axis1=-2, axis2=-1))
        return jnp.broadcast_to(jnp.sum(entropies + log_scales, axis=-1), self.batch_shape)

    def marginalize(self, indices: int | Sequence[int]) -> "GaussianCopulaJoint":
        """The joint distribution of some outputs, in the order of ``indices``."""
        kept = checks.as_indices(indices, self.event_shape[0])
        matrix = jnp.asarray(self.correlation_matrix)[..., kept, :][..., kept]
        marginals = batch_entries(self.marginals, (..., kept))
        return rebuilt(self, marginals=marginals, correlation_matrix=matrix)

    def _with_scores(
        self, marginals: dist.Distribution, loc: Array, scale_tril: Array
    ) -> "GaussianCopulaConditional":
        return GaussianCopulaConditional(marginals, loc, scale_tril, validate_args=False)


@jax.jit
def _valid_cholesky(correlation: Array) -> Array:
    """Lower Cholesky factor of a correlation matrix ``(..., N, N)``, NaN if it is invalid."""
    size = correlation.shape[-1]
    factor = jnp.linalg.cholesky(correlation)
    # Rounding lets some singular matrices pass, with pivots that have no correct digit.
    pivots = jnp.diagonal(factor, axis1=-2, axis2=-1) ** 2
    smallest = jnp.min(pivots, axis=-1)[..., None, None]
    valid = smallest > size * jnp.finfo(correlation.dtype).eps
    # Catches invalid matrices that could not be checked under `jit`. The tolerance allows finite
    # differences.
    transposed = jnp.swapaxes(correlation, -1, -2)
    wrong = jnp.where(jnp.eye(size, dtype=bool), correlation - 1, correlation - transposed)
    valid = valid & (jnp.max(jnp.abs(wrong), axis=(-2, -1), keepdims=True) <= 0.01)
    return jnp.where(valid, factor, jnp.nan)


class GaussianCopulaConditional(ScoreDistribution):
    """Distribution of outputs ``F_j^{-1}(Phi(z_j))`` whose scores ``z`` are jointly normal.

    Made by `GaussianCopulaJoint.condition`. In the joint distribution the scores are standard
    normal; given some of them, the others have a different mean and a smaller variance.

    Parameters
    ----------
    marginals : numpyro.distributions.Distribution
        The unconditional distributions of the outputs, ``batch_shape (..., N_y)``.
    score_loc : array_like, shape (..., N_y)
        Means of the scores.
    score_tril : array_like, shape (..., N_y, N_y)
        Lower Cholesky factor of the covariance of the scores.
    validate_args : bool, optional
        As for every NumPyro distribution.

    Raises
    ------
    TypeError
        If the marginals are discrete, multivariate or have no ``cdf``.
    ValueError
        If shapes do not fit; with validation on, if the factor is not lower triangular with a
        positive diagonal.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> import nn_uq_dist as nuq
    >>> marginals = nuq.LinearizedMarginal(jnp.zeros(3), [[1.0, 0.5], [0.3, 0.3], [1.0, 2.0]])
    >>> matrix = jnp.array([[1.0, 0.8, 0.3], [0.8, 1.0, 0.4], [0.3, 0.4, 1.0]])
    >>> rest = nuq.GaussianCopulaJoint(marginals, matrix).condition((2,), 1.5)
    >>> low, high = rest.marginal_icdf(jnp.array([[0.05], [0.95]]))
    >>> print(f"{low[0]:.2f} to {high[0]:.2f}, {low[1]:.2f} to {high[1]:.2f}")
    -0.85 to 1.16, -0.28 to 0.46
    """

    arg_constraints: ClassVar[dict[str, constraints.Constraint]] = {
        "score_loc": constraints.real_vector,
        "score_tril": constraints.lower_cholesky,
    }
    reparametrized_params: ClassVar[list[str]] = ["score_loc", "score_tril"]
    pytree_data_fields = ("marginals", "score_loc", "score_tril")

    def __init__(
        self,
        marginals: dist.Distribution,
        score_loc: ArrayLike,
        score_tril: ArrayLike,
        *,
        validate_args: bool | None = None,
    ) -> None:
        require_univariate(marginals)
        num_outputs = marginals.batch_shape[-1]
        score_loc = checks.as_vectors(
            "score_loc", score_loc, "N_y", num_outputs, "pass one mean per marginal"
        )
        score_tril = as_square("score_tril", score_tril, num_outputs)
        self._keep(marginals, validate_args, score_loc=score_loc, score_tril=score_tril)

    @property
    def _score_loc(self) -> Array:
        return jnp.asarray(self.score_loc, checks.float_dtype(self.score_loc))

    @property
    def _score_tril(self) -> Array:
        return jnp.asarray(self.score_tril, checks.float_dtype(self.score_tril))

    @property
    def mean(self) -> Array:
        """Means of the outputs, by quadrature over their scores."""
        return jnp.broadcast_to(self._conditional_moments()[-1].mean, self.shape())

    @property
    def variance(self) -> Array:
        """Variances of the outputs, by quadrature over their scores."""
        scale = self._conditional_moments()[-1].standard_deviation
        return jnp.broadcast_to(products(scale), self.shape())

    def marginalize(self, indices: int | Sequence[int]) -> "GaussianCopulaConditional":
        """The distribution of some outputs, in the order of ``indices``."""
        kept = checks.as_indices(indices, self.event_shape[0])
        return rebuilt(
            self,
            marginals=batch_entries(self.marginals, (..., kept)),
            score_loc=self._score_loc[..., kept],
            score_tril=cholesky_of_rows(self._score_tril, kept),
        )

    def _with_scores(
        self, marginals: dist.Distribution, loc: Array, scale_tril: Array
    ) -> "GaussianCopulaConditional":
        return GaussianCopulaConditional(marginals, loc, scale_tril, validate_args=False)
