"""Benchmarks can be run, and what they compare with is right where the answer is known.

The rest is checked by the benchmarks themselves: `bench_comparison` checks methods of OpenTURNS,
`bench_peers` that of `uncertainties` and inverse Fourier integrals.
"""

import functools
import importlib
import itertools
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.integrate
import scipy.stats

from nn_uq_dist import Input, LeakyReLUNetwork
from tests.benchmarks import _peers as peers
from tests.benchmarks import bench_first_call
from tests.benchmarks._networks import apply, random_layers
from tests.benchmarks._posterior_reference import Observed, Reduced, by_mpmath, by_weighted_draws

BENCHMARKS = sorted(path.stem for path in Path(__file__).parent.glob("bench_*.py"))
SLOPE = 0.2
LEVELS = np.array([0.01, 0.3, 0.5, 0.9, 0.999])

pytestmark = pytest.mark.usefixtures("x64")


def check(found, exact):
    for one, other in zip(found, exact, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12)


def leaky_relu(h):
    return np.where(h >= 0, h, SLOPE * h)


def test_benchmarks_import():
    assert [importlib.import_module(f"tests.benchmarks.{name}") for name in BENCHMARKS]


@pytest.mark.slow
def test_a_first_call_in_a_fresh_process():
    job = next(iter(bench_first_call.JOBS))
    assert bench_first_call.in_fresh_process(bench_first_call.ROOT, job) > 0.0


def test_covariance_of_leaky_relus_matches_quadrature():
    means, scales = np.array([-2.0, -0.3, 1.1]), np.array([0.5, 1.0, 0.7])
    correlation = np.array([[1, 0.5, -0.7], [0.5, 1, 0.9], [-0.7, 0.9, 1]])
    covariance = jnp.asarray(correlation * np.outer(scales, scales))
    value = jax.jit(peers.leaky_relu_covariance)(jnp.asarray(means), covariance, SLOPE)

    def expectation(function, k):
        """Of a function of one of the normal variables, with a kink at zero."""
        density = scipy.stats.norm(means[k], scales[k]).pdf
        ends = min(means[k] - 12 * scales[k], 0), 0.0, max(means[k] + 12 * scales[k], 0)
        return sum(
            scipy.integrate.quad(lambda h: function(h) * density(h), *pair)[0]
            for pair in itertools.pairwise(ends)
        )

    first = [expectation(leaky_relu, k) for k in range(3)]
    second = [expectation(lambda h: leaky_relu(h) ** 2, k) for k in range(3)]
    np.testing.assert_allclose(np.diag(value), np.array(second) - np.square(first), rtol=1e-6)
    for i, j in ((0, 1), (0, 2), (1, 2)):
        rho = correlation[i, j]

        def second_given_first(h, i=i, j=j, rho=rho):
            mean = means[j] + rho * scales[j] * (h - means[i]) / scales[i]
            scale = scales[j] * np.sqrt(1 - rho**2)
            normal = scipy.stats.norm
            relu = mean * normal.cdf(mean / scale) + scale * normal.pdf(mean / scale)
            return SLOPE * mean + (1 - SLOPE) * relu

        product = expectation(lambda h, g=second_given_first: leaky_relu(h) * g(h), i)
        np.testing.assert_allclose(value[i, j], product - first[i] * first[j], atol=1e-7)


@pytest.mark.parametrize("full", [False, True])
def test_moment_matching_is_right_where_its_assumptions_hold(full):
    # One hidden layer on normal inputs has normal pre-activations; with a diagonal matrix they are
    # independent as well.
    rng, size, number = np.random.default_rng(0), 4, 100_000
    hidden = rng.normal(size=(size, size)) if full else np.diag(rng.normal(size=size))
    bias, outputs = rng.normal(size=size), rng.normal(size=(2, size))
    net = LeakyReLUNetwork([hidden], [bias], outputs, SLOPE)
    f = Input.normal(np.zeros(size), scale_tril=np.eye(size))
    value = jax.jit(functools.partial(peers.moment_matching, full=full))(net, f)
    draws = leaky_relu(rng.normal(size=(number, size)) @ hidden.T + bias) @ outputs.T
    sd = draws.std(axis=0)
    # Five standard errors; those of a covariance are about sqrt(2 / n).
    np.testing.assert_array_less(np.abs(value.mean - draws.mean(0)) / sd, 5 / number**0.5)
    error = np.abs(value.covariance - np.cov(draws, rowvar=False)) / np.outer(sd, sd)
    np.testing.assert_array_less(error, 5 * (4 / number) ** 0.5)


@pytest.mark.parametrize("full", [False, True])
def test_stable_propagation_is_the_delta_method(full):
    f = Input.normal(jnp.array([0.3, -0.2]), jnp.array([0.1, 0.4]))
    layers = random_layers(np.random.default_rng(3), (2, 5, 2), bias=1.0)
    if not full:  # neurons that are independent
        layers = [(jnp.diag(jnp.array([2.0, -1.0])), jnp.zeros(2))] * 2
    found = peers.stable_propagation(layers, jnp.tanh, f, full=full)
    check(found, peers.linear_moments(functools.partial(apply, layers, jnp.tanh), f))


def test_unscented_is_exact_for_linear_maps_and_one_parabola():
    matrix = jnp.array([[1.0, -2.0, 0.5], [0.0, 1.0, 3.0]])
    f = Input.box(np.array([1.0, -1.0, 2.0]), half_width=np.array([0.5, 1.0, 2.0]))
    found = peers.unscented(lambda x: matrix @ x, f, 1.8)
    check(found, peers.linear_moments(lambda x: matrix @ x, f))
    found = peers.unscented(lambda x: x**2, Input.box(np.zeros(1), half_width=1.0), 1.8)
    check(found, peers.Moments([1 / 3], [[1 / 5 - 1 / 9]]))


@pytest.mark.slow
def test_second_order_is_exact_for_a_square():
    f = Input.normal(jnp.zeros(3), 1.0)
    cdf = peers.second_order(lambda x: jnp.sum(x**2, keepdims=True), f, jax.random.key(0))
    # Five standard errors of an empirical distribution function of 200,000 draws.
    found = cdf(scipy.stats.chi2(3).ppf(LEVELS)[:, None])[:, 0]
    np.testing.assert_allclose(found, LEVELS, atol=0.0056)


def test_kernel_and_spline_of_normal_quantiles_are_near_the_normal_distribution():
    draws = scipy.stats.norm.ppf((np.arange(1000) + 0.5) / 1000)[:, None]
    values = scipy.stats.norm.ppf(LEVELS)[:, None]
    # The kernel adds the square of its width, 1000^(-1/5), to the variance.
    width = 1000 ** (-0.2) * draws.std(ddof=1)
    wider = scipy.stats.norm.cdf(values / np.hypot(1, width))
    np.testing.assert_allclose(peers.kernel(draws)(values), wider, atol=1e-3)
    np.testing.assert_allclose(peers.spline(draws)(values), LEVELS[:, None], atol=5e-4)


def by_quadrature(seen, nodes=500):
    """At most two variables in the box, by a product rule."""
    reduced = Reduced(seen)
    points, rule = np.polynomial.legendre.leggauss(nodes)
    grid = np.stack(np.meshgrid(points, points, indexing="ij")).reshape(2, -1)
    logs = np.log(np.outer(rule, rule)).ravel() + reduced.log_prior(grid) + reduced.slope @ grid
    logs = logs - 0.5 * (grid * (reduced.precision @ grid)).sum(axis=0)
    return reduced.reference(grid[None], logs[None])


def observed(box, normal, outputs, noise, triangular):
    jacobian = np.array([[1.0, -0.6], [0.3, 0.8], [-0.5, 1.2]])[:outputs]
    deviation = np.array([0.5, -0.4, 0.3])[:outputs]
    return Observed(box, normal, jacobian, deviation, np.full(outputs, noise), triangular)


@pytest.mark.parametrize(("outputs", "triangular"), [(1, False), (3, False), (3, True)])
def test_weighted_draws_of_a_posterior_agree_with_quadrature(outputs, triangular):
    box, normal = np.diag([1.5, 0.7]), np.array([[0.0], [0.4]])[:, : outputs // 3]
    for noise in (0.05, 0.3):
        seen = observed(box, normal, outputs, noise, triangular)
        exact, found = by_quadrature(seen), by_weighted_draws(seen)
        np.testing.assert_allclose((found.mean - exact.mean) / exact.sd, 0, atol=5e-4)
        np.testing.assert_allclose(found.sd, exact.sd, rtol=1e-3)
        np.testing.assert_allclose(found.log_evidence, exact.log_evidence, atol=1e-4)
        assert max(found.mean_error, found.sd_error) < 2e-3


def test_a_box_that_does_not_matter_leaves_a_normal_posterior():
    box = by_quadrature(observed(np.eye(2), np.zeros((2, 0)), 3, 0.02, False))
    normal = by_mpmath(observed(np.zeros((2, 0)), 1e4 * np.eye(2), 3, 0.02, False))
    np.testing.assert_allclose(box.mean, normal.mean, rtol=1e-5)
    np.testing.assert_allclose(box.sd, normal.sd, rtol=1e-5)
