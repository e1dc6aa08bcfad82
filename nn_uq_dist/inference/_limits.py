"""Limits of an output, and which runs are beyond them."""

import jax
import numpy as np
from jax.typing import ArrayLike
from numpy.typing import NDArray

from nn_uq_dist.basics import checks
from nn_uq_dist.basics.concrete import FloatArray as Array
from nn_uq_dist.inputs.flat_network import FlatNetwork

# Most limits that are searched for on their own; the others lie between them.
_MOST_TARGETS = 5


class Limits:
    """Upper or lower limits of an output, from the arguments of the user.

    Lower limits are upper ones of the output with the other sign: ``sign`` times the output is
    what the runs keep, and compare with ``values``.

    Attributes
    ----------
    output, sign, shape
        Index of the output, 1 or -1, and the shape of the limits.
    values : array, shape (L,)
    targets : tuple of int
        Limits that are searched for, those that are exceeded most often first.
    """

    def __init__(
        self,
        flat: FlatNetwork,
        limit: ArrayLike,
        output: int | str,
        upper: bool,
        most_targets: int = _MOST_TARGETS,
    ) -> None:
        limits = checks.rounded("limit", limit, flat.dtype)
        checks.require_finite("limit", limits, "pass a number that the output can reach")
        if limits.size == 0:
            raise ValueError(
                f"limit must hold a number, got shape {limits.shape}; pass at least one"
            )
        if not isinstance(upper, bool | np.bool_):
            raise TypeError(
                f"upper must be True or False, got {upper!r}; pass False for a lower limit"
            )
        names = flat.structure.names
        self.output = checks.as_index(output, len(names), names)
        self.sign = 1.0 if upper else -1.0
        self.shape, self.values = limits.shape, self.sign * limits.ravel()
        self._order = np.argsort(self.values, kind="stable")
        number = max(min(limits.size, most_targets, _MOST_TARGETS), 1)
        # The one that is exceeded most seldom is always among them.
        places = np.linspace(limits.size - 1, 0, number).round()[::-1]
        self.targets = tuple(int(self._order[int(place)]) for place in places)

    def read(self, outputs: jax.Array) -> jax.Array:
        """What is kept of outputs ``(n, N_y)``: the output; traced by JAX."""
        return self.sign * outputs[:, self.output]

    def fails(self, outputs: Array) -> NDArray[np.bool_]:
        """Which runs fail, ``(n, L)``; not those that are NaN."""
        return outputs[:, None] > self.values

    def in_order(self, bounds: Array) -> Array:
        """Upper bounds that do not increase with the limit: what is rarer has all bounds."""
        rarer = np.minimum.accumulate(bounds[self._order])
        return rarer[np.argsort(self._order)]
