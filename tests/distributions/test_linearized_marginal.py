"""`LinearizedMarginal`: densities, tails, moments and gradients by other methods; its errors."""

import itertools
import math

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import numpyro.distributions as dist
import pytest
import scipy.stats
from jax.test_util import check_grads
from numpyro.distributions.kl import kl_divergence

from nn_uq_dist import LinearizedMarginal

KEY = jax.random.key(11)
LOC = 0.4
CASES = {
    "one": ([0.7], 0.0),
    "two": ([0.7, -0.4], 0.0),
    "five": ([1.0, 0.8, -0.6, 0.7, 0.9], 0.0),
    "normal": ([0.7, 0.5], 0.3),
}


def piecewise(x, weights, power):
    """``sum_e prod(e) (x + e.w)_+^power`` over all signs ``e``, divided by ``power! prod(2 w)``.

    For the power n - 1 the density of the sum of uniforms (Bradley and Gupta 2002), for n its
    distribution function.
    """
    signs = np.array(list(itertools.product([-1, 1], repeat=len(weights))))
    y = x + signs @ weights
    terms = np.where(y >= 0, np.abs(y) ** power, 0.0)
    return signs.prod(axis=1) @ terms / (math.factorial(power) * np.prod(2 * weights))


def make(name):
    weights, scale = CASES[name]
    return LinearizedMarginal(LOC, np.array(weights), scale or None)


# With a normal part: `test_log_interval`.
@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("name", ["one", "two", "five"])
def test_density_and_distribution_function(name):
    d, weights = make(name), np.abs(CASES[name][0])
    # Deviations over nearly all of the support, none at a kink.
    deviations, count = weights.sum() * np.linspace(-0.97, 0.963, 9), len(weights)
    x = LOC + deviations
    density = [piecewise(-abs(v), weights, count - 1) for v in deviations]
    below, above = ([piecewise(s * v, weights, count) for v in deviations] for s in (1, -1))
    np.testing.assert_allclose(np.exp(d.log_prob(x)), density, rtol=1e-9)
    np.testing.assert_allclose(d.cdf(x), below, rtol=1e-9)
    np.testing.assert_allclose(np.exp(d.log_cdf(x)), below, rtol=1e-9)
    np.testing.assert_allclose(np.exp(d.log_sf(x)), above, rtol=1e-9)


@pytest.mark.parametrize("name", CASES)
def test_moments(name):
    d, (weights, scale) = make(name), CASES[name]
    parts = [scipy.stats.uniform(-abs(w), 2 * abs(w)) for w in weights]
    variance = sum(part.var() for part in parts) + scale**2
    fourth = sum(part.stats(moments="k") * part.var() ** 2 for part in parts)
    assert d.mean == np.float32(LOC)
    np.testing.assert_allclose(d.variance, variance, rtol=1e-6)
    np.testing.assert_allclose(d.excess_kurtosis, fourth / variance**2, rtol=1e-5)


def test_pathwise_gradients():
    weights, scale = np.array([0.7, -0.4], np.float32), 0.3

    def sampled(loc, weights, scale):
        x = LinearizedMarginal(loc, weights, scale).sample(KEY, (200_000,))
        return (x + x**2).mean()

    def exact(loc, weights, scale):
        d = LinearizedMarginal(loc, weights, scale)
        return d.mean + d.variance + d.mean**2

    actual = jax.grad(sampled, argnums=(0, 1, 2))(LOC, weights, scale)
    expected = jax.grad(exact, argnums=(0, 1, 2))(LOC, weights, scale)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=0.015), actual, expected)


def test_a_point_mass_that_jit_hides_has_no_density_but_draws():
    @jax.jit
    def functions(weights):
        d = LinearizedMarginal(LOC, weights)
        return (d.log_prob(0.4), d.cdf(0.1), d.icdf(0.3)), (d.variance, d.sample(KEY))

    none, moments = functions(jnp.zeros(2))
    assert np.isnan(none).all()
    np.testing.assert_allclose(moments, [0.0, LOC])


def tail(x, weights, scale):
    """``P(X > x)`` by integrals of the normal distribution function over corners, any precision."""
    signs = itertools.product([-1, 1], repeat=len(weights))
    total = mpmath.mpf(0)
    for corner in signs:
        t = sum(mpmath.mpf(float(w)) * s for w, s in zip(weights, corner, strict=True)) - x
        before, value = mpmath.npdf(t / scale) / scale, mpmath.ncdf(t / scale)
        for k in range(1, len(weights) + 1):
            before, value = value, (t * value + scale**2 * before) / k
        total += math.prod(corner) * value
    return total / math.prod(2 * mpmath.mpf(float(w)) for w in weights)


@pytest.mark.parametrize("width", [1e-6, 10.0])
def test_log_interval(width, precision):
    weights, scale = np.array([1.0, 0.7], precision), np.asarray(0.9, precision)
    sd = float(np.sqrt(np.sum(weights**2) / 3 + scale**2))
    middles = sd * np.array([-30.0, -4.1, 0.3, 8.0, 30.0])
    low, high = (np.asarray(middles + side * width * sd, precision) for side in (-0.5, 0.5))
    found = LinearizedMarginal(np.zeros((), precision), weights, scale).log_interval(low, high)
    with mpmath.workdps(600):
        exact = [
            float(mpmath.log(tail(mpmath.mpf(float(a)), weights, mpmath.mpf(float(scale)))
                             - tail(mpmath.mpf(float(b)), weights, mpmath.mpf(float(scale)))))
            for a, b in zip(low, high, strict=True)
        ]  # fmt: skip
    found = np.asarray(found, float)
    at_once = low == high  # in single precision thirty deviations out
    assert np.isneginf(found[at_once]).all()
    # Relative errors of probabilities, where logarithms hold them.
    found, exact = found[~at_once], np.array(exact)[~at_once]
    rounding = np.finfo(precision).eps * np.abs(exact)
    tolerance = {"float32": 1e-5, "float64": 1e-10}[precision]
    assert (np.abs(found - exact) <= tolerance + 4 * rounding).all()


def test_log_interval_at_ends_and_of_half_lines():
    d = LinearizedMarginal(0.0, [1.0, 1.0])
    low, high = [-np.inf, 0.5, -np.inf, 1.0, 2.5, 1.5, 1.0], [0.5, np.inf, np.inf, 1.0, 3, 2.5, 0.0]
    expected = [d.log_cdf(0.5), d.log_sf(0.5), 0.0, -np.inf, -np.inf, d.log_sf(1.5), np.nan]
    found = d.log_interval(np.array(low), np.array(high))
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_log_interval_with_ends_far_out_or_missing(precision):
    d = LinearizedMarginal(np.zeros((), precision), np.array([1.0, 0.5], precision), 0.3)
    far = np.array([1e3, 1e6, 1e12, 1e30, np.inf], precision)
    tolerance = {"float32": 2e-6, "float64": 1e-13}[precision]
    for low in (2.37, -1.0):
        logs = d.log_interval(low, far)
        np.testing.assert_allclose(logs, np.full(5, d.log_sf(low)), rtol=tolerance, atol=tolerance)
        np.testing.assert_array_equal(d.log_interval(-far, -low), logs)
    low, high = [np.nan, 1.0, -np.inf, np.inf, 1.0], [1.0, np.nan, np.nan, 1.0, -np.inf]
    assert np.isnan(d.log_interval(np.array(low), np.array(high))).all()


@pytest.mark.slow
@pytest.mark.usefixtures("x64")
def test_gradient_of_log_interval():
    def value(loc, weight, scale, low, high):
        d = LinearizedMarginal(loc, jnp.stack([weight, 0.3]), scale)
        return d.log_interval(low, high)

    check_grads(value, (0.1, 0.8, 0.4, 1.0, 1.3), order=1, modes=["rev"], rtol=1e-6)


@pytest.mark.usefixtures("x64")
def test_divergence_from_a_normal_distribution():
    d, q = make("two"), dist.Normal(0.3, 1.2)
    nodes, lengths = np.polynomial.legendre.leggauss(400)
    expected = 0.0
    for a, b in itertools.pairwise(LOC + np.array([-1.1, -0.3, 0.3, 1.1])):  # between kinks
        at = a + (b - a) * (nodes + 1) / 2
        logs = np.asarray(d.log_prob(at))
        terms = np.exp(logs) * (logs - np.asarray(q.log_prob(at)))
        expected += (b - a) / 2 * (lengths @ terms)
    np.testing.assert_allclose(kl_divergence(d, q), expected, rtol=1e-6)
    np.testing.assert_allclose(
        kl_divergence(d.expand([2]).to_event(1), q.expand([2]).to_event(1)), 2 * expected, rtol=1e-6
    )
