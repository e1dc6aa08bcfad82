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
FEW = 4000
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


def test_inputs_have_moments_indices_and_draws_of_the_family(page):
    f = page.Triangular(jnp.asarray(MEAN), jnp.asarray(WIDTH)).to_event(1)
    lin, shares = nuq.linearize(network, f), ROWS**2 * WIDTH**2 / 6
    covariance = ROWS @ np.diag(WIDTH**2 / 6) @ ROWS.T
    np.testing.assert_allclose(lin.covariance, covariance, rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(lin.input.half_width, WIDTH, rtol=1e-6)
    indices = nuq.diagnostics.sensitivity(lin)
    np.testing.assert_allclose(indices, shares / shares.sum(axis=1, keepdims=True), atol=1e-6)
    batch = page.Triangular(0.0, jnp.array([[0.5], [2.0]])).expand([2, 3]).to_event(1)
    expected = (ROWS**2).sum(axis=1) * np.array([[0.5], [2.0]]) ** 2 / 6
    np.testing.assert_allclose(nuq.linearize(network, batch).variance, expected, rtol=1e-5)
    draws = nuq.monte_carlo(network, f, jax.random.key(4), 100_000, progress=False)
    levels = np.linspace(0.01, 0.99, 99)
    cdf = lin.marginals().cdf(np.quantile(np.asarray(draws, float), levels, axis=0))
    # Three outputs, each with a chance of 1e-6 of a false alarm.
    assert np.abs(cdf - levels[:, None]).max() < scipy.stats.kstwo(len(draws)).isf(1e-6)


def test_wrong_registrations_and_sums_are_named():
    class Flat(dist.Uniform):
        pass

    @nuq.inputs.register_input_family(Flat)
    def _(base, shape):
        return nuq.Input.box(base.low, half_width=base.high)

    flat = Flat(jnp.zeros(1), 1.0).expand([3]).to_event(1)
    for call, message in (
        (lambda: nuq.inputs.register_input_family(3), "family must be a class"),
        (lambda: nuq.inputs.as_input(flat), r"of Flat must have a mean of shape \(3,\)"),
        (lambda: nuq.inputs.as_input(dist.Dirichlet(jnp.ones(2))), "Flat"),
    ):
        with pytest.raises((TypeError, ValueError), match=message):
            call()


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
    y = LOC + SCALE * np.array([-300.0, -30.0, -1.0, 0.0, 0.5, 20.0, 300.0])[:, None]
    methods = {"log_prob": "logpdf", "log_cdf": "logcdf", "log_sf": "logsf", "cdf": "cdf"}
    for name, reference in methods.items():
        # Rounding of values that are 50 scales away from zero.
        values, expected = getattr(distribution, name)(y), by_scipy(reference, y)
        np.testing.assert_allclose(values, expected, rtol=1e-11, atol=1e-15)
    back = distribution.from_normal_score(distribution.normal_score(y))
    np.testing.assert_allclose(back, y, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(distribution.skewness, 0, atol=1e-9)
    np.testing.assert_allclose(distribution.excess_kurtosis, 3, rtol=1e-9)


def test_tables_and_figures_of_outputs_take_it(laplace, laplace_draws):
    assert (dominates(laplace, laplace_draws) == "noise").all()
    shifted = dominates(laplace, laplace_draws + np.array([0.0, 1.5, 0.0]))
    assert (shifted == "noise").tolist() == [True, False, True]
    for name in OF_OUTPUTS:
        PLOTS[name](laplace, laplace_draws)


def test_copula_has_the_correlation_that_was_asked_for(laplace):
    target = np.array([[1.0, 0.6, -0.3], [0.6, 1.0, 0.2], [-0.3, 0.2, 1.0]])
    fit = nuq.distributions.nataf_correlation(laplace, jnp.asarray(target))
    assert fit.attainable.all()
    joint = nuq.GaussianCopulaJoint(laplace, fit.matrix)
    y = np.asarray(joint.sample(KEY, (200_000,)), np.float64)
    np.testing.assert_allclose(np.corrcoef(y.T), target, atol=5 * np.sqrt(3 / 200_000))
    # The density of a copula: that of the scores over their own, times the marginal ones.
    value = np.array([0.4, 12.0, -5.3])
    z, single = scipy.stats.norm.ppf(by_scipy("cdf", value)), by_scipy("logpdf", value).sum()
    normal = scipy.stats.multivariate_normal(np.zeros(3), np.asarray(fit.matrix, float))
    expected = normal.logpdf(z) - scipy.stats.norm.logpdf(z).sum() + single
    assert joint.log_prob(value) == pytest.approx(expected, abs=1e-4)
    assert np.isfinite(joint.condition(1, 13.0).log_prob(value[[0, 2]]))


def test_contract_of_joint_distributions_is_kept(page, laplace):
    independent = page.IndependentOutputs(laplace)
    value = np.array([[0.5, 12.0, -5.1], [-2.0, 1.0, -4.0]])
    expected = by_scipy("logpdf", value).sum(axis=-1)
    np.testing.assert_allclose(independent.log_prob(value), expected, rtol=1e-5)
    np.testing.assert_allclose(independent.covariance_matrix, np.diag(2 * SCALE**2), rtol=1e-6)
    np.testing.assert_allclose(independent.marginalize([2, -3]).mean, LOC[[2, 0]])
    scores = np.asarray(independent.rosenblatt(independent.sample(KEY, (FEW,))), np.float64)
    for column in scores.T:
        assert scipy.stats.kstest(column, "norm").pvalue > 1e-4
    assert np.abs(np.corrcoef(scores.T) - np.eye(3)).max() < 5 / np.sqrt(FEW)

    def model(y):
        loc = numpyro.sample("loc", dist.Normal(jnp.zeros(2), 1).to_event(1))
        numpyro.sample("y", page.IndependentOutputs(page.LaplaceOutput(loc, 1.0)), obs=y)

    y, loc = jnp.array([0.3, -1.0]), jnp.array([0.1, 0.2])
    density, _ = numpyro.infer.util.log_density(model, (y,), {}, {"loc": loc})
    expected = scipy.stats.norm.logpdf(loc).sum() + scipy.stats.laplace(loc).logpdf(y).sum()
    assert density == pytest.approx(expected, rel=1e-5)


def test_joint_summary_blames_the_wrong_distribution_alone(page, laplace, laplace_draws):
    # Outputs are independent: no error is the joint distribution's.
    box = nuq.Input.box(jnp.zeros(3), half_width=1.0)
    apart = nuq.Linearization(jnp.asarray(LOC), jnp.diag(jnp.asarray(SCALE)), box)
    draws = np.asarray(apart.sample(jax.random.key(3), (FEW,)), np.float64)
    right, wrong = page.IndependentOutputs(apart.marginals()), page.IndependentOutputs(laplace)
    for joint, kinds in ((right, {"noise"}), (wrong, {"noise", "independent outputs"})):
        table = nuq.diagnostics.joint_summary(apart, draws, KEY, joint=joint)
        assert set(table.calibration["dominates"]) <= kinds
        assert ("independent outputs" in table.verdict) == (joint is wrong)
    tree = nuq.diagnostics.to_datatree(wrong, laplace_draws, progress=False)
    assert tree["analytic"].attrs["source"] == "independent outputs"
    nuq.plots.plot_joint(wrong, laplace_draws)


def test_models_are_taken_by_all_tables_and_figures(page):
    center, slopes = np.array([0.0, 1.0]), np.array([[1.0, 0.5], [0.2, 1.0]])
    residual, noise, other = np.array([[0.3, 0.1], [0.1, 0.2]]), 0.3, 0.1 * np.eye(2)
    linear = nuq.Linearization(center, slopes, nuq.Input.normal(jnp.zeros(2), 1.0))
    model, covariance = page.WithResidual(linear, jnp.asarray(residual)), slopes @ slopes.T
    covariance = covariance + residual
    np.testing.assert_allclose(model.covariance, covariance, rtol=1e-5)
    total, value = covariance + noise**2 * np.eye(2) + other, np.array([0.4, -0.7])
    expected = scipy.stats.norm(center, np.sqrt(np.diag(total))).logpdf(value)
    np.testing.assert_allclose(model.marginals(noise, other).log_prob(value), expected, rtol=1e-5)
    expected = scipy.stats.multivariate_normal(center, total).logpdf(value)
    np.testing.assert_allclose(model.joint(noise, other).log_prob(value), expected, rtol=1e-4)

    draws = np.random.default_rng(0).multivariate_normal(center, covariance, 6000)
    assert (dominates(model, draws) == "noise").all()
    joint = nuq.diagnostics.joint_summary(model, draws, KEY, joint=model.joint(), progress=False)
    assert set(joint.calibration["dominates"]) == {"noise"}
    tree = nuq.diagnostics.to_datatree(model, draws, progress=False)
    drawn = tree["analytic"]["y"].values.reshape(-1, 2)
    np.testing.assert_allclose(np.cov(drawn.T), covariance, atol=0.08)
    indices = nuq.diagnostics.sensitivity(model)
    expected = slopes**2 / np.diag(covariance)[:, None]
    np.testing.assert_allclose(indices, expected, atol=4 * indices.attrs["standard_error"])
    for plot in PLOTS.values():
        plot(model, draws)
