"""Values at normal scores against SciPy's quantile and survival functions."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
import scipy.stats
from scipy.special import ndtr

import nn_uq_dist as nuq

FAMILIES = {
    "gamma": (lambda: dist.Gamma(2.0, 3.0), scipy.stats.gamma(2, scale=1 / 3)),
    "gamma, much at zero": (lambda: dist.Gamma(0.1, 3.0), scipy.stats.gamma(0.1, scale=1 / 3)),
    "gamma, nearly normal": (lambda: dist.Gamma(2000.0, 3.0), scipy.stats.gamma(2e3, scale=1 / 3)),
    "chi2": (lambda: dist.Chi2(3.0), scipy.stats.chi2(3)),
    "beta": (lambda: dist.Beta(2.0, 3.0), scipy.stats.beta(2, 3)),
    "beta, two ends": (lambda: dist.Beta(0.5, 0.5), scipy.stats.beta(0.5, 0.5)),
    "student": (lambda: dist.StudentT(3.0, 10.0, 2.0), scipy.stats.t(3, 10, 2)),
    "weibull": (lambda: dist.Weibull(2.0, 1.5), scipy.stats.weibull_min(1.5, scale=2)),
    "exponential": (lambda: dist.Exponential(2.0), scipy.stats.expon(scale=0.5)),
    "half normal": (lambda: dist.HalfNormal(2.0), scipy.stats.halfnorm(scale=2)),
    "half cauchy": (lambda: dist.HalfCauchy(2.0), scipy.stats.halfcauchy(scale=2)),
    "gumbel": (lambda: dist.Gumbel(1.0, 2.0), scipy.stats.gumbel_r(1, 2)),
    "laplace": (lambda: dist.Laplace(1.0, 2.0), scipy.stats.laplace(1, 2)),
    "logistic": (lambda: dist.Logistic(1.0, 2.0), scipy.stats.logistic(1, 2)),
    "cauchy": (lambda: dist.Cauchy(1.0, 2.0), scipy.stats.cauchy(1, 2)),
    "truncated normal": (
        lambda: dist.TruncatedNormal(1.0, 2.0, low=-1.0, high=2.0),
        scipy.stats.truncnorm(-1, 0.5, 1, 2),
    ),
    "left truncated normal": (
        lambda: dist.TruncatedNormal(1.0, 2.0, low=-1.0),
        scipy.stats.truncnorm(-1, np.inf, 1, 2),
    ),
    "log-normal": (lambda: dist.LogNormal(0.3, 0.5), scipy.stats.lognorm(0.5, scale=np.exp(0.3))),
    "pareto": (lambda: dist.Pareto(1.0, 3.0), scipy.stats.pareto(3)),
}
SCORES = np.array([-4.0, -2.0, -0.5, 0.0, 0.5, 2.0, 4.0])


def law_and_values(f, scores):
    law = nuq.inputs.as_input_law(f)
    assert law.is_transformed
    vector = law.loc + law.normal_scale * jnp.asarray(scores, law.dtype)[:, None]
    return law, law.network_input(vector)


@pytest.mark.parametrize("name", FAMILIES)
def test_values_are_the_quantiles(name, precision):
    make, known = FAMILIES[name]
    _, values = law_and_values(make(), SCORES)
    assert values.dtype == precision
    lower, upper = known.ppf(ndtr(SCORES)), known.isf(ndtr(-SCORES))
    expected = np.where(SCORES < 0, lower, upper)
    # In float32 a probability next to one has four digits left of its distance to it.
    rtol = 1e-10 if precision == "float64" else np.where(SCORES > 3, 5e-3, 2e-5)
    width = known.ppf(0.75) - known.ppf(0.25)
    assert (np.abs(values - expected) <= rtol * (np.abs(expected) + width)).all()


@pytest.mark.parametrize(
    "name", ["gamma", "beta", "student", "weibull", "half normal", "cauchy", "laplace", "logistic"]
)
@pytest.mark.usefixtures("x64")
def test_slopes_are_ratios_of_densities(name):
    make, known = FAMILIES[name]
    law = nuq.inputs.as_input_law(make())

    def value(z):
        return law.network_input(z[None])

    # The slope at the median is that of the tangent.
    for z in (-2.0, 0.0, 0.3, 2.0):
        x = known.ppf(ndtr(z))
        slope = scipy.stats.norm.pdf(z) / known.pdf(x)
        assert jax.grad(value)(jnp.array(z)) == pytest.approx(slope, rel=1e-9)
        # The second derivative, by differences of the exact slope.
        steps = z + np.array([-1e-4, 1e-4])
        slopes = scipy.stats.norm.pdf(steps) / known.pdf(known.ppf(ndtr(steps)))
        if z == 0 and name == "laplace":
            continue  # a kink of the slope
        bend = np.diff(slopes)[0] / 2e-4
        found = jax.grad(jax.grad(value))(jnp.array(z))
        assert found == pytest.approx(bend, rel=1e-4, abs=1e-4 * abs(slope))


@pytest.mark.usefixtures("x64")
def test_slopes_in_the_parameters():
    def value(concentration, rate):
        law = nuq.inputs.as_input_law(dist.Gamma(concentration, rate))
        return law.network_input(jnp.array([0.7]))

    q = ndtr(0.7)
    steps = np.array([-1e-5, 1e-5])
    by_shape = np.diff(scipy.stats.gamma.ppf(q, 2.0 + steps, scale=1 / 3))[0] / 2e-5
    found = jax.jit(jax.grad(value, argnums=(0, 1)))(2.0, 3.0)
    assert found[0] == pytest.approx(by_shape, rel=1e-6)
    assert found[1] == pytest.approx(-scipy.stats.gamma.ppf(q, 2.0, scale=1 / 3) / 3, rel=1e-10)


def test_no_draw_is_infinite():
    scores = np.array([-9.0, -7.0, 7.0, 9.0])  # where a probability in float32 is zero or one
    for make, _ in FAMILIES.values():
        assert np.isfinite(law_and_values(make(), scores)[1]).all()
