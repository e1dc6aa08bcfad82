"""Logs of a mixture from logs of its components: density, both tails, scores and quantiles."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax import Array
from jax.typing import ArrayLike

from nn_uq_dist.basics._checks import float_dtype
from nn_uq_dist.basics._known_values import is_local
from nn_uq_dist.basics._normal_tails import log_normal_density
from nn_uq_dist.basics._quantile_search import quantile_at_score
from nn_uq_dist.basics._row_algebra import binary_unit
from nn_uq_dist.distributions._linearized_marginal import LinearizedMarginal
from nn_uq_dist.distributions._mixture_components import (
    MOST_NUMBERS,
    log_sum,
    log_tails,
    log_weights,
    score_of_tails,
    take_flat,
)
from nn_uq_dist.laws._abstract import without_validation
from nn_uq_dist.laws._adapted_law import as_output_law
from nn_uq_dist.laws._batch_entries import batch_entries
from nn_uq_dist.laws._output_law import OutputLaw
from nn_uq_dist.linear_combination._eager import MOST_POINTS

type Logs = Callable[[Any, OutputLaw, Any], tuple[Any, ...]]


class Mixture(NamedTuple):
    """Components along the last batch axis, and the probability of each.

    Known values are summed in NumPy and in portions: only the components compile anything for a new
    shape, and memory stays bounded. The results are then NumPy arrays.
    """

    components: dist.Distribution
    probabilities: ArrayLike

    @property
    def laws(self) -> OutputLaw:
        """The components as an `OutputLaw`."""
        # A value outside the support of one component is not an error and needs no warning.
        return as_output_law(without_validation(self.components))

    @property
    def dtype(self) -> jnp.dtype:
        """Floating-point type of the parameters."""
        return float_dtype(self.probabilities, self.laws.mean)

    @property
    def shape(self) -> tuple[int, ...]:
        """Batch shape, the axis of the components included."""
        return jnp.broadcast_shapes(self.components.batch_shape, jnp.shape(self.probabilities))

    def rows(self, index: Any) -> "Mixture":
        """The law at each of these places along the flattened batch axes."""
        table = np.broadcast_to(np.asarray(self.probabilities), self.shape)
        rows = table.reshape(-1, self.shape[-1])[index]
        return Mixture(take_flat(self.components, self.shape, index), rows)

    def is_known(self, *values: object) -> bool:
        """Whether the parameters and these values are numbers now."""
        return is_local(values, self.components, self.probabilities)

    def log_of(self, name: str, value: Any) -> Any:
        """Log of this name of the law; like all below, at a value of shape ``(...)``."""
        return self._mixed(value, lambda _, laws, x: (getattr(laws, name)(x),))[0]

    def score(self, value: Any) -> Any:
        """Normal score, from one evaluation of the components instead of one for each tail."""
        return score_of_tails(
            *self._mixed(value, lambda xp, laws, x: log_tails(xp, laws.normal_score(x)))
        )

    def score_and_log_density(self, value: Any) -> tuple[Any, Any]:
        """`score` and `log_density` in one pass over the components."""

        def all_logs(xp: Any, laws: OutputLaw, x: Any) -> tuple[Any, ...]:
            score, log_density = laws.normal_score_and_log_prob(x)
            return *log_tails(xp, score), log_density

        *tails, log_density = self._mixed(value, all_logs)
        return score_of_tails(*tails), log_density

    def quantile(self, score: Any) -> Any:
        """The value with this normal score."""
        if self.is_known(score):
            with np.errstate(all="ignore"):
                return _solve(np, np.asarray(score), self)
        return _quantile(jnp.asarray(score), self)

    def _mixed(self, value: Any, logs: Logs) -> tuple[Any, ...]:
        """Mixtures of the quantities that `logs` returns for the components."""
        if not self.is_known(value):
            return _sums(jnp, self.laws, jnp.asarray(self.probabilities), value, logs)
        probabilities = np.asarray(self.probabilities, self.dtype)
        shape = self.components.batch_shape
        count = shape[-1]
        points = math.prod(np.broadcast_shapes(np.shape(value), shape[:-1]))
        size = max(1, min(count, MOST_NUMBERS // max(points, 1)))
        if size == count:
            return _sums(np, self.laws, probabilities, value, logs)
        portions = []
        for start in range(0, count, size):
            part = as_output_law(batch_entries(self.components, (..., slice(start, start + size))))
            some = probabilities[..., start : start + size]
            portions.append(_sums(np, part, some, value, logs))
        return tuple(log_sum(np.stack(same, axis=-1)) for same in zip(*portions, strict=True))


def _sums(xp: Any, laws: OutputLaw, probabilities: Any, value: Any, logs: Logs) -> tuple[Any, ...]:
    weights = log_weights(probabilities)
    found = logs(xp, laws, value[..., None])
    return tuple(log_sum(xp.asarray(part) + weights) for part in found)


def _solve(xp: Any, score: Any, mixture: Mixture) -> Any:
    shape = jnp.broadcast_shapes(score.shape, mixture.shape[:-1])
    dtype = jnp.promote_types(score.dtype, mixture.dtype)
    wanted = xp.broadcast_to(score, shape).astype(dtype)
    finite = xp.isfinite(wanted)
    target = xp.where(finite | xp.isnan(wanted), wanted, 0)
    low, high = (part.astype(dtype) for part in _bracket(xp, target, mixture))
    start = _start(xp, target, low, high, mixture)
    index_of_law = _index_of_law(mixture, shape)

    def evaluate(x: Any, index: Any) -> tuple[Any, Any]:
        if xp is jnp:
            return mixture.score_and_log_density(x)
        size = max(1, MOST_POINTS // mixture.shape[-1])
        parts = [slice(i, i + size) for i in range(0, len(x), size)]
        found = [
            mixture.rows(index_of_law[index[part]]).score_and_log_density(x[part]) for part in parts
        ]
        scores, logs = zip(*found, strict=True)
        return np.concatenate(scores), np.concatenate(logs)

    x = quantile_at_score(target, start, low, high, evaluate)
    first, last = (xp.asarray(part) for part in hull(mixture))
    ends = xp.where(wanted < 0, first, last)
    return xp.where(wanted == target, x, xp.where(xp.isnan(wanted), xp.nan, ends)).astype(dtype)


def _index_of_law(mixture: Mixture, shape: tuple[int, ...]) -> Any:
    """Place in the flattened batch of the law of each point, shape ``(n,)``."""
    batch_shape = mixture.shape[:-1]
    own = np.arange(math.prod(batch_shape)).reshape(batch_shape)
    return np.broadcast_to(own, shape).reshape(-1)


def _bracket(xp: Any, target: Any, mixture: Mixture) -> tuple[Any, Any]:
    """The smallest and the largest of the quantiles of the components, or bounds on them."""
    laws = mixture.laws
    present = xp.asarray(mixture.probabilities) > 0
    z = target[..., None]
    if isinstance(laws, LinearizedMarginal):
        # A uniform, and with it a sum of uniforms and a normal, is strictly sub-Gaussian:
        # P(X > t) <= exp(-t^2/(2 variance)).
        mean, scale = xp.asarray(laws.mean), xp.asarray(laws.standard_deviation)
        log_tail = log_tails(xp, -xp.abs(z))[0]
        reach = scale * xp.sqrt(-2 * log_tail)
        reach = xp.minimum(reach, xp.asarray(laws.bounds[1]) - mean)
        lowest, highest = mean - xp.where(z <= 0, reach, 0), mean + xp.where(z >= 0, reach, 0)
    else:
        lowest = highest = xp.asarray(laws.from_normal_score(z))
    low = xp.min(xp.where(present, lowest, xp.inf), axis=-1)
    high = xp.max(xp.where(present, highest, -xp.inf), axis=-1)
    return low, high


def _start(xp: Any, target: Any, low: Any, high: Any, mixture: Mixture) -> Any:
    """The quantile if the components were normal."""
    mean, scale = (
        xp.asarray(part) for part in (mixture.laws.mean, mixture.laws.standard_deviation)
    )
    weights = xp.broadcast_to(log_weights(xp.asarray(mixture.probabilities)), mixture.shape)
    tables = [xp.broadcast_to(part, mixture.shape) for part in (mean, scale, weights)]
    index_of_law = _index_of_law(mixture, target.shape)

    def evaluate(x: Any, index: Any) -> tuple[Any, Any]:
        own = tables
        if index is not None:
            own = [part.reshape(-1, part.shape[-1])[index_of_law[index]] for part in tables]
        scores = (x[..., None] - own[0]) / own[1]
        density = log_sum(log_normal_density(scores) - xp.log(own[1]) + own[2])
        return score_of_tails(*(log_sum(part + own[2]) for part in log_tails(xp, scores))), density

    begun = xp.clip(xp.zeros_like(target), low, high)
    return quantile_at_score(target, begun, low, high, evaluate, tolerance=1e-3)


@jax.custom_jvp
@jax.jit
def _quantile(score: Array, mixture: Mixture) -> Array:
    return _solve(jnp, score, mixture)


@_quantile.defjvp
def _quantile_jvp(
    primals: tuple[Array, Mixture], tangents: tuple[Array, Mixture]
) -> tuple[Array, Array]:
    # Implicit function theorem: score(x(z, parameters), parameters) = z.
    target, mixture = primals
    x = _quantile(target, mixture)
    inside = jnp.isfinite(x) & jnp.isfinite(target)
    safe = jnp.where(inside, x, moments(mixture)[0])
    (score, log_density), (moved, _) = jax.jvp(
        lambda law: law.score_and_log_density(safe), (mixture,), (tangents[1],)
    )
    steepness = jnp.exp(log_normal_density(score) - log_density)
    inside = inside & jnp.isfinite(steepness)
    change = tangents[0] - jnp.where(inside, moved, 0)
    return x, jnp.where(inside, steepness, 0) * change


def hull(mixture: Mixture) -> tuple[Any, Any]:
    """Smallest and largest end of the supports of the components with positive probability."""
    low, high = mixture.laws.bounds
    present = jnp.asarray(mixture.probabilities) != 0
    return (
        jnp.min(jnp.where(present, low, jnp.inf), axis=-1),
        jnp.max(jnp.where(present, high, -jnp.inf), axis=-1),
    )


@jax.jit
def moments(mixture: Mixture) -> tuple[Array, Array]:
    """Mean and standard deviation."""
    mean, unit, variance, *_ = _in_units(mixture)
    return mean, unit * jnp.sqrt(variance)


def _in_units(mixture: Mixture) -> tuple[Array, Array, Array, Array, Array]:
    """Mean, a unit near the size of the law, and in it the variance, and gaps and scales of parts.

    Squares of narrow components underflow long before the variance of the mixture does.
    """
    probabilities, laws = jnp.asarray(mixture.probabilities), mixture.laws
    mean = jnp.sum(probabilities * laws.mean, axis=-1)
    gaps, scales = laws.mean - mean[..., None], laws.standard_deviation
    unit = binary_unit(jnp.max(jnp.maximum(jnp.abs(gaps), scales), axis=-1))
    gaps, scales = gaps / unit[..., None], scales / unit[..., None]
    return mean, unit, jnp.sum(probabilities * (scales**2 + gaps**2), axis=-1), gaps, scales


@jax.jit
def higher_moments(mixture: Mixture) -> tuple[Array, Array]:
    """Skewness and excess kurtosis."""
    probabilities, laws = jnp.asarray(mixture.probabilities), mixture.laws
    _, _, variance, gaps, scales = _in_units(mixture)
    deviation = jnp.sqrt(variance)[..., None]
    gaps, parts = gaps / deviation, (scales / deviation) ** 2
    third = laws.skewness * parts**1.5
    fourth = (laws.excess_kurtosis + 3) * parts**2
    skewness = third + 3 * parts * gaps + gaps**3
    kurtosis = fourth + 4 * third * gaps + 6 * parts * gaps**2 + gaps**4
    return (
        jnp.sum(probabilities * skewness, axis=-1),
        jnp.sum(probabilities * kurtosis, axis=-1) - 3,
    )
