"""Cases of the bank stacked into few calls: compiling costs seconds, evaluating milliseconds."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np


@dataclass(frozen=True, eq=False)
class Stack:
    """Cases with one number of weights; the first axis of the arrays runs over the cases.

    Points are padded with the first of their case, weights with zeros.
    """

    name: str
    cases: tuple[Any, ...]
    x: np.ndarray
    weights: np.ndarray
    normal_scale: np.ndarray | None

    def __str__(self) -> str:
        return self.name

    def distribution_per_point(self) -> tuple[np.ndarray, ...]:
        """Arguments with a copy of the distribution for each point."""
        shape = self.x.shape
        weights = np.broadcast_to(self.weights[:, None], (*shape, self.weights.shape[-1]))
        if self.normal_scale is None:
            return self.x, weights
        return self.x, weights, np.broadcast_to(self.normal_scale[:, None], shape)

    def rows(self, values: Any) -> list[tuple[Any, np.ndarray]]:
        """Pairs of a case and the part of `values` (cases, points, ...) that belongs to it."""
        values = np.asarray(values)
        pairs = zip(self.cases, values, strict=True)
        return [(case, row[: len(case.x)]) for case, row in pairs]


def stacked(cases: Iterable[Any], sizes: Sequence[int] = ()) -> list[Stack]:
    """One stack for each number of weights, with and without a normal part.

    `sizes` are numbers of weights to which smaller ones are padded with zeros.
    """
    groups = defaultdict(list)
    for case in cases:
        count = len(case.weights)
        padded = min((size for size in sizes if size >= count), default=count)
        groups[count if count <= 4 else padded, case.normal_scale is not None].append(case)
    return [_stack(count, normal, group) for (count, normal), group in sorted(groups.items())]


def _stack(count: int, normal: bool, cases: list[Any]) -> Stack:
    length = max(len(case.x) for case in cases)
    dtype = cases[0].weights.dtype
    x = np.array([[*case.x, *[case.x[0]] * (length - len(case.x))] for case in cases], dtype)
    weights = np.zeros((len(cases), count), dtype)
    for row, case in zip(weights, cases, strict=True):
        row[: len(case.weights)] = case.weights
    scales = np.array([case.normal_scale for case in cases], dtype) if normal else None
    name = f"{count}_weights_normal_part" if normal else f"{count}_weights"
    return Stack(name, tuple(cases), x, weights, scales)


def with_gradient(function: Callable[..., jax.Array], count: int) -> Callable[..., Any]:
    """Gradient in ``(x, weights..., normal_scale)`` for points with a distribution each.

    The arguments of each point are the last axis of one array; `count` is the number of weights.
    """

    def total(arguments: jax.Array) -> jax.Array:
        scale = arguments[..., count + 1] if arguments.shape[-1] > count + 1 else None
        return jnp.sum(function(arguments[..., 0], arguments[..., 1 : count + 1], scale))

    return jax.grad(total)


def with_hessian(function: Callable[..., jax.Array], count: int) -> Callable[..., Any]:
    """Gradient and Hessian, as `with_gradient`."""
    gradient = with_gradient(function, count)

    def both(arguments: jax.Array) -> tuple[jax.Array, jax.Array]:
        value, push_forward = jax.linearize(gradient, arguments)
        size = arguments.shape[-1]
        directions = jnp.eye(size, dtype=arguments.dtype)
        columns = jax.vmap(lambda e: push_forward(jnp.broadcast_to(e, arguments.shape)))(directions)
        return value, jnp.moveaxis(columns, 0, -1)

    return both
