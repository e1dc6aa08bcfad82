"""The figure of joint distributions: regions that hold their masses, layout, messages."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
import scipy.stats

from nn_uq_dist import GaussianCopulaJoint, Input, Linearization, linearize, paired_draws
from nn_uq_dist.diagnostics.output_functions import OutputFunctions
from nn_uq_dist.distributions import as_output_distribution
from nn_uq_dist.plots import plot_joint
from nn_uq_dist.plots._plot_joint import SCORES, distribution_region, kernel_region

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


def region_of(joint):
    values = OutputFunctions(as_output_distribution(joint.marginals)).values(SCORES)
    return distribution_region(joint, values, MASSES)


def assert_hold(contours, points, slack):
    """Five standard deviations of a binomial count: one false alarm in two million."""
    for mass, path in zip(MASSES, contours.get_paths()[::-1], strict=True):
        fraction = path.contains_points(points).mean()
        allowed = 5 * np.sqrt(mass * (1 - mass) / len(points)) + slack
        assert abs(fraction - mass) < allowed


@pytest.mark.parametrize(
    ("r", "distribution"), [(0.0, "joint"), (0.7, "copula"), (-0.95, "joint"), (0.999, "copula")]
)
def test_levels_of_a_normal_distribution_are_those_of_chi_square(r, distribution):
    factor = np.diag([2.0, 0.1]) @ np.linalg.cholesky([[1, r], [r, 1]])
    lin = Linearization([0.0, 10.0], factor, Input.normal(jnp.zeros(2), scale_tril=jnp.eye(2)))
    joint = lin.joint() if distribution == "joint" else lin.gaussian_copula(min_eigenvalue=None)
    peak = 1 / (2 * np.pi * 0.2 * np.sqrt(1 - r**2))
    expected = peak * np.exp(-scipy.stats.chi2.ppf(MASSES, 2) / 2)
    np.testing.assert_allclose(region_of(joint).levels, expected, rtol=0.03)


@pytest.mark.parametrize("r", [0.3, 0.99999])
def test_density_of_draws_is_that_of_a_smoothed_normal_distribution(r):
    """Scott's kernel widens a normal distribution by the factor 1 + n^(-1/3) in its covariance."""
    count = 50_000
    covariance = np.array([[1, r], [r, 1]])
    points = np.random.default_rng(0).multivariate_normal([3, -2], covariance, count)
    region = kernel_region(points, MASSES, ("a", "b"))
    at = np.stack([region.x, region.y], axis=-1)
    wide = scipy.stats.multivariate_normal([3, -2], covariance * (1 + count ** (-1 / 3)))
    assert np.abs(region.density - wide.pdf(at)).max() < 0.05 * wide.pdf([3, -2])


def test_lines_and_filled_regions_hold_their_masses(boxed, draws):
    figure = plot_joint(boxed, draws, outputs=[2, 0])
    axis = figure.axes[2]
    assert figure.legends[0].get_texts()[0].get_text() == "linearized joint, 50, 90, 99%"
    for contours in axis.collections:
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
    for row, column in np.argwhere(np.tri(3)).tolist():
        axis = axes[row, column]
        np.testing.assert_allclose(axis.get_xlim(), axes[2, column].get_xlim())
        if column < row:
            assert not axes[column, row].axison
            np.testing.assert_allclose(axis.get_ylim(), axes[row, row].get_xlim())
    texts = [text.get_text() for text in figure.legends[0].get_texts()]
    percents = [*(f"{p}% of the draws, smoothed" for p in (50, 90, 99))]
    assert texts == ["copula, 50, 90, 99%", *percents]


def test_a_copula_of_dependent_outputs_on_a_single_axes():
    """The floor under the eigenvalues leaves a narrow density, which the skewed grid resolves."""
    import matplotlib.pyplot as plt

    lin = Linearization(jnp.zeros(2), [[1.0, 2.0], [2.0, 4.0]], Input.box(jnp.zeros(2), 1.0))
    with pytest.raises(ValueError, match=r"linearly independent .* got y\[0\] and y\[1\]; pass mo"):
        plot_joint(lin)
    _, axis = plt.subplots()
    copula = lin.gaussian_copula()
    assert plot_joint(copula, ax=axis) is axis.figure
    points = np.asarray(copula.sample(jax.random.key(0), (NUM_DRAWS,)), float)
    assert_hold(*axis.collections, points, slack=5e-3)
    assert axis.get_legend().get_texts()[0].get_text() == "linearized copula, 50, 90, 99%"


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


WRONG = [
    ({"outputs": 0}, ValueError, r"outputs must name 2 to 6 outputs, got 1; use plot_marginals"),
    ({}, ValueError, r"outputs must name 2 to 6 outputs, got 8; pass some"),
    ({"outputs": [0, 1], "masses": (0.5, 1.0)}, ValueError, r"masses must be .* in \(0, 1\)"),
    ({"outputs": [0, 1], "draws": np.zeros((200, 8))}, ValueError, "y.0. and y.1. that lie on"),
    ({"outputs": [0, 7]}, ValueError, r"outputs must vary and .* got y\[0\] and y\[7\]; pass mod"),
]


def test_wrong_arguments_are_named():
    jacobian = jax.random.normal(jax.random.key(0), (8, 9))
    jacobian = jacobian.at[7].set(-2 * jacobian[0])
    lin = Linearization(jnp.zeros(8), jacobian, Input.box(jnp.zeros(9), 1.0))
    for arguments, error, message in WRONG:
        with pytest.raises(error, match=message):
            plot_joint(**{"model": lin, **arguments})
