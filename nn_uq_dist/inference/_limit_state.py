"""Limits of an output, and tangents there: half-spaces that hold a part of the failing inputs."""

import dataclasses
from collections.abc import Mapping

import jax
import numpy as np
from jax.typing import ArrayLike
from numpy.typing import NDArray

from nn_uq_dist.basics import checks
from nn_uq_dist.basics.concrete import FloatArray
from nn_uq_dist.inference._normal_mixture import HalfSpace
from nn_uq_dist.inference._standard_space import RUNS_PER_SLOPE, StandardSpace
from nn_uq_dist.inputs.flat_network import FlatNetwork

# Most limits that are searched for on their own; the others lie between them.
_MOST_TARGETS = 5
# Halvings of the way from zero to a failing input; for design points.
_HALVES, _FINE_HALVES = 6, 8
# How many times the wanted runs many limits may take.
_MOST_MORE = 4
# Of the point of a plane that is nearest to zero: stretched, and parts of the way from it back.
_STRETCHED, _BACK = (1.001, 1.05, 1.15), (0.5, 0.75)
# Lengths of the steps of a climb; once more where no climb ends beyond the limit, as below 1e-18.
_CLIMBS = tuple(2.0 * 0.8**k for k in range(6))
RUNS_PER_CLIMB = len(_CLIMBS) * RUNS_PER_SLOPE + 1
RUNS_PER_START = _HALVES + 2 * RUNS_PER_SLOPE + len(_STRETCHED + _BACK)
# Distances of planes: nearer ones hold a third of all inputs, farther ones have less than 1e-23.
_NEAREST, _FARTHEST = 0.4, 10.0
# How much nearer half-spaces are drawn from, too, over the distance: they are e^.5 as probable.
SLACK = 0.5


class Limits:
    """Upper or lower limits of an output, from the arguments of the user.

    Lower limits are upper ones of the output with the other sign, which is what the runs keep.

    Attributes
    ----------
    shape : tuple of int
    values : array, shape (L,)
    targets : tuple of int
        Limits that are searched for, those that are exceeded most often first.
    """

    def __init__(
        self,
        flat: FlatNetwork,
        limit: ArrayLike,
        output: int | str | None,
        upper: bool,
        most_targets: int = _MOST_TARGETS,
    ) -> None:
        limits = _as_held("limit", limit, flat.dtype)
        if limits.size == 0:
            raise ValueError(
                f"limit must hold a number, got shape {limits.shape}; pass at least one"
            )
        if not isinstance(upper, bool | np.bool_):
            raise TypeError(
                f"upper must be True or False, got {upper!r}; pass False for a lower limit"
            )
        names = flat.structure.names
        self._output = checks.as_index(output, len(names), names)
        self._sign = 1.0 if upper else -1.0
        self.shape, self.values = limits.shape, self._sign * limits.ravel()
        self._order = np.argsort(self.values, kind="stable")
        number = max(min(limits.size, most_targets, _MOST_TARGETS), 1)
        # The one that is exceeded most seldom is always among them.
        places = np.linspace(limits.size - 1, 0, number).round()[::-1]
        self.targets = tuple(int(self._order[int(place)]) for place in places)

    def read(self, outputs: jax.Array) -> jax.Array:
        """What is kept of outputs ``(n, N_y)``: the output; traced by JAX."""
        return self._sign * outputs[:, self._output]

    def fails(self, outputs: FloatArray) -> NDArray[np.bool_]:
        """Which runs fail, ``(n, L)``; not those that are NaN."""
        return outputs[:, None] > self.values

    def in_order(self, bounds: FloatArray) -> FloatArray:
        """Upper bounds that do not increase with the limit: what is rarer has all bounds."""
        rarer = np.minimum.accumulate(bounds[self._order])
        return rarer[np.argsort(self._order)]


def _as_held(name: str, limit: ArrayLike, dtype: np.dtype) -> FloatArray:
    """Limits as outputs of this type hold them; finite."""
    if isinstance(limit, Mapping):
        output, value = next(iter(limit.items()), ("flow", 250.0))
        raise TypeError(
            f"{name} must be a number or an array of numbers, got a {type(limit).__name__}; pass "
            f"{name}={value!r}, output={output!r}"
            + (", and the others in calls of their own" if len(limit) > 1 else "")
        )
    remedy = "pass a number that the output can reach"
    with np.errstate(over="ignore"):
        found = checks.rounded(name, limit, dtype)
    given = np.asarray(limit, np.float64)
    checks.require_finite(name, given, remedy)
    if (beyond := ~np.isfinite(found)).any():
        raise ValueError(
            f"{name} must be in the range of {np.dtype(dtype)}, the type of the output, got "
            f"{given[beyond][0]:g}; {remedy}"
        )
    return found


@dataclasses.dataclass(frozen=True, eq=False)
class Tangent(HalfSpace):
    """A failing point near the limit, and the half-space beyond the tangent there."""

    point: FloatArray


def tangents(space: StandardSpace, limit: float, starts: FloatArray) -> list[Tangent]:
    r"""Tangents at the limit, one for each failing start.

    From the limit on the ray to the start to the failing one of some points that is nearest to
    zero: around the nearest point of the tangent, :math:`\nabla g \cdot (z - z_0) + g(z_0) > l`
    (R. Rackwitz and B. Fiessler, Computers and Structures 9, 1978), and on the way back.
    """
    if not len(starts) or space.run(np.zeros((1, starts.shape[1])))[0] > limit:
        return []  # around zero there is no nearest point
    points = on_rays(space, limit, starts)
    directions, distances = _planes(space, limit, points)
    feet = np.clip(distances, -_FARTHEST, _FARTHEST)[:, None] * directions
    trials = np.stack(
        [factor * feet for factor in _STRETCHED]
        + [feet + part * (points - feet) for part in _BACK]
        + [points]
    )
    fails = space.run(trials[:-1].reshape(-1, starts.shape[1])) > limit
    fails = np.concatenate([fails.reshape(-1, len(points)), np.ones((1, len(points)), bool)])
    squares = np.where(fails, np.sum(trials**2, axis=2), np.inf)
    points = trials[squares.argmin(axis=0), np.arange(len(points))]
    directions, distances = _planes(space, limit, points)
    return [
        Tangent(direction, distance, point)
        for direction, distance, point in zip(directions, distances.tolist(), points, strict=True)
        if _NEAREST < distance < _FARTHEST
    ]


def unit_slopes(space: StandardSpace, points: FloatArray) -> FloatArray:
    """Directions of the slopes of the output; zero where there is none."""
    _, slopes = space.slopes(points)
    with np.errstate(all="ignore"):
        directions = slopes / np.linalg.norm(slopes, axis=1, keepdims=True)
    return np.nan_to_num(directions, posinf=0, neginf=0)


def climbed(space: StandardSpace, limit: float, starts: FloatArray) -> FloatArray:
    """Points that fail, from starts that need not: steps along the slope of the output.

    Steps toward the tangent end where a slope vanishes, as at the edges of uniform variables.
    """
    points, fails = starts, np.zeros(len(starts), bool)
    for _ in range(2):
        for length in _CLIMBS:
            points = points + length * unit_slopes(space, points)
        fails = space.run(points) > limit
        if fails.any():
            break
    return points[fails]


def _planes(
    space: StandardSpace, limit: float, points: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Directions and distances of tangents; across the ray where there is no slope, as at steps."""
    outputs, slopes = space.slopes(points)
    with np.errstate(all="ignore"):
        size = np.linalg.norm(slopes, axis=1)
        directions = slopes / size[:, None]
        distances = np.sum(directions * points, axis=1) + (limit - outputs) / size
    flat = ~np.isfinite(distances + directions.sum(axis=1))
    length = np.maximum(np.linalg.norm(points, axis=1), 1e-300)  # zero has no ray, and stays
    directions[flat] = points[flat] / length[flat, None]
    distances[flat] = length[flat]
    return directions, distances


def on_rays(
    space: StandardSpace, limit: float, starts: FloatArray, num_halves: int = _HALVES
) -> FloatArray:
    """Failing points near the limit, on the rays from zero to failing starts."""
    inner, outer = np.zeros(len(starts)), np.ones(len(starts))
    for _ in range(num_halves):
        middle = (inner + outer) / 2
        fails = space.run(middle[:, None] * starts) > limit
        inner, outer = np.where(fails, inner, middle), np.where(fails, middle, outer)
    return outer[:, None] * starts


def design_points(
    space: StandardSpace,
    limits: Limits,
    candidates: FloatArray,
    failing: FloatArray,
    most_runs: float,
) -> FloatArray:
    """For each limit the failing point nearest to zero: on rays to candidates, or one that failed.

    Where no candidate fails, the way to the one that failed is halved: what fails may be thin.

    Parameters
    ----------
    space, limits
        The network, and what it fails at.
    candidates
        Points ``(n, d)`` near limits.
    failing
        For each limit a point that failed, shape ``(L, d)``, or NaN.
    most_runs
        About how many runs of the network to take.
    """
    most = max(1, int(most_runs / (1 + _FINE_HALVES * limits.values.size)))
    num_halves = min(int(_MOST_MORE * most_runs / (most * limits.values.size)), _FINE_HALVES)
    starts = _STRETCHED[-1] * candidates[:most]
    found = failing.copy()
    if len(starts):
        for row, fails in enumerate(limits.fails(space.run(starts)).T):
            on_ray = starts[fails] if fails.any() else failing[row][None]
            if np.isfinite(on_ray).all():
                points = on_rays(space, float(limits.values[row]), on_ray, num_halves)
                all_fail = np.ones((len(points), 1), bool)
                found[row] = nearest(points, all_fail, found[row][None])[0]
    return found


def nearest(points: FloatArray, fails: NDArray[np.bool_], before: FloatArray) -> FloatArray:
    """For each limit the failing point nearest to zero, of these and of one before, or NaN.

    Parameters
    ----------
    points, fails
        Points ``(n, d)``, and which limits they exceed, ``(n, L)``.
    before
        A failing point for each limit, shape ``(L, d)``, or NaN.
    """
    points = np.concatenate([before, points])
    fails = np.concatenate([np.eye(len(before), dtype=bool), fails])
    # NaN is nearer than what does not fail.
    squares = np.nan_to_num(np.sum(points**2, axis=1), nan=np.finfo(float).max)
    found: FloatArray = points[np.where(fails, squares[:, None], np.inf).argmin(axis=0)]
    return found


def distinct(tangents: list[Tangent], most: int) -> list[Tangent]:
    """Those of the points nearest to zero, none beyond the plane of a nearer one."""
    found: list[Tangent] = []
    for tangent in sorted(tangents, key=lambda tangent: float(tangent.point @ tangent.point)):
        if len(found) < most and not are_beyond(found, tangent.point[None])[0]:
            found.append(tangent)
    return found


def are_beyond(tangents: list[Tangent], points: FloatArray) -> NDArray[np.bool_]:
    """Which points are beyond any of the planes, or nearly."""
    if not tangents:
        return np.zeros(len(points), bool)
    along = points @ np.stack([one.direction for one in tangents]).T
    distances = np.array([one.distance for one in tangents])
    return (along > distances - SLACK / distances).any(axis=1)
