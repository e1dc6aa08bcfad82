"""The exact error of a linearized network: against subtraction, its layers, its arguments."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from nn_uq_dist import Input, LeakyReLUNetwork
from nn_uq_dist import error_analysis as ea

SIZE = 4
FUNCTIONS = (ea.total_error, ea.layer_contributions)


def network(num_layers, seed=0, **options):
    rng = np.random.default_rng(seed)
    sizes = [SIZE, *[6] * num_layers, SIZE]
    weights = [rng.normal(size=(n, m)) * np.sqrt(2 / m) for m, n in itertools.pairwise(sizes)]
    biases = [0.3 * rng.normal(size=n) for n in sizes[1:-1]]
    return LeakyReLUNetwork(weights[:-1], biases, weights[-1], **options)


@jax.jit
def by_subtraction(net, mu, z):
    """The error from its definition, with the Jacobian of autodiff."""
    outputs = jax.vmap(net)(mu + z.reshape(-1, SIZE)).reshape(z.shape)
    return outputs - net(mu) - z @ jax.jacfwd(net)(mu).T


@pytest.mark.parametrize(("num_layers", "skip"), [(1, True), (2, False), (20, True)])
@pytest.mark.usefixtures("x64")
def test_error_is_what_subtraction_gives(num_layers, skip):
    rng = np.random.default_rng(num_layers)
    net = network(num_layers, num_layers, negative_slope=0.1, skip_connection=skip)
    mu, z = rng.normal(size=SIZE), 2 * rng.normal(size=(5, 40, SIZE))
    expected = by_subtraction(net, mu, z)
    assert np.abs(expected).max() > 0.05
    total, layers = jax.jit(lambda *a: tuple(f(*a) for f in FUNCTIONS))(net, mu, z)
    np.testing.assert_allclose(total, expected, rtol=0, atol=1e-10)
    assert layers.shape == (5, 40, num_layers, SIZE)
    np.testing.assert_allclose(layers.sum(axis=-2), expected, rtol=0, atol=1e-10)


@pytest.mark.usefixtures("x64")
def test_last_layer_contributes_what_the_true_perturbation_gives():
    # By loops over the neurons of the last layer, from the network's own pre-activations.
    net = network(3, negative_slope=0.2)
    rng = np.random.default_rng(1)
    mu, z = rng.normal(size=SIZE), 4 * rng.normal(size=SIZE)
    before, after = (np.asarray(net.pre_activations(x)[-1]) for x in (mu, mu + z))
    residual = [
        (v - 0.2 * v if u < 0 <= v else 0.2 * v - v if v < 0 <= u else 0.0)
        for u, v in zip(before, after, strict=True)
    ]
    assert np.count_nonzero(residual) >= 2
    expected = np.asarray(net.output_matrix) @ residual
    np.testing.assert_allclose(ea.layer_contributions(net, mu, z)[-1], expected, rtol=1e-12)


def test_result_follows_the_dtype_and_is_zero_without_flips(precision):
    net = network(2, skip_connection=True)
    mu = np.full(SIZE, 0.7)
    z = 1e-6 * np.random.default_rng(0).normal(size=(3, SIZE))
    for function in FUNCTIONS:
        error = function(net, jnp.asarray(mu), jnp.asarray(z))
        assert error.dtype == precision
        assert not error.any()


def test_small_errors_keep_their_digits():
    # Next to an output of 1000 the difference of float32 numbers is off by 6e-5.
    net = LeakyReLUNetwork([[[1.0], [1.0]]], [[1000.0, -1e-3]], [[1.0, 1.0]])
    error = ea.total_error(net, [0.0], [[2e-3], [1.001e-3]])
    np.testing.assert_allclose(error[:, 0], [0.99e-3, 0.99e-6], rtol=1e-4)


def test_arguments_that_do_not_fit_are_refused():
    net, mu, function = network(1), np.zeros(SIZE), ea.layer_contributions
    with pytest.raises(TypeError, match=r"network must be a LeakyReLUNetwork, got .*from_network"):
        function(jnp.tanh, mu, mu)
    with pytest.raises(ValueError, match=r"mu must have shape \(4,\), got \(2, 4\).*vmap"):
        function(net, np.zeros((2, SIZE)), mu)
    for z in (0.1, np.zeros((SIZE, 2))):
        with pytest.raises(ValueError, match=r"z must have shape \(\.\.\., 4\), got"):
            function(net, mu, z)
    with pytest.raises(TypeError, match="z must be an array of real numbers"):
        function(net, mu, mu * 1j)


def test_distributions_that_do_not_fit_are_refused():
    net, box = network(1), Input.box(np.zeros(SIZE), 1.0)
    for function in (ea.is_exact_on_support, ea.flip_probabilities):
        with pytest.raises(TypeError, match="network must be a LeakyReLUNetwork"):
            function(jnp.tanh, box)
        with pytest.raises(TypeError, match="f must be a distribution"):
            function(net, np.zeros(SIZE))
        with pytest.raises(ValueError, match="f must have N_x = 4 inputs as network, got 3"):
            function(net, Input.box(np.zeros(3), 1.0))
    with pytest.raises(TypeError, match=r"must get known numbers.*outside of jit"):
        jax.jit(lambda net: ea.is_exact_on_support(net, box))(net)
    broken = jax.tree.map(lambda leaf: leaf * jnp.nan, net)
    with pytest.raises(ValueError, match="must be finite, got nan"):
        ea.is_exact_on_support(broken, box)


def test_values_that_are_no_numbers_give_nan():
    net = LeakyReLUNetwork([[[1.0], [2.0]]], [[-1.0, -1.0]], [[1.0, 1.0]])
    error = ea.total_error
    assert np.isnan(error(net, [0.0], [np.nan])).all()
    assert np.isnan(error(net, [np.nan], [1.0])).all()
    traced = jax.jit(lambda slope: error(
        LeakyReLUNetwork([[[1.0]]], [[-1.0]], [[1.0]], slope), [0.0], [0.1]
    ))  # fmt: skip
    assert np.isnan(traced(-0.5)).all()


def test_stacked_networks_are_refused():
    net = LeakyReLUNetwork([[[1.0], [2.0]]], [[-1.0, -1.0]], [[1.0, 1.0]])
    stacked = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf]), net)
    with pytest.raises(
        ValueError, match=r"one network, got stacked ones.*\(2, 1, 2\); use jax.vmap"
    ):
        ea.total_error(stacked, [0.0], [1.0])
    with pytest.raises(ValueError, match=r"use jax\.vmap"):
        ea.flip_probabilities(stacked, Input.box([0.0], half_width=1.0))
