"""Markov chains of inputs beyond a limit; subset simulation, which says how probable these are.

S. K. Au and J. L. Beck, Probabilistic Engineering Mechanics 16 (2001), with steps that keep the
standard normal distribution (I. Papaioannou et al., ibid. 41, 2015). It is a pilot: it moves to
where the output grows, and may miss regions that other draws find.
"""

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Self

import numpy as np
from numpy.typing import NDArray

from nn_uq_dist.basics.concrete import FloatArray

# Share of a level that goes on to the next one, and levels.
_SEEDS, _MOST_LEVELS = 0.1, 12
# First and least length of a step, and the share of steps that shall be taken.
_FIRST_STEP, _LEAST_STEP = 0.6, 1e-6
_ACCEPTED = 0.4
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
    populations: list[Population] = []
    size = len(points)
    chains = np.arange(size)
    log_probability, variance, length = 0.0, 0.0, _FIRST_STEP
    for number in range(_MOST_LEVELS + 1):
        level = np.sort(values)[-max(int(_SEEDS * size), 1)]
        is_last = number == _MOST_LEVELS or not (values > level).any()
        for limit in limits[len(populations) :]:
            if limit <= level or is_last:
                log_share, error = _log_share(values > limit, chains)
                facts = log_probability + log_share, np.sqrt(variance + error**2)
                populations.append(Population(points[values > limit], *facts))
        if len(populations) == len(limits):
            break
        above = values > level
        log_share, error = _log_share(above, chains)
        log_probability, variance = log_probability + log_share, variance + error**2
        num_chains = int(above.sum())
        num_moves = -(-size // num_chains) - 1
        moves, outputs, length = _moved(
            run, level, points[above], values[above], num_moves, length, rng
        )
        points, values = np.concatenate(moves), np.concatenate(outputs)
        chains = np.tile(np.arange(num_chains), len(moves))
    return populations


@dataclasses.dataclass(frozen=True, eq=False)
class Chains:
    """Chains above a level, which are sent on from where they are needed.

    Attributes
    ----------
    points : array, shape (n, d)
        Where they are.
    recent : tuple of array
        Points of the last moves.
    length : float
        Length of the next step.
    """

    points: FloatArray
    recent: tuple[FloatArray, ...] = ()
    length: float = _FIRST_STEP

    def moved(
        self,
        run: Callable[[FloatArray], FloatArray],
        level: float,
        rows: NDArray[np.intp],
        rng: np.random.Generator,
    ) -> Self:
        """The chains that go on from these rows."""
        points = self.points[rows]
        outputs = np.full(len(points), np.inf)
        moves, _, length = _moved(run, level, points, outputs, MOVES, self.length, rng)
        return type(self)(moves[-1], (*self.recent, *moves[1:])[-_RECENT:], length)


def _moved(
    run: Callable[[FloatArray], FloatArray],
    level: float,
    points: FloatArray,
    values: FloatArray,
    num_moves: int,
    length: float,
    rng: np.random.Generator,
) -> tuple[list[FloatArray], list[FloatArray], float]:
    """Points of chains at their starts and after each move above a level, outputs, last step."""
    moves, outputs = [points], [values]
    for move in range(num_moves):
        trial = np.sqrt(1 - length**2) * points + length * rng.standard_normal(points.shape)
        trial_values = run(trial)
        taken = trial_values > level
        points = np.where(taken[:, None], trial, points)
        values = np.where(taken, trial_values, values)
        gain = (taken.mean() - _ACCEPTED) / np.sqrt(1 + move)
        length = float(np.clip(length * np.exp(gain), _LEAST_STEP, 1.0))
        moves.append(points)
        outputs.append(values)
    return moves, outputs, length


def _log_share(above: NDArray[np.bool_], chains: NDArray[np.intp]) -> tuple[float, float]:
    """Log of the share of points, and its relative error: that of the means of the chains.

    Points of one chain are not independent.
    """
    if not above.any():
        return -math.inf, math.inf
    means = np.bincount(chains, above) / np.bincount(chains)
    share = above.mean()
    return math.log(share), float(means.std() / math.sqrt(means.size) / share)
