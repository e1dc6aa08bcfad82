"""Normal scores of NumPyro's univariate distributions and their inverse; SciPy and mpmath."""

from functools import cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
import scipy.stats
from scipy.special import erfinv, ndtr, ndtri_exp

from nn_uq_dist.basics.normal_scores import (
    from_normal_score,
    missing_functions,
    normal_score,
    normal_score_and_log_prob,
)

SCORES = np.linspace(-12, 12, 25)
# The same number of points in each call: families share programs.
FAR = np.concatenate([SCORES, [-30, 30]])


class Truncated(NamedTuple):
    """A distribution of SciPy between two ends, as SciPy's own formulas cancel."""

    base: Any
    low: float = -np.inf
    high: float = np.inf

    def ppf(self, p):
        return self._quantile(p, 1 - p)

    def isf(self, q):
        return self._quantile(1 - q, q)

    def _quantile(self, p, q):
        below = self.base.cdf(self.low) * q + self.base.cdf(self.high) * p
        above = self.base.sf(self.low) * q + self.base.sf(self.high) * p
        return np.where(below < above, self.base.ppf(below), self.base.isf(above))

    def logcdf(self, x):
        return np.log(self._mass(self.low, x) / self._mass(self.low, self.high))

    def logsf(self, x):
        return np.log(self._mass(x, self.high) / self._mass(self.low, self.high))

    def logpdf(self, x):
        return self.base.logpdf(x) - np.log(self._mass(self.low, self.high))

    def _mass(self, a, b):
        below = self.base.cdf(b) - self.base.cdf(a)
        return np.where(self.base.cdf(a) > 0.5, self.base.sf(a) - self.base.sf(b), below)


@cache
def truncated(*names):
    """NumPyro's normal distribution between ends of these names."""

    def make(loc, scale, *ends):
        return dist.TruncatedNormal(loc, scale, **dict(zip(names, ends, strict=True)))

    return make


FAMILIES = {
    "normal": (dist.Normal, (0.3, 2.0), scipy.stats.norm(0.3, 2)),
    "uniform": (dist.Uniform, (0.0, 2.0), scipy.stats.uniform(0, 2)),
    "laplace": (dist.Laplace, (1.0, 2.0), scipy.stats.laplace(1, 2)),
    "logistic": (dist.Logistic, (1.0, 2.0), scipy.stats.logistic(1, 2)),
    "cauchy": (dist.Cauchy, (1.0, 2.0), scipy.stats.cauchy(1, 2)),
    "student": (dist.StudentT, (3.0, 10.0, 2.0), scipy.stats.t(3, 10, 2)),
    "student, heavy tails": (dist.StudentT, (0.7, 0.5, 2.0), scipy.stats.t(0.7, 0.5, 2)),
    "student, nearly normal": (dist.StudentT, (50.0, 0.5, 2.0), scipy.stats.t(50, 0.5, 2)),
    "exponential": (dist.Exponential, (2.0,), scipy.stats.expon(scale=0.5)),
    "weibull": (dist.Weibull, (2.0, 1.5), scipy.stats.weibull_min(1.5, scale=2)),
    "gumbel": (dist.Gumbel, (1.0, 2.0), scipy.stats.gumbel_r(1, 2)),
    "half normal": (dist.HalfNormal, (2.0,), scipy.stats.halfnorm(scale=2)),
    "gamma": (dist.Gamma, (2.0, 3.0), scipy.stats.gamma(2, scale=1 / 3)),
    "gamma, much at zero": (dist.Gamma, (0.25, 2.0), scipy.stats.gamma(0.25, scale=0.5)),
    "gamma, nearly normal": (dist.Gamma, (2000.0, 4.0), scipy.stats.gamma(2e3, scale=0.25)),
    "beta": (dist.Beta, (2.0, 3.0), scipy.stats.beta(2, 3)),
    "beta, two ends": (dist.Beta, (0.5, 0.5), scipy.stats.beta(0.5, 0.5)),
    "beta, narrow": (dist.Beta, (40.0, 25.0), scipy.stats.beta(40, 25)),
    "log-normal": (dist.LogNormal, (0.25, 0.5), scipy.stats.lognorm(0.5, scale=np.exp(0.25))),
    "pareto": (dist.Pareto, (1.0, 3.0), scipy.stats.pareto(3)),
    "inverse gamma": (dist.InverseGamma, (3.0, 2.0), scipy.stats.invgamma(3, scale=2)),
    "log-uniform": (dist.LogUniform, (1.0, 3.0), scipy.stats.loguniform(1, 3)),
    "truncated": (
        truncated("low", "high"), (1.0, 2.0, -1.0, 2.0), Truncated(scipy.stats.norm(1, 2), -1, 2)
    ),
    "truncated far out": (
        truncated("low", "high"), (0.0, 1.0, 8.0, 9.0), Truncated(scipy.stats.norm(), 8, 9)
    ),
    "truncated on the left": (
        truncated("low"), (1.0, 2.0, -1.0), Truncated(scipy.stats.norm(1, 2), low=-1)
    ),
    "truncated on the right": (
        truncated("high"), (1.0, 2.0, 2.0), Truncated(scipy.stats.norm(1, 2), high=2)
    ),
    "truncated student": (
        lambda *args: dist.TruncatedDistribution(dist.StudentT(*args[:3]), low=args[3]),
        (3.0, 0.0, 1.0, -1.0),
        Truncated(scipy.stats.t(3), low=-1),
    ),
    "expanded": (
        lambda loc, scale: dist.Gumbel(loc, scale).expand((1,)),
        (1.0, 2.0),
        scipy.stats.gumbel_r(1, 2),
    ),
}  # fmt: skip


@partial(jax.jit, static_argnums=0)
def both_ways(make, parameters, z, x):
    """Values at scores, scores of values, and scores of the values at scores."""
    distribution = make(*parameters)
    found = from_normal_score(distribution, z)
    scores = normal_score(distribution, jnp.concatenate([x, found]))
    return found, scores[: x.size], scores[x.size :]


def known_values(name, known, scores):
    lower, upper = known.ppf(ndtr(scores)), known.isf(ndtr(-scores))
    if name == "half normal":  # SciPy's quantile is 0 where the probability is less than 1e-16
        lower = 2 * np.sqrt(2) * erfinv(ndtr(scores))
    return np.where(scores < 0, lower, upper)


# What JAX's incomplete gamma and beta functions are off by in float32.
FLOAT32 = {"student, nearly normal": 1e-4, "beta, narrow": 2e-5}


@pytest.mark.parametrize("name", FAMILIES)
def test_values_and_scores_in_both_tails(name, precision):
    make, parameters, known = FAMILIES[name]
    info, value = np.finfo(precision), known_values(name, known, SCORES)
    given = np.append(np.where(np.abs(value) < info.max, value, value[12]), value[[12, 12]])
    given = given.astype(precision)
    found, scores, again = map(
        np.asarray, both_ways(make, tuple(np.array(parameters, precision)), FAR.astype(precision),
                              given)
    )  # fmt: skip
    assert found.dtype == scores.dtype == precision
    # No value is infinite; in float32 those of heavy tails at 30 would be 1e280 and 1e65.
    is_heavy = name in {"student, heavy tails", "pareto"} and precision == "float32"
    near = np.abs(FAR) <= (10 if is_heavy else 30)
    assert np.isfinite(found[near]).all()
    assert not np.isnan(again[near]).any()

    keep = np.abs(value) < info.max
    rtol = 3e-13 if precision == "float64" else FLOAT32.get(name, 1e-5)
    width = known.ppf(0.75) - known.ppf(0.25)
    # Far out in a heavy tail a rounding of the score moves the value by more.
    slope = np.exp(scipy.stats.norm.logpdf(SCORES) - known.logpdf(value))
    rounding = 4 * info.eps * np.abs(SCORES) * np.where(slope < np.inf, slope, 0)
    near = np.abs(found[:-2] - value) <= rtol * (np.abs(value) + width) + rounding
    assert near[keep].all()

    given = given[:-2].astype(float)
    with np.errstate(all="ignore"):
        lower, upper = known.logcdf(given), known.logsf(given)
        expected = np.where(lower < upper, ndtri_exp(lower), -ndtri_exp(upper))
        # Some relative roundings of the value, from which the distance of an end is taken.
        steepness = np.exp(known.logpdf(given) - scipy.stats.norm.logpdf(expected))
        rounding = 40 * info.eps * np.abs(given) * steepness
        error = np.abs(scores[:-2] - expected)
    own = 2e-12 if precision == "float64" else 10 * FLOAT32.get(name, 1e-7)
    # Values that round to an end of the support, or to less than the smallest number, have none.
    inside = keep & np.isfinite(expected) & (np.abs(given) > info.tiny) & (rounding < 0.01)
    assert inside.sum() >= 7
    assert (error <= rounding + own * (1 + np.abs(expected)))[inside].all()


@partial(jax.jit, static_argnums=0)
@partial(jax.vmap, in_axes=(None, None, 0, 0))
def slopes_both_ways(make, parameters, z, x):
    """The slope and its slope of values at scores, and the slope of scores at values."""
    distribution = make(*parameters)

    def first(z):
        return jax.grad(lambda z: from_normal_score(distribution, z).sum())(z)

    back = jax.grad(lambda x: normal_score(distribution, x).sum())(x)
    return first(z), jax.grad(first)(z), back


# Others are short closed forms, or share the formulas of these.
CURVED = "normal", "laplace", "student", "gamma", "beta", "weibull", "half", "inv", "truncated"


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("name", [name for name in FAMILIES if name.startswith(CURVED)])
def test_slopes_are_ratios_of_densities(name):
    make, parameters, known = FAMILIES[name]

    def slope(z):
        x = known.ppf(ndtr(z))
        return np.exp(scipy.stats.norm.logpdf(z) - known.logpdf(x))

    # The slope at the median is that of the tangent.
    z = np.array([-2.0, 0.0, 0.3, 2.0])
    found, bend, back = slopes_both_ways(make, tuple(np.array(parameters)), z, known.ppf(ndtr(z)))
    np.testing.assert_allclose(found, slope(z), rtol=1e-8)  # JAX's betaln is off by 7e-9
    np.testing.assert_allclose(back, 1 / slope(z), rtol=1e-8)
    differences = (slope(z + 1e-4) - slope(z - 1e-4)) / 2e-4
    smooth = (z != 0) | (name != "laplace")  # a kink of the slope
    near = np.abs(bend - differences) <= 1e-4 * (np.abs(differences) + slope(z))
    assert near[smooth].all()


SOLVED = {
    "gamma": lambda p: dist.Gamma(p, 3.0),
    "beta": lambda p: dist.Beta(2.0, p),
    "student": lambda p: dist.StudentT(p, 0.0, 1.0),
    "truncated student": lambda p: dist.TruncatedDistribution(dist.StudentT(p), low=-1.0),
}


@pytest.mark.parametrize("name", SOLVED)
def test_no_derivative_in_the_parameters_of_quantiles_that_are_solved_for(name):
    for function in (from_normal_score, normal_score):
        derivative = jax.jit(jax.jacfwd(lambda p, f=function: f(SOLVED[name](p), 0.3)))
        with pytest.raises(NotImplementedError, match="not in the parameters of the distribution;"):
            derivative(2.0)


@pytest.mark.usefixtures("x64")
def test_derivatives_in_scale_and_location_beside_known_parameters():
    @jax.jit
    def slopes(rate, loc):
        by_rate = jax.grad(lambda r: from_normal_score(dist.Gamma(2.0, r), 0.7))(rate)
        by_loc = jax.grad(lambda m: from_normal_score(dist.StudentT(5.0, m, 2.0), 0.7))(loc)
        return by_rate, by_loc

    value = scipy.stats.gamma.isf(ndtr(-0.7), 2.0, scale=1 / 3)
    np.testing.assert_allclose(slopes(3.0, 0.5), [-value / 3, 1.0], rtol=1e-10)


@pytest.mark.slow
@pytest.mark.usefixtures("x64")
def test_another_family_by_its_own_functions():
    distribution, known = dist.Gompertz(0.5, 2.0), scipy.stats.gompertz(0.5, scale=0.5)
    scores = np.linspace(-4, 4, 9)
    value = known.ppf(ndtr(scores))
    found, logs = normal_score_and_log_prob(distribution, value)
    np.testing.assert_allclose(found, scores, atol=1e-6)
    np.testing.assert_allclose(logs, known.logpdf(value), rtol=1e-5)
    np.testing.assert_allclose(from_normal_score(distribution, scores), value, rtol=1e-6)
    assert np.isfinite(from_normal_score(distribution, np.array([-30.0, 30.0]))).all()


def mixture(share, *components, support=dist.constraints.real):
    """Two components, the first with this share."""
    shares = dist.Categorical(jnp.stack([share, 1 - share]))
    if len(components) == 1:
        return dist.MixtureSameFamily(shares, *components)
    return dist.MixtureGeneral(shares, components, support=support)


# Both parts by SciPy.
MIXTURES = {
    "gap": (
        lambda p: mixture(p, dist.Normal(np.array([-40.0, 1000.0]), np.array([1.0, 2.0]))),
        (scipy.stats.norm(-40), scipy.stats.norm(1000, 2)),
    ),
    "equal": (lambda p: mixture(p, dist.Normal(0.0, 1.0).expand((2,))), (scipy.stats.norm(),) * 2),
    "gamma": (
        lambda p: mixture(p, dist.Gamma(np.array([2.0, 3.0]), 1.0)),
        (scipy.stats.gamma(2), scipy.stats.gamma(3)),
    ),
    "one bounded": (
        lambda p: mixture(p, dist.Normal(0.0, 1.0), dist.Exponential(1.0)),
        (scipy.stats.norm(), scipy.stats.expon()),
    ),
    "two intervals": (
        lambda p: mixture(
            p,
            dist.Uniform(0.0, 1.0),
            dist.Uniform(2.0, 3.0),
            support=dist.constraints.interval(0.0, 3.0),
        ),
        (scipy.stats.uniform(), scipy.stats.uniform(2, 1)),
    ),
}


def tail_of_mixture(parts, share, x, z):
    """The smaller tail, on the side of the score."""
    tails = [np.where(z < 0, part.cdf(x), part.sf(x)) for part in parts]
    return share * tails[0] + (1 - share) * tails[1]


@partial(jax.jit, static_argnums=0)
def at_scores(make, share, z):
    return from_normal_score(make(share), z)


@pytest.mark.parametrize("name", MIXTURES)
def test_quantiles_of_mixtures(name, precision):
    make, parts = MIXTURES[name]
    z = np.linspace(-8, 8, 17)
    found = np.asarray(at_scores(make, np.asarray(0.25, precision), z.astype(precision)))
    assert found.dtype == precision
    low, high = np.full(17, -1e3), np.full(17, 2e3)
    for _ in range(100):
        x = (low + high) / 2
        is_low = (tail_of_mixture(parts, 0.25, x, z) < ndtr(-np.abs(z))) == (z < 0)
        low, high = np.where(is_low, x, low), np.where(is_low, high, x)
    rtol = 1e-5 if precision == "float32" else 1e-12
    np.testing.assert_allclose(found, x, rtol=rtol, atol=rtol)


@pytest.mark.usefixtures("x64")
def test_derivatives_of_scores_of_mixtures():
    make, parts = MIXTURES["gamma"]
    z, share = 1.5, 0.25
    value, slope = jax.value_and_grad(lambda z: from_normal_score(make(share), z))(z)
    density = share * parts[0].pdf(value) + (1 - share) * parts[1].pdf(value)
    np.testing.assert_allclose(slope, scipy.stats.norm.pdf(z) / density, rtol=1e-9)
    by_share, by_value = jax.grad(lambda p, x: normal_score(make(p), x), argnums=(0, 1))(
        share, value
    )
    np.testing.assert_allclose(by_value, 1 / slope, rtol=1e-9)
    expected = (parts[0].cdf(value) - parts[1].cdf(value)) / scipy.stats.norm.pdf(z)
    np.testing.assert_allclose(by_share, expected, rtol=1e-9)
    with pytest.raises(NotImplementedError, match="not in the parameters of the distribution;"):
        jax.grad(lambda p: from_normal_score(make(p), z))(share)


def test_quantiles_at_a_gap_are_in_it_and_rise(precision):
    make, _ = MIXTURES["two intervals"]
    z = np.zeros(17, precision)
    z[[0, 2]] = -1e-3, 1e-3
    found = np.asarray(at_scores(make, np.asarray(0.5, precision), z))
    np.testing.assert_allclose(found[[0, 2]], [1, 2], atol=1e-3)
    assert 1 - 1e-6 <= found[1] <= 2 + 1e-6


def test_subclasses_with_functions_of_their_own_are_not_in_the_table():
    class Shifted(dist.Normal):
        def cdf(self, value):
            return super().cdf(value - 1)

        def icdf(self, q):
            return super().icdf(q) + 1

    assert from_normal_score(Shifted(0.0, 1.0), 0.0) == 1
    assert from_normal_score(type("Named", (dist.Normal,), {})(0.0, 1.0), 30.0) == 30


def test_quantiles_of_families_with_a_distribution_function_alone():
    class Ramp(dist.Distribution):
        """Density ``2 x`` below one, with an array along an axis of its own."""

        support = dist.constraints.unit_interval
        pytree_data_fields = ("rows",)

        def __init__(self, rows):
            self.rows = rows
            super().__init__(rows.shape[:-1])

        def cdf(self, value):
            return value**2 * self.rows.sum(-1)

        def log_prob(self, value):
            return jnp.log(2 * value * self.rows.sum(-1))

    ramps = Ramp(jnp.full((3, 2), 0.5))
    assert missing_functions(ramps) == ()
    z = np.linspace(-2, 2, 5)[:, None]
    expected = np.broadcast_to(np.sqrt(ndtr(z)), (5, 3))
    np.testing.assert_allclose(from_normal_score(ramps, z), expected, rtol=1e-5)


LARGE = {
    **{f"gamma({a:g})": (dist.Gamma, (a, 1.0), scipy.stats.gamma(a)) for a in (1e4, 1e5, 1e6)},
    "inverse gamma(1e5)": (dist.InverseGamma, (1e5, 1.0), scipy.stats.invgamma(1e5)),
    "student(1e2)": (dist.StudentT, (1e2, 0.0, 1.0), scipy.stats.t(1e2)),
    "student(1e4)": (dist.StudentT, (1e4, 0.0, 1.0), scipy.stats.t(1e4)),
    "student(1e6)": (dist.StudentT, (1e6, 0.0, 1.0), scipy.stats.t(1e6)),
    **{
        f"beta({a:g}, {b:g})": (dist.Beta, (a, b), scipy.stats.beta(a, b))
        for a, b in [(1, 1e6), (2, 1e4), (10, 3e3), (20, 500), (1e5, 100), (1e4, 1e4), (1e6, 1e6)]
    },
}


@pytest.mark.parametrize("name", LARGE)
def test_large_shapes_in_float32(name):
    make, parameters, known = LARGE[name]
    center = [-4.75, -2.0, -0.5, -0.01, 0.0, 0.02, 1.0, 3.0, 4.75]
    scores = np.concatenate([center, np.linspace(-4.5, 4.5, 18)])
    value = known_values(name, known, scores)
    rounded = value.astype(np.float32)
    back, found, _ = both_ways(
        make, tuple(np.array(parameters, np.float32)), scores.astype(np.float32), rounded
    )
    at = rounded.astype(float)
    lower, upper = known.logcdf(at), known.logsf(at)
    expected = np.where(lower < upper, ndtri_exp(lower), -ndtri_exp(upper))
    np.testing.assert_allclose(found, expected, atol=2e-3)
    slope = np.exp(scipy.stats.norm.logpdf(scores) - known.logpdf(value))
    # Next to one the numbers of the type are coarse.
    assert (np.abs(back - value) <= 1.7e-3 * slope + 2 * np.spacing(np.abs(rounded))).all()
