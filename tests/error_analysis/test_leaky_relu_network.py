"""`LeakyReLUNetwork`: values, conversions from Flax and Equinox, pytree, derivatives, errors."""

import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from nn_uq_dist import InputLaw, LeakyReLUNetwork, linearize

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


@pytest.mark.parametrize("num_layers", SIZES)
@pytest.mark.parametrize("skip", [False, True])
def test_values_and_linearization_match_loops(precision, num_layers, skip):
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
    lin = linearize(net, InputLaw(x, half_width=0.1))
    np.testing.assert_allclose(lin.loc, output, rtol=rtol, atol=rtol)
    np.testing.assert_allclose(lin.jacobian, jacobian, rtol=rtol, atol=rtol)


@pytest.mark.parametrize("use_bias", [False, True])
def test_from_flax_is_the_same_map(use_bias):
    rngs = nnx.Rngs(0)
    sizes = [(3, 6), (6, 4), (4, 2)]
    options = {"use_bias": use_bias, "bias_init": nnx.initializers.normal(1.0), "rngs": rngs}
    layers = [nnx.Linear(*size, **options) for size in sizes]
    net = LeakyReLUNetwork.from_flax(layers, negative_slope=0.2)
    assert (net.output_bias is None) is not use_bias
    x = jnp.array([[0.4, -1.0, 2.0], [-0.4, 1.0, -2.0]])
    expected = x
    for layer in layers[:-1]:
        expected = nnx.leaky_relu(layer(expected), 0.2)
    expected = layers[-1](expected)
    np.testing.assert_allclose(jax.vmap(net)(x), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("activation", "slope", "scan"),
    [
        (jax.nn.leaky_relu, 0.01, False),
        (lambda x: jnp.maximum(x, 0.3 * x), 0.3, True),
        (jax.nn.relu, 0.0, False),
    ],
)
def test_from_equinox_is_the_same_map(precision, activation, slope, scan):
    key = jax.random.key(1)
    mlp = eqx.nn.MLP(3, 2, 5, 3, activation, use_final_bias=not scan, scan=scan, key=key)
    # Under `jit`, too, the slope must be read off as a number.
    net = jax.jit(lambda: LeakyReLUNetwork.from_equinox(mlp))()
    assert net.num_layers == 3
    assert net.negative_slope == jnp.asarray(slope, precision)
    assert (net.output_bias is None) is scan
    rtol = 1e-12 if precision == "float64" else 1e-5
    for x in jnp.array([[0.4, -1.0, 2.0], [-0.4, 1.0, -2.0]]):
        np.testing.assert_allclose(net(x), mlp(x), rtol=rtol, atol=rtol)


def test_pytree_keeps_leaves_and_structure():
    net = network(1, skip_connection=True)
    leaves, structure = jax.tree.flatten(net)
    assert len(leaves) == 4  # no skip connection, no output bias
    assert structure != jax.tree.structure(network(1))
    again = jax.tree.unflatten(structure, leaves)
    assert again.skip_connection is True
    assert again.output_bias is None
    np.testing.assert_array_equal(again.hidden_weights[0], net.hidden_weights[0])
    names = [jax.tree_util.keystr(path) for path, _ in jax.tree.leaves_with_path(net)]
    assert names == [".hidden_weights[0]", ".biases[0]", ".output_matrix", ".negative_slope"]
    # Leaves may be anything: nothing is validated or converted on the way.
    assert jax.tree.map(lambda leaf: "leaf", net).output_matrix == "leaf"
    shapes = jax.eval_shape(lambda n: n, net)
    assert (shapes.num_inputs, shapes.num_outputs, shapes.num_layers) == (3, 3, 1)


def test_batch_of_networks_under_jit_and_vmap():
    x = jnp.array([0.3, -1.2, 0.7])
    nets = [LeakyReLUNetwork(*parameters(1, seed), 0.1, True) for seed in (0, 1)]
    batch = jax.tree.map(lambda *leaves: jnp.stack(leaves), *nets)
    assert (batch.num_inputs, batch.num_outputs) == (3, 3)
    outputs = jax.jit(jax.vmap(lambda net: net(x)))(batch)
    for net, output in zip(nets, outputs, strict=True):
        np.testing.assert_allclose(output, net(x), rtol=1e-5)


@pytest.mark.usefixtures("x64")
def test_gradient_of_the_parameters_matches_differences():
    net = network(1, negative_slope=0.1, output_bias=np.zeros(3))
    x = jnp.array([0.3, -1.2, 0.7])

    def value(net):
        return jnp.sum(net(x) ** 2)

    gradient = jax.grad(value)(net)
    direction = jax.tree.map(np.cos, net)
    h = 1e-6
    ahead, behind = (
        value(jax.tree.map(lambda p, d, s=sign: p + s * h * d, net, direction)) for sign in (1, -1)
    )
    slope = sum(jax.tree.leaves(jax.tree.map(np.vdot, gradient, direction)))
    np.testing.assert_allclose(slope, (ahead - behind) / (2 * h), rtol=1e-7)


def test_traced_slope_outside_of_the_interval_gives_nan():
    @jax.jit
    def at(slope):
        return LeakyReLUNetwork([[[1.0]]], [[0.0]], [[1.0]], slope)(jnp.array([-1.0]))

    assert at(0.5) == -0.5
    assert jnp.isnan(at(1.5)).all()
    assert jnp.isnan(at(-0.1)).all()


W, B, A = np.ones((4, 3)), np.zeros(4), np.ones((2, 4))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([], [], A), "at least one, got 0 and 0"),
        (([W, np.eye(4)], [B], A), "one entry per hidden layer.*got 2 and 1"),
        (([W[0]], [B], A), r"hidden_weights\[0\] must have shape \(N, N_x\).*\(3,\)"),
        (([W, W], [B, B], A), r"hidden_weights\[1\] must have shape \(N, 4\).*\(4, 3\)"),
        (([np.ones((4, 0))], [B], A), r"hidden_weights\[0\].*\(4, 0\)"),
        (([W], [np.zeros(3)], A), r"biases\[0\] must have shape \(4,\).*\(3,\)"),
        (([W], [B], A.T), r"output_matrix must have shape \(N_y, 4\).*\(4, 2\)"),
        (([W], [B], np.ones((0, 4))), r"output_matrix.*\(0, 4\)"),
        (([W], [B], A, 0.01, True), "N_x = 3 and N_y = 2"),
        (([W], [B], A, -0.1), r"negative_slope must lie in \[0, 1\], got -0.1"),
        (([W], [B], A, float("nan")), "negative_slope must lie.*nan"),
        (([W], [B], A, [0.1]), r"negative_slope must be a scalar, got shape \(1,\)"),
        (([W], [B], A, 0.01, False, np.zeros(3)), r"output_bias must have shape \(2,\).*\(3,\)"),
        (([W], [B * np.nan], A), r"biases\[0\] must be finite, got nan"),
    ],
)
def test_values_that_do_not_fit_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        LeakyReLUNetwork(*arguments)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((W, [B], A), "hidden_weights must be a list or tuple"),
        (([W], B, A), "biases must be a list or tuple"),
        ((["a"], [B], A), r"hidden_weights\[0\] must be an array of real numbers"),
        (([W], [B], A * 1j), "output_matrix must be an array of real numbers"),
        (([W], [B], A, 0.01, 1), "skip_connection must be True or False, got int"),
    ],
)
def test_types_that_do_not_fit_are_refused(arguments, message):
    with pytest.raises(TypeError, match=message):
        LeakyReLUNetwork(*arguments)


@pytest.mark.parametrize("shape", [(), (4,), (2, 3)])
def test_input_of_another_shape_is_refused(shape):
    with pytest.raises(ValueError, match=r"one input of shape \(3,\).*jax.vmap"):
        network(1)(jnp.zeros(shape))


def test_conversions_refuse_what_is_no_leaky_relu_network():
    key = jax.random.key(0)
    for activation in (jnp.tanh, jax.nn.elu, jax.nn.relu6, lambda x: -x, lambda x: 2 * x):
        mlp = eqx.nn.MLP(2, 2, 3, 1, activation, key=key)
        with pytest.raises(ValueError, match=r"^activation must be a leaky ReLU"):
            LeakyReLUNetwork.from_equinox(mlp)
    mlp = eqx.nn.MLP(2, 2, 3, 1, jax.nn.relu, jax.nn.relu, key=key)
    with pytest.raises(ValueError, match="final_activation must be the identity"):
        LeakyReLUNetwork.from_equinox(mlp)
    mlp = eqx.nn.MLP(2, 2, 3, 1, eqx.nn.PReLU(0.1), key=key)
    with pytest.raises(ValueError, match="got one with parameters"):
        LeakyReLUNetwork.from_equinox(mlp)
    mlp = eqx.nn.MLP(2, 2, 3, 0, jax.nn.relu, key=key)
    with pytest.raises(ValueError, match="at least 2 linear layers"):
        LeakyReLUNetwork.from_equinox(mlp)
    with pytest.raises(TypeError, match=r"must be an equinox\.nn.MLP, got Linear"):
        LeakyReLUNetwork.from_equinox(eqx.nn.Linear(2, 2, key=key))
    layers = [nnx.Linear(2, 3, rngs=nnx.Rngs(0)), jax.nn.leaky_relu]
    with pytest.raises(TypeError, match=r"got .* at index 1; leave activations out"):
        LeakyReLUNetwork.from_flax(layers)
