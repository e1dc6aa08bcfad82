"""Random leaky-ReLU networks with random inputs, and the same networks in NumPy's float64."""

import itertools
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

import nn_uq_dist as nuq

Array = NDArray[np.float64]


class Case(NamedTuple):
    """A network with one output, and the law of its input."""

    net: nuq.LeakyReLUNetwork
    law: nuq.InputLaw

    def draws(self, count: int, seed: int) -> Array:
        """Draws of the output, independent of the library."""
        rng = np.random.default_rng(seed)
        found = []
        for start in range(0, count, 100_000):
            size = (min(100_000, count - start), self.net.num_inputs)
            x = np.broadcast_to(np.asarray(self.law.loc, np.float64), size)
            if self.law.half_width is not None:
                x = x + np.asarray(self.law.half_width, np.float64) * rng.uniform(-1, 1, size)
            if self.law.normal_scale is not None:
                factor = np.asarray(self.law.scale_tril, np.float64)
                x = x + rng.normal(size=size) @ factor.T
            found.append(forward(self.net, x)[:, 0])
        return np.concatenate(found)


def forward(net: nuq.LeakyReLUNetwork, x: Array) -> Array:
    """Outputs at rows of inputs, in NumPy's float64."""
    signal = x
    for weights, bias in zip(net.hidden_weights, net.biases, strict=True):
        h = signal @ np.asarray(weights, np.float64).T + np.asarray(bias, np.float64)
        signal = np.where(h >= 0, h, float(net.negative_slope) * h)
    y = signal @ np.asarray(net.output_matrix, np.float64).T
    if net.output_bias is not None:
        y = y + np.asarray(net.output_bias, np.float64)
    return y + x if net.skip_connection else y


def gradient(net: nuq.LeakyReLUNetwork, x: Array) -> Array:
    """Gradients of the only output at rows of inputs, shaped as `x`."""
    signal, slopes = x, []
    for weights, bias in zip(net.hidden_weights, net.biases, strict=True):
        h = signal @ np.asarray(weights, np.float64).T + np.asarray(bias, np.float64)
        slopes.append(np.where(h >= 0, 1.0, float(net.negative_slope)))
        signal = slopes[-1] * h
    row = np.asarray(net.output_matrix, np.float64)
    for weights, slope in zip(net.hidden_weights[::-1], slopes[::-1], strict=True):
        row = (row * slope) @ np.asarray(weights, np.float64)
    return row


def random_network(
    rng: np.random.Generator, num_inputs: int, width: int, depth: int, slope: float
) -> nuq.LeakyReLUNetwork:
    """Weights that keep the size of the signals, and small biases."""
    sizes = [num_inputs, *[width] * depth]
    weights = [
        rng.normal(size=(after, before)) * np.sqrt(2 / before)
        for before, after in itertools.pairwise(sizes)
    ]
    biases = [0.3 * rng.normal(size=width) for _ in range(depth)]
    output = rng.normal(size=(1, width)) / np.sqrt(width)
    return nuq.LeakyReLUNetwork(weights, biases, output, slope, False, rng.normal(size=1))


def random_case(seed: int) -> Case:
    """1 to 6 layers, 2 to 31 inputs, slopes 0 to 0.5, half-widths .02 to 3; boxes, normal, both."""
    rng = np.random.default_rng(seed)
    num_inputs, depth = int(rng.integers(2, 32)), int(rng.integers(1, 7))
    slope = float(rng.choice([0.0, 0.01, 0.1, rng.uniform(0, 0.5)]))
    net = random_network(rng, num_inputs, int(rng.integers(2, 33)), depth, slope)
    size = np.exp(rng.uniform(np.log(0.02), np.log(3)))
    own = size * rng.uniform(0.1, 1, num_inputs)
    tril = np.tril(size / num_inputs * rng.normal(size=(num_inputs, num_inputs)), -1)
    some = rng.random(num_inputs) < 0.5
    parts = (
        {"half_width": own},
        {"scale": own / np.sqrt(3)},
        {"half_width": own, "scale": 0.3 * size * rng.uniform(0, 1, num_inputs)},
        {"half_width": own * some, "scale_tril": tril + np.diag(0.2 * own)},
    )[seed % 4]
    return Case(net, nuq.InputLaw(rng.normal(size=num_inputs), **parts))
