"""A triangular input from outside the package: exact distributions, tables, figures, and its
errors."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
import scipy.stats

import nn_uq_dist as nuq
from nn_uq_dist.basics.concrete import in_float64
from tests.box_gaussian.joint_density_grid import joint_density_grid, total_variation

pytestmark = [pytest.mark.slow, pytest.mark.viz]

KEY = jax.random.key(0)
SIZE = 100_000
LOC, WIDTH = np.array([0.3, -0.5, 2.0]), np.array([0.4, 0.2, 1.0])
JACOBIAN = np.array([[2.0, 0.0, 0.0], [1.0, -3.0, 0.5], [0.5, 1.0, 1.0]])


def network(x):
    return jnp.asarray(JACOBIAN, x.dtype) @ x


@pytest.fixture(scope="module")
def f(page):
    return page.Triangular(jnp.asarray(LOC), jnp.asarray(WIDTH)).to_event(1)


@pytest.fixture(scope="module")
def lin(f):
    return nuq.linearize(network, f)


@pytest.fixture(scope="module")
def draws(f):
    return np.asarray(nuq.monte_carlo(network, f, KEY, SIZE), np.float64)


def triangles(rng, size=SIZE):
    """Draws by SciPy, independent of the package and of the page."""
    return scipy.stats.triang(0.5, LOC - WIDTH, 2 * WIDTH).rvs((size, 3), random_state=rng)


def test_distribution_of_one_output_is_the_triangle(lin):
    # The first output is twice the first input.
    known = scipy.stats.triang(0.5, 2 * (LOC[0] - WIDTH[0]), 4 * WIDTH[0])
    distribution = lin.marginals()[[0]]
    x = known.ppf(np.array([1e-3, 0.01, 0.3, 0.5, 0.8, 0.99]))
    # In float32 a value near the end of the support is off by 1e-7 of itself.
    np.testing.assert_allclose(distribution.log_prob(x[:, None])[:, 0], known.logpdf(x), atol=2e-3)
    np.testing.assert_allclose(distribution.cdf(x[:, None])[:, 0], known.cdf(x), rtol=1e-3)
    assert lin.marginals().weights.shape == (3, 6)  # two uniform columns for each input


def test_moments_are_those_of_scipy(lin):
    covariance = JACOBIAN @ np.diag(WIDTH**2 / 6) @ JACOBIAN.T
    np.testing.assert_allclose(lin.covariance, covariance, rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(lin.mean, JACOBIAN @ LOC, rtol=1e-6)
    np.testing.assert_allclose(lin.input.variance, WIDTH**2 / 6, rtol=1e-6)
    np.testing.assert_allclose(lin.input.half_width, WIDTH, rtol=1e-6)
    exact = in_float64(lin).image()  # what tables and figures ask stays in NumPy, in any precision
    assert isinstance(exact.uniform, np.ndarray)
    assert exact.covariance.dtype == np.float64


@pytest.mark.parametrize("source", ["scipy", "page"])
def test_distribution_agrees_with_draws(lin, f, source):
    if source == "scipy":
        values = triangles(np.random.default_rng(1)) @ JACOBIAN.T
    else:
        values = np.asarray(f.sample(jax.random.key(4), (SIZE,)), np.float64) @ JACOBIAN.T
    levels = np.linspace(0.01, 0.99, 99)
    cdf = np.asarray(lin.marginals().cdf(np.quantile(values, levels, axis=0)))
    # Three outputs, each with a chance of 1e-6 of a false alarm.
    assert np.abs(cdf - levels[:, None]).max() < scipy.stats.kstwo(SIZE).isf(1e-6)
    table = nuq.diagnostics.summary(lin, values[:4000], progress=False)
    assert (table["pit", "p_value"] > 1e-4).all()


def test_joint_density_is_that_of_the_convolution(lin):
    joint = lin.joint(noise_scale=0.3).marginalize((0, 2))
    weights = np.asarray(lin.marginals().weights, np.float64)[[0, 2]]
    grid = joint_density_grid(weights, 64, 0.09 * np.eye(2))
    assert total_variation(grid, lambda y: joint.log_prob(joint.loc + y)) < 0.02


def test_indices_share_out_the_variance(lin):
    found = nuq.diagnostics.sensitivity(lin, input_names=["a", "b", "c"])
    parts = JACOBIAN**2 * WIDTH**2
    np.testing.assert_allclose(found, parts / parts.sum(axis=1, keepdims=True), atol=1e-6)
    assert found.attrs["additive"] == 1


def test_tables_find_no_error(lin, draws):
    few = draws[:4000]
    joint = nuq.diagnostics.joint_summary(
        lin, few, KEY, joint=lin.gaussian_copula(), progress=False
    )
    assert not (joint.calibration["dominates"] == "linearization").any()
    table = nuq.diagnostics.summary(lin, few, joint=joint)
    assert (table["verdict", "dominates"] != "linearization").all()
    tree = nuq.diagnostics.to_datatree(lin, few, num_analytic_draws=2000, progress=False)
    drawn = tree["analytic"]["y"].values.reshape(-1, 3)
    reference = triangles(np.random.default_rng(5), 2000) @ JACOBIAN.T
    for x, y in zip(drawn.T, reference.T, strict=True):
        assert scipy.stats.ks_2samp(x, y).pvalue > 1e-4


def test_batches_expansion_and_transformations(page):
    batch = page.Triangular(0.0, jnp.array([[0.5], [2.0]])).expand([2, 3]).to_event(1)
    lin = nuq.linearize(network, batch)
    assert lin.batch_shape == (2,)
    expected = (JACOBIAN**2).sum(axis=1) * np.array([[0.5], [2.0]]) ** 2 / 6
    np.testing.assert_allclose(lin.variance, expected, rtol=1e-5)

    @jax.jit
    def spread(width):
        distribution = page.Triangular(jnp.zeros(3), width * jnp.ones(3)).to_event(1)
        return nuq.linearize(network, distribution).variance.sum()

    slope = jax.grad(spread)(1.5)
    assert slope == pytest.approx((JACOBIAN**2).sum() * 2 * 1.5 / 6, rel=1e-5)


def test_flips_have_the_distribution_of_the_triangle(page):
    net = nuq.LeakyReLUNetwork([[[1.0], [1.0]]], [[-0.5, 0.25]], [[1.0, 1.0]])
    f = page.Triangular(jnp.zeros(1), jnp.ones(1)).to_event(1)
    (layer,) = nuq.error_analysis.flip_probabilities(net, f)
    np.testing.assert_allclose(layer, scipy.stats.triang(0.5, -1, 2).sf([0.5, 0.25]), rtol=1e-5)
    # A sum of boxes has a box as its support.
    assert not nuq.error_analysis.is_exact_on_support(net, f)
    small = page.Triangular(jnp.zeros(1), 0.2 * jnp.ones(1)).to_event(1)
    assert nuq.error_analysis.is_exact_on_support(net, small)
    shared = nuq.Input(jnp.zeros(1), [nuq.inputs.InputTerm(jnp.ones((1, 2)), is_uniform=True)])
    with pytest.raises(TypeError, match="must have independent bounded errors, got Input"):
        nuq.error_analysis.is_exact_on_support(net, shared)


def test_wrong_registrations_and_sums_are_named():
    with pytest.raises(TypeError, match="family must be a class of NumPyro distributions, got 3"):
        nuq.inputs.register_input_family(3)

    class Flat(dist.Uniform):
        pass

    @nuq.inputs.register_input_family(Flat)
    def _(base, shape):
        return nuq.Input.box(base.low, half_width=base.high)

    with pytest.raises(
        ValueError, match=r"of Flat must have a mean of shape \(3,\), got shape \(1,"
    ):
        nuq.inputs.as_input(Flat(jnp.zeros(1), 1.0).expand([3]).to_event(1))
    with pytest.raises(TypeError, match=r"got Dirichlet; .* a registered family \(.*Flat.*\), or"):
        nuq.inputs.as_input(dist.Dirichlet(jnp.ones(2)))
    box = nuq.Input.box(jnp.zeros(2), half_width=1.0)
    with pytest.raises(ValueError, match=r"the same number of inputs, got \[2, 3\]"):
        box + nuq.Input.box(jnp.zeros(3), half_width=1.0)
    with pytest.raises(ValueError, match="must have parts, got none"):
        nuq.Input.join()
    with pytest.raises(TypeError, match=r"part 1 must be an nn_uq_dist.Input, got int; pass"):
        box + 1
