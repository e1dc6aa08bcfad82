"""Exact probabilities where the network is linear, and a check whether it is."""

import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from nn_uq_dist.inference._standard_space import StandardSpace
from nn_uq_dist.linearization import Linearization

type Array = NDArray[np.float64]

# Standard deviations of the draws of the check.
_SPREADS = np.repeat([1.0, 2.0, 3.0], [16, 24, 24])
# Along the way to a point, and beyond it.
_PARTS = np.array([0.25, 0.5, 0.75, 0.9, 1.0, 1.1, 1.3])
# Rounding of a network, in units of the last place of the largest numbers; and the largest error
# that is no more than rounding, in standard deviations of the output.
_ROUNDING, _MOST_SHARE = 100.0, 1e-3


class LinearCheck:
    """The tangent of an output at the mean input, compared with the network.

    Parameters
    ----------
    space
        It keeps the one output.
    output
        Its index.
    """

    def __init__(self, space: StandardSpace, output: int) -> None:
        self._space = space
        self._value, self._slope = space.tangent(output)

    def holds_at_draws(self, rng: np.random.Generator) -> bool:
        """Whether it holds at draws of the input's law, and of wider ones."""
        z = _SPREADS[:, None] * rng.standard_normal((_SPREADS.size, self._space.num_variables))
        return self._holds(z)

    def holds_near(self, points: Array, rng: np.random.Generator) -> bool:
        """Whether it holds on the way to points, beyond them, and around them."""
        way = (_PARTS[:, None, None] * points).reshape(-1, points.shape[1])
        around = points + 0.5 * rng.standard_normal((_PARTS.size, *points.shape))
        return self._holds(np.concatenate([way, around.reshape(-1, points.shape[1])]))

    def _holds(self, z: Array) -> bool:
        inputs, found = self._space.run(z)
        loc = np.asarray(self._space.law.loc, np.float64)
        linear = self._value + (inputs - loc) @ self._slope
        size = np.abs(self._value) + np.abs(inputs) @ np.abs(self._slope)
        rounding = _ROUNDING * float(jnp.finfo(self._space.law.dtype).eps) * size
        tolerance = np.minimum(rounding, _MOST_SHARE * linear.std())
        return bool(np.all(np.abs(found[:, 0] - linear) <= tolerance))

    def log_tails(self, limits: Array, *, upper: bool) -> Array:
        """Log probabilities beyond limits, as of `Linearization.marginals`."""
        law = self._space.law
        value, slope = (
            jnp.asarray([self._value], law.dtype),
            jnp.asarray(self._slope[None], law.dtype),
        )
        marginal = Linearization(value, slope, law).marginals()
        of_tail = marginal.log_sf if upper else marginal.log_cdf
        return np.asarray(of_tail(jnp.asarray(limits[:, None], law.dtype)), np.float64)[:, 0]
