"""Checks of arguments: a message says the name, what was expected, what came, and the remedy."""

import contextlib
import functools
import importlib
import operator
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
from jax.typing import ArrayLike

# Not the line of a user: in this package, or in one that calls it.
_LIBRARIES = tuple(
    str(Path(place).parent) for place in (Path(__file__).parent, numpyro.__file__, jax.__file__)
)
# What to do where float32 has too few digits, or too small a range.
USE_FLOAT64 = "call jax.config.update('jax_enable_x64', True) before any numbers are made"


def warn(message: str, category: type[Warning] = RuntimeWarning) -> None:
    """Warn of numbers that are missing, at the line of the user."""
    warnings.warn(message, category, skip_file_prefixes=_LIBRARIES)


def is_concrete(*values: object) -> bool:
    """Return whether every array in `values` has known numbers and is not traced by JAX."""
    return not [leaf for leaf in jax.tree.leaves(values) if isinstance(leaf, jax.core.Tracer)]


def as_numeric(name: str, value: ArrayLike) -> ArrayLike:
    """Return `value` as an array or Python scalar of real numbers; raise ``TypeError`` otherwise.

    Python scalars are kept, so that they stay weakly typed in the promotion that follows.
    """
    if isinstance(value, bool | int | float):
        return value
    expected = f"{name} must be an array of real numbers"
    remedy = "pass an array of floats (integers are promoted), such as the leaves of a dict"
    if not isinstance(value, jax.Array | np.ndarray | np.generic):
        try:
            value = jnp.asarray(value)
        except (TypeError, ValueError) as error:
            raise TypeError(f"{expected}, got {type(value).__name__}; {remedy}") from error
    kinds = jnp.floating, jnp.integer, jnp.bool_
    if not [kind for kind in kinds if jnp.issubdtype(value.dtype, kind)]:
        raise TypeError(f"{expected}, got dtype {value.dtype}; {remedy}")
    return value


def in_type(value: Any, dtype: Any) -> Any:
    """Convert Python numbers, and lists of them, to this type; arrays keep their own."""
    leaves = jax.tree.leaves(value) if isinstance(value, list | tuple) else [value]
    if leaves and {type(leaf) for leaf in leaves} <= {bool, int, float}:
        # A ragged list stays a list, which `as_numeric` rejects with the name of the argument.
        with contextlib.suppress(ValueError, TypeError):
            return np.asarray(value, dtype)
    return value


def float_dtype(*values: object, least_bits: int = 0) -> jnp.dtype:
    """Return the dtype that JAX promotion gives to `values`; JAX's default float for integers."""
    # Integers change no type of floats. Strict promotion would refuse them.
    floats = [value for value in values if jnp.issubdtype(jnp.result_type(value), jnp.floating)]
    # The parts are then converted, which strict promotion allows.
    with jax.numpy_dtype_promotion("standard"):
        dtype = jnp.result_type(*floats or [float])
    return dtype if jnp.finfo(dtype).bits >= least_bits else jnp.dtype(jnp.float32)


# The type, or single precision instead of half.
at_least_single = functools.partial(float_dtype, least_bits=32)


def rounded(name: str, value: ArrayLike, dtype: Any) -> np.ndarray:
    """Round numbers to a floating-point type, and return them in float64.

    A limit of 0.1 is to be compared with outputs in single precision, where the number nearest to
    0.1 lies above it: outputs that are 0.1 would all exceed the limit in double precision.
    """
    return np.asarray(as_numeric(name, value)).astype(dtype).astype(np.float64)


def require_extra(module: str, purpose: str) -> ModuleType:
    """Import an optional dependency, or say which extra installs it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ImportError(
            f"{purpose} needs {module}; install the extra with `pip install 'nn_uq_dist[viz]'`"
        ) from error


def require_finite(
    name: str,
    value: object,
    remedy: str = "remove or replace such entries",
    axes: Callable[[], tuple[Sequence[str], ...]] = tuple,
) -> None:
    """Raise ``ValueError`` if concrete `value` holds NaN or infinity.

    `axes` returns names of the entries along the last axes.
    """
    refuse(name, value, np.isfinite, "be finite", remedy, axes)


def as_finite(name: str, value: ArrayLike) -> ArrayLike:
    """Return an array or a scalar of real numbers, finite where they are known."""
    value = as_numeric(name, value)
    require_finite(name, value)
    return value


def as_vectors(
    name: str,
    value: ArrayLike,
    axis: str,
    size: int,
    remedy: str,
    batch_shape: tuple[int, ...] = (),
) -> ArrayLike:
    """Return real numbers whose last axis has this size, and whose others fit the batch.

    Parameters
    ----------
    name, value
        The argument.
    axis, size
        Name of the last axis in messages, and its size.
    remedy
        For another size.
    batch_shape
        What the leading axes are to broadcast against.
    """
    value = as_numeric(name, value)
    shape = np.shape(value)
    if shape[-1:] != (size,):
        raise ValueError(
            f"{name} must have shape (..., {axis}) with {axis} = {size}, got shape {shape}; "
            f"{remedy}"
        )
    broadcast_shapes(
        f"the leading axes of {name} must broadcast against the batch shape",
        **{name: shape[:-1], "batch_shape": batch_shape},
    )
    return value


def require_in_range(name: str, value: object, dtype: Any) -> None:
    """Raise ``ValueError`` if known finite numbers are infinite in this type."""
    most = float(jnp.finfo(dtype).max)

    def fits(numbers: np.ndarray) -> Any:
        size = np.abs(numbers.astype(np.float64))
        return ~(size > most) | (size == np.inf)

    expected = f"be at most {most:.2g} in size, as {dtype} numbers are"
    refuse(name, value, fits, expected, f"change units, or {USE_FLOAT64}")


def require_nonnegative(name: str, value: object, remedy: str) -> None:
    """Raise ``ValueError`` if concrete `value` holds a negative entry."""
    refuse(name, value, lambda numbers: ~(numbers < 0), "not be negative", remedy)


def require_probabilities(name: str, value: ArrayLike) -> None:
    """Raise ``ValueError`` if concrete `value` holds a number outside of [0, 1]."""
    refuse(
        name,
        as_numeric(name, value),
        lambda numbers: ~((numbers < 0) | (numbers > 1)),
        "be probabilities in [0, 1]",
        "pass fractions such as 0.95, not percentages",
    )


def refuse(
    name: str,
    value: object,
    is_right: Callable[[np.ndarray], Any],
    expected: str,
    remedy: str,
    axes: Callable[[], tuple[Sequence[str], ...]] = tuple,
) -> None:
    """Raise ``ValueError`` that shows the first wrong entry of a concrete value.

    Parameters
    ----------
    name, value
        The argument; a traced one is let through.
    is_right
        Maps its numbers to a mask.
    expected, remedy
        What follows "must" in the message, and what it ends with.
    axes
        Returns names of the entries along the last axes.
    """
    if isinstance(value, jax.core.Tracer):
        return
    numbers = np.asarray(value)
    right = is_right(numbers)
    if not np.all(right):
        index = first_index(~right)
        place = f" at index {index}" if index else ""  # a single number needs none
        if named := axes():
            last = zip(named, index[-len(named) :], strict=True)
            place += f" ({', '.join([names[i] for names, i in last])})"
        raise ValueError(f"{name} must {expected}, got {numbers[index]}{place}; {remedy}")


def first_index(mask: np.ndarray) -> tuple[int, ...]:
    """Return the index of the first true entry of `mask` as a tuple of Python integers."""
    return tuple(np.argwhere(mask)[0].tolist())


def broadcast_shapes(expected: str, **shapes: tuple[int, ...]) -> tuple[int, ...]:
    """Broadcast named shapes, or raise ``ValueError`` that lists them and states `expected`."""
    try:
        return jnp.broadcast_shapes(*shapes.values())
    except ValueError as error:
        listed = ", ".join(f"{name} {shape}" for name, shape in shapes.items())
        raise ValueError(f"{expected}, got {listed}; make the leading axes agree or 1") from error


def positive_int(name: str, value: Any, maximum: int | None = None, *, minimum: int = 1) -> int:
    """Return `value` as a Python integer from `minimum` to `maximum`."""
    try:
        number = operator.index(value)
    except TypeError as error:
        raise TypeError(
            f"{name} must be a positive integer, got {_shown(value)}; "
            f"pass an int, without quotes or a decimal point"
        ) from error
    if isinstance(value, bool) or number < minimum:
        least = "a positive integer" if minimum == 1 else f"at least {minimum}"
        raise ValueError(f"{name} must be {least}, got {value!r}; pass at least {minimum}")
    if maximum is not None and number > maximum:
        raise ValueError(
            f"{name} must be at most {maximum}, got {number}; split the work over several keys"
        )
    return number


def _shown(value: object) -> str:
    """The type, and what is not longer than a few words."""
    line = repr(value)
    return type(value).__name__ + (f" {line}" if len(line) < 30 and line[0] != "<" else "")


def as_key(name: str, key: Any) -> jax.Array:
    """Return a single JAX random key, typed; accepts typed keys and legacy ``uint32`` ones."""
    remedy = "pass one key, such as jax.random.key(0)"
    dtype = getattr(key, "dtype", None)
    if dtype is None or not hasattr(key, "shape"):
        raise TypeError(f"{name} must be a JAX random key, got {_shown(key)}; {remedy}")
    if not jnp.issubdtype(dtype, jax.dtypes.prng_key):
        if dtype != np.uint32 or key.ndim != 1:
            raise TypeError(
                f"{name} must be a JAX random key, got an array of shape {key.shape} and dtype "
                f"{dtype}; {remedy}"
            )
        typed: jax.Array = jax.random.wrap_key_data(jnp.asarray(key))
        return typed
    if key.shape != ():
        raise ValueError(
            f"{name} must be one random key, got an array of keys of shape {key.shape}; {remedy}"
        )
    return jnp.asarray(key)


def as_sampling(key: Any, sample_shape: Any) -> tuple[jax.Array, tuple[int, ...]]:
    """Return the arguments of a method `sample`, checked."""
    if np.ndim(sample_shape) != 1:
        got = _shown(sample_shape)
        raise TypeError(f"sample_shape must be a tuple, got {got}; pass (10,) for ten draws")
    sizes = [positive_int("sample_shape", size, minimum=0) for size in sample_shape]
    return as_key("key", key), tuple(sizes)


def third_is_key[**P, T](function: Callable[P, T]) -> Callable[P, T]:
    """Check that the third argument is a random key before Python counts the arguments.

    A call without a key has the number of draws in its place, and an argument too few.
    """

    @functools.wraps(function)
    def checked(*args: P.args, **kwargs: P.kwargs) -> T:
        if len(args) > 2:
            as_key("key", args[2])
        return function(*args, **kwargs)

    return checked


def as_indices(
    indices: Any,
    num_outputs: int,
    name: str = "indices",
    names: Sequence[str] = (),
) -> tuple[int, ...]:
    """Return output indices as non-negative Python integers, checked to be known and distinct.

    Parameters
    ----------
    indices
        One integer or several, each from ``-num_outputs`` to ``num_outputs - 1``.
    num_outputs
        How many outputs there are.
    name
        Of the argument, for the messages.
    names
        Of the outputs, if they may be given in place of indices.

    Raises
    ------
    TypeError
        If an index is not an integer.
    ValueError
        If there is none, or one is out of range or named twice.
    """
    places = f"from 0 to {num_outputs - 1}" if num_outputs > 1 else "0, of one output"
    remedy = f"pass positions {places}"
    if names:
        remedy += f" or names out of {', '.join(names)}"
    positions: list[int] = []
    for index in [indices] if np.ndim(indices) == 0 else list(indices):
        number: Any = names.index(index) if isinstance(index, str) and index in names else index
        if isinstance(number, bool | np.bool_):  # a mask would pass for the indices 0 and 1
            number = None
        try:
            number = operator.index(number)
        except TypeError:
            got = f"got {index!r} ({type(index).__name__})"
            raise TypeError(f"{name} must be known integers, {got}; {remedy}") from None
        if not -num_outputs <= number < num_outputs:
            raise ValueError(f"{name} must be {places}, got {number}; {remedy}")
        if (position := number % num_outputs) in positions:
            raise ValueError(f"{name} must be distinct, got {position} twice; {remedy}")
        positions.append(position)
    if not positions:
        raise ValueError(f"{name} must name at least one output, got none; {remedy}")
    return tuple(positions)


def as_index(output: int | str | None, num_outputs: int, names: Sequence[str] = ()) -> int:
    """Return the index of one output, checked as by `as_indices`; None is the only one."""
    if output is None and num_outputs > 1:
        which = f"one of {', '.join(names)}" if names else f"from 0 to {num_outputs - 1}"
        example = names[0] if names else 0
        raise ValueError(f"output must be {which}, got None; pass output={example!r} or so")
    positions = as_indices(0 if output is None else output, num_outputs, "output", names)
    if len(positions) > 1:
        raise ValueError(f"output must be one output, got {len(positions)}; call it for each")
    return positions[0]


def require_order(name: str, value: Any, names: Sequence[str]) -> None:
    """Raise ``ValueError`` if an array has the names of the outputs as labels in another order.

    The labels are those of the last axis, of pandas or xarray.
    """
    labels = getattr(value, "columns", getattr(value, "index", None))
    if hasattr(value, "coords") and value.ndim:
        labels = value.coords.get(value.dims[-1])
    if labels is None or callable(labels):  # lists and tuples have a method `index`
        return
    texts = [str(label) for label in np.asarray(labels).ravel()]
    if texts != [*names] and sorted(texts) == sorted(names):
        raise ValueError(
            f"{name} must have the outputs in the order {', '.join(names)}, got labels in the "
            f"order {', '.join(texts)}; reorder them"
        )


def not_differentiable[T](message: str) -> Callable[[T], T]:
    """Return the identity of a pytree; its differentiation raises ``NotImplementedError``.

    For values of which a derivative would be wrong, or is not defined.
    """

    @jax.custom_jvp
    def same(values: T) -> T:
        return values

    @same.defjvp
    def refuse(primals: tuple[Any], tangents: tuple[Any]) -> tuple[Any, Any]:
        raise NotImplementedError(message)

    return same
