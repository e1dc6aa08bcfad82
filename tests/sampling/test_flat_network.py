"""Networks of any input and output as ones between vectors, and messages for those refused."""

import re
from pathlib import Path

import flax.linen
import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from flax import nnx
from sklearn.neural_network import MLPRegressor

import nn_uq_dist as nuq
from nn_uq_dist.sampling.flat_network import OutputStructure, by_names, flat_network

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "network_mistakes.md"
LAW = nuq.Input.box(np.zeros(4, np.float32), half_width=0.1)
MATRIX = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)
KEY = jax.random.key(0)
BOX = nuq.Input.box(np.zeros(3), 0.1)
WEIGHTS = jnp.array([[1.0, -2.0, 0.5], [0.3, 1.0, 2.0]])


def of_vector(x):
    return jnp.tanh(WEIGHTS @ x)


def test_a_network_of_vectors_is_called_as_it_is():
    x = jnp.zeros(3)
    flat = flat_network(of_vector, BOX)
    assert str(jax.make_jaxpr(flat)(x)) == str(jax.make_jaxpr(of_vector)(x))


def test_outputs_of_any_structure_are_joined_and_taken_apart():
    def net(x):
        return {"b": [x.sum(), jnp.outer(x, x)], "a": x.astype(jnp.float16)}

    flat = flat_network(net, BOX)
    assert (flat.num_outputs, flat.dtype) == (3 + 1 + 9, jnp.float32)
    x = jnp.array([1.0, 2.0, 3.0])
    found, expected = flat.structure.unravel(flat(x)), net(x)
    jax.tree.map(np.testing.assert_array_equal, found, expected)
    numbers = nuq.linearize(lambda x: [x[0], 2.0], BOX)  # also of Python
    np.testing.assert_array_equal(numbers.jacobian, [[1, 0, 0], [0, 0, 0]])
    assert numbers.unravel(numbers.loc) == [0.0, 2.0]
    many = flat.structure.unravel(jnp.stack([flat(x), 2 * flat(x)])[:, None])
    assert many["b"][1].shape == (2, 1, 3, 3)
    np.testing.assert_array_equal(many["b"][0], [[6.0], [12.0]])


def test_structure_stays_with_a_linearization_through_transformations():
    def lin(x):
        return nuq.linearize(lambda v: {"y": v[0] * v, "z": v[1]}, nuq.Input.box(x, 1.0))

    inside = jax.jit(lin)(jnp.arange(3.0))
    assert inside.unravel(inside.mean)["y"].shape == (3,)
    many = jax.vmap(lin)(jnp.ones((5, 3)))
    assert many.unravel(many.loc)["z"].shape == (5,)
    with pytest.raises(ValueError, match=r"values must have .* N_y = 4"):
        inside.unravel(jnp.zeros(3))
    assert nuq.linearize(jnp.sum, BOX).unravel(np.ones(1)).shape == ()


def test_numbers_by_the_names_of_outputs():
    output = {"flow": jnp.zeros(()), "levels": jnp.zeros(3)}
    structure = OutputStructure.of(output)
    batch = by_names("y", {"flow": jnp.ones((5, 1)), "levels": np.zeros((4, 3))}, structure)
    assert batch.shape == (5, 4, 4)
    np.testing.assert_array_equal(batch[2, 1], [1, 0, 0, 0])
    scale = by_names("noise_scale", {"levels": 0.2, "flow": 1}, structure)
    np.testing.assert_array_equal(scale, [1, 0.2, 0.2, 0.2])
    lin = nuq.linearize(lambda x: {"flow": x[0], "levels": x}, nuq.Input.box(jnp.zeros(3), 1.0))
    both = [lin.marginals(noise) for noise in ({"levels": 0.2, "flow": 1}, jnp.asarray(scale))]
    np.testing.assert_array_equal(*(one.variance for one in both))
    for of, wrong, words in [
        (structure, {"flow": 1.0}, "y must have the structure of the outputs"),
        (structure, {"flow": 1.0, "levels": "low"}, r"y\['levels'\] must be an array of real"),
        (structure, {"flow": 1.0, "levels": 0.2}, r"y\['levels'\] must have shape"),
        (structure, {"flow": np.zeros(2), "levels": np.zeros((4, 3))}, "leading axes of y must"),
        (None, {"a": 1.0}, "y must have the structure of the outputs"),
    ]:
        with pytest.raises((TypeError, ValueError), match=words):
            by_names("y", wrong, of, each=True)


def test_a_list_of_numbers_goes_into_a_network_of_their_vector():
    f = dist.Normal(0.2, 0.1), dist.LogNormal(0.0, 0.3), jnp.array(0.5)
    found = nuq.linearize(of_vector, f)
    expected = nuq.linearize(lambda x: of_vector(jnp.stack(x)), f)
    np.testing.assert_array_equal(found.loc, expected.loc)
    np.testing.assert_array_equal(found.jacobian, expected.jacobian)
    pairs = nuq.paired_draws(of_vector, found, KEY, 8, progress=False)
    draws = nuq.monte_carlo(of_vector, f, KEY, 8, progress=False)
    inputs = jnp.stack(pairs.inputs, axis=-1)
    for outputs in (pairs.network, draws):
        np.testing.assert_allclose(outputs, jax.vmap(of_vector)(inputs), atol=1e-6)


def test_networks_of_other_structures_are_refused_with_the_line_to_write():
    numbers = {"rw": dist.Normal(0.0, 1.0), "r": dist.Gamma(1.0, 1.0), "L": 3.0}
    arrays = [nuq.Input.box(np.zeros(2), 0.1), dist.Normal(0.0, 1.0)]
    for call in (nuq.linearize, lambda *args: nuq.monte_carlo(*args, KEY, 8)):
        for network, f, line in (
            (of_vector, numbers, "lambda x: network(jnp.hstack([x['L'], x['r'], x['rw']]))"),
            (lambda x: x["d"], numbers, "KeyError"),
            (of_vector, arrays, "lambda x: network(jnp.hstack([x[0], x[1]]))"),
        ):
            with pytest.raises(ValueError, match=re.escape(line)):
                call(network, f)


def test_a_list_of_numbers_is_not_repeated():
    # Of a list, `2 * x` and `x + x` have twice the entries.
    f = [dist.Normal(1.0, 0.1), dist.Normal(2.0, 0.2), dist.Normal(3.0, 0.3)]
    for network in (lambda x: 2 * x, lambda x: x + x):
        np.testing.assert_allclose(nuq.linearize(network, f).mean, [2.0, 4.0, 6.0])
    np.testing.assert_allclose(nuq.linearize(lambda x: x[2] * x[1], f).mean, [6.0])


def torch_module(x):
    raise TypeError(f"linear(): argument 'input' must be Tensor, not {type(x).__name__}")


class NormalizingNNX(nnx.Module):
    def __init__(self):
        self.norm = nnx.BatchNorm(4, rngs=nnx.Rngs(0))

    def __call__(self, x):
        return self.norm(x)


class WithTransform(nnx.Module):
    def __init__(self):
        self.linear = nnx.Linear(4, 3, rngs=nnx.Rngs(0))

    @nnx.jit
    def __call__(self, x):
        return self.linear(x)


class Running:
    """Keeps a mean of what it has seen, as batch statistics do."""

    def __init__(self):
        self.mean = jnp.zeros(4)

    def __call__(self, x):
        self.mean = 0.9 * self.mean + 0.1 * x
        return x - self.mean


def of_batches(x):
    if x.ndim != 2:
        raise ValueError(f"expected shape (None, 4), got {x.shape}")
    return x @ MATRIX.T


# By the words of the table: the network, or a class that makes it, and words of the message.
MISTAKES = {
    "a PyTorch module, or a function that calls one": (torch_module, "got TypeError from it"),
    "a scikit-learn estimator": (MLPRegressor, "got MLPRegressor"),
    "its method `predict`, or a function in NumPy": (
        lambda x: np.maximum(MATRIX @ x, 0),
        "ArrayConversionError from it",
    ),
    "a function with `if x[0] > 0`": (
        lambda x: x if x[0] > 0 else -x,
        "BoolConversionError from it",
    ),
    "a function with `float(x[0])`": (
        lambda x: jnp.array([float(x[0])]),
        "ConcretizationTypeError from it",
    ),
    "a network of batches": (of_batches, "got ValueError from it"),
    "a network of other inputs than the distribution has": (
        lambda x: MATRIX[:, :2] @ x,
        "of one input of shape (4,)",
    ),
    "a function of parameters and input": (lambda params, x: params @ x, "missing 1 required"),
    "a Flax Linen module without its variables": (flax.linen.Dense(3), "from it"),
    "dropout or batch statistics in training mode": (NormalizingNNX, "from it"),
    "an object that remembers its last input": (Running, "must be a pure function"),
    "a network that returns labels": (
        lambda x: jnp.argmax(x, keepdims=True),
        "return the continuous output",
    ),
    "a network that returns nothing": (lambda x: None, "return what is to have"),
    "a class instead of a module of it": (flax.linen.Dense, "got the class Dense itself"),
    "an NNX module with transforms inside, such as `nnx.jit`": (
        WithTransform,
        "'My network is refused'",
    ),
    "a network that returns (output, state)": (
        lambda x: (MATRIX @ x, nnx.State({"mean": x})),
        "got an object State at output[1]",
    ),
    "a network that returns (output, count)": (
        lambda x: (MATRIX @ x, {"count": jnp.array(3)}),
        "int32 at output[1]['count']",
    ),
    "a network that returns a distribution": (
        lambda x: dist.Normal(MATRIX @ x, 1.0),
        "got an object Normal",
    ),
    "a network that returns complex numbers": (jnp.fft.fft, "got dtype complex64"),
    "weights that are NaN": (lambda x: jnp.nan * x, "check its weights"),
    "no derivative at the mean": (lambda x: jnp.abs(x - x) ** 0.5 + x, "pass at="),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_message_says_what_came_and_what_to_do(mistake):
    network, words = MISTAKES[mistake]
    if isinstance(network, type) and network is not flax.linen.Dense:
        network = network()
    with pytest.raises((TypeError, ValueError)) as caught:
        nuq.linearize(network, LAW)
    message = str(caught.value)
    assert words in message
    assert message.startswith(("network", "the Jacobian of network"))
    assert "\n" not in message


def test_table_of_the_docs_has_these_mistakes():
    rows = [line for line in PAGE.read_text("utf-8").splitlines() if line.startswith("| ")]
    assert {row.strip("| ").split(" | ")[0] for row in rows[1:]} == MISTAKES.keys()


def test_a_clone_of_a_module_with_transforms_is_the_module():
    module = WithTransform()

    def cloned(x):
        return nnx.clone(module)(x)

    lin = nuq.linearize(cloned, LAW)
    np.testing.assert_allclose(lin.jacobian, module.linear.kernel[...].T, rtol=1e-6)


def test_swapped_arguments_are_said_to_be_swapped():
    for call in (
        lambda: nuq.linearize(LAW, NormalizingNNX()),
        lambda: nuq.monte_carlo(LAW, jnp.tanh, KEY, 10),
        lambda: nuq.failure_probability(LAW, jnp.tanh, KEY, 1.0),
        lambda: nuq.input_posterior(LAW, jnp.tanh, jnp.zeros(4), noise_scale=1.0, key=KEY),
        lambda: nuq.sobol_indices(LAW, jnp.tanh, KEY),
        lambda: nuq.paired_draws(nuq.linearize(jnp.tanh, LAW), jnp.tanh, KEY, 10),
    ):
        with pytest.raises(TypeError, match=r" must be a .*, got .*; pass the network first"):
            call()


def test_a_forgotten_key_is_asked_for():
    for call in (nuq.monte_carlo, nuq.paired_draws, nuq.failure_probability):
        f = nuq.linearize(jnp.tanh, LAW) if call is nuq.paired_draws else LAW
        with pytest.raises(TypeError, match=r"key must be a JAX random key, got int 1000; pass"):
            call(jnp.tanh, f, 1000)
