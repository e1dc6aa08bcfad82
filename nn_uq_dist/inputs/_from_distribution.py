"""How one distribution becomes an input: a vector, and a map from the vector to its values.

The vector is that of a registered family, exact, or that of the base of a transform.
"""

import math
import operator
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax import Array

from nn_uq_dist.basics import checks
from nn_uq_dist.basics._solved_quantiles import Beta
from nn_uq_dist.basics.normal_scores import missing_functions
from nn_uq_dist.inputs._input import Input
from nn_uq_dist.inputs._input_map import FromNormalScores, InputMap, Step

_WRAPPERS = (dist.Independent, dist.ExpandedDistribution)

# Univariate families with quantiles, for messages.
BY_SCORES = (
    "LogNormal, Gamma, Beta, StudentT, TruncatedNormal, AsymmetricLaplace, BetaProportion, Cauchy, "
    "Chi2, Dagum, DoublyTruncatedPowerLaw, Exponential, Gompertz, Gumbel, HalfCauchy, HalfNormal, "
    "InverseGamma, Laplace, Levy, Logistic, LogUniform, LowerTruncatedPowerLaw, Pareto, "
    "RelaxedBernoulli, SoftLaplace, TruncatedCauchy, TruncatedGamma, Weibull"
)

type Shape = tuple[int, ...]
type AsInput = Callable[[Any, Shape], Input]

# By exact type: subclasses may change the distribution.
_FAMILIES: dict[type[dist.Distribution], AsInput] = {}


class UnsupportedFamilyError(TypeError):
    """A distribution that can be sampled, but that `linearize` does not accept."""


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
        _FAMILIES[family] = function
        return function

    return register


def accepted_families() -> str:
    """List what is accepted, for messages."""
    own = [family.__name__ for family in _FAMILIES if family.__module__.startswith("numpyro.")]
    added = [family.__name__ for family in _FAMILIES if family.__name__ not in own]
    return (
        f"{', '.join(own)} of NumPyro, or, by normal scores, {BY_SCORES}, GaussianCopula or "
        f"TransformedDistribution, with .expand(...) and .to_event(1), "
        + (f"a registered family ({', '.join(added)}), " if added else "")
        + "or an nn_uq_dist.Input"
    )


def unwrapped(f: dist.Distribution) -> Any:
    """Return a distribution without expansions and event axes around it."""
    while isinstance(f, _WRAPPERS):
        f = f.base_dist
    return f


def require_events(name: str, f: dist.Distribution) -> None:
    """Raise ``ValueError`` for a batch of scalars: the axes of a batch are those of test points."""
    if f.batch_shape and not f.event_dim:
        raise ValueError(
            f"{name} must be a distribution over what the network takes, got batch_shape "
            f"{f.batch_shape} and event_shape (); call .to_event({len(f.batch_shape)}) for one "
            f"array of inputs, or use jax.vmap for a batch of scalar inputs"
        )


def from_distribution(name: str, f: dist.Distribution) -> Input:
    """Return the input that a distribution is, or say why there is none."""
    require_events(name, f)
    base = unwrapped(f)
    if type(base) in _FAMILIES:
        vector, size = _registered(_FAMILIES[type(base)], f, base), f.event_shape
        own = (vector.num_inputs,)
        return vector if own == size else _then(vector, dist.transforms.ReshapeTransform(size, own))
    if isinstance(base, dist.TransformedDistribution):
        return _transformed(name, f, base)
    is_copula = isinstance(base, dist.GaussianCopula)
    family = base.marginal_dist if is_copula else base
    if _has_quantiles_entrywise(family):
        scores = _around(base.base_dist if is_copula else _standard_normal(base), f, base)
        return _then(from_distribution(name, scores), _from_scores(family, f))
    remedy = f"pass a {accepted_families()}"
    if isinstance(base, dist.MixtureSameFamily | dist.MixtureGeneral):
        remedy = "linearize each component, and mix their marginals by dist.MixtureGeneral"
    raise UnsupportedFamilyError(
        f"{name} must be of a supported family, got {type(base).__name__}; {remedy}, or draw from "
        f"it: monte_carlo takes any distribution with sample"
    )


def map_of(f: Input) -> InputMap:
    """The map of an input, also where it is none."""
    return f.input_map or InputMap(((),), (f.num_inputs,), jax.tree.structure(0))


def _then(f: Input, *steps: Step) -> Input:
    """The input of one array, with further steps."""
    own = map_of(f)
    return Input(f.mean, f.terms, InputMap(((*own.steps[0], *steps),), own.sizes, own.tree))


def _standard_normal(like: dist.Distribution) -> dist.Normal:
    dtype = checks.float_dtype(*map(jnp.asarray, jax.tree.leaves(like)))
    return dist.Normal(jnp.zeros((), dtype), jnp.ones((), dtype))


def _from_scores(family: Any, f: dist.Distribution) -> FromNormalScores:
    """The step from normal scores, with a parameter for each entry of the values of `f`."""
    if isinstance(family, dist.Beta):
        family = Beta(family.concentration1, family.concentration0)
    return FromNormalScores(_entrywise(family, f.batch_shape + f.event_shape))


def _has_quantiles_entrywise(family: Any) -> bool:
    """Whether a family has quantiles, and arrays with an entry for each value alone."""
    # A distribution that was rebuilt from its parameters may have lost its support.
    support = family.support
    if family.event_dim != 0 or (support is not None and support.is_discrete):
        return False
    # Without `icdf`, quantiles are solved for within the support.
    missing = missing_functions(family)
    if "icdf" in missing and ("cdf" in missing or support is None):
        return False
    # NumPyro's beta keeps its parameters in another distribution as well, along an axis of their
    # own. A mixture has one for its components.
    axes = len(family.batch_shape)
    shapes = [jnp.shape(leaf) for leaf in jax.tree.leaves(family)]
    return isinstance(family, dist.Beta) or all(len(shape) <= axes for shape in shapes)


def _entrywise(parameters: Any, shape: Shape) -> Any:
    """A pytree of parameters broadcast to one for each entry, as floats."""

    def one_each(leaf: Any) -> Array:
        dtype = checks.float_dtype(jnp.asarray(leaf))
        return jnp.broadcast_to(jnp.asarray(leaf, dtype), shape)

    return jax.tree.map(one_each, parameters)


def _around(inner: dist.Distribution, f: dist.Distribution, base: dist.Distribution) -> Any:
    """`inner` with the expansions and event axes that `f` has around `base`."""
    extra = f.event_dim - base.event_dim
    wrapped = inner.expand(f.batch_shape + f.event_shape[:extra])
    return wrapped.to_event(extra) if extra else wrapped


def _transformed(name: str, f: dist.Distribution, base: dist.TransformedDistribution) -> Input:
    """The input before the transforms, and the steps that apply them."""
    for transform in base.transforms:
        if isinstance(transform, dist.transforms.AbsTransform):
            raise UnsupportedFamilyError(
                f"{name} must be a transform with an inverse, got {type(base).__name__} by "
                f"AbsTransform, which has a kink where it would be linearized; pass a family with "
                f"icdf, such as HalfNormal, or draw from it: monte_carlo takes any distribution"
            )
    inner = _around(base.base_dist, f, base)
    found, steps = from_distribution(name, inner), []
    value = jax.ShapeDtypeStruct(inner.event_shape, found.dtype)
    for transform in base.transforms:
        placed, value = _placed(name, transform, value, f.batch_shape)
        steps.append(placed)
    return _then(found, *steps)


def _placed(
    name: str, transform: Any, value: jax.ShapeDtypeStruct, batch_shape: Shape
) -> tuple[Any, jax.ShapeDtypeStruct]:
    """A transform whose parameters have the batch shape in front, and what it makes of one."""
    own, made = transform.domain.event_dim, transform.codomain.event_dim
    after = jax.eval_shape(partial(transform), value)  # a transform may not be hashable itself
    lead = len(value.shape) - own
    # With parameters for each element of the batch there would be more axes, or longer ones.
    if len(after.shape) - made == lead and after.shape[:lead] == value.shape[:lead]:

        def with_batch(leaf: Any) -> Array:
            leaf = jnp.asarray(leaf)
            return jnp.broadcast_to(leaf, batch_shape + leaf.shape)

        return jax.tree.map(with_batch, transform), after
    if own == made == 0:
        shape = batch_shape + value.shape
        return _entrywise(transform, shape), jax.ShapeDtypeStruct(value.shape, after.dtype)
    raise UnsupportedFamilyError(
        f"{name} must have one {type(transform).__name__} for the whole batch, got parameters "
        f"with batch axes; use jax.vmap over the distributions"
    )


def _registered(function: AsInput, f: dist.Distribution, base: Any) -> Input:
    """The vector of a registered family, last axis of the values fastest."""
    axes, split = len(f.batch_shape), f.event_dim - base.event_dim
    extra, own = f.event_shape[:split], f.event_shape[split:]
    if base.event_dim == 0:
        if f.event_dim > 1:
            base = _as_vectors(base, f.batch_shape, f.event_shape)
        extra, own = (), extra
    shape = (*f.batch_shape, *extra, math.prod(own))
    found = function(base, shape)
    if found.mean.shape != shape:
        raise ValueError(
            f"the input of {type(base).__name__} must have a mean of shape {shape}, got shape "
            f"{found.mean.shape}; broadcast it to the shape that the registered function is given"
        )
    if not extra:
        return found
    # Several independent vectors, one after the other.
    places = [(slice(None),) * axes + at for at in np.ndindex(*extra)]
    return Input.join(*(jax.tree.map(operator.itemgetter(at), found) for at in places))


def _as_vectors(base: Any, batch_shape: Shape, event_shape: Shape) -> Any:
    """A univariate distribution over arrays with its parameters as vectors; scalars stay."""

    def flat(leaf: Any) -> Any:
        if jnp.ndim(leaf) == 0:
            return leaf
        return jnp.broadcast_to(leaf, batch_shape + event_shape).reshape(*batch_shape, -1)

    return jax.tree.map(flat, base)
