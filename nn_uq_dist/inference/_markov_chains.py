"""Markov chains of inputs beyond a limit; subset simulation, which says how probable these are.

S. K. Au and J. L. Beck, Probabilistic Engineering Mechanics 16 (2001), with steps that keep the
standard normal distribution (I. Papaioannou et al., ibid. 41, 2015). It is a pilot: it moves to
where the output grows, and may miss regions that other draws find.
"""

import dataclasses
import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from nn_uq_dist.basics.concrete import FloatArray

# Share of a level that goes on to the next one, and levels.
_SEEDS, _MOST_LEVELS = 0.1, 12
# First length of a step, its limits, and the share of steps that shall be taken.
_FIRST_STEP, _LEAST_STEP, _ACCEPTED = 0.6, 1e-6, 0.4
# Moves of `Chains` at once, and how many of the last ones are kept.
MOVES, _RECENT = 5, 15


@dataclasses.dataclass(frozen=True, eq=False)
class Population:
    """Inputs beyond a limit, distributed as the standard normal distribution there.

    Attributes
    ----------
    points : array, shape (n, d)
    log_probability, relative_error
        Of the limit, as the shares of the levels say.
    """

    points: FloatArray
    log_probability: float
    relative_error: float


def subset_simulation(
    run: Callable[[FloatArray], FloatArray],
    limits: Sequence[float],
    points: FloatArray,
    values: FloatArray,
    rng: np.random.Generator,
) -> list[Population]:
    """A population for each limit, with as many points as are given.

    Parameters
    ----------
    run
        Outputs at points; what never fails is -inf.
    limits
        Increasing.
    points, values
        Standard normal points ``(n, d)``, and outputs there.
    """
    found: list[Population] = []
    size = len(points)
    chains = np.arange(size)
    log_probability, variance, step = 0.0, 0.0, _FIRST_STEP
    for number in range(_MOST_LEVELS + 1):
        level = np.sort(values)[-max(int(_SEEDS * size), 1)]
        is_last = number == _MOST_LEVELS or not (values > level).any()
        for limit in limits[len(found) :]:
            if limit <= level or is_last:
                log_share, error = _log_share(values > limit, chains)
                relative_error = np.sqrt(variance + error**2)
                at = log_probability + log_share
                found.append(Population(points[values > limit], at, relative_error))
        if len(found) == len(limits):
            break
        above = values > level
        log_share, error = _log_share(above, chains)
        log_probability, variance = log_probability + log_share, variance + error**2
        now, now_values = points[above], values[above]
        moves = -(-size // len(now)) - 1
        parts, outputs, step = _moved(run, level, now, now_values, moves, step, rng)
        points, values = np.concatenate(parts), np.concatenate(outputs)
        chains = np.tile(np.arange(len(now)), len(parts))
    return found


class Chains:
    """Chains above a level, which are sent on from where they are needed.

    Attributes
    ----------
    points : array, shape (n, d)
        Where they are.
    recent : list of array
        Points of the last moves.
    """

    def __init__(self, points: FloatArray) -> None:
        self.points = points
        self.recent: list[FloatArray] = []
        self._step = _FIRST_STEP

    def move(
        self,
        run: Callable[[FloatArray], FloatArray],
        level: float,
        rows: NDArray[np.intp],
        rng: np.random.Generator,
    ) -> None:
        """Go on from these rows."""
        now = self.points[rows]
        values = np.full(len(now), np.inf)
        parts, _, self._step = _moved(run, level, now, values, MOVES, self._step, rng)
        self.points = parts[-1]
        self.recent = [*self.recent, *parts[1:]][-_RECENT:]


def _moved(
    run: Callable[[FloatArray], FloatArray],
    level: float,
    now: FloatArray,
    values: FloatArray,
    moves: int,
    step: float,
    rng: np.random.Generator,
) -> tuple[list[FloatArray], list[FloatArray], float]:
    """Points of chains at their starts and after each move above a level, outputs, last step."""
    parts, outputs = [now], [values]
    for move in range(moves):
        trial = np.sqrt(1 - step**2) * now + step * rng.standard_normal(now.shape)
        trial_values = run(trial)
        taken = trial_values > level
        now = np.where(taken[:, None], trial, now)
        values = np.where(taken, trial_values, values)
        gain = (taken.mean() - _ACCEPTED) / np.sqrt(1 + move)
        step = float(np.clip(step * np.exp(gain), _LEAST_STEP, 1.0))
        parts.append(now)
        outputs.append(values)
    return parts, outputs, step


def _log_share(above: NDArray[np.bool_], chains: NDArray[np.intp]) -> tuple[float, float]:
    """Log of the share of points, and its relative error: that of the means of the chains.

    Points of one chain are not independent.
    """
    if not above.any():
        return -math.inf, math.inf
    means = np.bincount(chains, above) / np.bincount(chains)
    share = above.mean()
    return math.log(share), float(means.std() / math.sqrt(means.size) / share)
