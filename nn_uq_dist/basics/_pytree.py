"""Registration of frozen dataclasses as JAX pytrees."""

import dataclasses
from collections.abc import Iterable
from typing import Any

import jax


def register_frozen[T](cls: type[T]) -> type[T]:
    """Register a frozen dataclass; its fields are pytree children unless marked as static.

    A field ``dataclasses.field(metadata={"static": True})`` is kept in the structure of the pytree:
    it must be hashable and is never traced. A private field ``_x`` has the key path ``.x``, that of
    the public attribute by which users know it.

    Rebuilding an instance from its children skips ``__init__`` and ``__post_init__``: JAX rebuilds
    with tracers, axis numbers and placeholder objects, and none of these may be validated or
    converted. This is why `jax.tree_util.register_dataclass`, which calls the constructor, is not
    used here.
    """
    fields = dataclasses.fields(cls)  # type: ignore[arg-type]
    static = tuple(field.name for field in fields if field.metadata.get("static"))
    names = tuple(field.name for field in fields if field.name not in static)

    def structure(instance: T) -> tuple[Any, ...]:
        return tuple(getattr(instance, name) for name in static)

    def flatten_with_keys(
        instance: T,
    ) -> tuple[tuple[tuple[jax.tree_util.GetAttrKey, Any], ...], tuple[Any, ...]]:
        keyed = tuple(
            (jax.tree_util.GetAttrKey(name.removeprefix("_")), getattr(instance, name))
            for name in names
        )
        return keyed, structure(instance)

    def flatten(instance: T) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        return tuple(getattr(instance, name) for name in names), structure(instance)

    def unflatten(constants: tuple[Any, ...], children: Iterable[Any]) -> T:
        instance = object.__new__(cls)
        for name, child in zip((*names, *static), (*children, *constants), strict=True):
            object.__setattr__(instance, name, child)
        return instance

    jax.tree_util.register_pytree_with_keys(cls, flatten_with_keys, unflatten, flatten)
    return cls
