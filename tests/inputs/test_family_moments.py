"""Means and standard deviations of univariate families, against SciPy's."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy import stats

import nn_uq_dist as nuq
from nn_uq_dist.inputs._family_moments import mean_and_standard_deviation

EXP, SIGMOID = dist.transforms.ExpTransform(), dist.transforms.SigmoidTransform()
FAMILIES = {
    "log-normal of one percent": (
        lambda: dist.LogNormal(0.3, 0.01),
        stats.lognorm(0.01, 0, 1.3498588),
    ),
    "log-normal": (lambda: dist.LogNormal(0.0, 0.5), stats.lognorm(0.5)),
    "wide log-normal": (lambda: dist.LogNormal(0.0, 5.0), stats.lognorm(5)),
    "t": (lambda: dist.StudentT(3.0, 1.0, 2.0), stats.t(3, 1, 2)),
    "gamma": (lambda: dist.Gamma(2.0, 1.0), stats.gamma(2)),
    "inverse gamma": (lambda: dist.InverseGamma(3.0, 2.0), stats.invgamma(3, 0, 2)),
    "arcsine": (lambda: dist.Beta(0.5, 0.5), stats.arcsine()),
    "Weibull": (lambda: dist.Weibull(1.0, 2.0), stats.weibull_min(2)),
    "narrow Weibull": (lambda: dist.Weibull(1.0, 100.0), stats.weibull_min(100)),
    "Gumbel": (lambda: dist.Gumbel(1.0, 2.0), stats.gumbel_r(1, 2)),
    "narrow log-uniform": (lambda: dist.LogUniform(1.0, 1.1), stats.loguniform(1, 1.1)),
    "truncated normal": (
        lambda: dist.TruncatedNormal(0.0, 1.0, low=-1.0, high=2.0),
        stats.truncnorm(-1, 2),
    ),
    "Pareto": (lambda: dist.Pareto(1.0, 2.5), stats.pareto(2.5)),
    "power law": (lambda: dist.LowerTruncatedPowerLaw(-6.0, 1.0), stats.pareto(5)),
    "Gompertz": (lambda: dist.Gompertz(1.0, 2.0), stats.gompertz(1, 0, 0.5)),
    "soft Laplace": (lambda: dist.SoftLaplace(0.0, 1.0), stats.hypsecant()),
    "half-normal": (lambda: dist.HalfNormal(2.0), stats.halfnorm(0, 2)),
}


@pytest.mark.parametrize("name", FAMILIES)
def test_moments(name, precision):
    make, known = FAMILIES[name]
    mean, sd = mean_and_standard_deviation(make())
    np.testing.assert_allclose(mean, known.mean(), rtol=1e-5 if known.mean() else 0, atol=1e-7)
    rtol = 3e-5 if name == "narrow Weibull" else 1e-5
    np.testing.assert_allclose(sd, known.std(), rtol=rtol)


@pytest.mark.parametrize(
    "make",
    [
        lambda: dist.Cauchy(0.0, 1.0),
        lambda: dist.StudentT(2.0),
        lambda: dist.Pareto(1.0, 2.0),
        lambda: dist.LowerTruncatedPowerLaw(-2.5, 1.0),
        lambda: dist.TruncatedCauchy(0.0, 1.0, low=0.0),
        lambda: dist.TransformedDistribution(dist.Normal(0.0, 1.0), [EXP, EXP]),
    ],
)
def test_families_without_variance_are_refused(make):
    with pytest.raises(ValueError, match=r"^f must have a finite variance .* monte_carlo"):
        nuq.linearize(lambda x: x, make().expand([1]).to_event(1))


def test_linear_networks_have_exact_moments(precision):
    """Of known and of traced parameters, alone, as vectors, transformed and in structures."""

    def model(scale, df):
        f = {
            "a": dist.LogNormal(0.0, scale),
            "b": dist.StudentT(df, 1.0, 2.0),
            "c": dist.TransformedDistribution(
                dist.Beta(2.0, 3.0), dist.transforms.AffineTransform(1.0, 4.0)
            ),
            "d": dist.TransformedDistribution(dist.Normal(jnp.zeros(2), scale).to_event(1), EXP),
            "e": dist.TransformedDistribution(dist.Logistic(0.0, 1.0), SIGMOID),
        }
        lin = nuq.linearize(lambda x: jnp.stack([x["a"], x["b"], x["c"], x["d"].sum(), x["e"]]), f)
        return lin.mean, lin.variance

    log_normal = stats.lognorm(0.4)
    means = [log_normal.mean(), 1, 1 + 4 * 0.4, 2 * log_normal.mean(), 0.5]
    variances = [log_normal.var(), 4 * 3, 16 * 0.04, 2 * log_normal.var(), 1 / 12]
    for found in (model(0.4, 3.0), jax.jit(model)(0.4, 3.0)):
        np.testing.assert_allclose(found[0], means, rtol=1e-5)
        np.testing.assert_allclose(found[1], variances, rtol=2e-5)
    slopes = jax.jacobian(lambda *given: model(*given)[1], (0, 1))(0.4, 3.0)
    step = 1e-4
    slope = (stats.lognorm(0.4 + step).var() - stats.lognorm(0.4 - step).var()) / (2 * step)
    np.testing.assert_allclose(slopes[0], [slope, 0, 0, 2 * slope, 0], rtol=1e-4)
    np.testing.assert_allclose(slopes[1], [0, -8, 0, 0, 0], rtol=1e-4)
