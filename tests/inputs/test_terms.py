"""`InputTerm`: distributions that say what they are made of, alone, in sums and in blocks."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy.linalg import block_diag

import nn_uq_dist as nuq
from nn_uq_dist import Input
from nn_uq_dist.basics.concrete import in_float64
from nn_uq_dist.inputs import InputTerm, as_input
from nn_uq_dist.inputs.terms import layers
from tests.array_sizes import largest_array


def shared_error(mean, width, scale):
    """Inputs that share a uniform error, and have a normal one each; no matrix of all inputs."""
    factor = jnp.full((len(mean), 1), width)
    return nuq.Input(mean, [InputTerm(factor, True), InputTerm(scale, False, is_diagonal=True)])


LAW = shared_error(jnp.array([1.0, 2.0, 3.0]), 0.6, jnp.array([0.1, 0.2, 0.3]))
OWN = 0.6**2 / 3 + np.diag([0.1, 0.2, 0.3]) ** 2
BOX = nuq.Input.box([0.0, 1.0, 2.0], half_width=[1.0, 0.0, 2.0])
BESIDE = np.diag([1.0, 0.0, 4.0]) / 3
# With the covariances, and the half-widths of the uniform parts.
TRIL = np.array([[1.0, 0.0], [0.4, 0.5]])
AROUND = {
    "sum of distributions": (
        as_input(dist.Uniform(-1.0, 1.0).expand([2]).to_event(1))
        + as_input(dist.MultivariateNormal(jnp.ones(2), scale_tril=jnp.asarray(TRIL)))
        + nuq.Input.box(jnp.full(2, 3.0), 0.5)
        + nuq.Input.normal(jnp.zeros(2), 0.25),
        np.eye(2) * (1 / 3 + 0.25 / 3 + 0.0625) + TRIL @ TRIL.T,
        [1.5] * 2,
    ),
    "alone": (LAW, OWN, [0.6] * 3),
    "sum": (BOX + LAW, OWN + BESIDE, [1.6, 0.6, 2.6]),
    "sum of blocks": (
        Input.join(LAW, BOX) + Input.join(BOX, LAW),
        block_diag(OWN + BESIDE, OWN + BESIDE),
        [1.6, 0.6, 2.6] * 2,
    ),
    "batch": (
        Input.join(BOX.expand((2,)), LAW.expand((4, 2)), LAW),
        np.tile(block_diag(BESIDE, OWN, OWN), (4, 2, 1, 1)),
        np.tile([1.0, 0.0, 2.0, *[0.6] * 6], (4, 2, 1)),
    ),
}


@pytest.mark.parametrize("name", AROUND)
def test_moments_columns_and_draws_follow_from_the_terms(name):
    distribution, covariance, half_width = AROUND[name]
    np.testing.assert_allclose(distribution.covariance, covariance, rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(
        distribution.variance, np.diagonal(covariance, axis1=-2, axis2=-1), rtol=1e-5, atol=1e-7
    )
    np.testing.assert_allclose(distribution.half_width, half_width, rtol=1e-6)
    image = distribution.image(np.eye(distribution.num_inputs, dtype=np.float32))
    np.testing.assert_allclose(image.covariance, covariance, rtol=1e-5, atol=1e-7)
    assert distribution.num_standard_variables[0] == image.uniform.shape[-1]
    assert not distribution.has_independent_entries
    exact = in_float64(distribution).image(np.eye(distribution.num_inputs)).covariance
    assert isinstance(exact, np.ndarray)
    assert exact.dtype == np.float64
    draws = np.asarray(distribution.sample_deviation(jax.random.key(0), (20_000,)), np.float64)
    found = np.einsum("s...i,s...j->...ij", draws, draws) / len(draws)
    sd = np.sqrt(np.diagonal(covariance, axis1=-2, axis2=-1))
    bound = 6 * sd[..., :, None] * sd[..., None, :] * np.sqrt(2 / len(draws))
    assert (np.abs(found - covariance) <= bound + 1e-7).all()


def test_a_distribution_that_says_its_terms_makes_no_matrix_of_all_inputs():
    size = 20_000

    def outputs(loc, scale, key):
        distribution = shared_error(loc, 1.0, scale)
        blocks = Input.join(distribution, nuq.Input.box(jnp.zeros(1), 1.0))
        moments = blocks.variance, blocks.half_width, blocks.normal_scale
        return moments, blocks.sample(key), blocks.image(jnp.ones((1, size + 1))).variance

    largest = largest_array(outputs, jnp.zeros(size), jnp.ones(size), jax.random.key(0))
    assert largest <= 4 * size


def test_pieces_that_do_not_overlap_share_an_array():
    pieces = [(start, np.full(2, start + 1.0)) for start in (0, 2, 5)]
    together = layers([*pieces, (1, np.full(2, 10.0))], 8)
    np.testing.assert_array_equal(together, [[1, 1, 3, 3, 0, 6, 6, 0], [0, 10, 10, 0, 0, 0, 0, 0]])
    assert layers([], 3) == []
