"""Other methods for the distribution of a network's outputs, for `bench_comparison`.

Each returns the distribution functions of the outputs: a function of values ``(n, N_y)``.
"""

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import ArrayLike, NDArray
from scipy.interpolate import PchipInterpolator
from scipy.special import ndtr, ndtri
from scipy.stats import gaussian_kde

import nn_uq_dist as nuq
from nn_uq_dist.basics.nodes import sobol_points
from tests.benchmarks._comparison_functions import Layer
from tests.benchmarks._failure_cases import Case
from tests.benchmarks._failure_peers import CountedFunction
from tests.benchmarks._peers import Moments

type Cdf = Callable[[ArrayLike], NDArray[np.float64]]
SURROGATE_DRAWS = 200_000  # of a quadratic or polynomial, which do not run the network
MOST_TERMS = 500  # that polynomial chaos chooses from


def normal_cdf(moments: Moments) -> Cdf:
    """Normal distributions with these moments."""
    mean, scale = np.asarray(moments.mean), np.sqrt(np.diag(moments.covariance))
    return lambda y: ndtr((np.asarray(y) - mean) / scale)


def empirical_cdf(draws: ArrayLike) -> Cdf:
    """Empirical distribution functions of draws ``(num_draws, N_y)``."""
    columns = np.sort(np.asarray(draws, float), axis=0).T
    return lambda y: np.stack(
        [
            np.searchsorted(column, value, side="right") / len(column)
            for column, value in zip(columns, np.asarray(y).T, strict=True)
        ],
        axis=-1,
    )


def sobol_inputs(f: nuq.Input, key: Array, count: int) -> tuple[Array, NDArray[np.float64]]:
    """Inputs at Sobol points, and the same as uniform (-1, 1) or standard normal variables."""
    points = sobol_points(key, count, 1, f.num_inputs)
    if f.normal_scale is None:
        standard = 2 * points - 1
        return f.mean + f.half_width * jnp.asarray(standard), standard
    standard = ndtri(points)
    return f.mean + f.normal_scale * jnp.asarray(standard), standard


def second_order(network: Callable[[Array], Array], f: nuq.Input, key: Array) -> Cdf:
    """Distribution of the quadratic Taylor polynomial at the mean, from draws of it."""
    value, slopes, curvatures = _taylor(network, f.mean)
    z = f.sample(key, (SURROGATE_DRAWS,)) - f.mean
    return empirical_cdf(_quadratic(value, slopes, curvatures, z))


@partial(jax.jit, static_argnums=0)
def _taylor(network: Callable[[Array], Array], mean: Array) -> tuple[Array, Array, Array]:
    return network(mean), jax.jacobian(network)(mean), jax.hessian(network)(mean)


@jax.jit
def _quadratic(value: Array, slopes: Array, curvatures: Array, z: Array) -> Array:
    bend = [jnp.sum((z @ matrix) * z, axis=1) for matrix in curvatures]
    return value + z @ slopes.T + 0.5 * jnp.stack(bend, axis=1)


def stable_propagation(layers: Sequence[Layer], f: nuq.Input, *, full: bool) -> Moments:
    """Location and scale matrix of a normal variable, sent through each layer.

    F. Petersen et al., Uncertainty quantification via stable distribution propagation (ICLR 2024):
    an affine map is exact, an activation acts on the location and by its slope there on the scale.
    Without `full`, neurons are independent after each activation.
    """
    mean, covariance = f.mean, f.covariance
    for weights, bias, activation in layers:
        mean, covariance = weights @ mean + bias, weights @ covariance @ weights.T
        mean, slope = jax.jvp(activation, (mean,), (jnp.ones_like(mean),))
        covariance = slope[:, None] * covariance * slope
        covariance = covariance if full else jnp.diag(jnp.diagonal(covariance))
    return Moments(mean, covariance)


def kernel(draws: ArrayLike) -> Cdf:
    """Gaussian kernel estimates with Scott's width."""
    columns = np.asarray(draws, float).T
    estimates = [(column, gaussian_kde(column).factor * column.std(ddof=1)) for column in columns]
    return lambda y: np.stack(
        [
            ndtr((value[:, None] - column) / width).mean(axis=1)
            for (column, width), value in zip(estimates, np.asarray(y).T, strict=True)
        ],
        axis=-1,
    )


def spline(draws: ArrayLike) -> Cdf:
    """Monotone cubic spline of the normal score through root-n empirical quantiles, in the output.

    Beyond the outermost knots the normal score is a straight line.
    """
    columns = np.sort(np.asarray(draws, float), axis=0).T
    count = len(columns[0])
    ranks = np.unique(np.linspace(0, count - 1, math.isqrt(count)).astype(int))
    scores = ndtri((ranks + 0.5) / count)
    return lambda y: np.stack(
        [
            ndtr(_extended(column[ranks], scores, value))
            for column, value in zip(columns, np.asarray(y).T, strict=True)
        ],
        axis=-1,
    )


def _extended(
    at: NDArray[np.float64], scores: NDArray[np.float64], y: NDArray[np.float64]
) -> NDArray[np.float64]:
    inside = PchipInterpolator(at, scores)
    clipped = np.clip(y, at[0], at[-1])
    low = (scores[1] - scores[0]) / (at[1] - at[0])
    high = (scores[-1] - scores[-2]) / (at[-1] - at[-2])
    return inside(clipped) + np.minimum(y - at[0], 0) * low + np.maximum(y - at[-1], 0) * high


def polynomial_chaos(
    f: nuq.Input, standard: NDArray[np.float64], outputs: ArrayLike, seed: int
) -> Cdf:
    """Sparse polynomial chaos by OpenTURNS: least angle regression, leave-one-out.

    `standard` holds the inputs of the runs as uniform (-1, 1) or standard normal variables.
    """
    import openturns as ot

    ot.RandomGenerator.SetSeed(seed)
    d = f.num_inputs
    one = ot.Uniform(-1.0, 1.0) if f.normal_scale is None else ot.Normal()
    distribution = ot.JointDistribution([one] * d)
    enumerate_terms = ot.HyperbolicAnisotropicEnumerateFunction(d, 0.6)
    family = ot.StandardDistributionPolynomialFactory(one)
    basis = ot.OrthogonalProductPolynomialFactory([family] * d, enumerate_terms)
    algorithm = ot.FunctionalChaosAlgorithm(
        ot.Sample(standard),
        ot.Sample(np.asarray(outputs, float)),
        distribution,
        ot.FixedStrategy(basis, MOST_TERMS),
        ot.LeastSquaresStrategy(
            ot.LeastSquaresMetaModelSelectionFactory(ot.LARS(), ot.CorrectedLeaveOneOut())
        ),
    )
    algorithm.run()
    surrogate = algorithm.getResult().getMetaModel()
    return empirical_cdf(np.asarray(surrogate(distribution.getSample(SURROGATE_DRAWS))))


def most_probable_point(case: Case, limit: float) -> tuple[float, float, int]:
    """Probabilities above a limit by FORM and SORM (Breitung) of OpenTURNS, and runs of FORM.

    NaN where the search by Abdo and Rackwitz ends beside the limit, as it does at kinks.
    """
    import openturns as ot

    function = CountedFunction(case, upper=True)
    d = function.num_inputs
    hessian = jax.jit(jax.hessian(case.at_scores))
    wrapped = ot.Function(
        ot.PythonFunction(
            d,
            1,
            function.at_point,
            func_sample=function.at_sample,
            gradient=function.slope,
            hessian=lambda z: _as_tensor(hessian(np.asarray(z))),
        )
    )
    event = ot.ThresholdEvent(
        ot.CompositeRandomVector(wrapped, ot.RandomVector(ot.Normal(d))), ot.Greater(), limit
    )
    solver = ot.AbdoRackwitz()
    solver.setStartingPoint([0.01] * d)
    solver.setMaximumIterationNumber(100)
    solver.setMaximumConstraintError(1e-3)
    solver.setCheckStatus(False)
    form, sorm = ot.FORM(solver, event), ot.SORM(solver, event)
    try:
        form.run()
        runs = function.runs
        sorm.run()
    except RuntimeError:
        return math.nan, math.nan, function.runs
    second = sorm.getResult().getEventProbabilityBreitung()
    return float(form.getResult().getEventProbability()), float(second), runs


def _as_tensor(matrix: Array) -> Any:
    return np.asarray(matrix, float)[:, :, None].tolist()
