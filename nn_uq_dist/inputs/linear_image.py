"""Linear outputs about their means: columns of independent random variables, and normal noise."""

import dataclasses
import math
from typing import Any

import jax
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from nn_uq_dist.basics.concrete import as_covariance, as_variances, one_program
from nn_uq_dist.basics.pytree import register_frozen
from nn_uq_dist.basics.row_algebra import binary_unit, gram, namespace, norm, squares_in_units
from nn_uq_dist.basics.summary_line import summary_line
from nn_uq_dist.inputs.output_noise import OutputNoise, output_noise
from nn_uq_dist.inputs.terms import UNIFORM_VARIANCE, joined


@register_frozen
@dataclasses.dataclass(frozen=True, eq=False)
class LinearImage:
    r"""Distribution of outputs :math:`W U + B N + e` about their means.

    :math:`U` has independent entries, uniform on (-1, 1), :math:`N` independent standard normal
    ones, and :math:`e` is normal noise. `nn_uq_dist.Input.image` and `Linearization.image` make it;
    moments, marginals, copulas, grids and figures take their columns from it. The number of columns
    is that of the random variables that the input is made of, not ``N_x``.

    The object is an immutable pytree, linear in the columns. Its arguments are not checked: the
    caller has to do that.

    Parameters
    ----------
    uniform
        Columns :math:`W` of the uniform variables, shape ``(..., N_y, n)``; ``None`` for none.
    normal
        Columns :math:`B` of the normal variables, shape ``(..., N_y, m)``; ``None`` for none. At
        least one of the two is given.
    noise
        Normal noise of the outputs; ``None`` for none. It may have more batch axes than columns.

    Examples
    --------
    >>> from nn_uq_dist import Input
    >>> image = Input.box([0.0, 0.0], half_width=3.0).image([[1.0, 2.0], [1.0, 0.0]])
    >>> print(image.variance, image.with_noise(2.0).variance)
    [15.  3.] [19.  7.]
    """

    uniform: Array | None
    normal: Array | None
    noise: OutputNoise | None = None

    def __repr__(self) -> str:
        return summary_line(self)

    @property
    def shape(self) -> tuple[int, ...]:
        """Batch shape and number of outputs, ``(..., N_y)``."""
        noisy: tuple[int, ...] = () if self.noise is None else self.noise.scale.shape
        return np.broadcast_shapes(noisy, self._part.shape[:-1])

    def with_noise(
        self, noise_scale: ArrayLike | None = None, noise_covariance: ArrayLike | None = None
    ) -> "LinearImage":
        r"""Return the image with normal noise added to the outputs; see `output_noise`.

        Parameters
        ----------
        noise_scale
            Standard deviation :math:`\sigma \ge 0` of independent normal noise; broadcasts against
            ``(..., N_y)``. ``None`` for none.
        noise_covariance
            Covariance of correlated normal noise, shape ``(..., N_y, N_y)``. ``None`` for none.
        """
        if noise_scale is None and noise_covariance is None:
            return self
        noise = output_noise(noise_scale, noise_covariance, self.shape, self._part, self.noise)
        return dataclasses.replace(self, noise=noise)

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
        moved = xp.sqrt(share * UNIFORM_VARIANCE) * self.uniform
        uniform = xp.sqrt(1 - share) * self.uniform
        return LinearImage(uniform, joined([self.normal, moved]), self.noise)

    def in_units(self, unit: Array) -> "LinearImage":
        """Return the image with each output divided by its unit, shape ``(..., N_y)``."""
        parts = self.uniform, self.normal
        uniform, normal = jax.tree.map(lambda part: part / unit[..., None], parts)
        noise = self.noise and self.noise._replace(scale=self.noise.scale / unit)
        return LinearImage(uniform, normal, noise)

    @property
    def weights(self) -> Array:
        """Weights of the uniforms in each marginal, ``(..., N_y, n)``; one zero without any."""
        if self.uniform is not None:
            return self.uniform
        none: Array = namespace(self._part).zeros((*self._part.shape[:-1], 1), self._part.dtype)
        return none

    @property
    def normal_scale(self) -> Array | None:
        """Standard deviation of the normal part of each marginal, ``(..., N_y)``, or ``None``."""
        if self.normal is None:
            return self.noise and self.noise.scale
        return dataclasses.replace(self, uniform=None).standard_deviation

    @property
    def normal_covariance(self) -> Array | None:
        """Covariance of the normal part, noise included, ``(..., N_y, N_y)``, or ``None``."""
        if self.normal is None and self.noise is None:
            return None
        normal = self.weights[..., :0] if self.normal is None else self.normal
        return dataclasses.replace(self, uniform=None, normal=normal).covariance

    @property
    @one_program
    def root(self) -> Array:
        """A matrix ``A`` with covariance ``A A^T``, a column for each independent variable."""
        columns: Array = joined([self.columns, self.noise and self.noise.root])
        return columns

    @property
    @one_program
    def standard_deviation(self) -> Array:
        """Standard deviations, ``(..., N_y)``, also where a variance would underflow."""
        # A row has one column of noise of its own beside the shared ones: the others are zero.
        return norm(joined([self.columns, self.noise and self.noise.scale[..., None]]))

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
        own = self.noise and self.noise.scale[..., None]
        found: Array = (joined([self.uniform, self.normal, own]) == 0).all(axis=-1)
        return found

    @property
    def _part(self) -> Array:
        """One of the arrays of columns, to ask for shape, dtype and library."""
        return next(part for part in (self.uniform, self.normal) if part is not None)

    @property
    def columns(self) -> Any:
        """Columns of variables of variance one: the root of the covariance without noise."""
        uniform = None if self.uniform is None else self.uniform * math.sqrt(UNIFORM_VARIANCE)
        return joined([uniform, self.normal])


@one_program
def _variance(image: LinearImage) -> tuple[Array, Array]:
    return squares_in_units(image.standard_deviation)


@one_program
def _covariance(image: LinearImage) -> tuple[Array, Array]:
    unit = binary_unit(image.standard_deviation)
    return _total(image.in_units(unit)), unit


def _total(image: LinearImage) -> Array:
    """The covariance, as far as it has numbers."""
    total = gram(image.columns)
    return total if image.noise is None else total + image.noise.covariance
