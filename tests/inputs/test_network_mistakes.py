"""Networks that are refused, and what the message says; the table of the docs."""

from pathlib import Path

import flax.linen
import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from flax import nnx
from sklearn.neural_network import MLPRegressor

from nn_uq_dist import (
    Input,
    failure_probability,
    input_posterior,
    linearize,
    monte_carlo,
    paired_draws,
    sobol_indices,
)

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "network_mistakes.md"
LAW = Input.box(np.zeros(4, np.float32), half_width=0.1)
WEIGHTS = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)


KEY = jax.random.key(0)


def torch_module(x):
    raise TypeError(f"linear(): argument 'input' must be Tensor, not {type(x).__name__}")


class NormalizingNNX(nnx.Module):
    def __init__(self):
        rngs = nnx.Rngs(0)
        self.linear = nnx.Linear(4, 3, rngs=rngs)
        self.norm = nnx.BatchNorm(3, rngs=rngs)

    def __call__(self, x):
        return self.norm(self.linear(x))


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
    return x @ WEIGHTS.T


def branching(x):
    return x if x[0] > 0 else -x


# By the words of the table: the network, made when the test runs, and words of the message.
MISTAKES = {
    "a PyTorch module, or a function that calls one": (
        lambda: torch_module,
        "got TypeError from it: linear(): argument 'input' must be Tensor, not",
    ),
    "a scikit-learn estimator": (MLPRegressor, "got MLPRegressor"),
    "its method `predict`, or a function in NumPy": (
        lambda: lambda x: np.maximum(WEIGHTS @ x, 0),
        "got TracerArrayConversionError from it",
    ),
    "a function with `if x[0] > 0`": (
        lambda: branching,
        "got TracerBoolConversionError from it",
    ),
    "a function with `float(x[0])`": (
        lambda: lambda x: jnp.array([float(x[0])]),
        "got ConcretizationTypeError from it",
    ),
    "a network of batches": (
        lambda: of_batches,
        "got ValueError from it: expected shape (None, 4), got (4,)",
    ),
    "a network of other inputs than the distribution has": (
        lambda: lambda x: WEIGHTS[:, :2] @ x,
        "of one input of shape (4,) and dtype float32, got",
    ),
    "a function of parameters and input": (
        lambda: lambda params, x: params @ x,
        "missing 1 required positional argument",
    ),
    "a Flax Linen module without its variables": (
        lambda: flax.linen.Dense(3),
        "from it",
    ),
    "dropout or batch statistics in training mode": (NormalizingNNX, "from it"),
    "an object that remembers its last input": (
        Running,
        "must be a pure function, got one in which a call affects the next",
    ),
    "a network that returns labels": (
        lambda: lambda x: jnp.argmax(x, keepdims=True),
        "return the continuous output, such as logits instead of labels",
    ),
    "a network that returns nothing": (
        lambda: lambda x: None,
        "return what is to have a distribution",
    ),
    "a class instead of a module of it": (
        lambda: flax.linen.Dense,
        "got the class Dense itself",
    ),
    "an NNX module with transforms inside, such as `nnx.jit`": (
        WithTransform,
        "for transforms inside of an NNX module pass lambda x: nnx.clone(module)(x)",
    ),
    "a network that returns (output, state)": (
        lambda: lambda x: (WEIGHTS @ x, nnx.State({"mean": x})),
        "got an object State; return the first of (output, state)",
    ),
    "a network that returns (output, count)": (
        lambda: lambda x: (WEIGHTS @ x, {"count": jnp.array(3)}),
        "got dtype int32 at output[1]['count'], which has no derivative; return the continuous",
    ),
    "a network that returns a distribution": (
        lambda: lambda x: dist.Normal(WEIGHTS @ x, 1.0),
        "got an object Normal; return the first of (output, state), or the mean of a distribution",
    ),
    "a network that returns complex numbers": (
        lambda: jnp.fft.fft,
        "got dtype complex64, which has no derivative; return the continuous output, such as",
    ),
    "weights that are NaN": (
        lambda: lambda x: jnp.nan * x,
        "must be finite, got nan at index (0,); check the weights of the network",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_message_says_what_came_and_what_to_do(mistake):
    make, words = MISTAKES[mistake]
    with pytest.raises((TypeError, ValueError)) as caught:
        linearize(make(), LAW)
    message = str(caught.value)
    assert words in message
    assert message.startswith("network")
    assert " got " in message
    assert "\n" not in message
    if "from it" in message:
        assert type(caught.value.__cause__).__name__ in message


def test_table_of_the_docs_has_these_mistakes():
    rows = [line for line in PAGE.read_text("utf-8").splitlines() if line.startswith("| ")]
    assert {row.strip("| ").split(" | ")[0] for row in rows[1:]} == MISTAKES.keys()


@pytest.mark.parametrize(
    "call",
    [
        lambda network: monte_carlo(network, LAW, jax.random.key(0), 10),
        lambda network: paired_draws(
            network, linearize(jnp.tanh, LAW), jax.random.key(0), 10, progress=False
        ),
    ],
)
def test_other_functions_say_the_same(call):
    with pytest.raises(ValueError, match="network must be a JAX function of one input of shape"):
        call(torch_module)


def test_a_clone_of_a_module_with_transforms_is_the_module():
    module = WithTransform()

    def cloned(x):
        return nnx.clone(module)(x)

    lin = linearize(cloned, LAW)
    np.testing.assert_allclose(lin.jacobian, module.linear.kernel[...].T, rtol=1e-6)


SWAPPED = {
    "linearize": lambda: linearize(LAW, jnp.tanh),
    "linearize a module": lambda: linearize(LAW, NormalizingNNX()),
    "monte_carlo": lambda: monte_carlo(LAW, jnp.tanh, KEY, 10),
    "failure_probability": lambda: failure_probability(LAW, jnp.tanh, KEY, 1.0),
    "input_posterior": lambda: input_posterior(
        LAW, jnp.tanh, jnp.zeros(4), noise_scale=1.0, key=KEY
    ),
    "sobol_indices": lambda: sobol_indices(LAW, jnp.tanh, KEY),
    "paired_draws": lambda: paired_draws(linearize(jnp.tanh, LAW), jnp.tanh, KEY, 10),
}


@pytest.mark.parametrize("case", SWAPPED)
def test_swapped_arguments_are_said_to_be_swapped(case):
    with pytest.raises(TypeError, match=r" must be a .*, got .*; pass the network first"):
        SWAPPED[case]()


def test_a_forgotten_key_is_asked_for():
    calls = (monte_carlo, LAW), (paired_draws, linearize(jnp.tanh, LAW)), (failure_probability, LAW)
    for call, distribution in calls:
        with pytest.raises(TypeError, match=r"key must be a JAX random key, got int 1000; pass"):
            call(jnp.tanh, distribution, 1000)


def test_pages_that_the_message_names_are_there():
    with pytest.raises(TypeError, match="'My network is refused' and 'Networks by framework'"):
        linearize(None, LAW)
    assert "# My network is refused" in PAGE.read_text("utf-8")
    assert "## Networks by framework" in (PAGE.parent / "index.md").read_text("utf-8")
