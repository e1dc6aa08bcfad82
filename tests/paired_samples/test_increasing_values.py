"""Increasing values, and smooth slopes: the minimum by SciPy, and noise that is removed."""

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.optimize import minimize

from nn_uq_dist.paired_samples._increasing_values import increasing, smooth_slopes

Array = NDArray[np.float64]

SCORES = np.linspace(-3, 3, 31)


def objective(values: Array, linear: Array, wanted: Array, weights: Array) -> float:
    """What the module's formula says, written as loops would."""
    logs = np.log(np.diff(values) / np.diff(linear))
    middle = (SCORES[1:] + SCORES[:-1]) / 2
    h = np.diff(middle)
    slopes = np.diff(logs) / h
    around = (middle[2:] - middle[:-2]) / 2
    fit = np.sum(weights * (values - wanted) ** 2) / 2
    rough = 1.5 * np.sum(np.log1p(np.diff(slopes) ** 2 / (2 * around)))
    return float(fit + np.sum(np.diff(logs) ** 2 / h) / 2 + rough)


def noisy(rng: np.random.Generator, sigma: float) -> tuple[Array, ...]:
    """A bent map with noise: linear, true, wanted values and logarithms of their weights."""
    linear = np.sinh(SCORES / 2)[None]
    truth = linear + 0.3 * linear**2 / 3 + 0.02 * linear**3
    wanted = truth + rng.normal(0, sigma, truth.shape)
    return linear, truth, wanted, np.full(truth.shape, -2 * np.log(sigma))


@pytest.mark.parametrize("seed", range(2))
def test_minimum_is_scipys(seed: int) -> None:
    linear, _, wanted, logs = noisy(np.random.default_rng(seed), 0.03)
    start, _ = increasing(linear, wanted)
    found = smooth_slopes(linear, start, wanted, logs, SCORES)[0]
    weights = np.exp(logs[0])
    weights[:3] *= 16  # the ends count more
    weights[-3:] *= 16

    def of_rises(parameters: Array) -> float:
        rises = np.exp(parameters[1:])
        values = parameters[0] + np.concatenate([[0.0], np.cumsum(rises)])
        return objective(values, linear[0], wanted[0], weights)

    first = np.concatenate([found[:1], np.log(np.diff(found))])
    best = minimize(of_rises, first, method="BFGS", options={"gtol": 1e-7, "maxiter": 2000})
    # No step of a general method gains more than a part in 10,000 of one unit of the objective.
    assert of_rises(first) - best.fun < 1e-4
    assert of_rises(np.concatenate([start[0, :1], np.log(np.diff(start[0]))])) > best.fun + 1


def test_noise_is_removed_and_what_is_precise_is_kept() -> None:
    rng = np.random.default_rng(3)
    before, after = [], []
    for _ in range(40):
        linear, truth, wanted, logs = noisy(rng, 0.05)
        start, _ = increasing(linear, wanted)
        found = smooth_slopes(linear, start, wanted, logs, SCORES)
        log_slope = np.log(np.diff(truth))
        before.append(np.std(np.log(np.diff(start)) - log_slope))
        after.append(np.std(np.log(np.diff(found)) - log_slope))
    assert np.mean(after) < 0.3 * np.mean(before)
    linear, truth, wanted, _ = noisy(rng, 1e-7)
    found = smooth_slopes(linear, truth, wanted, np.full(truth.shape, 32.0), SCORES)
    np.testing.assert_allclose(found, wanted, atol=1e-6)


def test_a_kink_of_the_map_stays() -> None:
    linear = SCORES[None]
    truth = np.where(linear > 0.05, 5 * linear, linear)
    logs = np.full(linear.shape, 2 * np.log(1 / 0.02))
    found = smooth_slopes(linear, truth, truth, logs, SCORES)
    slopes = np.diff(found)[0] / np.diff(SCORES)
    np.testing.assert_allclose(slopes[:14], 1, rtol=0.1)
    np.testing.assert_allclose(slopes[17:], 5, rtol=0.1)


@pytest.mark.parametrize("factor", [1e-6, 1.0, 1e6])
def test_straight_maps_stay_whatever_the_units_and_the_noise(factor: float) -> None:
    linear = factor * np.sinh(SCORES)[None]
    for logs in (-40.0, 0.0, 40.0):
        wanted = 3 * factor + 2 * linear
        weights = np.full(linear.shape, logs - 2 * np.log(factor))
        found = smooth_slopes(linear, wanted, wanted, weights, SCORES)
        np.testing.assert_allclose(found, wanted, atol=1e-9 * factor)


def test_knots_that_are_one_by_rounding() -> None:
    linear = np.concatenate([np.zeros((1, 6)), np.linspace(0, 1, 25)[None]], axis=1)
    start = np.concatenate([np.zeros((1, 6)), np.linspace(0, 2, 25)[None]], axis=1)
    found = smooth_slopes(linear, start, start, np.zeros_like(linear), SCORES)
    np.testing.assert_allclose(found, start, atol=1e-6)


def test_what_increases_is_kept_and_what_falls_is_moved_between_its_neighbors() -> None:
    linear = np.linspace(0, 1, 20)[None]
    good = np.tanh(3 * linear)
    kept, falls = increasing(linear, good)
    np.testing.assert_allclose(kept, good, atol=1e-12)
    assert falls == 0
    off = good.copy()
    off[0, 10] += 0.5
    mended, falls = increasing(linear, off)
    np.testing.assert_allclose(mended[0, :10], good[0, :10], atol=2e-3)
    assert (good <= mended + 2e-3).all()
    assert (mended <= off.max() + 2e-3).all()
    assert falls > 0
    assert (np.diff(mended) > 0).all()


def test_increasing_at_knots_that_are_one_by_rounding() -> None:
    linear = np.concatenate([np.zeros((1, 6)), np.linspace(0, 1, 20)[None]], axis=1)
    found, _ = increasing(linear, 2 * linear)
    np.testing.assert_allclose(found, 2 * linear, atol=1e-6)
