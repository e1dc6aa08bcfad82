"""The figure of joint distributions: regions that hold their masses, layout, messages."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
import scipy.stats

from nn_uq_dist import GaussianCopulaJoint, Input, Linearization, linearize, paired_draws
from nn_uq_dist.plots import plot_joint
from nn_uq_dist.plots._plot_joint import kernel_region

pytestmark = [pytest.mark.slow, pytest.mark.viz]

MASSES = (0.5, 0.9, 0.99)
NUM_DRAWS = 20_000
JACOBIAN = [[2.0, 0.5, 0.1, 1.0], [1.5, -0.5, 0.3, 0.0], [0.3, 0.3, 1.0, 1.0], [1.0, 1.0, 1, 1]]


@pytest.fixture(scope="module")
def boxed():
    return Linearization([0.0, 100.0, -5.0, 1.0], JACOBIAN, Input.box(jnp.zeros(4), 1.0))


@pytest.fixture(scope="module")
def draws(boxed):
    return np.asarray(boxed.sample(jax.random.key(0), (NUM_DRAWS,)))


def assert_hold(contours, points, slack):
    """Five standard deviations of a binomial count: one false alarm in two million."""
    for mass, path in zip(MASSES, contours.get_paths()[::-1], strict=True):
        fraction = path.contains_points(points).mean()
        allowed = 5 * np.sqrt(mass * (1 - mass) / len(points)) + slack
        assert abs(fraction - mass) < allowed


def test_density_of_dependent_draws_is_that_of_a_smoothed_normal_distribution():
    """Scott's kernel widens a normal distribution by the factor 1 + n^(-1/3) in its covariance."""
    count, r = 50_000, 0.99999
    covariance = np.array([[1, r], [r, 1]])
    points = np.random.default_rng(0).multivariate_normal([3, -2], covariance, count)
    region = kernel_region(points, MASSES, ("a", "b"))
    at = np.stack([region.x, region.y], axis=-1)
    wide = scipy.stats.multivariate_normal([3, -2], covariance * (1 + count ** (-1 / 3)))
    assert np.abs(region.density - wide.pdf(at)).max() < 0.05 * wide.pdf([3, -2])


def test_lines_and_filled_regions_hold_their_masses(boxed, draws):
    figure = plot_joint(boxed, draws, outputs=[2, 0])
    for contours in figure.axes[2].collections:
        assert_hold(contours, draws[:, [2, 0]], slack=2e-3)


def test_corner_is_labelled():
    distribution = dist.Normal(jnp.array([0.0, 3.0, 9.0]), 1.0)
    joint = GaussianCopulaJoint(distribution, 0.5 + 0.5 * jnp.eye(3))
    draws = joint.sample(jax.random.key(0), (1000,))
    names = ["level", "slope", "bend"]
    figure = plot_joint(joint, draws, outputs=["bend", 0, 1], output_names=names, units="m")
    axes = np.array(figure.axes).reshape(3, 3)
    assert [a.get_xlabel() for a in axes[2]] == ["bend (m)", "level (m)", "slope (m)"]
    assert [a.get_ylabel() for a in axes[:, 0]] == ["", "level (m)", "slope (m)"]
    for row, column in ((1, 0), (2, 0), (2, 1)):
        axis = axes[row, column]
        np.testing.assert_allclose(axis.get_xlim(), axes[2, column].get_xlim())
        np.testing.assert_allclose(axis.get_ylim(), axes[row, row].get_xlim())
        assert not axes[column, row].axison
    assert figure.legends[0].get_texts()[0].get_text() == "copula, 50, 90, 99%"


def test_a_copula_of_dependent_outputs_on_a_single_axes():
    """The floor under the eigenvalues leaves a narrow density, which the skewed grid resolves."""
    import matplotlib.pyplot as plt

    lin = Linearization(jnp.zeros(2), [[1.0, 2.0], [2.0, 4.0]], Input.box(jnp.zeros(2), 1.0))
    with pytest.raises(ValueError, match=r"linearly independent .* y\[0\] and y\[1\]; pass mo"):
        plot_joint(lin)
    _, axis = plt.subplots()
    copula = lin.gaussian_copula()
    assert plot_joint(copula, ax=axis) is axis.figure
    points = np.asarray(copula.sample(jax.random.key(0), (NUM_DRAWS,)), float)
    assert_hold(*axis.collections, points, slack=5e-3)


def test_a_corrected_model_shows_its_copula_which_has_its_marginals():
    def network(x):
        return jnp.stack([jnp.sinh(x[0]), jnp.sinh(x[0] + x[1])])

    lin = linearize(network, Input.normal(jnp.zeros(2), 0.5))
    pairs = paired_draws(network, lin, jax.random.key(0), 400, progress=False)
    model = lin.corrected(pairs)
    figure = plot_joint(model)
    x, density = figure.axes[0].lines[0].get_data()
    expected = np.exp(model.marginals().log_prob(x[:, None]))[:, 0]
    np.testing.assert_allclose(density, expected, rtol=1e-3, atol=1e-6)
    points = np.asarray(model.gaussian_copula().sample(jax.random.key(1), (NUM_DRAWS,)))
    assert_hold(*figure.axes[2].collections, points, slack=4e-3)
    assert figure.legends[0].get_texts()[0].get_text() == "corrected copula, 50, 90, 99%"
