"""Networks of the benchmarks: random ones, and the trained operators of the examples."""

import importlib
import itertools
import sys
from pathlib import Path

import jax.numpy as jnp
import numpy as np

import nn_uq_dist as nuq

OPERATORS = tuple(f"{kind}_{depth}" for kind in ("linear", "nonlinear") for depth in (1, 5, 20))
VARYING = np.delete(np.arange(31), 15)  # outputs of the operators; the middle one vanishes


def operator(name):
    """A trained network of 31 inputs and outputs, and the mean of its input in float64."""
    folder = str(Path(__file__).parents[2] / "examples" / "operators")
    if folder not in sys.path:
        sys.path.insert(0, folder)
    module = importlib.import_module
    return module("networks").load(name), module("integro_differential").mean_input()


def operator_and_box(name, half_width):
    """A trained network, and a box about the mean of its input in float32."""
    net, mean = operator(name)
    return net, nuq.Input.box(jnp.asarray(mean, jnp.float32), half_width=half_width)


def random_layers(rng, sizes, gain=1.0, bias=0.0, dtype=np.float64):
    """Weights and biases of each layer."""
    layers = []
    for before, after in itertools.pairwise(sizes):
        weights = rng.standard_normal((after, before), dtype)
        weights *= gain  # in place: `bench_large` measures memory
        weights /= before**0.5
        layers.append((jnp.asarray(weights), jnp.asarray(bias * rng.standard_normal(after, dtype))))
    return layers


def apply(layers, activation, x):
    """Outputs at one input; the last layer is linear."""
    for weights, bias in layers[:-1]:
        x = activation(weights @ x + bias)
    weights, bias = layers[-1]
    return weights @ x + bias


def random_network(seed, sizes, activation=jnp.tanh, **options):
    """A network as a function of one input; options as those of `random_layers`."""
    layers = random_layers(np.random.default_rng(seed), sizes, **options)
    return lambda x: apply(layers, activation, x)
