"""Mixtures of t distributions against SciPy, and against what was drawn from."""

import numpy as np
import pytest
from scipy.stats import multivariate_normal, multivariate_t

from nn_uq_dist.inference._student_mixture import StudentMixture, fit_mixture, monomials


def some_mixture(rng, d=3):
    roots = rng.standard_normal((2, d, d))
    covariances = roots @ roots.mT + 0.1 * np.eye(d)
    return StudentMixture.of(np.array([0.3, 0.7]), rng.standard_normal((2, d)), covariances)


@pytest.mark.parametrize("d", [3, 4])  # densities are powers of an integer and a half, an integer
def test_density_is_that_of_scipy(d):
    rng = np.random.default_rng(0)
    mixture, z = some_mixture(rng, d), 3 * rng.standard_normal((9, d))
    expected = 0.03 * multivariate_normal(np.zeros(d)).pdf(z)
    for share, mean, root in zip(mixture.shares, mixture.means, mixture.roots, strict=True):
        for kind, wider in ((0.87, 1.0), (0.1, 3.0)):
            shape = wider * root @ root.T
            expected += kind * share * multivariate_t(mean, shape, df=8).pdf(z)
    np.testing.assert_allclose(mixture.log_density(z), np.log(expected), rtol=1e-10)


def test_draws_have_the_density():
    rng = np.random.default_rng(1)
    mixture = some_mixture(rng)
    z = mixture.draw(rng, 100_000)
    assert z.shape == (100_000, 3)
    # Weighted to a normal distribution, whose moments and total are known.
    target = multivariate_normal([0.2, 0.0, -0.3], 0.5)
    weights = np.exp(target.logpdf(z) - mixture.log_density(z))
    error = 4.5 * np.std(weights) / np.sqrt(len(z))
    assert abs(weights.mean() - 1) < error
    np.testing.assert_allclose(weights @ z / len(z), target.mean, atol=2 * error)


@pytest.mark.parametrize("scale", [1e-5, 1e-9])
def test_narrow_components_keep_their_digits(scale):
    rng = np.random.default_rng(2)
    mean = np.array([[3.0, -2.0]])
    mixture = StudentMixture.of(np.ones(1), mean, scale**2 * np.eye(2)[None])
    z = mean + scale * rng.standard_normal((5, 2))
    expected = np.sum(((z - mean) / scale) ** 2, axis=1)
    found = 8 * mixture.squared_distances()(z, monomials(z))
    np.testing.assert_allclose(found[0], expected, atol=1e-3)


def test_fit_finds_what_was_drawn_from():
    rng = np.random.default_rng(3)
    kind = rng.uniform(size=4000) < 0.25
    z = rng.standard_normal((4000, 2)) * [0.1, 1.0] + np.where(kind, 4.0, -4.0)[:, None]
    # Weights that double one half are those of twice as many draws.
    weights = np.where(z[:, 1] - np.where(kind, 4.0, -4.0) > 0, 2.0, 1.0)
    mixture = fit_mixture(z, weights / weights.sum(), 2, rng)
    order = np.argsort(mixture.means[:, 0])
    np.testing.assert_allclose(mixture.shares[order], [0.75, 0.25], atol=0.03)
    shift = np.sqrt(2 / np.pi) / 3
    expected = [[-4, -4 + shift], [4, 4 + shift]]
    np.testing.assert_allclose(mixture.means[order], expected, atol=0.1)
    # The scale matrix of a t distribution that is fitted to normal draws is a little smaller.
    ratio = mixture.roots[:, 0, 0] / 0.1
    assert np.all((ratio > 0.8) & (ratio < 1.1))


def test_more_components_than_draws_are_left_out():
    rng = np.random.default_rng(4)
    z = np.repeat(rng.standard_normal((3, 2)), 2, axis=0)
    mixture = fit_mixture(z, np.full(6, 1 / 6), 20, rng)
    assert np.isfinite(mixture.log_density(z)).all()


def test_fit_to_draws_that_are_nearly_the_same():
    rng, weights = np.random.default_rng(0), np.full(64, 1 / 64)
    same = fit_mixture(np.full((64, 2), 9.0), weights, 3, rng)
    np.testing.assert_allclose(same.means, [[9.0, 9.0]])
    # Sums of squares about the mean of all leave nothing of how close all but four of them lie.
    for _ in range(10):
        z = 9 + 1e-10 * rng.standard_normal((64, 2))
        z[:4] += rng.standard_normal(2)
        assert np.isfinite(fit_mixture(z, weights, 3, rng).log_density(z)).all()
