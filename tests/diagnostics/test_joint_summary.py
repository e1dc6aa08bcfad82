"""The summary of the joint distribution: each number against SciPy or brute force."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg
import scipy.stats

from nn_uq_dist import GaussianCopulaJoint, Input, Linearization, linearize, paired_draws
from nn_uq_dist.diagnostics import joint_summary

pytestmark = [pytest.mark.slow, pytest.mark.viz]

JACOBIAN = np.array([[1.0, 0.5, 0.2, 0.0], [0.3, -0.7, 0.5, 0.1], [0.2, 0.4, 0.1, 0.9]])
NAMES = ["level", "slope", "bend"]


MEAN = np.array([0.3, 0.1, 0.2])


def network(f):
    return jnp.stack([jnp.sin(2 * f[0]) + f[1], f[1] * jnp.exp(f[2])])


def of_copula(lin, draws, key, **options):
    return joint_summary(lin, draws, key, joint=lin.gaussian_copula(), **options)


@pytest.fixture(scope="module")
def lin():
    return Linearization(np.zeros(3), JACOBIAN, Input.box(np.zeros(4), 1.0))


@pytest.fixture(scope="module")
def exact_draws(lin):
    return np.asarray(lin.sample(jax.random.key(7), (20_000,)))


@pytest.fixture(scope="module")
def summary_of_exact(lin, exact_draws):
    return of_copula(lin, exact_draws, jax.random.key(0), output_names=NAMES)


def test_correlations_agree_with_numpy_and_the_linear_distribution(summary_of_exact, exact_draws):
    tables = summary_of_exact.correlation
    rows = JACOBIAN / np.linalg.norm(JACOBIAN, axis=1, keepdims=True)
    linear = rows @ rows.T
    np.testing.assert_allclose(tables["monte_carlo"], np.corrcoef(exact_draws.T), atol=1e-6)
    np.testing.assert_allclose(tables["linear"], linear, atol=1e-6)
    np.testing.assert_allclose(tables["copula"], linear, atol=1e-5)  # what Nataf's matrix is for
    difference = tables["linear"] - tables["monte_carlo"]
    np.testing.assert_allclose(tables["linearization_error"], difference)
    np.testing.assert_allclose(tables["copula_error"], tables["copula"] - tables["linear"])
    assert (abs(difference) <= 5 * tables["standard_error"]).all()
    assert tables["output"].values.tolist() == NAMES


def test_calibration_agrees_with_scipy(lin, summary_of_exact, exact_draws):
    marginals, joint = lin.marginals(), lin.gaussian_copula()
    scores = scipy.stats.norm.ppf(np.asarray(marginals.cdf(exact_draws), np.float64))
    factor = np.linalg.cholesky(np.asarray(joint.correlation_matrix, np.float64))
    white = scipy.linalg.solve_triangular(factor, scores.T, lower=True).T
    radius = np.sum(white**2, axis=1)
    table = summary_of_exact.calibration
    assert table.index.tolist() == [*NAMES, "radius"]
    expected = [scipy.stats.kstest(w, "norm").statistic for w in white.T]
    expected.append(scipy.stats.kstest(radius, scipy.stats.chi2(3).cdf).statistic)
    np.testing.assert_allclose(table["ks"], expected, atol=1e-4)
    np.testing.assert_allclose(table["mean"], [*white.mean(axis=0), radius.mean() / 3], atol=1e-3)
    np.testing.assert_allclose(
        table["sd"], [*white.std(axis=0, ddof=1), radius.std(ddof=1) / 3], atol=2e-3
    )
    # The draws are exact linear ones, as those of `copula_ks`: both show the copula alone, within
    # the sampling error of 1.6 / sqrt(n) at most (0.5%).
    floors = table["noise_floor"] + table["copula_noise_floor"]
    assert (abs(table["ks"] - table["copula_ks"]) < 2 * floors).all()
    assert not (table["dominates"] == "linearization").any()


def test_verdict_names_the_copula():
    # |U_1 + U_2| and |U_1 - U_2| exclude each other, which no Gaussian copula knows.
    lin = Linearization(np.zeros(2), [[1.0, 1.0], [1.0, -1.0]], Input.box(np.zeros(2), 1.0))
    draws = np.asarray(lin.sample(jax.random.key(0), (8_000,)))
    summary = of_copula(lin, draws, jax.random.key(1))
    assert "copula" in summary.verdict
    assert max(map(len, str(summary).splitlines())) <= 80
    assert summary.calibration.loc["radius", "dominates"] == "copula"


def test_rows_that_are_not_finite_are_counted_and_left_out(lin, exact_draws):
    draws = exact_draws[:2_000].copy()
    draws[:5, 1], draws[3:8, 2] = np.nan, np.inf
    with pytest.warns(RuntimeWarning, match="slope: 5, bend: 5"):
        found = of_copula(lin, draws, jax.random.key(0), output_names=NAMES)
    assert (found.num_draws, found.num_non_finite) == (2_000, 8)
    kept = draws[8:].astype(np.float64).T
    np.testing.assert_allclose(found.correlation["monte_carlo"], np.corrcoef(kept), atol=1e-6)
    left_out = [np.corrcoef(np.delete(kept, i, axis=1)) for i in range(kept.shape[1])]
    jackknife = np.sqrt((len(left_out) - 1) * np.var(left_out, axis=0))
    error = found.correlation["standard_error"]
    np.testing.assert_allclose(error, jackknife, rtol=0.03, atol=1e-7)


def test_pairs_sharpen_the_correlations():
    lin = linearize(network, Input.box(MEAN, 0.4))
    pairs = paired_draws(network, lin, jax.random.key(0), 1_000, progress=False)
    found = of_copula(lin, pairs, jax.random.key(1))
    plain = of_copula(lin, pairs.network, jax.random.key(1))
    # Sums over a grid of 100^3 equally likely inputs.
    middle = 0.4 * (2 * (np.arange(100) + 0.5) / 100 - 1)
    x, y, z = (part.ravel() for part in np.meshgrid(*(center + middle for center in MEAN)))
    exact = np.corrcoef(np.sin(2 * x) + y, y * np.exp(z))
    table = found.correlation
    assert (abs(table["monte_carlo"] - exact) <= 4 * table["standard_error"]).all()
    error, other = (part.correlation["standard_error"].values[0, 1] for part in (found, plain))
    assert error < 0.5 * other
    assert table["worth"].values[0, 1] > 4_000
    np.testing.assert_allclose(table["linearization_error"], table["linear"] - table["monte_carlo"])
    assert "worth" not in plain.correlation
    assert found.calibration.equals(plain.calibration)


def test_draws_beyond_the_support_of_a_joint_distribution_have_bounded_scores():
    lin = Linearization(np.zeros(2), np.eye(2), Input.box(np.zeros(2), 1.0))
    draws = np.asarray(lin.sample(jax.random.key(3), (1_000,))).copy()
    draws[:100, 0] = 1.5
    distribution = GaussianCopulaJoint(lin.marginals(), jnp.eye(2))
    found = joint_summary(lin, draws, jax.random.key(0), joint=distribution)
    assert found.outside_support == pytest.approx(0.1)
    assert found.calibration.loc["y[0]", "mean"] == pytest.approx(3.8, abs=0.2)
    assert np.isfinite(found.calibration["ks"]).all()
