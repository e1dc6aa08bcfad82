"""Limits of an output: which runs fail, and points there, on rays and along slopes."""

from collections.abc import Mapping

import jax
import numpy as np
from jax.typing import ArrayLike
from numpy.typing import NDArray

from nn_uq_dist.basics import checks
from nn_uq_dist.basics.concrete import FloatArray
from nn_uq_dist.inference._standard_space import RUNS_PER_SLOPE, StandardSpace
from nn_uq_dist.sampling.flat_network import FlatNetwork

# Most limits that are searched for on their own; the others lie between them.
_MOST_TARGETS = 5
# Halvings of the way from zero to a failing input; for design points.
RUNS_PER_RAY, _FINE_HALVES = 6, 8
# How many times the wanted runs many limits may take.
_MOST_MORE = 4
# How far beyond the limit a point nearest to zero is looked for.
STRETCHED = (1.001, 1.05, 1.15)
# Lengths of the steps of a climb, twice the same: P below 1e-18 is far.
_CLIMBS = 2 * tuple(2.0 * 0.8**k for k in range(6))
# Most climbs end half-way.
RUNS_PER_CLIMB = len(_CLIMBS) // 2 * RUNS_PER_SLOPE


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


def unit_slopes(space: StandardSpace, points: FloatArray) -> FloatArray:
    """Directions of the slopes of the output; zero where there is none."""
    return _units(space.slopes(points)[1])


def _units(slopes: FloatArray) -> FloatArray:
    with np.errstate(all="ignore"):
        directions = slopes / np.linalg.norm(slopes, axis=1, keepdims=True)
    return np.nan_to_num(directions, posinf=0, neginf=0)


def climbed(space: StandardSpace, limit: float, starts: FloatArray) -> FloatArray:
    """Points that fail, from starts that need not: steps along the slope of the output.

    Steps toward the tangent end where a slope vanishes, as at the edges of uniform variables.
    """
    if not len(starts):
        return starts
    points, found = starts, []
    for length in _CLIMBS:
        outputs, slopes = space.slopes(points)
        fails = outputs > limit
        found.append(points[fails])
        points = points[~fails]
        if not len(points):
            break
        points = points + length * _units(slopes[~fails])
    else:
        found.append(points[space.run(points) > limit])
    return np.concatenate(found)


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
    starts = STRETCHED[-1] * candidates[:most]
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
