"""How distributions, and structures of them, become inputs."""

from typing import Any

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jax import Array

from nn_uq_dist.basics import checks
from nn_uq_dist.inputs._from_distribution import (
    accepted_families,
    from_distribution,
    map_of,
    require_events,
    unwrapped,
)
from nn_uq_dist.inputs._input import Input
from nn_uq_dist.inputs._input_map import InputMap, Known, Steps

type Shape = tuple[int, ...]


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
          ``jax.tree.leaves``: of dicts by sorted keys.

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
    >>> found = nuq.inputs.as_input(f)
    >>> taken = found.network_input(found.mean)
    >>> taken["image"].shape, float(taken["gain"]), found.is_transformed
    ((2, 2), 3.0, False)
    """
    if isinstance(f, Input):
        return f
    if isinstance(f, dist.Distribution):
        return from_distribution("f", f)
    if callable(f) and not isinstance(f, type):
        raise TypeError(
            f"f must be a distribution over the inputs, got {_kind(f)}, which is called as a "
            f"network is; pass the network first and f after it, a distribution of NumPyro"
        )
    if jax.tree_util.treedef_is_leaf(jax.tree.structure(f, is_leaf=_is_part)):
        raise TypeError(
            f"f must be a distribution over the inputs, got {_kind(f)}; pass a "
            f"{accepted_families()}"
        )
    return _of_structure(f)


def parts_of(f: object) -> tuple[dict[str, Any], Any, Shape]:
    """Inputs and distributions by name, their structure, and the batch shape of all.

    Known arrays become distributions, too.
    """
    found, tree = jax.tree.flatten_with_path(f, is_leaf=_is_part)
    given = {f"f{jax.tree_util.keystr(path)}": part for path, part in found}
    known = {name: _known(name, part) for name, part in given.items() if not _is_part(part)}
    parts = given | known
    for name, part in parts.items():
        if isinstance(part, dist.Distribution):
            require_events(name, part)
    batch_shape = checks.broadcast_shapes(
        "the batch shapes of the parts of f must broadcast",
        **{name: part.batch_shape for name, part in parts.items()},
    )
    for name, part in known.items():
        _require_one_for_all(name, part.event_shape, batch_shape)
    return parts, tree, batch_shape


def _known(name: str, part: Any) -> dist.Delta:
    try:
        array = jnp.asarray(checks.as_numeric(name, part))
        return dist.Delta(array, event_dim=array.ndim)
    except TypeError as error:
        raise TypeError(
            f"{name} must be a distribution, an Input or an array of known numbers, got "
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
    return isinstance(part, dist.Distribution | Input)


def _of_structure(f: object) -> Input:
    """Independent parts, and the map to the structure that they came in."""
    parts, tree, batch_shape = parts_of(f)
    vectors: list[Input] = []
    steps: list[Steps] = []
    sizes: list[int] = []
    trees: list[Any] = []
    for name, part in parts.items():
        if (value := _certain(part, batch_shape)) is not None:
            own = InputMap(((Known(value),),), (0,), jax.tree.structure(0))
        else:
            found = part if isinstance(part, Input) else from_distribution(name, part)
            found = found.expand(batch_shape)
            vectors.append(found.base)
            own = map_of(found)
        steps += own.steps
        sizes += own.sizes
        trees.append(jax.tree.unflatten(own.tree, own.sizes))
    if not vectors:
        raise ValueError(
            "f must have a random part, got known values only; call the network itself, or pass "
            "a distribution"
        )
    base = Input.join(*vectors)
    tree = jax.tree.structure(jax.tree.unflatten(tree, trees))
    return Input(base.mean, base.terms, InputMap(tuple(steps), tuple(sizes), tree))


def _certain(part: Any, batch_shape: Shape) -> Array | None:
    """The value of a known part for each element of the batch, None if the part is random."""
    base = unwrapped(part)
    if type(base) is not dist.Delta:
        return None
    value = jnp.broadcast_to(jnp.asarray(base.v), part.batch_shape + part.event_shape)
    return jnp.broadcast_to(value, batch_shape + part.event_shape)
