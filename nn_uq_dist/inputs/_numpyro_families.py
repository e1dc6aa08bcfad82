"""Families of distributions: what each is as an input, and which have an entry for each input.

A Gaussian family is its mean and arguments of `Input.normal`: scales, a precision or factors.
"""

import math
import operator
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax import Array

from nn_uq_dist.basics import checks
from nn_uq_dist.basics.normal_scores import MIXTURES, Beta, Mixture, missing_functions
from nn_uq_dist.inputs._input import Input

type Shape = tuple[int, ...]
type AsInput = Callable[[Any, Shape], Input]

# By exact type: subclasses may change the distribution.
_INPUTS_OF: dict[type[dist.Distribution], AsInput] = {}


def register_input_family[F: AsInput](family: object) -> Callable[[F], F]:
    """Decorate the function that makes an input from a distribution of this type.

    Parameters
    ----------
    family
        A class of NumPyro distributions. Its subclasses are not registered with it.

    Returns
    -------
    Callable
        Decorator of a function ``(base, shape) -> Input``. It gets a distribution whose type is
        `family`, without the ``.expand(...)`` and ``.to_event(1)`` around it, and the shape
        ``batch_shape + (N_x,)`` to which the mean is to be broadcast. Expansion makes independent
        copies, so it only broadcasts the parameters. Parameters may be traced. Where a
        univariate family is over arrays, ``.to_event(2)``, its parameters come as vectors, last
        axis fastest.

    Raises
    ------
    TypeError
        If `family` is not a class of distributions.

    Examples
    --------
    A logistic distribution, approximated by a normal one of the same variance:

    >>> import jax.numpy as jnp
    >>> import numpyro.distributions as dist
    >>> import nn_uq_dist as nuq
    >>> class RoughlyNormal(dist.Logistic):
    ...     pass
    >>> @nuq.inputs.register_input_family(RoughlyNormal)
    ... def _(base, shape):
    ...     mean = jnp.broadcast_to(base.loc, shape)
    ...     return nuq.Input.normal(mean, base.scale * jnp.pi / jnp.sqrt(3))
    >>> f = nuq.inputs.as_input(RoughlyNormal(jnp.zeros(2), 1.0).to_event(1))
    >>> print(f"{f.variance[0]:.2f}")
    3.29
    """
    if not (isinstance(family, type) and issubclass(family, dist.Distribution)):
        raise TypeError(
            f"family must be a class of NumPyro distributions, got {family!r}; "
            f"decorate with @register_input_family(MyDistribution)"
        )

    def register(function: F) -> F:
        _INPUTS_OF[family] = function
        return function

    return register


def accepted_families() -> str:
    """List what is accepted, for messages."""
    return (
        f"{', '.join(family.__name__ for family in _INPUTS_OF)}, or, by normal scores, any "
        f"univariate continuous family with icdf or cdf, GaussianCopula or "
        f"TransformedDistribution, with .expand(...) and .to_event(1), or an nn_uq_dist.Input"
    )


def of_registered_family(f: dist.Distribution, base: Any) -> Input | None:
    """The vector of a distribution, last axis of its values fastest; None if its family has none.

    Parameters
    ----------
    f
        With expansions and event axes around `base`.
    """
    if type(base) not in _INPUTS_OF:
        return None
    if base.event_dim == 0 and f.event_dim > 1:
        base = _as_vectors(base, f.batch_shape, f.event_shape)
    # Independent vectors, one after the other; univariate variables are one vector.
    split = f.event_dim - base.event_dim if base.event_dim else 0
    several = f.event_shape[:split]
    shape = (*f.batch_shape, *several, math.prod(f.event_shape[split:]))
    vectors = _INPUTS_OF[type(base)](base, shape)
    if vectors.mean.shape != shape:
        raise ValueError(
            f"the input of {type(base).__name__} must have a mean of shape {shape}, got shape "
            f"{vectors.mean.shape}; broadcast it to the shape that the function is given"
        )
    if not several:
        return vectors
    batch = (slice(None),) * len(f.batch_shape)
    places = [operator.itemgetter((*batch, *place)) for place in np.ndindex(*several)]
    return Input.join(*(jax.tree.map(place, vectors) for place in places))


def _as_vectors(base: Any, batch_shape: Shape, event_shape: Shape) -> Any:
    """A univariate distribution over arrays with its parameters as vectors; scalars stay."""

    def flat(leaf: Any) -> Any:
        if jnp.ndim(leaf) == 0:
            return leaf
        return jnp.broadcast_to(leaf, batch_shape + event_shape).reshape(*batch_shape, -1)

    return jax.tree.map(flat, base)


def _mean(value: Any, shape: Shape, axes: int) -> Array:
    """A mean with so many last axes joined to one, broadcast."""
    # What `Input` has not seen as it was given it cannot check.
    checks.require_in_range("mean", value, checks.float_dtype(value))
    array = jnp.asarray(value)
    if axes > 1:
        array = array.reshape(*array.shape[:-axes], -1)
    return jnp.broadcast_to(array, shape)


@register_input_family(dist.Uniform)
def _uniform(base: dist.Uniform, shape: Shape) -> Input:
    low, high = base.low, base.high
    if checks.is_concrete(low, high) and np.any(np.asarray(low) > np.asarray(high)):
        raise ValueError(
            f"low must not be above high, got low {low} and high {high}; swap them, or pass "
            f"Uniform(mean - half_width, mean + half_width)"
        )
    # In floats, and by halves: sums of bytes, of short integers and of half floats overflow.
    low, high = low * 0.5, high * 0.5
    return Input.box(_mean(low + high, shape, 0), high - low)


@register_input_family(dist.Delta)
def _delta(base: dist.Delta, shape: Shape) -> Input:
    return Input.known(_mean(base.v, shape, base.event_dim))


def _state_factor(base: dist.GaussianStateSpace, size: int) -> Array:
    # What each variable of the noise of each step makes of all states.
    root, steps = base.scale_tril, base.num_steps
    unit = jnp.eye(size, dtype=root.dtype).reshape(size, *(1,) * (root.ndim - 2), steps, -1)
    states = dist.transforms.RecursiveLinearTransform(base.transition_matrix)(unit @ root.mT)
    return jnp.moveaxis(states.reshape(*states.shape[:-2], size), 0, -1)


def _circulant_factor(base: dist.CirculantNormal, size: int) -> Array:
    # The symmetric root of a circulant matrix is circulant, too, and has all its digits where the
    # covariance is nearly singular.
    row = jnp.fft.irfft(jnp.sqrt(base.covariance_rfft), n=size)
    return row[..., (jnp.arange(size)[:, None] - jnp.arange(size)) % size]


def _kronecker_factor(base: dist.MatrixNormal, size: int) -> Array:
    rows, columns = base.scale_tril_row, base.scale_tril_column
    product = rows[..., :, None, :, None] * columns[..., None, :, None, :]
    return product.reshape(*product.shape[:-4], size, size)


# Arguments of `Input.normal` for a distribution of so many numbers. Several are independent terms.
_GAUSSIAN: dict[type[dist.Distribution], Callable[[Any, int], dict[str, Any]]] = {
    dist.Normal: lambda base, _: {"scale": base.scale},
    dist.MultivariateNormal: lambda base, _: {"scale_tril": base.scale_tril},
    dist.LowRankMultivariateNormal: lambda base, _: {
        "scale": jnp.sqrt(base.cov_diag),
        "factor": base.cov_factor,
    },
    dist.CAR: lambda base, _: {"precision_matrix": base.precision_matrix},
    dist.GaussianStateSpace: lambda base, size: {"factor": _state_factor(base, size)},
    dist.CirculantNormal: lambda base, size: {"factor": _circulant_factor(base, size)},
    dist.MatrixNormal: lambda base, size: {"factor": _kronecker_factor(base, size)},
}


def _gaussian(base: Any, shape: Shape) -> Input:
    mean = _mean(base.loc if hasattr(base, "loc") else base.mean, shape, base.event_dim)
    zeros = jnp.zeros(shape, checks.float_dtype(mean))
    parts = _GAUSSIAN[type(base)](base, shape[-1]).items()
    terms = [term for name, value in parts for term in Input.normal(zeros, **{name: value}).terms]
    return Input(mean, terms).checked_for_rounding()


_INPUTS_OF |= dict.fromkeys(_GAUSSIAN, _gaussian)


@register_input_family(dist.GaussianRandomWalk)
def _random_walk(base: dist.GaussianRandomWalk, shape: Shape) -> Input:
    scale = jnp.asarray(base.scale, jnp.result_type(float, base.scale))[..., None, None]
    steps = jnp.tri(shape[-1], dtype=scale.dtype)
    return Input.normal(jnp.zeros(shape, scale.dtype), factor=scale * steps)


def unwrapped(f: Any) -> Any:
    """Return a distribution without expansions and event axes around it."""
    while isinstance(f, dist.Independent | dist.ExpandedDistribution):
        f = f.base_dist
    return f


def has_quantiles_entrywise(family: Any) -> bool:
    """Whether a family has quantiles, and arrays with an entry for each value alone."""
    # A distribution that was rebuilt from its parameters may have lost its support.
    support = family.support
    if family.event_dim != 0 or (support is not None and support.is_discrete):
        return False
    missing = missing_functions(family)
    if "icdf" in missing or "support" in missing:
        return False
    axes = len(family.batch_shape)
    parts = jax.tree.leaves(family, is_leaf=_is_special)
    return all(
        all(map(has_quantiles_entrywise, map(unwrapped, Mixture.of(part).parts)))
        if isinstance(part, MIXTURES)
        else isinstance(part, dist.Beta) or jnp.ndim(part) <= axes
        for part in parts
    )


def _is_special(part: Any) -> bool:
    """Whether arrays of a distribution have axes of their own: shares, or shapes kept twice."""
    return isinstance(part, dist.Beta | MIXTURES)


def entrywise(parameters: Any, shape: Shape) -> Any:
    """A pytree of parameters broadcast to one for each entry, as floats."""

    def one_each(part: Any) -> Any:
        if isinstance(part, dist.Beta):
            return entrywise(Beta(part.concentration1, part.concentration0), shape)
        if isinstance(part, MIXTURES):
            mixture = Mixture.of(part)
            each = (*shape, mixture.log_shares.shape[-1])
            components = (
                tuple(entrywise(component, shape) for component in mixture.components)
                if isinstance(mixture.components, tuple)
                else entrywise(mixture.components, each)
            )
            return Mixture(entrywise(mixture.log_shares, each), components)
        dtype = checks.float_dtype(part)
        checks.require_in_range("parameters", part, dtype)
        return jnp.broadcast_to(jnp.asarray(part, dtype), shape)

    return jax.tree.map(one_each, unwrapped(parameters), is_leaf=_is_special)
