"""How distributions, and structures of them, become input laws."""

from typing import Any

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jax import Array

from nn_uq_dist.basics import _checks
from nn_uq_dist.inputs._abstract_input_law import AbstractInputLaw
from nn_uq_dist.inputs._distribution_law import (
    accepted_families,
    law_and_steps,
    require_events,
    unwrapped,
)
from nn_uq_dist.inputs._input_blocks import InputBlocks
from nn_uq_dist.inputs._mapped_input import InputMap, Known, MappedInput, Steps

type Shape = tuple[int, ...]


def as_input_law(f: object) -> AbstractInputLaw:
    """Convert a distribution or a structure of them; return an input law as it is.

    Parameters
    ----------
    f
        One of

        - an `AbstractInputLaw`, such as an `InputLaw`;
        - a NumPyro distribution of a registered family: a uniform or Gaussian one, ``Delta`` for
          known values, or one added by `register_input_family`, also with ``.expand(...)``,
          ``.to_event(...)`` and a batch shape. For these the laws of linear networks are exact;
        - a distribution that is a transform of such a law: a ``TransformedDistribution``, a
          ``GaussianCopula``, or a univariate family with ``icdf`` or ``cdf``, by way of its normal
          score. The result has `AbstractInputLaw.is_transformed`;
        - a dict, list, tuple or other pytree of all these, independent of each other, and of plain
          arrays, which are known values and the same for each element of a batch. The network is
          called with the same structure; of a list or tuple of numbers it may take their vector
          instead. The vector of the law has the parts in the order of
          ``jax.tree.leaves``: of dicts by sorted keys.

        Parameters may be traced.

    Returns
    -------
    AbstractInputLaw
        A `MappedInput` if the network takes something other than the vector itself.

    Raises
    ------
    TypeError
        If `f` is none of these, or its family is not accepted; the message lists those that are.
    ValueError
        If a distribution has batch axes and no event axis, nothing is random, a known array may be
        meant as one value for each element of a batch, or a registered function returns a law of
        another shape.

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
        law, steps = law_and_steps("f", f)
        return _with_steps(law, steps) if steps else law
    if callable(f) and not isinstance(f, type):
        raise TypeError(
            f"f must be a distribution over the inputs, got {_kind(f)}, which is called as a "
            f"network is; pass the network first and f after it, a distribution of NumPyro"
        )
    if is_structure(f):
        return _of_structure(f)
    raise TypeError(
        f"f must be a distribution over the inputs, got {_kind(f)}; pass a {accepted_families()}"
    )


def is_structure(f: object) -> bool:
    """Whether `f` is a container of other things."""
    return not jax.tree_util.treedef_is_leaf(jax.tree.structure(f, is_leaf=_is_part))


def parts_of(f: object) -> tuple[dict[str, Any], Any, Shape]:
    """Laws and distributions by name, their structure, and the batch shape of all.

    Known arrays become distributions, too.
    """
    found, tree = jax.tree.flatten_with_path(f, is_leaf=_is_part)
    given = {f"f{jax.tree_util.keystr(path)}": part for path, part in found}
    known = {name: _known(name, part) for name, part in given.items() if not _is_part(part)}
    parts = given | known
    for name, part in parts.items():
        if isinstance(part, dist.Distribution):
            require_events(name, part)
    batch_shape = _checks.broadcast_shapes(
        "the batch shapes of the parts of f must broadcast",
        **{name: part.batch_shape for name, part in parts.items()},
    )
    for name, part in known.items():
        _require_one_for_all(name, part.event_shape, batch_shape)
    return parts, tree, batch_shape


def _known(name: str, part: Any) -> dist.Delta:
    try:
        array = jnp.asarray(_checks.as_numeric(name, part))
        return dist.Delta(array, event_dim=array.ndim)
    except TypeError as error:
        raise TypeError(
            f"{name} must be a distribution, an input law or an array of known numbers, got "
            f"{_kind(part)}; pass a {accepted_families()}"
        ) from error


def _kind(part: object) -> str:
    """Name of a type, after its module: other packages have distributions, too."""
    if isinstance(part, type):
        return f"the class {part.__name__} itself"
    return f"{type(part).__module__}.{type(part).__name__}".removeprefix("builtins.")


def _require_one_for_all(name: str, shape: Shape, batch_shape: Shape) -> None:
    """Raise for a known array whose leading axes may be those of the batch."""
    if batch_shape and shape[: len(batch_shape)] == batch_shape:
        axes = len(shape) - len(batch_shape)
        each = f"array, event_dim={axes}" if axes else "array[..., None], event_dim=1"
        raise ValueError(
            f"{name} must be a known array that cannot be taken for one value for each element "
            f"of the batch, got shape {shape} beside batch_shape {batch_shape}; pass "
            f"dist.Delta({each}) for one value each, or "
            f"dist.Delta(array, event_dim={len(shape)}) for the same array everywhere"
        )


def _is_part(part: object) -> bool:
    return isinstance(part, dist.Distribution | AbstractInputLaw)


def _with_steps(law: AbstractInputLaw, steps: Steps) -> MappedInput:
    return MappedInput(law, InputMap((steps,), (law.num_inputs,), jax.tree.structure(0)))


def _of_structure(f: object) -> AbstractInputLaw:
    """The law of independent parts, and the map to the structure that they came in."""
    parts, tree, batch_shape = parts_of(f)
    steps: list[Steps] = []
    sizes: list[int] = []
    trees: list[Any] = []
    bases: list[AbstractInputLaw] = []
    for name, part in parts.items():
        if (value := _certain(part, batch_shape)) is not None:
            steps.append((Known(value),))
            sizes.append(0)
            trees.append(0)
        else:
            law = part if isinstance(part, MappedInput) else None
            law = (law or _with_steps(*law_and_steps(name, part))).expand(batch_shape)
            bases.append(law.base)
            steps += law.input_map.steps
            sizes += law.input_map.sizes
            trees.append(jax.tree.unflatten(law.input_map.tree, law.input_map.sizes))
    if not bases:
        raise ValueError(
            "f must have a random part, got known values only; call the network itself, or pass "
            "a distribution"
        )
    base = bases[0] if len(bases) == 1 else InputBlocks(*bases)
    tree = jax.tree.structure(jax.tree.unflatten(tree, trees))
    return MappedInput(base, InputMap(tuple(steps), tuple(sizes), tree))


def _certain(part: Any, batch_shape: Shape) -> Array | None:
    """The value of a known part for each element of the batch, None if the part is random."""
    base = unwrapped(part)
    if type(base) is not dist.Delta:
        return None
    value = jnp.broadcast_to(jnp.asarray(base.v), part.batch_shape + part.event_shape)
    return jnp.broadcast_to(value, batch_shape + part.event_shape)
