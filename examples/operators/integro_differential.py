"""The two operators that the networks learn, on the values of f at Lobatto nodes.

Both map a function f on [-1, 1] to a function g on [-1, 1]:

- nonlinear: g(y) = integral of f(x) y + f(x) f'(x) sin(pi y^2) cos(x) over x,
- linear:    g(y) = integral of f(x) y + f'(x) sin(pi y^2) cos(x) over x.

The derivative is that of the interpolant, the integral the Lobatto quadrature.
"""

from collections.abc import Callable

import jax.numpy as jnp
import lobatto
import numpy as np
from jax import Array

DEGREE = 30
SIZE = DEGREE + 1  # of the input and of the output


def mean_input() -> np.ndarray:
    """Return exp(sin(5 x)) at the nodes, shape ``(31,)``: the mean input of the figures."""
    return np.exp(np.sin(5 * lobatto.nodes(DEGREE)))


def nonlinear(f: Array) -> Array:
    """Apply the nonlinear operator to nodal values, shape ``(..., n)`` to ``(..., n)``."""
    x, w, derivative = _rule(f)
    first = f @ jnp.asarray(w, f.dtype)
    second = (f * (f @ jnp.asarray(derivative.T, f.dtype))) @ jnp.asarray(w * np.cos(x), f.dtype)
    return _outputs(x, first, second)


def linear(f: Array) -> Array:
    """Apply the linear operator to nodal values, shape ``(..., n)`` to ``(..., n)``."""
    x, w, derivative = _rule(f)
    first = f @ jnp.asarray(w, f.dtype)
    second = f @ jnp.asarray((w * np.cos(x)) @ derivative, f.dtype)
    return _outputs(x, first, second)


OPERATORS: dict[str, Callable[[Array], Array]] = {"nonlinear": nonlinear, "linear": linear}


def _rule(f: Array) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    degree = f.shape[-1] - 1
    rule = (lobatto.nodes, lobatto.weights, lobatto.differentiation_matrix)
    x, w, derivative = (part(degree) for part in rule)
    return x, w, derivative


def _outputs(x: np.ndarray, first: Array, second: Array) -> Array:
    shapes = jnp.asarray([x, np.sin(np.pi * x**2)], first.dtype)
    return jnp.stack([first, second], axis=-1) @ shapes
