"""Calls that cost one compilation: outside of ``jit``, JAX compiles every operation by itself."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from nn_uq_dist.basics._row_algebra import namespace


def one_program[T](function: Callable[..., T], *trees: Any) -> T:
    """Return ``function(*trees)``, compiled as a whole; by NumPy if all leaves are NumPy's.

    Parameters
    ----------
    function
        A pure function of pytrees. It stands at the level of a module: another function object,
        such as a lambda, is compiled anew.
    *trees
        Its arguments.
    """
    if namespace(*jax.tree.leaves(trees)) is np:
        return function(*trees)
    result: T = _compiled(function, *trees)
    return result


@partial(jax.jit, static_argnums=0)
def _compiled(function: Callable[..., Any], *trees: Any) -> Any:
    return function(*trees)


def broadcast(value: ArrayLike, dtype: Any, shape: tuple[int, ...]) -> Array:
    """Return a parameter as an array of this dtype and shape."""
    if isinstance(value, jax.Array):
        # It keeps its device, and its trace.
        return jnp.broadcast_to(jnp.asarray(value, dtype), shape)
    return jnp.asarray(np.broadcast_to(np.asarray(value, dtype), shape))
