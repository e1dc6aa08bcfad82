"""What the page on extending adds from outside of the package: in all tables and figures.

An input family, a distribution of one output, a joint distribution and a model with an error of its
own, each against SciPy.
"""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
import scipy.stats

import nn_uq_dist as nuq
from tests.docs.pages import ROOT, run_page

pytestmark = [pytest.mark.slow, pytest.mark.viz]

KEY = jax.random.key(0)
SIZE, FEW = 100_000, 4000
PLOTS = {name: plot for name, plot in vars(nuq.plots).items() if name.startswith("plot_")}
PLOTS["plot_sensitivity"] = lambda model, _: nuq.plots.plot_sensitivity(model)
OF_OUTPUTS = [name for name in PLOTS if name not in ("plot_joint", "plot_sensitivity")]


@pytest.fixture(scope="module")
def page():
    """The names of the page after its code has run, as a user would have them."""
    return SimpleNamespace(**run_page(ROOT / "docs" / "reference" / "extending.md"))


def dominates(distribution, draws, **options):
    """What dominates the differences of each output, by the table."""
    table = nuq.diagnostics.summary(distribution, draws, progress=False, **options)
    return table["verdict", "dominates"]


MEAN, WIDTH = np.array([0.3, -0.5, 2.0]), np.array([0.4, 0.2, 1.0])
ROWS = np.array([[2.0, 0.0, 0.0], [1.0, -3.0, 0.5], [0.5, 1.0, 1.0]])


def network(x):
    return jnp.asarray(ROWS, x.dtype) @ x


@pytest.fixture(scope="module")
def f(page):
    return page.Triangular(jnp.asarray(MEAN), jnp.asarray(WIDTH)).to_event(1)


@pytest.fixture(scope="module")
def lin(f):
    return nuq.linearize(network, f)


def test_distribution_of_one_output_is_the_triangle(lin):
    # The first output is twice the first input.
    known = scipy.stats.triang(0.5, 2 * (MEAN[0] - WIDTH[0]), 4 * WIDTH[0])
    first = lin.marginals()[0]
    x = known.ppf(np.array([1e-3, 0.01, 0.3, 0.5, 0.8, 0.99]))
    # In float32 a value near the end of the support is off by 1e-7 of itself.
    np.testing.assert_allclose(first.log_prob(x), known.logpdf(x), atol=2e-3)
    np.testing.assert_allclose(first.cdf(x), known.cdf(x), rtol=1e-3)


def test_moments_and_indices_are_those_of_scipy(lin):
    parts = ROWS**2 * WIDTH**2 / 6
    covariance = ROWS @ np.diag(WIDTH**2 / 6) @ ROWS.T
    np.testing.assert_allclose(lin.covariance, covariance, rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(lin.mean, ROWS @ MEAN, rtol=1e-6)
    np.testing.assert_allclose(lin.input.half_width, WIDTH, rtol=1e-6)
    found = nuq.diagnostics.sensitivity(lin, input_names=["a", "b", "c"])
    np.testing.assert_allclose(found, parts / parts.sum(axis=1, keepdims=True), atol=1e-6)
    assert found.attrs["additive"] == 1


@pytest.mark.parametrize("source", ["scipy", "page"])
def test_distribution_agrees_with_draws(lin, f, source):
    if source == "scipy":
        known = scipy.stats.triang(0.5, MEAN - WIDTH, 2 * WIDTH)
        values = known.rvs((SIZE, 3), random_state=1) @ ROWS.T
    else:
        draws = nuq.monte_carlo(network, f, jax.random.key(4), SIZE, progress=False)
        values = np.asarray(draws, np.float64)
    levels = np.linspace(0.01, 0.99, 99)
    cdf = np.asarray(lin.marginals().cdf(np.quantile(values, levels, axis=0)))
    # Three outputs, each with a chance of 1e-6 of a false alarm.
    assert np.abs(cdf - levels[:, None]).max() < scipy.stats.kstwo(SIZE).isf(1e-6)


def test_batches_expansion_and_transformations(page):
    batch = page.Triangular(0.0, jnp.array([[0.5], [2.0]])).expand([2, 3]).to_event(1)
    lin = nuq.linearize(network, batch)
    assert lin.batch_shape == (2,)
    expected = (ROWS**2).sum(axis=1) * np.array([[0.5], [2.0]]) ** 2 / 6
    np.testing.assert_allclose(lin.variance, expected, rtol=1e-5)

    @jax.jit
    def spread(width):
        distribution = page.Triangular(jnp.zeros(3), width * jnp.ones(3)).to_event(1)
        return nuq.linearize(network, distribution).variance.sum()

    slope = jax.grad(spread)(1.5)
    assert slope == pytest.approx((ROWS**2).sum() * 2 * 1.5 / 6, rel=1e-5)


def test_flips_have_the_distribution_of_the_triangle(page):
    net = nuq.LeakyReLUNetwork([[[1.0], [1.0]]], [[-0.5, 0.25]], [[1.0, 1.0]])
    f = page.Triangular(jnp.zeros(1), jnp.ones(1)).to_event(1)
    (layer,) = nuq.error_analysis.flip_probabilities(net, f)
    expected = scipy.stats.triang(0.5, -1, 2).sf([0.5, 0.25])
    np.testing.assert_allclose(layer, expected, rtol=1e-5)
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

    wrong = r"of Flat must have a mean of shape \(3,\), got shape \(1,"
    with pytest.raises(ValueError, match=wrong):
        nuq.inputs.as_input(Flat(jnp.zeros(1), 1.0).expand([3]).to_event(1))
    with pytest.raises(TypeError, match=r"got Dirichlet; .* a registered family \(.*Flat.*\), or"):
        nuq.inputs.as_input(dist.Dirichlet(jnp.ones(2)))
    box = nuq.Input.box(jnp.zeros(2), half_width=1.0)
    with pytest.raises(ValueError, match=r"the same number of inputs, got \[2, 3\]"):
        box + nuq.Input.box(jnp.zeros(3), half_width=1.0)
    with pytest.raises(TypeError, match=r"part 1 must be an nn_uq_dist.Input, got int; pass"):
        box + 1


LOC, SCALE = np.array([0.0, 10.0, -5.0]), np.array([1.0, 3.0, 0.2])
KNOWN = [scipy.stats.laplace(a, b) for a, b in zip(LOC, SCALE, strict=True)]


def by_scipy(name, values):
    """A method of the known distributions at rows of values."""
    columns = zip(KNOWN, np.asarray(values).T, strict=True)
    return np.stack([getattr(known, name)(column) for known, column in columns], axis=-1)


@pytest.fixture(scope="module")
def laplace_draws():
    return by_scipy("ppf", np.random.default_rng(5).uniform(size=(FEW, 3)))


@pytest.fixture
def laplace(page):
    return page.LaplaceOutput(jnp.asarray(LOC), jnp.asarray(SCALE))


@pytest.mark.usefixtures("x64")
def test_contract_of_outputs_is_kept_in_both_tails(page):
    distribution = page.LaplaceOutput(jnp.asarray(LOC), jnp.asarray(SCALE))
    assert isinstance(distribution, nuq.distributions.OutputDistribution)
    y = LOC + SCALE * np.array([-300.0, -30.0, -1.0, 0.0, 0.5, 20.0, 300.0])[:, None]
    methods = {"log_prob": "logpdf", "log_cdf": "logcdf", "log_sf": "logsf", "cdf": "cdf"}
    for name, reference in methods.items():
        found, expected = getattr(distribution, name)(y), by_scipy(reference, y)
        # Rounding of values that are 50 scales away from zero.
        np.testing.assert_allclose(found, expected, rtol=1e-11, atol=1e-15)
    back = distribution.from_normal_score(distribution.normal_score(y))
    np.testing.assert_allclose(back, y, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(distribution.skewness, 0, atol=1e-9)
    np.testing.assert_allclose(distribution.excess_kurtosis, 3, rtol=1e-9)
    q = np.array([[1e-9], [0.3], [0.9]])
    expected = by_scipy("ppf", np.broadcast_to(q, (3, 3)))
    np.testing.assert_allclose(distribution.icdf(q), expected, rtol=1e-9)


def test_table_of_outputs_finds_no_error(laplace, laplace_draws):
    assert (dominates(laplace, laplace_draws) == "noise").all()
    shifted = dominates(laplace, laplace_draws + np.array([0.0, 1.5, 0.0]))
    assert (shifted == "noise").tolist() == [True, False, True]


def test_copula_has_the_correlation_that_was_asked_for(laplace):
    target = np.array([[1.0, 0.6, -0.3], [0.6, 1.0, 0.2], [-0.3, 0.2, 1.0]])
    fit = nuq.distributions.nataf_correlation(laplace, jnp.asarray(target))
    assert fit.attainable.all()
    joint = nuq.GaussianCopulaJoint(laplace, fit.matrix)
    y = np.asarray(joint.sample(KEY, (200_000,)), np.float64)
    np.testing.assert_allclose(np.corrcoef(y.T), target, atol=5 * np.sqrt(3 / 200_000))
    # The density of a copula: that of the scores over their own, times the marginal ones.
    value = np.array([0.4, 12.0, -5.3])
    z, own = scipy.stats.norm.ppf(by_scipy("cdf", value)), by_scipy("logpdf", value).sum()
    normal = scipy.stats.multivariate_normal(np.zeros(3), np.asarray(fit.matrix, float))
    expected = normal.logpdf(z) - scipy.stats.norm.logpdf(z).sum() + own
    assert joint.log_prob(value) == pytest.approx(expected, abs=1e-4)
    assert joint.marginalize((2, 0)).marginals.mean.tolist() == [-5.0, 0.0]
    assert np.isfinite(joint.condition(1, 13.0).log_prob(value[[0, 2]]))


@pytest.mark.parametrize(
    "name", [name for name in PLOTS if name not in ("plot_joint", "plot_sensitivity")]
)
def test_every_figure_of_outputs_takes_it(laplace, laplace_draws, name):
    PLOTS[name](laplace, laplace_draws).canvas.draw()


@pytest.fixture
def independent(page):
    return page.IndependentOutputs(page.LaplaceOutput(jnp.asarray(LOC), jnp.asarray(SCALE)))


@pytest.fixture(scope="module")
def apart():
    """A linearization whose outputs are independent: no error is the joint distribution's."""
    distribution = nuq.Input.box(jnp.zeros(3), half_width=1.0)
    return nuq.Linearization(jnp.asarray(LOC), jnp.diag(jnp.asarray(SCALE)), distribution)


@pytest.fixture(scope="module")
def apart_draws(apart):
    return np.asarray(apart.sample(jax.random.key(3), (FEW,)), np.float64)


def test_contract_of_joint_distributions_is_kept(independent):
    assert isinstance(independent, nuq.distributions.JointDistribution)
    value = np.array([[0.5, 12.0, -5.1], [-2.0, 1.0, -4.0]])
    expected = by_scipy("logpdf", value).sum(axis=-1)
    np.testing.assert_allclose(independent.log_prob(value), expected, rtol=1e-5)
    np.testing.assert_allclose(independent.covariance_matrix, np.diag(2 * SCALE**2), rtol=1e-6)
    np.testing.assert_allclose(independent.marginalize([2, -3]).mean, LOC[[2, 0]])
    assert independent.marginalize(1).event_shape == (1,)
    scores = np.asarray(independent.rosenblatt(independent.sample(KEY, (FEW,))), np.float64)
    for column in scores.T:
        assert scipy.stats.kstest(column, "norm").pvalue > 1e-4
    assert np.abs(np.corrcoef(scores.T) - np.eye(3)).max() < 5 / np.sqrt(FEW)


def test_models_observe_it(page):
    def model(y):
        loc = numpyro.sample("loc", dist.Normal(jnp.zeros(2), 1).to_event(1))
        numpyro.sample("y", page.IndependentOutputs(page.LaplaceOutput(loc, 1.0)), obs=y)

    y, loc = jnp.array([0.3, -1.0]), jnp.array([0.1, 0.2])
    found, _ = numpyro.infer.util.log_density(model, (y,), {}, {"loc": loc})
    expected = scipy.stats.norm.logpdf(loc).sum() + scipy.stats.laplace(loc).logpdf(y).sum()
    assert found == pytest.approx(expected, rel=1e-5)


def test_joint_summary_does_not_blame_the_right_distribution(page, apart, apart_draws):
    right = page.IndependentOutputs(apart.marginals())
    found = nuq.diagnostics.joint_summary(apart, apart_draws, KEY, joint=right)
    assert found.kind == "independent outputs"
    assert found.verdict == "no error exceeds the noise of the draws"
    assert (dominates(apart, apart_draws, joint=found) == "noise").all()


def test_joint_summary_blames_the_wrong_distribution_by_its_name(independent, apart, apart_draws):
    found = nuq.diagnostics.joint_summary(apart, apart_draws, KEY, joint=independent)
    assert "independent outputs" in found.verdict
    assert (found.calibration["dominates"] == "independent outputs").any()
    assert "Joint calibration of the independent outputs" in str(found)


def test_tree_summary_and_figure_take_it(independent, laplace_draws):
    tree = nuq.diagnostics.to_datatree(
        independent, laplace_draws, num_analytic_draws=2000, progress=False
    )
    assert tree["analytic"].attrs["source"] == "independent outputs"
    drawn = tree["analytic"]["y"].values.reshape(-1, 3)
    # Five standard errors of a correlation.
    np.testing.assert_allclose(np.corrcoef(drawn.T), np.eye(3), atol=5 / 2000**0.5)
    assert (dominates(independent, laplace_draws) == "noise").all()
    legend = nuq.plots.plot_joint(independent, laplace_draws).legends[0].get_texts()
    assert legend[0].get_text() == "independent outputs, 50, 90, 99%"


CENTER, SLOPES = np.array([0.0, 1.0]), np.array([[1.0, 0.5], [0.2, 1.0]])
RESIDUAL = np.array([[0.3, 0.1], [0.1, 0.2]])
COVARIANCE = SLOPES @ SLOPES.T + RESIDUAL


@pytest.fixture(scope="module")
def model(page):
    linear = nuq.Linearization(CENTER, SLOPES, nuq.Input.normal(jnp.zeros(2), 1.0))
    return page.WithResidual(linear, jnp.asarray(RESIDUAL))


@pytest.fixture(scope="module")
def normal_draws():
    return np.random.default_rng(0).multivariate_normal(CENTER, COVARIANCE, 6000)


def test_contract_of_models_is_kept(model):
    assert isinstance(model, nuq.linearization.LinearModel)
    assert (model.batch_shape, model.num_outputs, model.input.num_inputs) == ((), 2, 2)
    np.testing.assert_allclose(model.mean, CENTER, rtol=1e-6)
    np.testing.assert_allclose(model.covariance, COVARIANCE, rtol=1e-5)
    noise, other, value = 0.3, 0.1 * np.eye(2), np.array([0.4, -0.7])
    total = COVARIANCE + noise**2 * np.eye(2) + other
    expected = scipy.stats.norm(CENTER, np.sqrt(np.diag(total))).logpdf(value)
    found = model.marginals(noise, other).log_prob(value)
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    joint = scipy.stats.multivariate_normal(CENTER, total).logpdf(value)
    np.testing.assert_allclose(model.joint(noise, other).log_prob(value), joint, rtol=1e-4)
    inputs, outputs = model.sample_pairs(KEY, (4, 5))
    assert (inputs.shape, outputs.shape) == ((4, 5, 2), (4, 5, 2))


def test_tables_of_models_find_no_error(model, normal_draws):
    assert (dominates(model, normal_draws) == "noise").all()
    joint = nuq.diagnostics.joint_summary(
        model, normal_draws, KEY, joint=model.joint(), progress=False
    )
    assert joint.verdict == "no error exceeds the noise of the draws"
    tree = nuq.diagnostics.to_datatree(model, normal_draws, progress=False)
    assert tree["analytic"].attrs["source"] == "WithResidual"
    drawn = tree["analytic"]["y"].values.reshape(-1, 2)
    np.testing.assert_allclose(np.cov(drawn.T), model.covariance, atol=0.08)


def test_indices_are_those_of_the_linear_part(model):
    indices = nuq.diagnostics.sensitivity(model)
    expected = SLOPES**2 / np.diag(COVARIANCE)[:, None]
    np.testing.assert_allclose(indices, expected, atol=4 * indices.attrs["standard_error"])


@pytest.mark.parametrize("name", PLOTS)
def test_every_figure_takes_it(name, model, normal_draws):
    PLOTS[name](model, normal_draws).canvas.draw()
