"""Where a network fails: every region that a run has entered gets a part of the mixture.

A search that only follows its own best draws ends in one of several regions. So it begins with
draws of the input's distribution and of wider ones, with a population by subset simulation, and
with climbs along the slope, from whose ends chains go on. From failing points of all three,
tangents lead to half-spaces near zero, and to corners where several components have to fail
together. A mixture of these, of normal distributions fitted to all failing draws, to the chains,
and to slopes, and of wide ones is drawn from in rounds. After each of them, failing draws that no
corner holds and new climbs lead to further ones, and chains go to where the mixtures have little.
"""

import dataclasses
from itertools import zip_longest

import numpy as np
from numpy.typing import NDArray

from nn_uq_dist.basics.concrete import FloatArray
from nn_uq_dist.inference._corners import (
    RUNS_PER_START,
    Corner,
    are_beyond,
    corners,
    distinct,
)
from nn_uq_dist.inference._importance_weights import (
    Archive,
    effective,
    far_apart,
    tail_excess,
    tail_shape,
    tempered,
)
from nn_uq_dist.inference._limit_state import (
    RUNS_PER_CLIMB,
    Limits,
    climbed,
    nearest,
    on_rays,
    unit_slopes,
)
from nn_uq_dist.inference._markov_chains import MOVES, Chains, Population, subset_simulation
from nn_uq_dist.inference._normal_mixture import Normal, NormalMixture, fit_mixture
from nn_uq_dist.inference._standard_space import RUNS_PER_SLOPE, StandardSpace

# Standard deviations of the first draws, and their shares; the first are the input's own. With up
# to 2.5, 9 of 54 searches silently miss a steep wedge behind a gentle slope, with these 7; of 384
# limits of networks 308 and 314 are right.
SPREADS, SPREAD_SHARES = (1.0, 1.75, 2.5, 3.5), (0.4, 0.2, 0.2, 0.2)
# Shares of all runs: first draws, starts of corners at first and after a round, and rounds.
WIDE_SHARE, _STARTS_SHARE, _NEW_SHARE, LEARNING_SHARE = 0.08, 0.06, 0.007, 0.27
# Subset simulation begins with this share of the input's own draws among the first ones.
_PILOT_SHARE = 0.4
# Shares of all runs: climbs, and chains from their ends, which move before each round. With none, 4
# of 12 searches in a box of 12 inputs that fails in two corners find one; with these 2 of 64.
_CLIMB_SHARE, _CHAIN_SHARE = 0.10, 0.04
# Rounds after which new climbs lead to corners, and the share of all runs for each.
_PROBED_ROUNDS, _PROBE_SHARE = (1, 3), 0.01
# Share of the candidates that climb: those whose slopes differ most. Where all climb, and only from
# the input's own draws, 15 of 24 searches miss a steep wedge behind a gentle slope; with these 9 of
# 54.
_CLIMBING = 0.4
# Rounds that these are for, least and most draws of one, and most starts.
_ROUNDS, _LEAST_ROUND, _MOST_ROUND, _MOST_STARTS = 6, 100, 20_000, 200
# Share of the runs that is left, and the shape of the tail of the weights of a round, or its
# excess, with which the mixture is good. Without further rounds the error among 40 half-spaces is
# 11 times as large; of 50 other problems none that converges is worse.
_LEAST_LEFT, _GOOD_TAIL, _GOOD_EXCESS = 0.25, 0.5, 0.02
# Tangents of a target; normal distributions of a fit, and of a population; effective draws for each
# of them and each variable; least failing draws, and how many a fit uses.
_MOST_CORNERS, _MOST_PARTS, _PARTS_OF_POPULATION, _DRAWS_OF_PART = 200, 10, 4, 4
_LEAST_DRAWS, _MOST_FITTED = 10, 6000
# Shares of the mixture: the input's own distribution, and wide ones. Weights of the others: a fit
# to failing draws, two wider copies, a fit to slopes, and a population. With the same weight for
# all but the population two of 17 problems converge less often, and errors of one are twice as
# large. Without wider copies a search among 40 half-spaces does not converge.
PRIOR_SHARE, GUARD_SHARE = 0.03, 0.04
_FIT, _WIDER, _BY_SLOPES, _CHAINS = 0.6, 0.2, 0.4, 0.05
# Weights of half-spaces beyond tangents, of nearer ones, and of normal distributions around their
# points, which hold what lies between two half-spaces.
_HALF_SPACES = 0.12, 0.09, 0.09
# Half-spaces of which less than this share fails, as so many effective draws show, are of no use.
_USEFUL_SHARE, _USEFUL_DRAWS = 0.05, 5.0
# Slopes are needed while there are fewer effective draws for each variable; at how many draws they
# are taken after a round, as a share of all runs and at most. Without them one of two searches with
# 20 exponential variables does not converge, and errors with 5 to 7 normal ones are 1.3 times as
# large.
_ENOUGH_FOR_MEAN, _SLOPES_SHARE, _MOST_SLOPES = 20.0, 0.006, 60
# Points of chains are not independent. One fit is at least as wide as this, another has larger
# variances by the factor: for regions that are not wide at all.
_LEAST_VARIANCE, _LARGER, _LEAST_POINTS = 0.05, 4.0, 3

# Draws that show what is beyond a corner.
_DRAWS_OF_CORNER = 8


@dataclasses.dataclass(eq=False)
class Target:
    """A limit that is searched for, its number among all, and what is known of it."""

    number: int
    limit: float
    population: Population
    chains: Chains
    # Of the population, and of the chains once they have moved.
    fits: dict[str, NormalMixture | None] = dataclasses.field(default_factory=dict)
    corners: list[Corner] = dataclasses.field(default_factory=list)
    slopes: dict[int, FloatArray] = dataclasses.field(default_factory=dict)

    @property
    def has_corners(self) -> bool:
        """Whether several components have to fail somewhere."""
        return any(len(one.distances) > 1 for one in self.corners)


class FailureSearch:
    """Runs of a network, and what they show of its failures.

    Attributes
    ----------
    archive : Archive
        All draws that have a density.
    outputs, is_plain : array, shape (n,)
        What they led to, and which of them are draws of the input's own distribution.
    targets : list of Target
    """

    def __init__(
        self, space: StandardSpace, limits: Limits, num_runs: int, rng: np.random.Generator
    ) -> None:
        self.space, self.limits, self._rng = space, limits, rng
        self.archive = Archive(space.num_variables)
        self.outputs, self.is_plain = np.zeros(0), np.zeros(0, bool)
        self._num_slopes = int(np.ceil(min(_SLOPES_SHARE * num_runs, _MOST_SLOPES)))
        self._runs_of_probe = _PROBE_SHARE * num_runs / len(limits.targets)
        self._num_rounds = 0
        count = int(WIDE_SHARE * num_runs)
        self.draw(NormalMixture(self._spreads(SPREADS).components, np.array(SPREAD_SHARES)), count)
        own = int(SPREAD_SHARES[0] * count)
        pilot = int(_PILOT_SHARE * own)
        values = limits.values[list(limits.targets)].tolist()
        plain = self.archive.points[:pilot], self.outputs[:pilot]
        populations = subset_simulation(self._run, values, *plain, rng)
        runs = num_runs / len(values)
        self.targets = [
            Target(number, limit, population, Chains(self._climbed(limit, own, runs)))
            for number, limit, population in zip(limits.targets, values, populations, strict=True)
        ]
        for target in self.targets:
            target.fits["population"] = self._fit_of(target.population.points)
        for_each = runs / RUNS_PER_START
        for target in self.targets:
            starts = self._starts(target, int(np.clip(_STARTS_SHARE * for_each, 2, _MOST_STARTS)))
            self._add_corners(target, corners(space, target.limit, starts, rng))
        self._learn(int(_NEW_SHARE * for_each))
        least = min(_LEAST_ROUND, num_runs // 10)
        size = int(np.clip(LEARNING_SHARE * num_runs / _ROUNDS, least, _MOST_ROUND))
        left = int(LEARNING_SHARE * num_runs / size)
        while space.num_runs <= (1 - _LEAST_LEFT) * num_runs and (left > 0 or not self._is_good()):
            self._num_rounds += 1
            self.draw(self.proposal(), size)
            self._learn(int(_NEW_SHARE * for_each))
            left -= 1

    def probe(self, target: Target, num_runs: float) -> FloatArray:
        """Failing points where climbs from new draws end, in about so many runs."""
        count = max(int(num_runs / RUNS_PER_CLIMB), 1)
        spread = np.resize([SPREADS[0], SPREADS[-1]], (count, 1))
        starts = spread * self._rng.standard_normal((count, self.space.num_variables))
        return climbed(self.space, target.limit, starts)

    def contradictions(self, target: Target, num_runs: float) -> list[FloatArray]:
        """Failing draws beyond each of the corners to which new climbs lead."""
        ends = self.probe(target, num_runs * RUNS_PER_CLIMB / (RUNS_PER_CLIMB + RUNS_PER_START))
        drawn = [
            one.draw(self._rng, _DRAWS_OF_CORNER)
            for one in corners(self.space, target.limit, ends, self._rng)
        ]
        fails = self._run(np.concatenate([*drawn, ends])) > target.limit
        each = np.split(fails[: len(fails) - len(ends)], len(drawn)) if drawn else []
        return [points[failing] for points, failing in zip(drawn, each, strict=True)]

    def draw(self, mixture: NormalMixture, count: int) -> None:
        """Add draws of a mixture, whose first component is the input's own distribution."""
        points = mixture.draw(self._rng, count)
        self.outputs = np.concatenate([self.outputs, self._run(points)])
        is_plain = np.arange(count) < int(mixture.shares[0] * count)
        self.is_plain = np.concatenate([self.is_plain, is_plain])
        # What the draws stand for is the standard normal distribution.
        log_target = -0.5 * np.sum(points**2, axis=1)
        self._last_log_weights = self.archive.add(mixture, points, log_target)

    def fails(self) -> NDArray[np.bool_]:
        """Which draws fail, ``(n, L)``."""
        return self.limits.fails(self.outputs)

    @property
    def probability(self) -> tuple[FloatArray, FloatArray]:
        """Estimate for each limit, and its standard error."""
        terms = np.exp(self.archive.log_weights)[:, None] * self.fails()
        return terms.mean(axis=0), terms.std(axis=0) / np.sqrt(len(terms))

    def candidates(self) -> FloatArray:
        """Points on whose rays the most probable failing input may be."""
        # The best of each target first, and of those the target that is exceeded most seldom.
        ranked = zip_longest(*(target.corners for target in reversed(self.targets)))
        feet = [one.foot for some in ranked for one in some if one]
        fails, first = self.fails(), len(self.targets)
        squares = np.where(fails, np.sum(self.archive.points**2, axis=1)[:, None], np.inf)
        rows = np.unique(squares.argmin(axis=0)[fails.any(axis=0)])
        found = np.array([*feet[:first], *self.archive.points[rows], *feet[first:]])
        return found.reshape(-1, self.space.num_variables)

    def nearest(self) -> FloatArray:
        """For each limit the failing point nearest to zero of all that are known, or NaN."""
        none = np.full((self.limits.values.size, self.space.num_variables), np.nan)
        found = nearest(self.archive.points, self.fails(), none)
        for target in self.targets:
            points = np.concatenate(
                [target.population.points, target.chains.points]
                + [one.point[None] for one in target.corners]
            )
            # What exceeds the limit of a target exceeds those below.
            fails = np.tile(self.limits.values <= target.limit, (len(points), 1))
            found = nearest(points, fails, found)
        return found

    def proposal(self) -> NormalMixture:
        """The mixture for all that has been seen to fail; its first part is the input's own."""
        logs = self.archive.log_weights
        parts, weights = [], np.zeros(len(logs))
        for target in self.targets:
            failing = np.flatnonzero(self.outputs > target.limit)
            relative = _relative(logs[failing])
            weights[failing] += relative / relative.sum()
            if found := self._parts(target, failing, relative):
                parts.append(NormalMixture.joined(*found))
        share = (1 - PRIOR_SHARE - GUARD_SHARE) / max(len(parts), 1)
        mixture = NormalMixture.joined(
            (self._spreads(SPREADS[:1]), PRIOR_SHARE),
            (self._spreads(SPREADS[1:]), GUARD_SHARE),
            *((part, share) for part in parts),
        )
        chosen = weights > 0
        return mixture.balanced(self.archive.points[chosen], weights[chosen])

    def _parts(
        self, target: Target, failing: NDArray[np.intp], relative: FloatArray
    ) -> list[tuple[NormalMixture, float]]:
        """Mixtures for a target, and their weights."""
        d, found = self.space.num_variables, []
        if len(failing) >= _LEAST_DRAWS:
            fit = self._fitted(failing)
            square = relative @ np.sum(self.archive.points[failing] ** 2, axis=1)
            around_zero = Normal.around(np.zeros(d), float(square / relative.sum()) / d)
            # As wide as the space itself, which matters in many variables.
            full = tuple(Normal.around(part.mean) for part in fit.normals)
            found.append((fit, _FIT))
            found.append((NormalMixture(full, fit.shares), _WIDER))
            found.append((NormalMixture.even(around_zero), _WIDER))
            by_slopes = self._fit_by_slopes(target)
            if by_slopes is not None and effective(relative) <= _ENOUGH_FOR_MEAN * d:
                found.append((by_slopes, _BY_SLOPES))
        found += [(fit, _CHAINS) for fit in target.fits.values() if fit is not None]
        if useful := self._useful(target):
            nearer = [corner.slack() for corner in useful]
            normals = [Normal.around(corner.point) for corner in useful]
            even = (NormalMixture.even(*kind) for kind in (useful, nearer, normals))
            found += zip(even, _HALF_SPACES, strict=True)
        return found

    def _starts(self, target: Target, most: int) -> FloatArray:
        """Failing points, first draws, population and ends of climbs."""
        points = self.archive.points[self.outputs > target.limit]
        parts = [points, target.population.points, target.chains.points]
        chosen = [part[self._rng.permutation(len(part))[: -(-most // 3)]] for part in parts]
        return np.concatenate(chosen)

    def _learn(self, most: int) -> None:
        """Tangents from failing draws that no half-space holds, and slopes at the heaviest."""
        logs = self.archive.log_weights
        for target in self.targets:
            self._move_chains(target)
            if self._num_rounds in _PROBED_ROUNDS and target.has_corners:
                ends = self.probe(target, self._runs_of_probe)
                ends = ends[~are_beyond(target.corners, ends)][:most]
                self._add_corners(target, corners(self.space, target.limit, ends, self._rng))
            failing = np.flatnonzero(self.outputs > target.limit)
            if not failing.size:
                continue
            is_new = ~are_beyond(target.corners, self.archive.points[failing])
            chosen = failing[is_new] if is_new.any() else failing
            points = self.archive.points[chosen]
            # Far from each other: those of the largest weights may be in one place.
            rows = far_apart(points, _relative(logs[chosen]), max(most, 1), self._rng)
            self._add_corners(target, corners(self.space, target.limit, points[rows], self._rng))
            if effective(_relative(logs[failing])) > _ENOUGH_FOR_MEAN * self.space.num_variables:
                continue
            heaviest = np.argsort(-logs[failing], kind="stable")[: self._num_slopes]
            if new := [row for row in failing[heaviest].tolist() if row not in target.slopes]:
                _, slopes = self.space.slopes(self.archive.points[new])
                target.slopes |= dict(zip(new, slopes, strict=True))

    def _is_good(self) -> bool:
        """Whether the weights of the last round have no heavy tail."""
        logs = self._last_log_weights
        columns = [logs[self.outputs[-logs.size :] > target.limit] for target in self.targets]
        return all(tail_shape(c) < _GOOD_TAIL or tail_excess(c) < _GOOD_EXCESS for c in columns)

    def _useful(self, target: Target) -> list[Corner]:
        """Corners, but for those where draws show that little beyond them fails."""
        fails, weights = self.outputs > target.limit, np.exp(self.archive.log_weights)
        found = []
        for one in target.corners:
            beyond = weights * one.holds(self.archive.points)
            seldom = beyond @ fails < _USEFUL_SHARE * beyond.sum()
            if not (seldom and effective(beyond) > _USEFUL_DRAWS):
                found.append(one)
        return found

    def _add_corners(self, target: Target, new: list[Corner]) -> None:
        target.corners = distinct(target.corners + new, _MOST_CORNERS)

    def _fitted(self, failing: NDArray[np.intp]) -> NormalMixture:
        """A mixture for failing draws."""
        d, points = self.space.num_variables, self.archive.points
        if len(failing) > _MOST_FITTED:
            failing = self._rng.choice(failing, _MOST_FITTED, replace=False)
        # No weight is zero: a draw that weighs nothing still has a place.
        weights = np.maximum(tempered(self.archive.log_weights[failing], d), 1e-300)
        most = int(np.clip(effective(weights) / (_DRAWS_OF_PART * d), 1, _MOST_PARTS))
        return fit_mixture(points[failing], weights, self._rng, most)

    def _fit_by_slopes(self, target: Target) -> NormalMixture | None:
        """Distributions fitted to slopes at failing draws; None without a slope."""
        found = {row: slope for row, slope in target.slopes.items() if np.isfinite(slope).all()}
        if not found:
            return None
        rows, slopes = list(found), np.array(list(found.values()))
        weights = tempered(self.archive.log_weights[rows], self._num_slopes)
        if not (weights @ slopes).any():
            return None
        distribution = Normal.fit_slopes(self.archive.points[rows], weights, slopes)
        return NormalMixture.even(distribution, Normal.around(distribution.mean))

    def _climbed(self, limit: float, num_plain: int, num_runs: float) -> FloatArray:
        """Starts of chains next to the limit: where climbs from draws with different slopes end."""
        number = int(_CLIMB_SHARE * num_runs / (RUNS_PER_SLOPE + _CLIMBING * RUNS_PER_CLIMB))
        # Half of the candidates are the input's own draws, which are first, half the widest ones.
        size = len(self.outputs)
        plain, widest = np.arange(num_plain), np.arange(size - int(SPREAD_SHARES[-1] * size), size)
        parts = [self._rng.permutation(part)[: number // 2] for part in (plain, widest)]
        starts = self.archive.points[np.concatenate(parts)]
        slopes, even = unit_slopes(self.space, starts), np.ones(len(starts))
        most = max(int(_CLIMBING * number), 1)
        # Those whose slopes differ most first. Where one component at a time counts, these are few.
        different = far_apart(slopes, even, most, self._rng)
        climbing = [*different, *np.setdiff1d(np.arange(len(starts)), different)][:most]
        ends = climbed(self.space, limit, starts[climbing])
        if not len(ends):
            return ends
        most = max(int(_CHAIN_SHARE * num_runs / (MOVES * (1 + _ROUNDS))), 1)
        ends = on_rays(self.space, limit, ends)
        return ends[far_apart(ends, np.ones(len(ends)), most, self._rng)]

    def _move_chains(self, target: Target) -> None:
        """Go on with half of the chains, twice: far from each other where mixtures have little."""
        if len(now := target.chains.points):
            logs = -0.5 * np.sum(now**2, axis=1) - self.archive.log_density(now)
            half = far_apart(now, tempered(logs, len(now)), -(-len(now) // 2), self._rng)
            target.chains.move(self._run, target.limit, np.resize(half, len(now)), self._rng)
            target.fits["chains"] = self._fit_of(np.concatenate(target.chains.recent))

    def _fit_of(self, points: FloatArray) -> NormalMixture | None:
        """A mixture for points of chains; None if they are few."""
        points = np.unique(points, axis=0)  # steps that were not taken repeat a point
        if len(points) < _LEAST_POINTS:
            return None
        fit = fit_mixture(points, np.ones(len(points)), self._rng, _PARTS_OF_POPULATION)
        parts = []
        for least, factor in ((_LEAST_VARIANCE, 1.0), (0.0, _LARGER)):
            for part in fit.normals:
                larger = np.where(part.variances < 1, factor, 1) * part.variances
                parts.append(Normal(part.mean, part.directions, np.maximum(larger, least)))
        return NormalMixture(tuple(parts), np.tile(fit.shares, 2))

    def _run(self, points: FloatArray) -> FloatArray:
        """Outputs, with -inf for NaN: that never fails."""
        outputs = self.space.run(points)
        return np.where(np.isnan(outputs), -np.inf, outputs)

    def _spreads(self, spreads: tuple[float, ...]) -> NormalMixture:
        zero = np.zeros(self.space.num_variables)
        return NormalMixture.even(*(Normal.around(zero, spread**2) for spread in spreads))


def _relative(log_weights: FloatArray) -> FloatArray:
    """Weights, the largest of them one."""
    return np.exp(log_weights - log_weights.max(initial=-np.inf))
