"""Gaussian inputs given by any factor of their covariance; known inputs, which have none."""

import dataclasses

import jax
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from nn_uq_dist.basics import _checks
from nn_uq_dist.basics._compiled_once import one_program
from nn_uq_dist.basics._pytree import register_frozen
from nn_uq_dist.basics._row_algebra import matvec
from nn_uq_dist.inputs._abstract_input_law import InputOfTerms
from nn_uq_dist.inputs._parameter_checks import as_loc, in_one_batch
from nn_uq_dist.inputs._terms import InputTerm


@register_frozen
@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class GaussianInput(InputOfTerms):
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
        loc, num_inputs = as_loc(loc)
        factor = _checks.as_numeric("factor", factor)
        shape = np.shape(factor)
        if len(shape) < 2 or shape[-2] != num_inputs or shape[-1] == 0:
            raise ValueError(
                f"factor must have shape (..., N_x, r) with N_x = {num_inputs} (as loc) and "
                f"r >= 1, got shape {shape}; pass a column per cause of the errors"
            )
        _checks.require_finite("factor", factor)
        placed = in_one_batch(factor=(factor, shape[-2:]), loc=(loc, (num_inputs,)))
        object.__setattr__(self, "loc", placed["loc"])
        object.__setattr__(self, "factor", placed["factor"])

    @property
    def terms(self) -> tuple[InputTerm]:
        """The factor and its normal variables."""
        return (InputTerm(self.factor, is_uniform=False),)

    def sample_deviation(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        """Draw ``f - loc`` from the key itself: there is no other part that would need one."""
        shape = (*sample_shape, *self.batch_shape, self.factor.shape[-1])
        draws = jax.random.normal(_checks.as_key("key", key), shape, self.dtype)
        return one_program(matvec, self.factor, draws)

    @property
    def _description(self) -> str:
        return f"rank at most {min(self.factor.shape[-2:])}"


@register_frozen
@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class KnownInput(InputOfTerms):
    """Law of an input without randomness: a block of known inputs beside random ones.

    It has no columns. If all inputs are known, all outputs are constant.

    Parameters
    ----------
    loc
        The values, shape ``(..., N_x)``.

    Raises
    ------
    TypeError
        If `loc` is not an array of real numbers.
    ValueError
        If it is a scalar or empty, or known (not traced) and holds NaN or infinity.

    Examples
    --------
    >>> import nn_uq_dist as nuq
    >>> box = nuq.InputLaw([0.0, 0.0], half_width=1.0)
    >>> law = nuq.inputs.InputBlocks(box, nuq.inputs.KnownInput([5.0]))
    >>> lin = nuq.linearize(lambda x: x[2:] * x[:2], law)
    >>> print(lin.marginals().weights.tolist())
    [[5.0, 0.0], [0.0, 5.0]]
    """

    loc: Array

    def __init__(self, loc: ArrayLike) -> None:
        loc, num_inputs = as_loc(loc)
        object.__setattr__(self, "loc", in_one_batch(loc=(loc, (num_inputs,)))["loc"])

    @property
    def terms(self) -> tuple[()]:
        """None: nothing is random."""
        return ()

    @property
    def _description(self) -> str:
        return "known values"
