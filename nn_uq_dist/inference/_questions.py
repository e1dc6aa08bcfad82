"""What is asked of the outputs: whether they are beyond limits, or an event; and how near they are.

A question keeps a few numbers of each run. From those it says which runs fail, in a column for each
limit, and gives a value that is positive where the rarest one is met and else grows toward it.
"""

from collections.abc import Callable
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from nn_uq_dist.inputs._flat_network import FlatNetwork

type Array = NDArray[np.float64]
type Mask = NDArray[np.bool_]

# Most limits that have a proposal of their own; the others lie between them.
_MOST_TARGETS = 5
# Failing runs to which distances are measured.
_LANDMARKS = 200


class Question(Protocol):
    """What the search and the estimate need."""

    targets: tuple[int, ...]  # columns for which a proposal is fitted

    def read(self, outputs: jax.Array) -> jax.Array:
        """What is kept of outputs ``(n, N_y)``, a row for each run; traced by JAX."""

    def fails(self, kept: Array) -> Mask:
        """Which runs fail, ``(n, limits)``."""

    def values(self, kept: Array, squares: Array) -> Array:
        """How near each run is, given the squared lengths of its points; positive if it fails."""


class BeyondLimits:
    """Whether an output is above limits, or below them."""

    def __init__(self, output: int, limits: Array, *, upper: bool) -> None:
        self.output, self.sign = output, 1.0 if upper else -1.0
        self.limits = self.sign * limits
        order = np.argsort(self.limits)
        places = np.linspace(0, limits.size - 1, min(limits.size, _MOST_TARGETS)).round()
        self.targets = tuple(int(order[int(place)]) for place in places)

    def read(self, outputs: jax.Array) -> jax.Array:
        """The output."""
        return outputs[:, self.output, None]

    def fails(self, kept: Array) -> Mask:
        """Comparison with each limit."""
        return self.sign * kept > self.limits

    def values(self, kept: Array, squares: Array) -> Array:
        """Distance beyond the limit farthest out."""
        del squares
        beyond = self.sign * kept[:, 0] - self.limits.max()
        return np.where(np.isnan(beyond), -np.inf, beyond)


class IsEvent:
    """A function of the outputs that says yes or no, and so not how near they are.

    The distance to the outputs of failing runs serves instead: of those that are most probable so
    far, in units of the outputs' spread over all runs.
    """

    targets: tuple[int, ...] = (0,)

    def __init__(self, flat: FlatNetwork, event: Callable[[Any], Any]) -> None:
        self.structure, self.event = flat.output_structure, event

    def read(self, outputs: jax.Array) -> jax.Array:
        """Whether the event is met, and the outputs."""
        given = outputs if self.structure is None else self.structure.unravel(outputs)
        met = jax.vmap(self.event)(given).astype(outputs.dtype)
        return jnp.concatenate([met[:, None], outputs], axis=1)

    def fails(self, kept: Array) -> Mask:
        """Where the event is met."""
        return kept[:, :1] > 0

    def values(self, kept: Array, squares: Array) -> Array:
        """One if the event is met, else the negative distance to the nearest failing outputs."""
        failing = self.fails(kept)[:, 0]
        found = np.where(failing, 1.0, -np.inf)
        if not failing.any():
            # Nothing is known about the event: farther out is nearer.
            return -1 / (1 + squares)
        outputs = np.nan_to_num(kept[:, 1:])
        outputs /= np.maximum(outputs.std(axis=0), 1e-300)
        marks = np.flatnonzero(failing)
        marks = marks[np.argsort(squares[marks])[:_LANDMARKS]]
        for mark in marks:
            square = np.sum((outputs - outputs[mark]) ** 2, axis=1)
            found = np.where(failing, found, np.maximum(found, -square))
        return found
