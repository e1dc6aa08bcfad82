"""A network linearized at the center of each part of its input, and the laws of its outputs."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.typing import ArrayLike

from nn_uq_dist.basics import _checks
from nn_uq_dist.basics._pytree import register_frozen
from nn_uq_dist.basics._row_algebra import matvec, namespace
from nn_uq_dist.basics._summary_line import summary_line
from nn_uq_dist.distributions import (
    JointMixture,
    LinearizedJoint,
    LinearizedMarginal,
    OutputMixture,
)
from nn_uq_dist.distributions._mixture_components import draws_of_parts, of_components
from nn_uq_dist.inputs import AbstractInputLaw, LinearImage
from nn_uq_dist.inputs._flat_network import OutputStructure
from nn_uq_dist.inputs._terms import joined, standard_values
from nn_uq_dist.linearization._corrected_linearization import CorrectedLinearization, correct
from nn_uq_dist.linearization._linear_model import LinearModel, require_varying
from nn_uq_dist.sampling import PairedDraws


@register_frozen
@dataclasses.dataclass(frozen=True, eq=False)
class PartwiseLinearization(LinearModel):
    r"""The random vector :math:`m_i + J_i (f - \mu_i)` if the input is in part ``i``.

    Made by `linearize_parts`. The law of each part is that of the whole input, but narrower and
    with another center; the law of the outputs is a mixture over the parts. The object is an
    immutable pytree.

    Parameters
    ----------
    loc : Array, shape batch_shape + (M, N_y)
        Network outputs at the centers of the parts.
    jacobian : Array, shape batch_shape + (M, N_y, N_x)
        Jacobians there.
    deviation : Array, shape batch_shape + (M, N_x)
        Centers minus the mean input.
    scales : Array, shape batch_shape + (M, K)
        Widths of the parts in the ``K`` standard variables of the input, uniform ones first, in
        units of the width of the whole.
    probabilities : Array, shape batch_shape + (M,)
        Probabilities of the parts.
    input
        Law of the whole input.
    splits : tuple of int
        Parts along each standard variable.
    num_evaluations : int
        Cost in runs of the network for each point of the batch: ``1 + min(N_x, N_y)`` for each
        value with its Jacobian, including those for the choice of the parts.
    output_structure
        Structure of what the network returns if that is not a vector, for `unravel`.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> import nn_uq_dist as nuq
    >>> law = nuq.InputLaw(jnp.zeros(1), half_width=1.0)
    >>> parts = nuq.linearize_parts(lambda x: x**2, law, 16)
    >>> print(f"{parts.mean[0]:.3f} {parts.variance[0]:.3f}")  # 1/3 and 4/45
    0.332 0.089
    """

    loc: Array
    jacobian: Array
    deviation: Array
    scales: Array
    probabilities: Array
    input: AbstractInputLaw
    splits: tuple[int, ...] = dataclasses.field(metadata={"static": True})
    num_evaluations: int = dataclasses.field(metadata={"static": True})
    output_structure: OutputStructure | None = dataclasses.field(
        default=None, metadata={"static": True}
    )

    def __repr__(self) -> str:
        return summary_line(self, "splits", "num_evaluations", "loc", "jacobian", "input")

    @property
    def num_parts(self) -> int:
        """Number of parts ``M``."""
        return self.loc.shape[-2]

    @property
    def mean(self) -> Array:
        """Mean of the outputs, shape ``batch_shape + (N_y,)``."""
        return mean_of_parts(self.probabilities, self.loc)

    @property
    def variance(self) -> Array:
        """Variances, shape ``batch_shape + (N_y,)``: within the parts plus between them."""
        return self._whole().variance

    @property
    def covariance(self) -> Array:
        """Covariance matrix, shape ``batch_shape + (N_y, N_y)``."""
        return self._whole().covariance

    def _whole(
        self, noise_scale: ArrayLike | None = None, noise_covariance: ArrayLike | None = None
    ) -> LinearImage:
        """Columns with the covariance of the mixture, within the parts and between them."""
        xp = namespace(self.loc)
        gaps = self.loc - self.mean[..., None, :]
        columns = xp.concatenate([self.image().root, gaps[..., None]], axis=-1)
        columns = columns * xp.sqrt(self.probabilities)[..., None, None]
        rows = xp.moveaxis(columns, -3, -2)
        rows = rows.reshape(*rows.shape[:-2], -1)
        return LinearImage(None, rows).with_noise(noise_scale, noise_covariance)

    def _correlation(
        self, noise_scale: ArrayLike | None, noise_covariance: ArrayLike | None
    ) -> Array:
        return self._whole(noise_scale, noise_covariance).correlation

    def image(
        self, noise_scale: ArrayLike | None = None, noise_covariance: ArrayLike | None = None
    ) -> LinearImage:
        """Return the laws of the outputs minus their mean in each part, ``batch_shape + (M,)``.

        Parameters
        ----------
        noise_scale, noise_covariance
            As for `Linearization.marginals`.
        """
        # An axis of the input for that of the parts.
        rank = len(self.batch_shape)
        law = jax.tree.map(
            lambda leaf: leaf.reshape(*leaf.shape[:rank], 1, *leaf.shape[rank:]), self.input
        )
        image = law.image(self.jacobian)
        count = 0 if image.uniform is None else image.uniform.shape[-1]
        widths = self.scales[..., None, :count], self.scales[..., None, count:]
        uniform, normal = (
            None if part is None else part * width
            for part, width in zip((image.uniform, image.normal), widths, strict=True)
        )
        noise = (
            _in_each_part(noise_scale, self.batch_shape, 1),
            _in_each_part(noise_covariance, self.batch_shape, 2),
        )
        return LinearImage(uniform, normal).with_noise(*noise)

    def marginals(
        self, noise_scale: ArrayLike | None = None, noise_covariance: ArrayLike | None = None
    ) -> OutputMixture:
        """Return the distributions of the single outputs, batch shape ``batch_shape + (N_y,)``.

        Parameters
        ----------
        noise_scale, noise_covariance
            As for `Linearization.marginals`.

        Raises
        ------
        TypeError
            If an argument is not an array of real numbers.
        ValueError
            If an argument does not fit, or is known and no standard deviation or covariance, or if
            an output is known to be constant over the whole input.

        Examples
        --------
        >>> import jax.numpy as jnp
        >>> import nn_uq_dist as nuq
        >>> law = nuq.InputLaw(jnp.zeros(1), half_width=1.0)
        >>> output = nuq.linearize_parts(lambda x: x**2, law, 16).marginals()
        >>> print(f"{output.cdf(jnp.array([0.25]))[0]:.2f}")
        0.50
        """
        image = self.image(noise_scale, noise_covariance)
        if _checks.is_concrete(self, image):
            steps = np.ptp(np.asarray(self.loc), axis=-2) > 0
            require_varying(~steps & np.asarray(image.is_constant).all(axis=-2))
        weights, scale = with_least_widths(image, self.loc, self.probabilities)
        components = LinearizedMarginal(
            jnp.swapaxes(self.loc, -1, -2),
            jnp.moveaxis(weights, -3, -2),
            None if scale is None else jnp.swapaxes(scale, -1, -2),
            validate_args=False,
        )
        return OutputMixture(components, self.probabilities[..., None, :], validate_args=False)

    def joint(
        self, noise_scale: ArrayLike | None = None, noise_covariance: ArrayLike | None = None
    ) -> JointMixture:
        """Return the joint distribution of the outputs, a mixture over the parts.

        Parameters
        ----------
        noise_scale, noise_covariance
            As for `Linearization.marginals`.

        Raises
        ------
        TypeError
            If an argument is not an array of real numbers.
        ValueError
            If an argument does not fit, or the outputs have no joint density in one of the parts:
            if there are fewer inputs than outputs, or an output is constant there, pass noise.

        Examples
        --------
        >>> import jax.numpy as jnp
        >>> import nn_uq_dist as nuq
        >>> law = nuq.InputLaw(jnp.zeros(2), half_width=1.0)
        >>> parts = nuq.linearize_parts(lambda x: jnp.array([x[0], x[0] * x[1]]), law, 64)
        >>> joint = parts.joint(noise_scale=0.05)
        >>> print(f"{joint.log_prob(jnp.array([0.5, 0.0])):.1f}")  # log 1/2
        -0.7
        """
        return self.joint_of(self.image(noise_scale, noise_covariance))

    def joint_of(self, image: LinearImage, normal_share: Array | None = None) -> JointMixture:
        """Return the joint distribution of outputs with this image, a share of it made normal."""
        if normal_share is not None:
            image = image.with_normal_share(normal_share[..., None])
        return JointMixture(
            LinearizedJoint(self.loc, image.weights, image.normal_covariance),
            self.probabilities,
            validate_args=False,
        )

    def sample_pairs(self, key: Array, sample_shape: tuple[int, ...] = ()) -> tuple[Array, Array]:
        """Draw inputs, and the outputs that the linearizations give for them.

        Parameters
        ----------
        key
            A JAX random key.
        sample_shape
            Shape of independent draws.

        Returns
        -------
        tuple of Array
            Inputs, shape ``sample_shape + batch_shape + (N_x,)``, and outputs, with ``(N_y,)``. The
            outputs follow `marginals` exactly. The inputs follow their law exactly if it is a box,
            otherwise as closely as the parts represent it.

        Examples
        --------
        >>> import jax
        >>> import jax.numpy as jnp
        >>> import nn_uq_dist as nuq
        >>> law = nuq.InputLaw(jnp.zeros(1), half_width=1.0)
        >>> parts = nuq.linearize_parts(lambda x: x**2, law, 16)
        >>> inputs, outputs = parts.sample_pairs(jax.random.key(0), (1000,))
        >>> bool(jnp.abs(inputs**2 - outputs).max() < 0.005)
        True
        """
        shape = (*sample_shape, *self.batch_shape, self.num_coordinates)
        return self.pairs_at(jax.random.uniform(_checks.as_key("key", key), shape, self.loc.dtype))

    def moved(self, shift: Array, slopes: Array) -> "PartwiseLinearization":
        """Return the model with a linear function of the input added, by its value at the mean."""
        slopes = slopes[..., None, :, :]
        added = shift[..., None, :] + matvec(slopes, self.deviation)
        return dataclasses.replace(self, loc=self.loc + added, jacobian=self.jacobian + slopes)

    @property
    def num_coordinates(self) -> int:
        """Coordinates of the points that `pairs_at` takes: the part, and each random variable."""
        return 1 + sum(self.input.num_standard_variables)

    def pairs_at(self, points: Array) -> tuple[Array, Array]:
        """Inputs and outputs at points of the unit cube, ``(..., num_coordinates)``.

        Leading axes broadcast against the batch shape.
        """
        count, rank = self.input.num_standard_variables[0], len(self.batch_shape)
        ends = jnp.cumsum(self.probabilities, axis=-1)
        index = jnp.sum(ends[..., :-1] < points[..., :1] * ends[..., -1:], axis=-1)
        variables = jnp.concatenate(standard_values(points[..., 1:], count), axis=-1)
        variables = jnp.broadcast_to(variables, (*index.shape, variables.shape[-1]))
        inside = variables * of_components(self.scales, index, rank)
        moved = self.input.deviation_at(inside[..., :count], inside[..., count:])
        inputs = self.input.loc + of_components(self.deviation, index, rank) + moved
        image = self.image()
        columns = joined([image.uniform, image.normal])
        return inputs, draws_of_parts(index, variables, self.loc, jnp.asarray(columns))

    def corrected(
        self, pairs: PairedDraws, *, num_surface_draws: int | None = None
    ) -> CorrectedLinearization:
        """Return laws closer to the network, as `nn_uq_dist.Linearization.corrected` does.

        Examples
        --------
        >>> import jax
        >>> import jax.numpy as jnp
        >>> import nn_uq_dist as nuq
        >>> network = lambda x: jnp.tanh(2 * x)
        >>> parts = nuq.linearize_parts(network, nuq.InputLaw(jnp.zeros(1), half_width=1.0), 4)
        >>> pairs = nuq.paired_draws(network, parts, jax.random.key(0), 200, progress=False)
        >>> law = parts.corrected(pairs).marginals()
        >>> bool(abs(law.cdf(jnp.tanh(jnp.array([1.0])))[0] - 0.75) < 0.03)
        True
        """
        return correct(self, pairs, num_surface_draws)


def _in_each_part(
    noise: ArrayLike | None, batch_shape: tuple[int, ...], event_dim: int
) -> ArrayLike | None:
    """Noise of the outputs with an axis for the parts, if it has batch axes."""
    if noise is None or not batch_shape or np.ndim(noise) <= event_dim:
        return noise
    return jnp.expand_dims(jnp.asarray(noise), -1 - event_dim)


# Least standard deviation of an output in a part, in units of its usual standard deviation in a
# part. A value of 1e-2 would blur units that are saturated in many parts: their distribution
# functions were off by 0.02 at the bounds, instead of by 0.002.
_LEAST_WIDTH = 1e-4


def with_least_widths(
    image: LinearImage, loc: Array, probabilities: Array
) -> tuple[Array, Array | None]:
    """Weights and normal scales of outputs that all vary in each part.

    Where an output hardly varies its law has an atom, or nearly one, which a density cannot
    represent: units that are dead or saturated over a part cause this. It gets a ten-thousandth of
    its usual standard deviation within a part.

    Parameters
    ----------
    image : LinearImage
        Image of all parts, batch shape (..., M).
    loc : Array, shape (..., M, N_y)
    probabilities : Array, shape (..., M)

    Returns
    -------
    tuple
        Weights of the uniforms, ``(..., M, N_y, n)``, and normal scales, ``(..., M, N_y)``, or
        None.
    """
    # No gradient: this only decides which parts are widened, and by what small amount.
    spread, fixed = lax.stop_gradient((image.standard_deviation, loc))
    shares = lax.stop_gradient(probabilities)[..., None]
    usual = jnp.sqrt(jnp.sum(shares * spread**2, axis=-2))
    # A step function varies between the parts but within none of them.
    gaps = fixed - mean_of_parts(shares[..., 0], fixed)[..., None, :]
    between = jnp.sqrt(jnp.sum(shares * gaps**2, axis=-2))
    usual = jnp.maximum(usual, between / loc.shape[-2])
    rounding = 16 * jnp.finfo(spread.dtype).eps * jnp.max(jnp.abs(fixed), axis=-2)
    least = jnp.where(usual > 0, jnp.maximum(_LEAST_WIDTH * usual, rounding), 0)[..., None, :]
    narrow = spread < least
    weights, scale = image.weights, image.normal_scale
    if image.uniform is None and scale is not None:
        return weights, jnp.where(narrow, least, scale)
    first = jnp.arange(weights.shape[-1]) == 0
    instead = first * (jnp.sqrt(3.0) * least[..., None])
    return jnp.where(narrow[..., None], instead, weights), scale


def mean_of_parts(probabilities: Array, loc: Array) -> Array:
    """Means of the outputs, ``(..., N_y)``, without loss of digits to a large common value."""
    first = loc[..., :1, :]
    shifts: Array = probabilities[..., None] * (loc - first)
    # A method, so that arrays of NumPy stay in NumPy, in float64.
    return first[..., 0, :] + shifts.sum(axis=-2)
