"""A Laplace distribution of outputs from outside the package, in copulas, tables and figures."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

import nn_uq_dist as nuq

pytestmark = [pytest.mark.slow, pytest.mark.viz]

KEY = jax.random.key(0)
LOC, SCALE = np.array([0.0, 10.0, -5.0]), np.array([1.0, 3.0, 0.2])
KNOWN = [scipy.stats.laplace(a, b) for a, b in zip(LOC, SCALE, strict=True)]
SIZE = 4000


@pytest.fixture
def distribution(page):
    return page.LaplaceOutput(jnp.asarray(LOC), jnp.asarray(SCALE))


@pytest.fixture(scope="module")
def draws():
    rng = np.random.default_rng(5)
    return np.stack([known.rvs(SIZE, random_state=rng) for known in KNOWN], axis=1)


def test_contract_is_kept_in_both_tails(page, x64):
    distribution = page.LaplaceOutput(jnp.asarray(LOC), jnp.asarray(SCALE))
    assert isinstance(distribution, nuq.distributions.OutputDistribution)
    t = np.array([-300.0, -30.0, -1.0, 0.0, 0.5, 20.0, 300.0])[:, None]
    y = LOC + SCALE * t
    methods = {"log_prob": "logpdf", "log_cdf": "logcdf", "log_sf": "logsf", "cdf": "cdf"}
    for name, reference in methods.items():
        columns = zip(KNOWN, y.T, strict=True)
        expected = np.stack([getattr(known, reference)(x) for known, x in columns], axis=1)
        # Rounding of values that are 50 scales away from zero.
        np.testing.assert_allclose(getattr(distribution, name)(y), expected, rtol=1e-11, atol=1e-15)
    back = distribution.from_normal_score(distribution.normal_score(y))
    np.testing.assert_allclose(back, y, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(distribution.skewness, 0, atol=1e-9)
    np.testing.assert_allclose(distribution.excess_kurtosis, 3, rtol=1e-9)
    q = np.array([[1e-9], [0.3], [0.9]])
    expected = np.stack([known.ppf(q[:, 0]) for known in KNOWN], axis=1)
    np.testing.assert_allclose(distribution.icdf(q), expected, rtol=1e-9)


def test_table_finds_no_error(distribution, draws):
    table = nuq.diagnostics.summary(distribution, draws, progress=False)
    assert (table["pit", "p_value"] > 1e-4).all()
    assert (table["verdict", "dominates"] == "noise").all()
    shifted = nuq.diagnostics.summary(
        distribution, draws + np.array([0.0, 1.5, 0.0]), progress=False
    )
    assert (shifted["verdict", "dominates"] == "noise").tolist() == [True, False, True]


def test_copula_has_the_correlation_that_was_asked_for(distribution):
    target = np.array([[1.0, 0.6, -0.3], [0.6, 1.0, 0.2], [-0.3, 0.2, 1.0]])
    fit = nuq.distributions.nataf_correlation(distribution, jnp.asarray(target))
    assert fit.attainable.all()
    joint = nuq.GaussianCopulaJoint(distribution, fit.matrix)
    y = np.asarray(joint.sample(KEY, (200_000,)), np.float64)
    np.testing.assert_allclose(np.corrcoef(y.T), target, atol=5 * np.sqrt(3 / 200_000))
    # The density of a copula: that of the scores over their own, times the marginal ones.
    value = np.array([0.4, 12.0, -5.3])
    z = scipy.stats.norm.ppf([known.cdf(v) for known, v in zip(KNOWN, value, strict=True)])
    expected = (
        scipy.stats.multivariate_normal(np.zeros(3), np.asarray(fit.matrix, float)).logpdf(z)
        - scipy.stats.norm.logpdf(z).sum()
        + sum(known.logpdf(v) for known, v in zip(KNOWN, value, strict=True))
    )
    assert joint.log_prob(value) == pytest.approx(expected, abs=1e-4)
    part = joint.marginalize((2, 0))
    assert part.marginals.mean.tolist() == [-5.0, 0.0]
    given = joint.condition(1, 13.0)
    assert np.isfinite(given.log_prob(value[[0, 2]]))


FIGURES = ("plot_marginals", "plot_band", "plot_calibration", "plot_tails")


@pytest.mark.parametrize("name", FIGURES)
def test_every_figure_of_outputs_takes_it(distribution, draws, name):
    getattr(nuq.plots, name)(distribution, draws).canvas.draw()
