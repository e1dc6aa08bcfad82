"""The peers of `bench_peers` are implemented correctly: a bug there would bias the comparison."""

import itertools
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.integrate
import scipy.stats

from nn_uq_dist import Input, LeakyReLUNetwork
from tests.benchmarks import _peers as peers

pytestmark = pytest.mark.usefixtures("x64")
SLOPE = 0.2
MEANS, SCALES = np.array([-2.0, -0.3, 0.0, 1.1]), np.array([0.5, 1.0, 2.0, 0.7])


def leaky_relu(h):
    return np.where(h >= 0, h, SLOPE * h)


def expectation(function, mean, scale):
    """Of a normal variable; `function` has a kink at zero."""
    ends = [min(mean - 12 * scale, 0), 0.0, max(mean + 12 * scale, 0)]
    return sum(
        scipy.integrate.quad(
            lambda h: function(h) * scipy.stats.norm.pdf(h, mean, scale), lower, upper
        )[0]
        for lower, upper in itertools.pairwise(ends)
    )


def test_moments_of_the_leaky_relu_match_quadrature():
    value = jax.jit(peers.leaky_relu_moments)(jnp.asarray(MEANS), jnp.asarray(SCALES**2), SLOPE)
    for k, (mean, scale) in enumerate(zip(MEANS, SCALES, strict=True)):
        first = expectation(leaky_relu, mean, scale)
        second = expectation(lambda h: leaky_relu(h) ** 2, mean, scale)
        np.testing.assert_allclose(value[0][k], first, rtol=1e-7)
        np.testing.assert_allclose(value[1][k], second - first**2, rtol=1e-7)


def test_covariance_of_leaky_relus_matches_quadrature():
    correlation = np.array(
        [[1, 0.5, -0.7, 0.2], [0.5, 1, -0.3, 0.9], [-0.7, -0.3, 1, 0], [0.2, 0.9, 0, 1]]
    )
    covariance = correlation * np.outer(SCALES, SCALES)
    value = jax.jit(peers.leaky_relu_covariance)(jnp.asarray(MEANS), jnp.asarray(covariance), SLOPE)
    _, variance = jax.jit(peers.leaky_relu_moments)(
        jnp.asarray(MEANS), jnp.asarray(SCALES**2), SLOPE
    )
    np.testing.assert_allclose(np.diag(value), variance, rtol=1e-6)
    for i, j in ((0, 1), (0, 2), (1, 3), (2, 3)):
        rho = correlation[i, j]

        def second_given_first(h, i=i, j=j, rho=rho):
            mean = MEANS[j] + rho * SCALES[j] * (h - MEANS[i]) / SCALES[i]
            scale = SCALES[j] * np.sqrt(1 - rho**2)
            ratio = mean / scale
            relu = mean * scipy.stats.norm.cdf(ratio) + scale * scipy.stats.norm.pdf(ratio)
            return SLOPE * mean + (1 - SLOPE) * relu

        product = expectation(
            lambda h, g=second_given_first: leaky_relu(h) * g(h), MEANS[i], SCALES[i]
        )
        means = [expectation(leaky_relu, MEANS[k], SCALES[k]) for k in (i, j)]
        np.testing.assert_allclose(value[i, j], product - means[0] * means[1], atol=1e-7)


@pytest.mark.parametrize("full", [False, True])
def test_moment_matching_is_right_where_its_assumptions_hold(full):
    # One hidden layer on normal inputs has normal pre-activations; with a diagonal matrix they are
    # independent as well.
    rng = np.random.default_rng(0)
    size, number = 4, 100_000
    hidden = rng.normal(size=(size, size)) if full else np.diag(rng.normal(size=size))
    bias, outputs = rng.normal(size=size), rng.normal(size=(2, size))
    net = LeakyReLUNetwork([hidden], [bias], outputs, SLOPE)
    distribution = Input.normal(np.zeros(size), scale_tril=np.eye(size))
    value = jax.jit(partial(peers.moment_matching, full=full))(net, distribution)
    draws = leaky_relu(rng.normal(size=(number, size)) @ hidden.T + bias) @ outputs.T
    deviation = draws.std(axis=0)
    # Five standard errors: one failure in 10^6 distributions; those of a covariance are about
    # sqrt(2 / n).
    np.testing.assert_array_less(np.abs(value.mean - draws.mean(0)) / deviation, 5 / number**0.5)
    error = np.abs(value.covariance - np.cov(draws, rowvar=False)) / np.outer(deviation, deviation)
    np.testing.assert_array_less(error, 5 * (4 / number) ** 0.5)


def test_unscented_is_exact_for_linear_maps_and_one_parabola():
    matrix = np.array([[1.0, -2.0, 0.5], [0.0, 1.0, 3.0]])
    distribution = Input.box(np.array([1.0, -1.0, 2.0]), half_width=np.array([0.5, 1.0, 2.0]))
    linear = partial(peers.unscented, lambda x: jnp.asarray(matrix) @ x, spread=1.8)
    value = jax.jit(linear)(distribution)
    np.testing.assert_allclose(value.mean, matrix @ distribution.mean, rtol=1e-12)
    np.testing.assert_allclose(
        value.covariance, matrix @ np.diag(distribution.half_width**2 / 3) @ matrix.T, rtol=1e-12
    )
    parabola = partial(peers.unscented, lambda x: x**2, spread=1.8)
    value = jax.jit(parabola)(Input.box(np.zeros(1), half_width=1.0))
    np.testing.assert_allclose(value.mean, [1 / 3], rtol=1e-12)
    np.testing.assert_allclose(value.covariance, [[1 / 5 - 1 / 9]], rtol=1e-12)


def test_inverse_fourier_integrals_match_the_irwin_hall_distribution():
    scipy_distribution = scipy.stats.irwinhall(6)  # on [0, 6]; ours is centered, of width 2 each
    weights, x = np.ones(6), np.array([-2.5, 0.0, 1.3, 4.0])
    density, survival = peers.on_the_real_axis(weights, x)
    np.testing.assert_allclose(density, scipy_distribution.pdf(x / 2 + 3) / 2, rtol=1e-10)
    np.testing.assert_allclose(survival, scipy_distribution.sf(x / 2 + 3), rtol=1e-10)
    # On the fixed grid the period is 2 pi, so the distribution must be narrow to be seen alone.
    narrow = peers.on_a_fixed_grid(weights / 4, x / 4)
    np.testing.assert_allclose(narrow, 2 * scipy_distribution.pdf(x / 2 + 3), rtol=1e-6)


def test_uncertainties_agrees_with_the_jacobian():
    rng = np.random.default_rng(1)
    weights = [rng.normal(size=shape) for shape in ((5, 3), (4, 5), (2, 4))]
    net = LeakyReLUNetwork(weights[:2], [rng.normal(size=5), rng.normal(size=4)], weights[2], SLOPE)
    distribution = Input.box(rng.normal(size=3), half_width=0.3)
    mean, covariance = peers.with_uncertainties(net, distribution)
    value, jacobian = np.asarray(distribution.mean), np.eye(3)
    for matrix, bias in zip(weights[:2], net.biases, strict=True):
        value, jacobian = matrix @ value + bias, matrix @ jacobian
        jacobian = np.where(value >= 0, 1, SLOPE)[:, None] * jacobian
        value = leaky_relu(value)
    np.testing.assert_allclose(mean, weights[2] @ value, rtol=1e-12)
    jacobian = weights[2] @ jacobian
    np.testing.assert_allclose(covariance, 0.03 * jacobian @ jacobian.T, rtol=1e-10)
