"""Choosing outputs: the marginals of some outputs of a batch."""

import inspect
from functools import singledispatch
from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax import Array
from jax.typing import ArrayLike

from nn_uq_dist.laws._normal_scores import from_normal_score


def take_matrix(matrix: Array, rows: tuple[int, ...], columns: tuple[int, ...]) -> Array:
    """The block of a matrix ``(..., N, N)`` with these rows and columns."""
    return matrix[..., np.asarray(rows)[:, None], np.asarray(columns)]


@singledispatch
def take_outputs(marginals: dist.Distribution, indices: tuple[int, ...]) -> dist.Distribution:
    """Return the laws of some outputs, in the order of their indices.

    Parameters
    ----------
    marginals : numpyro.distributions.Distribution
        Univariate, one law along each entry of the last batch axis.
    indices : tuple of int
        From 0 along the last batch axis.

    Raises
    ------
    TypeError
        If the distribution has no method ``take(indices)`` and does not store the arguments of its
        constructor, from which it would be rebuilt.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> import numpyro.distributions as dist
    >>> import nn_uq_dist as nuq
    >>> laws = dist.Normal(jnp.array([1.0, 2.0, 3.0]), 1.0)
    >>> print(nuq.laws.take_outputs(laws, (2, 0)).mean)
    [3. 1.]
    """
    own = getattr(marginals, "take", None)
    return _rebuilt(marginals, indices) if own is None else own(indices)


@take_outputs.register
def _(marginals: dist.ExpandedDistribution, indices: tuple[int, ...]) -> dist.Distribution:
    base = marginals.base_dist
    if base.batch_shape[-1:] == marginals.batch_shape[-1:]:
        base = take_outputs(base, indices)
    return base.expand((*marginals.batch_shape[:-1], len(indices)))


def _rebuilt(marginals: dist.Distribution, indices: tuple[int, ...]) -> dist.Distribution:
    """The same, made anew from the arguments of the constructor.

    NumPyro has no such operation; `arg_constraints` tells which axes of an argument are batch axes.
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
            argument = take_entries(argument, indices, event_dim, batch_shape[-1])
        arguments[name] = argument
    part = type(marginals)(**arguments, validate_args=False)
    return part.expand((*batch_shape[:-1], len(indices)))


def take_entries(
    argument: ArrayLike, indices: tuple[int, ...], event_dim: int, num_outputs: int
) -> ArrayLike:
    """Entries of a parameter along its last batch axis, or the one value for all outputs."""
    axis = jnp.ndim(argument) - event_dim - 1
    if axis < 0 or jnp.shape(argument)[axis] != num_outputs:
        return argument  # one value for all outputs
    return jnp.take(jnp.asarray(argument), np.asarray(indices), axis=axis)


def require_univariate(marginals: object, *, batched: bool = True) -> None:
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
    if batched and not marginals.batch_shape:
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
