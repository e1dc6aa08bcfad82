"""The law of some outputs, given others, under a Gaussian copula."""

from collections.abc import Sequence
from typing import ClassVar

import jax.numpy as jnp
import numpyro.distributions as dist
from jax import Array
from jax.typing import ArrayLike
from numpyro.distributions import constraints
from numpyro.distributions.util import promote_shapes

from nn_uq_dist.basics._checks import broadcast_shapes, float_dtype
from nn_uq_dist.distributions._score_distribution import ScoreDistribution
from nn_uq_dist.gaussian_copula._score_algebra import cholesky_of_rows
from nn_uq_dist.laws._abstract import pass_validation, rebuilt
from nn_uq_dist.laws._adapted_law import as_output_law, require_univariate, with_rank
from nn_uq_dist.laws._batch_entries import batch_entries
from nn_uq_dist.laws._score_quadrature import ScoreQuadrature, score_quadrature


class GaussianCopulaConditional(ScoreDistribution):
    """Law of outputs ``F_j^{-1}(Phi(z_j))`` whose scores ``z`` have any joint normal law.

    Made by `GaussianCopulaJoint.condition`. In the joint law the scores are standard normal; given
    some of them, the others have a different mean and a smaller variance.

    Parameters
    ----------
    marginals : numpyro.distributions.Distribution
        The unconditional laws of the outputs, ``batch_shape (..., N_y)``.
    score_loc : array_like, shape (..., N_y)
        Means of the scores.
    score_tril : array_like, shape (..., N_y, N_y)
        Lower Cholesky factor of the covariance of the scores.
    validate_args : bool, optional
        As for every NumPyro distribution.

    Raises
    ------
    TypeError
        If the marginals are discrete, multivariate or have no ``cdf`` and ``icdf``.
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
    kind = "copula"
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
        for name, part, event_dim in (("score_loc", score_loc, 1), ("score_tril", score_tril, 2)):
            if jnp.shape(part)[-event_dim:] != (num_outputs,) * event_dim:
                raise ValueError(
                    f"{name} must have shape (..., {', '.join([str(num_outputs)] * event_dim)}) "
                    f"for {num_outputs} marginals, got {jnp.shape(part)}; pass one entry per "
                    f"output along each of its last axes"
                )
        batch_shape = broadcast_shapes(
            "the leading axes of marginals, score_loc and score_tril must broadcast",
            marginals=marginals.batch_shape[:-1],
            score_loc=jnp.shape(score_loc)[:-1],
            score_tril=jnp.shape(score_tril)[:-2],
        )
        self.marginals = with_rank(marginals, len(batch_shape) + 1)
        (self.score_loc,) = promote_shapes(score_loc, shape=(*batch_shape, num_outputs))
        (self.score_tril,) = promote_shapes(
            score_tril, shape=(*batch_shape, num_outputs, num_outputs)
        )
        dist.Distribution.__init__(self, batch_shape, (num_outputs,), validate_args=validate_args)

    @property
    def _score_loc(self) -> Array:
        return jnp.asarray(self.score_loc, float_dtype(self.score_loc))

    @property
    def _score_tril(self) -> Array:
        return jnp.asarray(self.score_tril, float_dtype(self.score_tril))

    def _quadrature(self) -> ScoreQuadrature:
        return score_quadrature(as_output_law(self.marginals), self._score_loc, self._score_scale)

    @property
    def mean(self) -> Array:
        """Means of the outputs, by quadrature over their scores."""
        return jnp.broadcast_to(self._quadrature().mean, self.shape())

    @property
    def variance(self) -> Array:
        """Variances of the outputs, by quadrature over their scores."""
        return jnp.broadcast_to(self._quadrature().variance, self.shape())

    def entropy(self) -> Array:
        """Differential entropy: that of the scores plus ``sum E[log dy_j/dz_j]``, by quadrature."""
        return self._entropy_by_quadrature()

    def _of_outputs(self, kept: tuple[int, ...]) -> "GaussianCopulaConditional":
        return rebuilt(
            self,
            marginals=batch_entries(self.marginals, (..., kept)),
            score_loc=self._score_loc[..., kept],
            score_tril=cholesky_of_rows(self._score_tril, kept),
        )

    def condition(
        self, indices: int | Sequence[int], values: ArrayLike
    ) -> "GaussianCopulaConditional":
        """The law of the other outputs, given these too: see `GaussianCopulaJoint.condition`."""
        parts = self._conditioned(indices, values)
        return pass_validation(self, GaussianCopulaConditional(*parts, validate_args=False))

    def expand(self, batch_shape: Sequence[int]) -> "GaussianCopulaConditional":
        """The same law with a larger batch shape; `condition` and the like stay available."""
        shape = self._expanded_shape(batch_shape)
        return rebuilt(self, marginals=self.marginals.expand((*shape, *self.event_shape)))

    @staticmethod
    def infer_shapes(
        marginals: tuple[int, ...], score_loc: tuple[int, ...], score_tril: tuple[int, ...]
    ) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Batch and event shape from the batch shape of the marginals and those of the arrays."""
        batch_shape = jnp.broadcast_shapes(marginals[:-1], score_loc[:-1], score_tril[:-2])
        return batch_shape, score_loc[-1:]
