"""What objects print: a line of class, types and shapes for `repr`, small tables for ``print``."""

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

_MOST_CHARACTERS, _MOST_ROWS, _LONGEST_NAME = 160, 20, 40


def summary_line(instance: Any, *names: str) -> str:
    """``Class(name=float32[3, 2], ...)``, by default of all fields of a dataclass or a named tuple.

    Objects are shown by their class, single numbers by their value. Fields that are ``None`` are
    left out, and so are those that do not fit on the line.
    """
    line = f"{type(instance).__name__}("
    separator = ""
    for name in names or _names(instance):
        value = getattr(instance, name)
        if value is None:
            continue
        part = f"{separator}{name.removeprefix('_')}={_summary_of(value)}"
        if len(line) + len(part) > _MOST_CHARACTERS:
            return f"{line}{separator}...)"
        line, separator = line + part, ", "
    return f"{line})"


def _names(instance: Any) -> tuple[str, ...]:
    fields: tuple[str, ...] | None = getattr(instance, "_fields", None)
    return fields or tuple(field.name for field in dataclasses.fields(instance))


def _summary_of(value: Any) -> str:
    if isinstance(value, str | bool | int | float):
        return repr(value)
    if isinstance(value, jax.Array | np.ndarray | np.generic):
        return _array_summary(value)
    if type(value) is tuple and all(type(part) is int for part in value):
        return repr(value)  # a shape
    if type(value) in {tuple, list} and len(value) <= 4:
        return f"({', '.join(_summary_of(part) for part in value)})"
    if type(value) in {tuple, list, dict}:
        return f"<{len(value)} entries>"
    return type(value).__name__


def _array_summary(array: Any) -> str:
    shape, dtype = np.shape(array), array.dtype
    is_known = not isinstance(array, jax.core.Tracer) and jnp.issubdtype(dtype, np.number)
    if not shape and is_known and getattr(array, "is_fully_addressable", True):
        return f"{array:.6g}"
    return f"{dtype}[{', '.join(str(size) for size in shape)}]"


def described_line(instance: object, describe: Callable[[], tuple[str, dict[str, object]]]) -> str:
    """``Class(words, size=3, ...)``: what an object says of itself, no arrays.

    Parameters
    ----------
    instance
        The object, for its class.
    describe
        Returns words and sizes. It may fail: JAX rebuilds pytrees with placeholders for arrays and
        shows these in its own messages, and a `repr` must not hide them by an error.
    """
    name = type(instance).__name__
    try:
        words, sizes = describe()
    except (AttributeError, TypeError, IndexError, ValueError):
        return f"{name}(...)"
    parts = [words] if words else []
    parts += [f"{size}={value}" for size, value in sizes.items()]
    return f"{name}({', '.join(parts)})"


def to_error(values: Any, errors: Any) -> list[str]:
    """Numbers with three digits, or as many as there are to a tenth of their errors."""
    texts = []
    for value, error in zip(np.ravel(values).tolist(), np.ravel(errors).tolist(), strict=True):
        ratio = abs(value) / error if error > 0 else 0.0
        digits = math.ceil(math.log10(ratio)) + 1 if 0 < ratio < math.inf else 3
        texts.append(f"{value:.{min(max(digits, 3), 15)}g}")
    return texts


def number_table(headings: tuple[str, ...], names: list[str], *columns: Any) -> str:
    """Rows of a name and numbers with three digits, the first twenty, with headings above.

    Parameters
    ----------
    headings
        One for the names, and one for each column.
    names
        A name for each row; long ones are cut.
    *columns
        Numbers or texts for each row.
    """
    rows = [headings]
    for name, *values in list(zip(names, *columns, strict=True))[:_MOST_ROWS]:
        cells = (value if isinstance(value, str) else f"{value:.3g}" for value in values)
        is_long = len(name) > _LONGEST_NAME
        rows.append((f"{name[: _LONGEST_NAME - 3]}..." if is_long else name, *cells))
    first, *others = (max(map(len, column)) for column in zip(*rows, strict=True))
    lines = []
    for name, *texts in rows:
        right = "".join(f"  {text:>{n}}" for text, n in zip(texts, others, strict=True))
        lines.append(f"{name:<{first}}{right}".rstrip())
    if len(names) > _MOST_ROWS:
        lines.append(f"... and {len(names) - _MOST_ROWS} more")
    return "\n".join(lines)
