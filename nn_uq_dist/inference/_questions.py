"""What is asked of the outputs: whether they are beyond limits, or an event; and how near they are.

A question keeps a few numbers of each run. From those it says which runs fail, in a column for each
limit, and gives a value that is positive where the rarest one is met and else grows toward it.
"""

from collections.abc import Callable
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from numpy.typing import NDArray
from scipy.spatial.distance import cdist

from nn_uq_dist.basics import _checks
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
        if not failing.any():
            # Nothing is known about the event: farther out is nearer.
            return -1 / (1 + squares)
        outputs = np.nan_to_num(kept[:, 1:])
        outputs /= np.maximum(outputs.std(axis=0), 1e-300)
        marks = np.flatnonzero(failing)
        marks = marks[np.argsort(squares[marks])[:_LANDMARKS]]
        nearest = cdist(outputs, outputs[marks], "sqeuclidean").min(axis=1)
        return np.where(failing, 1.0, -nearest)


def as_question(
    flat: FlatNetwork,
    limit: ArrayLike | None,
    output: int,
    upper: bool,
    event: Callable[[Any], Any] | None,
) -> tuple[Question, tuple[int, ...]]:
    """What is asked, from the arguments of `failure_probability`, and the shape of the limit."""
    if (limit is None) == (event is None):
        both = "none" if limit is None else "both"
        raise TypeError(
            f"failure_probability needs either limit or event, got {both}; pass a limit for one "
            f"output, or a function of all outputs that returns a boolean"
        )
    if limit is None:
        return IsEvent(flat, _as_event(event, flat)), ()
    limits = np.asarray(_checks.as_numeric("limit", limit), np.float64)
    _checks.require_finite("limit", limits, "pass a number that the output can reach")
    if limits.size == 0:
        raise ValueError(f"limit must hold a number, got shape {limits.shape}; pass at least one")
    if not isinstance(upper, bool | np.bool_):
        raise TypeError(f"upper must be True or False, got {upper!r}; pass False for a lower limit")
    (index,) = _checks.as_indices(output, flat.num_outputs, "output")
    return BeyondLimits(index, limits.ravel(), upper=bool(upper)), limits.shape


def _as_event(event: Any, flat: FlatNetwork) -> Callable[[Any], Any]:
    """The event, traced once to see what it returns."""
    vector = jnp.zeros(flat.num_outputs, flat.dtype)
    structure = flat.output_structure
    expected = "event must be a function of the outputs that returns one boolean"
    remedy = "pass such as lambda y: (y[0] > 3.0) & (y[1] < 0.0)"
    try:
        found = jax.eval_shape(event, vector if structure is None else structure.unravel(vector))
    except Exception as error:
        got = f"{type(error).__name__} from it: {error}"
        raise TypeError(f"{expected}, got {got}; {remedy}") from error
    if getattr(found, "shape", None) != () or found.dtype != np.bool_:
        raise TypeError(f"{expected}, got {found}; {remedy}")
    return event
