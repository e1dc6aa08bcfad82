"""Cases of the bank stacked into few calls: compiling costs seconds, evaluating milliseconds."""

from collections import defaultdict
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np


@dataclass(frozen=True, eq=False)
class Stack:
    """Cases with one number of weights; the first axis of the arrays runs over the cases.

    Points are padded with the first of their case, weights with zeros.
    """

    name: str
    cases: list
    x: np.ndarray
    weights: np.ndarray
    normal_scale: np.ndarray | None

    def __str__(self):
        return self.name

    def distribution_per_point(self):
        """Arguments with a copy of the distribution for each point."""
        shape = self.x.shape
        weights = np.broadcast_to(self.weights[:, None], (*shape, self.weights.shape[-1]))
        if self.normal_scale is None:
            return self.x, weights
        return self.x, weights, np.broadcast_to(self.normal_scale[:, None], shape)

    def rows(self, values):
        """Pairs of a case and the part of `values` (cases, points, ...) that belongs to it."""
        pairs = zip(self.cases, np.asarray(values), strict=True)
        return [(case, row[: len(case.x)]) for case, row in pairs]


def stacked(cases, padded_to=0):
    """One stack for each number of weights, with and without a normal part.

    More than four weights are padded with zeros to `padded_to`, if there are fewer.
    """
    groups = defaultdict(list)
    for case in cases:
        count = len(case.weights)
        padded = count if count <= 4 else max(count, padded_to)
        groups[padded, case.normal_scale is not None].append(case)
    return [_stack(count, normal, group) for (count, normal), group in sorted(groups.items())]


def _stack(count, normal, cases):
    length, dtype = max(len(case.x) for case in cases), cases[0].weights.dtype
    x = np.array([[*case.x, *[case.x[0]] * (length - len(case.x))] for case in cases], dtype)
    weights = np.array([np.pad(case.weights, (0, count - len(case.weights))) for case in cases])
    scales = np.array([case.normal_scale for case in cases], dtype) if normal else None
    return Stack(f"{count}_weights" + "_normal_part" * normal, cases, x, weights, scales)


def with_gradient(function, count):
    """Gradient in ``(x, weights..., normal_scale)`` for points with a distribution each.

    The arguments of each point are the last axis of one array; `count` is the number of weights.
    """

    def total(arguments):
        scale = arguments[..., count + 1] if arguments.shape[-1] > count + 1 else None
        return jnp.sum(function(arguments[..., 0], arguments[..., 1 : count + 1], scale))

    return jax.grad(total)


def with_hessian(function, count):
    """Gradient and Hessian, as `with_gradient`."""
    gradient = with_gradient(function, count)

    def both(arguments):
        value, push_forward = jax.linearize(gradient, arguments)
        directions = jnp.eye(arguments.shape[-1], dtype=arguments.dtype)
        columns = jax.vmap(lambda e: push_forward(jnp.broadcast_to(e, arguments.shape)))(directions)
        return value, jnp.moveaxis(columns, 0, -1)

    return both
