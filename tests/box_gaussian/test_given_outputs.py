"""Inputs behind observed outputs: draws and moments against quadrature and closed forms."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special
import scipy.stats

from nn_uq_dist.box_gaussian import input_draws, moments_given_outputs, posterior_moments
from tests.box_gaussian.references import problem, tensor_rule

KEY = jax.random.key(3)
# A test of this size fails by chance once in 1000 keys; the keys are fixed.
LEAST_P_VALUE = 1e-3


def tensor_posterior(point, weights, covariance):
    """Nodes over the box and their posterior weights."""
    inputs, logs = tensor_rule(100, weights.shape[1])
    normal = scipy.stats.multivariate_normal(np.zeros(len(point)), covariance)
    return inputs, scipy.special.softmax(logs + normal.logpdf(point - inputs @ weights.T))


def moments_of(values, mass):
    mean = mass @ values
    return mean, (values - mean).T @ ((values - mean) * mass[:, None])


@pytest.mark.slow
@pytest.mark.parametrize(("num_inputs", "num_outputs", "noise"), [(3, 2, 0.1), (3, 7, 0.2)])
def test_moments_and_draws_against_quadrature(num_inputs, num_outputs, noise, x64):
    points, *rest = problem(np.random.default_rng(4), num_inputs, num_outputs, noise, 4)
    parts = [jnp.asarray(part) for part in (points, rest[0], np.linalg.cholesky(rest[1]))]
    found, draws = posterior_moments(*parts), np.asarray(input_draws(KEY, *parts, 4000))
    for index, point in enumerate(points):
        exact, spread = moments_of(*tensor_posterior(point, *rest))
        scale = np.sqrt(np.diag(spread))
        np.testing.assert_array_less(np.abs(found.mean[index] - exact) / scale, 0.02)
        deviation = np.sqrt(np.diag(found.covariance[index]))
        np.testing.assert_allclose(deviation, scale, rtol=0.02)
        # Four standard errors of 4000 draws, of the mean and of the standard deviation.
        np.testing.assert_array_less(np.abs(draws[:, index].mean(0) - exact) / scale, 0.064)
        np.testing.assert_allclose(draws[:, index].std(0), scale, rtol=0.045)


@pytest.mark.slow
def test_conditional_moments_against_quadrature(x64):
    """Correlated noise: what is known of it moves the other outputs, too."""
    generator = np.random.default_rng(2)
    weights = generator.normal(size=(5, 3))
    root = 0.3 * generator.normal(size=(5, 5))
    covariance = root @ root.T + 0.02 * np.eye(5)
    known = np.array([0.7, -1.1])
    columns = np.concatenate([root, 0.02**0.5 * np.eye(5)], axis=1)
    found = moments_given_outputs(jnp.asarray(known), jnp.asarray(weights), jnp.asarray(columns))
    inputs, mass = tensor_posterior(known, weights[:2], covariance[:2, :2])
    gain = covariance[2:, :2] @ np.linalg.inv(covariance[:2, :2])
    centers = inputs @ weights[2:].T + (known - inputs @ weights[:2].T) @ gain.T
    mean, spread = moments_of(centers, mass)
    spread = spread + covariance[2:, 2:] - gain @ covariance[:2, 2:]
    scale = np.sqrt(np.diag(spread))
    np.testing.assert_array_less(np.abs(found.mean - mean) / scale, 0.02)
    np.testing.assert_allclose(np.sqrt(np.diag(found.covariance)), scale, rtol=0.02)
    correlation = found.covariance / scale[:, None] / scale
    np.testing.assert_allclose(correlation, spread / scale[:, None] / scale, rtol=0, atol=0.05)


@pytest.mark.slow
def test_uniforms_with_a_known_sum_are_uniform():
    draws = input_draws(KEY, jnp.array([1.5]), jnp.array([[1.0, 1.0]]), None, 4000)
    np.testing.assert_allclose(draws.sum(-1), 1.5, atol=1e-5)
    uniform = scipy.stats.uniform(0.5, 0.5)
    assert scipy.stats.kstest(np.asarray(draws[:, 0]), uniform.cdf).pvalue > LEAST_P_VALUE


@pytest.mark.slow
@pytest.mark.parametrize(("scores_beyond", "noise"), [(-3.0, 0.2), (0.0, 1e-2), (8.0, 1e-2)])
def test_one_input_is_truncated_normal(scores_beyond, noise, precision):
    """Also where what is observed lies beyond the reach of the box."""
    seen = 1.0 + scores_beyond * noise
    parts = jnp.array([seen], precision), jnp.ones((1, 1), precision)
    draws = input_draws(KEY, *parts, jnp.full((1, 1), noise, precision), 4000)
    assert draws.dtype == precision
    exact = scipy.stats.truncnorm((-1 - seen) / noise, (1 - seen) / noise, seen, noise)
    draws = np.asarray(draws[:, 0], float)
    assert (np.abs(draws) <= 1).all()
    assert scipy.stats.kstest(draws, exact.cdf).pvalue > LEAST_P_VALUE


@pytest.mark.slow
def test_draws_of_many_inputs_are_ranked_like_the_truth():
    """Truth and draws are exchangeable if the draws have the posterior distribution."""
    num_inputs, num_outputs, noise = 12, 12, 0.1
    generator = np.random.default_rng(5)
    weights = generator.normal(size=(num_outputs, num_inputs)).astype(np.float32)
    scale = noise * np.sqrt((weights**2).sum(1) / 3)
    truth = generator.uniform(-1, 1, (400, num_inputs))
    seen = truth @ weights.T + scale * generator.normal(size=(400, num_outputs))
    parts = seen.astype(np.float32), weights, np.diag(scale).astype(np.float32)
    draws = np.asarray(input_draws(KEY, *(jnp.asarray(part) for part in parts), 9))
    ranks = (draws < truth).sum(0)
    for index in range(0, num_inputs, 5):
        counts = np.bincount(ranks[:, index], minlength=10)
        assert scipy.stats.chisquare(counts).pvalue > LEAST_P_VALUE


@pytest.mark.slow
def test_outside_of_the_support_there_are_none():
    weights = jnp.array([[1.0, 1.0, 0.5], [1.0, -1.0, 0.5]])
    draws = input_draws(KEY, jnp.array([[0.1, 0.2], [2.4, 2.4]]), weights, None, 10)
    assert np.isfinite(draws[:, 0]).all()
    assert np.isnan(draws[:, 1]).all()


def test_derivatives_are_refused():
    weights = jnp.array([[1.0, 0.5], [0.3, 1.0]])
    for function in (
        lambda point: posterior_moments(point, weights, 0.1 * jnp.eye(2)).mean.sum(),
        lambda point: input_draws(KEY, point, weights, 0.1 * jnp.eye(2), 5).sum(),
    ):
        with pytest.raises(NotImplementedError, match="use finite differences, or log_prob"):
            jax.grad(function)(jnp.zeros(2))
