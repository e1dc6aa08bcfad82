"""Properties that must hold for all weights; compiled once, so that examples are cheap."""

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nn_uq_dist import uniform_sum as lc
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


COMPILED = jit(lambda *arguments: (lc.logpdf(*arguments), lc.logsf(*arguments)))


def evaluate(x, weights, scale):
    """Both logarithms of a distribution at 64 points, by the method for one for each point."""
    distributions = np.broadcast_to(np.asarray(weights, float), (POINTS, len(weights)))
    return np.asarray(COMPILED(x, distributions, np.full(POINTS, float(scale))))


def edge(weights):
    return np.abs(weights).sum()


@pytest.mark.slow
@few_examples
@given(weights_of_n, scales, st.randoms(use_true_random=False))
def test_signs_and_order_of_weights_do_not_matter(weights, scale, random):
    x = FRACTIONS * edge(weights)
    other = [random.choice((-1, 1)) * w for w in random.sample(weights, N)]
    found, moved = evaluate(x, weights, scale), evaluate(x, other, scale)
    # Equal up to a tolerance that grows with the logarithm, as rounding of x does.
    np.testing.assert_allclose(moved, found, rtol=1e-9, atol=1e-9)


@pytest.mark.slow
@few_examples
@given(st.lists(magnitudes, min_size=N, max_size=N), st.floats(-0.9, 0.9))
def test_distribution_of_a_sum_is_the_convolution(weights, fraction):
    # Four weights against two: quadrature on both sides of the kinks of the latter's density.
    four, two = np.array([*weights[:4], 0.0, 0.0]), np.array(weights[4:])
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
