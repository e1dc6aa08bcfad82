"""Limits of an output: which runs fail, and points and planes there.

Points at a limit are on rays from zero, and where climbs along slopes end. Planes are tangents
there: mostly failing inputs are beyond one of them, or beyond several at once, at a corner.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Self

import jax
import numpy as np
from jax.typing import ArrayLike
from numpy.typing import NDArray

from nn_uq_dist.basics import checks
from nn_uq_dist.basics.concrete import FloatArray
from nn_uq_dist.inference._importance_weights import kmeans_plus_plus
from nn_uq_dist.inference._normal_mixture import Wedge
from nn_uq_dist.inference._standard_space import RUNS_PER_SLOPE, StandardSpace
from nn_uq_dist.sampling.flat_network import FlatNetwork

# Most limits that are searched for on their own; the others lie between them.
_MOST_TARGETS = 5
# Halvings of the way from zero to a failing input; for design points.
RUNS_PER_RAY, _FINE_HALVES = 6, 8
# How many times the wanted runs many limits may take.
_MOST_MORE = 4
# Lengths of the steps of a climb, twice the same: P below 1e-18 is far.
_CLIMBS = 2 * tuple(2.0 * 0.8**k for k in range(6))
# Most climbs end half-way.
RUNS_PER_CLIMB = len(_CLIMBS) // 2 * RUNS_PER_SLOPE

# The nearest failing point is looked for beyond the point of a plane nearest to zero, by these
# factors, and on the way from there to a failing point, by these shares of it.
_STRETCHED, _BACK = (1.001, 1.05, 1.15), (0.5, 0.75)
# With planes one by one, of 12 systems in which components have to fail together 55 of 120 results
# converge, 6 of them wrong; with these 104 and 2 (`systems` of the benchmark).
# Tangents after the first where the nearest point does not fail, and halvings for each.
_CUTS, _CUT_HALVES = 3, 4
_SAME_DIRECTION = 0.8  # cosine
# Draws beyond each plane alone, the share of all of them that fails with which planes do, and the
# share of starts that are looked at nevertheless.
_DRAWS_OF_PLANE = 4
_ENOUGH_BEYOND = 0.1
_SOME = 0.15
# Cuts come to it where the first plane does not say what fails.
RUNS_PER_START = RUNS_PER_RAY + 2 * RUNS_PER_SLOPE + len(_STRETCHED + _BACK) + _DRAWS_OF_PLANE
# Distances of planes: nearer ones hold a third of all inputs, farther ones have less than 1e-23.
_NEAREST, _FARTHEST = 0.4, 10.0
# How much nearer half-spaces are drawn from, too, over the distance: they are e^.5 as probable.
_SLACK = 0.5


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
        limits = _in_type(limit, flat.dtype)
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


def _in_type(limit: ArrayLike, dtype: np.dtype) -> FloatArray:
    """Finite limits, rounded to the type of the output, in float64."""
    if isinstance(limit, Mapping):
        raise TypeError(
            f"limit must be a number or an array of numbers, got a {type(limit).__name__}; pass "
            f"the limits of one output, and its name as output"
        )
    with np.errstate(over="ignore"):
        rounded = checks.rounded("limit", limit, dtype)
    if rounded.size == 0:
        raise ValueError(f"limit must hold a number, got shape {rounded.shape}; pass at least one")
    remedy = "pass a number that the output can have"
    checks.require_finite("limit", np.asarray(limit, np.float64), remedy)
    checks.require_in_range("limit", np.asarray(limit, np.float64), dtype)
    return rounded


def units(slopes: FloatArray) -> FloatArray:
    """Directions of slopes ``(n, d)``; zero where there is none."""
    with np.errstate(all="ignore"):
        directions = slopes / np.linalg.norm(slopes, axis=1, keepdims=True)
    return np.nan_to_num(directions, posinf=0, neginf=0)


def gradient_ascent(space: StandardSpace, limit: float, starts: FloatArray) -> FloatArray:
    """Points that fail, from starts that need not: steps along the slope of the output.

    Steps toward the tangent end where a slope vanishes, as at the edges of uniform variables.
    """
    if not len(starts):
        return starts
    points, ends = starts, []
    for length in _CLIMBS:
        outputs, slopes = space.slopes(points)
        fails = outputs > limit
        ends.append(points[fails])
        points = points[~fails]
        if not len(points):
            break
        points = points + length * units(slopes[~fails])
    else:
        ends.append(points[space.run(points) > limit])
    return np.concatenate(ends)


def on_rays(
    space: StandardSpace, limit: float, starts: FloatArray, num_halves: int = RUNS_PER_RAY
) -> FloatArray:
    """Failing points near the limit, on the rays from zero to failing starts."""
    return between(space, limit, np.zeros_like(starts), starts, num_halves)[1]


def between(
    space: StandardSpace, limit: float, inner: FloatArray, outer: FloatArray, num_halves: int
) -> tuple[FloatArray, FloatArray]:
    """The last points that do not fail, and the first that do, on the way from some to others."""
    for _ in range(num_halves):
        middle = (inner + outer) / 2
        fails = (space.run(middle) > limit)[:, None]
        inner, outer = np.where(fails, inner, middle), np.where(fails, middle, outer)
    return inner, outer


def design_points(
    space: StandardSpace,
    limits: Limits,
    candidates: FloatArray,
    failing: FloatArray,
    most_runs: float,
) -> FloatArray:
    """For each limit the failing point nearest to zero: on rays to candidates, or one that failed.

    Where no candidate fails, the way to the one that failed is halved: what fails may be thin.

    The candidates are points ``(n, d)`` near limits; `failing` has for each limit a point that
    failed, shape ``(L, d)``, or NaN. About `most_runs` runs of the network are taken.
    """
    most = max(1, int(most_runs / (1 + _FINE_HALVES * limits.values.size)))
    num_halves = min(int(_MOST_MORE * most_runs / (most * limits.values.size)), _FINE_HALVES)
    starts = _STRETCHED[-1] * candidates[:most]
    points = failing.copy()
    if len(starts):
        for row, fails in enumerate(limits.fails(space.run(starts)).T):
            on_ray = starts[fails] if fails.any() else failing[row][None]
            if np.isfinite(on_ray).all():
                on_limit = on_rays(space, float(limits.values[row]), on_ray, num_halves)
                all_fail = np.ones((len(on_limit), 1), bool)
                points[row] = nearest(on_limit, all_fail, points[row][None])[0]
    return points


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
    return points[np.where(fails, squares[:, None], np.inf).argmin(axis=0)]


@dataclasses.dataclass(frozen=True, eq=False)
class Corner(Wedge):
    """A failing point near the limit, and what is beyond the tangents there: mostly of one plane.

    Where several components have to fail together, there is a plane for each of them.
    """

    foot: FloatArray  # nearest to zero beyond the planes
    point: FloatArray

    def slack(self) -> Wedge:
        """The same with planes that are nearer to zero."""
        return Wedge(self.directions, self.distances - _SLACK / np.linalg.norm(self.foot))

    def cut(self, tangent: Self) -> Self:
        """The corner with one more plane, in place of those of nearly its direction."""
        others = self.directions @ tangent.directions[0] < _SAME_DIRECTION
        directions = np.concatenate([self.directions[others], tangent.directions])
        distances = np.concatenate([self.distances[others], tangent.distances])
        foot, active = _nearest_beyond(directions, distances)
        if np.linalg.norm(foot) >= _FARTHEST:
            return self
        return type(self)(directions[active], distances[active], foot, self.point)


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
    points = _nearest_failing(space, limit, _tangents(space, limit, starts), starts)
    at_points = _tangents(space, limit, points)
    draws = np.concatenate([one.draw(rng, _DRAWS_OF_PLANE) for one in at_points])
    fails = (space.run(draws) > limit).reshape(len(points), -1)
    # Where others have to fail as well, next to nothing beyond a plane does.
    rows = np.flatnonzero(~fails.any(axis=1))
    if len(rows) and fails.mean() > _ENOUGH_BEYOND:
        # Planes may be enough for all: a few show whether there is something else.
        directions = np.concatenate([at_points[row].directions for row in rows])
        most = max(int(_SOME * len(points)), 1)
        rows = rows[kmeans_plus_plus(directions, np.ones(len(rows)), most, rng)]
    if len(rows):
        several = _cut(space, limit, [at_points[row] for row in rows], starts[rows])
        points[rows] = _nearest_failing(space, limit, several, starts[rows])
        for row, one in zip(rows, several, strict=True):
            at_points[row] = one
    moved = map(lambda one, point: dataclasses.replace(one, point=point), at_points, points)
    return [one for one in moved if _NEAREST < np.linalg.norm(one.foot) < _FARTHEST]


def _nearest_failing(
    space: StandardSpace, limit: float, corners: list[Corner], points: FloatArray
) -> FloatArray:
    """The failing one nearest to zero of these points, feet, and what is between."""
    feet = np.array([one.foot for one in corners])
    trials = np.stack(
        [factor * feet for factor in _STRETCHED]
        + [feet + share * (points - feet) for share in _BACK]
        + [points]
    )
    fails = space.run(trials[:-1].reshape(-1, points.shape[1])) > limit
    fails = np.concatenate([fails.reshape(-1, len(points)), np.ones((1, len(points)), bool)])
    squares = np.where(fails, np.sum(trials**2, axis=2), np.inf)
    return trials[squares.argmin(axis=0), np.arange(len(points))]


def _cut(
    space: StandardSpace, limit: float, corners: list[Corner], points: FloatArray
) -> list[Corner]:
    """Corners with more planes until the feet fail: tangents on the way to failing points."""
    corners, rows = list(corners), np.arange(len(points))
    for _ in range(_CUTS):
        feet = _STRETCHED[0] * np.array([corners[row].foot for row in rows])
        left = space.run(feet) <= limit
        rows, feet = rows[left], feet[left]
        if not rows.size:
            break
        inner, _ = between(space, limit, feet, points[rows], _CUT_HALVES)
        for row, tangent in zip(rows, _tangents(space, limit, inner), strict=True):
            corners[row] = corners[row].cut(tangent)
    return corners


def _tangents(space: StandardSpace, limit: float, points: FloatArray) -> list[Corner]:
    """Tangents at points; across the ray where there is no slope, as at steps."""
    outputs, slopes = space.slopes(points)
    with np.errstate(all="ignore"):
        size = np.linalg.norm(slopes, axis=1)
        directions = slopes / size[:, None]
        distances = np.sum(directions * points, axis=1) + (limit - outputs) / size
    flat = ~np.isfinite(distances + directions.sum(axis=1))
    length = np.maximum(np.linalg.norm(points, axis=1), 1e-300)  # zero has no ray, and stays
    directions[flat] = points[flat] / length[flat, None]
    distances[flat] = length[flat]
    feet = np.clip(distances, -_FARTHEST, _FARTHEST)[:, None] * directions
    tangents = directions[:, None], distances[:, None], feet, points
    return [Corner(*tangent) for tangent in zip(*tangents, strict=True)]


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


def distinct(corners: list[Corner], most: int) -> list[Corner]:
    """Those of the points nearest to zero, none beyond the planes of a nearer one."""
    kept: list[Corner] = []
    for one in sorted(corners, key=lambda one: float(one.point @ one.point)):
        if len(kept) < most and not are_beyond(kept, one.point[None])[0]:
            kept.append(one)
    return kept


def are_beyond(corners: Sequence[Corner], points: FloatArray) -> NDArray[np.bool_]:
    """Which points are beyond the planes of any corner, or nearly."""
    holds = [one.slack().holds(points) for one in corners]
    return np.any([np.zeros(len(points), bool), *holds], axis=0)
