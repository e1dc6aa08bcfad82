"""Known numbers: NumPy computes with them, in float64 for what is only shown; nothing compiles."""

import functools
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from nn_uq_dist.basics._checks import is_concrete

# With more numbers a program is faster than NumPy by more than it takes to compile.
_MOST_NUMBERS = 2**18


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


def numpy_if_known[R](function: Callable[..., R]) -> Callable[..., R]:
    """Decorate ``function(xp, *arrays)``: NumPy in float64 for few known numbers, else a program.

    The first argument is `numpy` or `jax.numpy`, the others hold real arrays. Results
    are JAX arrays of the common type of the arguments in both cases.
    """
    program = jax.jit(function, static_argnums=0)

    @functools.wraps(function)
    def evaluate(*args: Any) -> Any:
        given = jax.tree.leaves(args)
        if not is_local(*given) or sum(np.size(part) for part in given) > _MOST_NUMBERS:
            return program(jnp, *args)
        known = jax.tree.map(lambda part: np.asarray(part, np.float64), args)
        dtype = jnp.result_type(*given)
        with np.errstate(all="ignore"):
            found = jax.tree.map(lambda part: np.asarray(part, dtype), function(np, *known))
        return as_results(found, *given)

    return evaluate


def as_results(values: Any, *given: object) -> Any:
    """NumPy arrays of a pytree as JAX arrays, on the device to which an argument is committed."""

    def one(value: Any) -> Any:
        if not isinstance(value, np.ndarray | np.generic):
            return value
        arrays = (part for part in given if isinstance(part, jax.Array))
        return as_jax(value, next((part.device for part in arrays if part.committed), None))

    return jax.tree.map(one, values)


type FloatArray = NDArray[np.float64]


def in_float64[T](tree: T) -> T:
    """Return the same object with NumPy leaves in float64; its values must be known.

    What is computed from the copy stays in NumPy: exact to float64 whatever the precision of JAX
    is, and without a program to compile. `nn_uq_dist.inputs.LinearImage` and all that it is made
    from work on either kind of array; transformations of JAX take the original.
    """
    copy: T = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), tree)
    return copy
