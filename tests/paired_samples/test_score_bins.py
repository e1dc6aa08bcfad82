"""Averages of quantile functions: against quadrature, and their noise against repetitions."""

import itertools

import numpy as np
import pytest
import scipy.integrate
import scipy.stats

from nn_uq_dist.paired_samples import ScoreBins
from nn_uq_dist.paired_samples.score_bins import influence, sample_averages

LAWS = {
    "normal": scipy.stats.norm(1.0, 2.0),
    "uniform": scipy.stats.uniform(-1.0, 2.0),
    "exponential": scipy.stats.expon(),
}


@pytest.mark.parametrize("name", LAWS)
def test_averages_of_a_known_quantile_function(name):
    distribution, bins = LAWS[name], ScoreBins.for_samples(20_000)
    upper = distribution.isf(scipy.stats.norm.sf(bins.nodes))
    quantiles = np.where(bins.nodes < 0, distribution.ppf(scipy.stats.norm.cdf(bins.nodes)), upper)
    found = bins.averages(quantiles[:, None])[:, 0]
    p = bins.probabilities
    expected = [
        scipy.integrate.quad(distribution.ppf, a, b, limit=200)[0] / (b - a)
        for a, b in itertools.pairwise(p)
    ]
    np.testing.assert_allclose(found, expected, rtol=2e-4, atol=2e-4)


def test_sample_averages_are_integrals_of_the_step_function():
    rng = np.random.default_rng(0)
    draws = rng.normal(size=(137, 2)) + 1e3
    bins = ScoreBins.for_samples(137)
    found = sample_averages(draws, bins)
    fine = (np.arange(1_370_000) + 0.5) / 1_370_000
    which = np.searchsorted(bins.probabilities[1:-1], fine)
    steps = np.sort(draws, axis=0)[(fine * 137).astype(int)]
    expected = np.stack([steps[which == k].mean(axis=0) for k in range(bins.centers.size)])
    np.testing.assert_allclose(found, expected, atol=1e-4)


def test_influence_gives_the_noise_of_the_averages():
    # 400 samples of 400 exponential draws: the relative error of a variance is 7%, and that of
    # the influence functions of one sample as large again in the tails.
    rng = np.random.default_rng(1)
    draws = rng.exponential(size=(400, 400))
    bins = ScoreBins(np.linspace(-2.5, 2.5, 19))
    scatter = np.cov(sample_averages(draws, bins))
    sample = rng.exponential(size=(400, 40))
    psi = influence(sample, bins)
    found = np.einsum("knj,lnj->kl", psi, psi) / 40 / 400**2
    middle = slice(1, -1)
    np.testing.assert_allclose(np.diag(found)[middle], np.diag(scatter)[middle], rtol=0.35)
    sd = np.sqrt(np.diag(scatter))
    assert np.abs((found - scatter) / np.outer(sd, sd))[middle, middle].max() < 0.3
