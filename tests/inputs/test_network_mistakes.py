"""Messages to users who pass a network that cannot be linearized; the table of the docs."""

import functools
import math
import sys
import types
import warnings
from pathlib import Path

import equinox as eqx
import flax.linen
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from sklearn.neural_network import MLPRegressor

from nn_uq_dist import InputLaw, linearize, monte_carlo
from nn_uq_dist.inputs._foreign_networks import remedy_for

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "network_mistakes.md"
LAW = InputLaw(np.zeros(4, np.float32), half_width=0.1)
WEIGHTS = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)


def foreign(package, **members):
    """An object as `package` would make it, callable as modules are."""
    kind = type("Model", (), {"__module__": f"{package}.models", **members})
    return kind()


def refuse(_self, x):
    raise TypeError(f"linear(): argument 'input' must be Tensor, not {type(x).__name__}")


class NormalizingNNX(nnx.Module):
    def __init__(self):
        rngs = nnx.Rngs(0)
        self.linear = nnx.Linear(4, 3, rngs=rngs)
        self.norm = nnx.BatchNorm(3, rngs=rngs)

    def __call__(self, x):
        return self.norm(self.linear(x))


class DropoutLinen(flax.linen.Module):
    @flax.linen.compact
    def __call__(self, x, *, train):
        return flax.linen.Dropout(0.5, deterministic=not train)(flax.linen.Dense(3)(x))


class Running:
    """Keeps a mean of what it has seen, as batch statistics do."""

    def __init__(self):
        self.mean = jnp.zeros(4)

    def __call__(self, x):
        self.mean = 0.9 * self.mean + 0.1 * x
        return x - self.mean


def fitted_scikit_learn():
    x = np.random.default_rng(0).normal(size=(50, 4))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it has not converged after five steps
        return MLPRegressor(hidden_layer_sizes=(8,), max_iter=5, random_state=0).fit(x, x[:, :3])


def equinox_with_dropout():
    key = jax.random.key(0)
    return eqx.nn.Sequential([eqx.nn.Linear(4, 3, key=key), eqx.nn.Dropout(0.5)])


def equinox_with_batch_norm():
    layer, state = eqx.nn.make_with_state(eqx.nn.BatchNorm)(4, axis_name="batch", mode="batch")
    return lambda x: layer(x, state)[0]


def linen_in_training():
    module = DropoutLinen()
    variables = module.init(jax.random.key(0), jnp.zeros(4), train=False)
    return lambda x: module.apply(variables, x, train=True)


def of_batches(x):
    if x.ndim != 2:
        raise ValueError(f"expected shape (None, 4), got {x.shape}")
    return x @ WEIGHTS.T


def branching(x):
    return x if x[0] > 0 else -x


# By the words of the table: the network, made when the test runs; the error; words of its message.
MISTAKES = {
    "a PyTorch module": (
        lambda: foreign("torch.nn", __call__=refuse),
        ValueError,
        "PyTorch computes on tensors of its own: write its layers in jax.numpy",
    ),
    "a function that calls a PyTorch module": (
        lambda: lambda x, network=None: TORCH(x),
        ValueError,
        "PyTorch computes on tensors of its own: write its layers in jax.numpy",
    ),
    "a scikit-learn estimator": (
        fitted_scikit_learn,
        TypeError,
        "got MLPRegressor; scikit-learn computes in NumPy: write its layers in jax.numpy",
    ),
    "its method `predict`": (
        lambda: fitted_scikit_learn().predict,
        ValueError,
        "scikit-learn computes in NumPy: write its layers in jax.numpy",
    ),
    "an ONNX model or session": (
        lambda: foreign("onnxruntime.capi"),
        TypeError,
        "a session runs outside of JAX: write its layers in jax.numpy",
    ),
    "a Haiku transform": (
        lambda: foreign("haiku", init=None, apply=None),
        TypeError,
        "pass lambda x: network.apply(params, None, x)",
    ),
    "a Flax Linen module without its variables": (
        lambda: flax.linen.Dense(3),
        ValueError,
        "pass lambda x: network.apply(variables, x)",
    ),
    "a function in NumPy": (
        lambda: lambda x: np.maximum(WEIGHTS @ x, 0),
        ValueError,
        "got TracerArrayConversionError from it",
    ),
    "a function with `if x[0] > 0`": (
        lambda: branching,
        ValueError,
        "choose by jnp.where or jax.lax.cond",
    ),
    "a function with `float(x[0])`": (
        lambda: lambda x: jnp.array([float(x[0])]),
        ValueError,
        "leave out float(), int() and .item()",
    ),
    "a network of batches": (
        lambda: of_batches,
        ValueError,
        "it takes a batch of inputs: pass lambda x: network(x[None])[0]",
    ),
    "a network of other inputs than the distribution has": (
        lambda: lambda x: WEIGHTS[:, :2] @ x,
        ValueError,
        "it takes 2 inputs, not 4: pass a law of 2 inputs",
    ),
    "a function of parameters and input": (
        lambda: lambda params, x: params @ x,
        ValueError,
        "its required arguments are (params, x): bind all but the input",
    ),
    "batch statistics in training mode, Flax NNX": (
        NormalizingNNX,
        ValueError,
        "it changes its own state when it is called: switch",
    ),
    "batch statistics in training mode, Equinox": (
        equinox_with_batch_norm,
        ValueError,
        "it takes means over a named batch axis: switch",
    ),
    "dropout in training mode, Equinox": (
        equinox_with_dropout,
        ValueError,
        "it wants random numbers: switch",
    ),
    "dropout in training mode, Flax Linen": (
        linen_in_training,
        ValueError,
        "it wants random numbers: switch",
    ),
    "an object that remembers its last input": (
        Running,
        ValueError,
        "it keeps values of one call for the next",
    ),
    "a network that returns labels": (
        lambda: lambda x: jnp.argmax(x, keepdims=True),
        TypeError,
        "return the continuous output, such as logits instead of labels",
    ),
    "a network that returns nothing": (
        lambda: lambda x: None,
        ValueError,
        "return what is to have a law",
    ),
    "weights that are NaN": (
        lambda: lambda x: jnp.nan * x,
        ValueError,
        "must be finite, got nan at index (0,); check the weights of the network",
    ),
}
TORCH = foreign("torch.nn", __call__=refuse)


@pytest.mark.parametrize("mistake", MISTAKES)
def test_message_names_the_remedy(mistake):
    make, kind, words = MISTAKES[mistake]
    with pytest.raises(kind) as caught:
        linearize(make(), LAW)
    message = str(caught.value)
    assert words in message
    assert message.startswith("network")
    assert " got " in message
    assert "\n" not in message


def test_table_of_the_docs_has_these_mistakes_and_messages():
    rows = [line for line in PAGE.read_text("utf-8").splitlines() if line.startswith("| ")]
    listed = dict(row.strip("| ").split(" | ", 1) for row in rows[1:])
    assert listed == {mistake: f"`{words}`" for mistake, (_, _, words) in MISTAKES.items()}


def test_other_functions_say_the_same():
    with pytest.raises(ValueError, match="PyTorch computes on tensors of its own"):
        monte_carlo(TORCH, LAW, KEY, 10)


KEY = jax.random.key(0)


@pytest.mark.parametrize("backend", ["torch", "tensorflow"])
def test_keras_on_another_backend(monkeypatch, backend):
    keras = types.SimpleNamespace(backend=types.SimpleNamespace(backend=lambda: backend))
    monkeypatch.setitem(sys.modules, "keras", keras)
    model = foreign("keras.src", __call__=refuse)
    with pytest.raises(ValueError, match=f"Keras runs on {backend}: set KERAS_BACKEND=jax"):
        linearize(lambda x: model(x[None])[0], LAW)


def test_keras_on_jax_is_told_about_batches(monkeypatch):
    keras = types.SimpleNamespace(backend=types.SimpleNamespace(backend=lambda: "jax"))
    monkeypatch.setitem(sys.modules, "keras", keras)
    model = foreign("keras.src", __call__=lambda _, x: of_batches(x))
    with pytest.raises(ValueError, match="it takes a batch of inputs"):
        linearize(model, LAW)


def test_first_line_of_keras_is_not_what_is_shown():
    def network(x):
        raise ValueError(
            "Exception encountered when calling Sequential.call().\n\n\x1b[1mBad shape\x1b[0m\n"
        )

    with pytest.raises(ValueError, match="got ValueError from it: Bad shape; for a network"):
        linearize(network, LAW)


def test_objects_are_found_behind_partial_functions_and_jit():
    assert "PyTorch" in remedy_for(
        functools.partial(lambda network, x: network(x), TORCH), TypeError()
    )
    assert "PyTorch" in remedy_for(jax.jit(lambda x: TORCH(x)), TypeError())  # noqa: PLW0108
    assert "PyTorch" in remedy_for(functools.partial(TORCH), TypeError())


def test_objects_are_found_among_the_attributes_of_an_object():
    class Wrapped:
        def __init__(self):
            self.network = TORCH

        def __call__(self, x):
            return self.network(x)

    assert "PyTorch" in remedy_for(Wrapped(), TypeError())
    assert "PyTorch" in remedy_for(Wrapped().__call__, TypeError())


def test_nothing_is_said_where_nothing_is_known():
    assert remedy_for(lambda x: x, RuntimeError("broken layer")) is None
    assert remedy_for(jnp.tanh) is None
    assert remedy_for(math.sin, TypeError()) is None  # its `__self__` is a module
    assert remedy_for(jnp.ones(3).dot, RuntimeError()) is None


def test_batches_are_not_the_remedy_where_they_fail_too():
    argument = jax.ShapeDtypeStruct((4,), np.float32)
    assert remedy_for(lambda x: x @ jnp.ones((5, 3)), TypeError(), argument) is None
    assert "takes 5 inputs" in remedy_for(lambda x: x @ jnp.ones((5, 3)), TypeError("5"), argument)
    assert "x[None]" in remedy_for(of_batches, ValueError(), argument)


def test_no_framework_is_imported():
    assert "torch" not in sys.modules
