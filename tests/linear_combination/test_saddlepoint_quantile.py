"""Approximate quantiles, against laws whose quantiles are known."""

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import ndtr

from nn_uq_dist.linear_combination._saddlepoint_quantile import saddlepoint_quantile
from tests.compiling import jit

SCORES = np.array([0.0, 1e-4, 0.02, 0.3, 1.0, 2.0, 3.5, 5.0])


@pytest.mark.parametrize("repeats", [1, 20], ids=["law_per_point", "shared_law"])
def test_one_uniform(repeats, precision):
    scores = np.repeat(SCORES, repeats).astype(precision)
    found = jit(saddlepoint_quantile)(scores, np.array([-3.0]), np.zeros(()))
    # P(X > x) = (w - x)/(2 w): the density does not decay.
    exact_gap = 6.0 * ndtr(-scores.astype(np.float64))
    resolved = exact_gap > 1e3 * np.finfo(precision).eps
    error = (3.0 - np.asarray(found.x, np.float64) - exact_gap) / exact_gap
    assert np.max(np.abs(error[resolved])) <= 0.13
    tail = resolved & (scores > 1)
    assert np.max((found.rate * exact_gap)[tail]) <= 0.4
    assert np.all(found.rate >= 0)


@pytest.mark.parametrize("repeats", [1, 20], ids=["law_per_point", "shared_law"])
def test_normal_laws_are_exact(repeats, precision):
    scores = np.repeat([*SCORES, 30.0, 1e4], repeats).astype(precision)
    found = jit(saddlepoint_quantile)(scores, np.zeros(5), np.full((), 0.2))
    within = 3e-4 if precision == "float32" else 1e-9
    np.testing.assert_allclose(found.x, 0.2 * np.maximum(scores, 1e-3), rtol=within)
    np.testing.assert_allclose(found.deviation, 0.2, rtol=within)
    np.testing.assert_allclose(found.rate, np.maximum(scores, 1e-3) / 0.2, rtol=within)


def test_many_equal_weights_are_nearly_normal(precision):
    found = jit(saddlepoint_quantile)(SCORES.astype(precision), np.ones(3000), np.zeros(()))
    np.testing.assert_allclose(found.x, np.sqrt(1000.0) * SCORES, rtol=0.002, atol=0.05)


def test_shapes_broadcast_like_points_and_laws():
    weights = np.random.default_rng(0).normal(size=(3, 1, 4)).astype(np.float32)
    scale = np.full((3, 1), 0.1, np.float32)
    few = jit(saddlepoint_quantile)(jnp.linspace(0, 4, 5), weights, scale)
    many = jit(saddlepoint_quantile)(jnp.linspace(0, 4, 201), weights, scale)
    assert few.x.shape == (3, 5)
    assert many.x.shape == (3, 201)
    # Interpolated between knots, which the solution for few points does not need.
    difference = np.abs(few.x - many.x[:, ::50]) / few.deviation
    assert np.max(difference) <= 0.05
