"""What everything downstream asks of a joint distribution of outputs, and checks of values."""

import abc
from collections.abc import Sequence
from typing import ClassVar, Self

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax import Array
from jax.typing import ArrayLike

from nn_uq_dist.basics import checks
from nn_uq_dist.basics.concrete import evaluated_now, nan_unless
from nn_uq_dist.distributions._adapted_distribution import as_output_distribution
from nn_uq_dist.distributions._axes import batch_entries
from nn_uq_dist.distributions._contract import Distribution


class JointDistribution(Distribution):
    r"""Abstract joint distribution of outputs, in NumPyro, with ``event_shape (N_y,)``.

    Tables and figures take any joint distribution that fulfills this contract. A subclass is final
    and defines

    - ``marginals``: the distributions of the single outputs, ``batch_shape + (N_y,)``: an
      `OutputDistribution` or any distribution that `as_output_distribution` adapts;
    - ``sample(key, sample_shape)``: exact draws;
    - ``log_prob(value)``: ``-inf`` outside the support;
    - ``covariance_matrix``: of the outputs, shape ``batch_shape + (N_y, N_y)``;
    - ``marginalize(indices)``: the joint distribution of some outputs, in the order asked for;
    - ``rosenblatt(value)``: see that method;
    - ``kind``: one or two words that name the distribution in tables and legends.

    ``mean`` and ``variance`` are those of the marginals. As for every NumPyro distribution, a
    subclass names the arrays and distributions that it stores in ``arg_constraints`` or
    ``pytree_data_fields``, so that it passes through ``jit``.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> import nn_uq_dist as nuq
    >>> marginals = nuq.LinearizedMarginal(jnp.zeros(2), [[1.0, 0.5], [0.3, 0.3]])
    >>> joint = nuq.GaussianCopulaJoint(marginals, [[1.0, 0.8], [0.8, 1.0]])
    >>> isinstance(joint, nuq.distributions.JointDistribution), joint.marginalize(1).event_shape
    (True, (1,))
    """

    kind: ClassVar[str] = "joint distribution"
    marginals: dist.Distribution

    @abc.abstractmethod
    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        """Exact draws, shape ``sample_shape + batch_shape + (N_y,)``."""

    @abc.abstractmethod
    def log_prob(self, value: ArrayLike) -> Array:
        """Log density, ``-inf`` outside the support."""

    @property
    @abc.abstractmethod
    def covariance_matrix(self) -> Array:
        """Covariance of the outputs, shape ``batch_shape + (N_y, N_y)``."""

    @abc.abstractmethod
    def marginalize(self, indices: int | Sequence[int]) -> Self:
        """The joint distribution of some outputs, in the order of ``indices``."""

    @abc.abstractmethod
    def rosenblatt(self, value: ArrayLike) -> Array:
        r"""Normal scores of each output given those before it, independent and standard normal.

        .. math:: w_j = \Phi^{-1}\bigl(P(Y_j \le y_j \mid y_1, \dots, y_{j-1})\bigr)

        (M. Rosenblatt, Ann. Math. Statist. 23, 1952), shape as ``value``. The scores of Monte Carlo
        draws show whether a joint distribution is calibrated.
        """

    def rosenblatt_from_scores(self, value: ArrayLike, scores: ArrayLike) -> Array:
        """`rosenblatt`, for callers that already have the normal scores of the marginals.

        A distribution whose `rosenblatt` starts from these scores overrides this method, and need
        not compute them again. Callers may give finite scores to values beyond the support.
        """
        del scores
        return self.rosenblatt(value)

    @property
    def mean(self) -> Array:
        """Means of the marginals, shape ``batch_shape + (N_y,)``."""
        return jnp.broadcast_to(as_output_distribution(self.marginals).mean, self.shape())

    @property
    def variance(self) -> Array:
        """Variances of the marginals, shape ``batch_shape + (N_y,)``."""
        return jnp.broadcast_to(as_output_distribution(self.marginals).variance, self.shape())


def observed_outputs(
    marginals: dist.Distribution, indices: int | Sequence[int], values: ArrayLike
) -> tuple[tuple[int, ...], tuple[int, ...], dist.Distribution, Array]:
    """Known outputs of a joint distribution in the order given, the others in ascending order.

    Parameters
    ----------
    marginals : numpyro.distributions.Distribution
        Of all outputs, which are its last batch axis; the leading axes of the values broadcast
        against the others.
    indices : int or sequence of int
        Which outputs are known.
    values : array_like, shape (..., len(indices))
        Their values, which are checked. For one output a single number suffices.

    Returns
    -------
    observed, remaining : tuple of int
    marginals : numpyro.distributions.Distribution
        Of the known outputs.
    values : Array
    """
    *batch_shape, num_outputs = marginals.batch_shape
    observed = checks.as_indices(indices, num_outputs)
    remaining = tuple(index for index in range(num_outputs) if index not in observed)
    if not remaining:
        raise ValueError(
            f"indices must leave an output to describe, got all {num_outputs}; "
            f"use log_prob for the density of all outputs"
        )
    marginals = batch_entries(marginals, (..., observed))
    values = checks.in_type(values, checks.at_least_single(*jax.tree.leaves(marginals)))
    if np.ndim(values) == 0 and len(observed) == 1:
        values = jnp.asarray(checks.as_numeric("values", values))[None]
    remedy = f"pass as many values as indices, which are {observed}"
    values = checks.as_vectors("values", values, "k", len(observed), remedy, tuple(batch_shape))
    support = marginals.support
    if checks.is_concrete(values, support):
        # In a model under `jit` known values would otherwise become traced.
        with evaluated_now():
            inside = np.asarray(support(jnp.asarray(values)))
        remedy = "that output cannot take it: see support"
        refuse_values(inside, values, observed, "within", remedy)
    else:
        values = nan_unless(support(jnp.asarray(values)), jnp.asarray(values))
    return observed, remaining, marginals, jnp.asarray(values)


def refuse_values(
    right: np.ndarray, values: ArrayLike, observed: tuple[int, ...], place: str, remedy: str
) -> None:
    """Raise ``ValueError`` for the first value of known outputs that is not right."""
    numbers = np.broadcast_to(values, right.shape)
    expected = f"lie {place} the support of their outputs"
    names = ([f"output {index}" for index in observed],)
    checks.refuse("values", numbers, lambda _: right, expected, remedy, lambda: names)
