"""The law of an input that is known: a point."""

import dataclasses

import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from nn_uq_dist.basics import _checks
from nn_uq_dist.basics._one_program import broadcast
from nn_uq_dist.basics._pytree import register_frozen
from nn_uq_dist.basics._row_algebra import namespace
from nn_uq_dist.inputs._abstract_input_law import AbstractInputLaw
from nn_uq_dist.inputs._parameter_checks import split_loc_shape


@register_frozen
@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class KnownInput(AbstractInputLaw):
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
        loc = _checks.as_numeric("loc", loc)
        split_loc_shape(np.shape(loc))
        _checks.require_finite("loc", loc)
        object.__setattr__(self, "loc", broadcast(loc, _checks.float_dtype(loc), np.shape(loc)))

    def columns(self, jacobian: Array) -> tuple[None, None]:
        """None: nothing is random."""
        del jacobian
        return None, None

    @property
    def variance(self) -> Array:
        """Zeros."""
        zeros: Array = namespace(self.loc).zeros_like(self.loc)
        return zeros

    @property
    def covariance(self) -> Array:
        """Zeros, shape ``batch_shape + (N_x, N_x)``."""
        shape = (*self.loc.shape, self.num_inputs)
        zeros: Array = namespace(self.loc).zeros(shape, self.dtype)
        return zeros

    @property
    def half_range(self) -> None:
        """None: there is no uniform part."""
        return

    @property
    def normal_scale(self) -> None:
        """None: there is no Gaussian part."""
        return

    @property
    def has_independent_entries(self) -> bool:
        """True: constants are independent."""
        return True

    def sample_deviation(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        """Zeros, shape ``sample_shape + batch_shape + (N_x,)``."""
        _checks.as_key("key", key)
        return jnp.zeros((*sample_shape, *self.loc.shape), self.dtype)

    @property
    def num_standard_variables(self) -> tuple[int, int]:
        """None of either kind."""
        return 0, 0

    def deviation_at(self, uniform: Array, normal: Array) -> Array:
        """Zeros."""
        del normal
        return jnp.zeros((*uniform.shape[:-1], self.num_inputs), self.dtype)

    @property
    def _description(self) -> str:
        return "known values"
