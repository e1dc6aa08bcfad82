"""Starts are minima of perturbed problems, and tell which modes may be missing."""

import numpy as np
import pytest

from nn_uq_dist.inference._posterior_starts import missing_share, randomized_modes


@pytest.mark.parametrize("outputs", [2, 6])
def test_starts_of_a_linear_network_are_exact_minima(outputs):
    rng = np.random.default_rng(6)
    matrix, y = rng.standard_normal((outputs, 4)), rng.standard_normal(outputs)
    prior, noise = rng.standard_normal((10, 4)), rng.standard_normal((10, outputs))

    def misfits(z):
        return z @ matrix.T - y, np.broadcast_to(matrix, (len(z), *matrix.shape))

    z, precisions, logs = randomized_modes(misfits, prior, noise)
    precision = np.eye(4) + matrix.T @ matrix
    expected = np.linalg.solve(precision, (prior + (y - noise) @ matrix).T).T
    np.testing.assert_allclose(z, expected, atol=1e-2)
    np.testing.assert_allclose(precisions, np.broadcast_to(precision, (10, 4, 4)))
    misfit = z @ matrix.T - y
    np.testing.assert_allclose(logs, -0.5 * (np.sum(z**2, 1) + np.sum(misfit**2, 1)))


def test_starts_without_a_slope_lead_nowhere():
    def misfits(z):
        slopes = np.where(z > 1, np.nan, np.where(z < -1, np.inf, 1.0))
        return z - 0.5, slopes[:, None]

    prior = np.array([[3.0], [-3.0], [0.9], [-0.9]])
    z, precisions, logs = randomized_modes(misfits, prior, np.zeros((4, 1)))
    assert np.all(logs[:2] == -np.inf)
    assert np.isfinite(logs[2:]).all()
    # Minima of (z - prior)**2 + (z - .5)**2.
    np.testing.assert_allclose(z[2:, 0], [0.7, -0.2], atol=0.02)
    np.testing.assert_array_equal(precisions[2:], np.full((2, 1, 1), 2.0))


def test_precisions_can_be_inverted():
    def misfits(z):
        return 1e12 * (z.sum(axis=1, keepdims=True) - 1), np.full((len(z), 1, 3), 1e12)

    z, precisions, _ = randomized_modes(misfits, np.zeros((1, 3)), np.zeros((1, 1)))
    np.testing.assert_allclose(z, np.full((1, 3), 1 / 3))
    assert np.linalg.eigvalsh(np.linalg.inv(precisions)).min() > 0


def test_modes_of_few_starts_are_what_may_be_missing():
    rng = np.random.default_rng(0)
    # A narrow mode with 40 starts, one of three times its mass with two, and one of no mass.
    near = 0.1 * rng.standard_normal((40, 2))
    points = np.concatenate([near, 5 + 0.3 * rng.standard_normal((2, 2)), [[-5.0, 5.0]]])
    precisions = np.eye(2) * np.array([100.0] * 40 + [100 / 9] * 2 + [100.0])[:, None, None]
    logs = np.array([0.0] * 40 + [np.log(1 / 3)] * 2 + [-30.0])
    assert missing_share(points, precisions, logs) == pytest.approx(0.75, abs=1e-6)
    assert missing_share(points[:40], precisions[:40], logs[:40]) == 0


@pytest.mark.parametrize(("weight", "share"), [(0.001, 0.5), (1e-6, 1e-3)])
def test_a_light_mode_far_away_may_be_most_of_the_variance(weight, share):
    points = np.concatenate([np.repeat([-1.0, 1.0], 20), [31.0]])[:, None]
    precisions = np.full((41, 1, 1), 1e4)
    logs = np.log(np.array([1.0] * 40 + [2 * weight]))
    exact = weight * 31**2 / (1 + weight * 31**2)
    assert exact == pytest.approx(share, rel=0.05)
    assert missing_share(points, precisions, logs) == pytest.approx(exact, rel=0.05)


def test_a_start_without_slope_does_not_link_modes():
    points = np.concatenate([np.linspace(-0.01, 0.01, 21), [2.0]])[:, None]
    precisions = np.array([1e4] * 10 + [1.0] + [1e4] * 11)[:, None, None]
    found = missing_share(points, precisions, np.zeros(22))
    assert found == pytest.approx(0.5, abs=0.01)
