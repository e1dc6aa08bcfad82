"""The points of a batch in tables and trees: their dimensions, their rows, their names."""

from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any

from nn_uq_dist.diagnostics._arguments import require_extra


def point_dims(batch_shape: Sequence[int]) -> list[str]:
    """Names of the batch axes: none, ``point``, or ``point_0``, ``point_1``, ..."""
    rank = len(batch_shape)
    return ["point"] if rank == 1 else [f"point_{axis}" for axis in range(rank)]


def point_coordinates(batch_shape: Sequence[int]) -> dict[str, range]:
    """The positions along each batch axis."""
    return dict(zip(point_dims(batch_shape), map(range, batch_shape), strict=True))


def points(batch_shape: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """The indices of the points in order: one empty index if there is no batch."""
    return product(*map(range, batch_shape))


def flat_names(batch_shape: Sequence[int], names: Sequence[str]) -> list[str]:
    """One text for each output of each point, for messages."""
    if not batch_shape:
        return list(names)
    return [
        f"{name} of point {', '.join(map(str, point))}"
        for point in points(batch_shape)
        for name in names
    ]


def row_index(batch_shape: Sequence[int], names: Sequence[str]) -> Any:
    """The index of a table with a row for each output of each point."""
    pandas = require_extra("pandas", "a table")
    if not batch_shape:
        return pandas.Index(names, name="output")
    levels = [*map(range, batch_shape), names]
    return pandas.MultiIndex.from_product(levels, names=[*point_dims(batch_shape), "output"])
