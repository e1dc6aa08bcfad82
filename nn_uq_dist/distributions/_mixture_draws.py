"""Draws of a mixture of affine images of random variables."""

import math

import jax
import jax.numpy as jnp
from jax import Array, lax

from nn_uq_dist.basics._row_algebra import matvec

# Most numbers in an array of the component matrices of some draws.
_MOST_NUMBERS = 2**22


@jax.jit
def draws_of_parts(index: Array, variables: Array, loc: Array, matrix: Array) -> Array:
    """``loc_i + A_i v`` with the component ``i`` of each draw, shape ``(...) + batch + (d,)``.

    Parameters
    ----------
    index : Array of int, shape (...) + batch
    variables : Array, shape (...) + batch + (k,)
    loc : Array, shape batch + (M, d)
    matrix : Array, shape batch + (M, d, k)

    Notes
    -----
    The matrices of the components are looked up for some draws at a time, which bounds memory.
    """
    batch_shape, event_shape = loc.shape[:-2], loc.shape[-1:]
    laws = math.prod(batch_shape)
    flat_index = index.reshape(-1, laws)
    flat_variables = variables.reshape(-1, laws, variables.shape[-1])
    means = loc.reshape(laws, *loc.shape[-2:])
    matrices = matrix.reshape(laws, *matrix.shape[-3:])
    law = jnp.arange(laws)

    def one(draw: tuple[Array, Array]) -> Array:
        chosen, values = draw
        return means[law, chosen] + matvec(matrices[law, chosen], values)

    size = max(1, _MOST_NUMBERS // (laws * matrix.shape[-2] * matrix.shape[-1]))
    draws = lax.map(one, (flat_index, flat_variables), batch_size=size)
    return draws.reshape(*index.shape, *event_shape)
