"""The joint law of outputs that is a mixture of linear joint laws."""

import math
from collections.abc import Sequence
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jax import Array, lax, random
from jax.typing import ArrayLike
from numpyro.distributions import constraints

from nn_uq_dist.basics._checks import as_indices
from nn_uq_dist.basics._row_algebra import covariance_root
from nn_uq_dist.box_gaussian import log_evidence
from nn_uq_dist.box_gaussian._gaussian_part import of_one_shape
from nn_uq_dist.box_gaussian._own_units import joint_covariance
from nn_uq_dist.distributions._linearized_joint import LinearizedJoint
from nn_uq_dist.distributions._mixture_components import (
    MOST_NUMBERS,
    draws_of_parts,
    fitting_mixture,
    log_sum,
    log_tails,
    log_weights,
    score_of_tails,
)
from nn_uq_dist.distributions._output_mixture import OutputMixture
from nn_uq_dist.distributions._output_values import fitting_value
from nn_uq_dist.laws._abstract import rebuilt, validate_sample, without_validation
from nn_uq_dist.laws._batch_entries import with_parameters
from nn_uq_dist.laws._joint_law import JointLaw
from nn_uq_dist.laws._support import support_of_event


class JointMixture(JointLaw):
    r"""Mixture of ``M`` linear joint distributions of outputs, each with its probability.

    The outputs of a network that is linearized over parts of its input have such a law.

    Parameters
    ----------
    components : LinearizedJoint
        ``batch_shape (..., M)``: the last axis is that of the components.
    probabilities : array_like, shape (..., M)
        Probabilities of the components; not negative, with sum 1.
    validate_args : bool, optional
        As for every NumPyro distribution.

    Raises
    ------
    TypeError
        If the components are not a `LinearizedJoint`, or the probabilities are not an array of real
        numbers.
    ValueError
        If shapes do not fit; with validation on, if the probabilities are negative or do not sum
        to 1.

    Notes
    -----
    .. math:: p(y) = \sum_k \pi_k\, p_k(y)

    Draws, moments, marginals and `marginalize` are exact. The density of each component comes from
    expectation propagation (`LinearizedJoint.log_prob`), so the time grows with their number.
    Without normal parts ``support`` is a box around their supports.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> import nn_uq_dist as nuq
    >>> loc = jnp.array([[-2.0, 0.0], [2.0, 0.0]])
    >>> weights = jnp.array([[[1.0, 1.0], [1.0, -1.0]]])
    >>> parts = nuq.LinearizedJoint(loc, weights)  # two squares of area 8
    >>> joint = nuq.distributions.JointMixture(parts, [0.25, 0.75])
    >>> print(f"{jnp.exp(joint.log_prob(jnp.array([2.5, 0.0]))):.4f} {joint.mean[0]:.1f}")
    0.0938 1.0
    """

    arg_constraints: ClassVar[dict[str, constraints.Constraint]] = {
        "probabilities": constraints.simplex
    }
    # The choice of a component has no derivative.
    reparametrized_params: ClassVar[list[str]] = []
    pytree_data_fields = ("components", "probabilities")
    kind = "mixture"

    def __init__(
        self,
        components: LinearizedJoint,
        probabilities: ArrayLike,
        *,
        validate_args: bool | None = None,
    ) -> None:
        if not isinstance(components, LinearizedJoint):
            raise TypeError(
                f"components must be a LinearizedJoint, got {type(components).__name__}; for laws "
                "of single outputs use OutputMixture"
            )
        self.components, self.probabilities, shape = fitting_mixture(components, probabilities)
        super().__init__(shape[:-1], components.event_shape, validate_args=validate_args)

    @property
    def _wide(self) -> tuple[int, ...]:
        """Batch shape with the axis of the components."""
        return (*self.batch_shape, self.components.batch_shape[-1])

    @property
    def _parameters(self) -> tuple[Array, Array, Array | None]:
        """Means, weights and normal covariance, with all batch axes."""
        loc, weights, covariance = self.components.arrays(self._probabilities.dtype)
        loc = jnp.broadcast_to(loc, (*self._wide, *self.event_shape))
        return of_one_shape(loc, weights, covariance)

    @property
    def _probabilities(self) -> Array:
        given = jnp.asarray(self.probabilities)
        return given.astype(jnp.result_type(given, self.components.mean))

    @property
    def marginals(self) -> OutputMixture:
        """Laws of the single outputs, exact: ``batch_shape + (d,)``."""
        # The axis of the components comes last.
        components = with_parameters(
            self.components.marginals,
            lambda part, lead, _: jnp.swapaxes(jnp.asarray(part), lead - 2, lead - 1),
        )
        probabilities = jnp.asarray(self.probabilities)[..., None, :]
        return OutputMixture(components, probabilities, validate_args=False)

    @constraints.dependent_property(is_discrete=False, event_dim=1)
    def support(self) -> constraints.Constraint:
        if self.components.normal_covariance is not None:
            return constraints.real_vector
        return support_of_event(self.marginals.support, 1)

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        """Exact draws, shape ``sample_shape + batch_shape + (d,)``."""
        key_choice, key_uniform, key_normal = random.split(key, 3)
        loc, weights, covariance = self._parameters
        shape = (*sample_shape, *self.batch_shape)
        logs = log_weights(self._probabilities)
        index = random.categorical(key_choice, logs, shape=shape)
        variables = [random.uniform(key_uniform, (*shape, weights.shape[-1]), loc.dtype, -1.0, 1.0)]
        columns = [weights]
        if covariance is not None:
            variables.append(random.normal(key_normal, (*shape, *self.event_shape), loc.dtype))
            columns.append(covariance_root(covariance))
        return draws_of_parts(
            index, jnp.concatenate(variables, -1), loc, jnp.concatenate(columns, -1)
        )

    @validate_sample
    def log_prob(self, value: ArrayLike) -> Array:
        """Log density by expectation propagation in each component; ``-inf`` off all supports."""
        given = fitting_value(value, self.shape())
        logs = _logs_of_components(given, *self._parameters)
        # Just inside the edge of a component its sites may fail in the type; it has next to no
        # density there, and must not hide the others.
        unknown = jnp.isnan(logs)
        logs = jnp.where(unknown & ~jnp.all(unknown, axis=-1, keepdims=True), -jnp.inf, logs)
        return log_sum(logs + log_weights(self._probabilities))

    @property
    def covariance_matrix(self) -> Array:
        """Mean of the covariances of the components plus the covariance of their means."""
        loc, weights, covariance = self._parameters
        share = self._probabilities[..., None]
        gaps = (loc - jnp.sum(share * loc, axis=-2, keepdims=True)) * jnp.sqrt(share)
        # All columns of all components side by side: a component alone may be too narrow for its
        # own covariance in the type.
        columns = jnp.moveaxis(weights * jnp.sqrt(share[..., None]), -3, -2)
        columns = columns.reshape(*columns.shape[:-2], -1)
        columns = jnp.concatenate([columns, jnp.sqrt(3.0) * gaps.mT], axis=-1)
        if covariance is not None:
            covariance = jnp.sum(share[..., None] * covariance, axis=-3)
        total = joint_covariance(columns, covariance)
        return jnp.broadcast_to(total, (*self.shape(), *self.event_shape))

    def marginalize(self, indices: int | Sequence[int]) -> "JointMixture":
        """The exact joint law of some outputs, in the order of ``indices``."""
        kept = as_indices(indices, self.event_shape[0])
        return rebuilt(self, components=self.components.marginalize(kept))

    def rosenblatt(self, value: ArrayLike) -> Array:
        """Scores from those of the components, weighted by how well they explain earlier outputs.

        The cost is that of `LinearizedJoint.rosenblatt` and of the densities, for each component.
        """
        given = fitting_value(value, self.shape())
        at = given[..., None, :]
        quiet = without_validation(self.components.expand(self._wide))
        scores = quiet.rosenblatt(at)
        weights = log_weights(self._probabilities)
        found = []
        for j in range(self.event_shape[0]):
            logs = weights
            if j == 1:
                first = jnp.asarray(quiet.marginals[..., :1].log_prob(at[..., :1]))[..., 0]
                logs = weights + first
            elif j > 1:
                part = quiet.marginalize(tuple(range(j)))
                logs = weights + part.log_prob(at[..., :j])
            # A component that the earlier outputs rule out does not count for this output.
            own = jnp.where(logs == -jnp.inf, 0, scores[..., j])
            tails = (log_sum(tail + logs) - log_sum(logs) for tail in log_tails(jnp, own))
            found.append(score_of_tails(*tails))
        return jnp.stack(found, axis=-1)


@jax.jit
def _logs_of_components(
    value: Array, loc: Array, weights: Array, covariance: Array | None
) -> Array:
    """Log density of each component, shape ``(..., M)``; some components at a time."""
    matrices = jax.tree.map(lambda part: jnp.moveaxis(part, -3, 0), (weights, covariance))
    stacked = jnp.moveaxis(loc, -2, 0), *matrices

    def of_one(part: tuple[Any, ...]) -> Array:
        return log_evidence(value.astype(loc.dtype) - part[0], part[1], part[2])

    points = jnp.broadcast_shapes(value.shape[:-1], loc.shape[:-2])
    numbers = math.prod((*points, *weights.shape[-2:]))
    logs = lax.map(of_one, stacked, batch_size=max(1, MOST_NUMBERS // max(numbers, 1)))
    return jnp.moveaxis(logs, 0, -1)
