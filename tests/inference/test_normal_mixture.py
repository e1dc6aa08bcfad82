"""Mixtures of normal distributions against SciPy, and fits against what was drawn from."""

import numpy as np
import pytest
from scipy.stats import kstest, multivariate_normal, norm, truncnorm

from nn_uq_dist.inference._normal_mixture import Normal, NormalMixture, Wedge, fit_mixture

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


def beyond_paraboloid(distance, bend, d, count):
    """Draws with z_0 > distance + bend |others|^2 / 2, and slopes of the difference.

    The others have no closed form: those of a wider distribution are weighted by the tail of z_0.
    """
    others = RNG.standard_normal((count, d - 1))
    limits = distance + bend * np.sum(others**2, axis=1) / 2
    tails = norm.sf(limits)
    chosen = RNG.choice(count, count // 10, p=tails / tails.sum())
    first = truncnorm(limits[chosen], np.inf).rvs(random_state=RNG)
    z = np.column_stack([first, others[chosen]])
    return z, np.column_stack([np.ones(len(z)), -bend * others[chosen]])


def test_fit_by_slopes_has_the_curvature():
    z, slopes = beyond_paraboloid(4.0, 0.5, 3, 400_000)
    part = Normal.fit_slopes(z, np.ones(len(z)), slopes)
    np.testing.assert_allclose(part.mean, z.mean(axis=0), atol=0.05)
    np.testing.assert_allclose(covariance(part), np.cov(z.T), atol=0.04)


def test_fit_by_slopes_needs_few_draws():
    # In 31 variables 60 draws say where the mean is by their slopes, not by their own mean.
    z, slopes = beyond_paraboloid(4.0, 0.1, 31, 40_000)
    few = RNG.choice(len(z), 60, replace=False)
    part = Normal.fit_slopes(z[few], np.ones(60), slopes[few])
    across = np.linalg.norm(part.mean[1:]), np.linalg.norm(z[few, 1:].mean(axis=0))
    assert across[0] < 0.6 * across[1]


def test_fit_with_weights_finds_two_regions():
    rng = np.random.default_rng(1)  # a spurious third region is found once in twenty times
    z = rng.standard_normal((6000, 2)) * 2
    weights = np.exp(-0.5 * np.minimum(*(np.sum((z - c) ** 2, axis=1) for c in ([3, 0], [-3, 1]))))
    mixture = fit_mixture(z, weights, rng, 4)
    means = sorted(tuple(part.mean) for part in mixture.components)
    assert len(means) == 2
    np.testing.assert_allclose(means, [[-2.4, 0.8], [2.4, 0.0]], atol=0.25)


def half_space(distance):
    return Wedge(np.array([[1.0, 0.0]]), np.array([distance]))


@pytest.mark.parametrize(
    "directions", [np.eye(3)[:2], [[0.6, 0.8, 0.0], [0.8, -0.6, 0.0]], [[0.6, 0.0, 0.8], [1, 0, 0]]]
)
def test_density_and_draws_beyond_planes(directions):
    part = Wedge(np.array(directions, float), np.array([1.5, 0.3]))
    plain = np.random.default_rng(1).standard_normal((400_000, 3))
    inside = plain[part.holds(plain)]
    draws = part.draw(RNG, 100_000)
    assert part.holds(draws).all()
    # Weights over its own density have the mean of the probability, and give the moments there.
    squares = np.sum(draws**2, axis=1)
    weights = np.exp(-squares / 2 - part.log_density(draws, squares))
    share = len(inside) / len(plain)
    assert weights.mean() == pytest.approx(share, abs=4 * np.sqrt(share / len(plain)))
    assert weights.max() < 1
    mean = weights @ draws / weights.sum()
    np.testing.assert_allclose(mean, inside.mean(axis=0), atol=5 / np.sqrt(len(inside)))
    if np.isclose(part.directions[0] @ part.directions[1], 0):
        np.testing.assert_allclose(weights, norm.sf(1.5) * norm.sf(0.3))
    assert np.all(np.isneginf(part.log_density(plain, np.zeros(len(plain)))) == ~part.holds(plain))


def test_density_and_draws_beyond_a_plane():
    direction = np.array([0.6, 0.0, 0.8])
    part = Wedge(direction[None], np.array([4.0]))
    draws = part.draw(RNG, 100_000)
    along = draws @ direction
    # Along the normal a truncated normal distribution, across it a standard one.
    expected = truncnorm(4.0, np.inf)
    assert kstest(along, expected.cdf).pvalue > 1e-4
    across = draws - np.outer(along, direction)
    np.testing.assert_allclose(
        np.cov(across.T), np.eye(3) - np.outer(direction, direction), atol=0.02
    )
    z = draws[:5]
    found = part.log_density(z, np.sum(z**2, axis=1)) - 1.5 * np.log(2 * np.pi)
    distribution = expected.logpdf(along[:5]) + multivariate_normal(np.zeros(2)).logpdf(np.zeros(2))
    np.testing.assert_allclose(found, distribution - np.sum(across[:5] ** 2, axis=1) / 2)
    assert part.log_density(-z, np.sum(z**2, axis=1)).tolist() == [-np.inf] * 5


def test_balanced_shares_have_less_variance_and_keep_a_part():
    # One component is where the weighted draws are; shares of less variance prefer it.
    near, far = Normal.around(np.array([4.0, 0.0])), Normal.around(np.array([-4.0, 0.0]))
    mixture = NormalMixture(
        (Normal.around(np.zeros(2)), near, far, half_space(4.0)),
        np.full(4, 0.25),
    )
    z = half_space(4.0).draw(RNG, 5000)
    plain = np.exp(-np.sum(z**2, axis=1) / 2)

    def second_moment(distribution):
        return np.mean(plain / np.exp(distribution.log_density(z)))

    balanced = mixture.balanced(z, np.ones(len(z)))
    assert balanced.shares.sum() == pytest.approx(1)
    assert second_moment(balanced) < 0.75 * second_moment(mixture)
    assert balanced.shares.argmax() == 3
    assert balanced.shares.min() > 0.35 * 0.25
    assert mixture.balanced(np.zeros((0, 2)), np.zeros(0)) is mixture


def test_balanced_shares_where_one_component_alone_is_near_a_point_of_no_weight():
    # Its share becomes zero, and with it the density there.
    parts = [Normal.around(np.full(300, mean)) for mean in (-8.0, 0.0, 4.0)]
    z = np.array([[4.0] * 300, [-8.0] * 300])
    balanced = NormalMixture.even(*parts).balanced(z, np.ones(2))
    assert np.isfinite(balanced.shares).all()
    assert balanced.shares.argmax() == 2


def test_mixture_of_mixtures():
    first = NormalMixture.even(Normal.around(np.zeros(2)), Normal.around(np.ones(2)))
    second = NormalMixture.even(Wedge(np.array([[0.0, 1.0]]), np.array([2.0])))
    joined = NormalMixture.joined((first, 4.0), (second, 6.0))
    assert joined.shares.tolist() == pytest.approx([0.2, 0.2, 0.6])
    assert joined.normals == first.components
    z = np.array([[0.3, 2.5], [0.3, 1.5]])
    expected = [0.4, 0.6] @ np.exp([first.log_density(z), second.log_density(z)])
    np.testing.assert_allclose(np.exp(joined.log_density(z)), expected)


def test_mixture_density():
    parts = [some_normal(3, 1), some_normal(3, 2)]
    mixture = NormalMixture(tuple(parts), np.array([0.3, 0.7]))
    z = RNG.standard_normal((5, 3))
    expected = sum(
        share * multivariate_normal(part.mean, covariance(part)).pdf(z)
        for part, share in zip(parts, mixture.shares, strict=True)
    )
    np.testing.assert_allclose(np.exp(mixture.log_density(z)) / (2 * np.pi) ** 1.5, expected)
