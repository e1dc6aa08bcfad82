"""Exact probabilities where the network is linear, and a check whether it is."""

import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from nn_uq_dist.inference._questions import BeyondLimits
from nn_uq_dist.inference._standard_space import StandardSpace
from nn_uq_dist.inference._tangent_points import tangent_points
from nn_uq_dist.linearization import Linearization

type Array = NDArray[np.float64]

# Standard deviations of the draws of the check.
_SPREADS = np.repeat([1.0, 2.0, 3.0], [16, 24, 24])
# Along the way to a point, and beyond it.
_PARTS = np.array([0.25, 0.5, 0.75, 0.9, 1.0, 1.1, 1.3])
# Rounding of a network, in units of the last place of the largest numbers; and the largest error
# that is no more than rounding, in standard deviations of the output.
_ROUNDING, _MOST_SHARE = 100.0, 1e-3


def exact_log_probability(
    space: StandardSpace, question: BeyondLimits, rng: np.random.Generator
) -> tuple[Array, Array] | None:
    """Log probabilities beyond the limits, and points at them; None if the network bends."""
    tangent = _Tangent(space, question.output)
    d = space.num_variables
    if not tangent.holds(_SPREADS[:, None] * rng.standard_normal((_SPREADS.size, d))):
        return None
    limits = question.limits[list(question.targets)]
    starts = np.zeros((limits.size, d))
    points = tangent_points(space, question.output, limits, question.sign, starts)
    # On the way to the points, beyond them, and around them.
    way = _PARTS[:, None, None] * points
    around = points + 0.5 * rng.standard_normal((_PARTS.size, *points.shape))
    checked = np.concatenate([way, around]).reshape(-1, d)
    if len(checked) and not tangent.holds(checked):
        return None
    return tangent.log_tails(question), points


class _Tangent:
    """The tangent of an output at the mean input."""

    def __init__(self, space: StandardSpace, output: int) -> None:
        self._space = space
        self._value, self._slope = space.tangent(output)

    def holds(self, z: Array) -> bool:
        """Whether the network differs from it by no more than rounding."""
        inputs, found = self._space.run(z)
        loc = np.asarray(self._space.law.loc, np.float64)
        linear = self._value + (inputs - loc) @ self._slope
        size = np.abs(self._value) + np.abs(inputs) @ np.abs(self._slope)
        rounding = _ROUNDING * float(jnp.finfo(self._space.law.dtype).eps) * size
        tolerance = np.minimum(rounding, _MOST_SHARE * linear.std())
        return bool(np.all(np.abs(found[:, 0] - linear) <= tolerance))

    def log_tails(self, question: BeyondLimits) -> Array:
        """Log probabilities, as of `Linearization.marginals`."""
        law = self._space.law
        value = jnp.asarray([self._value], law.dtype)
        slope = jnp.asarray(self._slope[None], law.dtype)
        marginal = Linearization(value, slope, law).marginals()
        upper = question.sign > 0
        limits = jnp.asarray(question.sign * question.limits, law.dtype)[:, None]
        found = marginal.log_sf(limits) if upper else marginal.log_cdf(limits)
        return np.asarray(found, np.float64)[:, 0]
