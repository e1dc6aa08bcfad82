"""Flips of neurons: how probable, and the certificate that there are none."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

from nn_uq_dist import Input, LeakyReLUNetwork
from nn_uq_dist import error_analysis as ea

NUM_INPUTS = 3
CORNERS = np.array(list(itertools.product([-1.0, 1.0], repeat=NUM_INPUTS)))
SHAPES = {1: (3, 4, 2), 3: (3, 5, 2, 4, 2)}


def random_networks(num_layers, count, seed):
    """Stacked networks with boxes from ones that flip nothing to ones that flip much."""
    rng = np.random.default_rng(seed)
    sizes = SHAPES[num_layers]
    weights = [rng.normal(size=(count, n, m)) for m, n in itertools.pairwise(sizes)]
    biases = [rng.normal(size=(count, n)) for n in sizes[1:-1]]
    # Where bias and center are zero, so is the pre-activation.
    biases = [np.where(rng.random(b.shape) < 0.1, 0, b) for b in biases]
    slopes = rng.choice([0.0, 0.01, 0.3, 0.9], size=count)
    nets = jax.vmap(LeakyReLUNetwork)(weights[:-1], biases, weights[-1], slopes)
    mu = rng.normal(size=(count, NUM_INPUTS)) * (rng.random((count, 1)) < 0.9)
    half_width = 10 ** rng.uniform(-3, 1, (count, 1)) * rng.uniform(0, 1, (count, NUM_INPUTS))
    inner = rng.uniform(-1, 1, (count, 24, NUM_INPUTS))
    points = np.concatenate([np.broadcast_to(CORNERS, (count, *CORNERS.shape)), inner], axis=1)
    return nets, mu, half_width, half_width[:, None, :] * points


@jax.jit
def flips(nets, mu, z):
    """Whether any neuron has another sign at any of the perturbed inputs."""

    def of_one(net, mu, z):
        before = jnp.concatenate(net.pre_activations(mu)) >= 0
        after = jax.vmap(lambda one: jnp.concatenate(net.pre_activations(mu + one)))(z) >= 0
        return (before != after).any()

    return jax.vmap(of_one)(nets, mu, z)


def network_of_three(seed=0):
    rng = np.random.default_rng(seed)
    weights = [rng.normal(size=shape) for shape in ((5, 3), (4, 5), (2, 4))]
    return LeakyReLUNetwork(weights[:2], [rng.normal(size=5), rng.normal(size=4)], weights[2], 0.2)


def test_one_uniform_has_a_closed_form(precision):
    weights = np.array([1.0, -2.0, 0.5, 0.3, 0.0, 0.0, 4.0])
    biases = np.array([-0.5, 0.0, 1.0, -0.1, 0.0, -1.0, 7.999])
    net = LeakyReLUNetwork([weights[:, None]], [biases], np.ones((1, 7)))
    (layer,) = ea.flip_probabilities(net, Input.box([0.0], half_width=2.0))
    assert layer.dtype == precision
    with np.errstate(divide="ignore", invalid="ignore"):
        expected = np.clip((1 - np.abs(biases) / np.abs(2 * weights)) / 2, 0, 1)
    expected[4:6] = 0  # a neuron without weights never flips
    np.testing.assert_allclose(layer, expected, rtol=1e-5 if precision == "float64" else 2e-3)


@pytest.mark.usefixtures("x64")
def test_probabilities_match_monte_carlo_of_the_linear_model():
    # Nine neurons: a difference of five standard errors has probability 5e-6.
    net, count = network_of_three(), 100_000
    rng = np.random.default_rng(2)
    mu, half_width = rng.normal(size=3), np.array([0.5, 1.0, 1.5])
    factor = np.array([[0.4, 0.0, 0.0], [0.2, 0.0, 0.0], [-0.3, 0.1, 0.5]])
    z = rng.uniform(-1, 1, (count, 3)) * half_width + rng.normal(size=(count, 3)) @ factor.T
    distribution = Input.box(mu, half_width) + Input.normal(0 * mu, scale_tril=factor)
    probabilities = ea.flip_probabilities(net, distribution)
    assert [layer.shape for layer in probabilities] == [(5,), (4,)]
    hidden, jacobians = net.pre_activations(mu), jax.jacrev(net.pre_activations)(mu)
    for layer, h, rows in zip(probabilities, hidden, jacobians, strict=True):
        frequency = np.mean((h + z @ np.asarray(rows).T >= 0) != (h >= 0), axis=0)
        error = np.sqrt(np.asarray(layer) * (1 - np.asarray(layer)) / count)
        assert (np.abs(frequency - layer) <= 5 * error).all()
    assert sum(int((layer > 0.05).sum()) for layer in probabilities) >= 4


@pytest.mark.usefixtures("x64")
def test_batch_under_jit_equals_single_distributions_and_agrees_with_the_certificate():
    net, mu = network_of_three(), np.array([0.3, -0.2, 0.5])
    half_width = 10 ** np.linspace(-3, 0, 12)[:, None]
    distribution = Input.box(np.broadcast_to(mu, (12, 3)), half_width)
    batch = jax.jit(ea.flip_probabilities)(net, distribution)
    assert [layer.shape for layer in batch] == [(12, 5), (12, 4)]
    for i in (0, 11):
        single = ea.flip_probabilities(net, Input.box(mu, half_width[i]))
        for layer, one in zip(batch, single, strict=True):
            np.testing.assert_allclose(layer[i], one, rtol=1e-10)
    # All are zero exactly where no neuron can flip.
    exact = ea.is_exact_on_support(net, distribution)
    assert 0 < exact.sum() < 12
    np.testing.assert_array_equal(exact, ~np.concatenate(batch, axis=-1).any(axis=-1))


@pytest.mark.parametrize("num_layers", SHAPES)
@pytest.mark.usefixtures("x64")
def test_certificates_hold_and_are_found(num_layers):
    count = 5000
    nets, mu, half_width, z = random_networks(num_layers, count, seed=num_layers)
    exact = ea.is_exact_on_support(nets, Input.box(mu, half_width))
    assert exact.shape == (count,)
    assert 0.1 < exact.mean() < 0.9
    # The first layer that flips at all does so at a corner, which the search has visited.
    np.testing.assert_array_equal(exact, ~np.asarray(flips(nets, mu, z)))


@pytest.mark.usefixtures("x64")
def test_certificate_changes_at_the_critical_half_width():
    rng = np.random.default_rng(0)
    weights, biases, mu = rng.normal(size=(6, 5)), rng.normal(size=6), rng.normal(size=5)
    net = LeakyReLUNetwork([weights], [biases], np.ones((1, 6)))
    critical = np.min(np.abs(weights @ mu + biases) / np.abs(weights).sum(axis=1))
    assert ea.is_exact_on_support(net, Input.box(mu, critical * (1 - 1e-11))) is True
    assert ea.is_exact_on_support(net, Input.box(mu, critical)) is False
    assert ea.is_exact_on_support(net, Input.box(mu, critical * (1 + 1e-11))) is False


def test_certificate_of_special_networks():
    wide, nothing, one = Input.box(np.zeros(1), 9.0), Input.box(np.zeros(1), 0.0), [[1.0]]
    affine, bent = (LeakyReLUNetwork([one] * 2, [[0.0]] * 2, one, slope) for slope in (1.0, 0.1))
    assert ea.is_exact_on_support(affine, wide) is True
    assert ea.is_exact_on_support(bent, wide) is False
    assert ea.is_exact_on_support(bent, nothing) is True
    # A neuron without weights stays at zero; so does what a ReLU that is off hides.
    dead = LeakyReLUNetwork([[[1.0], [0.0]]], [[10.0, 0.0]], [[1.0, 1.0]])
    assert ea.is_exact_on_support(dead, wide) is True
    hidden = LeakyReLUNetwork([[[1.0]], [[1.0]]], [[-10.0], [0.0]], [[1.0]], 0.0)
    assert ea.is_exact_on_support(hidden, wide) is True


@pytest.mark.usefixtures("x64")
def test_sign_within_rounding_is_not_certified():
    # The pre-activation is -2.2e-8, less than 1e8 rounds by, and the box moves it by 2e-12.
    net = LeakyReLUNetwork([[[1e8, -1e8]]], [[0.0]], [[1.0]])
    mu = np.array([1.0, np.nextafter(1.0, 2.0)])
    assert ea.is_exact_on_support(net, Input.box(mu, 1e-20)) is False
    assert ea.is_exact_on_support(net, Input.box(mu + np.array([0.0, 1e-3]), 1e-20)) is True


def test_gaussian_part_is_never_certified_unless_zero():
    net = LeakyReLUNetwork([[[1.0]]], [[100.0]], [[1.0]])
    assert ea.is_exact_on_support(net, dist.Normal(np.zeros(1), 1e-3).to_event(1)) is False
    zero = Input.normal(np.zeros(1), scale_tril=np.zeros((1, 1)))
    assert ea.is_exact_on_support(net, Input.box(np.zeros(1), 1.0) + zero) is True


NET, BOX = network_of_three(), Input.box(np.zeros(3), 1.0)
STACKED, LACKING = (
    jax.tree.map(change, NET) for change in (lambda a: jnp.stack([a, a]), lambda a: a * jnp.nan)
)


@pytest.mark.parametrize(
    ("function", "arguments", "words"),
    [
        (ea.flip_probabilities, (STACKED, BOX), "network"),
        (ea.is_exact_on_support, (jnp.tanh, BOX), "network"),
        (ea.flip_probabilities, (NET, np.zeros(3)), "f must be"),
        (ea.is_exact_on_support, (NET, dist.LogNormal(np.zeros(3), 1.0).to_event(1)), "f must be"),
        (ea.flip_probabilities, (NET, Input.box(np.zeros(4), 1.0)), "f must have N_x = 3"),
        (ea.is_exact_on_support, (LACKING, BOX), "network must be finite"),
        (jax.jit(ea.is_exact_on_support), (NET, BOX), "outside of jit"),
    ],
)
def test_wrong_arguments_are_named(function, arguments, words):
    with pytest.raises((TypeError, ValueError), match=words):
        function(*arguments)
