"""Random leaky-ReLU networks with random inputs, and the same networks in NumPy's float64."""

import itertools
from typing import NamedTuple

import numpy as np

import nn_uq_dist as nuq
from nn_uq_dist.error_analysis._affine_bounds import Boxes, StandardNetwork
from nn_uq_dist.error_analysis._cover import enclosed

# Few enough draws for the cache of a processor.
_AT_ONCE = 5_000


class Case(NamedTuple):
    """A network with one output, and the distribution of its input."""

    net: nuq.LeakyReLUNetwork
    distribution: nuq.Input

    def draws(self, count, seed):
        """Draws of the output, independent of the library."""
        return np.concatenate(list(self.portions(count, seed)))

    def portions(self, count, seed):
        """The same, one after the other."""
        rng = np.random.default_rng(seed)
        for start in range(0, count, _AT_ONCE):
            size = (min(_AT_ONCE, count - start), self.net.num_inputs)
            x = np.broadcast_to(np.asarray(self.distribution.mean, np.float64), size)
            if self.distribution.half_width is not None:
                half_width = np.asarray(self.distribution.half_width, np.float64)
                x = x + half_width * rng.uniform(-1, 1, size)
            for term in self.distribution.terms:
                if not term.is_uniform:
                    factor = np.asarray(term.factor, np.float64)
                    z = rng.normal(size=size)
                    x = x + (z * factor if term.is_diagonal else z @ factor.T)
            yield forward(self.net, x)[:, 0]


def forward(net, x):
    """Outputs at rows of inputs, in NumPy's float64."""
    signal = x
    for weights, bias in zip(net.hidden_weights, net.biases, strict=True):
        h = signal @ np.asarray(weights, np.float64).T + np.asarray(bias, np.float64)
        signal = np.maximum(h, float(net.negative_slope) * h)
    y = signal @ np.asarray(net.output_matrix, np.float64).T
    if net.output_bias is not None:
        y = y + np.asarray(net.output_bias, np.float64)
    return y + x if net.skip_connection else y


def gradient(net, x, output=0):
    """Gradients of an output at rows of inputs, shaped as `x`."""
    signal, slopes = x, []
    for weights, bias in zip(net.hidden_weights, net.biases, strict=True):
        h = signal @ np.asarray(weights, np.float64).T + np.asarray(bias, np.float64)
        slopes.append(np.where(h >= 0, 1.0, float(net.negative_slope)))
        signal = slopes[-1] * h
    row = np.asarray(net.output_matrix, np.float64)[[output]]
    for weights, slope in zip(net.hidden_weights[::-1], slopes[::-1], strict=True):
        row = (row * slope) @ np.asarray(weights, np.float64)
    return row + np.eye(x.shape[1])[output] if net.skip_connection else row


def ascent(net, center, half, v, sign, form, *, num_steps, output=0):
    """Rows `v` of a box, moved to where ``sign * output + v @ form`` is large.

    Projected ascent along signs of the gradient.
    """
    for step in np.geomspace(0.5, 1e-3, num_steps):
        slope = sign * gradient(net, center + half * v, output) * half + form
        v = np.clip(v + step * np.sign(slope), -1, 1)
    return v


def farthest_outside(case, num_starts, seed):
    """How far search finds values beyond range, affine bounds and error bound of a case of a box.

    In units of the largest size of the output; more than rounding errors would be a violation.
    """
    exact = StandardNetwork.of_distribution(case.net, case.distribution, slice(0, 1))
    forms = enclosed(exact, Boxes.whole(exact)).forms
    center, half = (
        np.asarray(part, float) for part in (case.distribution.mean, case.distribution.half_width)
    )
    bounds = nuq.certified(case.net, case.distribution)
    # In float64: the bounds are of the exact tangent.
    tangent = gradient(case.net, center[None])[0] * half
    start, end = (float(bounds.quantile_bounds(q)[i]) for i, q in enumerate((0.0, 1.0)))
    lower, upper = forms.rows[0]
    first, second = forms.const[0]
    rng, farthest = np.random.default_rng(seed), -np.inf
    # Signs of the output, and linear forms, whose sums are made as large as possible.
    goals = [(1, 0 * lower), (-1, 0 * lower), (-1, lower), (1, upper), (1, -tangent), (-1, tangent)]
    for sign, form in goals:
        v = rng.uniform(-1, 1, (num_starts, len(center)))
        v = ascent(case.net, center, half, v, sign, form, num_steps=30)
        y = forward(case.net, center + half * v)[:, 0]
        error = np.abs(y - forward(case.net, center[None])[0, 0] - v @ tangent)
        beyond = (
            start - y, y - end, v @ lower + first - y, v @ upper + second + y,
            error - bounds.error_bound,
        )  # fmt: skip
        farthest = max(farthest, float(np.max(beyond)))
    return farthest / max(abs(start), abs(end))


def random_network(rng, num_inputs, width, depth, slope):
    """Weights that keep the size of the signals, and small biases."""
    sizes = [num_inputs, *[width] * depth]
    weights = [rng.normal(size=(b, a)) * np.sqrt(2 / a) for a, b in itertools.pairwise(sizes)]
    biases = [0.3 * rng.normal(size=width) for _ in range(depth)]
    output = rng.normal(size=(1, width)) / np.sqrt(width)
    return nuq.LeakyReLUNetwork(weights, biases, output, slope, False, rng.normal(size=1))


def random_case(seed):
    """1 to 6 layers, 2 to 31 inputs, slopes 0 to 0.5, half-widths .02 to 3; boxes, normal, both."""
    rng = np.random.default_rng(seed)
    num_inputs, depth = int(rng.integers(2, 32)), int(rng.integers(1, 7))
    slope = float(rng.choice([0.0, 0.01, 0.1, rng.uniform(0, 0.5)]))
    net = random_network(rng, num_inputs, int(rng.integers(2, 33)), depth, slope)
    size = np.exp(rng.uniform(np.log(0.02), np.log(3)))
    own = size * rng.uniform(0.1, 1, num_inputs)
    tril = np.tril(size / num_inputs * rng.normal(size=(num_inputs, num_inputs)), -1)
    some = rng.random(num_inputs) < 0.5
    scale = 0.3 * size * rng.uniform(0, 1, num_inputs)
    mean = rng.normal(size=num_inputs)
    kind = seed % 4
    if kind == 1:
        return Case(net, nuq.Input.normal(mean, own / np.sqrt(3)))
    distribution = nuq.Input.box(mean, own * some if kind == 3 else own)
    if kind == 2:
        distribution = distribution + nuq.Input.normal(0 * mean, scale)
    if kind == 3:
        tril = tril + np.diag(0.2 * own)
        distribution = distribution + nuq.Input.normal(0 * mean, scale_tril=tril)
    return Case(net, distribution)
