"""The law of a linear map of a random input, as the columns of independent random variables."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from jax import Array
from jax.typing import ArrayLike

from nn_uq_dist.basics import _checks
from nn_uq_dist.basics._one_program import broadcast, one_program
from nn_uq_dist.basics._pytree import register_frozen
from nn_uq_dist.basics._row_algebra import namespace
from nn_uq_dist.basics._summary_line import summary_line
from nn_uq_dist.inputs import _image_algebra as algebra
from nn_uq_dist.inputs._parameter_checks import nan_where_negative


@register_frozen
@dataclasses.dataclass(frozen=True, eq=False)
class LinearImage:
    r"""Law of outputs :math:`W U + B N + \sigma \odot N'` about their means.

    :math:`U` has independent entries, uniform on (-1, 1), :math:`N` and :math:`N'` independent
    standard normal ones. `InputLaw.image` and `Linearization.image` make it; moments, marginals,
    copulas, grids and figures take their columns from it. The number of columns is that of the
    random variables that the input is made of, not ``N_x``.

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
        Standard deviation :math:`\sigma` of independent normal noise of each output, shape
        ``(..., N_y)``; ``None`` for none. It may have more batch axes than the columns.

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

    def __repr__(self) -> str:
        return summary_line(self)

    @property
    def shape(self) -> tuple[int, ...]:
        """Batch shape and number of outputs, ``(..., N_y)``."""
        return self._part.shape[:-1] if self.noise_scale is None else self.noise_scale.shape

    def with_noise(self, noise_scale: ArrayLike | None) -> "LinearImage":
        r"""Return the image with independent normal noise added to each output.

        Parameters
        ----------
        noise_scale
            Standard deviation :math:`\sigma \ge 0`; broadcasts against ``(..., N_y)``. ``None``
            for no noise.

        Raises
        ------
        TypeError
            If `noise_scale` is not an array of real numbers.
        ValueError
            If it does not broadcast, or is known and negative or not finite. A negative one that is
            traced becomes NaN.
        """
        if noise_scale is None:
            return self
        noise_scale = _checks.as_numeric("noise_scale", noise_scale)
        shape = _checks.broadcast_shapes(
            "noise_scale must broadcast against the outputs (..., N_y)",
            noise_scale=np.shape(noise_scale),
            outputs=self.shape,
        )
        _checks.require_finite("noise_scale", noise_scale)
        _checks.require_nonnegative("noise_scale", noise_scale, "pass a standard deviation")
        noise: Any
        if namespace(self._part) is np:
            noise = np.broadcast_to(np.asarray(noise_scale, self._part.dtype), shape)
        else:
            dtype = _checks.float_dtype(noise_scale, self._part)
            noise = nan_where_negative(broadcast(noise_scale, dtype, shape))
        if self.noise_scale is not None:
            noise = one_program(algebra.joined_noise, self.noise_scale, noise)
        return dataclasses.replace(self, noise_scale=noise)

    def take(self, outputs: Sequence[int]) -> "LinearImage":
        """Return the image of some outputs, in the order of their indices."""
        rows = np.asarray(outputs)
        noise = self.noise_scale
        return LinearImage(
            None if self.uniform is None else self.uniform[..., rows, :],
            None if self.normal is None else self.normal[..., rows, :],
            None if noise is None else noise[..., rows],
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
        return one_program(algebra.standard_deviation, None, self.normal, self.noise_scale)

    @property
    def normal_covariance(self) -> Array | None:
        """Covariance of the normal part, noise included, ``(..., N_y, N_y)``, or ``None``."""
        if self.normal is None and self.noise_scale is None:
            return None
        normal = self.weights[..., :0] if self.normal is None else self.normal
        return one_program(algebra.covariance, None, normal, self.noise_scale)

    @property
    def root(self) -> Array:
        """A matrix ``A`` with covariance ``A A^T``, a column for each independent variable."""
        return self._ask(algebra.root)

    @property
    def standard_deviation(self) -> Array:
        """Standard deviations, ``(..., N_y)``, also where a variance would underflow."""
        return self._ask(algebra.standard_deviation)

    @property
    def variance(self) -> Array:
        """Variances, shape ``(..., N_y)``."""
        return self._ask(algebra.variance)

    @property
    def covariance(self) -> Array:
        """Covariance matrix, shape ``(..., N_y, N_y)``."""
        return self._ask(algebra.covariance)

    @property
    def correlation(self) -> Array:
        """Correlation matrix, shape ``(..., N_y, N_y)``.

        The row and the column of a constant output are NaN, its diagonal entry included; all other
        diagonal entries are exactly 1.
        """
        return self._ask(algebra.correlation)

    @property
    def is_constant(self) -> Array:
        """Whether an output does not vary at all, shape ``(..., N_y)``: then it has no density."""
        return self._ask(algebra.is_constant)

    @property
    def _part(self) -> Array:
        """One of the arrays of columns, to ask for shape, dtype and library."""
        return next(part for part in (self.uniform, self.normal) if part is not None)

    def _ask(self, function: Callable[..., Array]) -> Array:
        return one_program(function, self.uniform, self.normal, self.noise_scale)
