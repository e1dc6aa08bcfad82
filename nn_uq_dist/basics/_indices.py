"""Indices of outputs: known, distinct integers, also counted from the end."""

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np


def as_indices(
    indices: int | Sequence[int], num_outputs: int, name: str = "indices"
) -> tuple[int, ...]:
    """Return output indices as non-negative Python integers, checked to be known and distinct.

    Parameters
    ----------
    indices
        One index or several, each from ``-num_outputs`` to ``num_outputs - 1``.
    num_outputs
        How many outputs there are.
    name
        Of the argument, for the messages.

    Raises
    ------
    TypeError
        If an index is not an integer.
    ValueError
        If there is none, or one is out of range or named twice.
    """
    remedy = f"pass distinct integers from 0 to {num_outputs - 1}, such as (0,)"
    given: list[Any] = [indices] if np.ndim(indices) == 0 else list(indices)  # type: ignore[arg-type]
    numbers = []
    for index in given:
        try:
            # A mask of booleans would pass for the indices 0 and 1.
            number = None if isinstance(index, bool | np.bool_) else operator.index(index)
        except TypeError:
            number = None
        if number is None:
            raise TypeError(
                f"{name} must be known integers, got {index!r} ({type(index).__name__}); {remedy}"
            )
        numbers.append(number)
    if not numbers:
        raise ValueError(f"{name} must name at least one output, got none; {remedy}")
    for number in numbers:
        if not -num_outputs <= number < num_outputs:
            raise ValueError(
                f"{name} must name outputs of {num_outputs}, got unknown index {number}; {remedy}"
            )
    positions = [number % num_outputs for number in numbers]
    for position in positions:
        if positions.count(position) > 1:
            raise ValueError(f"{name} must be distinct, got {position} twice; {remedy}")
    return tuple(positions)
