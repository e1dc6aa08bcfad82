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

from nn_uq_dist.basics.concrete import FloatArray
from nn_uq_dist.inference._importance_weights import (
    LARGEST_SHAPE,
    LEAST_EFFECTIVE,
    Archive,
    agree,
    effective,
    smoothed,
    systematic,
    tempered,
)
from nn_uq_dist.inference._posterior_starts import (
    LOWEST,
    MOST_MISSING,
    Observations,
    Starts,
    covariances,
    posterior_starts,
)
from nn_uq_dist.inference._standard_space import StandardSpace
from nn_uq_dist.inference._student_mixture import StudentMixture, fit_mixture

# Draws of a round; all observations share as many, that starts are among.
NUM_DRAWS = 4000
# The draws of a round are at least this share of all draws before.
_GROWTH = 0.33
# Effective draws up to which rounds go on, and draws that a mixture is fitted to.
_ENOUGH_EFFECTIVE = 2500
# Components of a mixture, and effective draws of each for each variable.
_MOST_COMPONENTS, _DRAWS_OF_COMPONENT = 40, 3
# Effective draws to which weights are tempered: at least, for each variable, and for each draw.
_TEMPERED = 300.0, 12.0, 0.01
# Share of the runs that starts may take while modes may be missing.
_STARTS_SHARE = 0.25


@dataclasses.dataclass(frozen=True, eq=False)
class Draws:
    """The draws of one observation.

    Attributes
    ----------
    points
        In standard space, shape ``(S, d)``.
    log_target
        Log densities of the posterior, up to a constant: half the squares of points and misfits.
    log_weights
        Normalized, the largest ones smoothed by a Pareto distribution.
    log_evidence, effective, pareto_k
        Log of the mean weight, and what the weights are worth.
    converged, num_runs
        Whether the draws can be trusted, and runs of the network.
    """

    points: FloatArray
    log_target: FloatArray
    log_weights: FloatArray
    log_evidence: float
    effective: float
    pareto_k: float
    converged: bool
    num_runs: int

    @property
    def squared_distance(self) -> float:
        """Least sum of the squares of a point and its misfits, infinite without any weight.

        Around that point the posterior is about normal in some directions: there the sum is larger
        by their number on average, half of its variance, which is known better than its least
        value. In the others, as along a ring, the sum may be constant.
        """
        weights = np.exp(self.log_weights)
        used = (weights > 0) & np.isfinite(self.log_target)
        if not used.any():
            return math.inf
        squares, weights = -2 * self.log_target[used], weights[used] / weights[used].sum()
        mean = weights @ squares
        directions = min(self.points.shape[1], weights @ (squares - mean) ** 2 / 2)
        return float(np.clip(mean - directions, 0, squares.min()))


class _Search:
    """All draws of one observation, in two halves."""

    def __init__(self, starts: Starts, rng: np.random.Generator) -> None:
        """Begin with components at the starts.

        The mixtures of the halves have every other start: they know nothing of each other.
        """
        d = starts.points.shape[1]
        self.rng, self.num_runs, self.missing = rng, starts.num_runs, starts.missing
        self.mixtures: list[StudentMixture] = []
        for rows in (starts.good[starts.good % 2 == 0], starts.good[starts.good % 2 == 1]):
            mixture = StudentMixture.standard(d)
            if rows.size:
                scales = covariances(starts.precisions[rows])
                mixture = StudentMixture.of(np.ones(rows.size), starts.points[rows], scales)
            self.mixtures.append(mixture)
        self.archives: tuple[Archive[StudentMixture], ...] = (Archive(d), Archive(d))

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
        log_target = np.concatenate([archive.log_target for archive in self.archives])
        halves = [archive.log_weights for archive in self.archives]
        log_evidence, error = _log_mean(*halves)
        if not math.isfinite(log_evidence):
            even = np.full(len(points), -math.log(len(points)))
            return Draws(points, log_target, even, -math.inf, 0.0, math.inf, False, self.num_runs)
        log_weights, pareto_k = smoothed(np.concatenate(halves))
        num_effective = 1 / (error**2 + 1 / len(points))
        (one, error_one), (other, error_other) = map(_log_mean, halves)
        converged = (
            self.missing <= MOST_MISSING
            and num_effective >= LEAST_EFFECTIVE
            and pareto_k < LARGEST_SHAPE
            and math.isfinite(before)
            and agree(last, before, math.hypot(error_last, error_before), 1.0)
            and agree(one, other, math.hypot(error_one, error_other), 1.0)
        )
        judged = num_effective, pareto_k, bool(converged), self.num_runs
        return Draws(points, log_target, log_weights, log_evidence, *judged)

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
        Standard normal points and their outputs, of which good ones are starts.
    num_runs
        Most runs of the network for each observation; a Jacobian counts as one more than the
        smaller of the numbers of inputs and outputs.
    generators
        One for each observation, so that its draws do not depend on the others.
    report
        Is told how many observations a round has finished.
    """
    starts = posterior_starts(space, seen, shared, generators, _STARTS_SHARE * num_runs)
    searches = [_Search(*pair) for pair in zip(starts, generators, strict=True)]
    found: dict[int, Draws] = {}
    active = list(range(len(searches)))
    drawn, size = 0, NUM_DRAWS
    while active:
        points = np.concatenate([searches[b].propose(size) for b in active])
        outputs = space.run(points)
        misfit = seen.misfits(outputs, np.repeat(active, size))
        log_target = -0.5 * (np.sum(points**2, axis=1) + np.sum(misfit**2, axis=1))
        log_target[~(log_target > LOWEST)] = -np.inf
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
    log_scales = seen.log_scales - 0.5 * space.num_variables * math.log(2 * math.pi)
    return [
        dataclasses.replace(found[b], log_evidence=found[b].log_evidence + float(log_scale))
        for b, log_scale in enumerate(log_scales)
    ]


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
