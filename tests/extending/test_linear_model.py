"""A model of an ensemble of networks from outside the package, in every table and figure."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

import nn_uq_dist as nuq

pytestmark = [pytest.mark.slow, pytest.mark.viz]

KEY = jax.random.key(0)
LOC = np.array([[0.0, 1.0], [0.5, -1.0], [0.1, 0.0]])
JACOBIAN = np.array([[[1.0, 0.5], [0.2, 1.0]], [[0.8, 0.0], [-0.2, 1.5]], [[1.0, 0.1], [0.3, 0.7]]])


@pytest.fixture(scope="module")
def model(page):
    """Three linear networks of normal inputs: each has normal outputs."""
    law = nuq.InputLaw(jnp.zeros((3, 2)), scale=1.0)
    return page.Ensemble(nuq.Linearization(LOC, JACOBIAN, law))


@pytest.fixture(scope="module")
def draws():
    rng = np.random.default_rng(0)
    member, inputs = rng.integers(3, size=6000), rng.normal(size=(6000, 2))
    return LOC[member] + np.einsum("nij,nj->ni", JACOBIAN[member], inputs)


def test_contract_is_kept(model):
    assert isinstance(model, nuq.linearization.LinearModel)
    assert (model.batch_shape, model.num_outputs, model.input.num_inputs) == ((), 2, 2)
    covariance = np.einsum("mik,mjk->ij", JACOBIAN, JACOBIAN) / 3 + np.cov(LOC.T, ddof=0)
    np.testing.assert_allclose(model.mean, LOC.mean(axis=0), rtol=1e-6)
    np.testing.assert_allclose(model.covariance, covariance, rtol=1e-5)
    noise = 0.3
    value = np.array([0.4, -0.7])
    sd = np.sqrt(np.sum(JACOBIAN**2, axis=-1) + noise**2)
    expected = scipy.stats.norm(LOC, sd).pdf(value).mean(axis=0)
    np.testing.assert_allclose(model.marginals(noise).log_prob(value), np.log(expected), rtol=1e-5)
    own = JACOBIAN @ JACOBIAN.swapaxes(1, 2) + noise**2 * np.eye(2)
    joint = np.mean([scipy.stats.multivariate_normal(m, c).pdf(value)
                     for m, c in zip(LOC, own, strict=True)])  # fmt: skip
    np.testing.assert_allclose(model.joint(noise).log_prob(value), np.log(joint), rtol=1e-4)
    inputs, outputs = model.sample_pairs(KEY, (4, 5))
    assert (inputs.shape, outputs.shape) == ((4, 5, 2), (4, 5, 2))


def test_tables_find_no_error(model, draws):
    table = nuq.diagnostics.summary(model, draws, progress=False)
    assert (table["verdict", "dominates"] == "noise").all()
    joint = nuq.diagnostics.joint_summary(model, draws, KEY, joint=model.joint(), progress=False)
    assert joint.verdict == "no error exceeds the noise of the draws"
    tree = nuq.diagnostics.to_datatree(model, draws, progress=False)
    assert tree["analytic"].attrs["source"] == "Ensemble"
    drawn = tree["analytic"]["y"].values.reshape(-1, 2)
    np.testing.assert_allclose(np.cov(drawn.T), model.covariance, atol=0.08)


def test_indices_are_those_of_the_mixture(model):
    indices = nuq.diagnostics.sensitivity(model)
    # Given an input the mean is that of the mean Jacobian.
    slopes = JACOBIAN.mean(axis=0)
    expected = slopes**2 / np.diag(np.asarray(model.covariance))[:, None]
    np.testing.assert_allclose(indices, expected, atol=4 * indices.attrs["standard_error"])


def test_wins_are_those_of_its_draws(model, draws):
    wins = nuq.win_probabilities(model, key=KEY)
    plain = nuq.win_probabilities(draws)
    error = np.hypot(wins.standard_error, plain.standard_error)
    assert (np.abs(wins.value - plain.value) < 4 * error).all()


FIGURES = {
    "marginals": nuq.plots.plot_marginals,
    "output_band": nuq.plots.plot_output_band,
    "pit": nuq.plots.plot_pit,
    "tails": nuq.plots.plot_tails,
    "joint": nuq.plots.plot_joint,
    "correlation": nuq.plots.plot_correlation,
    "errors": lambda model, draws, **options: nuq.plots.plot_errors(
        lambda x: jnp.asarray(LOC[0]) + jnp.asarray(JACOBIAN[0]) @ x, model, KEY, **options
    ),
    "sensitivity": lambda model, draws, **options: nuq.plots.plot_sensitivity(model, **options),
}


@pytest.mark.parametrize("name", FIGURES)
def test_every_figure_takes_it(name, model, draws):
    figure = FIGURES[name](model, draws, backend="matplotlib")
    figure.get_viz("figure").canvas.draw()
    assert figure.viz.children


def test_three_points_take_it(page):
    samples = np.concatenate(page.draws_of_each)
    joint = page.ensemble.joint(noise_scale=0.05)  # two inputs: no density without noise
    figure = nuq.plots.plot_three_point(
        page.ensemble, samples, (0, 1, 2), law=joint, backend="none"
    )
    assert np.isfinite(figure.data["level"].sel(law="Monte Carlo")).all()
