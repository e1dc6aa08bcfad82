"""From normal scores to outputs and back: the Nataf transformation."""

from typing import Any

import jax.numpy as jnp
import numpyro.distributions as dist
from jax import Array
from numpyro.distributions import constraints
from numpyro.distributions.transforms import Transform

from nn_uq_dist.basics.normal_scores import from_normal_score, normal_score
from nn_uq_dist.basics.normal_tails import log_normal_density
from nn_uq_dist.basics.pytree import in_order
from nn_uq_dist.basics.summary_line import summary_line
from nn_uq_dist.distributions._monotone_spline import equal_trees


class NormalScoreTransform(Transform):
    r"""Map normal scores to outputs, ``y_j = F_j^{-1}(Phi(z_j))`` (the Nataf transformation).

    Parameters
    ----------
    marginals : numpyro.distributions.Distribution
        Univariate and continuous, ``batch_shape (..., N_y)``: a `LinearizedMarginal` or any
        distribution with ``cdf`` and ``icdf``.

    Notes
    -----
    The inverse is the normal score ``z_j = Phi^{-1}(F_j(y_j))``, and

    .. math:: \log |\det \partial y / \partial z| = \sum_j \log \phi(z_j) - \log p_j(y_j),

    a difference of logarithms, so that nothing under- or overflows in the tails. Scores of
    the distributions of this package and of NumPyro's common families are accurate in both tails;
    those of the others that `nn_uq_dist.distributions.AdaptedDistribution` lists are capped at
    about 8 (float64) or 5 (float32) in the upper tail, where their ``cdf`` rounds to one.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> import nn_uq_dist as nuq
    >>> transform = nuq.distributions.NormalScoreTransform(
    ...     nuq.LinearizedMarginal(jnp.zeros(2), [1.0, 0.5])
    ... )
    >>> y = transform(jnp.array([0.0, 6.0]))
    >>> print(transform.inv(y).round(4))
    [0. 6.]
    """

    domain = constraints.real_vector

    def __init__(self, marginals: dist.Distribution) -> None:
        self.marginals = marginals

    def __repr__(self) -> str:
        return summary_line(self, "marginals")

    @property
    def codomain(self) -> constraints.Constraint:
        """The support of the outputs, a box for bounded marginals."""
        return constraints.independent(self.marginals.support, 1)

    def __call__(self, x: Array) -> Array:
        """Outputs with normal scores ``x``, shape ``(..., N_y)``."""
        return from_normal_score(self.marginals, x)

    def _inverse(self, y: Array) -> Array:
        return normal_score(self.marginals, y)

    def log_abs_det_jacobian(self, x: Array, y: Array, intermediates: Any = None) -> Array:
        """``sum_j log phi(x_j) - log p_j(y_j)``."""
        del intermediates
        return jnp.sum(log_normal_density(x) - self.marginals.log_prob(y), axis=-1)

    def forward_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Shape of the outputs for scores of this shape."""
        return jnp.broadcast_shapes(shape, self.marginals.batch_shape)

    def inverse_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Shape of the scores for outputs of this shape."""
        return jnp.broadcast_shapes(shape, self.marginals.batch_shape)

    def tree_flatten(self) -> tuple[tuple[Any], Any]:
        return (in_order(self.marginals),), (("marginals",), {})

    def eq(self, other: object, static: bool = False) -> Array | bool:
        """Whether both hold the same marginals: type, shapes and parameters."""
        return equal_trees(self, other, static=static)
