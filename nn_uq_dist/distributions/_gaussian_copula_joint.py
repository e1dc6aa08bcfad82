"""The joint law of outputs, coupled by a Gaussian copula."""

from collections.abc import Sequence
from typing import ClassVar

import jax.numpy as jnp
import numpyro.distributions as dist
from jax import Array
from jax.typing import ArrayLike
from numpyro.distributions import constraints
from numpyro.distributions.util import promote_shapes

from nn_uq_dist.basics._checks import broadcast_shapes, float_dtype
from nn_uq_dist.distributions._gaussian_copula_conditional import GaussianCopulaConditional
from nn_uq_dist.distributions._score_distribution import ScoreDistribution
from nn_uq_dist.gaussian_copula._correlation_checks import (
    as_correlation,
    as_square,
    require_positive_definite,
)
from nn_uq_dist.gaussian_copula._score_algebra import valid_cholesky
from nn_uq_dist.laws._abstract import pass_validation, rebuilt
from nn_uq_dist.laws._adapted_law import as_output_law, require_univariate, with_rank
from nn_uq_dist.laws._batch_entries import batch_entries, take_matrix
from nn_uq_dist.laws._score_quadrature import ScoreQuadrature, ScoreRule, score_quadrature


class GaussianCopulaJoint(ScoreDistribution):
    r"""Joint law of ``N_y`` outputs with given marginals, coupled by a Gaussian copula.

    Parameters
    ----------
    marginals : numpyro.distributions.Distribution
        Univariate and continuous, ``batch_shape (..., N_y)``: a `LinearizedMarginal` or any
        distribution with ``cdf`` and ``icdf``.
    correlation_matrix : array_like, shape (..., N_y, N_y)
        Correlation of the normal scores, positive definite. `nataf_correlation` finds the matrix
        that gives the outputs a desired correlation, `nearest_correlation` repairs a matrix that is
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
    kind = "copula"
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
        batch_shape = broadcast_shapes(
            "the leading axes of marginals and correlation_matrix must broadcast",
            marginals=marginals.batch_shape[:-1],
            correlation_matrix=jnp.shape(matrix)[:-2],
        )
        # Equal ranks, so that axes which `vmap` puts in front stay in front of both.
        self.marginals = with_rank(marginals, len(batch_shape) + 1)
        (self.correlation_matrix,) = promote_shapes(
            matrix, shape=(*batch_shape, num_outputs, num_outputs)
        )
        dist.Distribution.__init__(self, batch_shape, (num_outputs,), validate_args=validate_args)

    @property
    def correlation_cholesky(self) -> Array:
        """Lower Cholesky factor of ``correlation_matrix``, NaN if there is none."""
        matrix = jnp.asarray(self.correlation_matrix, float_dtype(self.correlation_matrix))
        return valid_cholesky(matrix)

    @property
    def _score_loc(self) -> Array:
        matrix = self.correlation_matrix
        return jnp.zeros(self.event_shape, float_dtype(matrix))

    @property
    def _score_tril(self) -> Array:
        return self.correlation_cholesky

    def _quadrature(self) -> ScoreQuadrature:
        return score_quadrature(as_output_law(self.marginals))

    def _hermite_rule(self) -> ScoreQuadrature | ScoreRule:
        return as_output_law(self.marginals).hermite_rule()

    def entropy(self) -> Array:
        """Differential entropy: the marginals' minus the mutual information ``-log det(R)/2``.

        The part of the copula is exact; the entropy of a `LinearizedMarginal` is a quadrature. For
        marginals without ``entropy`` the result is a quadrature over their normal scores.
        """
        try:
            entropies = self.marginals.entropy()
        except NotImplementedError:
            return self._entropy_by_quadrature()
        log_scales = jnp.log(jnp.diagonal(self.correlation_cholesky, axis1=-2, axis2=-1))
        return jnp.broadcast_to(jnp.sum(entropies + log_scales, axis=-1), self.batch_shape)

    def _of_outputs(self, kept: tuple[int, ...]) -> "GaussianCopulaJoint":
        matrix = take_matrix(jnp.asarray(self.correlation_matrix), kept, kept)
        marginals = batch_entries(self.marginals, (..., kept))
        return rebuilt(self, marginals=marginals, correlation_matrix=matrix)

    def condition(
        self, indices: int | Sequence[int], values: ArrayLike
    ) -> GaussianCopulaConditional:
        """The law of the other outputs, given these; exact if the copula is.

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
        parts = self._conditioned(indices, values)
        return pass_validation(self, GaussianCopulaConditional(*parts, validate_args=False))

    def expand(self, batch_shape: Sequence[int]) -> "GaussianCopulaJoint":
        """The same law with a larger batch shape; `condition` and the like stay available."""
        shape = self._expanded_shape(batch_shape)
        return rebuilt(self, marginals=self.marginals.expand((*shape, *self.event_shape)))

    @staticmethod
    def infer_shapes(
        marginals: tuple[int, ...], correlation_matrix: tuple[int, ...]
    ) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Batch and event shape from the batch shape of the marginals and that of the matrix."""
        batch_shape = jnp.broadcast_shapes(marginals[:-1], correlation_matrix[:-2])
        return batch_shape, correlation_matrix[-1:]
