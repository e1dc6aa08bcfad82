"""A joint distribution of independent outputs from outside the package, in every table and
figure."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
import scipy.stats

import nn_uq_dist as nuq

pytestmark = [pytest.mark.slow, pytest.mark.viz]

KEY = jax.random.key(0)
LOC, SCALE = np.array([0.0, 10.0, -5.0]), np.array([1.0, 3.0, 0.2])
KNOWN = [scipy.stats.laplace(a, b) for a, b in zip(LOC, SCALE, strict=True)]


@pytest.fixture
def joint(page):
    return page.IndependentOutputs(page.LaplaceOutput(jnp.asarray(LOC), jnp.asarray(SCALE)))


@pytest.fixture(scope="module")
def lin():
    """A linearization whose outputs are independent: no error is the joint distribution's."""
    distribution = nuq.Input.box(jnp.zeros(3), half_width=1.0)
    return nuq.Linearization(jnp.asarray(LOC), jnp.diag(jnp.asarray(SCALE)), distribution)


@pytest.fixture(scope="module")
def draws(lin):
    return np.asarray(lin.sample(jax.random.key(3), (4000,)), np.float64)


def test_contract_is_kept(joint):
    assert isinstance(joint, nuq.distributions.JointDistribution)
    value = np.array([[0.5, 12.0, -5.1], [-2.0, 1.0, -4.0]])
    expected = sum(known.logpdf(x) for known, x in zip(KNOWN, value.T, strict=True))
    np.testing.assert_allclose(joint.log_prob(value), expected, rtol=1e-5)
    np.testing.assert_allclose(joint.covariance_matrix, np.diag(2 * SCALE**2), rtol=1e-6)
    part = joint.marginalize([2, -3])
    np.testing.assert_allclose(part.mean, LOC[[2, 0]])
    assert joint.marginalize(1).event_shape == (1,)
    scores = np.asarray(joint.rosenblatt(joint.sample(KEY, (4000,))), np.float64)
    for column in scores.T:
        assert scipy.stats.kstest(column, "norm").pvalue > 1e-4
    assert np.abs(np.corrcoef(scores.T) - np.eye(3)).max() < 5 / np.sqrt(4000)


def test_models_observe_it(page):
    def model(y):
        loc = numpyro.sample("loc", dist.Normal(jnp.zeros(2), 1).to_event(1))
        numpyro.sample("y", page.IndependentOutputs(page.LaplaceOutput(loc, 1.0)), obs=y)

    y, loc = jnp.array([0.3, -1.0]), jnp.array([0.1, 0.2])
    found, _ = numpyro.infer.util.log_density(model, (y,), {}, {"loc": loc})
    expected = scipy.stats.norm.logpdf(loc).sum() + scipy.stats.laplace(loc).logpdf(y).sum()
    assert found == pytest.approx(expected, rel=1e-5)


def test_joint_summary_does_not_blame_the_right_distribution(page, lin, draws):
    right = page.IndependentOutputs(lin.marginals())
    found = nuq.diagnostics.joint_summary(lin, draws, KEY, joint=right)
    assert found.kind == "independent outputs"
    assert found.verdict == "no error exceeds the noise of the draws"
    table = nuq.diagnostics.summary(lin, draws, joint=found)
    assert (table["verdict", "dominates"] == "noise").all()


def test_joint_summary_blames_the_wrong_distribution_by_its_name(joint, lin, draws):
    found = nuq.diagnostics.joint_summary(lin, draws, KEY, joint=joint)
    assert "independent outputs" in found.verdict
    assert (found.calibration["dominates"] == "independent outputs").any()
    assert "Joint calibration of the independent outputs" in str(found)


def test_tree_and_summary_take_it(joint):
    rng = np.random.default_rng(7)
    values = np.stack([known.rvs(4000, random_state=rng) for known in KNOWN], axis=1)
    tree = nuq.diagnostics.to_datatree(joint, values, num_analytic_draws=2000, progress=False)
    assert tree["analytic"].attrs["source"] == "independent outputs"
    drawn = tree["analytic"]["y"].values.reshape(-1, 3)
    # Five standard errors of a correlation.
    np.testing.assert_allclose(np.corrcoef(drawn.T), np.eye(3), atol=5 / 2000**0.5)
    table = nuq.diagnostics.summary(joint, values, progress=False)
    assert (table["verdict", "dominates"] == "noise").all()


def test_figure_of_joint_distributions_takes_it(joint, draws):
    figure = nuq.plots.plot_joint(joint, draws)
    legend = figure.legends[0].get_texts()
    assert legend[0].get_text() == "independent outputs, 50, 90, 99%"
