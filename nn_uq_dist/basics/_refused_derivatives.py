"""Values that must not be differentiated, because a derivative would be wrong or not defined."""

from collections.abc import Callable
from typing import Any

import jax


def refused[T](message: str) -> Callable[[T], T]:
    """Return the identity of a pytree; its differentiation raises ``NotImplementedError``."""

    @jax.custom_jvp
    def same(values: T) -> T:
        return values

    @same.defjvp
    def refuse(primals: tuple[Any], tangents: tuple[Any]) -> tuple[Any, Any]:
        raise NotImplementedError(message)

    return same
