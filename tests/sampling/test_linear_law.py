"""The known law of the linear outputs: moments in float64, without x64."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nn_uq_dist as nuq
from nn_uq_dist.sampling._linear_law import LinearLaw

BOX = nuq.InputLaw(jnp.zeros(1), half_width=1.0)


def network(offset):
    return lambda x: offset + jnp.array([jnp.tanh(2 * x[0]), 0.02 * jnp.sin(3 * x[0])])


def law_of(linear, offset):
    pairs = nuq.paired_draws(network(offset), linear, jax.random.key(0), 8, progress=False)
    return LinearLaw(pairs)


@pytest.mark.parametrize("offset", [0.0, 1e5])
def test_a_large_common_value_costs_no_digits_over_parts(offset):
    parts = nuq.linearize_parts(network(offset), BOX, 4)
    found = law_of(parts, offset)
    # The law of total variance, from what the parts store.
    stored = (parts.probabilities, parts.loc, parts.jacobian[..., 0], parts.scales)
    share, loc, slope, scale = (np.asarray(part, np.float64) for part in stored)
    mean = loc[0] + share @ (loc - loc[0])
    gaps = loc - mean
    rows = slope * scale
    covariance = (rows.T * share) @ rows / 3 + (gaps.T * share) @ gaps
    sd = np.sqrt(np.diag(covariance))
    np.testing.assert_allclose(found.mean, mean, rtol=1e-15)
    np.testing.assert_allclose(found.sd, sd, rtol=1e-12)
    np.testing.assert_allclose(found.correlation, covariance / np.outer(sd, sd), rtol=1e-12)


def test_a_large_common_value_costs_no_digits_of_a_tangent():
    offset = 1e5
    lin = nuq.linearize(network(offset), BOX)
    found = law_of(lin, offset)
    np.testing.assert_array_equal(found.mean, np.asarray(lin.mean, np.float64))
    slopes = np.abs(np.asarray(lin.jacobian[:, 0], np.float64))
    np.testing.assert_allclose(found.sd, slopes / np.sqrt(3), rtol=1e-14)
