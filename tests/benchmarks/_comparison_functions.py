"""Five networks of three outputs, layer by layer, on which `bench_comparison` compares methods."""

import importlib
import itertools
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

import nn_uq_dist as nuq
from tests.benchmarks._failure_cases import Case

OUTPUTS = (5, 10, 25)  # of the operators


class Layer(NamedTuple):
    """Weights, bias, and a function of each entry."""

    weights: Array
    bias: Array
    activation: Callable[[Array], Array]


class TestFunction(NamedTuple):
    """A network and the distribution of its input: a box or independent normal variables."""

    __test__ = False  # no test of pytest

    name: str
    layers: tuple[Layer, ...]
    f: nuq.Input

    def network(self, x: Array) -> Array:
        """Outputs, shape ``(3,)``."""
        for weights, bias, activation in self.layers:
            x = activation(weights @ x + bias)
        return x

    def output(self, index: int) -> Case:
        """One output, as a function of standard normal variables."""
        return Case(self.name, lambda x: self.network(x)[index : index + 1], self.f)


def operator(name: str, half_width: float) -> TestFunction:
    """Three outputs of a trained operator network of 31 inputs."""
    folder = str(Path(__file__).parents[2] / "examples" / "operators")
    if folder not in sys.path:
        sys.path.insert(0, folder)
    net = importlib.import_module("networks").load(name)
    slope = net.negative_slope
    layers = [
        Layer(jnp.asarray(weights), jnp.asarray(bias), lambda h: jnp.where(h >= 0, h, slope * h))
        for weights, bias in zip(net.hidden_weights, net.biases, strict=True)
    ]
    last = jnp.asarray(net.output_matrix)[jnp.asarray(OUTPUTS)]
    layers.append(Layer(last, jnp.zeros(len(OUTPUTS)), lambda h: h))
    mean = jnp.asarray(importlib.import_module("integro_differential").mean_input())
    depth = name.rpartition("_")[2]
    title = f"operator, {depth} layer{'s' if depth != '1' else ''}, 31 inputs, ±{half_width}"
    return TestFunction(title, tuple(layers), nuq.Input.box(mean, half_width=half_width))


def random_network(
    seed: int, num_inputs: int, activation: Callable[[Array], Array], name: str, f: nuq.Input
) -> TestFunction:
    """Two hidden layers of 16 with random weights."""
    rng = np.random.default_rng(seed)
    sizes = (num_inputs, 16, 16, 3)
    layers = [
        Layer(
            jnp.asarray(rng.normal(size=(after, before)) * np.sqrt(2 / before)),
            jnp.asarray(rng.normal(size=after) * 0.3),
            activation,
        )
        for before, after in itertools.pairwise(sizes)
    ]
    layers[-1] = layers[-1]._replace(activation=lambda h: h)
    return TestFunction(name, tuple(layers), f)


def functions() -> list[TestFunction]:
    """The five functions, in the default type of JAX."""
    return [
        operator("nonlinear_1", 0.5),
        operator("nonlinear_5", 1.5),
        random_network(
            12, 12, jnp.tanh, "tanh, 12 normal inputs", nuq.Input.normal(jnp.full(12, 0.2), 0.3)
        ),
        random_network(
            4,
            4,
            lambda h: jax.nn.leaky_relu(h, 0.1),
            "leaky ReLU, 4 inputs, ±1",
            nuq.Input.box(jnp.full(4, 0.3), half_width=1.0),
        ),
        random_network(
            3, 3, jnp.tanh, "tanh, 3 inputs, ±1", nuq.Input.box(jnp.full(3, 0.3), half_width=1.0)
        ),
    ]
