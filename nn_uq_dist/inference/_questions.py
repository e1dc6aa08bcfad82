"""What is asked of the outputs: whether they are beyond limits, or an event; and how near they are.

A question keeps a few numbers of each run. From those it says which runs fail, in a column for each
limit, and gives a value that is positive where the rarest one is met and else grows toward it.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from numpy.typing import NDArray
from scipy.spatial.distance import cdist

from nn_uq_dist.basics import _checks
from nn_uq_dist.inputs._flat_network import FlatNetwork, unraveled

type Array = NDArray[np.float64]
type Mask = NDArray[np.bool_]

# Most limits that have a proposal of their own; the others lie between them.
_MOST_TARGETS = 5
# Failing runs to which distances are measured.
_LANDMARKS = 200


class BeyondLimits:
    """Whether an output is above limits, or below them.

    Attributes
    ----------
    shape
        Of the limit.
    targets
        Columns for which a proposal is fitted.
    """

    def __init__(self, output: int, limits: Array, *, upper: bool) -> None:
        self.output, self.sign = output, 1.0 if upper else -1.0
        self.shape, self.limits = limits.shape, self.sign * limits.ravel()
        order = np.argsort(self.limits)
        places = np.linspace(0, limits.size - 1, min(limits.size, _MOST_TARGETS)).round()
        self.targets = tuple(int(order[int(place)]) for place in places)

    def read(self, outputs: jax.Array) -> jax.Array:
        """What is kept of outputs ``(n, N_y)``, a row for each run; traced by JAX: the output."""
        return outputs[:, self.output, None]

    def fails(self, kept: Array) -> Mask:
        """Which runs fail, ``(n, limits)``."""
        return self.sign * kept > self.limits

    def values(self, kept: Array, squares: Array) -> Array:
        """How near each run is, given the squared lengths of its points; positive if it fails.

        The distance beyond the limit farthest out.
        """
        del squares
        beyond = self.sign * kept[:, 0] - self.limits.max()
        return np.where(np.isnan(beyond), -np.inf, beyond)

    def in_order(self, bounds: Array) -> Array:
        """Upper bounds that do not increase with the limit: what is rarer has all bounds."""
        order = np.argsort(self.limits, kind="stable")
        rarer = np.minimum.accumulate(bounds[order])
        return rarer[np.argsort(order)]


class IsEvent:
    """A function of the outputs that says yes or no, and so not how near they are.

    The distance to the outputs of failing runs serves instead: of those that are most probable so
    far, in units of the outputs' spread over all runs.
    """

    shape: tuple[int, ...] = ()
    targets: tuple[int, ...] = (0,)

    def __init__(self, flat: FlatNetwork, event: Any) -> None:
        self.flat, self.event = flat, event
        # Traced once, to see what it returns.
        expected = "event must be a function of the outputs that returns one boolean"
        remedy = "pass such as lambda y: (y[0] > 3.0) & (y[1] < 0.0)"
        try:
            outputs = self._structured(jnp.zeros(flat.num_outputs, flat.dtype))
            found = jax.eval_shape(event, outputs)
        except Exception as error:
            got = f"{type(error).__name__} from it: {error}"
            raise TypeError(f"{expected}, got {got}; {remedy}") from error
        if getattr(found, "shape", None) != () or found.dtype != np.bool_:
            raise TypeError(f"{expected}, got {found}; {remedy}")

    def _structured(self, outputs: jax.Array) -> Any:
        return unraveled(self.flat.output_structure, self.flat.num_outputs, outputs)

    def read(self, outputs: jax.Array) -> jax.Array:
        """Whether the event is met, and the outputs."""
        met = jax.vmap(self.event)(self._structured(outputs)).astype(outputs.dtype)
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


type Question = BeyondLimits | IsEvent


def as_question(
    flat: FlatNetwork,
    limit: ArrayLike | None,
    output: int,
    upper: bool,
    event: Callable[[Any], Any] | None,
) -> Question:
    """What is asked, from the arguments of `failure_probability`."""
    if (limit is None) == (event is None):
        both = "none" if limit is None else "both"
        raise TypeError(
            f"failure_probability needs either limit or event, got {both}; pass a limit for one "
            f"output, or a function of all outputs that returns a boolean"
        )
    if limit is None:
        return IsEvent(flat, event)
    limits = _checks.rounded("limit", limit, flat.dtype)
    _checks.require_finite("limit", limits, "pass a number that the output can reach")
    if limits.size == 0:
        raise ValueError(f"limit must hold a number, got shape {limits.shape}; pass at least one")
    if not isinstance(upper, bool | np.bool_):
        raise TypeError(f"upper must be True or False, got {upper!r}; pass False for a lower limit")
    (index,) = _checks.as_indices(output, flat.num_outputs, "output")
    return BeyondLimits(index, limits, upper=bool(upper))
