"""The distribution of some outputs of a Gaussian copula, given the others."""

from typing import ClassVar

import jax.numpy as jnp
import numpyro.distributions as dist
from jax import Array
from jax.typing import ArrayLike
from numpyro.distributions import constraints

from nn_uq_dist.basics import checks
from nn_uq_dist.basics.row_algebra import products
from nn_uq_dist.distributions._adapted_distribution import require_univariate
from nn_uq_dist.distributions._batch_entries import batch_entries
from nn_uq_dist.distributions._contract import rebuilt
from nn_uq_dist.distributions._score_algebra import cholesky_of_rows
from nn_uq_dist.distributions._score_distribution import ScoreDistribution


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
        return jnp.broadcast_to(self._conditional_moments()[1].mean, self.shape())

    @property
    def variance(self) -> Array:
        """Variances of the outputs, by quadrature over their scores."""
        scale = self._conditional_moments()[1].standard_deviation
        return jnp.broadcast_to(products(scale), self.shape())

    def _of_outputs(self, kept: tuple[int, ...]) -> "GaussianCopulaConditional":
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
