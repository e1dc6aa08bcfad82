"""Flip probabilities of the neurons: closed forms, and Monte Carlo of the linear model."""

import jax
import numpy as np
import numpyro.distributions as dist
import pytest
import scipy.stats

from nn_uq_dist import InputLaw, LeakyReLUNetwork
from nn_uq_dist import error_analysis as ea


def network(seed=0):
    rng = np.random.default_rng(seed)
    weights = [rng.normal(size=shape) for shape in ((5, 3), (4, 5), (2, 4))]
    return LeakyReLUNetwork(weights[:2], [rng.normal(size=5), rng.normal(size=4)], weights[2], 0.2)


def test_one_uniform_has_a_closed_form(precision):
    weights = np.array([1.0, -2.0, 0.5, 0.3, 0.0, 0.0, 4.0])
    biases = np.array([-0.5, 0.0, 1.0, -0.1, 0.0, -1.0, 7.999])
    net = LeakyReLUNetwork([weights[:, None]], [biases], np.ones((1, 7)))
    (layer,) = ea.flip_probabilities(net, InputLaw([0.0], half_width=2.0))
    assert layer.dtype == precision
    with np.errstate(divide="ignore", invalid="ignore"):
        expected = np.clip((1 - np.abs(biases) / np.abs(2 * weights)) / 2, 0, 1)
    expected[4:6] = 0  # a neuron without weights never flips
    np.testing.assert_allclose(layer, expected, rtol=1e-5 if precision == "float64" else 2e-3)


@pytest.mark.slow
@pytest.mark.usefixtures("x64")
def test_gaussian_input_has_a_closed_form():
    net = network()
    rng = np.random.default_rng(1)
    mu, factor = rng.normal(size=3), np.tril(rng.normal(size=(3, 3)))
    np.fill_diagonal(factor, np.abs(np.diag(factor)))
    law = dist.MultivariateNormal(mu, scale_tril=factor)
    for layer, h, rows in linear_model(net, mu, ea.flip_probabilities(net, law)):
        scale = np.linalg.norm(rows @ factor, axis=1)
        np.testing.assert_allclose(layer, scipy.stats.norm.sf(np.abs(h) / scale), rtol=1e-9)


def linear_model(net, mu, layers):
    """Each layer with its pre-activations at `mu` and their Jacobian by autodiff."""
    hidden = net.pre_activations(mu)
    return zip(layers, hidden, jax.jacrev(net.pre_activations)(mu), strict=True)


@pytest.mark.parametrize("gaussian", [False, True])
@pytest.mark.usefixtures("x64")
def test_probabilities_match_monte_carlo_of_the_linear_model(gaussian):
    # Nine neurons, twice: a difference of five standard errors has probability 1e-5.
    net, count = network(), 100_000
    rng = np.random.default_rng(2)
    mu, half_width = rng.normal(size=3), np.array([0.5, 1.0, 1.5])
    z = rng.uniform(-1, 1, (count, 3)) * half_width
    factor = None
    if gaussian:
        factor = np.array([[0.4, 0.0, 0.0], [0.2, 0.0, 0.0], [-0.3, 0.1, 0.5]])
        z = z + rng.normal(size=(count, 3)) @ factor.T
    probabilities = ea.flip_probabilities(net, InputLaw(mu, half_width, factor))
    assert [layer.shape for layer in probabilities] == [(5,), (4,)]
    for layer, h, rows in linear_model(net, mu, probabilities):
        frequency = np.mean((h + z @ np.asarray(rows).T >= 0) != (h >= 0), axis=0)
        error = np.sqrt(np.asarray(layer) * (1 - np.asarray(layer)) / count)
        assert (np.abs(frequency - layer) <= 5 * error).all()
    assert sum(int((layer > 0.05).sum()) for layer in probabilities) >= 4


@pytest.mark.usefixtures("x64")
def test_batch_under_jit_equals_single_laws_and_agrees_with_the_certificate():
    net, mu = network(), np.array([0.3, -0.2, 0.5])
    half_width = 10 ** np.linspace(-3, 0, 12)[:, None]
    law = InputLaw(np.broadcast_to(mu, (12, 3)), half_width)
    batch = jax.jit(ea.flip_probabilities)(net, law)
    assert [layer.shape for layer in batch] == [(12, 5), (12, 4)]
    for i in (0, 11):
        single = ea.flip_probabilities(net, InputLaw(mu, half_width[i]))
        for layer, one in zip(batch, single, strict=True):
            np.testing.assert_allclose(layer[i], one, rtol=1e-10)
    # All are zero exactly where no neuron can flip.
    exact = ea.is_exact_on_support(net, law)
    assert 0 < exact.sum() < 12
    np.testing.assert_array_equal(exact, ~np.concatenate(batch, axis=-1).any(axis=-1))
