"""Values that are made to increase, against SciPy's isotonic regression."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import isotonic_regression

from nn_uq_dist.paired_samples._increasing_values import increasing, isotonic


@pytest.mark.parametrize("seed", range(5))
def test_isotonic_is_scipys(seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows = np.cumsum(rng.normal(0.1, 1, (3, 40)), axis=1)
    weights = np.exp(rng.normal(0, 3, (3, 40)))
    expected = [
        isotonic_regression(row, weights=weight).x
        for row, weight in zip(rows, weights, strict=True)
    ]
    np.testing.assert_allclose(isotonic(rows, weights), expected, rtol=1e-10)


def test_traced_as_known() -> None:
    rng = np.random.default_rng(1)
    linear = np.sort(rng.normal(size=(2, 30)), axis=1).astype(np.float32)
    wanted = (linear**3 + rng.normal(0, 0.3, linear.shape)).astype(np.float32)
    logs = rng.normal(size=linear.shape).astype(np.float32)
    known = increasing(linear, wanted, logs)
    traced = jax.jit(increasing)(*(jnp.asarray(part) for part in (linear, wanted, logs)))
    for a, b in zip(known, traced, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)


def test_what_increases_is_kept_and_precise_values_do_not_move() -> None:
    linear = np.linspace(0, 1, 20)[None]
    good = np.tanh(3 * linear)
    logs = np.zeros_like(linear)
    kept, falls = increasing(linear, good, logs)
    np.testing.assert_allclose(kept, good, atol=1e-12)
    assert falls == 0
    off = good.copy()
    off[0, 10] += 0.5
    logs[0, 10] = -20  # known to hardly anything
    mended, falls = increasing(linear, off, logs)
    others = np.arange(20) != 10
    np.testing.assert_allclose(mended[0, others], good[0, others], atol=2e-3)
    assert falls > 0
    assert (np.diff(mended) > 0).all()


def test_knots_that_are_one_by_rounding() -> None:
    linear = np.concatenate([np.zeros((1, 6)), np.linspace(0, 1, 20)[None]], axis=1)
    found, _ = increasing(linear, 2 * linear, np.zeros_like(linear))
    np.testing.assert_allclose(found, 2 * linear, atol=1e-6)
