"""Columns and sizes of several independent parts, side by side."""

from collections.abc import Iterable
from functools import reduce
from typing import Any

from jax import Array

from nn_uq_dist.basics._row_algebra import namespace

type Columns = tuple[Array | None, Array | None]


def total(terms: Iterable[Array]) -> Array:
    """Sum of arrays of JAX or of NumPy."""
    return reduce(lambda a, b: a + b, terms)


def joined(columns: Iterable[Array | None]) -> Array | None:
    """Join along the last axis what is there."""
    given = [part for part in columns if part is not None]
    if not given:
        return None
    result: Array = given[0] if len(given) == 1 else namespace(*given).concatenate(given, axis=-1)
    return result


def joined_columns(parts: Iterable[Columns]) -> Columns:
    """Join uniform columns and normal columns; None where no part has any."""
    uniform, normal = zip(*parts, strict=True)
    return joined(uniform), joined(normal)


def joined_or_zero(parts: list[Array | None], means: list[Array]) -> Array | None:
    """Join vectors along the last axis, zeros for those that are None; None if all are."""
    if all(part is None for part in parts):
        return None
    xp: Any = namespace(*means)
    filled = [
        xp.zeros_like(mean) if part is None else part
        for part, mean in zip(parts, means, strict=True)
    ]
    result: Array = xp.concatenate(filled, axis=-1)
    return result
