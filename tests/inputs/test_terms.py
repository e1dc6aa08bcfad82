"""Terms of inputs: moments, columns and draws, alone, in sums and in blocks."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy.linalg import block_diag

from nn_uq_dist import Input
from nn_uq_dist.basics.concrete import in_float64
from nn_uq_dist.distributions import LinearImage
from nn_uq_dist.inputs import InputTerm, as_input

# Three inputs that share a uniform error, and have a normal one each.
SHARED = Input(
    jnp.array([1.0, 2.0, 3.0]),
    [
        InputTerm(jnp.full((3, 1), 0.6), is_uniform=True),
        InputTerm(jnp.array([0.1, 0.2, 0.3]), is_uniform=False, is_diagonal=True),
    ],
)
OWN = 0.6**2 / 3 + np.diag([0.1, 0.2, 0.3]) ** 2
BOX = Input.box([0.0, 1.0, 2.0], half_width=[1.0, 0.0, 2.0])
BESIDE = np.diag([1.0, 0.0, 4.0]) / 3
TRIL = np.array([[1.0, 0.0], [0.4, 0.5]])
NORMAL = Input.normal([2.0, 3.0], scale_tril=TRIL)
KNOWN = Input.known([5.0])
# With the covariances, and the half-widths of the uniform parts.
CASES = {
    "sum of distributions": (
        as_input(dist.Uniform(-1.0, 1.0).expand([2]).to_event(1))
        + as_input(dist.MultivariateNormal(jnp.ones(2), scale_tril=jnp.asarray(TRIL)))
        + Input.box(jnp.full(2, 3.0), 0.5)
        + Input.normal(jnp.zeros(2), 0.25)
        + Input.known([1.0, 1.0]),
        np.eye(2) * (1 / 3 + 0.25 / 3 + 0.0625) + TRIL @ TRIL.T,
        [1.5] * 2,
    ),
    "sum of blocks": (
        Input.join(SHARED, BOX) + Input.join(BOX, SHARED),
        block_diag(OWN + BESIDE, OWN + BESIDE),
        [1.6, 0.6, 2.6] * 2,
    ),
    "batch": (
        Input.join(BOX.expand((2,)), SHARED.expand((4, 2)), SHARED),
        np.tile(block_diag(BESIDE, OWN, OWN), (4, 2, 1, 1)),
        np.tile([1.0, 0.0, 2.0, *[0.6] * 6], (4, 2, 1)),
    ),
    "known between": (
        Input.join(BOX, KNOWN, NORMAL),
        block_diag(BESIDE, 0.0, TRIL @ TRIL.T),
        [1.0, 0.0, 2.0, 0.0, 0.0, 0.0],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_moments_columns_and_draws_follow_from_the_terms(name):
    f, covariance, half_width = CASES[name]
    variance = np.diagonal(covariance, axis1=-2, axis2=-1)
    np.testing.assert_allclose(f.covariance, covariance, rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(f.variance, variance, rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(f.half_width, half_width, rtol=1e-6)
    image = LinearImage(*f.columns(np.eye(f.num_inputs, dtype=np.float32)))
    np.testing.assert_allclose(image.covariance, covariance, rtol=1e-5, atol=1e-7)
    num_uniform, num_normal = f.num_standard_variables
    assert num_uniform == image.uniform.shape[-1]
    assert not f.has_independent_entries
    exact = in_float64(f)
    of_exact = LinearImage(*exact.columns(np.eye(f.num_inputs)))
    for found in (exact.covariance, of_exact.covariance):
        assert isinstance(found, np.ndarray)
        np.testing.assert_allclose(found, covariance, rtol=3e-7, atol=1e-12)
    # Inputs at values of the variables are what the columns make of them.
    rng = np.random.default_rng(0)
    uniform = rng.normal(size=(7, *f.batch_shape, num_uniform))
    normal = rng.normal(size=(*f.batch_shape, num_normal))
    expected = np.einsum("...ij,s...j->s...i", image.uniform, uniform)
    if num_normal:
        expected = expected + np.einsum("...ij,...j->...i", image.normal, normal)
    found = f.deviation_at(jnp.asarray(uniform), jnp.asarray(normal))
    np.testing.assert_allclose(found, expected, atol=1e-5)
    draws = np.asarray(f.sample_deviation(jax.random.key(0), (20_000,)), np.float64)
    found = np.einsum("s...i,s...j->...ij", draws, draws) / len(draws)
    sd = np.sqrt(variance)
    bound = 6 * sd[..., :, None] * sd[..., None, :] * np.sqrt(2 / len(draws))
    assert (np.abs(found - covariance) <= bound + 1e-7).all()
    assert (np.abs(draws.mean(axis=0)) <= 6 * sd / np.sqrt(len(draws)) + 1e-7).all()


def test_known_inputs_alone_are_constant():
    for f in (Input.join(KNOWN, KNOWN), KNOWN + KNOWN):
        draws = f.sample(jax.random.key(0), (3,))
        np.testing.assert_array_equal(draws, np.tile(f.mean, (3, 1)))
        np.testing.assert_array_equal(f.covariance, np.zeros((f.num_inputs, f.num_inputs)))
        assert f.has_independent_entries
