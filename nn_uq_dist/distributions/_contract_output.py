"""What everything downstream asks of the distributions of single outputs."""

import abc
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.scipy.special import logsumexp, ndtri
from jax.typing import ArrayLike

from nn_uq_dist.basics.checks import (
    as_numeric,
    float_dtype,
    in_type,
    is_concrete,
    require_probabilities,
)
from nn_uq_dist.basics.normal_tails import score_from_log_tails
from nn_uq_dist.basics.quadrature_nodes import gauss_legendre
from nn_uq_dist.distributions._contract import Distribution
from nn_uq_dist.distributions._value_rule import (
    Moments,
    ValueRule,
    moments_of,
    rule_between,
    standardized,
)

# Normal scores of the ends of the panels. he_k phi is at most about sqrt(phi): 1e-11 at the last.
_POSITIVE_ENDS = (*np.arange(0.5, 6, 0.5), 6, 7, 8, 10)
_ENDS = np.array([*(-end for end in _POSITIVE_ENDS[::-1]), 0, *_POSITIVE_ENDS])
# Shares of the probability outside that coverage intervals are tried with in each round. The first
# are many, as a narrow peak lies between two of a few.
_SHARES_OF_ROUNDS = 257, 65, 65


class OutputDistribution(Distribution):
    r"""Abstract univariate, continuous distributions of outputs, one for each entry of the batch.

    Copulas, tables and figures use only what is defined here, and assume no symmetry.

    A subclass is final. It is a NumPyro distribution with ``event_shape ()`` and defines

    - ``log_prob(value)``: ``-inf`` outside the support, NaN for NaN, finite gradients;
    - ``log_cdf(value)``, ``log_sf(value)``: each with relative accuracy in its small tail, ``-inf``
      and 0 beyond the ends of the support;
    - ``from_normal_score(z)``: the quantile :math:`F^{-1}(\Phi(z))`, right in both tails;
    - ``mean`` and ``variance``, shape ``batch_shape``, finite;
    - ``support``: a constraint of scalars; its ``lower_bound`` and ``upper_bound``, where it has
      them, broadcast against ``batch_shape``;
    - ``sample(key, sample_shape)``;
    - the names of its arrays in ``arg_constraints`` or ``pytree_data_fields``, as every NumPyro
      distribution that passes through ``jit``.

    Values broadcast against ``batch_shape``, as in NumPyro. The rest follows, and may be
    overridden by what is faster or more accurate:

    - ``cdf``, ``icdf``; ``normal_score`` and ``normal_score_and_log_prob`` (one pass instead of
      two); ``standard_deviation``, ``skewness`` and ``excess_kurtosis``; ``bounds``;
    - ``kinks`` and ``approximate_quantile``: where the density bends, and about where quantiles
      are, for quadratures;
    - ``distribution[index]`` and ``expand``: the entries of the batch at an index, and a larger
      batch, made anew from the arguments of the constructor, which the distribution must store.

    Examples
    --------
    >>> import numpyro.distributions as dist
    >>> import nn_uq_dist as nuq
    >>> distribution = nuq.distributions.as_output_distribution(dist.Laplace(0.0, 1.0))
    >>> print(f"{distribution.normal_score(10.0):.3f} {distribution.excess_kurtosis:.2f}")
    4.078 3.00
    """

    @abc.abstractmethod
    def log_prob(self, value: ArrayLike) -> Array:
        """Log density, ``-inf`` outside the support."""

    @abc.abstractmethod
    def log_cdf(self, value: ArrayLike) -> Array:
        """``log P(Y <= value)``, relative accuracy in the lower tail."""

    @abc.abstractmethod
    def log_sf(self, value: ArrayLike) -> Array:
        """``log P(Y > value)``, relative accuracy in the upper tail."""

    @abc.abstractmethod
    def from_normal_score(self, z: ArrayLike) -> Array:
        r"""Value with normal score ``z``, the quantile :math:`F^{-1}(\Phi(z))`."""

    def _fitting(self, name: str, value: ArrayLike) -> Any:
        """The argument of a method as floats of its type, which broadcast against the batch."""
        dtype = self._dtype
        numbers: Any = as_numeric(name, in_type(value, dtype))
        # JAX's type, also of NumPy's arrays: in double precision values near an edge would be
        # beyond it. NumPy compiles nothing, whatever the shapes are.
        dtype = float_dtype(numbers, dtype)
        is_known = isinstance(numbers, np.ndarray)
        array: Any = numbers.astype(dtype, copy=False) if is_known else jnp.asarray(numbers, dtype)
        try:
            jnp.broadcast_shapes(array.shape, self.batch_shape)
        except ValueError as error:
            ones = ", 1" * len(self.batch_shape)
            raise ValueError(
                f"{name} must broadcast against batch_shape {self.batch_shape}, got shape "
                f"{array.shape}; for the same points of every distribution use "
                f"{name}.reshape(-1{ones})"
            ) from error
        return array

    def cdf(self, value: ArrayLike) -> Array:
        """Distribution function, the exponential of `log_cdf`."""
        return jnp.exp(self.log_cdf(value))

    def icdf(self, q: ArrayLike) -> Array:
        """Quantile function. Where ``q`` rounds to 1, use `from_normal_score`.

        Raises
        ------
        ValueError
            If a known ``q`` is not in [0, 1]; a traced one gives NaN.
        """
        require_probabilities("q", q)
        return self.from_normal_score(ndtri(jnp.asarray(in_type(q, self._dtype))))

    def coverage_interval(self, probability: float = 0.95) -> Array:
        """Shortest interval with this probability, shape ``(2,) + batch_shape``.

        Parameters
        ----------
        probability
            Between 0 and 1.

        Raises
        ------
        ValueError
            If a known `probability` is not in (0, 1).

        Notes
        -----
        Where the one between equal tails is as short, to rounding, it is taken: that of symmetric
        distributions with one peak. Of others it is the one of JCGM 101:2008, 5.3.4, found by a
        search over the lower tail to 1e-5 of its probability. The search begins with 257 intervals,
        between which it may miss a peak that has less than 1/256 of the probability outside.

        Examples
        --------
        >>> import numpyro.distributions as dist
        >>> import nn_uq_dist as nuq
        >>> waiting = nuq.distributions.as_output_distribution(dist.Exponential(1.0))
        >>> print(waiting.coverage_interval(0.95).round(2))  # from 0 to -log(.05)
        [0. 3.]
        """
        if is_concrete(probability) and not 0 < probability < 1:
            raise ValueError(
                f"probability must be between 0 and 1, got {probability}; pass a fraction such as "
                f"0.95"
            )
        tails = jnp.asarray(1 - probability, self._dtype)
        low = jnp.zeros(self.batch_shape, self._dtype)
        high = jnp.ones_like(low)
        column = (-1, *(1 for _ in self.batch_shape))
        for count in _SHARES_OF_ROUNDS:
            steps = jnp.linspace(0, 1, count, dtype=self._dtype).reshape(column)
            shares = low + (high - low) * steps
            ends = self._interval(tails * shares, tails * (1 - shares))
            width = ends[1] - ends[0]
            best = jnp.argmin(jnp.where(jnp.isnan(width), jnp.inf, width), axis=0)[None]
            shortest = jnp.take_along_axis(ends, best[None], axis=1)[:, 0]
            before, after = (jnp.clip(best + k, 0, count - 1) for k in (-1, 1))
            low, high = (jnp.take_along_axis(shares, k, axis=0)[0] for k in (before, after))
        # Rounding must not decide against an end of the support, nor against equal tails.
        for share in (0, 1, 0.5):
            below = jnp.full_like(low, share) * tails
            ends = self._interval(below, tails - below)
            rounding = 4 * jnp.finfo(self._dtype).eps * jnp.sum(jnp.abs(ends), axis=0)
            is_as_short = jnp.diff(ends - shortest, axis=0) <= rounding
            shortest = jnp.where(jnp.isfinite(rounding) & is_as_short, ends, shortest)
        return shortest

    def _interval(self, below: Array, above: Array) -> Array:
        """The interval between tails; one without a tail ends where the support does."""
        ends = self.from_normal_score(jnp.stack([ndtri(below), -ndtri(above)]))
        low, high = self.bounds
        return jnp.stack([jnp.where(below > 0, ends[0], low), jnp.where(above > 0, ends[1], high)])

    def log_interval(self, low: ArrayLike, high: ArrayLike) -> Array:
        """``log P(low < Y <= high)``, the likelihood of a rounded or interval-censored value.

        Parameters
        ----------
        low, high
            Ends, which broadcast against ``batch_shape``; infinite for none. NaN if ``low`` is
            above ``high``.

        Notes
        -----
        By the difference of the smaller tails, or where that has too few digits by quadrature of
        the density: right to 1e-5 in float32 and 1e-9 in float64 where the tails have all digits.
        NumPyro's normal ones have not: 20 standard deviations out it is 2e-4 and 2e-7.

        Examples
        --------
        >>> import numpyro.distributions as dist
        >>> import nn_uq_dist as nuq
        >>> waiting = nuq.distributions.as_output_distribution(dist.Exponential(1.0))
        >>> print(waiting.log_interval(1.0, 2.0).round(4))  # log(exp(-1) - exp(-2))
        -1.4587
        """
        low, high = (
            jnp.asarray(self._fitting(name, end), self._dtype)
            for name, end in (("low", low), ("high", high))
        )
        below, above = (
            (self.log_cdf(low), self.log_cdf(high)),
            (self.log_sf(low), self.log_sf(high)),
        )
        is_upper = above[0] < below[1]
        larger = jnp.where(is_upper, above[0], below[1])
        smaller = jnp.where(is_upper, above[1], below[0])
        # Beyond the support both tails are zero.
        gap = jnp.where(jnp.isneginf(larger), jnp.inf, larger - smaller)
        is_narrow = gap < jnp.finfo(self._dtype).eps ** 0.25
        wide = larger + jnp.log(-jnp.expm1(-jnp.where(is_narrow, 1, gap)))
        ends = jnp.stack(jnp.broadcast_arrays(low, high))
        nodes, lengths = gauss_legendre(
            jnp.where(is_narrow, jnp.clip(ends, *self.bounds), self.mean)
        )
        logs = self.log_prob(nodes) + jnp.log(jnp.where(lengths > 0, lengths, 1))
        narrow = logsumexp(jnp.where(lengths > 0, logs, -jnp.inf), axis=0)
        return jnp.where(low <= high, jnp.where(is_narrow, narrow, wide), jnp.nan)

    def normal_score(self, value: ArrayLike) -> Array:
        r"""Normal score :math:`\Phi^{-1}(F(y))`, from the smaller of the two tails."""
        return score_from_log_tails(self.log_cdf(value), self.log_sf(value))

    def normal_score_and_log_prob(self, value: ArrayLike) -> tuple[Array, Array]:
        """`normal_score` and `log_prob`, which some distributions compute in one pass."""
        return self.normal_score(value), self.log_prob(value)

    @property
    def standard_deviation(self) -> Array:
        """Square root of the variance; a distribution may know it where its variance underflows."""
        return jnp.sqrt(self.variance)

    @property
    def skewness(self) -> Array:
        """Third standardized moment, by quadrature over the values."""
        return standardized(self.moments(), 3)

    @property
    def excess_kurtosis(self) -> Array:
        """Fourth standardized moment less 3, by quadrature over the values."""
        return standardized(self.moments(), 4) - 3

    @property
    def bounds(self) -> tuple[Array, Array]:
        """Ends of the support, infinite where there are none, each of shape ``batch_shape``."""
        low = getattr(self.support, "lower_bound", -jnp.inf)
        high = getattr(self.support, "upper_bound", jnp.inf)
        return jnp.broadcast_to(low, self.batch_shape), jnp.broadcast_to(high, self.batch_shape)

    def kinks(self) -> Array:
        """Values at which the density bends or jumps, shape ``(m,) + batch_shape``."""
        return jnp.zeros((0, *self.batch_shape), self._dtype)

    def approximate_quantile(self, z: Array) -> Array:
        """Value whose normal score is roughly ``z``, increasing, for the panels of quadratures."""
        return self.from_normal_score(z)

    def value_rule(self, loc: Array | None = None, scale: Array | None = None) -> ValueRule:
        """Return the rule for integrals over the values.

        Parameters
        ----------
        loc, scale : Array, optional
            Mean and standard deviation of the normal scores that matter. Default: 0 and 1.
        """
        ends = self.approximate_quantile(self._panel_scores(loc, scale))
        return rule_between(ends, self.kinks(), *self.bounds, self.mean, self.standard_deviation)

    def _panel_scores(self, loc: Array | None, scale: Array | None) -> Any:
        """Normal scores at which panels end."""
        scores = _ENDS.astype(self._dtype).reshape(-1, *(1,) * len(self.batch_shape))
        return scores if loc is None or scale is None else loc + scale * scores

    def moments(self) -> Moments:
        """Mean and deviations of the values, by quadrature."""
        rule = self.value_rule()
        return moments_of(rule, self.log_prob(rule.values))
