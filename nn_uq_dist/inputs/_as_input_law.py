"""How distributions, and structures of them, become input laws."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax import Array

from nn_uq_dist.basics import _checks
from nn_uq_dist.inputs._abstract_input_law import AbstractInputLaw
from nn_uq_dist.inputs._families import accepted_families, family_of
from nn_uq_dist.inputs._input_blocks import InputBlocks
from nn_uq_dist.inputs._input_maps import (
    FromNormalScores,
    InputMap,
    ToShape,
    ToStructure,
    Transformed,
    rearranges_only,
    size_of,
    vector_of,
)
from nn_uq_dist.inputs._mapped_input import MappedInput
from nn_uq_dist.inputs._normal_score_quantile import Beta, has_quantiles

_WRAPPERS = (dist.Independent, dist.ExpandedDistribution)

type Shape = tuple[int, ...]


class UnsupportedFamilyError(TypeError):
    """A distribution that can be drawn from, but not be linearized over."""


def as_input_law(f: object) -> AbstractInputLaw:
    """Return an input law as it is, a distribution or a structure of them converted to one.

    Parameters
    ----------
    f
        One of

        - an `AbstractInputLaw`, such as an `InputLaw`;
        - a NumPyro distribution of a registered family: a uniform or Gaussian one, ``Delta`` for
          known values, or one added by `register_input_family`, also with ``.expand(...)``,
          ``.to_event(...)`` and a batch shape. These are exact: linear networks have exact laws;
        - one whose law is a transform of such a law: a ``TransformedDistribution``, a
          ``GaussianCopula``, or a univariate family with ``icdf`` or ``cdf``, by way of its normal
          score. The result has `AbstractInputLaw.is_transformed`;
        - a dict, list, tuple or other pytree of all these, independent of each other, and of plain
          arrays, which are known values. The network is called with the same structure. The vector
          has the parts in the order of ``jax.tree.leaves``: of dicts by sorted keys.

        Parameters may be traced.

    Returns
    -------
    AbstractInputLaw
        A `MappedInput` where the network takes something else than the vector itself.

    Raises
    ------
    TypeError
        If `f` is neither, or its family is another one; the message lists the accepted ones.
    ValueError
        If a distribution has batch axes and no event axis, nothing is random, or a registered
        function returns a law of another shape.

    Examples
    --------
    >>> import numpyro.distributions as dist
    >>> import nn_uq_dist as nuq
    >>> nuq.inputs.as_input_law(dist.Normal(0.0, 1.0).expand([5]).to_event(1)).num_inputs
    5
    >>> law = nuq.inputs.as_input_law({"a": dist.Uniform(-1.0, 1.0), "b": dist.LogNormal(0.0, 0.1)})
    >>> print(law.mean, law.is_transformed, float(law.network_input(law.mean)["b"]))
    [0. 0.] True 1.0
    """
    if isinstance(f, AbstractInputLaw):
        return f
    if isinstance(f, dist.Distribution):
        return _wrapped(*_law_and_map("f", f))
    if is_structure(f):
        return _of_structure(f)
    raise TypeError(
        f"f must be a distribution over the inputs, got {type(f).__name__}; "
        f"pass a {accepted_families()}"
    )


def is_structure(f: object) -> bool:
    """Whether `f` is a container of other things."""
    return not jax.tree_util.treedef_is_leaf(jax.tree.structure(f, is_leaf=_is_part))


def parts_of(f: object) -> tuple[list[tuple[str, Any]], Any]:
    """Return the leaves of a structure of laws, each with its name, and the structure."""
    found, tree = jax.tree.flatten_with_path(f, is_leaf=_is_part)
    return [(f"f{jax.tree_util.keystr(path)}", part) for path, part in found], tree


def known_value(name: str, part: object) -> Array:
    """Return a known value as an array."""
    try:
        return jnp.asarray(_checks.as_numeric(name, part))  # type: ignore[arg-type]
    except TypeError as error:
        raise TypeError(
            f"{name} must be a distribution, an input law or an array of known numbers, got "
            f"{type(part).__name__}; pass a {accepted_families()}"
        ) from error


def unwrapped(f: dist.Distribution) -> Any:
    """Return a distribution without expansions and event axes around it."""
    while isinstance(f, _WRAPPERS):
        f = f.base_dist
    return f


def _is_part(part: object) -> bool:
    return isinstance(part, dist.Distribution | AbstractInputLaw)


def _wrapped(law: AbstractInputLaw, of_input: InputMap) -> AbstractInputLaw:
    return law if rearranges_only(of_input, law.num_inputs) else MappedInput(law, of_input)


def _of_structure(f: object) -> AbstractInputLaw:
    """The law of independent parts, and the map to the structure that they came in."""
    named, tree = parts_of(f)
    laws: list[AbstractInputLaw] = []
    maps: list[InputMap] = []
    known: list[tuple[Array, int]] = []  # with the number of batch axes
    is_known = []
    for name, part in named:
        value = _certain(name, part)
        is_known.append(value is not None)
        if value is not None:
            known.append(value)
            continue
        law, of_input = _law_and_map(name, part)
        laws.append(law)
        maps.append(of_input)
    if not laws:
        raise ValueError(
            "f must have a random part, got known values only; call the network itself, or pass "
            "a distribution"
        )
    batch_shape = _checks.broadcast_shapes(
        "the batch shapes of the parts of f must broadcast",
        **{f"part {i}": law.batch_shape for i, law in enumerate(laws)},
        **{f"known {i}": value.shape[:axes] for i, (value, axes) in enumerate(known)},
    )
    mapped = [
        MappedInput(law, of_input).expand(batch_shape)
        for law, of_input in zip(laws, maps, strict=True)
    ]
    to_structure = ToStructure(
        maps=tuple(part.input_map for part in mapped),
        known=tuple(_expanded(value, axes, batch_shape) for value, axes in known),
        sizes=tuple(law.num_inputs for law in laws),
        is_known=tuple(is_known),
        tree=tree,
    )
    bases = [part.base for part in mapped]
    return MappedInput(bases[0] if len(bases) == 1 else InputBlocks(*bases), to_structure)


def _certain(name: str, part: object) -> tuple[Array, int] | None:
    """A known value with the number of its batch axes, None if the part is random."""
    if isinstance(part, AbstractInputLaw):
        return None
    if not isinstance(part, dist.Distribution):
        return known_value(name, part), 0
    base = unwrapped(part)
    if type(base) is not dist.Delta:
        return None
    _require_events(name, part)
    shape = part.batch_shape + part.event_shape
    return jnp.broadcast_to(jnp.asarray(base.v), shape), len(part.batch_shape)


def _expanded(value: Array, axes: int, batch_shape: Shape) -> Array:
    ones = (1,) * (len(batch_shape) - axes)
    value = value.reshape(ones + value.shape)
    return jnp.broadcast_to(value, batch_shape + value.shape[len(batch_shape) :])


def _require_events(name: str, f: dist.Distribution) -> None:
    if f.batch_shape and not f.event_dim:
        raise ValueError(
            f"{name} must be a distribution over what the network takes, got batch_shape "
            f"{f.batch_shape} and event_shape (); call .to_event({len(f.batch_shape)}) for one "
            f"array of inputs, or use jax.vmap for a batch of scalar inputs"
        )


def _law_and_map(name: str, f: Any) -> tuple[AbstractInputLaw, InputMap]:
    """The law of a vector, and the map from it to the values of `f`."""
    if isinstance(f, MappedInput):
        return f.base, f.input_map
    if isinstance(f, AbstractInputLaw):
        return f, vector_of(f.num_inputs)
    _require_events(name, f)
    base = unwrapped(f)
    if family_of(base) is not None:
        return _registered(f, base), ToShape(f.event_shape)
    if isinstance(base, dist.TransformedDistribution):
        return _transformed(name, f, base)
    if isinstance(base, dist.GaussianCopula) and has_quantiles(base.marginal_dist):
        scores = _around(base.base_dist, f, base)
        law, of_scores = _law_and_map(name, scores)
        return law, _scores_map(name, of_scores, base.marginal_dist, f)
    if has_quantiles(base):
        dtype = _checks.float_dtype(*map(jnp.asarray, jax.tree.leaves(base)))
        normal = dist.Normal(jnp.zeros((), dtype), jnp.ones((), dtype))
        law, of_scores = _law_and_map(
            name, normal.expand(f.batch_shape + f.event_shape).to_event(f.event_dim)
        )
        return law, _scores_map(name, of_scores, base, f)
    raise UnsupportedFamilyError(
        f"{name} must be of a supported family, got {type(base).__name__}; pass a "
        f"{accepted_families()}, one that is transformed or has icdf, or draw from it: "
        f"monte_carlo takes any distribution with sample"
    )


def _scores_map(name: str, inner: InputMap, family: Any, f: dist.Distribution) -> FromNormalScores:
    """The map from normal scores, with a parameter for each entry of the values of `f`."""
    if isinstance(family, dist.Beta):
        # It keeps its parameters in another distribution as well, along an axis of their own.
        family = Beta(family.concentration1, family.concentration0)
    else:
        _require_entrywise(name, family)
    return FromNormalScores(inner, _entrywise(family, f.batch_shape + f.event_shape))


def _require_entrywise(name: str, family: Any) -> None:
    shapes = [jnp.shape(leaf) for leaf in jax.tree.leaves(family)]
    # Aligned at the right, as NumPyro does; further axes are none of the batch.
    if any(len(shape) > len(family.batch_shape) for shape in shapes):
        raise UnsupportedFamilyError(
            f"{name} must have parameters with the batch shape {family.batch_shape}, got "
            f"{type(family).__name__} with arrays of shapes {shapes}; use a distribution without "
            f"batch axes, or draw from it: monte_carlo takes any distribution with sample"
        )


def _entrywise(parameters: Any, shape: Shape) -> Any:
    """A pytree of parameters broadcast to one for each entry, as floats."""

    def one_each(leaf: Any) -> Array:
        dtype = _checks.float_dtype(jnp.asarray(leaf))
        return jnp.broadcast_to(jnp.asarray(leaf, dtype), shape)

    return jax.tree.map(one_each, parameters)


def _around(inner: dist.Distribution, f: dist.Distribution, base: dist.Distribution) -> Any:
    """`inner` with the expansions and event axes that `f` has around `base`."""
    extra = f.event_dim - base.event_dim
    wrapped = inner.expand(f.batch_shape + f.event_shape[:extra])
    return wrapped.to_event(extra) if extra else wrapped


def _transformed(
    name: str, f: dist.Distribution, base: dist.TransformedDistribution
) -> tuple[AbstractInputLaw, InputMap]:
    """The law before the transforms, and the map that applies them."""
    for transform in base.transforms:
        if isinstance(transform, dist.transforms.AbsTransform):
            raise UnsupportedFamilyError(
                f"{name} must be a transform with an inverse, got {type(base).__name__} by "
                f"AbsTransform, which has a kink where it would be linearized; pass a family with "
                f"icdf, such as HalfNormal, or draw from it: monte_carlo takes any distribution"
            )
    inner = _around(base.base_dist, f, base)
    law, before = _law_and_map(name, inner)
    value = jax.ShapeDtypeStruct(inner.event_shape, law.dtype)
    transforms = []
    for transform in base.transforms:
        placed, value = _placed(name, transform, value, f.batch_shape)
        transforms.append(placed)
    return law, Transformed(before, tuple(transforms))


def _placed(
    name: str, transform: Any, value: jax.ShapeDtypeStruct, batch_shape: Shape
) -> tuple[Any, jax.ShapeDtypeStruct]:
    """A transform whose parameters have the batch shape in front, and what it makes of one."""
    own, made = transform.domain.event_dim, transform.codomain.event_dim
    after = jax.eval_shape(lambda x: transform(x), value)  # noqa: PLW0108
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


def _registered(f: dist.Distribution, base: Any) -> AbstractInputLaw:
    """The law of the vector of a registered family, last axis of the values fastest."""
    function = family_of(base)
    assert function is not None  # noqa: S101 (asked before)
    extra = f.event_shape[: f.event_dim - base.event_dim]
    own = f.event_shape[f.event_dim - base.event_dim :]
    if base.event_dim == 0:
        if f.event_dim > 1:
            base = _as_vectors(base, f.batch_shape, f.event_shape)
        return _checked(function(base, (*f.batch_shape, size_of(extra))), base, f, extra)
    if not extra:
        return _checked(function(base, (*f.batch_shape, size_of(own))), base, f, own)
    # Several independent vectors: a block for each.
    law = function(base, (*f.batch_shape, *extra, size_of(own)))
    _checked(law, base, f, own, extra)
    return InputBlocks(*_unstacked(law, len(f.batch_shape), extra))


def _as_vectors(base: Any, batch_shape: Shape, event_shape: Shape) -> Any:
    """A univariate distribution over arrays with its parameters as vectors; scalars stay."""

    def flat(leaf: Any) -> Any:
        if jnp.ndim(leaf) == 0:
            return leaf
        return jnp.broadcast_to(leaf, batch_shape + event_shape).reshape(*batch_shape, -1)

    return jax.tree.map(flat, base)


def _unstacked(law: AbstractInputLaw, axes: int, extra: Shape) -> Sequence[AbstractInputLaw]:
    """The laws along the batch axes that are none of the batch."""
    return [
        jax.tree.map(lambda leaf, at=at: leaf[(slice(None),) * axes + at], law)
        for at in np.ndindex(*extra)
    ]


def _checked(
    law: AbstractInputLaw, base: Any, f: dist.Distribution, event: Shape, extra: Shape = ()
) -> AbstractInputLaw:
    shape = (*f.batch_shape, *extra, size_of(event))
    if law.loc.shape != shape:
        raise ValueError(
            f"the input law of {type(base).__name__} must have loc of shape {shape}, got shape "
            f"{law.loc.shape}; broadcast loc to the shape that the registered function is given"
        )
    return law
