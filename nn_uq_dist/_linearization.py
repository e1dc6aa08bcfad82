"""A network linearized at the mean of a random input, with the moments of its outputs."""

import dataclasses
import math
from typing import TYPE_CHECKING

import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.typing import ArrayLike

from nn_uq_dist import _checks
from nn_uq_dist._input_law import InputLaw
from nn_uq_dist._pytree import register_frozen

if TYPE_CHECKING:
    from nn_uq_dist.distributions import LinearizedMarginal


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
        return _gram(self._root())

    @property
    def correlation(self) -> Array:
        """Correlation matrix, shape ``batch_shape + (N_y, N_y)``.

        The row and the column of an output with zero variance are NaN, its diagonal entry
        included; all other diagonal entries are exactly 1.
        """
        root = self._root()
        norm = _norm(root)[..., None]
        # Rows are scaled before they are multiplied: a variance may underflow where the
        # correlation is well defined.
        rows = jnp.where(norm > 0, root, jnp.nan) / jnp.where(norm > 0, norm, 1)
        product = jnp.clip(_gram(rows), -1, 1)
        unit = jnp.eye(self.num_outputs, dtype=bool) & (norm > 0)
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

        noise = None if noise_scale is None else self._checked_noise(noise_scale)
        loc, box, normal = self.loc, self.input.half_width, self.input.scale_tril
        if box is None:
            weights = jnp.zeros((*loc.shape, 1), loc.dtype)
        else:
            weights = self.jacobian * box[..., None, :]
        if normal is None:
            normal_scale = noise
        else:
            columns = _matmul(self.jacobian, normal)
            if noise is not None:
                columns = jnp.broadcast_to(columns, (*noise.shape, columns.shape[-1]))
                columns = jnp.concatenate([columns, noise[..., None]], axis=-1)
            normal_scale = _norm(columns)
        _require_spread(weights, normal_scale)
        return LinearizedMarginal(loc, weights, normal_scale)

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        """Draw from the linear model exactly, shape ``sample_shape + batch_shape + (N_y,)``.

        Parameters
        ----------
        key
            A JAX random key. The inputs are those of ``input.sample(key, sample_shape)``.
        sample_shape
            Shape of independent draws, in front of the batch shape.
        """
        return self.loc + _matvec(self.jacobian, self.input.sample_deviation(key, sample_shape))

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
        return self.loc + _matvec(self.jacobian, jnp.asarray(x) - self.input.loc)

    def _root(self) -> Array:
        """Return ``A`` with covariance ``A A^T``, shape ``(..., N_y, N_x)`` or twice as wide."""
        parts = []
        if self.input.half_width is not None:
            parts.append(self.jacobian * (self.input.half_width[..., None, :] / math.sqrt(3)))
        if self.input.scale_tril is not None:
            parts.append(_matmul(self.jacobian, self.input.scale_tril))
        return jnp.concatenate(parts, axis=-1)

    def _checked_noise(self, noise_scale: ArrayLike) -> Array:
        noise_scale = _checks.as_numeric("noise_scale", noise_scale)
        shape = _checks.broadcast_shapes(
            "noise_scale must broadcast against the outputs (..., N_y)",
            noise_scale=np.shape(noise_scale),
            outputs=self.loc.shape,
        )
        _checks.require_finite("noise_scale", noise_scale)
        _checks.require_nonnegative("noise_scale", noise_scale, "pass a standard deviation")
        noise = jnp.asarray(noise_scale, _checks.float_dtype(noise_scale, self.loc))
        return jnp.broadcast_to(jnp.where(noise < 0, jnp.nan, noise), shape)


def _matmul(a: Array, b: Array) -> Array:
    # Accelerators multiply in fewer bits unless told otherwise.
    return jnp.matmul(a, b, precision=lax.Precision.HIGHEST)


def _matvec(a: Array, b: Array) -> Array:
    return jnp.einsum("...jk,...k->...j", a, b, precision=lax.Precision.HIGHEST)


def _gram(rows: Array) -> Array:
    return _matmul(rows, jnp.swapaxes(rows, -1, -2))


def _norm(rows: Array) -> Array:
    """Euclidean norm over the last axis, without underflow, with gradient 0 at 0."""
    # The result does not depend on the factor taken out, so no gradient flows through it.
    largest = lax.stop_gradient(jnp.max(jnp.abs(rows), axis=-1, keepdims=True))
    factor = jnp.where(largest > 0, largest, 1)
    squared = jnp.sum((rows / factor) ** 2, axis=-1)
    # The inner `where` keeps the infinite slope of the root at 0 out of the derivative.
    is_zero = squared == 0
    root = jnp.where(is_zero, 0, jnp.sqrt(jnp.where(is_zero, 1, squared)))
    return factor[..., 0] * root


def _require_spread(weights: Array, normal_scale: Array | None) -> None:
    if not _checks.is_concrete(weights, normal_scale):
        return
    constant = (np.asarray(weights) == 0).all(axis=-1)
    if normal_scale is not None:
        constant = constant & (np.asarray(normal_scale) == 0)
    if not constant.any():
        return
    *batch, output = _checks.first_index(constant)
    where = f"output {output}" + (f" of batch entry {tuple(batch)}" if batch else "")
    count = int(constant.sum())
    others = f" and {count - 1} more" if count > 1 else ""
    raise ValueError(
        f"every output must vary with the input, got zero sensitivity for {where}{others}: a "
        f"constant has no density; pass noise_scale > 0 or leave the output out of the network"
    )
