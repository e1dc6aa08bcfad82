"""The shape of the tail of weights against laws that have one."""

import math

import numpy as np
import pytest
from arviz_stats.base import array_stats
from scipy.stats import genpareto

from nn_uq_dist.inference._final_sample import tail_shape


@pytest.mark.parametrize("shape", [0.2, 0.7, 1.5])
def test_tail_of_a_pareto_law(shape):
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
