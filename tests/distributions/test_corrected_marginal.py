"""Distributions moved by increasing maps: change of variables against quadrature, SciPy and
draws."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
import scipy.integrate
import scipy.stats
from jax.test_util import check_grads
from numpyro.distributions.batch_util import promote_batch_shape, vmap_over

import nn_uq_dist as nuq

WEIGHTS = np.array([[1.0, 0.6, 0.3], [0.5, 0.5, 0.1], [2.0, 0.1, 0.1]])
LOC = np.array([0.0, 3.0, -1.0])
KNOTS = LOC[:, None] + np.array([-1.5, -0.5, 0.2, 1.0, 1.7])
IMAGES = KNOTS + np.array([0.2, -0.1, 0.3, 0.9, 2.0])


def corrected(*, noise=None, weights=WEIGHTS):
    base = nuq.LinearizedMarginal(LOC, weights, noise)
    return nuq.distributions.CorrectedMarginal(base, KNOTS, IMAGES)


@pytest.mark.parametrize("noise", [None, 0.3])
def test_density_integrates_to_one(x64, noise):
    distribution = corrected(noise=noise)
    for j in range(3):
        part = distribution[..., [j]]
        low, high = part.bounds
        if noise is not None:
            low, high = part.from_normal_score(-9.0), part.from_normal_score(9.0)
        knots = np.sort(IMAGES[j])
        ends = [float(low[0]), *knots[(knots > low) & (knots < high)], float(high[0])]
        nodes, weights = np.polynomial.legendre.leggauss(200)
        total = 0.0
        for a, b in itertools.pairwise(ends):
            at = (a + b) / 2 + (b - a) / 2 * nodes
            total += (b - a) / 2 * weights @ np.exp(np.asarray(part.log_prob(at[:, None])))[:, 0]
        # The density of a few uniforms bends at points inside the pieces.
        assert total == pytest.approx(1, abs=2e-5 if noise is None else 1e-9)


@pytest.mark.slow
def test_is_what_scipy_makes_of_a_uniform(x64):
    # One uniform, and a map that is straight: uniform again.
    base = nuq.LinearizedMarginal(0.0, [2.0])
    distribution = nuq.distributions.CorrectedMarginal(base, [-1.0, 1.0], [1.0, 4.0])
    known = scipy.stats.uniform(2.5 - 3, 6)
    y = np.linspace(-0.4, 5.4, 9)
    np.testing.assert_allclose(distribution.log_prob(y), known.logpdf(y), rtol=1e-12)
    np.testing.assert_allclose(distribution.log_cdf(y), known.logcdf(y), rtol=1e-9)
    np.testing.assert_allclose(distribution.mean, known.mean(), rtol=1e-9)
    np.testing.assert_allclose(distribution.variance, known.var(), rtol=1e-7)
    assert float(distribution.support.lower_bound) == pytest.approx(-0.5)
    with pytest.warns(UserWarning, match="Out-of-support"):
        assert distribution.log_prob(6.0) == -np.inf


@pytest.mark.slow
def test_round_trips(precision):
    wide = precision == "float64"
    distribution = corrected(noise=None if wide else 0.3)
    q = np.array([1e-12 if wide else 1e-6, 0.01, 0.3, 0.77, 0.999])[:, None]
    np.testing.assert_allclose(
        distribution.cdf(distribution.icdf(q)), q * np.ones(3), rtol=1e-6 if wide else 2e-3
    )
    z = np.array([-8.0, -3.0, 0.0, 2.0, 7.5] if wide else [-4.0, -1.0, 0.0, 3.0])[:, None]
    found = distribution.normal_score(distribution.from_normal_score(z))
    np.testing.assert_allclose(found, z * np.ones(3), rtol=1e-6 if wide else 1e-2, atol=1e-3)


@pytest.mark.slow
def test_moments_are_those_of_draws():
    distribution = corrected(noise=0.1)
    draws = np.asarray(distribution.sample(jax.random.key(0), (200_000,)))
    error = np.sqrt(np.asarray(distribution.variance) / 200_000)
    assert (np.abs(draws.mean(axis=0) - distribution.mean) < 4 * error).all()
    np.testing.assert_allclose(draws.std(axis=0), np.sqrt(distribution.variance), rtol=0.01)
    for j in range(3):
        part = distribution[..., [j]]
        assert scipy.stats.kstest(draws[:2000, j], lambda y, p=part: p.cdf(y)).pvalue > 1e-3


def test_scores_and_densities_in_one_pass():
    distribution = corrected(noise=0.1)
    y = distribution.icdf(jnp.array([[0.1], [0.5], [0.99]]))
    score, log_prob = distribution.normal_score_and_log_prob(y)
    np.testing.assert_allclose(score, distribution.normal_score(y), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(log_prob, distribution.log_prob(y), rtol=1e-5)


@pytest.mark.slow
def test_gradients(x64):
    def value(loc, images):
        base = nuq.LinearizedMarginal(loc, WEIGHTS, 0.2)
        distribution = nuq.distributions.CorrectedMarginal(base, KNOTS, images)
        return (
            distribution.log_prob(jnp.array([0.3, 3.3, -1.2])).sum() + distribution.icdf(0.3).sum()
        )

    check_grads(value, (jnp.asarray(LOC), jnp.asarray(IMAGES)), order=1, rtol=1e-5)


@pytest.mark.parametrize("name", ["knots", "images"])
def test_derived_slopes_have_the_axis_of_the_map(name):
    base = nuq.LinearizedMarginal(LOC, WEIGHTS, 0.3)
    parts = {"knots": KNOTS, "images": IMAGES}

    def distribution(part):
        return nuq.distributions.CorrectedMarginal(base, **(parts | {name: part}))

    stacked = np.stack([parts[name], parts[name] + 0.1])
    found = jax.vmap(distribution, out_axes=vmap_over(distribution(parts[name]), **{name: 0}))(
        stacked
    )
    np.testing.assert_allclose(getattr(found, name), stacked, rtol=1e-6)


def test_maps_in_a_batch():
    base = nuq.LinearizedMarginal(LOC, WEIGHTS, 0.3)
    images = np.stack([IMAGES, IMAGES + 1])
    distributions = promote_batch_shape(
        jax.vmap(lambda y: nuq.distributions.CorrectedMarginal(base, KNOTS, y, np.ones(5)))(images)
    )
    assert distributions.batch_shape == (2, 3)
    alone = nuq.distributions.CorrectedMarginal(base, KNOTS, images[1], np.ones(5))
    np.testing.assert_allclose(distributions.log_prob(0.4)[1], alone.log_prob(0.4), rtol=1e-5)


@pytest.mark.parametrize(
    ("base", "knots", "error", "message"),
    [
        (1.0, [0.0, 1.0], TypeError, "marginals must be"),
        (dist.Normal(), "map", TypeError, "knots must be an array of real numbers"),
        (dist.Normal(np.zeros(3)), [[0.0, 1.0]] * 2, ValueError, "broadcast against those of base"),
        (dist.Normal(), [1.0, 0.0], ValueError, "knots must ascend strictly"),
    ],
)
def test_errors(base, knots, error, message):
    with pytest.raises(error, match=message):
        nuq.distributions.CorrectedMarginal(base, knots, [0.0, 1.0])


def test_maps_may_have_more_axes_than_the_base():
    distribution = nuq.distributions.CorrectedMarginal(
        dist.Normal(), [[0.0, 1.0], [0.0, 2.0]], [0.0, 1.0]
    )
    assert distribution.batch_shape == distribution.mean.shape == (2,)
    np.testing.assert_allclose(distribution.mean, [0.0, 0.0], atol=1e-6)
