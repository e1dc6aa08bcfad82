"""Weighted draws: densities and tails against SciPy and ArviZ, weights over several mixtures."""

import math

import numpy as np
import pytest
from arviz_stats.base import array_stats
from scipy.stats import genpareto, multivariate_normal

from nn_uq_dist.inference._importance_weights import (
    Archive,
    ess,
    log_sum,
    psis,
    systematic,
    tail_excess,
    tail_shape,
    tempered,
)
from nn_uq_dist.inference._normal_mixture import Normal, NormalMixture


@pytest.mark.parametrize("shape", [0.2, 0.7, 1.5])
def test_tail_of_a_pareto_distribution(shape):
    # A sample of a million at its quantiles; the fit is drawn a little toward one half.
    weights = genpareto(shape).ppf((np.arange(1_000_000) + 0.5) / 1_000_000)
    assert tail_shape(np.log(weights)) == pytest.approx(shape, abs=0.03)


def test_smoothed_weights():
    logs = np.random.default_rng(0).normal(0, 1.5, 2000)
    expected, shape = array_stats.psislw(-logs)
    found = psis(logs)
    np.testing.assert_allclose(found[0], expected, atol=1e-12)
    assert found[1] == shape
    assert tail_shape(logs) == pytest.approx(float(shape), abs=0.02)
    # A fifth of the weights are the largest, and the same: they are bounded.
    logs[logs > np.quantile(logs, 0.8)] = 1e13
    found, shape = psis(logs)
    assert shape == -math.inf
    assert np.exp(found).sum() == pytest.approx(1)
    np.testing.assert_allclose(found.max(), -math.log(400))


def test_few_and_even_weights():
    assert tail_shape(np.zeros(20)) == math.inf
    assert tail_shape(np.zeros(1000)) == -math.inf


def test_excess_is_the_share_beyond_the_least_of_the_largest():
    # Of 100 weights the tail has 20: eleven of them are 3, the others 1.
    logs = np.log(np.repeat([1.0, 3.0], [89, 11]))
    assert tail_excess(logs) == pytest.approx(22 / (89 + 33))
    assert tail_excess(logs[:20]) == math.inf


def test_tempered_weights_count_as_many_draws():
    logs = -np.arange(100.0)
    assert ess(tempered(logs, 10.0)) == pytest.approx(10, rel=1e-3)
    plain = np.exp(logs) / np.exp(logs).sum()
    np.testing.assert_array_equal(tempered(logs, 1.0), plain)
    assert ess(tempered(logs, 100.0)) == pytest.approx(50, rel=1e-3)


def test_tempered_weights_of_few_draws():
    logs = np.full(100, -np.inf)
    logs[:4] = [0.0, -1.0, -9.0, -3.0]
    found = tempered(logs, 50.0)
    assert ess(found) == pytest.approx(2, rel=1e-3)
    assert np.all(found[4:] == 0)
    # No power is low enough: all draws that have a weight.
    logs[:4] = [0.0, -1e30, -2e30, -3e30]
    np.testing.assert_allclose(tempered(logs, 50.0)[:6], [0.25, 0.25, 0.25, 0.25, 0, 0])


def test_systematic_numbers_differ_by_less_than_one():
    rng = np.random.default_rng(5)
    weights = rng.uniform(size=50)
    counts = np.bincount(systematic(weights, 1000, rng), minlength=50)
    assert np.all(np.abs(counts - 1000 * weights / weights.sum()) < 1)


def test_log_sum_of_nothing():
    logs = np.array([[-np.inf, 0.0], [-np.inf, np.log(3)]])
    np.testing.assert_allclose(log_sum(logs), [-np.inf, np.log(4)])


MIXTURES = [
    (NormalMixture.even(Normal.around(np.zeros(2))), 2000),
    (NormalMixture.even(Normal.around(np.zeros(2), 4.0), Normal.around(np.array([3.0, 0.0]))), 500),
    (NormalMixture.even(Normal.around(np.array([3.5, 0.5]))), 1500),
]


def filled():
    rng = np.random.default_rng(0)
    archive = Archive.empty(2)
    for mixture, count in MIXTURES:
        z = mixture.draw(rng, count)
        archive, _ = archive.add(mixture, z, -np.sum(z**2, axis=1) / 2)
    return archive


def test_density_is_the_mean_over_all_mixtures():
    archive = filled()
    z = archive.points
    densities = [
        multivariate_normal(np.zeros(2)).pdf(z),
        0.5 * multivariate_normal(np.zeros(2), 4 * np.eye(2)).pdf(z)
        + 0.5 * multivariate_normal([3.0, 0.0]).pdf(z),
        multivariate_normal([3.5, 0.5]).pdf(z),
    ]
    expected = np.array([2000, 500, 1500]) @ densities / 4000
    plain = multivariate_normal(np.zeros(2)).logpdf(z)
    np.testing.assert_allclose(archive.log_weights, plain - np.log(expected))
