"""Decisions about whole batches, which remain single decisions under `jax.vmap`."""

from collections.abc import Sequence

import numpy as np
from jax import Array, lax
from jax.custom_batching import custom_vmap


@custom_vmap
def any_point(condition: Array) -> Array:
    """Whether a condition holds anywhere, including along axes that `jax.vmap` adds.

    Such a decision, whether to continue a loop or to try a harder method, is made for all points at
    once and changes only those that need it. With `jnp.any` each member of a mapped axis would
    decide for itself: `lax.cond` would become a selection and run every method for all points,
    which made four NumPyro chains in parallel cost 12 to 28 times one chain.
    """
    # A sum of pairs is one kernel, that of a single array three.
    axes = tuple(range(condition.ndim))
    pair = condition, ~condition
    start = np.False_, np.False_
    return lax.reduce(pair, start, lambda a, b: (a[0] | b[0], a[1] | b[1]), axes)[0]


@any_point.def_vmap
def _any_point_of_all(
    _axis_size: int, in_batched: Sequence[bool], condition: Array
) -> tuple[Array, bool]:
    del in_batched
    # Call the mapped function again, for axes mapped further out.
    return any_point(condition), False
