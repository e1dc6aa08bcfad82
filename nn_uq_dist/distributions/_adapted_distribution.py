"""NumPyro distributions as distributions of single outputs."""

from typing import Any

import jax.numpy as jnp
import numpyro.distributions as dist
from jax import Array
from jax.scipy.special import log_ndtr
from jax.typing import ArrayLike
from numpyro.distributions import constraints

from nn_uq_dist.basics.concrete import nan_unless
from nn_uq_dist.basics.family_moments import mean_and_standard_deviation
from nn_uq_dist.basics.normal_scores import from_normal_score, missing_functions, normal_score
from nn_uq_dist.basics.row_algebra import products
from nn_uq_dist.distributions._contract import safe_values, validate_sample
from nn_uq_dist.distributions._contract_output import OutputDistribution


class AdaptedDistribution(OutputDistribution):
    """Any continuous NumPyro distribution with ``cdf`` as an `OutputDistribution`.

    Made by `as_output_distribution`. Its tails follow from its normal scores. These are right on
    both sides for NumPyro's univariate families, also truncated, expanded and transformed, but for
    a few rare ones and those of others: there they do not exceed about 8 (float64) or 5 (float32),
    where ``cdf`` rounds to one.

    Parameters
    ----------
    base : numpyro.distributions.Distribution
        The distribution; its batch shape is that of the distribution.

    Examples
    --------
    >>> import numpyro.distributions as dist
    >>> import nn_uq_dist as nuq
    >>> distribution = nuq.distributions.AdaptedDistribution(dist.Logistic(0.0, 1.0))
    >>> print(f"{distribution.log_cdf(-100.0):.1f} {distribution.normal_score(1.0):.1f}")
    -100.0 0.6
    """

    pytree_data_fields = ("base",)

    def __init__(self, base: dist.Distribution) -> None:
        self.base = base
        super().__init__(base.batch_shape, (), validate_args=False)

    @constraints.dependent_property(is_discrete=False, event_dim=0)
    def support(self) -> constraints.Constraint:
        return self.base.support

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        """Draws of the distribution."""
        return self.base.sample(key, sample_shape)

    @validate_sample
    def log_prob(self, value: ArrayLike) -> Array:
        """Log density, ``-inf`` outside the support."""
        value = jnp.asarray(self._fitting("value", value))
        inside, safe = safe_values(self.support, value)
        return _nan_kept(value, jnp.where(inside, self.base.log_prob(safe), -jnp.inf))

    def log_cdf(self, value: ArrayLike) -> Array:
        """``log Phi`` of the normal score."""
        return log_ndtr(self.normal_score(value))

    def log_sf(self, value: ArrayLike) -> Array:
        """``log Phi`` of minus the normal score."""
        return log_ndtr(-self.normal_score(value))

    def normal_score(self, value: ArrayLike) -> Array:
        """Normal score, by the best way that the distribution offers; infinite out of support."""
        value = jnp.asarray(self._fitting("value", value))
        low, high = self.bounds
        score = normal_score(self.base, safe_values(self.support, value)[1])
        score = jnp.where(value <= low, -jnp.inf, jnp.where(value >= high, jnp.inf, score))
        return _nan_kept(value, score)

    def from_normal_score(self, z: ArrayLike) -> Array:
        """Value with this normal score, by the best way that the distribution offers."""
        return from_normal_score(self.base, jnp.asarray(z))

    @property
    def mean(self) -> Array:
        """Mean: NumPyro's or, where it has none, by quadrature; NaN without a finite variance."""
        return self._moments()[0]

    @property
    def variance(self) -> Array:
        """Variance, as the mean."""
        return products(self.standard_deviation)

    @property
    def standard_deviation(self) -> Array:
        """Standard deviation, as the mean."""
        return self._moments()[1]

    def _moments(self) -> tuple[Array, Array]:
        mean, sd = (
            jnp.broadcast_to(m, self.batch_shape) for m in mean_and_standard_deviation(self.base)
        )
        return nan_unless(jnp.isfinite(sd), mean), nan_unless(jnp.isfinite(sd), sd)

    def kinks(self) -> Array:
        """The middle of a Laplace distribution; none else."""
        base: Any = self.base
        while isinstance(base, dist.ExpandedDistribution | dist.Independent):
            base = base.base_dist
        if isinstance(base, dist.Laplace):
            return jnp.broadcast_to(self.mean, (1, *self.batch_shape))
        return super().kinks()


def _nan_kept(value: Array, result: Array) -> Array:
    """The result, but for NaN, which stays NaN and has the derivative NaN."""
    return jnp.where(jnp.isnan(value), nan_unless(~jnp.isnan(value), value), result)


def as_output_distribution(
    distribution: dist.Distribution, name: str = "distribution"
) -> OutputDistribution:
    """Adapt a univariate distribution; return an `OutputDistribution` as it is.

    Parameters
    ----------
    distribution : numpyro.distributions.Distribution
        Univariate and continuous, with ``cdf``.
    name : str
        What messages call it.

    Raises
    ------
    TypeError
        If `distribution` is not a distribution, is discrete or multivariate, or lacks ``cdf``.

    Examples
    --------
    >>> import numpyro.distributions as dist
    >>> import nn_uq_dist as nuq
    >>> distribution = nuq.distributions.as_output_distribution(dist.Normal(0.0, 1.0))
    >>> print(f"{distribution.log_sf(30.0):.1f}")
    -454.3
    """
    if isinstance(distribution, OutputDistribution):
        return distribution
    require_univariate(distribution, name, batched=False)
    return AdaptedDistribution(distribution)


def require_univariate(marginals: object, name: str = "marginals", *, batched: bool = True) -> None:
    """Raise unless ``marginals`` are univariate and continuous, along the last batch axis."""
    if isinstance(marginals, OutputDistribution) and (marginals.batch_shape or not batched):
        return
    if not isinstance(marginals, dist.Distribution):
        raise TypeError(
            f"{name} must be a NumPyro distribution, got {type(marginals).__name__}; pass a "
            f"LinearizedMarginal or another univariate one with cdf"
        )
    kind = type(marginals).__name__
    if marginals.event_shape:
        raise TypeError(
            f"{name} must be univariate, got {kind} with event_shape {marginals.event_shape}; "
            f"give one distribution per output along the last batch axis, without to_event"
        )
    if marginals.is_discrete:
        raise TypeError(
            f"{name} must be continuous, got the discrete {kind}; a discrete output has no "
            f"normal score"
        )
    if batched and not marginals.batch_shape:
        raise ValueError(
            f"{name} must have batch_shape (..., N_y), got () from {kind}; use "
            f".expand((N_y,)) for outputs of one distribution"
        )
    missing = " and ".join(missing_functions(marginals))
    if missing:
        raise TypeError(
            f"{name} must have a distribution function, got {kind} without {missing}; pass a "
            f"LinearizedMarginal or another univariate distribution with cdf"
        )


def with_rank(marginals: dist.Distribution, rank: int) -> dist.Distribution:
    """The same distributions with axes of size 1 in front, for a ``batch_shape`` of this length."""
    missing = rank - len(marginals.batch_shape)
    return marginals.expand((1,) * missing + marginals.batch_shape)
