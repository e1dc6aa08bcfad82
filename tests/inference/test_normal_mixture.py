"""Mixtures of normal laws against SciPy, and fits against what was drawn from."""

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from nn_uq_dist.inference._normal_mixture import Normal, NormalMixture, fit_mixture

RNG = np.random.default_rng(0)


def some_normal(d, r):
    directions = np.linalg.qr(RNG.standard_normal((d, r)))[0]
    return Normal(RNG.standard_normal(d), directions, np.linspace(0.2, 3.0, r))


def covariance(part):
    stretched = part.directions * (part.variances - 1)
    return np.eye(part.mean.size) + stretched @ part.directions.T


def test_density_and_draws_of_one():
    part = some_normal(5, 2)
    z = RNG.standard_normal((7, 5))
    expected = multivariate_normal(part.mean, covariance(part)).logpdf(z)
    found = part.log_density(z, np.sum(z**2, axis=1))
    np.testing.assert_allclose(found - 2.5 * np.log(2 * np.pi), expected)
    draws = part.draw(RNG, 200_000)
    np.testing.assert_allclose(draws.mean(axis=0), part.mean, atol=0.02)
    np.testing.assert_allclose(np.cov(draws.T), covariance(part), atol=0.05)


def test_numbers_of_draws_are_the_shares():
    far = [Normal.around(np.array([100.0 * k, 0.0])) for k in range(4)]
    mixture = NormalMixture(tuple(far), np.array([0.5, 0.301, 0.149, 0.05]))
    counts = []
    for _ in range(200):
        z = mixture.draw(RNG, 101)
        counts.append(np.bincount(np.round(z[:, 0] / 100).astype(int), minlength=4))
    wanted = mixture.shares * 101
    assert np.all(np.abs(np.array(counts) - wanted) < 1)
    np.testing.assert_allclose(np.mean(counts, axis=0), wanted, atol=0.15)


def test_mixture_density():
    parts = [some_normal(3, 1), some_normal(3, 2)]
    mixture = NormalMixture(tuple(parts), np.array([0.3, 0.7]))
    z = RNG.standard_normal((5, 3))
    expected = sum(
        share * multivariate_normal(part.mean, covariance(part)).pdf(z)
        for part, share in zip(parts, mixture.shares, strict=True)
    )
    np.testing.assert_allclose(np.exp(mixture.log_density(z)) / (2 * np.pi) ** 1.5, expected)


@pytest.mark.parametrize(("count", "d"), [(4000, 6), (40, 60)])
def test_fit_keeps_variance_one_where_draws_show_nothing_else(count, d):
    mean = np.zeros(d)
    mean[0] = 4.0
    z = mean + RNG.standard_normal((count, d)) * np.where(np.arange(d) == 0, 0.3, 1.0)
    part = Normal.fit(z, np.ones(count))
    assert part.mean[0] == pytest.approx(4, abs=0.2)
    assert part.variances.size < 6
    found = covariance(part)
    assert found[0, 0] < 0.3


def test_fit_with_weights_finds_two_regions():
    z = RNG.standard_normal((6000, 2)) * 2
    weights = np.exp(-0.5 * np.minimum(*(np.sum((z - c) ** 2, axis=1) for c in ([3, 0], [-3, 1]))))
    mixture = fit_mixture(z, weights, RNG, 4)
    means = sorted(tuple(part.mean) for part in mixture.components)
    assert len(means) == 2
    np.testing.assert_allclose(means, [[-2.4, 0.8], [2.4, 0.0]], atol=0.25)


def test_guarded_covers_what_lies_between():
    parts = tuple(Normal(np.array([x, 0.0]), np.eye(2), np.full(2, 0.01)) for x in (-3.0, 3.0))
    whole = Normal(np.zeros(2), np.eye(2), np.array([9.0, 1.0]))
    mixture = NormalMixture(parts, np.array([0.5, 0.5])).guarded(
        whole, Normal.standard(2, 4.0), 0.4
    )
    assert mixture.shares.sum() == pytest.approx(1)
    assert mixture.log_density(np.zeros((1, 2)))[0] > -4
