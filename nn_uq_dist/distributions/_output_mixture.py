"""The law of outputs that is a mixture of laws of one kind, and its nodes for integrals."""

from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax import Array, lax, random
from jax.typing import ArrayLike
from numpyro.distributions import constraints

from nn_uq_dist.basics._known_values import as_jax
from nn_uq_dist.basics._panels import gauss_legendre
from nn_uq_dist.basics._row_algebra import namespace
from nn_uq_dist.distributions._mixture_components import (
    choose_components,
    fitting_mixture,
    log_weights,
)
from nn_uq_dist.distributions._mixture_numerics import Mixture, higher_moments, hull, moments
from nn_uq_dist.laws._abstract import validate_sample
from nn_uq_dist.laws._adapted_law import require_univariate
from nn_uq_dist.laws._output_law import OutputLaw
from nn_uq_dist.laws._score_quadrature import ScoreRule
from nn_uq_dist.laws._support import support_between

# With more components the quantile function has many kinks, each of them slight.
_MOST_KINKS = 16


class OutputMixture(OutputLaw):
    r"""Mixture of ``M`` distributions of an output, each with its probability.

    The outputs of a network that is linearized over parts of its input have such laws.

    Parameters
    ----------
    components : numpyro.distributions.Distribution
        Univariate and continuous, ``batch_shape (..., M)``: the last axis is that of the
        components, as in NumPyro's `MixtureSameFamily`. A `LinearizedMarginal` or any distribution
        with ``cdf`` and ``icdf``.
    probabilities : array_like, shape (..., M)
        Probabilities of the components; not negative, with sum 1.
    validate_args : bool, optional
        As for every NumPyro distribution.

    Attributes
    ----------
    batch_shape : tuple of int
        The leading axes of the components and of the probabilities, broadcast.
    support
        The hull of the supports of the components. In a gap between them the density is zero.

    Raises
    ------
    TypeError
        If the components are discrete, multivariate or have no ``cdf`` and ``icdf``.
    ValueError
        If shapes do not fit; with validation on, if the probabilities are negative or do not sum
        to 1.

    Notes
    -----
    .. math:: p(y) = \sum_k \pi_k\, p_k(y)

    Both tails are sums of the tails of the components, and accurate where these are. A quantile is
    solved on the scale of the normal scores, between the smallest and the largest quantile of the
    components at that score; its derivatives follow from the implicit function theorem. At a level
    at which the distribution function is constant, because of a gap in the support, it is some
    point of the gap.

    A draw comes from a component chosen at random: derivatives of draws ignore the choice.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> import nn_uq_dist as nuq
    >>> parts = nuq.LinearizedMarginal(jnp.array([-2.0, 2.0]), jnp.ones((2, 1)))
    >>> output = nuq.distributions.OutputMixture(
    ...     parts, [0.25, 0.75]
    ... )  # uniform on (-3, -1) and on (1, 3)
    >>> print(f"{output.cdf(-2.0):.3f} {output.icdf(0.5):.3f} {output.mean:.3f}")
    0.125 1.667 1.000
    """

    arg_constraints: ClassVar[dict[str, constraints.Constraint]] = {
        "probabilities": constraints.simplex
    }
    # The choice of a component has no derivative.
    reparametrized_params: ClassVar[list[str]] = []
    pytree_data_fields = ("components", "probabilities")

    def __init__(
        self,
        components: dist.Distribution,
        probabilities: ArrayLike,
        *,
        validate_args: bool | None = None,
    ) -> None:
        require_univariate(components, batched=False)
        self.components, self.probabilities, shape = fitting_mixture(components, probabilities)
        super().__init__(shape[:-1], (), validate_args=validate_args)

    @property
    def _mixture(self) -> Mixture:
        return Mixture(self.components, self.probabilities)

    @constraints.dependent_property(is_discrete=False, event_dim=0)
    def support(self) -> constraints.Constraint:
        return support_between(self.components.support, *self.bounds)

    @property
    def bounds(self) -> tuple[Array, Array]:
        """Smallest and largest end of the supports of the components with positive probability."""
        low, high = hull(self._mixture)
        return jnp.broadcast_to(low, self.batch_shape), jnp.broadcast_to(high, self.batch_shape)

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        """Exact draws, shape ``sample_shape + batch_shape``."""
        key_choice, key_draw = random.split(key)
        logs = log_weights(jnp.asarray(self.probabilities, self._dtype))
        shape = (*sample_shape, *self.batch_shape)
        index = random.categorical(key_choice, logs, shape=shape)
        return choose_components(self.components, self._mixture.shape, index).sample(key_draw)

    @property
    def _dtype(self) -> jnp.dtype:
        return self._mixture.dtype

    @validate_sample
    def log_prob(self, value: ArrayLike) -> Array:
        """Log density, ``-inf`` outside of the supports of all components."""
        return _result(self._mixture.log_of("log_prob", self._fitting("value", value)))

    def log_cdf(self, value: ArrayLike) -> Array:
        """Log distribution function, accurate in both tails."""
        return _at_most_zero(self._mixture.log_of("log_cdf", self._fitting("value", value)))

    def log_sf(self, value: ArrayLike) -> Array:
        """Log survival function ``log P(Y > value)``, accurate in both tails."""
        return _at_most_zero(self._mixture.log_of("log_sf", self._fitting("value", value)))

    def normal_score(self, value: ArrayLike) -> Array:
        """``Phi^{-1}(cdf(value))``, from the scores of the components: accurate in both tails."""
        return _result(self._mixture.score(self._fitting("value", value)))

    def normal_score_and_log_prob(self, value: ArrayLike) -> tuple[Array, Array]:
        """`normal_score` and `log_prob` in one pass over the components."""
        score, log_prob = self._mixture.score_and_log_density(self._fitting("value", value))
        return _result(score), _result(log_prob)

    def from_normal_score(self, z: ArrayLike) -> Array:
        """Value whose normal score is ``z``; the inverse of `normal_score`."""
        return _result(self._mixture.quantile(self._fitting("z", z)))

    @property
    def mean(self) -> Array:
        """Mean of the means of the components."""
        return jnp.broadcast_to(moments(self._mixture)[0], self.batch_shape)

    @property
    def variance(self) -> Array:
        """Mean of the variances of the components plus the variance of their means."""
        return self.standard_deviation**2

    @property
    def standard_deviation(self) -> Array:
        """Square root of the variance, also where that would over- or underflow."""
        return jnp.broadcast_to(moments(self._mixture)[1], self.batch_shape)

    @property
    def skewness(self) -> Array:
        """Third standardized moment, from those of the components."""
        return jnp.broadcast_to(higher_moments(self._mixture)[0], self.batch_shape)

    @property
    def excess_kurtosis(self) -> Array:
        """Fourth standardized moment minus 3, from those of the components."""
        return jnp.broadcast_to(higher_moments(self._mixture)[1], self.batch_shape)

    def score_kinks(self) -> Array:
        """Scores of the ends of up to 16 components, where the density may jump or a gap begin.

        With more components there are none: the quantile function then has only slight kinks.
        """
        wide = self._mixture.shape
        if wide[-1] > _MOST_KINKS:
            return jnp.zeros((0, *self.batch_shape), self._dtype)
        low, high = (jnp.broadcast_to(end, wide) for end in self._mixture.laws.bounds)
        ends = jnp.moveaxis(jnp.concatenate([low, high], axis=-1), -1, 0)
        safe = jnp.where(jnp.isfinite(ends), ends, self.mean)
        scores = self.normal_score(safe)
        return jnp.where(jnp.isfinite(ends) & jnp.isfinite(scores), scores, 0)

    def hermite_rule(self) -> ScoreRule:
        """Scores at nodes over the values: a quantile costs many evaluations, a score one."""
        values, lengths = mixture_rule(self._mixture, self.batch_shape)
        return ScoreRule(self.normal_score(values), lengths, self.standard_deviation)


def _result(values: Any) -> Array:
    return as_jax(values) if namespace(values) is np else values


def _at_most_zero(logs: Any) -> Array:
    """Log probabilities capped at zero, which rounding may exceed."""
    return _result(namespace(logs).minimum(logs, 0))


# Panels of equal length, and panels between components, which may be narrow and close together.
_EQUAL = 20
_BETWEEN = 20
# Reach, in standard deviations, of an unbounded law: he_k phi is at most sqrt(phi), 1e-11 there.
_REACH = 10.0


def mixture_rule(mixture: Mixture, batch_shape: tuple[int, ...]) -> tuple[Array, Array]:
    """Nodes and lengths, shape ``(Q,) + batch_shape``, about 500 of them for each output.

    Notes
    -----
    A mixture has too many kinks to put a panel between each two. Half of the panels end at
    quantiles of points that mark the components, which are dense where the law may change fast.
    """
    laws = mixture.laws
    mean, scale = laws.mean, laws.standard_deviation
    low, high = hull(mixture)
    # Without finite ends: as far as any of the components reaches.
    low = jnp.where(jnp.isfinite(low), low, jnp.min(mean - _REACH * scale, axis=-1))
    high = jnp.where(jnp.isfinite(high), high, jnp.max(mean + _REACH * scale, axis=-1))
    wide = (*batch_shape, laws.batch_shape[-1])
    marks = [jnp.broadcast_to(mean + k * scale, wide) for k in (-2.0, 0.0, 2.0)]
    shares = jnp.linspace(0, 1, _BETWEEN + 1, dtype=mean.dtype)[1:-1]
    between = jnp.quantile(jnp.concatenate(marks, axis=-1), shares, axis=-1)
    steps = jnp.linspace(0, 1, _EQUAL + 1, dtype=mean.dtype)
    steps = steps.reshape(-1, *(1,) * len(batch_shape))
    equal = jnp.broadcast_to(low + (high - low) * steps, (len(steps), *batch_shape))
    ends = jnp.sort(jnp.concatenate([equal, jnp.clip(between, low, high)]), axis=0)
    return gauss_legendre(lax.stop_gradient(ends))
