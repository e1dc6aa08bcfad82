"""What is asked of an output: which runs are beyond limits, and how near the others are."""

import jax
import numpy as np
from jax.typing import ArrayLike
from numpy.typing import NDArray

from nn_uq_dist.basics import _checks

type Array = NDArray[np.float64]
type Mask = NDArray[np.bool_]

# Most limits that have a proposal of their own; the others lie between them.
_MOST_TARGETS = 5


class BeyondLimits:
    """Whether an output is above limits, or below them, from the arguments of the user.

    Attributes
    ----------
    shape
        Of the limit.
    targets
        Columns for which a proposal is fitted.
    """

    def __init__(self, num_outputs: int, limit: ArrayLike, output: int, upper: bool) -> None:
        limits = np.asarray(_checks.as_numeric("limit", limit), np.float64)
        _checks.require_finite("limit", limits, "pass a number that the output can reach")
        if limits.size == 0:
            raise ValueError(
                f"limit must hold a number, got shape {limits.shape}; pass at least one"
            )
        if not isinstance(upper, bool | np.bool_):
            raise TypeError(
                f"upper must be True or False, got {upper!r}; pass False for a lower limit"
            )
        (self.output,) = _checks.as_indices(output, num_outputs, "output")
        self.sign = 1.0 if upper else -1.0
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

    def values(self, kept: Array) -> Array:
        """Distance of each run beyond the limit farthest out, positive if it fails there."""
        beyond = self.sign * kept[:, 0] - self.limits.max()
        return np.where(np.isnan(beyond), -np.inf, beyond)
