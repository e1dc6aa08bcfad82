"""The known distribution of the linear outputs: moments in float64, without x64."""

import jax
import jax.numpy as jnp
import numpy as np

import nn_uq_dist as nuq
from nn_uq_dist.sampling._linear_distribution import LinearDistribution

BOX = nuq.Input.box(jnp.zeros(1), half_width=1.0)


def network(offset):
    return lambda x: offset + jnp.array([jnp.tanh(2 * x[0]), 0.02 * jnp.sin(3 * x[0])])


def test_a_large_common_value_costs_no_digits():
    offset = 1e5
    lin = nuq.linearize(network(offset), BOX)
    pairs = nuq.paired_draws(network(offset), lin, jax.random.key(0), 8, progress=False)
    found = LinearDistribution(pairs)
    np.testing.assert_array_equal(found.mean, np.asarray(lin.mean, np.float64))
    slopes = np.abs(np.asarray(lin.jacobian[:, 0], np.float64))
    np.testing.assert_allclose(found.sd, slopes / np.sqrt(3), rtol=1e-14)
