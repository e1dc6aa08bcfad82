"""The law of a Gaussian input given by its mean and any factor of its covariance."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from nn_uq_dist.basics import _checks
from nn_uq_dist.basics._one_program import broadcast, one_program
from nn_uq_dist.basics._pytree import register_frozen
from nn_uq_dist.basics._row_algebra import gram, matmul, matvec, namespace, norm
from nn_uq_dist.inputs._abstract_input_law import AbstractInputLaw
from nn_uq_dist.inputs._parameter_checks import split_loc_shape


@register_frozen
@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class GaussianInput(AbstractInputLaw):
    r"""Law of a Gaussian input :math:`f = \mu + F N`; the factor may have few columns or many.

    :math:`N` has ``r`` independent standard normal entries. The covariance is :math:`F F^T`, of
    rank ``r`` at most. It is computed only if `covariance` is asked for: for 150,528 inputs with
    ten common causes, memory is ten times that of the mean. To add independent errors, use
    `InputSum`.

    Parameters
    ----------
    loc
        Mean :math:`\mu`, shape ``(..., N_x)``.
    factor
        :math:`F`, shape ``(..., N_x, r)``: any matrix, not only a triangular one.

    Raises
    ------
    TypeError
        If an argument is not an array of real numbers.
    ValueError
        If shapes do not fit, or known (not traced) values hold NaN or infinity.

    Examples
    --------
    Two causes of the errors of three inputs:

    >>> import nn_uq_dist as nuq
    >>> law = nuq.inputs.GaussianInput([0.0, 0.0, 0.0], [[1.0, 0.0], [1.0, 1.0], [0.0, 2.0]])
    >>> law
    GaussianInput(rank at most 2, num_inputs=3, batch_shape=(), dtype=float32)
    >>> print(law.variance, nuq.linearize(lambda x: x[:2], law).covariance[0, 1])
    [1. 2. 4.] 1.0
    """

    loc: Array
    factor: Array

    def __init__(self, loc: ArrayLike, factor: ArrayLike) -> None:
        loc = _checks.as_numeric("loc", loc)
        factor = _checks.as_numeric("factor", factor)
        batch_shape, num_inputs = split_loc_shape(np.shape(loc))
        shape = np.shape(factor)
        if len(shape) < 2 or shape[-2] != num_inputs or shape[-1] == 0:
            raise ValueError(
                f"factor must have shape (..., N_x, r) with N_x = {num_inputs} (as loc) and "
                f"r >= 1, got shape {shape}; pass a column per cause of the errors"
            )
        batch_shape = _checks.broadcast_shapes(
            "the leading axes of factor must broadcast against those of loc",
            factor=shape[:-2],
            loc=batch_shape,
        )
        _checks.require_finite("loc", loc)
        _checks.require_finite("factor", factor)
        dtype = _checks.float_dtype(loc, factor)
        object.__setattr__(self, "loc", broadcast(loc, dtype, (*batch_shape, num_inputs)))
        object.__setattr__(self, "factor", broadcast(factor, dtype, (*batch_shape, *shape[-2:])))

    def columns(self, jacobian: Array) -> tuple[None, Array]:
        """No uniform columns, and ``J F``."""
        return None, one_program(matmul, jacobian, self.factor)

    @property
    def variance(self) -> Array:
        """Squared norms of the rows of the factor."""
        return one_program(_squares, self.factor)

    @property
    def covariance(self) -> Array:
        """``F F^T``, shape ``batch_shape + (N_x, N_x)``."""
        return one_program(gram, self.factor)

    @property
    def half_range(self) -> None:
        """None: there is no uniform part."""
        return

    @property
    def normal_scale(self) -> Array:
        """Standard deviations, shaped as `loc`."""
        return one_program(norm, self.factor)

    @property
    def has_independent_entries(self) -> bool:
        """Whether the rows of the factor are orthogonal; of known values only."""
        rows = np.asarray(self.factor)
        rank = rows.shape[-1]
        for matrix in rows.reshape(-1, *rows.shape[-2:]):
            moving = matrix[np.any(matrix != 0, axis=-1)]
            # More vectors than dimensions are never orthogonal: no matrix of inputs times inputs.
            if len(moving) > rank:
                return False
            product = moving @ moving.T
            if np.any(product[~np.eye(len(moving), dtype=bool)]):
                return False
        return True

    def sample_deviation(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        """Draw ``f - loc``, without the rounding error that adding a large `loc` would cause."""
        shape = (*sample_shape, *self.batch_shape, self.factor.shape[-1])
        draws = jax.random.normal(_checks.as_key("key", key), shape, self.dtype)
        return one_program(matvec, self.factor, draws)

    @property
    def num_standard_variables(self) -> tuple[int, int]:
        """No uniform variable, and a normal one for each column."""
        return 0, self.factor.shape[-1]

    def deviation_at(self, uniform: Array, normal: Array) -> Array:
        """``F N`` at given values of the standard variables."""
        del uniform
        return matvec(self.factor, jnp.asarray(normal))

    @property
    def _description(self) -> str:
        return f"rank at most {min(self.factor.shape[-2:])}"


def _squares(factor: Array) -> Array:
    total: Array = namespace(factor).sum(factor**2, axis=-1)
    return total
