"""Networks of one input have exact distribution functions: sums over the pieces between kinks."""

import itertools

import numpy as np
import pytest
import scipy.stats

import nn_uq_dist as nuq
from tests.benchmarks._certified_cases import forward, random_network

# Of the sums here, in float64.
ROUNDING = 1e-13


def with_zeros(x, h):
    """Sorted points x, and the zeros of functions with values h that are linear between them."""
    first, second = h[:-1], h[1:]
    at, which = np.nonzero(first * second < 0)
    share = first[at, which] / (first[at, which] - second[at, which])
    return np.unique(np.concatenate([x, x[at] + share * (x[at + 1] - x[at])]))


def probability(net, distribution, y):
    """The probability that the output is at most y."""
    x = np.array(
        distribution.support()
        if distribution.dist.name == "uniform"
        else distribution.ppf([1e-20, 1 - 1e-16])
    )
    for layer in range(net.num_layers):
        signal = x[:, None]
        for weights, bias in itertools.islice(
            zip(net.hidden_weights, net.biases, strict=True), layer + 1
        ):
            h = signal @ np.asarray(weights, float).T + np.asarray(bias, float)
            signal = np.maximum(h, float(net.negative_slope) * h)
        x = with_zeros(x, h)
    x = with_zeros(x, forward(net, x[:, None]) - y)
    below = forward(net, (x[1:] + x[:-1])[:, None] / 2)[:, 0] <= y
    return np.sum(np.diff(distribution.cdf(x)) * below)


@pytest.mark.parametrize("seed", range(6))
def test_exact_distribution_functions_lie_between_the_bounds(seed):
    rng = np.random.default_rng(seed)
    num_layers, slope = int(rng.integers(1, 4)), float(rng.choice([0, 0.01, 0.3]))
    net = random_network(rng, 1, int(rng.integers(2, 17)), num_layers, slope)
    center, size = (float(np.float32(part)) for part in (rng.normal(), np.exp(rng.uniform(-3, 1))))
    if seed % 3 == 2:
        distribution = scipy.stats.norm(center, size)
        bounds = nuq.certified(net, nuq.Input.normal([center], size))
    else:
        distribution = scipy.stats.uniform(center - size, 2 * size)
        box = nuq.Input.box([center], half_width=size)
        bounds = nuq.certified(net, box, max_parts=300, progress=False)
        assert bounds.gap < 1e-9
    draws = forward(net, distribution.rvs((2000, 1), random_state=seed))[:, 0]
    for y in np.quantile(draws, [0.01, 0.2, 0.37, 0.5, 0.8, 0.99]):
        low, high = bounds.cdf_bounds(y)
        assert low - ROUNDING <= probability(net, distribution, y) <= high + ROUNDING
