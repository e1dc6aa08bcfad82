"""The most probable points at which an output is at a limit, by tangents in standard space."""

import numpy as np
from numpy.typing import NDArray

from nn_uq_dist.inference._standard_space import RUNS_PER_SLOPE, StandardSpace

type Array = NDArray[np.float64]

NUM_STEPS = 10
# Parts of the way to the point that a tangent proposes, of which the best is taken.
_PARTS = np.array([1.0, 0.5, 0.2, 0.05])
# Runs of the network for each start.
RUNS_PER_START = NUM_STEPS * (RUNS_PER_SLOPE + _PARTS.size)
# No step goes beyond this length: probabilities of 1e-23.
_FARTHEST = 10.0
_MOST_POINTS = 8
# A start that is farther from its limit than this part of the way failed.
_NEAR = 0.35


def tangent_points(
    space: StandardSpace,
    output: int,
    limits: Array,
    sign: float,
    starts: Array,
) -> Array:
    r"""Points where the output is near its limit, from several starts; those that came near.

    Each step goes toward the point nearest to the origin at which the tangent is at the limit,
    :math:`z' = (\nabla g \cdot z - g + l)\, \nabla g / |\nabla g|^2` (R. Rackwitz and B. Fiessler
    1978), as far as it lowers :math:`|z|^2 / 2 + c |g - l|` most (Y. Zhang and A. Der Kiureghian
    1995): full steps may go to and fro between two pieces of a network.

    Parameters
    ----------
    limits
        Limits times `sign`; the starts take them in turn.
    """
    z = starts
    limits = np.resize(limits, len(z))
    at_zero = sign * space.slopes(output, np.zeros((1, space.num_variables)))[0]
    for _ in range(NUM_STEPS):
        value, slope = space.slopes(output, z)
        short, slope = limits - sign * value, sign * slope
        square = np.sum(slope**2, axis=1)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            wanted = ((np.sum(slope * z, axis=1) + short) / square)[:, None] * slope
            norm = np.linalg.norm(wanted, axis=1, keepdims=True)
            wanted *= np.minimum(1, _FARTHEST / norm)
            own = np.linalg.norm(z, axis=1) / np.sqrt(square)
            price = 2 * np.maximum(own, 0.5 * np.sum(wanted**2, axis=1) / np.abs(short))
        price = np.where(np.isfinite(price), price, 1.0)
        trials = z + _PARTS[:, None, None] * (wanted - z)
        # A flat piece has no direction; the point stays.
        trials = np.where(np.isfinite(trials), trials, z)
        kept = space.run(trials.reshape(-1, space.num_variables))[1][:, 0].reshape(trials.shape[:2])
        merit = 0.5 * np.sum(trials**2, axis=2) + price * np.abs(sign * kept - limits)
        best = np.argmin(np.where(np.isnan(merit), np.inf, merit), axis=0), np.arange(len(z))
        z, reached = trials[best], sign * kept[best]
    return z[limits - reached < _NEAR * np.abs(limits - at_zero)]


def distinct(points: Array) -> Array:
    """The best of the points: short, and not close to a better one."""
    found: list[Array] = []
    for point in points[np.argsort(np.sum(points**2, axis=1))]:
        if all(np.sum((point - other) ** 2) > 1 for other in found):
            found.append(point)
    return np.array(found[:_MOST_POINTS]).reshape(-1, points.shape[1])
