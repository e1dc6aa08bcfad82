"""Laws of the distributions of single outputs: functions that fit together, draws, gradients."""

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import numpyro.distributions as dist
import pytest
import scipy.stats
from jax.test_util import check_grads

from nn_uq_dist import LinearizedMarginal
from nn_uq_dist.distributions import NoisyMarginal, as_output_distribution
from tests.distributions.outputs import IMAGES, LOC, SCORES, WEIGHTS, corrected

KEY = jax.random.key(0)
# Of batch shape (3,).
OUTPUTS = {
    "corrected with noise": lambda: corrected(0.1),
    "corrected": corrected,
    "linearized": lambda: LinearizedMarginal(LOC, WEIGHTS),
    "linearized with noise": lambda: LinearizedMarginal(LOC, WEIGHTS, 0.3),
    "adapted": lambda: as_output_distribution(dist.Gamma(jnp.array([0.7, 2.0, 9.0]), 2.0)),
}


# Both types of the sums alone: `tests/uniform_sum`; noisy ones: `test_noisy_marginal.py`.
@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "precision"),
    [
        ("corrected with noise", "float32"),
        ("corrected", "float64"),
        ("linearized", "float64"),
        ("linearized with noise", "float32"),
        ("adapted", "float32"),
        ("adapted", "float64"),
    ],
    indirect=["precision"],
)
def test_functions_fit_together(name, precision):
    distribution, wide = OUTPUTS[name](), precision == "float64"
    near = {"rtol": 1e-6, "atol": 1e-6} if wide else {"rtol": 5e-3, "atol": 5e-3}
    # In single precision values at the edge of a support have no score of their own.
    scores = (SCORES if wide else SCORES[1:-1])[:, None]
    below = scipy.stats.norm.cdf(scores) + 0 * LOC
    x = distribution.from_normal_score(scores)
    assert x.dtype == precision
    np.testing.assert_allclose(distribution.cdf(x), below, **near)
    np.testing.assert_allclose(distribution.icdf(below), x, **near)
    log_cdf, log_sf = distribution.log_cdf(x), distribution.log_sf(x)
    np.testing.assert_allclose(log_cdf, scipy.stats.norm.logcdf(scores) + 0 * LOC, **near)
    np.testing.assert_allclose(log_sf, scipy.stats.norm.logsf(scores) + 0 * LOC, **near)
    slope = jax.grad(lambda y: distribution.cdf(y).sum())(x)
    log_prob = distribution.log_prob(x)
    np.testing.assert_allclose(jnp.log(slope), log_prob, **near)
    both = distribution.normal_score_and_log_prob(x)
    np.testing.assert_allclose(both[0], scores + 0 * LOC, **near)
    np.testing.assert_allclose(both[0], distribution.normal_score(x), **near)
    np.testing.assert_allclose(both[1], log_prob, **near)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["corrected", "linearized with noise", "adapted"])
def test_draws_have_the_distribution_and_its_moments(name):
    distribution, count = OUTPUTS[name](), 5_000
    draws = np.asarray(distribution.sample(KEY, (count,)), np.float64)
    # Each of these fails for less than one key in a thousand.
    for column in np.asarray(distribution.cdf(draws)).T:
        assert scipy.stats.kstest(column, "uniform").pvalue > 1e-4
    variance, kurtosis = np.asarray(distribution.variance), distribution.excess_kurtosis
    shift = draws.mean(axis=0) - distribution.mean
    assert (np.abs(shift) < 4 * np.sqrt(variance / count)).all()
    ratio = draws.var(axis=0) / variance - 1
    assert (np.abs(ratio) < 4 * np.sqrt((kurtosis + 2) / count)).all()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["corrected", "noisy"])
def test_gradients(name, x64):
    def value(loc, images, scale):
        if name == "noisy":
            distribution = NoisyMarginal(corrected(0.2, loc, images), scale)
        else:
            distribution = corrected(scale, loc, images)
        at = distribution.log_prob(jnp.array([0.3, 3.3, -1.2]))
        return at.sum() + distribution.icdf(0.3).sum()

    arguments = (jnp.asarray(LOC), jnp.asarray(IMAGES), jnp.asarray(0.4))
    check_grads(jax.jit(value), arguments, order=1, modes=["rev"], rtol=1e-5)


@pytest.mark.slow
def test_coverage_intervals_without_a_tail_end_with_the_support(precision):
    steep = as_output_distribution(dist.Beta(jnp.asarray(2.0, precision), 0.2))
    low, high = np.float64(steep.coverage_interval(0.95))
    assert high == 1
    assert scipy.stats.beta(2, 0.2).sf(low) == pytest.approx(0.95, rel=1e-5)
    low, high = steep.coverage_interval(0.05)
    assert low < high == 1


def test_coverage_intervals_of_a_flat_density_have_equal_tails():
    flat = as_output_distribution(dist.Uniform(jnp.array([4.0, -1.0]), jnp.array([6.0, 2.0])))
    for probability in (0.05, 0.95):
        tails = np.array([[1 - probability], [1 + probability]]) / 2
        known = np.array([4, -1]) + np.array([2, 3]) * tails
        np.testing.assert_allclose(flat.coverage_interval(probability), known, rtol=1e-6)


@pytest.mark.slow
def test_coverage_interval_of_a_narrow_peak():
    """Of the mixture the peak alone matters: of its share, so much is asked for."""
    means, scales = jnp.array([0.0, 10.0, 5.0]), jnp.array([1.0, 1e-3, 2.0])
    shares = dist.Categorical(probs=jnp.array([0.4, 0.06, 0.54]))
    peaked = as_output_distribution(dist.MixtureSameFamily(shares, dist.Normal(means, scales)))
    low, high = np.float64(peaked.coverage_interval(0.05))
    known = 2e-3 * scipy.stats.norm.ppf(0.5 + 0.5 * 0.05 / 0.06)
    assert high - low == pytest.approx(known, rel=5e-3)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("probability", "precision"), [(0.5, "float32"), (0.95, "float64")], indirect=["precision"]
)
def test_shortest_coverage_intervals(probability, precision):
    """Ends have the same density, or one of them is an end of the support."""
    shapes = np.array([1.0, 2.0, 9.0])
    gamma = as_output_distribution(dist.Gamma(jnp.asarray(shapes, precision), 1.0))
    low, high = np.float64(gamma.coverage_interval(probability))
    known = scipy.stats.gamma(shapes)
    np.testing.assert_allclose(known.cdf(high) - known.cdf(low), probability, rtol=1e-5)
    assert low[0] == pytest.approx(0, abs=1e-6)
    density = scipy.stats.gamma(shapes[1:]).pdf
    np.testing.assert_allclose(density(low[1:]), density(high[1:]), rtol=2e-2)


INTERVALS = {
    "exponential": (lambda: dist.Exponential(1.0), lambda x: mpmath.exp(-mpmath.mpf(x))),
    "normal": (lambda: dist.Normal(0.0, 1.0), lambda x: mpmath.ncdf(-mpmath.mpf(x))),
}


@pytest.mark.parametrize("name", INTERVALS)
def test_intervals_of_other_families(name, precision):
    make, tail = INTERVALS[name]
    own = as_output_distribution(make())
    middles = [0.7, 9.0, 20.0] if name == "exponential" else [-20.0, -4.0, 0.7, 20.0]
    for width in (1e-6, 0.1):
        low, high = (np.asarray(np.array(middles) + s * width, precision) for s in (-0.5, 0.5))
        is_some = high > low  # in single precision some are one number
        with mpmath.workdps(400):
            pairs = zip(low[is_some], high[is_some], strict=True)
            exact = [float(mpmath.log(tail(float(a)) - tail(float(b)))) for a, b in pairs]
        found = np.asarray(own.log_interval(low, high), float)
        tolerance = np.full(len(exact), {"float32": 1e-5, "float64": 1e-9}[precision])
        # Tails of NumPyro's normal distribution have fewer digits there.
        is_far = (name == "normal") & (np.abs(low[is_some]) > 10)
        tolerance[is_far] = {"float32": 4e-4, "float64": 4e-7}[precision]
        rounding = 4 * np.finfo(precision).eps * np.abs(exact)
        assert (np.abs(found[is_some] - exact) <= tolerance + rounding).all()
        assert np.isneginf(found[~is_some]).all()


def test_intervals_beyond_a_support():
    own = as_output_distribution(dist.Exponential(1.0))
    found = own.log_interval(np.array([-3.0, -1.0, 2.0]), np.array([-2.0, np.inf, 1.0]))
    np.testing.assert_array_equal(found, [-np.inf, 0.0, np.nan])
