"""How distributions, and structures of them, become inputs.

One distribution is a vector, that of a registered family or of the base of a transform, and steps
from the vector to its values.
"""

import contextlib
import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax import Array

from nn_uq_dist.basics import checks
from nn_uq_dist.inputs._input import Input
from nn_uq_dist.inputs._numpyro_families import (
    accepted_families,
    entrywise,
    has_quantiles_entrywise,
    of_registered_family,
    unwrapped,
)
from nn_uq_dist.inputs.input_map import LINEAR, FromNormalScores, InputMap, Known, Step

type Shape = tuple[int, ...]


class UnsupportedFamilyError(TypeError):
    """A distribution that can be sampled, but that is no input."""


def as_input(f: object) -> Input:
    """Convert a distribution or a structure of them; return an input as it is.

    Parameters
    ----------
    f
        One of

        - an `nn_uq_dist.Input`;
        - a NumPyro distribution of a registered family: a uniform or Gaussian one, ``Delta`` for
          known values, or one added by `register_input_family`, also with ``.expand(...)``,
          ``.to_event(...)`` and a batch shape. For these linear networks are exact;
        - a distribution that is a transform of such a one: a ``TransformedDistribution``, a
          ``GaussianCopula``, or a univariate family with ``icdf`` or ``cdf``, by way of its normal
          score. The result has `nn_uq_dist.Input.is_transformed`;
        - a dict, list, tuple or other pytree of all these, independent of each other, and of plain
          arrays, which are known values and the same for each element of a batch. The network is
          called with the same structure; of a list or tuple of numbers it may take their vector
          instead. The vector of the input has the parts in the order of
          ``jax.tree.leaves``: of dicts by sorted keys. A tuple or list of two numbers is refused:
          it may be meant as an interval.

        Parameters may be traced.

    Returns
    -------
    Input
        With a map if the network takes something other than the vector itself.

    Raises
    ------
    TypeError
        If `f` is none of these, or its family is not accepted; the message lists those that are.
    ValueError
        If a distribution has batch axes and no event axis, nothing is random, a known array may be
        meant as one value for each element of a batch, or a registered function returns an input of
        another shape.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> import numpyro.distributions as dist
    >>> import nn_uq_dist as nuq
    >>> nuq.inputs.as_input(dist.Normal(0.0, 1.0).expand([5]).to_event(1)).num_inputs
    5
    >>> f = {"image": dist.Normal(jnp.zeros((2, 2)), 0.1).to_event(2), "gain": jnp.array(3.0)}
    >>> both = nuq.inputs.as_input(f)
    >>> taken = both.network_input(both.mean)
    >>> taken["image"].shape, float(taken["gain"]), both.is_transformed
    ((2, 2), 3.0, False)
    """
    if isinstance(f, Input):
        return f
    if isinstance(f, dist.Distribution):
        return _of_distribution("f", f)
    if callable(f) and not isinstance(f, type):
        raise TypeError(
            f"f must be a distribution over the inputs, got {_kind(f)}, which is called as a "
            f"network is; pass the network first and f after it, a distribution of NumPyro"
        )
    if jax.tree_util.treedef_is_leaf(jax.tree.structure(f, is_leaf=_is_leaf)):
        raise TypeError(
            f"f must be a distribution over the inputs, got {_kind(f)}; pass a "
            f"{accepted_families()}"
        )
    return _of_structure(f)


def as_source(f: object) -> tuple[Any, Shape, Callable[[Any, Array], Any]]:
    """How to draw what a network takes, also of distributions that are no inputs.

    Returns
    -------
    tuple
        A pytree, the batch shape, and a function of the pytree and a key that makes one draw.
    """
    try:
        source = as_input(f)
    except UnsupportedFamilyError:
        parts, tree, batch_shape = _parts_of(f)

        def draw(_: None, key: Array) -> Any:
            keys = jax.random.split(key, len(parts))
            drawn = map(partial(_draw_part, batch_shape), parts.values(), keys)
            return jax.tree.unflatten(tree, drawn)

        return None, batch_shape, draw
    return source, source.batch_shape, _draw_input


def _draw_input(f: Input, key: Array) -> Any:
    return f.network_input(f.sample(key))


def _draw_part(batch_shape: Shape, part: Any, key: Array) -> Any:
    if isinstance(part, Input):
        return _draw_input(part.expand(batch_shape), key)
    return jnp.broadcast_to(part.sample(key), batch_shape + part.event_shape)


def _parts_of(f: object) -> tuple[dict[str, Any], Any, Shape]:
    """Inputs and distributions by name, their structure, and the batch shape of all.

    Known arrays become distributions, too.
    """
    leaves, tree = jax.tree.flatten_with_path(f, is_leaf=_is_leaf)
    parts: dict[str, Any] = {f"f{jax.tree_util.keystr(path)}": part for path, part in leaves}
    known = {name: _known(name, part) for name, part in parts.items() if not _is_part(part)}
    parts |= known
    _require_events(parts)
    batch_shape = checks.broadcast_shapes(
        "the batch shapes of the parts of f must broadcast",
        **{name: part.batch_shape for name, part in parts.items()},
    )
    for name, part in known.items():
        _require_one_for_all(name, part.event_shape, batch_shape)
    return parts, tree, batch_shape


def _is_part(part: object) -> bool:
    return isinstance(part, dist.Distribution | Input)


def _is_leaf(part: Any) -> bool:
    """Whether a part is an entry; also a pair of numbers, which would be two known ones."""
    if type(part) in {tuple, list} and len(part) == 2:
        return all(type(end) in {int, float} for end in part)
    return _is_part(part)


def _known(name: str, part: Any) -> dist.Delta:
    """A known array as a distribution."""
    got = f"{_kind(part)}; pass a {accepted_families()}"
    if _is_leaf(part):
        got = (
            f"the {type(part).__name__} {part}; pass dist.Uniform{(*part,)} for a number between "
            f"them, or jnp.array({[*part]}) for two known numbers"
        )
    else:
        with contextlib.suppress(TypeError):
            known = checks.as_numeric(name, part)
            checks.require_in_range(name, known, checks.float_dtype(known))
            return dist.Delta(jnp.asarray(known), event_dim=np.ndim(known))
    raise TypeError(
        f"{name} must be a distribution, an Input or an array of known numbers, got {got}"
    )


def _kind(part: object) -> str:
    """Name of a type, after its module: other packages have distributions, too."""
    if isinstance(part, type):
        return f"the class {part.__name__} itself"
    return f"{type(part).__module__}.{type(part).__name__}".removeprefix("builtins.")


def _require_events(parts: Mapping[str, Any]) -> None:
    """Raise ``ValueError`` for a batch of scalars: the axes of a batch are those of test points."""
    for name, part in parts.items():
        shape = part.batch_shape
        if isinstance(part, dist.Distribution) and shape and not part.event_dim:
            raise ValueError(
                f"{name} must be a distribution over what the network takes, got batch_shape "
                f"{shape} and event_shape (); call .to_event({len(shape)}) for one array of "
                f"inputs; for a batch of {math.prod(shape)} designs pass parameters of shape "
                f"{(*shape, 1)} with .to_event(1), such as mean[..., None], and take "
                f"x{name.removeprefix('f')}[0] in the network"
            )


def _require_one_for_all(name: str, shape: Shape, batch_shape: Shape) -> None:
    """Raise for a known array whose leading axes may be those of the batch."""
    axes = len(shape) - len(batch_shape)
    if batch_shape and shape[: len(batch_shape)] == batch_shape:
        raise ValueError(
            f"{name} must be a known array that cannot be taken for one value for each element "
            f"of the batch, got shape {shape} beside batch_shape {batch_shape}; pass "
            f"dist.Delta(array, event_dim={axes}) for one value each, or "
            f"dist.Delta(array, event_dim={len(shape)}) for the same array everywhere"
        )


def _of_structure(f: object) -> Input:
    """Independent parts, and the map to the structure that they came in."""
    parts, tree, batch_shape = _parts_of(f)
    vectors: list[Input] = []
    maps: list[InputMap] = []
    for name, part in parts.items():
        base = unwrapped(part)
        if type(base) is dist.Delta:
            # Not as a part of the vector: there its numbers would be promoted to floats.
            value = jnp.broadcast_to(jnp.asarray(base.v), batch_shape + part.event_shape)
            maps.append(InputMap.of_array(0, Known(value)))
            continue
        source = part if isinstance(part, Input) else _of_distribution(name, part)
        source = source.expand(batch_shape)
        vectors.append(source.base)
        maps.append(source.input_map)
    if not vectors:
        raise ValueError(
            "f must have a random part, got known values only; call the network itself, or pass "
            "a distribution"
        )
    base = Input.join(*vectors)
    return Input.of_parts(base.mean, base.terms, InputMap.of_parts(tree, maps))


def _of_distribution(name: str, f: dist.Distribution) -> Input:
    """Return the input that a distribution is, or say why there is none."""
    _require_events({name: f})
    base = unwrapped(f)
    try:
        vector = of_registered_family(f, base)
    except ValueError as error:  # such as of an upper bound below the lower one
        raise ValueError(f"{name}, {type(base).__name__}: {error}") from error
    if vector is not None:
        size = (vector.num_inputs,)
        to_event = dist.transforms.ReshapeTransform(f.event_shape, size)
        return vector if f.event_shape == size else _then(vector, to_event)
    is_copula = isinstance(base, dist.GaussianCopula)
    family = base.marginal_dist if is_copula else _family(base)
    if family is not None and has_quantiles_entrywise(family):
        scores = base.base_dist if is_copula else _standard_normal(base)
        shape = f.batch_shape + f.event_shape
        step = FromNormalScores.of(family, entrywise(family, shape), shape)
        return _then(_of_distribution(name, _around(scores, f, scores)), step)
    if isinstance(base, dist.TransformedDistribution):
        return _transformed(name, f, base)
    kind = f"{type(base).__name__}{f' of {type(family).__name__}' if is_copula else ''}"
    raise UnsupportedFamilyError(
        f"{name} must be of a supported family, got {kind}; pass a "
        f"{accepted_families()}, or draw from it: monte_carlo takes any distribution with sample"
    )


def _family(base: Any) -> Any:
    """The univariate distribution of the entries; None if there may be none, or a linear map."""
    if not isinstance(base, dist.TransformedDistribution):
        return base
    inner = unwrapped(base.base_dist)
    if inner.event_dim or any(
        part.domain.event_dim or part.codomain.event_dim for part in base.transforms
    ):
        return None
    if all(isinstance(part, LINEAR) for part in base.transforms):
        return None
    return dist.TransformedDistribution(inner, base.transforms) if base.event_dim else base


def _around(inner: dist.Distribution, f: dist.Distribution, base: dist.Distribution) -> Any:
    """`inner` with the expansions and event axes that `f` has around `base`."""
    extra = f.event_dim - base.event_dim
    wrapped = inner.expand(f.batch_shape + f.event_shape[:extra])
    return wrapped.to_event(extra) if extra else wrapped


def _then(f: Input, *steps: Step) -> Input:
    """The input of one array, with further steps."""
    whole = InputMap.of_array(f.num_inputs, *f.input_map.steps[0], *steps)
    return Input.of_parts(f.mean, f.terms, whole)


def _standard_normal(like: dist.Distribution) -> dist.Normal:
    dtype = checks.float_dtype(*jax.tree.leaves(like))
    return dist.Normal(jnp.zeros((), dtype), jnp.ones((), dtype))


def _transformed(name: str, f: dist.Distribution, base: dist.TransformedDistribution) -> Input:
    """The input before the transforms, and the steps that apply them."""
    if any(isinstance(part, dist.transforms.AbsTransform) for part in base.transforms):
        raise UnsupportedFamilyError(
            f"{name} must be a transform with an inverse, got {type(base).__name__} by "
            f"AbsTransform, which has a kink where it would be linearized; pass a family with "
            f"icdf, such as HalfNormal, or draw from it: monte_carlo takes any distribution"
        )
    inner = _around(base.base_dist, f, base)
    before, steps = _of_distribution(name, inner), []
    value = jax.ShapeDtypeStruct(inner.event_shape, before.dtype)
    for transform in base.transforms:
        placed, value = _placed(name, transform, value, f.batch_shape)
        steps.append(placed)
    return _then(before, *steps)


def _placed(
    name: str, transform: Any, value: jax.ShapeDtypeStruct, batch_shape: Shape
) -> tuple[Any, jax.ShapeDtypeStruct]:
    """A transform whose parameters have the batch shape in front, and what it makes of one."""
    taken, made = transform.domain.event_dim, transform.codomain.event_dim
    after = jax.eval_shape(partial(transform), value)  # a transform may not be hashable itself
    lead = len(value.shape) - taken
    # With parameters for each element of the batch there would be more axes, or longer ones.
    if len(after.shape) - made == lead and after.shape[:lead] == value.shape[:lead]:

        def with_batch(leaf: Any) -> Array:
            return jnp.broadcast_to(leaf, batch_shape + jnp.shape(leaf))

        return jax.tree.map(with_batch, transform), after
    if taken == made == 0:
        each = entrywise(transform, batch_shape + value.shape)
        return each, jax.ShapeDtypeStruct(value.shape, after.dtype)
    raise UnsupportedFamilyError(
        f"{name} must have one {type(transform).__name__} for the whole batch, got parameters "
        f"with batch axes; use jax.vmap over the distributions"
    )
