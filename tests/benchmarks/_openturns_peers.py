"""Methods of OpenTURNS for failure probabilities and for distributions of outputs."""

import math

import jax
import jax.numpy as jnp
import numpy as np

from tests.benchmarks._peers import SURROGATE_DRAWS, empirical_cdf

BUDGETS = (500, 1000, 2000, 4000, 8000, 16_000, 32_000)
KEYS = 4
RUNS_PER_SLOPE = 3  # as ours counts them
DRAWS_AT_ONCE, LEVELS, RUNS_PER_DIRECTION = 100, 5, 12
METHODS = ("FORM, importance sampling", "subset simulation", "directional sampling")
MOST_TERMS = 500  # that polynomial chaos chooses from


def combination(weights, normal_scale=None):
    """Distribution of a sum of weighted uniform (-1, 1) variables and perhaps a normal one."""
    import openturns as ot

    parts = [ot.Uniform(-1.0, 1.0)] * len(weights)
    coefficients = np.asarray(weights, float).tolist()
    if normal_scale is not None:
        parts, coefficients = [*parts, ot.Normal()], [*coefficients, float(normal_scale)]
    return ot.LinearCombinationDistribution(parts, coefficients)


class CountedFunction:
    """The output of a case at standard normal variables, for OpenTURNS, with its number of runs."""

    def __init__(self, case):
        self.num_inputs = case.f.num_inputs
        self.runs = 0
        self._one = jax.jit(case.at_scores)
        self._many, self._slope = jax.jit(jax.vmap(self._one)), jax.jit(jax.grad(self._one))
        self._hessian = jax.jit(jax.hessian(self._one))

    def at_point(self, z):
        self.runs += 1
        return [float(self._one(np.asarray(z)))]

    def at_sample(self, z):
        """Some runs, filled up to a few sizes that are compiled."""
        points = np.asarray(z)
        self.runs += len(points)
        filled = np.zeros((2 ** math.ceil(math.log2(len(points))), self.num_inputs))
        filled[: len(points)] = points
        return np.asarray(self._many(jnp.asarray(filled)))[: len(points), None]

    def slope(self, z):
        """Gradient, as a column."""
        self.runs += RUNS_PER_SLOPE
        return np.asarray(self._slope(np.asarray(z)), float)[:, None].tolist()

    def curvature(self, z):
        return np.asarray(self._hessian(np.asarray(z)), float)[:, :, None].tolist()

    def event(self, limit, *, memoize=False):
        """The event that the output exceeds a limit."""
        import openturns as ot

        function = ot.Function(
            ot.PythonFunction(
                self.num_inputs, 1, self.at_point, func_sample=self.at_sample,
                gradient=self.slope, hessian=self.curvature,
            )
        )  # fmt: skip
        function = ot.MemoizeFunction(function) if memoize else function
        variables = ot.RandomVector(ot.Normal(self.num_inputs))
        return ot.ThresholdEvent(ot.CompositeRandomVector(function, variables), ot.Greater(), limit)

    def solver(self, iterations):
        """Search for the most probable point by Abdo and Rackwitz."""
        import openturns as ot

        solver = ot.AbdoRackwitz()
        solver.setStartingPoint([0.01] * self.num_inputs)
        solver.setMaximumIterationNumber(iterations)
        solver.setCheckStatus(False)
        return solver


def estimate(method, function, limit, budget, seed):
    """Estimate of a method with about so many runs."""
    import openturns as ot

    ot.RandomGenerator.SetSeed(seed)
    event = function.event(limit, memoize=method == METHODS[2])
    if method == METHODS[0]:
        form = ot.FORM(function.solver(50), event)
        form.run()
        algorithm = ot.PostAnalyticalImportanceSampling(form.getResult())
        blocks, size = (budget - function.runs) // DRAWS_AT_ONCE, DRAWS_AT_ONCE
    elif method == METHODS[1]:
        algorithm = ot.SubsetSampling(event)
        blocks, size = budget // LEVELS // DRAWS_AT_ONCE, DRAWS_AT_ONCE
    else:
        algorithm = ot.DirectionalSampling(event)
        algorithm.setRootStrategy(ot.MediumSafe())
        blocks, size = budget // RUNS_PER_DIRECTION, 1
    algorithm.setBlockSize(size)
    algorithm.setMaximumOuterSampling(max(1, blocks))
    if method != METHODS[1]:
        algorithm.setMaximumCoefficientOfVariation(0.0)
    algorithm.run()
    return float(algorithm.getResult().getProbabilityEstimate())


def runs_of_peer(method, case, limit, share):
    """Least runs with a root mean square error of 10% over keys, infinite if none of ours do."""
    function = CountedFunction(case)

    def attempt(budget, seed):
        function.runs = 0
        try:
            found = estimate(method, function, limit, budget, seed)
        except (TypeError, RuntimeError):  # its search for a point failed
            found = math.nan
        return found, function.runs

    return least_runs(attempt, share)


def least_runs(attempt, share):
    """Mean runs at the least budget whose estimates have 10% error."""
    for budget in BUDGETS:
        tries = [attempt(budget, seed) for seed in range(KEYS)]
        ratios = np.array([found for found, _ in tries]) / share
        if np.sqrt(np.mean((ratios - 1) ** 2)) < 0.1:
            return float(np.mean([runs for _, runs in tries]))
    return math.inf


def most_probable_point(case, limit):
    """Probabilities above a limit by FORM and SORM (Breitung), and runs of FORM.

    NaN where the search ends beside the limit, as it does at kinks.
    """
    import openturns as ot

    function = CountedFunction(case)
    event, solver = function.event(limit), function.solver(100)
    solver.setMaximumConstraintError(1e-3)
    form, sorm = ot.FORM(solver, event), ot.SORM(solver, event)
    try:
        form.run()
        runs = function.runs
        sorm.run()
    except RuntimeError:
        return math.nan, math.nan, function.runs
    second = sorm.getResult().getEventProbabilityBreitung()
    return float(form.getResult().getEventProbability()), float(second), runs


def polynomial_chaos(f, standard, outputs, seed):
    """Sparse polynomial chaos: least angle regression, leave-one-out.

    `standard` holds the inputs of the runs as uniform (-1, 1) or standard normal variables.
    """
    import openturns as ot

    ot.RandomGenerator.SetSeed(seed)
    d = f.num_inputs
    one = ot.Uniform(-1.0, 1.0) if f.normal_scale is None else ot.Normal()
    distribution = ot.JointDistribution([one] * d)
    families = [ot.StandardDistributionPolynomialFactory(one)] * d
    terms = ot.HyperbolicAnisotropicEnumerateFunction(d, 0.6)
    basis = ot.OrthogonalProductPolynomialFactory(families, terms)
    selection = ot.LeastSquaresMetaModelSelectionFactory(ot.LARS(), ot.CorrectedLeaveOneOut())
    runs = ot.Sample(standard), ot.Sample(np.asarray(outputs, float))
    strategies = ot.FixedStrategy(basis, MOST_TERMS), ot.LeastSquaresStrategy(selection)
    algorithm = ot.FunctionalChaosAlgorithm(*runs, distribution, *strategies)
    algorithm.run()
    surrogate = algorithm.getResult().getMetaModel()
    return empirical_cdf(np.asarray(surrogate(distribution.getSample(SURROGATE_DRAWS))))
