"""Properties that must hold for all weights; compiled once, so that examples are cheap."""

import math
from functools import cache
from itertools import pairwise

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nn_uq_dist import linear_combination as lc
from tests.compiling import jit

N = 6
POINTS = 64
# From the lower to the upper tail, as fractions of the half-width of the support.
FRACTIONS = np.linspace(-0.98, 0.98, POINTS)

magnitudes = st.floats(0.05, 2.0)
weights_of_n = st.lists(
    st.one_of(magnitudes, magnitudes.map(lambda w: -w), st.just(0.0)), min_size=N, max_size=N
).filter(lambda w: sum(v != 0 for v in w) >= 2)
scales = st.one_of(st.just(0.0), st.floats(0.01, 3.0))
few_examples = settings(max_examples=15)


@pytest.fixture(autouse=True)
def _double(x64):
    """All of this file is in double precision."""


@cache
def _compiled(count):
    def functions(x, weights, scale):
        return lc.logpdf(x, weights, scale), lc.logsf(x, weights, scale)

    del count  # one program for each number of weights
    return jit(functions)


def evaluate(x, weights, scale):
    """Log density and log survival of one law at 64 points, by the method for a law per point."""
    weights = np.asarray(weights, float)
    laws = np.broadcast_to(weights, (POINTS, weights.size))
    values = _compiled(weights.size)(x, laws, np.full(POINTS, float(scale)))
    return tuple(np.asarray(value) for value in values)


def edge(weights):
    return np.abs(weights).sum()


def near(value, other, tolerance=1e-9):
    """Equal up to a tolerance that grows with the logarithm, as rounding of x does."""
    np.testing.assert_allclose(value, other, rtol=tolerance, atol=tolerance)


@pytest.mark.slow
@few_examples
@given(weights_of_n, scales, st.floats(-40.0, 40.0))
def test_scale_law(weights, scale, exponent):
    x, factor = FRACTIONS * edge(weights), math.exp(exponent)
    density, survival = evaluate(x, weights, scale)
    scaled = evaluate(factor * x, factor * np.array(weights), factor * scale)
    near(scaled[0] + exponent, density)
    near(scaled[1], survival)


@few_examples
@given(weights_of_n, scales, st.randoms(use_true_random=False))
def test_signs_and_order_of_weights_do_not_matter(weights, scale, random):
    x = FRACTIONS * edge(weights)
    other = [random.choice((-1, 1)) * w for w in random.sample(weights, N)]
    for value, moved in zip(evaluate(x, weights, scale), evaluate(x, other, scale), strict=True):
        near(moved, value)


@few_examples
@given(weights_of_n, scales)
def test_symmetry_and_complement(weights, scale):
    x = FRACTIONS * edge(weights)
    density, survival = evaluate(x, weights, scale)
    mirrored, lower = evaluate(-x, weights, scale)
    near(mirrored, density, 1e-13)
    np.testing.assert_allclose(np.exp(survival) + np.exp(lower), 1.0, rtol=1e-14)


@pytest.mark.slow
@few_examples
@given(st.lists(magnitudes, min_size=4, max_size=4), scales, st.permutations(range(N)))
def test_zero_weights_change_nothing(weights, scale, order):
    x = FRACTIONS * edge(weights)
    padded = np.array([*weights, 0.0, 0.0])[list(order)]
    for value, other in zip(evaluate(x, weights, scale), evaluate(x, padded, scale), strict=True):
        near(other, value)


@few_examples
@given(weights_of_n, scales)
def test_log_concave_and_decreasing(weights, scale):
    for value in evaluate(FRACTIONS * edge(weights), weights, scale):
        assert np.all(np.diff(value, n=2) <= 1e-9)
    assert np.all(np.diff(value) < 0)


@few_examples
@given(weights_of_n, scales)
def test_density_integrates_to_one_with_the_right_variance(weights, scale):
    variance = np.square(weights).sum() / 3 + scale**2
    end = min(edge(weights) + 10 * scale, 10 * math.sqrt(variance))
    # Midpoint rule: exact but for the kinks of a density with few weights.
    x = end * (2 * np.arange(POINTS) + 1) / POINTS - end
    density = np.exp(evaluate(x, weights, scale)[0]) * 2 * end / POINTS
    kinks = 0.1 if scale == 0 else 0.1 * min(1.0, (end / POINTS / scale) ** 2)
    assert abs(density.sum() - 1) <= kinks + 1e-9
    assert abs((density * x**2).sum() / variance - 1) <= 2 * kinks + 1e-9


@few_examples
@given(weights_of_n)
def test_a_large_normal_part_dominates(weights):
    scale = 1e3 * edge(weights)
    deviation = math.sqrt(np.square(weights).sum() / 3 + scale**2)
    z = np.linspace(-6, 6, POINTS)
    density = evaluate(z * deviation, weights, scale)[0]
    # The excess kurtosis that is left is below 1e-12.
    near(density, -0.5 * z**2 - math.log(deviation * math.sqrt(2 * math.pi)), 1e-9)


@few_examples
@given(st.lists(magnitudes, min_size=N, max_size=N), st.floats(-0.9, 0.9))
def test_law_of_a_sum_is_the_convolution(weights, fraction):
    # Four weights against two: quadrature on both sides of the kinks of the latter's density.
    four, two = np.array(weights[:4]), np.array(weights[4:])
    x = fraction * edge(weights)
    kinks = np.unique([-edge(two), -abs(two[0] - two[1]), abs(two[0] - two[1]), edge(two)])
    nodes, rule = np.polynomial.legendre.leggauss(POINTS)
    total = 0.0
    for low, high in pairwise(kinks):
        y = low + (high - low) * (nodes + 1) / 2
        trapezoid = np.minimum(edge(two) - np.abs(y), 2 * two.min()) / (4 * two.prod())
        density = np.exp(evaluate(x - y, four, 0.0)[0])
        total += (high - low) / 2 * np.sum(rule * trapezoid * density)
    expected = np.exp(evaluate(np.full(POINTS, x), weights, 0.0)[0][0])
    assert abs(total - expected) <= 1e-5 / math.sqrt(np.square(weights).sum())


@pytest.mark.slow
@settings(max_examples=5)
@given(st.lists(magnitudes, min_size=N, max_size=N), st.floats(0.2, 1.0))
def test_many_points_of_one_law_agree_with_a_law_per_point(weights, scale):
    x = FRACTIONS * edge(weights)
    shared = _points_of_one_law(np.tile(x, 20), np.array(weights), scale)
    for value, expected in zip(shared, evaluate(x, weights, scale), strict=True):
        near(np.reshape(value, (20, POINTS)), np.broadcast_to(expected, (20, POINTS)))


@jit
def _points_of_one_law(x, weights, scale):
    return lc.logpdf(x, weights, scale), lc.logsf(x, weights, scale)


@pytest.mark.slow
def test_many_weights_follow_the_edgeworth_series():
    weights = np.random.default_rng(3).uniform(0.5, 1.5, 500)
    variance = np.square(weights).sum() / 3
    z = np.linspace(-2, 2, 20)
    values = jit(lc.logpdf)(z * math.sqrt(variance), weights)
    # Cumulants of Uniform(-1, 1): 1/3, -2/15, 16/63.
    fourth = -2 / 15 * np.sum(weights**4) / variance**2
    sixth = 16 / 63 * np.sum(weights**6) / variance**3
    hermite = np.polynomial.hermite_e.hermeval
    terms = (
        fourth / 24 * hermite(z, [0, 0, 0, 0, 1])
        + sixth / 720 * hermite(z, [0] * 6 + [1])
        + fourth**2 / 1152 * hermite(z, [0] * 8 + [1])
    )
    expected = -0.5 * z**2 - 0.5 * math.log(2 * math.pi * variance) + np.log1p(terms)
    np.testing.assert_allclose(values, expected, atol=3e-8)


def test_gradient_in_the_scale_of_a_law():
    # p(c x; c w) = p(x; w) / c, differentiated in c.
    weights = np.array([0.9, -0.5, 0.3])
    slope = jit(jax.grad(lambda c: lc.logpdf(0.4 * c, c * weights)))(2.0)
    assert abs(slope + 0.5) < 1e-12
