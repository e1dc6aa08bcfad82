"""Linear outputs about their means: columns of independent random variables, and normal noise."""

import dataclasses
from typing import Any

import jax
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from nn_uq_dist.basics import checks
from nn_uq_dist.basics.concrete import as_covariance, as_variances, broadcast, one_program
from nn_uq_dist.basics.pytree import register_frozen
from nn_uq_dist.basics.row_algebra import (
    binary_unit,
    covariance_root,
    gram,
    joined,
    namespace,
    norm,
    squares_in_units,
)
from nn_uq_dist.basics.summary_line import summary_line
from nn_uq_dist.inputs import parameter_checks, terms


@register_frozen
@dataclasses.dataclass(frozen=True, eq=False)
class LinearImage:
    r"""Distribution of outputs :math:`W U + B N + \sigma E` about their means.

    :math:`U` has independent entries, uniform on (-1, 1), and :math:`N` and :math:`E` independent
    standard normal ones, of :math:`E` one for each output. `Linearization.image`
    makes it; moments, marginals, copulas, grids and figures take their columns
    from it. The number of columns is that of the random variables that the input is made of, not
    ``N_x``, and of correlated noise.

    The object is an immutable pytree, linear in the columns. Its arguments are not checked: the
    caller has to do that.

    Parameters
    ----------
    uniform
        Columns :math:`W` of the uniform variables, shape ``(..., N_y, n)``; ``None`` for none.
    normal
        Columns :math:`B` of the normal variables, shape ``(..., N_y, m)``; ``None`` for none.
    noise_scale
        Standard deviations :math:`\sigma` of independent noise, shape ``(..., N_y)``; ``None`` for
        none. At least one of the three is given. They may have different batch axes.

    Examples
    --------
    >>> import nn_uq_dist as nuq
    >>> f = nuq.Input.box([0.0, 0.0], half_width=3.0)
    >>> image = nuq.Linearization([0.0, 0.0], [[1.0, 2.0], [1.0, 0.0]], f).image()
    >>> print(image.variance, image.with_noise(2.0).variance)
    [15.  3.] [19.  7.]
    """

    uniform: Array | None = None
    normal: Array | None = None
    noise_scale: Array | None = None

    def __repr__(self) -> str:
        return summary_line(self)

    @property
    def shape(self) -> tuple[int, ...]:
        """Batch shape and number of outputs, ``(..., N_y)``."""
        return np.broadcast_shapes(*(part.shape[:-1] for part in self._parts))

    def with_noise(
        self, noise_scale: ArrayLike | None = None, noise_covariance: ArrayLike | None = None
    ) -> "LinearImage":
        r"""Return the image with normal noise added to the outputs.

        Parameters
        ----------
        noise_scale
            Standard deviation :math:`\sigma \ge 0` of independent normal noise; broadcasts against
            ``(..., N_y)``. ``None`` for none.
        noise_covariance
            Covariance of correlated normal noise, shape ``(..., N_y, N_y)``. ``None`` for none.

        Raises
        ------
        TypeError
            If an argument is not an array of real numbers.
        ValueError
            If one does not broadcast, or is known and not finite; if a known scale is negative, or
            a known covariance not symmetric and positive semidefinite. Traced ones become NaN.
        """
        noise = output_noise(noise_scale, noise_covariance, self.shape, self._parts[0])
        return self if noise is None else self.plus(noise)

    def plus(self, other: "LinearImage") -> "LinearImage":
        """Return the sum of two independent images of the same outputs."""
        scale, more = self.noise_scale, other.noise_scale
        if scale is not None and more is not None:
            more = one_program(norm)(joined([scale[..., None], more[..., None]]))
        return LinearImage(
            joined([self.uniform, other.uniform]),
            joined([self.normal, other.normal]),
            scale if more is None else more,
        )

    @one_program
    def with_normal_share(self, share: Array) -> "LinearImage":
        """Return the image with a share of its uniform part normal: the same covariance.

        Parameters
        ----------
        share
            Between 0 and 1, shape ``(...)``.
        """
        if self.uniform is None:
            return self
        xp: Any = namespace(self.uniform, share)
        share = share[..., None, None]
        moved = xp.sqrt(share * terms.UNIFORM_VARIANCE) * self.uniform
        uniform = xp.sqrt(1 - share) * self.uniform
        return LinearImage(uniform, joined([self.normal, moved]), self.noise_scale)

    def in_units(self, unit: Array) -> "LinearImage":
        """Return the image with each output divided by its unit, shape ``(..., N_y)``."""
        columns = self.uniform, self.normal
        uniform, normal = jax.tree.map(lambda part: part / unit[..., None], columns)
        scale = None if self.noise_scale is None else self.noise_scale / unit
        return LinearImage(uniform, normal, scale)

    @property
    def weights(self) -> Array:
        """Weights of the uniforms in each marginal, ``(..., N_y, n)``; one zero without any."""
        return self._parts[0][..., :1] * 0 if self.uniform is None else self.uniform

    @property
    def normal_scale(self) -> Array | None:
        """Standard deviation of the normal part of each marginal, ``(..., N_y)``, or ``None``."""
        if self.normal is None:
            return self.noise_scale
        return dataclasses.replace(self, uniform=None).standard_deviation

    @property
    @one_program
    def normal_weights(self) -> Array | None:
        """Columns of the normal part, noise included, ``(..., N_y, k)``; ``None`` without any."""
        return joined([self.normal, self._noise_columns])

    @property
    @one_program
    def root(self) -> Array:
        """A matrix ``A`` with covariance ``A A^T``, a column for each independent variable."""
        return joined([terms.root(self.uniform, self.normal), self._noise_columns])

    @property
    @one_program
    def standard_deviation(self) -> Array:
        """Standard deviations, ``(..., N_y)``, also where a variance would underflow."""
        return norm(joined([terms.root(self.uniform, self.normal), self._scale_column]))

    @property
    def variance(self) -> Array:
        """Variances, shape ``(..., N_y)``; NaN where the type has no such number."""
        return as_variances(*_variance(self))

    @property
    def covariance(self) -> Array:
        """Covariance matrix, shape ``(..., N_y, N_y)``."""
        return as_covariance(*_covariance(self))

    @property
    @one_program
    def correlation(self) -> Array:
        """Correlation matrix, shape ``(..., N_y, N_y)``.

        The row and the column of a constant output are NaN, its diagonal entry included; all other
        diagonal entries are exactly 1.
        """
        # Rows are scaled before they are multiplied: a variance may underflow where the correlation
        # is well defined.
        scale = self.standard_deviation
        xp: Any = namespace(scale)
        product = xp.clip(_total(self.in_units(xp.where(scale > 0, scale, xp.nan))), -1, 1)
        unit = xp.eye(scale.shape[-1], dtype=bool) & (scale > 0)[..., None]
        matrix: Array = xp.where(unit, 1, product)
        return matrix

    @property
    @one_program
    def is_constant(self) -> Array:
        """Whether an output does not vary at all, shape ``(..., N_y)``: then it has no density."""
        # Each part by itself: products of the smallest numbers underflow.
        is_zero: Array = joined(self._parts) == 0
        return is_zero.all(axis=-1)

    @property
    def _parts(self) -> list[Array]:
        """What there is of columns, and scales of noise as one column."""
        parts = self.uniform, self.normal, self._scale_column
        return [part for part in parts if part is not None]

    @property
    def _scale_column(self) -> Any:
        return None if self.noise_scale is None else self.noise_scale[..., None]

    @property
    def _noise_columns(self) -> Any:
        """A column of the independent noise of each output."""
        scale = self.noise_scale
        if scale is None:
            return None
        return scale[..., None] * namespace(scale).eye(scale.shape[-1], dtype=scale.dtype)


def output_noise(
    noise_scale: ArrayLike | None,
    noise_covariance: ArrayLike | None,
    shape: tuple[int, ...],
    like: Any,
) -> LinearImage | None:
    """Return the sum of both kinds of noise, or ``None`` if there is none.

    Parameters
    ----------
    noise_scale, noise_covariance
        As for `LinearImage.with_noise`.
    shape
        Batch shape and number of outputs, ``(..., N_y)``.
    like
        An array of the outputs, for library and type.

    Raises
    ------
    TypeError, ValueError
        As for `LinearImage.with_noise`.
    """
    scale = columns = None
    if noise_scale is not None:
        remedy = "pass a standard deviation"
        typed = checks.in_type(noise_scale, like.dtype)
        typed = parameter_checks.as_scales("noise_scale", typed, shape[-1], remedy, "the outputs")
        wide = checks.broadcast_shapes(
            "noise_scale must broadcast against the outputs (..., N_y)",
            noise_scale=np.shape(typed),
            outputs=shape,
        )
        scale = _placed(typed, typed, like, wide)
    if noise_covariance is not None:
        typed = checks.in_type(noise_covariance, like.dtype)
        typed = checks.as_finite("noise_covariance", typed)
        remedy = "for independent noise use noise_scale"
        matrix = parameter_checks.as_covariance("noise_covariance", typed, shape[-1], remedy)
        root = covariance_root(matrix)
        checks.broadcast_shapes(
            "the leading axes of noise_covariance must broadcast against the batch shape",
            noise_covariance=np.shape(root)[:-2],
            batch_shape=shape[:-1],
        )
        columns = _placed(root, typed, like, np.shape(root))
    return None if scale is None and columns is None else LinearImage(None, columns, scale)


def _placed(value: ArrayLike, argument: ArrayLike, like: Any, shape: tuple[int, ...]) -> Any:
    """What is made of an argument, in the library of `like` and in the common type."""
    if namespace(like) is np:
        return np.broadcast_to(np.asarray(value, like.dtype), shape)
    return broadcast(value, checks.float_dtype(argument, like), shape)


@one_program
def _variance(image: LinearImage) -> tuple[Array, Array]:
    return squares_in_units(image.standard_deviation)


@one_program
def _covariance(image: LinearImage) -> tuple[Array, Array]:
    unit = binary_unit(image.standard_deviation)
    return _total(image.in_units(unit)), unit


def _total(image: LinearImage) -> Array:
    """The covariance, as far as it has numbers."""
    columns = terms.root(image.uniform, image.normal)
    total: Any = 0 if columns is None else gram(columns)
    noise = image._noise_columns  # noqa: SLF001
    return total if noise is None else total + noise * noise
