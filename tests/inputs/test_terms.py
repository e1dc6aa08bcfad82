"""`InputTerm`: laws that say what they are made of, alone, in sums and in blocks."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nn_uq_dist as nuq
from nn_uq_dist.basics._known_values import in_float64
from nn_uq_dist.inputs import InputBlocks, InputSum, InputTerm
from nn_uq_dist.inputs._terms import layers
from tests.inputs.test_input_law import all_sizes


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, repr=False)
class SharedError(nuq.inputs.AbstractInputLaw):
    """Inputs that share a uniform error, and have a normal one each; no matrix of all inputs."""

    loc: jax.Array
    width: jax.Array
    scale: jax.Array

    @property
    def terms(self):
        factor = 0 * self.loc[..., None] + self.width[..., None, None]
        return InputTerm(factor, is_uniform=True), InputTerm(self.scale, False, is_diagonal=True)

    def columns(self, jacobian):
        shared = jacobian.sum(axis=-1, keepdims=True) * self.width[..., None, None]
        return shared, jacobian * self.scale[..., None, :]


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, repr=False)
class SharedErrorByColumns(nuq.inputs.AbstractInputLaw):
    """The same law by its columns alone."""

    loc: jax.Array
    width: jax.Array
    scale: jax.Array

    columns = SharedError.columns


PARAMETERS = jnp.array([1.0, 2.0, 3.0]), jnp.array(0.6), jnp.array([0.1, 0.2, 0.3])
BOX = nuq.InputLaw([0.0, 1.0, 2.0], half_width=[1.0, 0.0, 2.0])
AROUND = {
    "alone": lambda law: law,
    "sum": lambda law: InputSum(BOX, law),
    "blocks": lambda law: InputBlocks(law, BOX, law),
    "sum of blocks": lambda law: InputSum(InputBlocks(law, BOX), InputBlocks(BOX, law)),
    "batch": lambda law: InputBlocks(BOX.expand((2,)), law.expand((4, 2))),
}


@pytest.mark.parametrize("name", AROUND)
def test_terms_and_columns_give_the_same_law(name):
    first, second = (
        AROUND[name](kind(*PARAMETERS)) for kind in (SharedError, SharedErrorByColumns)
    )
    for moment in ("mean", "variance", "covariance", "half_range", "normal_scale"):
        expected = getattr(second, moment)
        assert getattr(first, moment).shape == expected.shape
        np.testing.assert_allclose(getattr(first, moment), expected, rtol=1e-6, atol=1e-7)
    image = first.image(np.eye(first.num_inputs, dtype=np.float32))
    np.testing.assert_allclose(image.covariance, first.covariance, rtol=1e-5, atol=1e-7)
    assert first.num_standard_variables[0] == image.uniform.shape[-1]
    assert not first.has_independent_entries
    assert isinstance(in_float64(first).image(np.eye(first.num_inputs)).covariance, np.ndarray)
    draws = np.asarray(first.sample_deviation(jax.random.key(0), (20_000,)), np.float64)
    covariance = np.einsum("s...i,s...j->...ij", draws, draws) / len(draws)
    sd = np.sqrt(np.asarray(first.variance))
    bound = 6 * sd[..., :, None] * sd[..., None, :] * np.sqrt(2 / len(draws))
    assert (np.abs(covariance - first.covariance) <= bound + 1e-7).all()


def test_a_law_that_says_its_terms_makes_no_matrix_of_all_inputs():
    size = 20_000

    def outputs(loc, scale, key):
        law = SharedError(loc, jnp.ones(()), scale)
        blocks = InputBlocks(law, nuq.InputLaw(jnp.zeros(1), 1.0))
        moments = blocks.variance, blocks.half_range, blocks.normal_scale
        return moments, blocks.sample(key), blocks.image(jnp.ones((1, size + 1))).variance

    traced = jax.make_jaxpr(outputs)(jnp.zeros(size), jnp.ones(size), jax.random.key(0))
    assert max(all_sizes(traced.jaxpr)) <= 4 * size


def test_pieces_that_do_not_overlap_share_an_array():
    pieces = [(start, np.full(2, start + 1.0)) for start in (0, 2, 5)]
    together = layers([*pieces, (1, np.full(2, 10.0))], 8)
    np.testing.assert_array_equal(together, [[1, 1, 3, 3, 0, 6, 6, 0], [0, 10, 10, 0, 0, 0, 0, 0]])
    assert layers([], 3) == []
