"""Means and standard deviations of univariate families, against SciPy's."""

from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy import integrate, special, stats

import nn_uq_dist as nuq
from nn_uq_dist.basics.family_moments import mean_and_standard_deviation

EXP, SIGMOID = dist.transforms.ExpTransform(), dist.transforms.SigmoidTransform()
CUBE, MIRROR = dist.transforms.PowerTransform(3.0), dist.transforms.AffineTransform(0.0, -1.0)


class Known:
    """A mean and a standard deviation, as SciPy's distributions have them."""

    def __init__(self, mean, sd):
        self.mean, self.std = lambda: mean, lambda: sd


def sigmoid_moments(known):
    """Of ``1 / (1 + exp(-100 x))`` by quadrature."""
    ends = [-40, -1, -0.1, 0, 0.1, 1, 40]

    def moment(order):
        def part(x):
            return special.expit(100 * x) ** order * known.pdf(x)

        return sum(integrate.quad(part, *panel, epsabs=1e-13)[0] for panel in pairwise(ends))

    return moment(1), np.sqrt(moment(2) - moment(1) ** 2)


def two(component, *shares):
    return dist.MixtureSameFamily(dist.Categorical(probs=jnp.array(shares)), component)


FAMILIES = {
    "log-normal of one percent": (
        lambda: dist.LogNormal(0.3, 0.01),
        stats.lognorm(0.01, 0, 1.3498588),
    ),
    "wide log-normal": (lambda: dist.LogNormal(0.0, 5.0), stats.lognorm(5)),
    "t": (lambda: dist.StudentT(3.0, 1.0, 2.0), stats.t(3, 1, 2)),
    "inverse gamma": (lambda: dist.InverseGamma(3.0, 2.0), stats.invgamma(3, 0, 2)),
    "arcsine": (lambda: dist.Beta(0.5, 0.5), stats.arcsine()),
    "narrow Weibull": (lambda: dist.Weibull(1.0, 100.0), stats.weibull_min(100)),
    "Gumbel": (lambda: dist.Gumbel(1.0, 2.0), stats.gumbel_r(1, 2)),
    "narrow log-uniform": (lambda: dist.LogUniform(1.0, 1.1), stats.loguniform(1, 1.1)),
    "truncated normal": (
        lambda: dist.TruncatedNormal(0.0, 1.0, low=-1.0, high=2.0),
        stats.truncnorm(-1, 2),
    ),
    "Pareto": (lambda: dist.Pareto(1.0, 2.5), stats.pareto(2.5)),
    "mirrored log-normal": (
        lambda: dist.TransformedDistribution(dist.LogNormal(0.0, 1.5), MIRROR),
        Known(-stats.lognorm(1.5).mean(), stats.lognorm(1.5).std()),
    ),
    "power law": (lambda: dist.LowerTruncatedPowerLaw(-6.0, 1.0), stats.pareto(5)),
    "Gompertz": (lambda: dist.Gompertz(1.0, 2.0), stats.gompertz(1, 0, 0.5)),
    "soft Laplace": (lambda: dist.SoftLaplace(0.0, 1.0), stats.hypsecant()),
    "exponential of a normal": (
        lambda: dist.TransformedDistribution(dist.Normal(20.0, 1e-4), EXP),
        stats.lognorm(1e-4, 0, np.exp(20)),
    ),
    "double power law": (
        lambda: dist.DoublyTruncatedPowerLaw(-3.0, 1e-3, 1e3),
        stats.truncpareto(2, 1e6, 0, 1e-3),
    ),
    "logarithmic power law": (
        lambda: dist.DoublyTruncatedPowerLaw(-1.0, 1e-3, 1e3),
        stats.loguniform(1e-3, 1e3),
    ),
    "heavy Dagum": (lambda: dist.Dagum(2.0, 2.2, 1.0), stats.burr(2.2, 2)),
    "half-normal": (lambda: dist.HalfNormal(2.0), stats.halfnorm(0, 2)),
    "steep sigmoid of a normal": (
        lambda: dist.TransformedDistribution(dist.Normal(60.0, 100.0), SIGMOID),
        Known(*sigmoid_moments(stats.norm(0.6, 1))),
    ),
    "scaled sigmoid, whose support NumPyro does not say": (
        lambda: dist.TransformedDistribution(
            dist.Normal(0.0, 5.0), [SIGMOID, dist.transforms.AffineTransform(-1.0, 2.0)]
        ),
        Known(0.0, 0.8363136865),  # SciPy's quadrature of tanh(5 z / 2)^2
    ),
    "scaled beta near its end": (
        lambda: dist.TransformedDistribution(
            dist.Beta(0.02, 1.0), dist.transforms.AffineTransform(0.0, 2.0)
        ),
        stats.beta(0.02, 1.0, 0, 2),
    ),
    "mixture": (
        lambda: two(dist.LogNormal(jnp.zeros(2), 1e-3), 0.5, 0.5),
        stats.lognorm(1e-3),
    ),
}


@pytest.mark.parametrize("name", FAMILIES)
def test_moments(name):
    make, known = FAMILIES[name]
    mean, sd = mean_and_standard_deviation(make())
    np.testing.assert_allclose(mean, known.mean(), rtol=1e-5 if known.mean() else 0, atol=1e-7)
    rtol = 3e-5 if name in {"narrow Weibull", "mixture"} else 1e-5
    np.testing.assert_allclose(sd, known.std(), rtol=rtol)


@pytest.mark.slow
@pytest.mark.usefixtures("x64")
def test_single_precision_beside_double():
    def lin(dtype):
        family = dist.Weibull(jnp.ones(1, dtype), 2 * jnp.ones(1, dtype))
        return nuq.linearize(lambda x: x, family.to_event(1))

    given, exact = lin("float32"), lin("float64")
    assert given.mean.dtype == "float32"
    np.testing.assert_allclose(given.mean, exact.mean, rtol=1e-5)
    np.testing.assert_allclose(given.variance, exact.variance, rtol=1e-5)


@pytest.mark.parametrize(
    "make",
    [
        lambda: dist.Cauchy(0.0, 1.0),
        lambda: dist.StudentT(2.0),
        lambda: dist.LowerTruncatedPowerLaw(-2.5, 1.0),
        lambda: dist.TransformedDistribution(dist.Normal(0.0, 1.0), [EXP, EXP]),
        # Its quantiles stop to rise where a probability rounds to one.
        lambda: dist.TransformedDistribution(
            dist.HalfCauchy(1.0), dist.transforms.PowerTransform(2.0)
        ),
    ],
)
def test_families_without_variance_are_refused(make):
    with pytest.raises(
        ValueError, match=r"^f must have a finite variance .* none, or one that float"
    ):
        nuq.linearize(lambda x: x, make().expand([1]).to_event(1))


def _correlated(family):
    return dist.GaussianCopula(family, correlation_matrix=jnp.eye(2))


@pytest.mark.slow
@pytest.mark.parametrize("make", [lambda part: part.to_event(1), _correlated])
def test_transforms_of_families_with_axes_of_their_own(make):
    f = {
        "beta": make(dist.TransformedDistribution(dist.Beta(0.5 * jnp.ones(2), 0.5), CUBE)),
        "mixture": make(
            dist.TransformedDistribution(
                two(dist.Normal(jnp.array([[-1.0, 1.0]] * 2), 0.1), 0.3, 0.7), EXP
            )
        ),
    }
    lin = nuq.linearize(lambda x: jnp.stack([x["beta"][1], x["mixture"][0]]), f)
    parts = [stats.lognorm(0.1, 0, np.exp(at)) for at in (-1, 1)]
    first, second = (0.3 * parts[0].moment(k) + 0.7 * parts[1].moment(k) for k in (1, 2))
    np.testing.assert_allclose(lin.mean, [5 / 16, first], rtol=2e-5)
    known = [231 / 1024 - 25 / 256, second - first**2]
    np.testing.assert_allclose(lin.variance, known, rtol=5e-5)


@pytest.mark.slow
def test_gradients():
    """Against differences of SciPy's moments, and without NaN on the way."""

    def truncated(low):
        return stats.truncnorm(low, 16)

    cases = (
        (lambda s: dist.LogNormal(0.0, s), stats.lognorm, 1e-4),
        (lambda s: dist.TruncatedNormal(0.0, 1.0, low=s, high=16.0), truncated, 15.0),
        (lambda s: dist.Weibull(1.0, s), stats.weibull_min, 50.0),
    )
    with jax.debug_nans(True):
        for make, known, at in cases:
            found = jax.jacrev(lambda s, make=make: mean_and_standard_deviation(make(s)))(at)
            step = 1e-3 * at
            ends = [
                np.array([part.mean(), part.std()]) for part in map(known, (at - step, at + step))
            ]
            np.testing.assert_allclose(found, (ends[1] - ends[0]) / (2 * step), rtol=1e-2)


@pytest.mark.slow
def test_linear_networks_have_exact_moments():
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
