"""Weighted draws: their tails against SciPy and ArviZ, and how they are resampled."""

import math

import numpy as np
import pytest
from arviz_stats.base import array_stats
from scipy.stats import genpareto

from nn_uq_dist.inference._importance_weights import ess, psis, tail_shape, tempered


@pytest.mark.parametrize("shape", [0.2, 0.7, 1.5])
def test_tail_of_a_pareto_distribution(shape):
    # A sample of a million at its quantiles; the fit is drawn a little toward one half.
    weights = genpareto(shape).ppf((np.arange(1_000_000) + 0.5) / 1_000_000)
    assert tail_shape(np.log(weights)) == pytest.approx(shape, abs=0.03)


def test_smoothed_weights():
    logs = np.random.default_rng(0).normal(0, 1.5, 2000)
    assert tail_shape(logs) == pytest.approx(array_stats.psislw(-logs)[1], abs=0.02)
    # A fifth of the weights are the largest, and the same: they are bounded.
    logs[logs > np.quantile(logs, 0.8)] = 1e13
    found, shape = psis(logs)
    assert shape == -math.inf
    assert np.exp(found).sum() == pytest.approx(1)
    np.testing.assert_allclose(found.max(), -math.log(400))


def test_tempered_weights_of_few_draws():
    logs = np.full(100, -np.inf)
    logs[:4] = [0.0, -1.0, -9.0, -3.0]
    found = tempered(logs, 50.0)
    assert ess(found) == pytest.approx(2, rel=1e-3)
    # No power is low enough: all draws that have a weight.
    logs[:4] = [0.0, -1e30, -2e30, -3e30]
    np.testing.assert_allclose(tempered(logs, 50.0)[:6], [0.25, 0.25, 0.25, 0.25, 0, 0])
