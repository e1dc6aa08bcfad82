"""The joint distribution of outputs coupled by a Gaussian copula."""

from typing import ClassVar

import jax.numpy as jnp
import numpyro.distributions as dist
from jax import Array
from jax.typing import ArrayLike
from numpyro.distributions import constraints

from nn_uq_dist.basics import checks
from nn_uq_dist.distributions._adapted_distribution import (
    as_output_distribution,
    require_univariate,
)
from nn_uq_dist.distributions._batch_entries import batch_entries, take_matrix
from nn_uq_dist.distributions._contract import rebuilt
from nn_uq_dist.distributions._gaussian_copula_conditional import GaussianCopulaConditional
from nn_uq_dist.distributions._nataf import covariance_of_outputs
from nn_uq_dist.distributions._score_algebra import valid_cholesky
from nn_uq_dist.distributions._score_distribution import ScoreDistribution
from nn_uq_dist.distributions.correlation_checks import (
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
        distribution with ``cdf`` and ``icdf``.
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
        If the marginals are discrete, multivariate or have no ``cdf`` and ``icdf``.
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
        return valid_cholesky(matrix)

    @property
    def _score_loc(self) -> Array:
        matrix = self.correlation_matrix
        return jnp.zeros(self.event_shape, checks.float_dtype(matrix))

    @property
    def _score_tril(self) -> Array:
        return self.correlation_cholesky

    def _output_covariance(self, correlation: Array) -> Array:
        return covariance_of_outputs(as_output_distribution(self.marginals), correlation)

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

    def _of_outputs(self, kept: tuple[int, ...]) -> "GaussianCopulaJoint":
        matrix = take_matrix(jnp.asarray(self.correlation_matrix), kept, kept)
        marginals = batch_entries(self.marginals, (..., kept))
        return rebuilt(self, marginals=marginals, correlation_matrix=matrix)

    def _with_scores(
        self, marginals: dist.Distribution, loc: Array, scale_tril: Array
    ) -> GaussianCopulaConditional:
        return GaussianCopulaConditional(marginals, loc, scale_tril, validate_args=False)
