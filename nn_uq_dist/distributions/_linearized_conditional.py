"""The distribution of some outputs of a linearized network, given the others."""

from collections.abc import Sequence
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, random
from jax.typing import ArrayLike
from numpyro.distributions import constraints

from nn_uq_dist.basics import checks
from nn_uq_dist.basics.row_algebra import in_squared_units, joined, matmul, matvec
from nn_uq_dist.box_gaussian import Moments, input_draws, moments_given_outputs, regression
from nn_uq_dist.distributions._box_gaussian_distribution import BoxGaussianDistribution, Parameters
from nn_uq_dist.distributions._contract import rebuilt, validate_sample
from nn_uq_dist.distributions._contract_joint import observed_outputs


class LinearizedConditional(BoxGaussianDistribution):
    r"""Distribution of the last entries of ``loc + W u + B n``, given the first ones.

    Made by `LinearizedJoint.condition`. Draws follow the distribution itself, up to the bias of
    Markov chains of finite length; density and moments use expectation propagation.

    Parameters
    ----------
    values : array_like, shape (..., k)
        The first ``k`` outputs.
    loc : array_like, shape (..., k + d)
        Unconditional means of all outputs.
    weights : array_like, shape (..., k + d, n)
        A column for each uniform on [-1, 1].
    normal_weights : array_like, shape (..., k + d, m), optional
        A column for each standard normal variable. Default: no normal part.
    validate_args : bool, optional
        As for every NumPyro distribution.

    Raises
    ------
    TypeError, ValueError
        As for `LinearizedJoint`, or if there are not fewer values than outputs.

    Notes
    -----
    The log density is the difference of two joint log densities. Draws are images of draws of the
    uniforms, made by hit-and-run with one chain for each draw. Mean and variance of each output are
    quadratures of joint densities if there is a normal part, and otherwise those of expectation
    propagation. Draws and moments have no derivatives. Without a normal part ``support`` is a box
    around the support.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> import nn_uq_dist as nuq
    >>> weights = jnp.array([[1.0, 1.0], [1.0, 0.0]])  # a sum, and one of its two terms
    >>> rest = nuq.distributions.LinearizedConditional(
    ...     [1.5], jnp.zeros(2), weights, 0.1 * jnp.eye(2)
    ... )
    >>> print(f"{rest.mean[0]:.2f} {rest.variance[0]:.3f}")
    0.74 0.036
    """

    arg_constraints: ClassVar[dict[str, constraints.Constraint]] = {
        "values": constraints.real_vector,
        **BoxGaussianDistribution.arg_constraints,
    }

    _instead_of_cdf = "use draws of sample, its mean and its variance"

    def __init__(
        self,
        values: ArrayLike,
        loc: ArrayLike,
        weights: ArrayLike,
        normal_weights: ArrayLike | None = None,
        *,
        validate_args: bool | None = None,
    ) -> None:
        values = checks.as_numeric("values", values)
        shape = self._keep(loc, weights, normal_weights, values=jnp.shape(values)[:-1])
        if not (jnp.ndim(values) and 0 < jnp.shape(values)[-1] < shape[-1]):
            raise ValueError(
                f"values must have shape (..., k), fewer than the {shape[-1]} outputs, got "
                f"{jnp.shape(values)}; for none or all of them use LinearizedJoint"
            )
        self._set_parameters(shape[:-1], values=values)
        super().__init__(shape[:-1], (shape[-1] - self._known,), validate_args=validate_args)

    @property
    def _known(self) -> int:
        return jnp.shape(self.values)[-1]

    @validate_sample
    def log_prob(self, value: ArrayLike) -> Array:
        """Log density: that of all outputs minus that of the known ones."""
        return _log_density(self, self._fitting_outputs(value))

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        """Draws by Markov chains, shape ``sample_shape + batch_shape + (d,)``; no derivatives."""
        seen, known, parameters = _seen(self)
        key, sample_shape = checks.as_sampling(key, sample_shape)
        key_inputs, key_normal = random.split(key)
        count = int(np.prod(sample_shape))
        inputs = input_draws(key_inputs, seen, known.weights, known.normal_weights, count)
        others = regression(parameters.weights, parameters.normal_weights, self._known)
        moved = others.of_inputs(inputs, seen)
        moved = jnp.broadcast_to(moved, (count, *self.shape()))
        rest = parameters.of_outputs(slice(self._known, None))
        if others.gain is not None:
            # What the known outputs leave of the normal part.
            columns = rest.normal_weights - matmul(others.gain, known.normal_weights)
            shape = (*moved.shape[:-1], columns.shape[-1])
            moved = moved + matvec(columns, random.normal(key_normal, shape, moved.dtype))
        return (rest.loc + rest.unit * moved).reshape(*sample_shape, *self.shape())

    @property
    def mean(self) -> Array:
        """Means of the outputs, shape ``batch_shape + (d,)``."""
        return jnp.broadcast_to(_moments(self).mean, self.shape())

    @property
    def covariance_matrix(self) -> Array:
        """Covariance of the outputs, shape ``batch_shape + (d, d)``."""
        shape = (*self.shape(), *self.event_shape)
        return jnp.broadcast_to(_moments(self).covariance, shape)

    @property
    def variance(self) -> Array:
        """Variances of the outputs, shape ``batch_shape + (d,)``."""
        return jnp.diagonal(self.covariance_matrix, axis1=-2, axis2=-1)

    def marginalize(self, indices: int | Sequence[int]) -> "LinearizedConditional":
        """The distribution of some of the unknown outputs, in the order of ``indices``."""
        chosen = checks.as_indices(indices, self.event_shape[0])
        order = (*range(self._known), *(self._known + index for index in chosen))
        return rebuilt(self, **self._of_outputs(order))

    def condition(self, indices: int | Sequence[int], values: ArrayLike) -> "LinearizedConditional":
        """The distribution of the other unknown outputs, given these as well.

        Arguments and errors are those of `LinearizedJoint.condition`.
        """
        observed, remaining, _, values = observed_outputs(self._prior, indices, values)
        order = (*range(self._known), *(self._known + index for index in (*observed, *remaining)))
        values = joined([jnp.asarray(self.values), values])
        return rebuilt(self, values=values, **self._of_outputs(order))


# Programs of the distribution as a whole: an eager call does not compile each operation separately.
@jax.jit
def _seen(conditional: LinearizedConditional) -> tuple[Array, Parameters, Parameters]:
    """Standardized known outputs, their parameters, and those of all outputs."""
    parameters = conditional.parameters()
    values = jnp.asarray(conditional.values, parameters.loc.dtype)
    known = parameters.of_outputs(slice(values.shape[-1]))
    return known.deviation(values), known, parameters


@jax.jit
def _log_density(conditional: LinearizedConditional, value: Array) -> Array:
    parameters = conditional.parameters(value)
    values = jnp.asarray(conditional.values, parameters.loc.dtype)
    before = parameters.of_outputs(slice(values.shape[-1])).log_density(values)
    return parameters.log_density(joined([values, value])) - before


@jax.jit
def _moments(conditional: LinearizedConditional) -> Moments:
    seen, _, parameters = _seen(conditional)
    others = parameters.of_outputs(slice(seen.shape[-1], None))
    moments = moments_given_outputs(seen, parameters.weights, parameters.normal_weights)
    mean = others.loc + others.unit * moments.mean
    return Moments(mean, in_squared_units(moments.covariance, others.unit))
