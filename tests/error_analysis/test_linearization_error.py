"""The exact error of a linearized network against subtraction; flips, and that there are none."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
import scipy.stats

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


def test_values_that_are_no_numbers_give_nan():
    net = LeakyReLUNetwork([[[1.0], [2.0]]], [[-1.0, -1.0]], [[1.0, 1.0]])
    error = ea.total_error
    assert np.isnan(error(net, [0.0], [np.nan])).all()
    assert np.isnan(error(net, [np.nan], [1.0])).all()
    traced = jax.jit(lambda slope: LeakyReLUNetwork([[[1.0]]], [[-1.0]], [[1.0]], slope))(-0.5)
    assert np.isnan(error(traced, [0.0], [0.1])).all()


NUM_INPUTS = 3
CORNERS = np.array(list(itertools.product([-1.0, 1.0], repeat=NUM_INPUTS)))
SHAPES = {1: (3, 4, 2), 2: (3, 4, 4, 2), 3: (3, 5, 2, 4, 2), 5: (3, 3, 3, 3, 3, 3, 2)}


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
def errors_and_flips(nets, mu, z):
    def of_one(net, mu, z):
        before = jnp.concatenate(net.pre_activations(mu)) >= 0
        after = jax.vmap(lambda one: jnp.concatenate(net.pre_activations(mu + one)))(z) >= 0
        flips = (before != after).any()
        return ea.total_error(net, mu, z), flips

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


@pytest.mark.slow
@pytest.mark.usefixtures("x64")
def test_gaussian_input_has_a_closed_form():
    net = network_of_three()
    rng = np.random.default_rng(1)
    mu, factor = rng.normal(size=3), np.tril(rng.normal(size=(3, 3)))
    np.fill_diagonal(factor, np.abs(np.diag(factor)))
    distribution = dist.MultivariateNormal(mu, scale_tril=factor)
    for layer, h, rows in linear_model(net, mu, ea.flip_probabilities(net, distribution)):
        scale = np.linalg.norm(rows @ factor, axis=1)
        np.testing.assert_allclose(layer, scipy.stats.norm.sf(np.abs(h) / scale), rtol=1e-9)


def linear_model(net, mu, layers):
    """Each layer with its pre-activations at `mu` and their Jacobian by autodiff."""
    hidden = net.pre_activations(mu)
    return zip(layers, hidden, jax.jacrev(net.pre_activations)(mu), strict=True)


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
    for layer, h, rows in linear_model(net, mu, probabilities):
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
    count = 5000  # 20,000 networks in all
    nets, mu, half_width, z = random_networks(num_layers, count, seed=num_layers)
    total, flips = errors_and_flips(nets, mu, z)
    exact = ea.is_exact_on_support(nets, Input.box(mu, half_width))
    assert exact.shape == (count,)
    assert 0.1 < exact.mean() < 0.9
    # The first layer that flips at all does so at a corner, which the search has visited.
    np.testing.assert_array_equal(exact, ~np.asarray(flips))
    assert not np.asarray(total)[exact].any()


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


NET, MU, BOX = network(1), np.zeros(SIZE), Input.box(np.zeros(SIZE), 1.0)
LOG = dist.LogNormal(MU, 1.0).to_event(1)
STACKED = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf]), NET)
LACKING = jax.tree.map(lambda leaf: leaf * jnp.nan, NET)
AT_POINTS, OF_INPUTS = (ea.total_error,), (ea.is_exact_on_support, ea.flip_probabilities)
WRONG = (
    (FUNCTIONS, (jnp.tanh, MU, MU), r"must be a LeakyReLUNetwork.*from_network"),
    (AT_POINTS, (NET, np.zeros((2, SIZE)), MU), r"\(4,\), got \(2, 4\).*vmap"),
    (AT_POINTS, (NET, MU, 0.1), "z must have shape .* N_x = 4, got"),
    (AT_POINTS, (NET, MU, np.zeros((SIZE, 2))), "z must have shape"),
    (AT_POINTS, (NET, MU, MU * 1j), "z must be an array of real numbers"),
    (AT_POINTS, (STACKED, MU, MU), r"got stacked ones.*\(2, 4, 6\); use jax.vmap"),
    (OF_INPUTS[1:], (STACKED, BOX), r"use jax\.vmap"),
    (OF_INPUTS, (jnp.tanh, BOX), "must be a LeakyReLUNetwork"),
    (OF_INPUTS, (NET, MU), "f must be a distribution"),
    (OF_INPUTS, (NET, LOG), "f must be an input of the vector that network takes"),
    (OF_INPUTS, (NET, Input.box(np.zeros(3), 1.0)), "N_x = 4 inputs as network, got 3"),
    (OF_INPUTS[:1], (LACKING, BOX), "must be finite, got nan"),
)


def test_wrong_arguments_are_named():
    for functions, arguments, words in WRONG:
        for function in functions:
            with pytest.raises((TypeError, ValueError), match=words):
                function(*arguments)
    with pytest.raises(TypeError, match=r"must get known numbers.*outside of jit"):
        jax.jit(lambda net: ea.is_exact_on_support(net, BOX))(NET)
