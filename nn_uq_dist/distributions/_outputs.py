"""Choosing outputs: checked indices, and the marginals of some outputs of a batch."""

import inspect
import operator
from collections.abc import Sequence
from functools import singledispatch
from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax import Array
from jax.typing import ArrayLike

from nn_uq_dist.distributions._marginal import LinearizedMarginal
from nn_uq_dist.distributions._univariate import from_normal_score


def as_indices(indices: int | Sequence[int], num_outputs: int) -> tuple[int, ...]:
    """Return output indices as non-negative Python integers, checked to be known and distinct.

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
                f"indices must be known integers, got {index!r} ({type(index).__name__}); {remedy}"
            )
        numbers.append(number)
    if not numbers:
        raise ValueError(f"indices must name at least one output, got none; {remedy}")
    for number in numbers:
        if not -num_outputs <= number < num_outputs:
            raise ValueError(
                f"indices must name outputs of {num_outputs}, got unknown index {number}; {remedy}"
            )
    positions = [number % num_outputs for number in numbers]
    for position in positions:
        if positions.count(position) > 1:
            raise ValueError(f"indices must be distinct, got {position} twice; {remedy}")
    return tuple(positions)


def take_matrix(matrix: Array, rows: tuple[int, ...], columns: tuple[int, ...]) -> Array:
    """The block of a matrix ``(..., N, N)`` with these rows and columns."""
    return matrix[..., np.asarray(rows)[:, None], np.asarray(columns)]


@singledispatch
def take_outputs(marginals: dist.Distribution, indices: tuple[int, ...]) -> dist.Distribution:
    """The marginals of some outputs: ``indices`` along the last batch axis.

    NumPyro has no such operation. The distribution is made anew from the arguments of its
    constructor; `arg_constraints` tells which axes of an argument are batch axes.
    """
    batch_shape = marginals.batch_shape
    arguments: dict[str, Any] = {}
    for name in inspect.signature(type(marginals).__init__).parameters:
        if name in ("self", "validate_args"):
            continue
        if name not in marginals.__dict__:
            raise TypeError(
                f"marginals must keep the arguments of their constructor to be indexed, got "
                f"{type(marginals).__name__} without {name}; make the joint of the wanted outputs"
            )
        argument = getattr(marginals, name)
        if isinstance(argument, dist.Distribution):
            argument = take_outputs(argument, indices) if argument.batch_shape else argument
        elif name in marginals.arg_constraints:
            event_dim = marginals.arg_constraints[name].event_dim
            argument = _take(argument, indices, event_dim, batch_shape[-1])
        arguments[name] = argument
    part = type(marginals)(**arguments, validate_args=False)
    return part.expand((*batch_shape[:-1], len(indices)))


@take_outputs.register
def _(marginals: LinearizedMarginal, indices: tuple[int, ...]) -> dist.Distribution:
    num_outputs = marginals.batch_shape[-1]
    scale = marginals._scale  # noqa: SLF001 (None where the type has no normal part)
    return LinearizedMarginal(
        _take(jnp.broadcast_to(marginals.loc, marginals.batch_shape), indices, 0, num_outputs),
        _take(marginals.weights, indices, 1, num_outputs),
        None if scale is None else _take(scale, indices, 0, num_outputs),
        validate_args=False,
    )


@take_outputs.register
def _(marginals: dist.ExpandedDistribution, indices: tuple[int, ...]) -> dist.Distribution:
    base = marginals.base_dist
    if base.batch_shape[-1:] == marginals.batch_shape[-1:]:
        base = take_outputs(base, indices)
    return base.expand((*marginals.batch_shape[:-1], len(indices)))


def _take(
    argument: ArrayLike, indices: tuple[int, ...], event_dim: int, num_outputs: int
) -> ArrayLike:
    axis = jnp.ndim(argument) - event_dim - 1
    if axis < 0 or jnp.shape(argument)[axis] != num_outputs:
        return argument  # one value for all outputs
    return jnp.take(jnp.asarray(argument), np.asarray(indices), axis=axis)


def require_univariate(marginals: object) -> None:
    """Raise unless ``marginals`` are univariate continuous laws along the last batch axis."""
    if not isinstance(marginals, dist.Distribution):
        raise TypeError(
            f"marginals must be a NumPyro distribution, got {type(marginals).__name__}; pass a "
            f"LinearizedMarginal or another univariate one with cdf and icdf"
        )
    name = type(marginals).__name__
    if marginals.event_shape:
        raise TypeError(
            f"marginals must be univariate, got {name} with event_shape {marginals.event_shape}; "
            f"give one law per output along the last batch axis, without to_event"
        )
    if marginals.is_discrete:
        raise TypeError(
            f"marginals must be continuous, got the discrete {name}; a discrete output has no "
            f"normal score"
        )
    if not marginals.batch_shape:
        raise ValueError(
            f"marginals must have batch_shape (..., N_y), got () from {name}; use "
            f".expand((N_y,)) for outputs of one law"
        )
    missing = _missing_function(marginals)
    if missing:
        raise TypeError(
            f"marginals must have cdf and icdf, got {name} without {missing}; pass a "
            f"LinearizedMarginal or another univariate distribution with both"
        )


def _missing_function(marginals: dist.Distribution) -> str | None:
    """Name of a function that normal scores need and these marginals lack."""
    if from_normal_score.dispatch(type(marginals)) is from_normal_score.dispatch(object):
        for name in ("cdf", "icdf"):
            if getattr(type(marginals), name) is getattr(dist.Distribution, name):
                return name
    if isinstance(marginals, dist.ExpandedDistribution | dist.TransformedDistribution):
        return _missing_function(marginals.base_dist)
    return None


def with_rank(marginals: dist.Distribution, rank: int) -> dist.Distribution:
    """The same laws with axes of size 1 in front, so that ``batch_shape`` has this length."""
    missing = rank - len(marginals.batch_shape)
    return marginals.expand((1,) * missing + marginals.batch_shape) if missing > 0 else marginals
