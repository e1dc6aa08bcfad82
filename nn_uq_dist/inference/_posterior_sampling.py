"""Weighted draws of posteriors of the standard variables, for several observations at once.

Each observation has a mixture of its own. It is drawn from, the draws are weighted by the network,
and the mixture is fitted anew to all draws so far, whose weights are over all mixtures (AMIS: J.-M.
Cornuet, J.-M. Marin, A. Mira and C. P. Robert, Scand. J. Stat. 39, 2012). The draws come in two
halves with mixtures of their own, each fitted to the other half. Fitted to its own draws, a mixture
would have its peaks where these are: their weights would be too small, and all standard deviations
(by 5%, and the evidence by 30%, with twelve inputs).
"""

import dataclasses
import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from nn_uq_dist.basics.concrete import FloatArray
from nn_uq_dist.inference._importance_weights import (
    LARGEST_SHAPE,
    LEAST_EFFECTIVE,
    Archive,
    agree,
    effective,
    far_apart,
    smoothed,
    systematic,
    tempered,
)
from nn_uq_dist.inference._randomized_modes import covariances, missing_share, randomized_modes
from nn_uq_dist.inference._standard_space import StandardSpace
from nn_uq_dist.inference._student_mixture import StudentMixture, fit_mixture

# Starts of an observation, of which half are at first among the draws that all observations share,
# far from each other, as the best may all be in one mode. Draws of a round; as many are shared.
_NUM_STARTS, NUM_DRAWS = 128, 4000
# The draws of a round are at least this share of all draws before.
_GROWTH = 0.33
# Effective draws up to which rounds go on, and draws that a mixture is fitted to.
_ENOUGH_EFFECTIVE = 2500
# Components of a mixture, and effective draws of each for each variable.
_MOST_COMPONENTS, _DRAWS_OF_COMPONENT = 40, 3
# Effective draws to which weights are tempered: at least, for each variable, and for each draw.
_TEMPERED = 300.0, 12.0, 0.01
# Log densities below the largest, in standard deviations of that of a normal posterior, at which a
# start is at no mode that matters.
_START_ERRORS, _START_MARGIN = 3.0, 6.0
# Log densities below this count as -inf, as NaN does: rounded by more than a hundredth, they cannot
# be told apart. Those of outputs that are 1e7 standard deviations of the noise from what was
# observed are.
_LOWEST = -0.01 / np.finfo(float).eps
# Largest share of the posterior in modes without a start, and the share of the runs that starts may
# take while it is larger.
_MOST_MISSING, _STARTS_SHARE = 0.02, 0.25


@dataclasses.dataclass(frozen=True, eq=False)
class Observations:
    """What was observed: outputs ``(B, N_y)``, and matrices that whiten the noise of each."""

    outputs: FloatArray
    whitening: FloatArray  # (B, N_y, N_y)

    def misfits(self, outputs: FloatArray, index: NDArray[np.intp]) -> FloatArray:
        """Misfits in units of the noise, of outputs ``(n, N_y)`` to the observations `index`."""
        found = outputs - self.outputs[index]
        # One product for each observation: gathered matrices would be most of all numbers.
        for b in np.unique(index):
            rows = index == b
            found[rows] = found[rows] @ self.whitening[b].T
        return found

    @property
    def log_scales(self) -> FloatArray:
        """Log densities of the noise at zero."""
        log_determinants = np.linalg.slogdet(self.whitening)[1]
        return log_determinants - 0.5 * self.outputs.shape[1] * math.log(2 * math.pi)


@dataclasses.dataclass(frozen=True, eq=False)
class Draws:
    """The draws of one observation.

    Attributes
    ----------
    points
        In standard space, shape ``(S, d)``.
    log_weights
        Normalized, the largest ones smoothed by a Pareto distribution.
    log_evidence, effective, pareto_k
        Log of the mean weight, and what the weights are worth.
    converged, num_runs
        Whether the draws can be trusted, and runs of the network.
    """

    points: FloatArray
    log_weights: FloatArray
    log_evidence: float
    effective: float
    pareto_k: float
    converged: bool
    num_runs: int


class _Search:
    """Starts near modes of one observation, and all draws of it, in two halves."""

    def __init__(self, d: int, rng: np.random.Generator) -> None:
        self.rng, self.num_runs = rng, 0
        self._starts = np.zeros((0, d)), np.zeros((0, d, d)), np.zeros(0)
        # Modes that no start has reached: their share of the posterior.
        self.missing = 1.0
        self.mixtures: list[StudentMixture] = []
        self.archives: tuple[Archive[StudentMixture], ...] = (Archive(d), Archive(d))

    def add_starts(
        self,
        points: FloatArray,
        precisions: FloatArray,
        log_densities: FloatArray,
        num_outputs: int,
    ) -> None:
        """Add starts, judge all, and begin with components at those that may be at a mode.

        The mixtures of the halves have every other start: they know nothing of each other.
        """
        added = zip(self._starts, (points, precisions, log_densities), strict=True)
        points, precisions, logs = (np.concatenate(pair) for pair in added)
        self._starts = points, precisions, logs
        d = points.shape[1]
        lowest = logs.max() - d - _START_ERRORS * math.sqrt(2 * d) - _START_MARGIN
        kept = np.flatnonzero((logs >= lowest) & np.isfinite(logs))
        if kept.size:
            self.missing = missing_share(points[kept], precisions[kept], logs[kept], num_outputs)
        self.mixtures = []
        for rows in (kept[kept % 2 == 0], kept[kept % 2 == 1]):
            mixture = StudentMixture.standard(d)
            if rows.size:
                scales = covariances(precisions[rows])
                mixture = StudentMixture.of(np.ones(rows.size), points[rows], scales)
            self.mixtures.append(mixture)

    def propose(self, count: int) -> FloatArray:
        """Draws of both mixtures."""
        return np.concatenate([mixture.draw(self.rng, count // 2) for mixture in self.mixtures])

    def add(self, points: FloatArray, log_target: FloatArray) -> Draws:
        """Add a round; what all draws say."""
        before, error_before = _log_mean(*(archive.log_weights for archive in self.archives))
        parts = zip(self.mixtures, np.split(points, 2), np.split(log_target, 2), strict=True)
        added = [a.add(*part) for a, part in zip(self.archives, parts, strict=True)]
        last, error_last = _log_mean(*added)
        self.num_runs += len(points)
        points = np.concatenate([archive.points for archive in self.archives])
        halves = [archive.log_weights for archive in self.archives]
        log_evidence, error = _log_mean(*halves)
        if not math.isfinite(log_evidence):
            even = np.full(len(points), -math.log(len(points)))
            return Draws(points, even, -math.inf, 0.0, math.inf, False, self.num_runs)
        log_weights, pareto_k = smoothed(np.concatenate(halves))
        num_effective = 1 / (error**2 + 1 / len(points))
        (one, error_one), (other, error_other) = map(_log_mean, halves)
        converged = (
            self.missing <= _MOST_MISSING
            and num_effective >= LEAST_EFFECTIVE
            and pareto_k < LARGEST_SHAPE
            and math.isfinite(before)
            and agree(last, before, math.hypot(error_last, error_before), 1.0)
            and agree(one, other, math.hypot(error_one, error_other), 1.0)
        )
        judged = num_effective, pareto_k, bool(converged), self.num_runs
        return Draws(points, log_weights, log_evidence, *judged)

    def refit(self) -> None:
        """Fit the mixture of each half to the other, if any draw there has a weight."""
        for number, archive in enumerate(self.archives):
            if np.isfinite(archive.log_target).any():
                self.mixtures[1 - number] = _fitted(archive, self.rng)


# Squares of misfits overflow where an observation is far out of reach: to a density of zero.
@np.errstate(over="ignore", invalid="ignore")
def sample_posteriors(
    space: StandardSpace,
    seen: Observations,
    shared: tuple[FloatArray, FloatArray],
    num_runs: int,
    generators: list[np.random.Generator],
    report: Callable[[int], object],
) -> list[Draws]:
    """Draws for each observation.

    Parameters
    ----------
    space
        Keeps all outputs.
    shared
        Standard normal points and their outputs, of which good ones for an observation are starts:
        they lie in regions that are narrow, and that few random starts lead to.
    num_runs
        Most runs of the network for each observation; a Jacobian counts as one more than the
        smaller of the numbers of inputs and outputs.
    generators
        One for each observation, so that its draws do not depend on the others.
    report
        Is told how many observations a round has finished.
    """
    searches = _started(space, seen, shared, generators, _STARTS_SHARE * num_runs)
    found: dict[int, Draws] = {}
    active = list(range(len(searches)))
    drawn, size = 0, NUM_DRAWS
    log_scales = seen.log_scales - 0.5 * space.num_variables * math.log(2 * math.pi)
    while active:
        points = np.concatenate([searches[b].propose(size) for b in active])
        outputs = space.run(points)
        misfit = seen.misfits(outputs, np.repeat(active, size))
        log_target = -0.5 * (np.sum(points**2, axis=1) + np.sum(misfit**2, axis=1))
        log_target += np.repeat(log_scales[active], size)
        log_target[~(log_target > _LOWEST)] = -np.inf
        rounds = np.split(points, len(active)), np.split(log_target, len(active))
        for b, z, log in zip(active, *rounds, strict=True):
            found[b] = searches[b].add(z, log)
        drawn += size
        size = max(NUM_DRAWS, 2 * int(_GROWTH * drawn / 2))
        num_active = len(active)
        active = [
            b
            for b in active
            if not (found[b].converged and found[b].effective >= _ENOUGH_EFFECTIVE)
            and found[b].num_runs <= num_runs - size
        ]
        for b in active:
            searches[b].refit()
        report(num_active - len(active))
    return [found[b] for b in range(len(searches))]


def _started(
    space: StandardSpace,
    seen: Observations,
    shared: tuple[FloatArray, FloatArray],
    generators: list[np.random.Generator],
    most_runs: float,
) -> list[_Search]:
    """Searches with starts; there are more of them while modes are missing."""
    num_outputs, d = seen.outputs.shape[1], space.num_variables
    searches = [_Search(d, rng) for rng in generators]
    active = list(range(len(searches)))
    is_first = True
    while active:
        shape = _NUM_STARTS, d + num_outputs
        random = np.stack([generators[b].standard_normal(shape) for b in active])
        if is_first:
            # The others from a wider distribution: modes far out matter for variances. Of many
            # inputs no single one does, and wider starts would be far from all modes.
            random[:, _NUM_STARTS // 2 :, :d] *= 1 + 1 / d
            for b in active:
                misfit = seen.misfits(shared[1], np.full(len(shared[1]), b))
                logs = -0.5 * np.sum(misfit**2, axis=1)
                logs = np.where(logs > _LOWEST, logs, -np.inf)
                if np.isfinite(logs).any():
                    weights = tempered(logs, _NUM_STARTS)
                    rows = far_apart(shared[0], weights, _NUM_STARTS // 2, generators[b])
                    random[b, : len(rows), :d] = shared[0][rows]
        is_first = False
        flat = random.reshape(-1, d + num_outputs)
        observation = np.repeat(active, _NUM_STARTS)

        def misfits(
            z: FloatArray, index: NDArray[np.intp], observation: NDArray[np.intp] = observation
        ) -> tuple[FloatArray, FloatArray]:
            chosen = observation[index]
            for b, count in zip(*np.unique(chosen, return_counts=True), strict=True):
                searches[b].num_runs += int(count) * (1 + min(d, num_outputs))
            outputs, jacobians = space.outputs_and_jacobians(z)
            return seen.misfits(outputs, chosen), seen.whitening[chosen] @ jacobians

        results = randomized_modes(misfits, flat[:, :d], flat[:, d:])
        groups = zip(*(np.split(part, len(active)) for part in results), strict=True)
        for b, (points, precisions, logs) in zip(active, groups, strict=True):
            searches[b].add_starts(points, precisions, logs, num_outputs)
        active = [
            b
            for b in active
            if searches[b].missing > _MOST_MISSING and searches[b].num_runs < most_runs
        ]
    return searches


def _fitted(archive: Archive[StudentMixture], rng: np.random.Generator) -> StudentMixture:
    """The mixture that fits the draws."""
    count, d = archive.points.shape
    least, for_variable, for_draw = _TEMPERED
    weights = tempered(archive.log_weights, max(least, for_variable * d, for_draw * count))
    rows = systematic(weights, _ENOUGH_EFFECTIVE, rng)
    rows, counts = np.unique(rows, return_counts=True)
    number = int(effective(weights) / (_DRAWS_OF_COMPONENT * d))
    number = min(max(number, 1), _MOST_COMPONENTS)
    return fit_mixture(archive.points[rows], counts / _ENOUGH_EFFECTIVE, number, rng)


def _log_mean(*log_weights: FloatArray) -> tuple[float, float]:
    """Log of the mean weight, and its standard error; infinite if no weight is positive."""
    logs = np.concatenate(log_weights)
    largest = float(logs.max(initial=-math.inf))
    if not math.isfinite(largest):
        return -math.inf, math.inf
    weights = np.exp(logs - largest)
    mean = float(weights.mean())
    return largest + math.log(mean), float(weights.std()) / mean / math.sqrt(len(weights))
