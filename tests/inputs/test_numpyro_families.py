"""Families that are exact: a linear network maps their means and covariances, without remarks."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
import scipy.linalg

import nn_uq_dist as nuq
from nn_uq_dist.inputs import as_input

ADJACENT = np.array([[0, 1, 0, 1], [1, 0, 1, 0], [0, 1, 0, 1], [1, 0, 1, 0]], float)
STEP = np.array([[1.0, 0.5], [0.0, 0.9]])
NOISE = np.array([[0.4, 0.1], [0.1, 0.3]])
ROWS = np.array([[2.0, 0.5], [0.5, 1.0]])
COLUMNS = np.array([[1.0, 0.3, 0], [0.3, 2, 0], [0, 0, 1]])
CIRCLE = np.array([1.0, 0.5, 0.2, 0.2, 0.5])
FACTOR = np.array([[1.0, 0.0], [2.0, 1.0], [0.5, -1.0], [0.0, 0.3]])


def state_space_moments(count, start):
    """Mean and covariance of the states of a linear recursion, step by step."""
    size = len(start)
    mean, covariance = np.zeros((count, size)), np.zeros((count, size, count, size))
    state, spread = start, np.zeros((size, size))
    for t in range(count):
        state, spread = STEP @ state, STEP @ spread @ STEP.T + NOISE
        mean[t], block = state, spread
        for later in range(t, count):
            covariance[later, :, t, :], covariance[t, :, later, :] = block, block.T
            block = STEP @ block
    return mean.ravel(), covariance.reshape(count * size, -1)


START = np.array([1.0, -2.0])
FAMILIES = {
    "low rank": (
        lambda: dist.LowRankMultivariateNormal(jnp.arange(4.0), FACTOR, jnp.arange(1.0, 5.0)),
        np.arange(4.0),
        FACTOR @ FACTOR.T + np.diag(np.arange(1.0, 5.0)),
    ),
    "random walk": (
        lambda: dist.GaussianRandomWalk(0.7, 5),
        np.zeros(5),
        0.49 * np.minimum.outer(np.arange(1, 6), np.arange(1, 6)),
    ),
    "state space": (
        lambda: dist.GaussianStateSpace(
            3, jnp.asarray(STEP), covariance_matrix=jnp.asarray(NOISE), initial_value=START
        ),
        *state_space_moments(3, START),
    ),
    "conditional autoregression": (
        lambda: dist.CAR(jnp.arange(4.0), 0.6, 2.0, jnp.asarray(ADJACENT)),
        np.arange(4.0),
        np.linalg.inv(2.0 * (np.diag(ADJACENT.sum(axis=1)) - 0.6 * ADJACENT)),
    ),
    "circulant": (
        lambda: dist.CirculantNormal(jnp.arange(5.0), jnp.asarray(CIRCLE)),
        np.arange(5.0),
        scipy.linalg.toeplitz(CIRCLE),
    ),
    "matrix": (
        lambda: dist.MatrixNormal(
            jnp.arange(6.0).reshape(2, 3), jnp.linalg.cholesky(ROWS), jnp.linalg.cholesky(COLUMNS)
        ),
        np.arange(6.0),
        np.kron(ROWS, COLUMNS),
    ),
    "independent vectors": (
        lambda: dist.MultivariateNormal(jnp.zeros((2, 3)), jnp.asarray(COLUMNS)).to_event(1),
        np.zeros(6),
        np.kron(np.eye(2), COLUMNS),
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.usefixtures("x64")
def test_linear_outputs_of_gaussian_families_are_normal_with_their_covariance(name):
    make, mean, covariance = FAMILIES[name]
    f = make()
    size = mean.size
    rows = np.random.default_rng(0).normal(size=(2, size))
    lin = nuq.linearize(lambda x: rows @ x.reshape(-1), f)
    assert not lin.input.is_transformed
    assert not any(lin.remarks)
    np.testing.assert_allclose(lin.input.covariance, covariance, rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(lin.input.normal_scale**2, np.diag(covariance), rtol=1e-10)
    np.testing.assert_allclose(lin.mean, rows @ mean, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(lin.covariance, rows @ covariance @ rows.T, rtol=1e-10)
    assert lin.image().uniform is None


ZEROS = np.zeros((4, 3))
BATCHES = {
    "uniform, expanded inside and outside": lambda: (
        dist.Uniform(np.zeros((4, 1)), 2.0).expand((4, 3)).to_event(1).expand((2, 4))
    ),
    "normal of integers": lambda: dist.Normal(np.arange(3), 2).to_event(1),
    "multivariate normal": lambda: dist.MultivariateNormal(ZEROS, jnp.eye(3) + 0.5),
    "low rank, expanded": lambda: dist.LowRankMultivariateNormal(
        ZEROS, jnp.ones((3, 2)), jnp.ones(3)
    ).expand([2, 4]),
    "random walk, expanded": lambda: dist.GaussianRandomWalk(2.0, 4).expand([3, 2]),
    "conditional autoregression": lambda: dist.CAR(
        jnp.zeros((2, 4)), jnp.array([0.1, 0.5]), 1.0, jnp.asarray(ADJACENT)
    ),
    "circulant": lambda: dist.CirculantNormal(jnp.zeros((2, 5)), jnp.asarray(CIRCLE)),
    "matrix": lambda: dist.MatrixNormal(jnp.ones((4, 2, 3)), jnp.eye(2), jnp.eye(3)),
    "independent vectors": lambda: dist.MultivariateNormal(
        jnp.zeros((4, 2, 3)), jnp.asarray(COLUMNS)
    ).to_event(1),
}


@pytest.mark.parametrize("name", BATCHES)
@pytest.mark.usefixtures("x64")
def test_batches_have_the_moments_that_numpyro_gives(name):
    f = BATCHES[name]()
    distribution = as_input(f)
    shape = f.batch_shape + f.event_shape
    # Parameters that were written in float32 stay so.
    rtol = 1e-10 if distribution.dtype == jnp.float64 else 1e-5
    assert distribution.batch_shape == f.batch_shape
    mean = distribution.network_input(distribution.mean)
    np.testing.assert_allclose(mean, np.broadcast_to(f.mean, shape), atol=1e-12)
    if name == "matrix":
        expected = np.ones(shape)
    elif name.startswith("conditional"):
        expected = np.diagonal(np.linalg.inv(f.precision_matrix), axis1=-2, axis2=-1)
    else:
        expected = np.broadcast_to(f.variance, shape)
    found = distribution.variance
    np.testing.assert_allclose(found.reshape(shape), expected, rtol=rtol, atol=1e-12)


def test_traced_parameters_have_gradients():
    def total_variances(s):
        uniform = dist.Uniform(-s * jnp.ones(2), s).to_event(1)
        normal = dist.Normal(jnp.zeros(2), s / jnp.sqrt(3.0)).to_event(1)
        many = dist.MultivariateNormal(jnp.zeros(2), covariance_matrix=s**2 / 3 * jnp.eye(2))
        return jnp.stack([as_input(f).variance.sum() for f in (uniform, normal, many)])

    # 2 s^2 / 3, so the derivative is 4 s / 3.
    np.testing.assert_allclose(jax.jit(jax.jacrev(total_variances))(1.5), 2.0, rtol=1e-5)


def test_delta_is_known():
    lin = nuq.linearize(lambda x: x**2, dist.Delta(jnp.array([1.0, 2.0]), event_dim=1))
    assert lin.input.terms == ()
    np.testing.assert_array_equal(lin.mean, [1.0, 4.0])
    np.testing.assert_array_equal(lin.variance, [0.0, 0.0])
