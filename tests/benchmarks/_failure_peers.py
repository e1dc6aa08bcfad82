"""Failure probabilities by OpenTURNS: how many runs of the network its methods need."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tests.benchmarks._failure_cases import Case

BUDGETS = (500, 1000, 2000, 4000, 8000, 16_000, 32_000)
KEYS = 4
RUNS_PER_SLOPE = 3  # as ours counts them
_DRAWS_AT_ONCE = 100
_RUNS_PER_DIRECTION = 12
METHODS = ("FORM, importance sampling", "subset simulation", "directional sampling")


class CountedFunction:
    """The output of a case at standard normal variables, for OpenTURNS, with its number of runs."""

    def __init__(self, case: Case, *, upper: bool) -> None:
        sign = 1.0 if upper else -1.0
        self.num_inputs = case.f.num_inputs
        self.runs = 0
        one = jax.jit(lambda z: sign * case.at_scores(z))
        many, slope = jax.jit(jax.vmap(one)), jax.jit(jax.grad(one))
        self._one, self._many, self._slope = one, many, slope

    def at_point(self, z: Sequence[float]) -> list[float]:
        """One run."""
        self.runs += 1
        return [float(self._one(np.asarray(z)))]

    def at_sample(self, z: Any) -> np.ndarray:
        """Some runs, filled up to a few sizes that are compiled."""
        points = np.asarray(z)
        self.runs += len(points)
        filled = np.zeros((2 ** math.ceil(math.log2(len(points))), self.num_inputs))
        filled[: len(points)] = points
        return np.asarray(self._many(jnp.asarray(filled)))[: len(points), None]

    def slope(self, z: Sequence[float]) -> list[list[float]]:
        """Gradient, as a column."""
        self.runs += RUNS_PER_SLOPE
        return [[float(value)] for value in self._slope(np.asarray(z))]


def estimate(method: str, function: CountedFunction, limit: float, budget: int, seed: int) -> float:
    """Estimate of a method with about so many runs."""
    import openturns as ot

    ot.RandomGenerator.SetSeed(seed)
    d = function.num_inputs
    wrapped = ot.Function(
        ot.PythonFunction(
            d, 1, function.at_point, func_sample=function.at_sample, gradient=function.slope
        )
    )
    wrapped = ot.MemoizeFunction(wrapped) if method == METHODS[2] else wrapped
    variables = ot.RandomVector(ot.Normal(d))
    event = ot.ThresholdEvent(ot.CompositeRandomVector(wrapped, variables), ot.Greater(), limit)
    if method == METHODS[0]:
        solver = ot.AbdoRackwitz()
        solver.setStartingPoint([0.01] * d)
        solver.setMaximumIterationNumber(50)
        solver.setCheckStatus(False)
        form = ot.FORM(solver, event)
        form.run()
        algorithm = ot.PostAnalyticalImportanceSampling(form.getResult())
        algorithm.setBlockSize(_DRAWS_AT_ONCE)
        algorithm.setMaximumOuterSampling(max(1, (budget - function.runs) // _DRAWS_AT_ONCE))
        algorithm.setMaximumCoefficientOfVariation(0.0)
    elif method == METHODS[1]:
        algorithm = ot.SubsetSampling(event)
        levels = 5
        algorithm.setBlockSize(_DRAWS_AT_ONCE)
        algorithm.setMaximumOuterSampling(max(1, budget // levels // _DRAWS_AT_ONCE))
    else:
        algorithm = ot.DirectionalSampling(event)
        algorithm.setRootStrategy(ot.MediumSafe())
        algorithm.setMaximumOuterSampling(budget // _RUNS_PER_DIRECTION)
        algorithm.setMaximumCoefficientOfVariation(0.0)
    algorithm.run()
    return float(algorithm.getResult().getProbabilityEstimate())


def runs_of_peer(method: str, case: Case, limit: float, share: float, *, upper: bool) -> float:
    """Least runs with a root mean square error of 10% over keys, infinite if none of ours do."""
    function = CountedFunction(case, upper=upper)
    signed = limit if upper else -limit

    def attempt(budget: int, seed: int) -> tuple[float, int]:
        function.runs = 0
        try:
            found = estimate(method, function, signed, budget, seed)
        except (TypeError, RuntimeError):  # its search for a point failed
            found = math.nan
        return found, function.runs

    return least_runs(attempt, share)


def least_runs(attempt: Callable[[int, int], tuple[float, int]], share: float) -> float:
    """Mean runs at the least budget whose estimates have 10% error."""
    for budget in BUDGETS:
        tries = [attempt(budget, seed) for seed in range(KEYS)]
        ratios = np.array([found for found, _ in tries]) / share
        if np.sqrt(np.mean((ratios - 1) ** 2)) < 0.1:
            return float(np.mean([runs for _, runs in tries]))
    return math.inf
