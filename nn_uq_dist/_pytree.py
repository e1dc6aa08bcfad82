"""Registration of frozen dataclasses as JAX pytrees."""

import dataclasses
from collections.abc import Iterable
from typing import Any

import jax


def register_frozen[T](cls: type[T]) -> type[T]:
    """Register a frozen dataclass whose fields are all pytree children.

    Rebuilding an instance from its children skips ``__init__`` and ``__post_init__``: JAX rebuilds
    with tracers, axis numbers and placeholder objects, and none of these may be validated or
    converted. This is why `jax.tree_util.register_dataclass`, which calls the constructor, is not
    used here.
    """
    names = tuple(field.name for field in dataclasses.fields(cls))  # type: ignore[arg-type]

    def flatten_with_keys(
        instance: T,
    ) -> tuple[tuple[tuple[jax.tree_util.GetAttrKey, Any], ...], None]:
        keyed = tuple((jax.tree_util.GetAttrKey(name), getattr(instance, name)) for name in names)
        return keyed, None

    def flatten(instance: T) -> tuple[tuple[Any, ...], None]:
        return tuple(getattr(instance, name) for name in names), None

    def unflatten(_: None, children: Iterable[Any]) -> T:
        instance = object.__new__(cls)
        for name, child in zip(names, children, strict=True):
            object.__setattr__(instance, name, child)
        return instance

    jax.tree_util.register_pytree_with_keys(cls, flatten_with_keys, unflatten, flatten)
    return cls
