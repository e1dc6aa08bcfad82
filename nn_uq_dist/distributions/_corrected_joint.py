"""A joint law whose outputs are moved by increasing maps, as a NumPyro distribution."""

from collections.abc import Sequence
from typing import Any, ClassVar

import jax.numpy as jnp
import numpyro.distributions as dist
from jax import Array
from jax.typing import ArrayLike
from numpyro.distributions import constraints
from numpyro.distributions.batch_util import promote_batch_shape, vmap_over
from numpyro.distributions.transforms import IndependentTransform

from nn_uq_dist.basics._checks import broadcast_shapes
from nn_uq_dist.basics._indices import as_indices
from nn_uq_dist.distributions._corrected_marginal import (
    MAP_CONSTRAINTS,
    CorrectedMarginal,
    fitting_map,
    mapped_back,
)
from nn_uq_dist.distributions._monotone_spline import MonotoneSpline
from nn_uq_dist.distributions._output_values import fitting_value, split_outputs
from nn_uq_dist.distributions._vector_support import vector_support
from nn_uq_dist.gaussian_copula._hermite import covariance_of_outputs
from nn_uq_dist.gaussian_copula._nataf import nataf_correlation
from nn_uq_dist.laws._abstract import pass_validation, validate_sample
from nn_uq_dist.laws._adapted_law import as_output_law
from nn_uq_dist.laws._joint_law import JointLaw


class CorrectedJoint(JointLaw):
    r"""Joint law of ``T_j(Y_j)``: outputs ``Y`` of a joint law, each moved by an increasing map.

    Parameters
    ----------
    base : JointLaw
        The law of ``Y``, such as a `LinearizedJoint`.
    knots, images : array_like, shape (..., k)
        Knots of the maps and where they take them; the leading axes broadcast to
        ``batch_shape + (N_y,)``.
    slopes : array_like, shape (..., k), optional
        Slopes of the maps at the knots. Default: as in `MonotoneSpline`.
    validate_args : bool, optional
        As for every NumPyro distribution.

    Attributes
    ----------
    transform : MonotoneSpline
        The maps.

    Raises
    ------
    TypeError
        If `base` is not a `JointLaw`, or a parameter is not an array of real numbers.
    ValueError
        If the leading axes of the knots do not fit those of `base`, or as for `MonotoneSpline`.

    Notes
    -----
    .. math:: \log p(y) = \log p_Y(T^{-1}(y)) - \sum_j \log T_j'(T_j^{-1}(y_j))

    Draws, density, marginals and `rosenblatt` follow from those of the base by change of variables.
    The covariance has no closed form: `covariance_matrix` is that of the Gaussian copula with the
    same marginals that matches the correlations of the base.

    Examples
    --------
    >>> import jax
    >>> import jax.numpy as jnp
    >>> import nn_uq_dist as nuq
    >>> linear = nuq.LinearizedJoint(jnp.zeros(2), [[1.0, 1.0], [1.0, -1.0]])
    >>> joint = nuq.CorrectedJoint(linear, jnp.array([-1.0, 0, 1]), jnp.array([-1.0, 0, 2]))
    >>> print(f"{joint.log_prob(jnp.zeros(2)):.4f}")  # log(1/8) - 2 log(4/3), the slopes there
    -2.6548
    >>> print(joint.sample(jax.random.key(0), (5,)).shape)
    (5, 2)
    """

    arg_constraints: ClassVar[dict[str, constraints.Constraint]] = MAP_CONSTRAINTS
    reparametrized_params: ClassVar[list[str]] = ["knots", "images", "slopes"]
    pytree_data_fields = ("base", "knots", "images", "slopes")
    kind = "corrected joint"

    def __init__(
        self,
        base: JointLaw,
        knots: ArrayLike,
        images: ArrayLike,
        slopes: ArrayLike | None = None,
        *,
        validate_args: bool | None = None,
    ) -> None:
        if not isinstance(base, JointLaw):
            raise TypeError(
                f"base must be a JointLaw, got {type(base).__name__}; pass "
                f"linearization.linear_joint()"
            )
        self.base = base
        self.knots, self.images, self.slopes = fitting_map(knots, images, slopes, base.shape())
        super().__init__(base.batch_shape, base.event_shape, validate_args=validate_args)

    @property
    def transform(self) -> MonotoneSpline:
        """The maps."""
        return MonotoneSpline(self.knots, self.images, self.slopes)

    @property
    def marginals(self) -> CorrectedMarginal:
        """Laws of the single outputs, ``batch_shape + (N_y,)``."""
        maps = self.knots, self.images, self.slopes
        return CorrectedMarginal(self.base.marginals, *maps, validate_args=False)

    @constraints.dependent_property(is_discrete=False, event_dim=1)
    def support(self) -> constraints.Constraint:
        return vector_support(self.marginals.support)

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        """Draws of the base, transformed by the maps."""
        return self.transform(self.base.sample(key, sample_shape))

    @property
    def has_rsample(self) -> bool:
        """Whether draws of the base have derivatives."""
        return bool(self.base.has_rsample)

    @validate_sample
    def log_prob(self, value: ArrayLike) -> Array:
        """Log density of the base minus the log slopes of the maps."""
        value = self._fitting(value)
        before = self._before(value)
        slopes = self.transform.log_abs_det_jacobian(before, value)
        return self.base.log_prob(before) - jnp.sum(slopes, axis=-1)

    def _before(self, value: Array) -> Array:
        return mapped_back(as_output_law(self.base.marginals), self.transform, value)

    def _fitting(self, value: ArrayLike) -> Array:
        array = fitting_value(value, self.shape())
        return jnp.broadcast_to(array, jnp.broadcast_shapes(array.shape, self.shape()))

    @property
    def covariance_matrix(self) -> Array:
        """Covariance under the Gaussian copula that matches the correlations of the base."""
        covariance = self.base.covariance_matrix
        scale = jnp.sqrt(jnp.diagonal(covariance, axis1=-2, axis2=-1))
        correlation = covariance / (scale[..., :, None] * scale[..., None, :])
        identity = jnp.eye(self.event_shape[0], dtype=bool)
        correlation = jnp.where(identity, 1, correlation)
        scores = nataf_correlation(self.base.marginals, correlation).matrix
        found = covariance_of_outputs(self.marginals.hermite_rule(), scores)
        return jnp.broadcast_to(found, (*self.shape(), *self.event_shape))

    def marginalize(self, indices: int | Sequence[int]) -> "CorrectedJoint":
        """The joint law of some outputs, in the order of ``indices``."""
        count = self.event_shape[0]
        kept = as_indices(indices, count)
        maps = self.transform.take(kept, count).parameters
        part = CorrectedJoint(self.base.marginalize(kept), *maps, validate_args=False)
        return pass_validation(self, part)

    def condition(self, indices: int | Sequence[int], values: ArrayLike) -> dist.Distribution:
        """The law of the other outputs, given these.

        Parameters
        ----------
        indices : int or sequence of int
            Which outputs are known.
        values : array_like, shape (..., len(indices))
            Their values.

        Returns
        -------
        numpyro.distributions.TransformedDistribution
            The conditional law of the base, transformed by the maps; it has a density and draws.

        Raises
        ------
        TypeError, ValueError
            As for the base, or if the base cannot be conditioned.
        """
        given: Any = getattr(self.base, "condition", None)
        if given is None:
            raise TypeError(
                f"base must have a method condition, got {type(self.base).__name__}; use "
                f"linearization.linear_joint() or joint()"
            )
        count = self.event_shape[0]
        observed, remaining = split_outputs(indices, count)
        values = jnp.asarray(values)
        broadcast_shapes(
            f"values must have shape (..., {len(observed)}), one for each given output",
            values=values.shape,
            outputs=(len(observed),),
        )
        before = self.transform.take(observed, count).inv(values)
        maps = IndependentTransform(self.transform.take(remaining, count), 1)
        return dist.TransformedDistribution(given(observed, before), maps)

    def rosenblatt(self, value: ArrayLike) -> Array:
        """Scores of the base: the maps preserve the order of each output."""
        return self.base.rosenblatt(self._before(self._fitting(value)))

    def rosenblatt_from_scores(self, value: ArrayLike, scores: ArrayLike) -> Array:
        """Scores of the base."""
        before = self._before(self._fitting(value))
        return self.base.rosenblatt_from_scores(before, scores)

    def expand(self, batch_shape: Sequence[int]) -> "CorrectedJoint":
        """The same law with a larger batch shape."""
        shape = self._expanded_shape(batch_shape)
        maps = self.knots, self.images, self.slopes
        wide = CorrectedJoint(self.base.expand(shape), *maps, validate_args=False)
        return pass_validation(self, wide)


@vmap_over.register
def _vmap_over_corrected_joint(
    d: CorrectedJoint,
    base: Any = None,
    knots: int | None = None,
    images: int | None = None,
    slopes: int | None = None,
) -> CorrectedJoint:
    default = vmap_over.dispatch(dist.Distribution)
    return default(d, base=base, knots=knots, images=images, slopes=slopes)


@promote_batch_shape.register
def _promote_corrected_joint(d: CorrectedJoint) -> CorrectedJoint:
    base = promote_batch_shape(d.base)
    leading = (jnp.shape(part)[:-1] for part in (d.knots, d.images, d.slopes))
    shape = jnp.broadcast_shapes(base.shape(), *leading)
    wide = base.expand(shape[:-1])
    result = CorrectedJoint(wide, d.knots, d.images, d.slopes, validate_args=False)
    return pass_validation(d, result)
