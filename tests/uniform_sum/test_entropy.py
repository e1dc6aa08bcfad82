"""Differential entropy against closed forms and quadrature of independent densities."""

import functools

import jax
import numpy as np
import pytest

from nn_uq_dist import uniform_sum as lc
from tests.compiling import fully_optimized_jit, jit
from tests.uniform_sum import entropy_references

ENTROPY = jit(lc.entropy)

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
    expected = np.array(
        [entropy_references.entropy(*distribution) for distribution in distributions]
    )
    return padded, np.array([scale for _, scale in distributions]), expected


@pytest.mark.slow
@pytest.mark.parametrize("most", [5, 120])
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
            ends.append(entropy_references.entropy(moved[:-1], moved[-1]))
        return (ends[0] - ends[1]) / 2e-4

    expected = [[difference(w, s, k) for k in range(4)] for w, s in distributions]
    weights, scale = (np.array(part) for part in zip(*distributions, strict=True))
    found = jit(jax.grad(lambda w, s: lc.entropy(w, s).sum(), (0, 1)))(weights, scale)
    # Relative moves of each parameter.
    found = np.concatenate([found[0] * weights, (found[1] * scale)[:, None]], axis=-1)
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_normal_distribution_alone(x64):
    # A zero weight stands for no uniform part.
    expected = 0.5 * np.log(2 * np.pi * np.e * 0.7**2)
    assert abs(ENTROPY([0.0], 0.7) - expected) < 1e-12


def test_scale_distribution_and_batches(x64):
    weights = np.array([[0.9, -0.5, 0.3], [0.2, 0.0, 0.7]])
    scales = np.array([2.0**-20, 1.0, 3.0])
    together = ENTROPY(weights[:, None] * scales[:, None])
    assert together.shape == (2, 3)
    np.testing.assert_allclose(together - np.log(scales), together[:, 1:2] + 0 * scales, atol=1e-9)


@pytest.mark.slow
def test_invalid_distributions_are_nan(precision):
    weights = np.array([[0.0, 0.0], [np.nan, 1.0], [np.inf, 1.0]])
    assert np.all(np.isnan(ENTROPY(weights)))
    assert np.isnan(ENTROPY([1.0], -1.0))
