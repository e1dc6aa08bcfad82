"""SOAP, Adam in the eigenbasis of Shampoo's preconditioner, as an Optax transformation.

Vyas et al., "SOAP: Improving and Stabilizing Shampoo using Adam", 2024, algorithm 3, with momentum
kept in the original basis. Optax has no SOAP; this one is for small matrices and biases.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import Array, lax


class _Matrix(NamedTuple):
    """State of one weight matrix, of shape (n, m)."""

    momentum: Array
    second_moment: Array  # in the eigenbasis
    factors: tuple[Array, Array]  # running means of G G^T and G^T G
    bases: tuple[Array, Array]  # their eigenvectors, kept up by one power iteration at a time


class _Vector(NamedTuple):
    """State of a bias: plain Adam."""

    momentum: Array
    second_moment: Array


def soap(
    learning_rate: optax.Schedule, b1: float = 0.95, b2: float = 0.99, every: int = 10
) -> optax.GradientTransformation:
    """Return the optimizer; bases are renewed in each step number that `every` divides.

    The same decay `b2` holds for the second moments and for the preconditioner.
    """

    def init(parameters: Any) -> tuple[Array, Any]:
        return jnp.zeros((), jnp.int32), jax.tree.map(_initial, parameters)

    def update(gradients: Any, state: Any, _: Any = None) -> tuple[Any, Any]:
        count, states = state
        rate, unbias1, unbias2 = learning_rate(count), 1 - b1 ** (count + 1), 1 - b2 ** (count + 1)

        def step(momentum: Array, second_moment: Array) -> Array:
            return -rate * (momentum / unbias1) / (jnp.sqrt(second_moment / unbias2) + 1e-8)

        def one(gradient: Array, old: _Matrix | _Vector) -> tuple[Array, _Matrix | _Vector]:
            momentum = b1 * old.momentum + (1 - b1) * gradient
            if isinstance(old, _Vector):
                second_moment = b2 * old.second_moment + (1 - b2) * gradient**2
                return step(momentum, second_moment), _Vector(momentum, second_moment)
            squares = (gradient @ gradient.T, gradient.T @ gradient)
            factors = jax.tree.map(lambda s, g: b2 * s + (1 - b2) * g, old.factors, squares)
            left, right = lax.cond(
                count % every == 0, _renew, lambda *same: same[2], count, factors, old.bases
            )
            second_moment = b2 * old.second_moment + (1 - b2) * (left.T @ gradient @ right) ** 2
            rotated = step(left.T @ momentum @ right, second_moment)
            new = _Matrix(momentum, second_moment, factors, (left, right))
            return left @ rotated @ right.T, new

        flat, structure = jax.tree.flatten(gradients)
        pairs = [one(*pair) for pair in zip(flat, structure.flatten_up_to(states), strict=True)]
        updates, states = (structure.unflatten(part) for part in zip(*pairs, strict=True))
        return updates, (count + 1, states)

    return optax.GradientTransformation(init, update)


def _initial(parameter: Array) -> _Matrix | _Vector:
    zeros = jnp.zeros_like(parameter)
    if parameter.ndim != 2:
        return _Vector(zeros, zeros)
    squares = tuple(jnp.zeros((size, size), parameter.dtype) for size in parameter.shape)
    identities = tuple(jnp.eye(size, dtype=parameter.dtype) for size in parameter.shape)
    return _Matrix(zeros, zeros, squares, identities)


def _renew(
    count: Array, factors: tuple[Array, Array], bases: tuple[Array, Array]
) -> tuple[Array, Array]:
    def eigenvectors() -> tuple[Array, Array]:
        left, right = (jnp.linalg.eigh(factor)[1] for factor in factors)
        return left, right

    def power_iteration() -> tuple[Array, Array]:
        pairs = zip(factors, bases, strict=True)
        left, right = (jnp.linalg.qr(factor @ basis)[0] for factor, basis in pairs)
        return left, right

    return lax.cond(count == 0, eigenvectors, power_iteration)
