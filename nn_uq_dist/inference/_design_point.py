"""The most probable failing inputs: design points of the limits."""

import numpy as np

from nn_uq_dist.basics._known_values import FloatArray as Array
from nn_uq_dist.inference._limits import Limits
from nn_uq_dist.inference._standard_space import StandardSpace

# Lengths of rays on which failing points are looked for, and halvings.
_FACTORS = np.linspace(1.1, 0.5, 13)
_HALVES = 5


def design_points(
    space: StandardSpace, limits: Limits, candidates: Array, most_runs: float
) -> Array:
    """For each limit the failing point nearest to zero on rays to candidates, else NaN."""
    rays = candidates[: max(1, int(most_runs / _FACTORS.size))]
    if not len(rays):
        return np.full((limits.values.size, space.num_variables), np.nan)
    trials = (_FACTORS[:, None, None] * rays).reshape(-1, rays.shape[1])
    fails = limits.fails(space.run(trials))
    squares = np.where(fails, np.sum(trials**2, axis=1)[:, None], np.inf)
    nearest = squares.argmin(axis=0)
    found = trials[nearest]
    # Failing points and shorter ones that do not: between them by halves.
    outer, inner = np.ones(len(found)), 1 + np.diff(_FACTORS)[0] / _FACTORS[nearest // len(rays)]
    for _ in range(_HALVES):
        middle = (outer + inner) / 2
        fails_there = limits.fails(space.run(middle[:, None] * found)).diagonal()
        outer, inner = np.where(fails_there, (middle, inner), (outer, middle))
    found = outer[:, None] * found
    return np.where(np.isfinite(squares.min(axis=0))[:, None], found, np.nan)
