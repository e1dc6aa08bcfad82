"""`Input.normal`: a factor of any shape, and no matrix of inputs times inputs."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import nn_uq_dist as nuq
from nn_uq_dist import Input
from nn_uq_dist.basics.concrete import in_float64
from tests.array_sizes import largest_array

FACTOR = np.array([[1.0, 0.0], [1.0, 1.0], [0.0, 2.0]])


def test_moments_follow_the_factor(precision):
    distribution = Input.normal(np.arange(3.0), factor=FACTOR)
    assert distribution.dtype == precision
    rtol = 1e-13 if precision == "float64" else 1e-6
    np.testing.assert_allclose(distribution.covariance, FACTOR @ FACTOR.T, rtol=rtol)
    np.testing.assert_allclose(distribution.variance, [1, 2, 4], rtol=rtol)
    np.testing.assert_allclose(distribution.normal_scale, np.sqrt([1, 2, 4]), rtol=rtol)
    assert distribution.half_width is None
    assert distribution.num_standard_variables == (0, 2)
    values = np.array([[1.0, 2.0], [0.5, -1.0]])
    found = distribution.deviation_at(np.zeros((2, 0)), values)
    np.testing.assert_allclose(found, values @ FACTOR.T, rtol=rtol)
    exact = in_float64(distribution)
    assert isinstance(exact.image(np.ones((1, 3))).covariance, np.ndarray)


@pytest.mark.parametrize(
    ("factor", "independent"),
    [
        (FACTOR, False),
        ([[1.0], [1.0], [0.0]], False),
        ([[1.0, 1.0], [1.0, -1.0], [0.0, 0.0]], True),
        (np.stack([np.eye(3), np.ones((3, 3))]), False),
    ],
)
def test_independence_is_that_of_the_rows(factor, independent):
    assert Input.normal(np.zeros(3), factor=factor).has_independent_entries == independent


def test_very_many_inputs_take_vectors_and_the_factor_only():
    size, rank = 150_528, 10
    loc, scale = jnp.zeros(size), jnp.ones(size)
    factor = jnp.ones((size, rank))
    row = jnp.full((1, size), 1e-3)

    def outputs(loc, factor, diagonal, key):
        f = dist.LowRankMultivariateNormal(loc, factor, diagonal)
        parts = {"image": f, "level": dist.Uniform(-1.0, 1.0)}
        lin = nuq.linearize(lambda x: row @ x["image"] + x["level"], parts)
        distribution = lin.input
        moments = (
            lin.variance,
            distribution.variance,
            distribution.normal_scale,
            distribution.half_width,
        )
        return (
            moments,
            lin.marginals().normal_scale,
            lin.sample(key, (2,)),
            distribution.sample(key),
        )

    largest = largest_array(outputs, loc, factor, scale, jax.random.key(0))
    # A draw or a Jacobian has so many numbers for each column; a matrix would have 2e10.
    assert largest <= 2 * size * (rank + 3)
    distribution = nuq.inputs.as_input(dist.LowRankMultivariateNormal(loc, factor, scale))
    variance = distribution.image(row).variance[0]
    assert variance == pytest.approx(rank * (size * 1e-3) ** 2 + size * 1e-6, rel=5e-3)


def test_few_draws_of_many_inputs_as_a_factor():
    draws = np.random.default_rng(0).normal(size=(4, 30))
    centered = draws - draws.mean(axis=0)
    distribution = Input.normal(draws.mean(axis=0), factor=centered.T / np.sqrt(3))
    np.testing.assert_allclose(distribution.covariance, np.cov(draws.T), atol=1e-5)


ERRORS = {
    "vector": (
        lambda: Input.normal(np.zeros(3), factor=np.ones(3)),
        r"N_x = 3 \(as mean\).*shape \(3",
    ),
    "size": (
        lambda: Input.normal(np.zeros(3), factor=np.ones((2, 1))),
        r"shape \(2, 1\); pass a col",
    ),
    "no column": (
        lambda: Input.normal(np.zeros(3), factor=np.ones((3, 0))),
        r"r >= 1, got shape \(3, 0",
    ),
}


@pytest.mark.parametrize("case", ERRORS)
def test_errors(case):
    call, message = ERRORS[case]
    with pytest.raises(ValueError, match=message):
        call()
    with pytest.raises(TypeError, match="factor must be an array of real numbers"):
        Input.normal([0.0], factor="a")
