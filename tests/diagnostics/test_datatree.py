"""The tree of draws and distributions: against known distributions, by NetCDF, and in ArviZ."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from nn_uq_dist import GaussianCopulaJoint, Input, Linearization
from nn_uq_dist.diagnostics import to_datatree
from nn_uq_dist.diagnostics.output_functions import joint_correlation

pytestmark = pytest.mark.viz

NAMES = ["level", "slope", "bend"]
JACOBIAN = np.array([[2.0, 0.0], [1.5, 0.5], [0.3, 0.3]])
LOC = np.array([0.0, 10.0, -5.0])
KNOWN = {
    "level": scipy.stats.uniform(-2, 4),
    "slope": scipy.stats.trapezoid(0.25, 0.75, 8, 4),
    "bend": scipy.stats.triang(0.5, -5.6, 1.2),
}


LIN = Linearization(LOC, JACOBIAN, Input.box(np.zeros(2), 1.0))
DRAWS = LOC + np.random.default_rng(0).uniform(-1.05, 1, (5_003, 2)) @ JACOBIAN.T


@pytest.fixture(scope="module")
def tree():
    return to_datatree(LIN, DRAWS, output_names=NAMES, num_analytic_draws=2_001)


def test_draws_are_four_chains_and_pit_the_distribution_function_at_them(tree):
    stored = tree["monte_carlo"]["y"]
    np.testing.assert_array_equal(stored, DRAWS[:5_000].reshape(4, 1_250, 3))
    assert tree["monte_carlo"].attrs["draws_left_out"] == 3
    for name, distribution in KNOWN.items():
        pit = tree["pit"]["y"].sel(output=name).values
        x = tree["monte_carlo"]["y"].sel(output=name).values
        np.testing.assert_allclose(pit, distribution.cdf(x), atol=3e-6)
        assert 0 < pit.min() < pit.max() < 1


@pytest.mark.slow
def test_analytic_draws_are_of_the_distribution():
    # Kolmogorov-Smirnov at 1e-4 per comparison, seven of them, fixed keys; correlations to 5
    # standard errors of 2004 draws.
    matrix = jnp.array([[1.0, 0.8, 0.3], [0.8, 1.0, 0.5], [0.3, 0.5, 1.0]])
    joint = GaussianCopulaJoint(LIN.marginals(), matrix)
    cases = {
        "linear model": (LIN, LIN.correlation),
        "Gaussian copula": (joint, joint_correlation(joint)),
        "marginals, drawn independently": (LIN.marginals(), np.eye(3)),
    }
    for source, (distribution, correlation) in cases.items():
        tree = to_datatree(distribution, DRAWS, num_analytic_draws=2_001, key=jax.random.key(3))
        drawn = tree["analytic"]["y"]
        assert tree["analytic"].attrs["source"] == source
        assert drawn.shape == (4, 501, 3)
        values = drawn.values.reshape(-1, 3)
        for x, reference in zip(values.T, KNOWN.values(), strict=True):
            assert scipy.stats.kstest(x, reference.cdf).pvalue > 1e-4
        np.testing.assert_allclose(np.corrcoef(values.T), correlation, atol=5 / np.sqrt(2_004))


def test_tree_survives_netcdf(tree, tmp_path):
    import xarray

    tree.to_netcdf(tmp_path / "tree.nc")
    with xarray.open_datatree(tmp_path / "tree.nc") as loaded:
        xarray.testing.assert_identical(loaded.load(), tree)


def test_arviz_accepts_the_tree(tree):
    import arviz_plots
    import arviz_stats

    table = arviz_stats.summary(tree, group="monte_carlo", kind="all", round_to="none")
    np.testing.assert_allclose(table["mean"], DRAWS[:5_000].mean(axis=0), rtol=1e-9)
    figure = arviz_plots.plot_ecdf_pit(tree, group="pit", method="pot_c", backend="none")
    assert figure.viz["ecdf_lines"]["y"].output.values.tolist() == NAMES


def test_draws_that_are_not_finite_stay():
    draws = DRAWS.copy()
    draws[:5, 1] = [np.nan, np.inf, -np.inf, np.nan, np.nan]
    with pytest.warns(RuntimeWarning, match="slope: 5"):
        tree = to_datatree(LIN, draws, output_names=NAMES)
    np.testing.assert_array_equal(tree["monte_carlo"]["y"][0], draws[:1_250])
    np.testing.assert_array_equal(np.isnan(tree["pit"]["y"][0]), ~np.isfinite(draws[:1_250]))


def test_draws_of_half_precision(tmp_path):
    draws = np.asarray(jnp.asarray(np.resize([0.0, 1.0], (100, 3))).astype("bfloat16"))
    tree = to_datatree(LIN, draws)
    np.testing.assert_array_equal(np.ravel(tree["monte_carlo"]["y"]), np.ravel(draws))
    tree.to_netcdf(tmp_path / "tree.nc")
