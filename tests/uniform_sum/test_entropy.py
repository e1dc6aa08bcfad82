"""Differential entropy by quadrature of densities that share no algebra with the package.

Up to five weights: alternating sums of iterated integrals of the normal distribution. More: the
difference of two values of the distribution function of all weights but the largest, whose
characteristic function is inverted by the midpoint rule. Densities are right to 1e-14 in absolute
terms, which is what an entropy needs.
"""

import functools
import itertools
import math

import jax
import numpy as np
import pytest
from scipy.special import ndtr

from nn_uq_dist import uniform_sum as lc
from tests.compiling import fully_optimized_jit, jit

ENTROPY = jit(lc.entropy)
# Panels halve this often towards each knot.
_DEPTH = 58


def reference(weights, scale):
    """Differential entropy of ``sum_k w_k U_k + s N``, all weights positive."""
    weights = sorted(weights, reverse=True)
    if len(weights) <= 5:
        signs = itertools.product([1, -1], repeat=len(weights))
        knots = [abs(np.dot(sign, weights)) for sign in signs]
        return _by_quadrature(_alternating_sum(weights, scale), knots, sum(weights) + 13 * scale)
    largest = weights[0]
    below, reach = _distribution_function(np.array(weights[1:]), scale)

    def density(x):
        return (below(largest - x) - below(-largest - x)) / (2 * largest)

    knots = [0, largest, abs(largest - reach), largest + reach]
    return _by_quadrature(density, knots, largest + reach)


def _alternating_sum(weights, scale):
    order = len(weights) - 1
    patterns = [np.array(sign) for sign in itertools.product([1, -1], repeat=len(weights))]

    def excess(a):
        """``E[(a - s N)_+^order] / order!``"""
        if not scale:
            return np.maximum(a, 0) ** order / math.factorial(order) if order else 1.0 * (a > 0)
        z = a / scale
        before, current = np.exp(-0.5 * z * z) / math.sqrt(2 * math.pi), ndtr(z)
        for j in range(1, order + 1):
            before, current = current, (z * current + before) / j
        return scale**order * current

    def density(x):
        terms = (np.prod(sign) * excess(np.dot(sign, weights) - x) for sign in patterns)
        return sum(terms) / np.prod(2 * np.array(weights))

    return density


def _distribution_function(weights, scale):
    """The distribution function of a smooth distribution, and where it reaches 0 and 1."""
    deviation = math.sqrt(np.sum(weights**2) / 3 + scale**2)
    reach = min(weights.sum() + 13 * scale, 16 * deviation)
    step = math.pi / (2.2 * reach)
    angle = (np.arange(40_000) + 0.5) * step
    factors = np.sinc(weights[:, None] * angle / np.pi)
    values = np.prod(factors, axis=0) * np.exp(-0.5 * (scale * angle) ** 2)
    last = np.flatnonzero(np.abs(values) > 1e-19)[-1] + 1
    angle, values = angle[:last], values[:last] / angle[:last]

    def below(x):
        clipped = np.clip(x, -1.05 * reach, 1.05 * reach)
        portions = np.array_split(clipped, -(-len(clipped) // 2000))
        sums = np.concatenate([np.sin(np.outer(part, angle)) @ values for part in portions])
        middle = 0.5 + sums * step / math.pi
        return np.where(x >= reach, 1, np.where(x <= -reach, 0, middle))

    return below, reach


def _by_quadrature(density, knots, end):
    """Twice the integral of ``-p log p`` from 0 to the end, with panels graded at the knots."""
    steps = end * 2.0 ** -np.arange(_DEPTH)
    ends = np.concatenate([knots, [0, end], *[k + s * steps for k in knots for s in (1, -1)]])
    ends = np.unique(np.clip(ends, 0, end))
    ends = ends[np.concatenate([[True], np.diff(ends) > 1e-15 * end])]
    points, rule = np.polynomial.legendre.leggauss(16)
    half = 0.5 * np.diff(ends)[:, None]
    values = density((0.5 * (ends[1:] + ends[:-1])[:, None] + half * points).ravel())
    lengths = (half * rule).ravel()
    assert abs(2 * lengths @ values - 1) < 1e-10
    positive = values > 1e-300
    logs = np.log(np.where(positive, values, 1))
    return -2 * lengths @ (values * logs * positive)


# All patterns that put corners into a density: each with every size of the normal part.
WEIGHTS = {
    "one": [1.0],
    "two": [1.0, 0.4],
    "two equal": [1.0, 1.0],
    "a small second": [1.0, 1e-3],
    "a tiny second": [1.0, 1e-6],
    "three": [1.0, 0.9, 0.8],
    "three sizes": [1.0, 1e-2, 3e-3],
    "a small third": [1.0, 0.5, 1e-3],
    "four equal": [1.0] * 4,
    "three small": [1.0, 0.1, 0.1, 0.1],
    "two pairs": [1.0, 1.0, 1e-2, 1e-2],
    "five": [1.0, 0.9, 0.7, 0.5, 0.2],
    "four small": [1.0, 0.05, 0.04, 0.03, 0.02],
    "twelve": [1.0] + [0.1] * 11,
    "sixty": [1.0] + [3e-3] * 59,
    "one hundred and twenty": list(np.linspace(0.1, 1.5, 120)),
}
SCALES = [0.0, 1e-9, 1e-6, 1e-4, 1e-3, 1e-2, 0.1, 1.0]


@functools.cache
def patterns(most):
    """Weights, padded with zeros, scales and entropies of the patterns of up to so many weights."""
    weights = [w for w in WEIGHTS.values() if (len(w) > 5) == (most > 5)]
    scales = SCALES if most == 5 else SCALES[::3]
    distributions = [(w, s * max(w)) for w in weights for s in scales]
    padded = np.array([w + [0.0] * (most - len(w)) for w, _ in distributions])
    expected = np.array([reference(*distribution) for distribution in distributions])
    return padded, np.array([scale for _, scale in distributions]), expected


@pytest.mark.slow
@pytest.mark.parametrize(
    ("most", "precision"),
    [(5, "float64"), (120, "float32")],
    indirect=["precision"],
)
def test_any_size_of_the_normal_part(most, precision):
    weights, scale, expected = patterns(most)
    found = fully_optimized_jit(lc.entropy)(weights.astype(precision), scale.astype(precision))
    tolerance = {"float32": 1e-5, "float64": 1e-9}[precision]
    np.testing.assert_allclose(found, expected, rtol=0, atol=tolerance)


@pytest.mark.slow
def test_gradients_against_those_of_the_references(x64):
    distributions = [
        (WEIGHTS[name], s) for name in ("three", "a small third") for s in (1e-4, 1e-2, 0.3)
    ]

    def difference(weights, scale, k):
        ends = []
        for step in (1e-4, -1e-4):
            moved = np.array([*weights, scale])
            moved[k] *= 1 + step
            ends.append(reference(moved[:-1], moved[-1]))
        return (ends[0] - ends[1]) / 2e-4

    expected = [[difference(w, s, k) for k in range(4)] for w, s in distributions]
    weights, scale = (np.array(part) for part in zip(*distributions, strict=True))
    found = jit(jax.grad(lambda w, s: lc.entropy(w, s).sum(), (0, 1)))(weights, scale)
    # Relative moves of each parameter.
    found = np.concatenate([found[0] * weights, (found[1] * scale)[:, None]], axis=-1)
    np.testing.assert_allclose(found, expected, atol=1e-6)


@pytest.mark.slow
def test_scale_distribution_batches_and_a_normal_alone(x64):
    weights = np.array([[0.9, -0.5, 0.3], [0.2, 0.0, 0.7]])
    scales = np.array([2.0**-20, 1.0, 3.0])
    together = ENTROPY(weights[:, None] * scales[:, None])
    assert together.shape == (2, 3)
    np.testing.assert_allclose(together - np.log(scales), together[:, 1:2] + 0 * scales, atol=1e-9)
    # A zero weight stands for no uniform part.
    expected = 0.5 * np.log(2 * np.pi * np.e * 0.7**2)
    assert abs(ENTROPY([0.0], 0.7) - expected) < 1e-12
