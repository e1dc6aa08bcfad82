"""The law of a random network input: a box part, a Gaussian part, or both."""

import dataclasses
from typing import TYPE_CHECKING, Self

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.typing import ArrayLike

from nn_uq_dist import _checks
from nn_uq_dist._input_distributions import distribution_parameters
from nn_uq_dist._pytree import register_frozen

if TYPE_CHECKING:
    from numpyro.distributions import Distribution


@register_frozen
@dataclasses.dataclass(frozen=True, eq=False)
class InputLaw:
    r"""Law of a random input :math:`f = \mu + \beta \odot U + L N`.

    :math:`U` has independent entries, uniform on (-1, 1), and :math:`N` independent standard
    normal ones. Either part may be absent, and coordinates may mix both: a zero half-width or a
    zero row of `scale_tril` takes a coordinate out of that part.

    The three arrays are broadcast to one batch shape and promoted to one floating-point dtype. The
    object is an immutable pytree: it goes through ``jit``, ``grad`` and ``vmap``. To use one large
    `scale_tril` for many means without copies, map over `loc` with ``jax.vmap``.

    Parameters
    ----------
    loc
        Mean :math:`\mu`, shape ``(..., N_x)``.
    half_width
        Half-widths :math:`\beta \ge 0` of the box, broadcast against `loc`; ``None`` for no box.
    scale_tril
        Lower triangular factor :math:`L` of the Gaussian covariance :math:`L L^T`, shape
        ``(..., N_x, N_x)``, its diagonal not negative; ``None`` for no Gaussian part.

    Raises
    ------
    TypeError
        If an argument is not an array of real numbers.
    ValueError
        If both parts are absent; if shapes do not fit; if values are known (not traced) and hold
        NaN, infinity, a negative half-width, a negative diagonal or an entry above the diagonal.
        Under ``jit`` the last three become NaN instead.

    Examples
    --------
    >>> from nn_uq_dist import InputLaw
    >>> law = InputLaw([1.0, 2.0, 3.0], half_width=0.3)
    >>> law.batch_shape, law.num_inputs
    ((), 3)
    >>> [round(float(v), 4) for v in law.variance]
    [0.03, 0.03, 0.03]
    """

    loc: Array
    half_width: Array | None
    scale_tril: Array | None

    def __init__(
        self,
        loc: ArrayLike,
        half_width: ArrayLike | None = None,
        scale_tril: ArrayLike | None = None,
    ) -> None:
        if half_width is None and scale_tril is None:
            raise ValueError(
                "InputLaw must have a half_width or a scale_tril, got neither; pass half_width "
                "for a box, scale_tril for a Gaussian part, or both"
            )
        loc = _checks.as_numeric("loc", loc)
        batch_shape, num_inputs = _split_loc_shape(np.shape(loc))
        parts = [loc]
        if half_width is not None:
            half_width = _checks.as_numeric("half_width", half_width)
            batch_shape = _half_width_batch(np.shape(half_width), batch_shape, num_inputs)
            _checks.require_finite("half_width", half_width)
            _checks.require_nonnegative("half_width", half_width, "pass (high - low) / 2")
            parts.append(half_width)
        if scale_tril is not None:
            scale_tril = _checks.as_numeric("scale_tril", scale_tril)
            batch_shape = _scale_tril_batch(np.shape(scale_tril), batch_shape, num_inputs)
            _check_scale_tril(scale_tril)
            parts.append(scale_tril)
        _checks.require_finite("loc", loc)

        dtype = _checks.float_dtype(*parts)
        shape = (*batch_shape, num_inputs)
        set_field = object.__setattr__
        set_field(self, "loc", jnp.broadcast_to(jnp.asarray(loc, dtype), shape))
        if half_width is not None:
            half_width = _nan_where_negative(jnp.asarray(half_width, dtype))
            half_width = jnp.broadcast_to(half_width, shape)
        set_field(self, "half_width", half_width)
        if scale_tril is not None:
            scale_tril = _nan_where_no_factor(jnp.asarray(scale_tril, dtype))
            scale_tril = jnp.broadcast_to(scale_tril, (*shape, num_inputs))
        set_field(self, "scale_tril", scale_tril)

    @classmethod
    def from_distribution(cls, distribution: "Distribution | InputLaw") -> Self:
        """Convert a NumPyro distribution over vectors to an `InputLaw`.

        Parameters
        ----------
        distribution
            ``Uniform`` or ``Normal`` made a vector by ``.to_event(1)``, ``MultivariateNormal`` or
            ``LowRankMultivariateNormal``, each also with ``.expand(...)`` and with a batch shape.
            An `InputLaw` is returned as it is. Parameters may be traced.

        Raises
        ------
        TypeError
            If the family is another one; the message lists the accepted ones.
        ValueError
            If the distribution does not have exactly one event axis.

        Examples
        --------
        >>> import numpyro.distributions as dist
        >>> from nn_uq_dist import InputLaw
        >>> InputLaw.from_distribution(dist.Uniform(-1.0, 1.0).expand([5]).to_event(1)).num_inputs
        5
        """
        if isinstance(distribution, cls):
            return distribution
        return cls(**distribution_parameters(distribution))

    @property
    def batch_shape(self) -> tuple[int, ...]:
        """Shape of the batch of laws: the leading axes of `loc`."""
        return self.loc.shape[:-1]

    @property
    def num_inputs(self) -> int:
        """Number of inputs ``N_x``."""
        return self.loc.shape[-1]

    @property
    def dtype(self) -> jnp.dtype:
        """Floating-point dtype of the parameters and of the draws."""
        return self.loc.dtype

    @property
    def mean(self) -> Array:
        """Mean, shape ``batch_shape + (N_x,)``."""
        return self.loc

    @property
    def variance(self) -> Array:
        r"""Variances :math:`\beta_k^2/3 + \sum_l L_{kl}^2`, shape ``batch_shape + (N_x,)``."""
        variance = jnp.zeros_like(self.loc)
        if self.half_width is not None:
            variance += self.half_width**2 / 3
        if self.scale_tril is not None:
            variance += jnp.sum(self.scale_tril**2, axis=-1)
        return variance

    @property
    def covariance(self) -> Array:
        r"""Covariance :math:`\mathrm{diag}(\beta^2)/3 + L L^T`, ``batch_shape + (N_x, N_x)``."""
        covariance = jnp.zeros((*self.loc.shape, self.num_inputs), self.dtype)
        if self.half_width is not None:
            covariance += jnp.eye(self.num_inputs, dtype=self.dtype) * (
                self.half_width[..., None, :] ** 2 / 3
            )
        if self.scale_tril is not None:
            factor = self.scale_tril
            covariance += jnp.einsum(
                "...kl,...ml->...km", factor, factor, precision=lax.Precision.HIGHEST
            )
        return covariance

    def expand(self, batch_shape: tuple[int, ...]) -> "InputLaw":
        """Return the same law with its arrays broadcast to `batch_shape`.

        Raises
        ------
        ValueError
            If the present batch shape does not broadcast to `batch_shape`.

        Examples
        --------
        >>> from nn_uq_dist import InputLaw
        >>> InputLaw([0.0, 1.0], half_width=1.0).expand((4, 3)).batch_shape
        (4, 3)
        """
        batch_shape = tuple(batch_shape)
        expected = "batch_shape must be one that the law's batch_shape broadcasts to"
        joined = _checks.broadcast_shapes(expected, requested=batch_shape, present=self.batch_shape)
        if joined != batch_shape:
            raise ValueError(
                f"{expected}, got requested {batch_shape}, present {self.batch_shape}; "
                f"pass a batch_shape that ends in the present one"
            )
        present = len(self.batch_shape)
        expanded: InputLaw = jax.tree.map(
            lambda leaf: jnp.broadcast_to(leaf, batch_shape + leaf.shape[present:]), self
        )
        return expanded

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        """Draw inputs, shape ``sample_shape + batch_shape + (N_x,)``.

        Parameters
        ----------
        key
            A JAX random key.
        sample_shape
            Shape of independent draws, in front of the batch shape.

        Examples
        --------
        >>> import jax
        >>> from nn_uq_dist import InputLaw
        >>> InputLaw([0.0, 1.0], half_width=1.0).sample(jax.random.key(0), (10,)).shape
        (10, 2)
        """
        return self.loc + self.sample_deviation(key, sample_shape)

    def sample_deviation(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        """Draw ``f - loc``: `sample` without the rounding that adding a large `loc` costs."""
        key = _checks.as_key("key", key)
        # Each part has its own key, so adding one part leaves the draws of the other unchanged.
        key_box, key_normal = jax.random.split(key)
        shape = (*sample_shape, *self.loc.shape)
        deviation = jnp.zeros(shape, self.dtype)
        if self.half_width is not None:
            uniform = jax.random.uniform(key_box, shape, self.dtype, minval=-1, maxval=1)
            deviation += self.half_width * uniform
        if self.scale_tril is not None:
            normal = jax.random.normal(key_normal, shape, self.dtype)
            deviation += jnp.einsum(
                "...kl,...l->...k", self.scale_tril, normal, precision=lax.Precision.HIGHEST
            )
        return deviation


def _split_loc_shape(shape: tuple[int, ...]) -> tuple[tuple[int, ...], int]:
    if len(shape) == 0 or shape[-1] == 0:
        raise ValueError(
            f"loc must have shape (..., N_x) with N_x >= 1, got shape {shape}; "
            f"pass one entry per network input"
        )
    return shape[:-1], shape[-1]


def _half_width_batch(
    shape: tuple[int, ...], batch_shape: tuple[int, ...], num_inputs: int
) -> tuple[int, ...]:
    if len(shape) > 0 and shape[-1] not in {1, num_inputs}:
        raise ValueError(
            f"half_width must have last axis N_x = {num_inputs} (as loc) or 1, got shape {shape}; "
            f"give a half-width per batch entry the shape (..., 1)"
        )
    return _checks.broadcast_shapes(
        "half_width must broadcast against loc of shape (..., N_x)",
        half_width=shape[:-1],
        loc=batch_shape,
    )


def _scale_tril_batch(
    shape: tuple[int, ...], batch_shape: tuple[int, ...], num_inputs: int
) -> tuple[int, ...]:
    if shape[-2:] != (num_inputs, num_inputs):
        raise ValueError(
            f"scale_tril must have shape (..., N_x, N_x) with N_x = {num_inputs} (as loc), got "
            f"shape {shape}; for independent scales pass jnp.diag(scale)"
        )
    return _checks.broadcast_shapes(
        "the leading axes of scale_tril must broadcast against those of loc",
        scale_tril=shape[:-2],
        loc=batch_shape,
    )


def _check_scale_tril(scale_tril: ArrayLike) -> None:
    _checks.require_finite("scale_tril", scale_tril)
    if not _checks.is_concrete(scale_tril):
        return
    factor = np.asarray(scale_tril)
    _checks.require_nonnegative(
        "the diagonal of scale_tril",
        np.diagonal(factor, axis1=-2, axis2=-1),
        "pass jnp.linalg.cholesky(covariance)",
    )
    above = np.triu(factor, 1) != 0
    if above.any():
        raise ValueError(
            f"scale_tril must be lower triangular, got a nonzero entry at index "
            f"{_checks.first_index(above)}; pass jnp.linalg.cholesky(covariance)"
        )


def _nan_where_negative(half_width: Array) -> Array:
    # A negative half-width has the law of a positive one: without NaN a traced mistake would
    # go on as a plausible number.
    return jnp.where(half_width < 0, jnp.nan, half_width)


def _nan_where_no_factor(scale_tril: Array) -> Array:
    size = scale_tril.shape[-1]
    above = jnp.triu(jnp.ones((size, size), bool), 1) & (scale_tril != 0)
    negative = jnp.eye(size, dtype=bool) & (scale_tril < 0)
    return jnp.where(above | negative, jnp.nan, scale_tril)
