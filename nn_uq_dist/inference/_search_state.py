"""What a search for failures knows: all runs and what they show, and the mixture that it leads to.

The mixture has half-spaces and corners beyond tangents, normal distributions fitted to all failing
draws, to chains, and to slopes, and wide ones.
"""

import dataclasses
from itertools import zip_longest

import numpy as np
from numpy.typing import NDArray

from nn_uq_dist.basics.concrete import FloatArray
from nn_uq_dist.inference._importance_weights import (
    Archive,
    ess,
    relative,
    tail_excess,
    tail_shape,
    tempered,
)
from nn_uq_dist.inference._limit_state import Corner, Limits, distinct, nearest
from nn_uq_dist.inference._markov_chains import Chains, Population
from nn_uq_dist.inference._normal_mixture import Normal, NormalMixture, fit_normal_mixture
from nn_uq_dist.inference._standard_space import StandardSpace

# The shape of the tail of the weights of a round, or its excess, with which the mixture is good.
# Without further rounds the error among 40 half-spaces is 11 times as large; of 50 other problems
# none that converges is worse.
_GOOD_TAIL, _GOOD_EXCESS = 0.5, 0.02
_MOST_CORNERS = 200  # of a target
# Normal distributions of a fit, and of a population; effective draws for each of them and each
# variable; least failing draws, and how many a fit uses.
_MOST_PARTS = 10
_PARTS_OF_POPULATION = 4
_DRAWS_OF_PART = 4
_LEAST_DRAWS = 10
_MOST_FITTED = 6000
# Standard deviations of wide distributions. With up to 2.5, 9 of 54 searches silently miss a steep
# wedge behind a gentle slope, with these 7; of 384 limits of networks 308 and 314 are right.
SPREADS = (1.0, 1.75, 2.5, 3.5)
# Shares of the mixture: the input's own distribution, and wide ones. Weights of the others: a fit
# to failing draws, two wider copies, a fit to slopes, and a population. With the same weight for
# all but the population two of 17 problems converge less often, and errors of one are twice as
# large. Without wider copies a search among 40 half-spaces does not converge.
PRIOR_SHARE, GUARD_SHARE = 0.03, 0.04
_FIT = 0.6
_WIDER = 0.2
_BY_SLOPES = 0.4
_POPULATION = 0.05
# Weights of half-spaces beyond tangents, of nearer ones, and of normal distributions around their
# points, which hold what lies between two half-spaces.
_HALF_SPACES = 0.12, 0.09, 0.09
# Half-spaces of which less than this share fails, as so many effective draws show, are of no use.
_USEFUL_SHARE, _USEFUL_DRAWS = 0.05, 5.0
# Slopes are needed while there are fewer effective draws for each variable; at how many draws they
# are taken after a round, as a share of all runs and at most. Without them one of two searches with
# 20 exponential variables does not converge, and errors with 5 to 7 normal ones are 1.3 times as
# large.
ENOUGH_FOR_MEAN = 20.0
_SLOPES_SHARE = 0.006
_MOST_SLOPES = 60
# Points of chains are not independent. One fit is at least as wide as this, another has larger
# variances by the factor: for regions that are not wide at all.
_LEAST_VARIANCE = 0.05
_LARGER = 4.0
_LEAST_POINTS = 3


@dataclasses.dataclass(frozen=True, eq=False)
class Problem:
    """A network, its limits, and what a search may use: so many runs, and random numbers."""

    space: StandardSpace
    limits: Limits
    num_runs: int
    rng: np.random.Generator

    def run(self, points: FloatArray) -> FloatArray:
        """Outputs, with -inf for NaN: that never fails."""
        outputs = self.space.run(points)
        return np.where(np.isnan(outputs), -np.inf, outputs)

    @property
    def runs_of_target(self) -> float:
        """The share of the runs that each target has."""
        return self.num_runs / len(self.limits.targets)

    @property
    def num_slopes(self) -> int:
        """At how many draws slopes are taken after a round."""
        return int(np.ceil(min(_SLOPES_SHARE * self.num_runs, _MOST_SLOPES)))


@dataclasses.dataclass(frozen=True, eq=False)
class Target:
    """A limit that is searched for, its number among all, and what the search has learned of it."""

    number: int
    limit: float
    population: Population
    chains: Chains
    population_fit: NormalMixture | None
    chains_fit: NormalMixture | None = None  # once they have moved
    corners: tuple[Corner, ...] = ()
    slopes: dict[int, FloatArray] = dataclasses.field(default_factory=dict)  # by number of the draw

    def with_corners(self, new: list[Corner]) -> "Target":
        """The target with further corners."""
        kept = distinct([*self.corners, *new], _MOST_CORNERS)
        return dataclasses.replace(self, corners=tuple(kept))


@dataclasses.dataclass(frozen=True, eq=False)
class Search:
    """Runs of a network, and what they show of its failures.

    Attributes
    ----------
    archive : Archive
        All draws that have a density.
    outputs, is_plain : array, shape (n,)
        What they led to, and which of them are draws of the input's own distribution.
    last_log_weights : array
        Of the last round, over its own mixture.
    targets : tuple of Target
    num_rounds : int
    """

    problem: Problem
    archive: Archive
    outputs: FloatArray
    is_plain: NDArray[np.bool_]
    last_log_weights: FloatArray
    targets: tuple[Target, ...] = ()
    num_rounds: int = 0

    def draw(self, mixture: NormalMixture, count: int) -> "Search":
        """With draws of a mixture, whose first component is the input's own distribution."""
        points = mixture.draw(self.problem.rng, count)
        # What the draws stand for is the standard normal distribution.
        archive, log_weights = self.archive.add(mixture, points, -0.5 * np.sum(points**2, axis=1))
        is_plain = np.arange(count) < int(mixture.shares[0] * count)
        return dataclasses.replace(
            self,
            archive=archive,
            outputs=np.concatenate([self.outputs, self.problem.run(points)]),
            is_plain=np.concatenate([self.is_plain, is_plain]),
            last_log_weights=log_weights,
        )

    def fails(self) -> NDArray[np.bool_]:
        """Which draws fail, ``(n, L)``."""
        return self.problem.limits.fails(self.outputs)

    def failing(self, target: Target) -> NDArray[np.intp]:
        """Numbers of the draws that fail at a target."""
        return np.flatnonzero(self.outputs > target.limit)

    @property
    def probability(self) -> tuple[FloatArray, FloatArray]:
        """Estimate for each limit, and its standard error."""
        terms = np.exp(self.archive.log_weights)[:, None] * self.fails()
        return terms.mean(axis=0), terms.std(axis=0) / np.sqrt(len(terms))

    @property
    def is_good(self) -> bool:
        """Whether the weights of the last round have no heavy tail."""
        logs = self.last_log_weights
        columns = [logs[self.outputs[-logs.size :] > target.limit] for target in self.targets]
        return all(tail_shape(c) < _GOOD_TAIL or tail_excess(c) < _GOOD_EXCESS for c in columns)

    def candidates(self) -> FloatArray:
        """Points on whose rays the most probable failing input may be."""
        # The best of each target first, and of those the target that is exceeded most seldom.
        ranked = zip_longest(*(target.corners for target in reversed(self.targets)))
        feet = [one.foot for some in ranked for one in some if one]
        fails, first = self.fails(), len(self.targets)
        squares = np.where(fails, np.sum(self.archive.points**2, axis=1)[:, None], np.inf)
        rows = np.unique(squares.argmin(axis=0)[fails.any(axis=0)])
        points = np.array([*feet[:first], *self.archive.points[rows], *feet[first:]])
        return points.reshape(-1, self.problem.space.num_variables)

    def nearest(self) -> FloatArray:
        """For each limit the failing point nearest to zero of all that are known, or NaN."""
        values = self.problem.limits.values
        none = np.full((values.size, self.problem.space.num_variables), np.nan)
        closest = nearest(self.archive.points, self.fails(), none)
        for target in self.targets:
            points = np.concatenate(
                [target.population.points, target.chains.points]
                + [one.point[None] for one in target.corners]
            )
            # What exceeds the limit of a target exceeds those below.
            fails = np.tile(values <= target.limit, (len(points), 1))
            closest = nearest(points, fails, closest)
        return closest

    def proposal(self) -> NormalMixture:
        """The mixture for all that has been seen to fail; its first part is the input's own."""
        logs = self.archive.log_weights
        mixtures, weights = [], np.zeros(len(logs))
        for target in self.targets:
            failing = self.failing(target)
            of_target = relative(logs[failing])
            weights[failing] += of_target / of_target.sum()
            if parts := _mixtures(self, target, failing, of_target):
                mixtures.append(NormalMixture.joined(*parts))
        share = (1 - PRIOR_SHARE - GUARD_SHARE) / max(len(mixtures), 1)
        d = self.archive.points.shape[1]
        mixture = NormalMixture.joined(
            (around_zero(d, SPREADS[:1]), PRIOR_SHARE),
            (around_zero(d, SPREADS[1:]), GUARD_SHARE),
            *((mixture, share) for mixture in mixtures),
        )
        chosen = weights > 0
        return mixture.balanced(self.archive.points[chosen], weights[chosen])


def _mixtures(
    search: Search, target: Target, failing: NDArray[np.intp], weights: FloatArray
) -> list[tuple[NormalMixture, float]]:
    """Mixtures for a target, and their weights."""
    points, mixtures = search.archive.points[failing], []
    d = points.shape[1]
    if len(failing) >= _LEAST_DRAWS:
        fit = _fitted(search, failing)
        variance = float(weights @ np.sum(points**2, axis=1) / weights.sum()) / d
        # As wide as the space itself, which matters in many variables.
        full = tuple(Normal.around(part.mean) for part in fit.normals)
        mixtures.append((fit, _FIT))
        mixtures.append((NormalMixture(full, fit.shares), _WIDER))
        mixtures.append((NormalMixture.even(Normal.around(np.zeros(d), variance)), _WIDER))
        by_slopes = _fit_by_slopes(search, target)
        if by_slopes is not None and ess(weights) <= ENOUGH_FOR_MEAN * d:
            mixtures.append((by_slopes, _BY_SLOPES))
    fits = target.population_fit, target.chains_fit
    mixtures += [(fit, _POPULATION) for fit in fits if fit is not None]
    if useful := _useful(search, target):
        nearer = [corner.slack() for corner in useful]
        normals = [Normal.around(corner.point) for corner in useful]
        even = (NormalMixture.even(*kind) for kind in (useful, nearer, normals))
        mixtures += zip(even, _HALF_SPACES, strict=True)
    return mixtures


def _useful(search: Search, target: Target) -> list[Corner]:
    """Corners, but for those where draws show that little beyond them fails."""
    fails, weights = search.outputs > target.limit, np.exp(search.archive.log_weights)
    useful = []
    for one in target.corners:
        beyond = weights * one.holds(search.archive.points)
        seldom = beyond @ fails < _USEFUL_SHARE * beyond.sum()
        if not (seldom and ess(beyond) > _USEFUL_DRAWS):
            useful.append(one)
    return useful


def _fitted(search: Search, failing: NDArray[np.intp]) -> NormalMixture:
    """A mixture for failing draws."""
    d, rng = search.archive.points.shape[1], search.problem.rng
    if len(failing) > _MOST_FITTED:
        failing = rng.choice(failing, _MOST_FITTED, replace=False)
    # No weight is zero: a draw that weighs nothing still has a place.
    weights = np.maximum(tempered(search.archive.log_weights[failing], d), 1e-300)
    most = int(np.clip(ess(weights) / (_DRAWS_OF_PART * d), 1, _MOST_PARTS))
    return fit_normal_mixture(search.archive.points[failing], weights, rng, most)


def _fit_by_slopes(search: Search, target: Target) -> NormalMixture | None:
    """Distributions fitted to slopes at failing draws; None without a slope."""
    rows = [row for row, slope in target.slopes.items() if np.isfinite(slope).all()]
    if not rows:
        return None
    slopes = np.array([target.slopes[row] for row in rows])
    weights = tempered(search.archive.log_weights[rows], search.problem.num_slopes)
    if not (weights @ slopes).any():
        return None
    distribution = Normal.fit_slopes(search.archive.points[rows], weights, slopes)
    return NormalMixture.even(distribution, Normal.around(distribution.mean))


def fit_of_population(points: FloatArray, rng: np.random.Generator) -> NormalMixture | None:
    """A mixture for points of chains; None if they are few."""
    points = np.unique(points, axis=0)  # steps that were not taken repeat a point
    if len(points) < _LEAST_POINTS:
        return None
    fit = fit_normal_mixture(points, np.ones(len(points)), rng, _PARTS_OF_POPULATION)
    normals = []
    for least, factor in ((_LEAST_VARIANCE, 1.0), (0.0, _LARGER)):
        for part in fit.normals:
            larger = np.where(part.variances < 1, factor, 1) * part.variances
            normals.append(Normal(part.mean, part.directions, np.maximum(larger, least)))
    return NormalMixture(tuple(normals), np.tile(fit.shares, 2))


def around_zero(num_variables: int, spreads: tuple[float, ...]) -> NormalMixture:
    """Normal distributions around zero with these standard deviations, evenly."""
    zero = np.zeros(num_variables)
    return NormalMixture.even(*(Normal.around(zero, spread**2) for spread in spreads))
