"""Decisions about whole batches, which stay decisions under `jax.vmap`."""

from collections.abc import Sequence

import jax.numpy as jnp
from jax import Array
from jax.custom_batching import custom_vmap


@custom_vmap
def any_point(condition: Array) -> Array:
    """Whether a condition holds anywhere, along axes that `jax.vmap` adds as well.

    What is decided this way, whether a loop goes on or a harder method is tried, concerns all
    points at once and changes only those that need it. With `jnp.any` each member of a mapped axis
    would decide for itself: `lax.cond` then becomes a selection and runs every method for all
    points, which made four NumPyro chains side by side cost 12 to 28 times one.
    """
    return jnp.any(condition)


@any_point.def_vmap
def _any_point_of_all(
    _axis_size: int, in_batched: Sequence[bool], condition: Array
) -> tuple[Array, bool]:
    del in_batched
    # Once more the mapped function, for axes mapped further out.
    return any_point(condition), False
