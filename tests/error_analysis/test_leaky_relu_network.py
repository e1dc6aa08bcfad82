"""`LeakyReLUNetwork`: values, reading from functions and modules, pytree, derivatives, errors."""

import functools
import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen, nnx

from nn_uq_dist import Input, LeakyReLUNetwork, linearize

W, B, A = np.ones((4, 3)), np.zeros(4), np.ones((2, 4))
SIZES = {1: (3, 5, 3), 3: (3, 4, 6, 5, 3)}


def parameters(num_layers, seed=0):
    rng = np.random.default_rng(seed)
    sizes = SIZES[num_layers]
    weights = [rng.normal(size=(n, m)) for m, n in itertools.pairwise(sizes)]
    biases = [rng.normal(size=n) for n in sizes[1:-1]]
    return weights[:-1], biases, weights[-1]


def network(num_layers=3, **options):
    return LeakyReLUNetwork(*parameters(num_layers), **options)


def by_loops(weights, biases, output_matrix, x, slope):
    """Neuron by neuron in float64; returns the output, pre-activations and Jacobian."""
    signal, jacobian, hidden = x, np.eye(len(x)), []
    for weight, bias in zip(weights, biases, strict=True):
        h = [sum(w * s for w, s in zip(row, signal, strict=True)) for row in weight] + bias
        hidden.append(h)
        signal = [value if value >= 0 else slope * value for value in h]
        jacobian = np.diag([1.0 if value >= 0 else slope for value in h]) @ weight @ jacobian
    return output_matrix @ signal, hidden, output_matrix @ jacobian


@pytest.mark.parametrize(
    ("num_layers", "skip", "precision"),
    [(1, True, "float64"), (3, False, "float32")],
    indirect=["precision"],
)
def test_values_and_linearization_match_loops(num_layers, skip, precision):
    rtol = 1e-12 if precision == "float64" else 2e-5
    arguments = parameters(num_layers)
    shift = np.array([0.5, -1.0, 2.0])
    net = network(num_layers, negative_slope=0.1, skip_connection=skip, output_bias=shift)
    assert net.num_layers == num_layers
    assert (net.num_inputs, net.num_outputs) == (3, 3)
    x = np.array([0.3, -1.2, 0.7])
    output, hidden, jacobian = by_loops(*arguments, x, 0.1)
    output = output + shift + (x if skip else 0)
    jacobian = jacobian + (np.eye(3) if skip else 0)
    assert net(jnp.asarray(x)).dtype == precision
    np.testing.assert_allclose(net(jnp.asarray(x)), output, rtol=rtol, atol=rtol)
    for h, expected in zip(net.pre_activations(x), hidden, strict=True):
        np.testing.assert_allclose(h, expected, rtol=rtol, atol=rtol)
    lin = linearize(net, Input.box(x, half_width=0.1))
    np.testing.assert_allclose(lin.loc, output, rtol=rtol, atol=rtol)
    np.testing.assert_allclose(lin.jacobian, jacobian, rtol=rtol, atol=rtol)


KEY = jax.random.key(1)
MEAN, SD = jnp.array([100.0, -2.0, 0.5]), jnp.array([20.0, 0.1, 3.0])


class Scaled(nnx.Module):
    """A network that scales its inputs and outputs, with batch norm and dropout."""

    def __init__(self, rngs, slope=0.2):
        self.first = nnx.Linear(3, 8, rngs=rngs, bias_init=nnx.initializers.normal(1.0))
        self.norm = nnx.BatchNorm(8, rngs=rngs)
        self.second = nnx.Linear(8, 5, rngs=rngs, use_bias=False)
        self.dropout = nnx.Dropout(0.1, rngs=rngs)
        self.last = nnx.Linear(5, 2, rngs=rngs)
        self.slope = slope
        self.norm.mean[...] = jnp.arange(8.0)

    def __call__(self, x):
        x = nnx.leaky_relu(self.norm(self.first((x - MEAN) / SD)), self.slope)
        x = self.dropout(nnx.leaky_relu(self.second(x), self.slope))
        return self.last(x) * jnp.array([5.0, 0.1]) + jnp.array([-7.0, 0.3])


def scaled():
    network = Scaled(nnx.Rngs(0))
    network.eval()
    return network


def mlp(activation=jax.nn.leaky_relu, final=lambda x: x, outputs=2, depth=3, **options):
    return eqx.nn.MLP(3, outputs, 5, depth, activation, final, key=KEY, **options)


def convolutional():
    layers = [
        eqx.nn.Lambda(lambda x: x.reshape(1, 1, 3)),
        eqx.nn.Conv2d(1, 3, 2, padding=1, key=KEY),
        eqx.nn.Lambda(jax.nn.relu),
        eqx.nn.AvgPool2d(2),
        eqx.nn.Lambda(jnp.ravel),
        eqx.nn.Linear(9, 2, key=KEY),
    ]
    return eqx.nn.Sequential(layers)


def linen_network():
    module = linen.Sequential([linen.Dense(6), linen.leaky_relu, linen.Dense(2)])
    variables = module.init(KEY, jnp.zeros(3))
    return lambda x: module.apply(variables, x)


def by_entries():
    inner = mlp()

    def network(x):
        a, b, c = x
        return jnp.tile(inner(jnp.stack([2 * a, b - c, c + 1]))[:1], 2)

    return network


def with_skip():
    inner = mlp(outputs=3)
    return lambda x: inner((x - 1) / 2) + x


# Each with its slope and number of hidden layers.
NETWORKS = {
    "NNX module with scaling": (scaled, 0.2, 2),
    "Linen": (linen_network, 0.01, 1),
    "MLP in a loop": (lambda: mlp(jax.nn.relu, scan=True, use_final_bias=False), 0.0, 3),
    "maximum": (lambda: mlp(lambda x: jnp.maximum(0.3 * x, x)), 0.3, 3),
    "where below zero": (lambda: mlp(lambda x: jnp.where(x < 0, x / 8, x)), 0.125, 3),
    "of a multiple": (lambda: mlp(lambda x: 2 * jax.nn.leaky_relu(-3 * x, 0.5)), 0.5, 3),
    "PReLU": (lambda: mlp(eqx.nn.PReLU(0.1)), 0.1, 3),
    "activation at the end": (lambda: mlp(final=jax.nn.leaky_relu), 0.01, 4),
    "convolutional": (convolutional, 0.0, 1),
    "entry by entry": (by_entries, 0.01, 3),
    "skip connection": (with_skip, 0.01, 3),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", NETWORKS)
def test_what_is_read_is_the_same_map(name):
    make, slope, num_layers = NETWORKS[name]
    network = make()
    net = LeakyReLUNetwork.from_network(network, 3)
    assert net.num_layers == num_layers
    assert net.negative_slope == np.float32(slope)
    assert net.skip_connection is (name == "skip connection")
    x = MEAN + SD * jax.random.normal(KEY, (50, 3)) * jnp.logspace(-2, 2, 50)[:, None]
    expected = jax.vmap(functools.partial(network))(x)
    # Where both outputs are small by cancellation, rounding is that of a usual output.
    size = np.abs(expected).max(axis=1, keepdims=True)
    size = np.maximum(size, np.median(size))
    assert (np.abs(jax.vmap(net)(x) - expected) <= 1e-5 * size).all()


@pytest.mark.slow
def test_types_of_what_is_read(x64):
    wide, x = mlp(), jnp.array([0.4, -1.0, 2.0])
    net = LeakyReLUNetwork.from_network(lambda x: wide((x - 0.1) / 0.3), 3)
    np.testing.assert_allclose(net(x), wide((x - 0.1) / 0.3), rtol=1e-13)
    narrow = jax.tree.map(lambda leaf: leaf.astype("float32") if eqx.is_array(leaf) else leaf, wide)
    weights = LeakyReLUNetwork.from_network(narrow, 3).hidden_weights[0]
    assert weights.dtype == "float32"


@pytest.mark.slow
def test_reading_under_jit_and_gradients():
    inner, x = mlp(), jnp.array([0.4, -1.0, 2.0])
    net = jax.jit(lambda: LeakyReLUNetwork.from_network(inner, 3))()
    np.testing.assert_allclose(net(x), inner(x), rtol=1e-5)

    def total(s):
        return LeakyReLUNetwork.from_network(lambda x: inner(s * x), 3)(x).sum()

    found = jax.jit(jax.grad(total))(1.5)
    np.testing.assert_allclose(found, jax.grad(lambda s: inner(s * x).sum())(1.5), rtol=1e-5)


def towers(x):
    left, right = jax.nn.relu(W @ x), jax.nn.relu(-(W @ x))
    return jnp.concatenate([left, right])


def two_slopes(x):
    return W.T @ jax.nn.leaky_relu(W @ jax.nn.relu(x))


def with_residuals(x):
    return jax.nn.relu(x + W.T @ jax.nn.relu(W @ x))


# What makes a network that is no leaky-ReLU network.
UNREADABLE = (
    lambda: mlp(jnp.tanh),
    lambda: mlp(jnp.abs),
    lambda: mlp(lambda x: jax.nn.leaky_relu(x, 2.0)),
    lambda: mlp(lambda x: 2 * x),
    lambda: Scaled(nnx.Rngs(0)),
    lambda: lambda x: jnp.ones(2),
    lambda: lambda x: jnp.where(x >= 0, x, jnp.arange(3.0) / 5 * x),
    lambda: lambda x: jnp.maximum(W @ x, 1.0),
    lambda: two_slopes,
    lambda: with_residuals,
    lambda: towers,
    lambda: lambda x: W.T @ jax.nn.relu(W @ x) + 2 * x,
    lambda: lambda x: jax.nn.relu(x) * x,
    lambda: lambda x: jnp.ones((2, 4)) @ x,
)


@pytest.mark.parametrize("make", UNREADABLE)
def test_what_cannot_be_read_is_refused(make):
    with pytest.raises(ValueError, match=r"network.*; "):
        LeakyReLUNetwork.from_network(make(), 3)


def test_a_function_that_changes_is_refused():
    calls = []

    def network(x):
        calls.append(1)
        return len(calls) * (W @ jax.nn.relu(x))

    with pytest.raises(ValueError, match="must be the same function each time"):
        LeakyReLUNetwork.from_network(network, 3)


def test_pytree_keeps_leaves_and_structure():
    net = network(1, skip_connection=True)
    leaves, structure = jax.tree.flatten(net)
    assert structure != jax.tree.structure(network(1))
    again = jax.tree.unflatten(structure, leaves)
    assert again.skip_connection is True
    assert again.output_bias is None
    names = [jax.tree_util.keystr(path) for path, _ in jax.tree.leaves_with_path(net)]
    assert names == [".hidden_weights[0]", ".biases[0]", ".output_matrix", ".negative_slope"]
    # Leaves may be anything: nothing is validated or converted on the way.
    assert jax.tree.map(lambda leaf: "leaf", net).output_matrix == "leaf"


def test_traced_slope_outside_of_the_interval_gives_nan():
    @jax.jit
    def at(slope):
        return LeakyReLUNetwork([[[1.0]]], [[0.0]], [[1.0]], slope)(jnp.array([-1.0]))

    assert at(0.5) == -0.5
    assert jnp.isnan(at(1.5)).all()
    assert jnp.isnan(at(-0.1)).all()


WRONG = (
    (([], [], A), "hidden_weights and biases"),
    (([W, W], [B, B], A), r"hidden_weights\[1\]"),
    (([np.ones((4, 0))], [B], A), r"hidden_weights\[0\]"),
    (([W], [np.zeros(3)], A), r"biases\[0\]"),
    (([W], [B * np.nan], A), r"biases\[0\]"),
    (([W], [B], A.T), "output_matrix"),
    (([W], [B], A, 0.01, True), "N_x = 3 and N_y = 2"),
    (([W], [B], A, -0.1), "negative_slope"),
    (([W], [B], A, 0.01, False, np.zeros(3)), "output_bias"),
    ((W, [B], A), "hidden_weights must be a list or tuple"),
    ((["a"], [B], A), r"hidden_weights\[0\]"),
    (([W], [B], A * 1j), "output_matrix"),
    (([W], [B], A, 0.01, 1), "skip_connection"),
)


@pytest.mark.parametrize(("arguments", "words"), WRONG)
def test_wrong_arguments_are_named(arguments, words):
    with pytest.raises((TypeError, ValueError), match=words):
        LeakyReLUNetwork(*arguments)


def test_input_of_another_shape_is_refused():
    with pytest.raises(ValueError, match=r"one input of shape \(3,\).*jax.vmap"):
        network(1)(jnp.zeros((2, 3)))
