"""Components of a mixture: broadcast with their probabilities, selected, and drawn from."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax import Array, lax
from jax.typing import ArrayLike
from numpyro.distributions.util import promote_shapes

from nn_uq_dist.basics._checks import as_numeric, broadcast_shapes
from nn_uq_dist.basics._row_algebra import matvec
from nn_uq_dist.laws._adapted_law import with_rank
from nn_uq_dist.laws._batch_entries import Where, with_parameters

# Most numbers in an array of the component matrices of some draws.
_MOST_NUMBERS = 2**22


def take_flat(
    law: dist.Distribution, batch_shape: tuple[int, ...], index: Any
) -> dist.Distribution:
    """All components at ``index`` in the flattened other batch axes, ``(len(index), M)``."""
    if len(batch_shape) == 1:
        return law  # the same components everywhere
    places = Where(np.unravel_index(index, batch_shape[:-1]), together=True)
    return with_parameters(law, lambda argument, lead, _: places.of(argument, lead - 1))


def choose_components(
    law: dist.Distribution, batch_shape: tuple[int, ...], index: Array
) -> dist.Distribution:
    """One component for each entry of ``index``, shape ``(...) + batch_shape[:-1]``."""

    def chosen(argument: ArrayLike, lead: int, _: int) -> ArrayLike:
        event_shape = jnp.shape(argument)[max(lead, 0) :]
        table = jnp.broadcast_to(jnp.asarray(argument), (*batch_shape, *event_shape))
        table = table.reshape(-1, batch_shape[-1], *event_shape)
        flat = index.reshape(-1, len(table))
        return table[jnp.arange(len(table)), flat].reshape(*index.shape, *event_shape)

    return with_parameters(law, chosen)


def fitting_mixture(
    components: dist.Distribution, probabilities: ArrayLike
) -> tuple[Any, Array, tuple[int, ...]]:
    """Components and probabilities of equal rank, and their batch shape with the last axis."""
    probabilities = as_numeric("probabilities", probabilities)
    batch_shape, given = components.batch_shape, jnp.shape(probabilities)
    if not batch_shape or batch_shape[-1:] != given[-1:]:
        raise ValueError(
            f"components and probabilities must have the same last batch axis, that of the "
            f"components, got batch_shape {batch_shape} and shape {given}; pass a law and a "
            "probability for each component"
        )
    shape = broadcast_shapes(
        "the leading axes of components and probabilities must broadcast",
        components=batch_shape,
        probabilities=given,
    )
    # Axes which `vmap` puts in front stay in front of both.
    (promoted,) = promote_shapes(probabilities, shape=shape)
    return with_rank(components, len(shape)), promoted, shape


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
