"""The law of a linear map of a random input, as the columns of independent random variables."""

import dataclasses
import math
import operator
from collections.abc import Sequence
from functools import reduce
from typing import Any

import numpy as np
from jax import Array
from jax.typing import ArrayLike

from nn_uq_dist.basics._known_values import as_covariance, as_variances, one_program
from nn_uq_dist.basics._pytree import register_frozen
from nn_uq_dist.basics._row_algebra import (
    binary_unit,
    gram,
    namespace,
    norm,
)
from nn_uq_dist.basics._summary_line import summary_line
from nn_uq_dist.inputs._output_noise import OutputNoise, output_noise
from nn_uq_dist.inputs._terms import UNIFORM_VARIANCE, joined


@register_frozen
@dataclasses.dataclass(frozen=True, eq=False)
class LinearImage:
    r"""Distribution of outputs :math:`W U + B N + e` about their means.

    :math:`U` has independent entries, uniform on (-1, 1), :math:`N` independent standard normal
    ones, and :math:`e` is normal noise. `InputLaw.image` and `Linearization.image` make it;
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
    noise_scale
        Standard deviation of the noise of each output, shape ``(..., N_y)``; ``None`` for none. It
        may have more batch axes than the columns.
    noise_coupling
        Correlations of the noise of different outputs, shape ``(..., N_y, N_y)``, with a diagonal
        of zeros; ``None`` if it is independent.

    Examples
    --------
    >>> from nn_uq_dist import InputLaw
    >>> image = InputLaw([0.0, 0.0], half_width=3.0).image([[1.0, 2.0], [1.0, 0.0]])
    >>> print(image.variance, image.with_noise(2.0).variance)
    [15.  3.] [19.  7.]
    """

    uniform: Array | None
    normal: Array | None
    noise_scale: Array | None = None
    noise_coupling: Array | None = None

    def __repr__(self) -> str:
        return summary_line(self)

    @property
    def shape(self) -> tuple[int, ...]:
        """Batch shape and number of outputs, ``(..., N_y)``."""
        return self._part.shape[:-1] if self.noise_scale is None else self.noise_scale.shape

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
        noise = output_noise(noise_scale, noise_covariance, self.shape, self._part)
        if noise is None:
            return self
        if self.noise_scale is not None:
            noise = noise.plus(OutputNoise(self.noise_scale, self.noise_coupling))
        return LinearImage(self.uniform, self.normal, *noise)

    def with_normal_share(self, share: Array) -> "LinearImage":
        """Return the image with a share of its uniform part normal: the same covariance.

        Parameters
        ----------
        share
            Between 0 and 1, shape ``(...)``.
        """
        if self.uniform is None:
            return self
        uniform, normal = one_program(_with_normal_share)(self.uniform, self.normal, share)
        return dataclasses.replace(self, uniform=uniform, normal=normal)

    def take(self, outputs: Sequence[int]) -> "LinearImage":
        """Return the image of some outputs, in the order of their indices."""
        rows = np.asarray(outputs)
        noise, coupling = self.noise_scale, self.noise_coupling
        return LinearImage(
            None if self.uniform is None else self.uniform[..., rows, :],
            None if self.normal is None else self.normal[..., rows, :],
            None if noise is None else noise[..., rows],
            None if coupling is None else coupling[..., rows[:, None], rows],
        )

    def in_units(self, unit: Array) -> "LinearImage":
        """Return the image with each output divided by its unit, shape ``(..., N_y)``."""
        return LinearImage(
            None if self.uniform is None else self.uniform / unit[..., None],
            None if self.normal is None else self.normal / unit[..., None],
            None if self.noise_scale is None else self.noise_scale / unit,
            self.noise_coupling,
        )

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
            return self.noise_scale
        return LinearImage(None, self.normal, self.noise_scale).standard_deviation

    @property
    def normal_covariance(self) -> Array | None:
        """Covariance of the normal part, noise included, ``(..., N_y, N_y)``, or ``None``."""
        if self.normal is None and self.noise_scale is None:
            return None
        normal = self.weights[..., :0] if self.normal is None else self.normal
        return dataclasses.replace(self, uniform=None, normal=normal).covariance

    @property
    def root(self) -> Array:
        """A matrix ``A`` with covariance ``A A^T``, a column for each independent variable."""
        return one_program(_root)(self)

    @property
    def standard_deviation(self) -> Array:
        """Standard deviations, ``(..., N_y)``, also where a variance would underflow."""
        return one_program(_standard_deviation)(self)

    @property
    def variance(self) -> Array:
        """Variances, shape ``(..., N_y)``; NaN where the type has no such number."""
        return as_variances(*one_program(_variance)(self))

    @property
    def covariance(self) -> Array:
        """Covariance matrix, shape ``(..., N_y, N_y)``."""
        return as_covariance(*one_program(_covariance)(self))

    @property
    def correlation(self) -> Array:
        """Correlation matrix, shape ``(..., N_y, N_y)``.

        The row and the column of a constant output are NaN, its diagonal entry included; all other
        diagonal entries are exactly 1.
        """
        return one_program(_correlation)(self)

    @property
    def is_constant(self) -> Array:
        """Whether an output does not vary at all, shape ``(..., N_y)``: then it has no density."""
        return one_program(_is_constant)(self)

    @property
    def _part(self) -> Array:
        """One of the arrays of columns, to ask for shape, dtype and library."""
        return next(part for part in (self.uniform, self.normal) if part is not None)


def _with_normal_share(uniform: Array, normal: Array | None, share: Array) -> tuple[Array, Array]:
    xp: Any = namespace(uniform, share)
    share = share[..., None, None]
    moved = xp.sqrt(share * UNIFORM_VARIANCE) * uniform
    columns = moved if normal is None else xp.concatenate([normal, moved], axis=-1)
    return xp.sqrt(1 - share) * uniform, columns


def _columns(image: LinearImage) -> Array:
    """Columns of variables of variance one: the root of the covariance without noise."""
    uniform = None if image.uniform is None else image.uniform * math.sqrt(UNIFORM_VARIANCE)
    columns: Array = joined([uniform, image.normal])
    return columns


def _root(image: LinearImage) -> Array:
    shared, scale = _columns(image), image.noise_scale
    if scale is None:
        return shared
    # The noise may have more batch axes.
    columns: Array = joined([shared, OutputNoise(scale, image.noise_coupling).root])
    return columns


def _standard_deviation(image: LinearImage) -> Array:
    rows, scale = _columns(image), image.noise_scale
    # A row has one column of noise of its own beside the shared ones: the others are zero.
    return norm(rows if scale is None else joined([rows, scale[..., None]]))


def _variance(image: LinearImage) -> tuple[Array, Array]:
    unit = binary_unit(_standard_deviation(image))
    image = image.in_units(unit)
    total = (_columns(image) ** 2).sum(axis=-1)
    total = total if image.noise_scale is None else total + image.noise_scale**2
    return total, unit


def _covariance(image: LinearImage) -> tuple[Array, Array]:
    unit = binary_unit(_standard_deviation(image))
    image = image.in_units(unit)
    total, scale = gram(_columns(image)), image.noise_scale
    if scale is not None:
        total = total + OutputNoise(scale, image.noise_coupling).covariance
    return total, unit


def _correlation(image: LinearImage) -> Array:
    shared = _columns(image)
    xp = namespace(shared)
    scale = _standard_deviation(image)[..., None]
    # Rows are scaled before they are multiplied: a variance may underflow where the correlation is
    # well defined. Independent noise of two outputs counts in their scales alone.
    safe = xp.where(scale > 0, scale, 1)
    product = gram(xp.where(scale > 0, shared, xp.nan) / safe)
    if image.noise_scale is not None and image.noise_coupling is not None:
        share = image.noise_scale[..., None] / safe
        product = product + image.noise_coupling * share * share.mT
    product = xp.clip(product, -1, 1)
    unit = xp.eye(shared.shape[-2], dtype=bool) & (scale > 0)
    matrix: Array = xp.where(unit, 1, product)
    return matrix


def _is_constant(image: LinearImage) -> Array:
    noise = None if image.noise_scale is None else image.noise_scale[..., None]
    # Each part by itself: products of the smallest numbers underflow.
    parts = [part for part in (image.uniform, image.normal, noise) if part is not None]
    return reduce(operator.and_, [(part == 0).all(axis=-1) for part in parts])
