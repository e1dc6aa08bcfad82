"""Known numbers: NumPy computes with them, in float64 for what is only shown; nothing compiles."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial, wraps
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.core import Tracer
from jax.typing import ArrayLike
from numpy.typing import NDArray

from nn_uq_dist.basics.checks import is_concrete, warn
from nn_uq_dist.basics.row_algebra import in_squared_units, namespace, products, times_square

type FloatArray = NDArray[np.float64]

# With more numbers a program is faster than NumPy by more than it takes to compile.
_MOST_NUMBERS = 2**18


def runs_in_numpy(*values: object) -> bool:
    """Return whether every array holds numbers now, in the memory of a single device.

    With such numbers NumPy computes without compiling anything. Not while ``jit`` traces: then the
    results of programs are traced, even those of known numbers.
    """
    arrays = [leaf for leaf in jax.tree.leaves(values) if isinstance(leaf, jax.Array)]
    if [a for a in arrays if isinstance(a, Tracer) or len(a.sharding.device_set) > 1]:
        return False
    # A transfer compiles nothing, and its result is traced where operations are recorded for a
    # program. The transfer of an array to where it is already takes the least time.
    return not isinstance(jax.device_put(arrays[0] if arrays else np.float32(0.0)), Tracer)


def evaluated_now(*values: object) -> AbstractContextManager[Any]:
    """Context in which functions of known numbers run now, even while ``jit`` traces.

    Only then does it change anything, and only if all of `values` are known:
    `jax.ensure_compile_time_eval` is a part of the key of every program, so each one that runs
    inside and outside of it would be compiled twice.
    """
    is_traced_now = is_concrete(*values) and not runs_in_numpy()
    return jax.ensure_compile_time_eval() if is_traced_now else nullcontext()


def as_jax(value: Any) -> Any:
    """Return a NumPy array as one of JAX; `jnp.asarray` compiles a copy for each shape.

    It may share the array's memory, so do not pass arrays that are written to afterwards.
    """
    return jax.device_put(np.asarray(value))


def one_program[T](function: Callable[..., T], *, in_own_type: bool = False) -> Callable[..., T]:
    """Return the function, compiled as a whole, or run by NumPy for few known numbers.

    Parameters
    ----------
    function
        A pure function of pytrees of real arrays, for arrays of either library: `namespace` tells
        which. It stands at the level of a module: another function object, such as a lambda, is
        compiled anew.
    in_own_type
        Whether NumPy computes in the types of the arrays, and not in float64: for functions that
        ask what a type can represent.

    Notes
    -----
    If all leaves are NumPy's, so are the results. Known JAX arrays become NumPy's in float64, and
    the results JAX arrays of their common type.
    """

    @wraps(function)
    def evaluate(*trees: Any) -> Any:
        leaves = jax.tree.leaves(trees)
        if not [leaf for leaf in leaves if not isinstance(leaf, np.ndarray | np.generic)]:
            return function(*trees)
        if not runs_in_numpy(leaves) or sum(map(np.size, leaves)) > _MOST_NUMBERS:
            return _compiled(function, *trees)
        dtype = jnp.result_type(*leaves)
        known = jax.tree.map(partial(np.asarray, dtype=None if in_own_type else np.float64), trees)
        with np.errstate(all="ignore"):
            return as_results(function(*known), *leaves, dtype=dtype)

    return evaluate


# What a type can represent is asked of the type itself.
_as_variances = one_program(times_square, in_own_type=True)
as_covariance = one_program(in_squared_units, in_own_type=True)
squares = one_program(products, in_own_type=True)


def as_variances(in_units: Any, unit: Any) -> Any:
    """Variances in these squared units; NaN, and a warning, where their type has no such number."""
    variances = _as_variances(in_units, unit)
    if is_concrete(variances) and (np.isnan(variances) & ~np.isnan(in_units)).any():
        warn(
            f"some variances are NaN, as {variances.dtype} has no numbers as small or as large; "
            f"take standard deviations, or other units"
        )
    return variances


@partial(jax.jit, static_argnums=0)
def _compiled(function: Callable[..., Any], *trees: Any) -> Any:
    return function(*trees)


def as_results(values: Any, *arguments: object, dtype: Any = None) -> Any:
    """NumPy arrays of a pytree as JAX arrays, on the device to which an argument is committed.

    Floats are converted if a type is given.
    """
    # Traced arrays are on no device.
    arrays = [a for a in arguments if isinstance(a, jax.Array) and not isinstance(a, Tracer)]
    device = ([array.device for array in arrays if array.committed] or [None])[0]
    leaves, tree = jax.tree.flatten(values)
    for i, leaf in enumerate(leaves):
        if isinstance(leaf, np.ndarray | np.generic):
            is_float = dtype is not None and np.issubdtype(leaf.dtype, np.floating)
            leaves[i] = jax.device_put(np.asarray(leaf, dtype if is_float else None), device)
    return jax.tree.unflatten(tree, leaves)


def fewest_columns(columns: Array | None) -> Any:
    """Return columns of the same covariance, no more than rows if they are known.

    Images have 150,000 normal variables behind ten outputs.
    """
    if columns is None or columns.shape[-1] <= columns.shape[-2] or not runs_in_numpy(columns):
        return columns
    triangle: Any = np.linalg.qr(np.asarray(columns, np.float64).mT, mode="r").mT
    is_host = namespace(columns) is np
    return triangle if is_host else as_results(triangle, columns, dtype=columns.dtype)


def nan_unless(valid: Any, values: Any) -> Any:
    """Values that are NaN where they are not valid, as their derivatives are.

    Of a selected NaN the derivative would be zero.
    """
    xp = namespace(values)
    return values * xp.where(valid, values.dtype.type(1), xp.nan)


def with_nan_gradients(values: Any) -> Any:
    """The same values, where NaN has the gradient NaN.

    What is selected instead of a value that does not exist has the derivative zero, with which a
    sampler or an optimizer would go on without a word.
    """
    return values if is_concrete(values) else jax.tree.map(_marked, values)


@jax.jit
def _marked(values: Array) -> Any:
    return nan_unless(~jnp.isnan(values), values)


def known_arrays(tree: Any) -> Any:
    """Results of a network as NumPy arrays.

    Raises
    ------
    TypeError
        If the network itself holds traced values.
    """
    if not is_concrete(tree):
        raise TypeError(
            "the network must hold numbers, got outputs with traced values; call it outside of "
            "jit, vmap and grad. Distributions of linearize(network, f) have gradients, such as "
            "those of log_sf"
        )
    return jax.tree.map(np.asarray, tree)


def in_float64(tree: Any) -> Any:
    """Return the same object with NumPy leaves in float64; its values must be known.

    What is computed from the copy stays in NumPy: exact to float64 whatever the precision of JAX
    is, and without a program to compile. `nn_uq_dist.distributions.LinearImage` and all that it is
    made from work on either kind of array; transformations of JAX take the original.
    """
    return jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), tree)


def broadcast(value: ArrayLike, dtype: Any, shape: tuple[int, ...]) -> Array:
    """Return a parameter as an array of this dtype and shape."""
    if isinstance(value, jax.Array):
        # It keeps its device, and its trace.
        return jnp.broadcast_to(jnp.asarray(value, dtype), shape)
    return jnp.asarray(np.broadcast_to(np.asarray(value, dtype), shape))
