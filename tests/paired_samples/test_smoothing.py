"""Smoothing of noisy averages: no noise, much noise, and the formula for one prior."""

import numpy as np
import pytest
import scipy.stats

from nn_uq_dist.paired_samples import ScoreBins, _smoothing
from nn_uq_dist.paired_samples._smoothing import Points, smooth

BINS = ScoreBins.for_samples(400)
Z = BINS.centers
AT = Points(Z, Z[None] * 1.0)
FLOOR = np.array([1e-12])


def smoothed(values, sd, wanted=AT):
    noise = np.eye(Z.size)[None] * sd**2
    return smooth(values[None], noise, AT, wanted, FLOOR)[0]


@pytest.mark.parametrize("function", [np.sin, lambda z: 0.3 * z + 1, lambda z: np.tanh(2 * z)])
def test_follows_precise_averages(function):
    np.testing.assert_allclose(smoothed(function(Z), 1e-4), function(Z), atol=5e-3)


def test_believes_no_noise():
    noise = np.random.default_rng(0).normal(size=Z.size)
    assert np.abs(smoothed(noise, 1.0)).max() < 0.5 * np.abs(noise).max()


def test_zero_differences_stay_zero():
    assert np.abs(smoothed(np.zeros(Z.size), 0.0)).max() == 0


def test_scales_with_the_data():
    values = np.sin(Z) + 0.1 * np.random.default_rng(1).normal(size=Z.size)
    np.testing.assert_allclose(smoothed(1e5 * values, 1e4), 1e5 * smoothed(values, 0.1), rtol=1e-6)


def test_is_the_mean_over_two_posteriors(monkeypatch):
    monkeypatch.setattr(_smoothing, "_AMPLITUDES", np.array([2.0]))
    monkeypatch.setattr(_smoothing, "_LENGTHS", (1.0,))
    monkeypatch.setattr(_smoothing, "_RATIOS", (0.5,))
    monkeypatch.setattr(_smoothing, "_TAILS", (0.0,))
    sd, values = 0.3, np.cos(Z)
    wiggle = 0.5 * np.exp(-((Z[:, None] - Z) ** 2) / 2)
    priors = [2.0 * sd**2 * (1 + np.outer(Z, Z) + part) for part in (0 * wiggle, wiggle)]
    noisy = [prior + sd**2 * np.eye(Z.size) for prior in priors]
    logs = np.array([scipy.stats.multivariate_normal(cov=cov).logpdf(values) for cov in noisy])
    weights = np.exp(logs - logs.max()) / np.exp(logs - logs.max()).sum()
    means = [p @ np.linalg.solve(c, values) for p, c in zip(priors, noisy, strict=True)]
    expected = weights @ np.array(means)
    np.testing.assert_allclose(smoothed(values, sd), expected, rtol=1e-4, atol=1e-4)
