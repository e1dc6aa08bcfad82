"""Hermite coefficients of the distributions of linear outputs.

References: the variance of all distributions; Gauss-Legendre rules graded towards the corners, with
distribution functions in closed form, for one weight with a small normal part and for two weights.
"""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special

from nn_uq_dist import LinearizedMarginal
from nn_uq_dist.distributions._nataf import hermite_coefficients, hermite_rule

# Weights and normal scale: all patterns that bend the score.
LAWS = {
    "uniform": ([1.0], 0.0),
    "triangle": ([1.0, 1.0], 0.0),
    "second_1e-3": ([1.0, 1e-3], 0.0),
    "second_1e-6": ([1.0, 1e-6], 0.0),
    "three_scales": ([1.0, 1e-2, 1e-4], 0.0),
    "twelve": (np.linspace(0.1, 1.5, 12), 0.0),
    "sixty_equal": (np.ones(60), 0.0),
    "sixty_geometric": (0.8 ** np.arange(60), 0.0),
    "one_dominating": ([1.0] + [3e-3] * 59, 0.0),
    "normal_1e-6": ([1.0], 1e-6),
    "normal_1e-3": ([1.0], 1e-3),
    "normal_1e-1": ([1.0], 1e-1),
    "mostly_normal": ([1.0, 0.3, 0.2], 5.0),
    "normal": ([0.0], 2.0),
    "huge": ([1e15, 5e14], 0.0),
    "tiny": ([1e-15, 5e-16], 1e-16),
}
DEGREES = [1, 3, 9, 31, 99]


def padded(dtype):
    weights = np.zeros((len(LAWS), 60))
    for row, (given, _) in zip(weights, LAWS.values(), strict=True):
        row[: len(given)] = given
    return jnp.asarray(weights, dtype), jnp.asarray([scale for _, scale in LAWS.values()], dtype)


def coefficients_of(distribution):
    coefficients, unit = hermite_coefficients(hermite_rule(distribution))
    return unit * coefficients


@pytest.fixture(scope="module", params=["float32", "float64"])
def made(request):
    """Tolerance, weights, scales and Hermite coefficients of all distributions, in both types."""
    with jax.enable_x64(request.param == "float64"):
        weights, scale = padded(request.param)
        found = coefficients_of(LinearizedMarginal(jnp.zeros(len(LAWS)), weights, scale))
    parts = (np.asarray(part, np.float64) for part in (weights, scale, found))
    return {"float32": 1e-5, "float64": 1e-11}[request.param], *parts


@pytest.mark.slow
def test_the_series_holds_the_variance_and_no_even_term(made):
    tolerance, weights, scale, coefficients = made
    variance = (weights**2).sum(axis=-1) / 3 + scale**2
    np.testing.assert_allclose((coefficients**2).sum(axis=0), variance, rtol=tolerance)
    np.testing.assert_allclose(coefficients[1:-1:2] / np.sqrt(variance), 0, atol=tolerance)


def graded_rule(corners, end):
    """Nodes on [0, end], with panels that halve towards each corner from both sides."""
    steps = 2.0 ** -np.arange(60)
    ends = np.concatenate([[0, end], *[corner + s * steps for corner in corners for s in (1, -1)]])
    ends = np.unique(np.clip(np.concatenate([ends, corners]), 0, end))
    ends = ends[np.concatenate([[True], np.diff(ends) > 1e-15])]
    points, factors = np.polynomial.legendre.leggauss(30)
    half = 0.5 * np.diff(ends)[:, None]
    return (0.5 * (ends[1:] + ends[:-1])[:, None] + half * points).ravel(), (half * factors).ravel()


def survival_of_box_and_normal(x, scale):
    def excess(u):  # E[max(N - u, 0)]
        return np.exp(-0.5 * u * u) / math.sqrt(2 * math.pi) - u * special.ndtr(-u)

    return 0.5 * scale * (excess((x - 1) / scale) - excess((x + 1) / scale))


def survival_of_two(x, second):
    gap = 1 + second - x
    return np.where(gap > 2 * second, (gap - second) / 2, gap**2 / (8 * second))


def reference(name):
    weights, scale = LAWS[name]
    if scale:
        x, steps = graded_rule([1.0], 1 + 12 * scale)
        survival = survival_of_box_and_normal(x, scale)
    else:
        x, steps = graded_rule([1 - weights[1], 1 + weights[1]], 1 + weights[1])
        survival = survival_of_two(x, weights[1])
    z = -special.ndtri(np.maximum(survival, 1e-300))
    density = np.exp(-0.5 * z * z) / math.sqrt(2 * math.pi)
    norms = np.array([math.sqrt(math.factorial(k - 1) * k) for k in DEGREES])
    values = np.array([special.eval_hermitenorm(k - 1, z) for k in DEGREES])
    return 2 * (values * density * steps).sum(axis=-1) / norms


@pytest.mark.slow
@pytest.mark.parametrize("name", ["second_1e-6", "triangle", "normal_1e-6", "normal_1e-1"])
def test_coefficients_against_graded_rules(made, name):
    tolerance, *_, coefficients = made
    found = coefficients[np.array(DEGREES) - 1, list(LAWS).index(name)]
    np.testing.assert_allclose(found, reference(name), atol=max(tolerance, 1e-10))


@pytest.mark.slow
@pytest.mark.usefixtures("x64")
def test_derivatives_against_finite_differences():
    weights, scale = padded("float64")
    kept = [i for i, name in enumerate(LAWS) if name not in ("huge", "tiny", "normal")]
    weights, scale = weights[jnp.array(kept)], scale[jnp.array(kept)]
    generator = np.random.default_rng(0)
    # Relative moves, so that small parameters stay what they are; zeros have a corner there.
    moves = [np.asarray(part) * generator.normal(size=part.shape) for part in (weights, scale)]

    @jax.jit
    def coefficients(weights, scale):
        distribution = LinearizedMarginal(jnp.zeros(len(kept)), weights, scale)
        return coefficients_of(distribution)[:99:2]

    slope = jax.jvp(coefficients, (weights, scale), tuple(moves))[1]
    step = 1e-4
    ends = [coefficients(weights + s * moves[0], scale + s * moves[1]) for s in (step, -step)]
    np.testing.assert_allclose(slope, (ends[0] - ends[1]) / (2 * step), atol=1e-6)
