"""Known numbers: NumPy computes with them, in float64 for what is only shown; nothing compiles."""

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import jax
import numpy as np
from jax import Array
from numpy.typing import NDArray

from nn_uq_dist.basics._checks import is_concrete


def is_local(*values: object) -> bool:
    """Return whether every array holds numbers now, in the memory of a single device.

    With such numbers NumPy computes without compiling anything. Not while ``jit`` traces: then the
    results of programs are traced, even those of known numbers.
    """
    return (
        is_concrete(*values)
        and not _is_staging()
        and all(
            len(leaf.sharding.device_set) == 1
            for leaf in jax.tree.leaves(values)
            if isinstance(leaf, jax.Array)
        )
    )


def _is_staging() -> bool:
    """Return whether operations are recorded for a program, as under ``jit``, and not run now."""
    # A transfer compiles nothing.
    return not is_concrete(jax.device_put(np.float32(0.0)))


def evaluated_now() -> AbstractContextManager[Any]:
    """Context in which functions of known numbers run now, even while ``jit`` traces.

    Only then does it change anything: `jax.ensure_compile_time_eval` is a part of the key of every
    program, so each one that runs inside and outside of it would be compiled twice.
    """
    return jax.ensure_compile_time_eval() if _is_staging() else nullcontext()


def as_jax(value: Any, device: Any = None) -> Array:
    """Return a NumPy array as one of JAX; `jnp.asarray` compiles a copy for each shape.

    It may share the array's memory, so do not pass arrays that are written to afterwards.
    """
    placed: Array = jax.device_put(np.asarray(value), device)
    return placed


type FloatArray = NDArray[np.float64]


def in_float64[T](tree: T) -> T:
    """Return the same object with NumPy leaves in float64; its values must be known.

    What is computed from the copy stays in NumPy: exact to float64 whatever the precision of JAX
    is, and without a program to compile. `nn_uq_dist.inputs.LinearImage` and all that it is made
    from work on either kind of array; transformations of JAX take the original.
    """
    copy: T = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), tree)
    return copy
