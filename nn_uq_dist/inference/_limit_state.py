"""Limits of an output: which runs are beyond them, points at them by tangents, exact probabilities.

A network is linear if it is its tangent, as far as runs show; then its law is known.
"""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from numpy.typing import NDArray

from nn_uq_dist.basics import _checks
from nn_uq_dist.basics._known_values import FloatArray as Array
from nn_uq_dist.inference._standard_space import RUNS_PER_SLOPE, StandardSpace
from nn_uq_dist.inputs._flat_network import FlatNetwork
from nn_uq_dist.linearization import Linearization

# Most limits that have a proposal of their own; the others lie between them.
_MOST_TARGETS = 5
NUM_STEPS = 10
# Parts of the way to the point that a tangent proposes, of which the best is taken.
_STEPS = np.array([1.0, 0.5, 0.2, 0.05])
# Runs of the network for each start.
RUNS_PER_START = NUM_STEPS * (RUNS_PER_SLOPE + _STEPS.size)
# No step goes beyond this length: probabilities of 1e-23.
_FARTHEST = 10.0
_MOST_POINTS = 8
# A start that is farther from its limit than this part of the way failed.
_NEAR = 0.35
# Standard deviations of the draws that tell whether a network is linear.
_SPREADS = np.repeat([1.0, 2.0, 3.0], [16, 24, 24])
# Along the way to a point, and beyond it.
_PARTS = np.array([0.25, 0.5, 0.75, 0.9, 1.0, 1.1, 1.3])
# Rounding of a network, in units of the last place of the largest numbers; and the largest error
# that is no more than rounding, in standard deviations of the output.
_ROUNDING, _MOST_SHARE = 100.0, 1e-3


class BeyondLimits:
    """Whether an output is above limits, or below them, from the arguments of the user.

    Attributes
    ----------
    shape
        Of the limit.
    targets
        Columns for which a proposal is fitted.
    """

    def __init__(self, flat: FlatNetwork, limit: ArrayLike, output: int | str, upper: bool) -> None:
        limits = _checks.rounded("limit", limit, flat.dtype)
        _checks.require_finite("limit", limits, "pass a number that the output can reach")
        if limits.size == 0:
            raise ValueError(
                f"limit must hold a number, got shape {limits.shape}; pass at least one"
            )
        if not isinstance(upper, bool | np.bool_):
            raise TypeError(
                f"upper must be True or False, got {upper!r}; pass False for a lower limit"
            )
        names = flat.structure.names
        self.output = _checks.as_index(output, len(names), names)
        self.sign = 1.0 if upper else -1.0
        self.shape, self.limits = limits.shape, self.sign * limits.ravel()
        order = np.argsort(self.limits)
        places = np.linspace(0, limits.size - 1, min(limits.size, _MOST_TARGETS)).round()
        self.targets = tuple(int(order[int(place)]) for place in places)

    def read(self, outputs: jax.Array) -> jax.Array:
        """What is kept of outputs ``(n, N_y)``, a row for each run; traced by JAX: the output."""
        return outputs[:, self.output, None]

    def fails(self, kept: Array) -> NDArray[np.bool_]:
        """Which runs fail, ``(n, limits)``."""
        return self.sign * kept > self.limits

    def values(self, kept: Array) -> Array:
        """Distance of each run beyond the limit farthest out, positive if it fails there."""
        beyond = self.sign * kept[:, 0] - self.limits.max()
        return np.where(np.isnan(beyond), -np.inf, beyond)

    def in_order(self, bounds: Array) -> Array:
        """Upper bounds that do not increase with the limit: what is rarer has all bounds."""
        order = np.argsort(self.limits, kind="stable")
        rarer = np.minimum.accumulate(bounds[order])
        return rarer[np.argsort(order)]


def tangent_points(
    space: StandardSpace, question: BeyondLimits, targets: Sequence[int], starts: Array
) -> Array:
    r"""Points where the output is near its limit, from several starts; those that came near.

    Each step goes toward the point nearest to the origin at which the tangent is at the limit,
    :math:`z' = (\nabla g \cdot z - g + l)\, \nabla g / |\nabla g|^2` (R. Rackwitz and B. Fiessler
    1978), as far as it lowers :math:`|z|^2 / 2 + c |g - l|` most (Y. Zhang and A. Der Kiureghian
    1995): full steps may go to and fro between two pieces of a network.

    Parameters
    ----------
    targets
        Which of the limits; the starts take them in turn.
    """
    z, output, sign = starts, question.output, question.sign
    limits = np.resize(question.limits[list(targets)], len(z))
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
        trials = z + _STEPS[:, None, None] * (wanted - z)
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


def exact_log_probability(
    space: StandardSpace, question: BeyondLimits, rng: np.random.Generator
) -> tuple[Array, Array] | None:
    """Log probabilities beyond the limits, and points at them; None if the network bends."""
    value, slope = space.tangent(question.output)
    law, d = space.law, space.num_variables

    def is_tangent(z: Array) -> bool:
        """Whether the network differs from its tangent at the mean by no more than rounding."""
        inputs, found = space.run(z)
        linear = value + (inputs - np.asarray(law.loc, np.float64)) @ slope
        size = np.abs(value) + np.abs(inputs) @ np.abs(slope)
        rounding = _ROUNDING * float(jnp.finfo(law.dtype).eps) * size
        with np.errstate(invalid="ignore"):
            tolerance = np.minimum(rounding, _MOST_SHARE * linear.std())
        return bool(np.all(np.abs(found[:, 0] - linear) <= tolerance))

    if not is_tangent(_SPREADS[:, None] * rng.standard_normal((_SPREADS.size, d))):
        return None
    tangent = Linearization(
        jnp.asarray([value], law.dtype), jnp.asarray(slope[None], law.dtype), law
    )
    if tangent.image().is_constant.any():
        return None
    starts = np.zeros((len(question.targets), d))
    points = tangent_points(space, question, question.targets, starts)
    # On the way to the points, beyond them, and around them.
    way = _PARTS[:, None, None] * points
    around = points + 0.5 * rng.standard_normal((_PARTS.size, *points.shape))
    checked = np.concatenate([way, around]).reshape(-1, d)
    if len(checked) and not is_tangent(checked):
        return None
    marginal = tangent.marginals()
    limits = jnp.asarray(question.sign * question.limits, law.dtype)[:, None]
    found = marginal.log_sf(limits) if question.sign > 0 else marginal.log_cdf(limits)
    return np.asarray(found, np.float64)[:, 0], points
