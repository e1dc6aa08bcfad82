"""A model with an error of its own from outside the package, in every table and figure."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

import nn_uq_dist as nuq

pytestmark = [pytest.mark.slow, pytest.mark.viz]

KEY = jax.random.key(0)
LOC = np.array([0.0, 1.0])
JACOBIAN = np.array([[1.0, 0.5], [0.2, 1.0]])
RESIDUAL = np.array([[0.3, 0.1], [0.1, 0.2]])
COVARIANCE = JACOBIAN @ JACOBIAN.T + RESIDUAL


@pytest.fixture(scope="module")
def model(page):
    """A linear network of normal inputs with a normal error: its outputs are normal."""
    distribution = nuq.Input.normal(jnp.zeros(2), 1.0)
    return page.WithResidual(nuq.Linearization(LOC, JACOBIAN, distribution), jnp.asarray(RESIDUAL))


@pytest.fixture(scope="module")
def draws():
    return np.random.default_rng(0).multivariate_normal(LOC, COVARIANCE, 6000)


def test_contract_is_kept(model):
    assert isinstance(model, nuq.linearization.LinearModel)
    assert (model.batch_shape, model.num_outputs, model.input.num_inputs) == ((), 2, 2)
    np.testing.assert_allclose(model.mean, LOC, rtol=1e-6)
    np.testing.assert_allclose(model.covariance, COVARIANCE, rtol=1e-5)
    noise, other = 0.3, 0.1 * np.eye(2)
    value = np.array([0.4, -0.7])
    total = COVARIANCE + noise**2 * np.eye(2) + other
    expected = scipy.stats.norm(LOC, np.sqrt(np.diag(total))).logpdf(value)
    np.testing.assert_allclose(model.marginals(noise, other).log_prob(value), expected, rtol=1e-5)
    joint = scipy.stats.multivariate_normal(LOC, total).logpdf(value)
    np.testing.assert_allclose(model.joint(noise, other).log_prob(value), joint, rtol=1e-4)
    inputs, outputs = model.sample_pairs(KEY, (4, 5))
    assert (inputs.shape, outputs.shape) == ((4, 5, 2), (4, 5, 2))


def test_tables_find_no_error(model, draws):
    table = nuq.diagnostics.summary(model, draws, progress=False)
    assert (table["verdict", "dominates"] == "noise").all()
    joint = nuq.diagnostics.joint_summary(model, draws, KEY, joint=model.joint(), progress=False)
    assert joint.verdict == "no error exceeds the noise of the draws"
    tree = nuq.diagnostics.to_datatree(model, draws, progress=False)
    assert tree["analytic"].attrs["source"] == "WithResidual"
    drawn = tree["analytic"]["y"].values.reshape(-1, 2)
    np.testing.assert_allclose(np.cov(drawn.T), model.covariance, atol=0.08)


def test_indices_are_those_of_the_linear_part(model):
    indices = nuq.diagnostics.sensitivity(model)
    expected = JACOBIAN**2 / np.diag(COVARIANCE)[:, None]
    np.testing.assert_allclose(indices, expected, atol=4 * indices.attrs["standard_error"])


FIGURES = {
    "marginals": nuq.plots.plot_marginals,
    "band": nuq.plots.plot_band,
    "calibration": nuq.plots.plot_calibration,
    "tails": nuq.plots.plot_tails,
    "joint": nuq.plots.plot_joint,
    "sensitivity": lambda model, _: nuq.plots.plot_sensitivity(model),
}


@pytest.mark.parametrize("name", FIGURES)
def test_every_figure_takes_it(name, model, draws):
    FIGURES[name](model, draws).canvas.draw()
