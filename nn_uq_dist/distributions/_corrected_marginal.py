"""The distribution of an output moved by an increasing map, as a NumPyro distribution."""

from typing import Any, ClassVar

import jax.numpy as jnp
import numpyro.distributions as dist
from jax import Array
from jax.typing import ArrayLike
from numpyro.distributions import constraints

from nn_uq_dist.basics.checks import broadcast_shapes
from nn_uq_dist.basics.concrete import one_program, squares
from nn_uq_dist.basics.row_algebra import namespace
from nn_uq_dist.distributions._adapted_distribution import as_output_distribution
from nn_uq_dist.distributions._axes import support_between
from nn_uq_dist.distributions._contract import validate_sample
from nn_uq_dist.distributions._contract_output import OutputDistribution
from nn_uq_dist.distributions._transforms import MonotoneSpline
from nn_uq_dist.distributions._value_rule import Moments, ValueRule, moments_of


class CorrectedMarginal(OutputDistribution):
    r"""Distribution of ``T(Y)``: an output ``Y`` moved by an increasing map ``T``.

    Density, tails, quantiles and normal scores follow from those of ``Y`` by change of variables,
    and are accurate in both tails if those of ``Y`` are. `Linearization.corrected` estimates the
    map.

    Parameters
    ----------
    base : numpyro.distributions.Distribution
        The distribution of ``Y``: an `OutputDistribution`, or what
        `nn_uq_dist.distributions.as_output_distribution` adapts.
    knots, images : array_like, shape (..., k)
        Knots of the map and where it takes them, ascending; the leading axes broadcast against the
        batch shape of `base`, which they may extend.
    slopes : array_like, shape (..., k), optional
        Slopes of the map at the knots, positive. Default: as in `MonotoneSpline`.
    validate_args : bool, optional
        As for every NumPyro distribution.

    Attributes
    ----------
    transform : MonotoneSpline
        The map.

    Raises
    ------
    TypeError
        If `base` is not a univariate continuous distribution, or a parameter is not an array of
        real numbers.
    ValueError
        If the leading axes do not broadcast, or as for `MonotoneSpline`.

    Notes
    -----
    Mean and variance are quadratures over the values of the base. The support is the image of the
    support of the base.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> import nn_uq_dist as nuq
    >>> linear = nuq.LinearizedMarginal(0.0, [1.0, 0.5])
    >>> moved = nuq.distributions.CorrectedMarginal(
    ...     linear, jnp.array([-1.0, 0, 1]), jnp.array([-1.0, 0, 2])
    ... )
    >>> print(f"{moved.cdf(0.0):.3f} {moved.support.upper_bound:.3f} {moved.skewness:.2f}")
    0.500 3.000 0.63
    """

    arg_constraints: ClassVar[dict[str, constraints.Constraint]] = {
        "knots": constraints.ordered_vector,
        "images": constraints.ordered_vector,
        "slopes": constraints.independent(constraints.positive, 1),
    }
    reparametrized_params: ClassVar[list[str]] = ["knots", "images", "slopes"]
    pytree_data_fields = ("base", "knots", "images", "slopes")

    def __init__(
        self,
        base: dist.Distribution,
        knots: ArrayLike,
        images: ArrayLike,
        slopes: ArrayLike | None = None,
        *,
        validate_args: bool | None = None,
    ) -> None:
        base, spline = as_output_distribution(base, "base"), MonotoneSpline(knots, images, slopes)
        shape = broadcast_shapes(
            "the leading axes of knots, images and slopes must broadcast against those of base",
            knots=spline.forward_shape(()),
            base=base.batch_shape,
        )
        self.base = as_output_distribution(base.expand(shape))
        # Slopes that are not given follow from knots and images, also along axes that `vmap` adds.
        slopes = None if slopes is None else spline.slopes
        knots, images, _ = spline.parameters
        self._set_parameters(shape, knots=knots, images=images, slopes=slopes)
        super().__init__(shape, (), validate_args=validate_args)

    @property
    def transform(self) -> MonotoneSpline:
        """The map."""
        return MonotoneSpline(self.knots, self.images, self.slopes)

    @constraints.dependent_property(is_discrete=False, event_dim=0)
    def support(self) -> constraints.Constraint:
        return support_between(self.base.support, *self._ends[1])

    @property
    def _ends(self) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
        """Ends of the support of the base, and their images."""
        (low, high), transform = self.base.bounds, self.transform
        return (low, high), (transform(low), transform(high))

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        """Draws of the base, transformed by the map; reparametrized if those are."""
        return self.transform(self.base.sample(key, sample_shape))

    def _mapped_back(self, value: ArrayLike) -> Array:
        """Values of the base; rounding does not move those at the edge out of the support."""
        value = self._fitting("value", value)
        before = self.transform.inv(value)
        if self.base.support is constraints.real:
            return before
        bounds, images = self._ends
        return _kept_inside(before, bounds, value, images)

    @validate_sample
    def log_prob(self, value: ArrayLike) -> Array:
        """Log density of the base minus the log slope of the map."""
        before = self._mapped_back(value)
        slope = self.transform.log_abs_det_jacobian(before, value)
        return self.base.log_prob(before) - slope

    def log_cdf(self, value: ArrayLike) -> Array:
        """Log distribution function, as accurate as that of the base."""
        return self.base.log_cdf(self._mapped_back(value))

    def log_sf(self, value: ArrayLike) -> Array:
        """Log survival function, as accurate as that of the base."""
        return self.base.log_sf(self._mapped_back(value))

    def icdf(self, q: ArrayLike) -> Array:
        """Quantile function."""
        return self.transform(self.base.icdf(q))

    def normal_score(self, value: ArrayLike) -> Array:
        """Normal score of the base."""
        return self.base.normal_score(self._mapped_back(value))

    def normal_score_and_log_prob(self, value: ArrayLike) -> tuple[Array, Array]:
        """`normal_score` and `log_prob` in one pass over the base."""
        before = self._mapped_back(value)
        score, log_prob = self.base.normal_score_and_log_prob(before)
        return score, log_prob - self.transform.log_abs_det_jacobian(before, value)

    def from_normal_score(self, z: ArrayLike) -> Array:
        """Value with this normal score."""
        return self.transform(self.base.from_normal_score(z))

    @property
    def mean(self) -> Array:
        """Mean, by quadrature."""
        return jnp.broadcast_to(self.moments().mean, self.batch_shape)

    @property
    def variance(self) -> Array:
        """Variance, by quadrature."""
        return squares(self.standard_deviation)

    @property
    def standard_deviation(self) -> Array:
        """Square root of the variance, also where that would over- or underflow."""
        return jnp.broadcast_to(self.moments().standard_deviation, self.batch_shape)

    def kinks(self) -> Array:
        """Kinks of the base; the map adds none, as its slope is continuous."""
        return self.transform(self.base.kinks())

    def approximate_quantile(self, z: Array) -> Array:
        """That of the base, moved by the map."""
        return self.transform(self.base.approximate_quantile(z))

    def value_rule(self, loc: Array | None = None, scale: Array | None = None) -> ValueRule:
        """That of the base, moved by the map."""
        values, lengths = self.base.value_rule(loc, scale)
        slopes = jnp.exp(self.transform.log_abs_det_jacobian(values, values))
        return ValueRule(self.transform(values), lengths * slopes)

    def moments(self) -> Moments:
        """Mean and deviations of the values, by quadrature over those of the base.

        Values far from zero are rounded: mapped back, those of a plateau would miss its mass.
        """
        values, lengths = self.base.value_rule()
        return moments_of(ValueRule(self.transform(values), lengths), self.base.log_prob(values))


@one_program
def _kept_inside(
    before: Array, bounds: tuple[Array, Array], value: Array, images: tuple[Array, Array]
) -> Array:
    """Values of the base within its ends where their images lie within those of the ends."""
    xp: Any = namespace(before)
    inside = (value >= images[0]) & (value <= images[1])
    kept: Array = xp.where(inside, xp.clip(before, *bounds), before)
    return kept
