"""Corners of what fails: planes beyond which mostly failing inputs are, and where several meet."""

import dataclasses

import numpy as np
from numpy.typing import NDArray

from nn_uq_dist.basics.concrete import FloatArray
from nn_uq_dist.inference._importance_weights import far_apart
from nn_uq_dist.inference._limit_state import RUNS_PER_RAY, STRETCHED, between, on_rays
from nn_uq_dist.inference._normal_mixture import Wedge
from nn_uq_dist.inference._standard_space import RUNS_PER_SLOPE, StandardSpace

# Parts of the way from the point of a plane that is nearest to zero back.
_BACK = (0.5, 0.75)
# With planes one by one, of 12 systems in which components have to fail together 55 of 120 results
# converge, 6 of them wrong; with these 104 and 2 (`systems` of the benchmark).
# Tangents after the first where the nearest point does not fail; cosine of nearly one direction.
_CUTS, _CUT_HALVES, _SAME_DIRECTION = 3, 4, 0.8
# Draws beyond each plane alone, the share of all of them that fails with which planes do, and the
# share of starts that are looked at nevertheless.
_DRAWS_OF_PLANE, _ENOUGH_BEYOND, _SOME = 4, 0.1, 0.15
# Cuts come to it where the first plane does not say what fails.
RUNS_PER_START = RUNS_PER_RAY + 2 * RUNS_PER_SLOPE + len(STRETCHED + _BACK) + _DRAWS_OF_PLANE
# Distances of planes: nearer ones hold a third of all inputs, farther ones have less than 1e-23.
_NEAREST, _FARTHEST = 0.4, 10.0
# How much nearer half-spaces are drawn from, too, over the distance: they are e^.5 as probable.
SLACK = 0.5


@dataclasses.dataclass(frozen=True, eq=False)
class Corner(Wedge):
    """A failing point near the limit, and what is beyond the tangents there: mostly of one plane.

    Where several components have to fail together, there is a plane for each of them.
    """

    point: FloatArray
    foot: FloatArray  # nearest to zero beyond the planes

    def slack(self) -> Wedge:
        """The same with planes that are nearer to zero."""
        return Wedge(self.directions, self.distances - SLACK / np.linalg.norm(self.foot))


def corners(
    space: StandardSpace, limit: float, starts: FloatArray, rng: np.random.Generator
) -> list[Corner]:
    r"""Tangents at the limit, a corner for each failing start.

    From the limit on the ray to the start to the failing one of some points that is nearest to
    zero: around the nearest point of the tangent, :math:`\nabla g \cdot (z - z_0) + g(z_0) > l`
    (R. Rackwitz and B. Fiessler, Computers and Structures 9, 1978), and on the way back. A nearest
    point that does not fail gives a tangent of its own: it takes the place of one with nearly the
    same direction, and is beside those with others.
    """
    if not len(starts) or space.run(np.zeros((1, starts.shape[1])))[0] > limit:
        return []  # around zero there is no nearest point
    starts = on_rays(space, limit, starts)
    found = [_Planes(*plane) for plane in _planes(space, limit, starts)]
    points = _nearest_failing(space, limit, found, starts)
    planes = _planes(space, limit, points)
    found = [_Planes(*plane) for plane in planes]
    draws = np.concatenate([one.corner(one.foot).draw(rng, _DRAWS_OF_PLANE) for one in found])
    fails = (space.run(draws) > limit).reshape(len(found), -1)
    # Where others have to fail as well, next to nothing beyond a plane does.
    rows = np.flatnonzero(~fails.any(axis=1))
    if len(rows) and fails.mean() > _ENOUGH_BEYOND:
        # Planes may be enough for all: a few show whether there is something else.
        directions = np.array([planes[row][0] for row in rows])
        most = max(int(_SOME * len(found)), 1)
        rows = rows[far_apart(directions, np.ones(len(rows)), most, rng)]
    if len(rows):
        several = [found[row] for row in rows]
        _cut(space, limit, several, starts[rows])
        points[rows] = _nearest_failing(space, limit, several, starts[rows])
    kept = [one.corner(point) for one, point in zip(found, points, strict=True)]
    return [one for one in kept if _NEAREST < np.linalg.norm(one.foot) < _FARTHEST]


def _nearest_failing(
    space: StandardSpace, limit: float, found: "list[_Planes]", points: FloatArray
) -> FloatArray:
    """The failing one nearest to zero of these points, feet, and what is between."""
    feet = np.array([one.foot for one in found])
    trials = np.stack(
        [factor * feet for factor in STRETCHED]
        + [feet + part * (points - feet) for part in _BACK]
        + [points]
    )
    fails = space.run(trials[:-1].reshape(-1, points.shape[1])) > limit
    fails = np.concatenate([fails.reshape(-1, len(points)), np.ones((1, len(points)), bool)])
    squares = np.where(fails, np.sum(trials**2, axis=2), np.inf)
    nearest: FloatArray = trials[squares.argmin(axis=0), np.arange(len(points))]
    return nearest


def _cut(space: StandardSpace, limit: float, found: "list[_Planes]", points: FloatArray) -> None:
    """Add planes until the feet fail: from the way to failing points, by what lacks there."""
    rows = np.arange(len(points))
    for _ in range(_CUTS):
        feet = STRETCHED[0] * np.array([found[row].foot for row in rows])
        left = space.run(feet) <= limit
        rows, feet = rows[left], feet[left]
        if not rows.size:
            break
        inner, _ = between(space, limit, feet, points[rows], _CUT_HALVES)
        for row, cut in zip(rows, _planes(space, limit, inner), strict=True):
            found[row].add(*cut)


class _Planes:
    """Tangents that all hold together, and the nearest point beyond them."""

    def __init__(self, direction: FloatArray, distance: float) -> None:
        self._directions, self._distances = direction[None], np.array([distance])
        self.foot = np.clip(distance, -_FARTHEST, _FARTHEST) * direction

    def add(self, direction: FloatArray, distance: float) -> None:
        """Add a tangent, in place of those of nearly its direction."""
        others = self._directions @ direction < _SAME_DIRECTION
        directions = np.concatenate([self._directions[others], direction[None]])
        distances = np.append(self._distances[others], distance)
        foot, active = _nearest_beyond(directions, distances)
        if np.linalg.norm(foot) < _FARTHEST:
            self._directions, self._distances = directions[active], distances[active]
            self.foot = foot

    def corner(self, point: FloatArray) -> Corner:
        """The planes with a failing point near."""
        return Corner(self._directions, self._distances, point, self.foot)


def _planes(
    space: StandardSpace, limit: float, points: FloatArray
) -> list[tuple[FloatArray, float]]:
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
    return list(zip(directions, distances.tolist(), strict=True))


def _nearest_beyond(
    directions: FloatArray, distances: FloatArray
) -> tuple[FloatArray, NDArray[np.bool_]]:
    """The point beyond planes that is nearest to zero, and the planes that it is on.

    Infinite if there is none (C. L. Lawson and R. J. Hanson, Solving least squares problems, 1974,
    chapter 23).
    """
    from scipy.optimize import nnls

    rows = np.vstack([directions.T, distances])
    wanted = np.zeros(len(rows))
    wanted[-1] = 1
    multipliers, left = nnls(rows, wanted)
    rest = wanted - rows @ multipliers
    if left < 1e-9 or rest[-1] <= 0:
        return np.full(len(rows) - 1, np.inf), np.ones(len(distances), bool)
    return -rest[:-1] / rest[-1], multipliers > 0


def distinct(found: list[Corner], most: int) -> list[Corner]:
    """Those of the points nearest to zero, none beyond the planes of a nearer one."""
    kept: list[Corner] = []
    for one in sorted(found, key=lambda one: float(one.point @ one.point)):
        if len(kept) < most and not are_beyond(kept, one.point[None])[0]:
            kept.append(one)
    return kept


def are_beyond(corners: list[Corner], points: FloatArray) -> NDArray[np.bool_]:
    """Which points are beyond the planes of any corner, or nearly."""
    found = np.zeros(len(points), bool)
    for one in corners:
        found |= one.slack().holds(points)
    return found
