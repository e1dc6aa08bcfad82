"""Correlations of many outputs at once, against those of each two with weights of their own."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nn_uq_dist as nuq
from nn_uq_dist.sampling._linear_control import correlations


def test_each_two_have_the_weights_of_their_own():
    """By a regression on the five columns of the pair, in so many words."""
    rng = np.random.default_rng(0)
    z = rng.normal(size=(3, 3)) @ rng.normal(size=(3, 400))
    z /= np.sqrt(np.diag(z @ z.T))[:, None] / 20
    known = np.array([[1.0, 0.3, -0.2], [0.3, 1.0, 0.5], [-0.2, 0.5, 1.0]])
    network = 1e3 + np.exp(z) + rng.normal(size=z.shape)
    used = rng.uniform(size=z.shape) > 0.1
    found = correlations(z, np.where(used, network, np.nan), used, known)
    for a, b in ((0, 1), (0, 2), (1, 2)):
        columns = np.stack([z[a], z[b], z[a] ** 2 - 1, z[b] ** 2 - 1, z[a] * z[b] - known[a, b]])
        both = (used[a] & used[b]).astype(float)

        def mean(response, columns=columns, both=both):
            slopes = np.linalg.lstsq(
                np.vstack([np.ones(400), columns]).T, np.where(both, response, 0.0)
            )[0]
            return slopes[0]  # where all columns have their known mean, zero

        x, y = (network[k] - network[k].mean() for k in (a, b))
        share = mean(both)
        x, y = x - mean(x) / share, y - mean(y) / share
        expected = mean(x * y) / np.sqrt(mean(x * x) * mean(y * y))
        np.testing.assert_allclose(found[[a, b], [b, a]], expected, rtol=1e-9)
    assert (np.diag(found) == 1).all()


def test_they_are_those_of_the_estimates():
    def network(x):
        return jnp.stack([x[0] * x[1], jnp.exp(x[1]), jnp.log(x[0]), x.sum(), 0 * x[0] + 3.0, x[1]])

    f = nuq.Input.box(jnp.array([[0.5, 1.0], [1.5, 0.2]]), half_width=jnp.array([0.6, 1.0]))
    lin = nuq.linearize(network, f)
    with pytest.warns(RuntimeWarning, match="9 of 2400 network outputs drawn are NaN"):
        pairs = nuq.paired_draws(network, lin, jax.random.key(0), 200, progress=False)
    statistics = nuq.paired_statistics(pairs)
    expected = statistics.correlation.value
    assert statistics.correlation_matrix.shape == (2, 6, 6)
    np.testing.assert_allclose(statistics.correlation_matrix, expected, rtol=1e-8, atol=1e-10)
