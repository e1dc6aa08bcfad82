"""Errors of linearized networks, layer by layer, against subtraction."""

import itertools

import jax
import numpy as np
import pytest

from nn_uq_dist import LeakyReLUNetwork

pytestmark = pytest.mark.viz


@pytest.mark.usefixtures("x64")
def test_errors_are_what_subtraction_gives(operators):
    errors, rng = operators.layer_errors, np.random.default_rng(5)
    sizes = [4, *[6] * 5, 4]
    weights = [rng.normal(size=(n, m)) * np.sqrt(2 / m) for m, n in itertools.pairwise(sizes)]
    biases = [0.3 * rng.normal(size=n) for n in sizes[1:-1]]
    net = LeakyReLUNetwork(weights[:-1], biases, weights[-1], 0.1, skip_connection=True)
    mu, z = rng.normal(size=4), 2 * rng.normal(size=(200, 4))
    expected = jax.vmap(net)(mu + z) - net(mu) - z @ jax.jacfwd(net)(mu).T
    assert np.abs(expected).max() > 0.05
    np.testing.assert_allclose(errors.total_error(net, mu, z), expected, rtol=0, atol=1e-10)
    layers = errors.layer_contributions(net, mu, z)
    np.testing.assert_allclose(layers.sum(axis=-2), expected, rtol=0, atol=1e-10)
    # The last layer's share, neuron by neuron from the network's own pre-activations.
    before = np.asarray(net.pre_activations(mu)[-1])
    after = np.asarray(jax.vmap(lambda x: net.pre_activations(x)[-1])(mu + z))
    flips = (before >= 0) != (after >= 0)
    residual = np.where(flips, 0.9 * np.abs(after), 0.0)
    np.testing.assert_allclose(layers[:, -1], residual @ weights[-1].T, rtol=0, atol=1e-10)


def test_small_errors_keep_their_digits_and_are_zero_without_flips(operators):
    # Next to an output of 1000 the difference of float32 numbers is off by 6e-5.
    net = LeakyReLUNetwork([[[1.0], [1.0]]], [[1000.0, -1e-3]], [[1.0, 1.0]])
    error = operators.layer_errors.total_error(net, [0.0], [[2e-3], [1.001e-3], [9e-4]])
    np.testing.assert_allclose(error[:, 0], [0.99e-3, 0.99e-6, 0], rtol=1e-4)
