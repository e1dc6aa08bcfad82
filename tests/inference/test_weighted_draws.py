"""Weighted draws: the shape of the tail of weights against distributions that have one, and
counts."""

import math

import numpy as np
import pytest
from arviz_stats.base import array_stats
from scipy.stats import genpareto

from nn_uq_dist.inference._weighted_draws import flattened, tail_excess, tail_shape


@pytest.mark.parametrize("shape", [0.2, 0.7, 1.5])
def test_tail_of_a_pareto_distribution(shape):
    # A sample of a million at its quantiles; the fit is drawn a little toward one half.
    weights = genpareto(shape).ppf((np.arange(1_000_000) + 0.5) / 1_000_000)
    assert tail_shape(np.log(weights)) == pytest.approx(shape, abs=0.03)


def test_tail_as_another_library_fits_it():
    for scale in (0.5, 1.5, 3.0):
        logs = np.random.default_rng(0).normal(0, scale, 2000)
        _, expected = array_stats.psislw(-logs)
        assert tail_shape(logs) == pytest.approx(float(expected), abs=0.02)


def test_few_and_even_weights():
    assert tail_shape(np.zeros(20)) == math.inf
    assert tail_shape(np.zeros(1000)) == -math.inf


def test_excess_is_the_share_beyond_the_least_of_the_largest():
    # Of 100 weights the tail has 20: eleven of them are 3, the others 1.
    logs = np.log(np.repeat([1.0, 3.0], [89, 11]))
    assert tail_excess(logs) == pytest.approx(22 / (89 + 33))
    assert tail_excess(logs[:20]) == math.inf


def test_flattened_weights_count_as_many_draws():
    logs = -np.arange(100.0)
    weights = flattened(logs, 10.0)
    assert 10 <= weights.sum() ** 2 / np.sum(weights**2) < 20
    np.testing.assert_array_equal(flattened(logs, 1.0), np.exp(logs))
