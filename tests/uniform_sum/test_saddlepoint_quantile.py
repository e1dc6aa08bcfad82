"""Approximate quantiles, against distributions whose quantiles are known."""

import numpy as np
from scipy.special import ndtr

from nn_uq_dist.uniform_sum.saddlepoint_quantile import saddlepoint_quantile
from tests.compiling import jit

SCORES = np.array([0.0, 1e-4, 0.02, 0.3, 1.0, 2.0, 3.5, 5.0])


def test_one_uniform(precision):
    scores = SCORES.astype(precision)
    tiny = np.asarray(0.1 * np.finfo(precision).eps, precision)
    found = jit(saddlepoint_quantile)(scores, np.array([1.0], precision), tiny)
    # P(X > x) = (1 - x)/2: the density does not decay.
    exact_gap = 2.0 * ndtr(-scores.astype(np.float64))
    resolved = exact_gap > 1e3 * np.finfo(precision).eps
    error = (1.0 - np.asarray(found, np.float64) - exact_gap) / exact_gap
    assert np.max(np.abs(error[resolved])) <= 0.13


def test_normal_distributions_are_exact(precision):
    scores = np.array([*SCORES, 30.0, 1e4], precision)
    found = jit(saddlepoint_quantile)(scores, np.zeros(5), np.full((), 0.2))
    within = 3e-4 if precision == "float32" else 1e-9
    np.testing.assert_allclose(found, 0.2 * np.maximum(scores, 1e-3), rtol=within)


def test_many_equal_weights_are_nearly_normal(precision):
    weights, tiny = np.full(3000, 1 / 3000, precision), np.asarray(1e-9, precision)
    found = jit(saddlepoint_quantile)(SCORES.astype(precision), weights, tiny)
    np.testing.assert_allclose(3000 * found, np.sqrt(1000.0) * SCORES, rtol=0.002, atol=0.05)


def test_numpy_and_jax_take_the_same_steps_for_all_shapes():
    weights = np.random.default_rng(0).uniform(size=(3, 1, 4)).astype(np.float32) / 4
    scale = np.full((3, 1), 0.1, np.float32)
    scores = np.linspace(0, 4, 5, dtype=np.float32)
    known, traced = (
        f(scores, weights, scale) for f in (saddlepoint_quantile, jit(saddlepoint_quantile))
    )
    assert known.shape == traced.shape == (3, 5)
    assert isinstance(known, np.ndarray)
    np.testing.assert_allclose(known, traced, rtol=1e-5)
    single = saddlepoint_quantile(scores[1], weights[0, 0], scale[0, 0])
    # The search ends when the last of all points is near enough.
    np.testing.assert_allclose(single, known[0, 1], rtol=0.02)
