"""All draws of a search, with weights over all mixtures that they were drawn from.

No draw is wasted, and no weight is large where one of the mixtures has been (A. Owen and Y. Zhou,
J. Am. Stat. Assoc. 95, 2000; J.-M. Cornuet, J.-M. Marin, A. Mira and C. P. Robert, Scand. J. Stat.
39, 2012).
"""

import math
from typing import Protocol

import numpy as np

from nn_uq_dist.basics.concrete import FloatArray as Array
from nn_uq_dist.inference._weighted_draws import log_sum


class Mixture(Protocol):
    """What an archive asks of a distribution."""

    def log_density(self, z: Array) -> Array:
        """Log density at points ``(n, d)``."""


class Archive[M: Mixture]:
    """Draws in standard space, and the mixtures that they were drawn from.

    Attributes
    ----------
    points : array, shape (n, d)
    mixtures : list
        With the number of draws of each.
    """

    def __init__(self, num_variables: int) -> None:
        self.points = np.zeros((0, num_variables))
        self.mixtures: list[tuple[M, int]] = []
        self._log_density = np.zeros(0)  # sums of numbers times densities

    def add(self, mixture: M, points: Array) -> Array:
        """Add draws of a mixture; its log density there."""
        self.mixtures.append((mixture, len(points)))
        before = mixture.log_density(self.points) + math.log(len(points))
        new = [each.log_density(points) + math.log(count) for each, count in self.mixtures]
        self._log_density = np.concatenate(
            [np.logaddexp(self._log_density, before), log_sum(np.stack(new))]
        )
        self.points = np.concatenate([self.points, points])
        return new[-1] - math.log(len(points))

    @property
    def log_density(self) -> Array:
        """Log density of all mixtures together, at the draws."""
        return self._log_density - math.log(max(len(self.points), 1))
