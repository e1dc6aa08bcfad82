"""Probabilities, quantiles and distances of weighted samples: SciPy, brute force, repetition."""

import numpy as np
import pytest
import scipy.stats

from nn_uq_dist.sampling.sample_distribution_functions import (
    conditional_columns,
    kolmogorov_smirnov,
    paired_kolmogorov_smirnov,
    quantiles,
)
from nn_uq_dist.sampling.weighted_sample import WeightedSample

LEVELS = np.array([0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99])
NORM = scipy.stats.norm


def plain(count):
    return WeightedSample.equal(np.full(count, True))


def sample(distribution, shape):
    return distribution.rvs(size=shape, random_state=np.random.default_rng(0))


def calibrated(scores):
    columns = np.vstack([scores, scores**2 - 1])
    return WeightedSample.calibrated(columns, np.full(scores.size, True), 0)


def test_columns_of_a_point_have_mean_zero_however_bad_the_line_is():
    # y does not follow a line in u; many draws of u say what the mean value is.
    generator = np.random.default_rng(0)
    scores = generator.normal(size=200_000)
    used = np.arange(scores.size) < 300  # the line is fitted to few
    y = np.where(used, np.abs(scores) + 0.1 * scores, np.nan)
    columns = conditional_columns(scores, y, used)(np.array([-9.0, 0.1, 1.0, 3.0, np.inf]))
    assert (np.abs(columns.mean(axis=1)) < 4 * columns.std(axis=1) / 200_000**0.5 + 1e-12).all()


def test_quantiles_agree_with_numpy_and_their_errors_with_the_density():
    distribution = NORM(3, 0.5)
    x = distribution.rvs(200_000, random_state=np.random.default_rng(0))
    value, error, _ = quantiles(plain(x.size), x, LEVELS)
    np.testing.assert_allclose(value, np.quantile(x, LEVELS, method="hazen"), rtol=1e-9)
    textbook = np.sqrt(LEVELS * (1 - LEVELS) / x.size) / distribution.pdf(distribution.ppf(LEVELS))
    # Scatter 0.5 (n p (1 - p))^-0.25: at most 8% here.
    np.testing.assert_allclose(error, textbook, rtol=0.25)


def test_distance_agrees_with_scipy():
    distribution = scipy.stats.beta(2, 6)
    for scale, shift in [(1, 0), (1.05, 0.02), (3, -1)]:
        x = shift + scale * sample(distribution, 2_000)
        x[500:600] = x[500]  # ties
        found = kolmogorov_smirnov(distribution.cdf(x))
        expected = scipy.stats.kstest(x, distribution.cdf)
        assert found.value == pytest.approx(expected.statistic, abs=1e-12)
        level = np.mean(x <= expected.statistic_location)
        if expected.statistic_sign < 0:
            level = np.mean(x < expected.statistic_location)
        right = np.sqrt(level * (1 - level) / 2_000 + 2 / 2_000**2)
        assert found.standard_error == pytest.approx(right, rel=1e-3)
        floor = scipy.stats.kstwobign.mean() / np.sqrt(2_000)
        assert found.noise_floor == pytest.approx(floor, rel=1e-6)
    assert np.isnan(kolmogorov_smirnov(np.full(200, np.nan))).all()


@pytest.mark.parametrize("eps", [0.05, 2.0])
def test_noise_floor_of_pairs_is_calibrated(eps):
    # y = l + eps e, both normal: y is normal as well. 300 repetitions: the mean distance is known
    # to 2%, each floor to 8%, their mean to 0.5%.
    generator = np.random.default_rng(0)
    found = []
    for _ in range(300):
        scores = generator.normal(size=300)
        y = (scores + eps * generator.normal(size=300)) / np.sqrt(1 + eps**2)
        columns = conditional_columns(scores, y, np.full(300, True))
        found.append(paired_kolmogorov_smirnov(calibrated(scores), y, NORM.cdf(y), columns))
    values, _, floors = np.array(found).T
    np.testing.assert_allclose(values.mean(), floors.mean(), rtol=0.08)
    assert np.mean(values > 2 * floors) < 0.03
    assert floors.mean() < 1.02 * scipy.stats.kstwobign.mean() / np.sqrt(300)


@pytest.mark.parametrize(
    ("net", "level", "truth"),
    [
        (lambda x: np.maximum(x - 1, 0) + 0.001 * x, 0.8, 0.001 * NORM.ppf(0.8)),
        (lambda x: x + 5 * (x > 1), 0.8, NORM.ppf(0.8)),
        (lambda x: np.exp(2 * x), 0.9, np.exp(2 * NORM.ppf(0.9))),
    ],
    ids=["kink", "jump", "exponential"],
)
def test_quantiles_where_the_density_changes_at_once(net, level, truth):
    """95% intervals of 200 samples of 300 pairs; 10 fewer have a probability of 1e-5."""
    rng, held, off, plain = np.random.default_rng(0), 0, [], []
    for _ in range(200):
        x = rng.standard_normal(300)
        columns = conditional_columns(x, net(x), np.full(300, True))
        found = quantiles(calibrated(x), net(x), np.array([level]), columns)
        off.append(found.value[0] - truth)
        plain.append(np.quantile(net(x), level) - truth)
        held += abs(off[-1]) < 1.96 * found.standard_error[0]
    assert held >= 175
    assert np.mean(np.square(off)) < 0.3 * np.mean(np.square(plain))
