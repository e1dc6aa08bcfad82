"""A network linearized at the mean of a random input, with the moments of its outputs."""

import dataclasses
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from nn_uq_dist import _checks
from nn_uq_dist._input_law import InputLaw
from nn_uq_dist._joint_density_grid import JointDensityGrid, joint_density_grid
from nn_uq_dist._output_checks import checked_noise, require_spread
from nn_uq_dist._pytree import register_frozen
from nn_uq_dist._row_algebra import gram, matmul, matvec, norm

if TYPE_CHECKING:
    from nn_uq_dist._joint_correlation import JointCorrelation
    from nn_uq_dist.distributions import GaussianCopulaJoint, LinearizedMarginal


@register_frozen
@dataclasses.dataclass(frozen=True, eq=False)
class Linearization:
    r"""The random vector :math:`m + J (f - \mu)`, a network linearized at the mean of its input.

    Usually made by `linearize`. All moments are closed forms in :math:`J`, the half-widths
    :math:`\beta` and the factor :math:`L` of the input law:
    :math:`\mathrm{Cov} = J\,(\mathrm{diag}(\beta^2)/3 + L L^T)\,J^T`.
    The object is an immutable pytree.

    Parameters
    ----------
    loc
        Network output at the mean input, shape ``(..., N_y)``.
    jacobian
        Jacobian :math:`J` there, shape ``(..., N_y, N_x)``.
    input
        Law of the random input with ``N_x`` inputs.

    Raises
    ------
    TypeError
        If `loc` or `jacobian` is not an array of real numbers, or `input` not an `InputLaw`.
    ValueError
        If the shapes do not fit, or known (not traced) values hold NaN or infinity.

    Examples
    --------
    >>> from nn_uq_dist import InputLaw, Linearization
    >>> law = InputLaw([0.0, 0.0], half_width=3.0)
    >>> lin = Linearization([1.0], [[1.0, 2.0]], law)
    >>> float(lin.variance[0])
    15.0
    """

    loc: Array
    jacobian: Array
    input: InputLaw

    def __init__(self, loc: ArrayLike, jacobian: ArrayLike, input: InputLaw) -> None:  # noqa: A002
        if not isinstance(input, InputLaw):
            raise TypeError(
                f"input must be an InputLaw, got {type(input).__name__}; "
                f"pass InputLaw.from_distribution(f)"
            )
        loc = _checks.as_numeric("loc", loc)
        jacobian = _checks.as_numeric("jacobian", jacobian)
        loc_shape, jacobian_shape = np.shape(loc), np.shape(jacobian)
        if len(loc_shape) == 0:
            raise ValueError("loc must have shape (..., N_y), got shape (); pass a vector")
        event_shape = (loc_shape[-1], input.num_inputs)
        if jacobian_shape[-2:] != event_shape:
            raise ValueError(
                f"jacobian must have shape (..., N_y, N_x) with (N_y, N_x) = {event_shape} as "
                f"loc and input, got shape {jacobian_shape}; pass one row per output"
            )
        batch_shape = _checks.broadcast_shapes(
            "the leading axes of loc, jacobian and input must broadcast",
            loc=loc_shape[:-1],
            jacobian=jacobian_shape[:-2],
            input=input.batch_shape,
        )
        _checks.require_finite("loc", loc)
        _checks.require_finite("jacobian", jacobian)
        dtype = _checks.float_dtype(loc, jacobian, input.loc)
        set_field = object.__setattr__
        loc, jacobian = jnp.asarray(loc, dtype), jnp.asarray(jacobian, dtype)
        set_field(self, "loc", jnp.broadcast_to(loc, (*batch_shape, loc_shape[-1])))
        set_field(self, "jacobian", jnp.broadcast_to(jacobian, batch_shape + event_shape))
        set_field(self, "input", input.expand(batch_shape))

    @property
    def batch_shape(self) -> tuple[int, ...]:
        """Shape of the batch: the leading axes of `loc`."""
        return self.loc.shape[:-1]

    @property
    def num_outputs(self) -> int:
        """Number of outputs ``N_y``."""
        return self.loc.shape[-1]

    @property
    def mean(self) -> Array:
        """Mean, shape ``batch_shape + (N_y,)``."""
        return self.loc

    @property
    def variance(self) -> Array:
        r"""Variances :math:`\sum_k A_{jk}^2`, :math:`A = [J\beta/\sqrt 3,\ J L]`."""
        return jnp.sum(self._root() ** 2, axis=-1)

    @property
    def covariance(self) -> Array:
        """Covariance matrix, shape ``batch_shape + (N_y, N_y)``."""
        return gram(self._root())

    @property
    def correlation(self) -> Array:
        """Correlation matrix, shape ``batch_shape + (N_y, N_y)``.

        The row and the column of an output with zero variance are NaN, its diagonal entry
        included; all other diagonal entries are exactly 1.
        """
        return self._correlation_with(None)

    def _correlation_with(self, noise: Array | None) -> Array:
        root = self._root()
        full = root
        if noise is not None:
            root = jnp.broadcast_to(root, (*noise.shape, root.shape[-1]))
            full = jnp.concatenate([root, noise[..., None]], axis=-1)
        scale = norm(full)[..., None]
        # Rows are scaled before they are multiplied: a variance may underflow where the
        # correlation is well defined.
        rows = jnp.where(scale > 0, root, jnp.nan) / jnp.where(scale > 0, scale, 1)
        product = jnp.clip(gram(rows), -1, 1)
        unit = jnp.eye(self.num_outputs, dtype=bool) & (scale > 0)
        return jnp.where(unit, 1, product)

    def marginals(self, noise_scale: ArrayLike | None = None) -> "LinearizedMarginal":
        r"""Return the laws of the single outputs, batch shape ``batch_shape + (N_y,)``.

        Output :math:`j` has weights :math:`J_{jk} \beta_k`, shape ``(..., N_y, N_x)`` (one zero
        weight if the input has no box part), and the normal scale
        :math:`\sqrt{\|(J L)_j\|^2 + \sigma_j^2}`, ``None`` if there is neither a Gaussian part
        nor noise.

        Parameters
        ----------
        noise_scale
            Standard deviation :math:`\sigma \ge 0` of independent normal noise added to each
            output; broadcasts against ``(..., N_y)``. ``None`` for no noise.

        Raises
        ------
        TypeError
            If `noise_scale` is not an array of real numbers.
        ValueError
            If `noise_scale` does not broadcast, is known and negative or not finite, or if an
            output is known to be constant: a point mass has no density.

        Examples
        --------
        >>> from nn_uq_dist import InputLaw, Linearization
        >>> lin = Linearization([1.0], [[1.0, 2.0]], InputLaw([0.0, 0.0], half_width=3.0))
        >>> lin.marginals(noise_scale=0.1).weights
        Array([[3., 6.]], dtype=float32)
        """
        from nn_uq_dist.distributions import LinearizedMarginal

        noise = None if noise_scale is None else checked_noise(noise_scale, self.loc)
        loc, box, normal = self.loc, self.input.half_width, self.input.scale_tril
        if box is None:
            weights = jnp.zeros((*loc.shape, 1), loc.dtype)
        else:
            weights = self.jacobian * box[..., None, :]
        if normal is None:
            normal_scale = noise
        else:
            columns = matmul(self.jacobian, normal)
            if noise is not None:
                columns = jnp.broadcast_to(columns, (*noise.shape, columns.shape[-1]))
                columns = jnp.concatenate([columns, noise[..., None]], axis=-1)
            normal_scale = norm(columns)
        require_spread(weights, normal_scale)
        return LinearizedMarginal(loc, weights, normal_scale)

    def joint_correlation(
        self,
        noise_scale: ArrayLike | None = None,
        correlation: Literal["nataf", "linear"] = "nataf",
        min_eigenvalue: ArrayLike | None = 1e-4,
    ) -> "JointCorrelation":
        """Return the correlation of the normal scores that `joint` uses, and what repair moved.

        Parameters, errors and notes as in `joint`.

        Examples
        --------
        >>> import jax.numpy as jnp
        >>> from nn_uq_dist import InputLaw, Linearization
        >>> lin = Linearization([0.0, 0.0], [[1.0, 2.0], [2.0, 4.0]], InputLaw(jnp.zeros(2), 1.0))
        >>> fit = lin.joint_correlation()  # the outputs are proportional
        >>> print(f"{fit.matrix[0, 1]:.4f} {fit.moved:.1e} {fit.attainable.all()}")
        0.9999 1.0e-04 True
        """
        from nn_uq_dist._joint_correlation import joint_correlation

        noise = None if noise_scale is None else checked_noise(noise_scale, self.loc)
        target = self._correlation_with(noise)
        return joint_correlation(self.marginals(noise_scale), target, correlation, min_eigenvalue)

    def joint(
        self,
        noise_scale: ArrayLike | None = None,
        correlation: Literal["nataf", "linear"] = "nataf",
        min_eigenvalue: ArrayLike | None = 1e-4,
    ) -> "GaussianCopulaJoint":
        """Return the joint law of the outputs: exact marginals, coupled by a Gaussian copula.

        Parameters
        ----------
        noise_scale
            Standard deviation of independent normal noise added to each output; broadcasts against
            ``(..., N_y)``. ``None`` for no noise.
        correlation
            ``"nataf"`` matches the correlation of the outputs to that of the linear law.
            ``"linear"`` takes the correlation of the linear law for that of the normal scores: off
            by up to 0.02 at two inputs and 2e-4 at 31, but cheap and smooth. It is the choice
            inside models.
        min_eigenvalue
            Floor under the eigenvalues of the correlation of the scores, in ``[0, 1)``. With fewer
            inputs than outputs they are zero, and there is no density without a floor.
            ``"nataf"`` takes the nearest correlation matrix (`nearest_correlation`), ``"linear"``
            ``(1 - floor) R + floor I``, which is smooth. ``None`` forbids repair.

        Raises
        ------
        TypeError
            If an argument is not an array of real numbers.
        ValueError
            If `noise_scale` does not broadcast or is negative, an output is constant, `correlation`
            or `min_eigenvalue` is none of the above, or repair is forbidden and needed. Under
            ``jit`` the latter gives NaN.

        Notes
        -----
        `joint_correlation` tells how far the repair moved the matrix, and which correlations no
        Gaussian copula can give.

        Examples
        --------
        >>> import jax
        >>> import jax.numpy as jnp
        >>> from nn_uq_dist import InputLaw, Linearization
        >>> law = InputLaw(jnp.zeros(3), half_width=1.0)
        >>> lin = Linearization([0.0, 0.0], [[1.0, 2.0, 1.0], [1.0, 1.0, 0.0]], law)
        >>> joint = lin.joint()
        >>> joint.sample(jax.random.key(0), (1000,)).shape
        (1000, 2)
        >>> print(f"{joint.covariance_matrix[0, 1]:.3f} {lin.covariance[0, 1]:.3f}")
        1.000 1.000
        """
        from nn_uq_dist.distributions import GaussianCopulaJoint

        matrix = self.joint_correlation(noise_scale, correlation, min_eigenvalue).matrix
        return GaussianCopulaJoint(self.marginals(noise_scale), matrix)

    def joint_density_grid(
        self,
        indices: Sequence[int] | None = None,
        num_points: int = 256,
        noise_scale: ArrayLike | None = None,
    ) -> JointDensityGrid:
        """Return the exact joint density of two or three outputs of the linear law on a grid.

        It is what a copula is measured against: see
        `nn_uq_dist.JointDensityGrid.total_variation`.

        Parameters
        ----------
        indices
            The two or three different outputs, in the order of the axes of the result.
            Default: all.
        num_points
            Points along each output, at least 32, at most ``2**25`` in all.
        noise_scale
            Standard deviation of normal noise added to each output, default none.

        Raises
        ------
        TypeError, ValueError
            For traced values or batch axes, too many outputs or points, dependent outputs and laws
            too narrow for the grid.

        Examples
        --------
        >>> import jax.numpy as jnp
        >>> from nn_uq_dist import InputLaw, Linearization
        >>> law = InputLaw(jnp.zeros(2), 1.0)
        >>> lin = Linearization(jnp.zeros(2), [[1.0, 1.0], [1.0, -1.0]], law)
        >>> grid = lin.joint_density_grid()  # uniform on a square of area 8
        >>> round(float(grid.density.max()), 4)
        0.125
        """
        return joint_density_grid(self, indices, num_points, noise_scale)

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        """Draw from the linear model exactly, shape ``sample_shape + batch_shape + (N_y,)``.

        Parameters
        ----------
        key
            A JAX random key. The inputs are those of ``input.sample(key, sample_shape)``.
        sample_shape
            Shape of independent draws, in front of the batch shape.
        """
        return self.loc + matvec(self.jacobian, self.input.sample_deviation(key, sample_shape))

    def __call__(self, x: ArrayLike) -> Array:
        r"""Evaluate the linear surrogate :math:`m + J (x - \mu)`.

        Parameters
        ----------
        x
            Inputs, shape ``(..., N_x)``; leading axes broadcast against the batch shape.

        Raises
        ------
        ValueError
            If the last axis is not ``N_x`` or the leading axes do not broadcast.
        """
        x = _checks.as_numeric("x", x)
        if np.shape(x)[-1:] != (self.input.num_inputs,):
            raise ValueError(
                f"x must have shape (..., N_x) with N_x = {self.input.num_inputs}, got shape "
                f"{np.shape(x)}; pass one entry per network input"
            )
        _checks.broadcast_shapes(
            "the leading axes of x must broadcast against the batch shape",
            x=np.shape(x)[:-1],
            batch_shape=self.batch_shape,
        )
        return self.loc + matvec(self.jacobian, jnp.asarray(x) - self.input.loc)

    def _root(self) -> Array:
        """Return ``A`` with covariance ``A A^T``, shape ``(..., N_y, N_x)`` or twice as wide."""
        parts = []
        if self.input.half_width is not None:
            parts.append(self.jacobian * (self.input.half_width[..., None, :] / math.sqrt(3)))
        if self.input.scale_tril is not None:
            parts.append(matmul(self.jacobian, self.input.scale_tril))
        return jnp.concatenate(parts, axis=-1)
