"""The law of a linear map of a random input, as the columns of independent random variables."""

import dataclasses
from collections.abc import Callable, Sequence

import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from nn_uq_dist.basics._one_program import one_program
from nn_uq_dist.basics._pytree import register_frozen
from nn_uq_dist.basics._row_algebra import namespace
from nn_uq_dist.basics._summary_line import summary_line
from nn_uq_dist.inputs import _image_algebra as algebra
from nn_uq_dist.inputs._output_noise import joined_scale, output_noise


@register_frozen
@dataclasses.dataclass(frozen=True, eq=False)
class LinearImage:
    r"""Law of outputs :math:`W U + B N + e` about their means.

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
        Covariances of the noise of different outputs, shape ``(..., N_y, N_y)``, with a diagonal of
        zeros; ``None`` if it is independent.

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
        scale, coupling = noise
        if self.noise_scale is not None:
            scale = one_program(joined_scale, self.noise_scale, scale)
        if self.noise_coupling is not None:
            coupling = self.noise_coupling + (0 if coupling is None else coupling)
        return LinearImage(self.uniform, self.normal, scale, coupling)

    def with_normal_share(self, share: Array) -> "LinearImage":
        """Return the image with a share of its uniform part normal: the same covariance.

        Parameters
        ----------
        share
            Between 0 and 1, shape ``(...)``.
        """
        if self.uniform is None:
            return self
        share = share[..., None, None]
        moved = jnp.sqrt(share * algebra.UNIFORM_VARIANCE) * self.uniform
        columns = moved if self.normal is None else jnp.concatenate([self.normal, moved], axis=-1)
        uniform = jnp.sqrt(1 - share) * self.uniform
        return dataclasses.replace(self, uniform=uniform, normal=columns)

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
        return one_program(algebra.standard_deviation, None, self.normal, self.noise_scale, None)

    @property
    def normal_covariance(self) -> Array | None:
        """Covariance of the normal part, noise included, ``(..., N_y, N_y)``, or ``None``."""
        if self.normal is None and self.noise_scale is None:
            return None
        normal = self.weights[..., :0] if self.normal is None else self.normal
        noise = self.noise_scale, self.noise_coupling
        return one_program(algebra.covariance, None, normal, *noise)

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
        noise = self.noise_scale, self.noise_coupling
        return one_program(function, self.uniform, self.normal, *noise)
