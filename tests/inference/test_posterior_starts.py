"""Starts tell how much of the posterior their modes may have missed."""

import numpy as np
import pytest

from nn_uq_dist.inference._posterior_starts import missing_share


def test_modes_of_few_starts_are_what_may_be_missing():
    rng = np.random.default_rng(0)
    # A narrow mode with 40 starts, one of three times its mass with two, and one of no mass.
    near = 0.1 * rng.standard_normal((40, 2))
    points = np.concatenate([near, 5 + 0.3 * rng.standard_normal((2, 2)), [[-5.0, 5.0]]])
    precisions = np.eye(2) * np.array([100.0] * 40 + [100 / 9] * 2 + [100.0])[:, None, None]
    logs = np.array([0.0] * 40 + [np.log(1 / 3)] * 2 + [-30.0])
    assert missing_share(points, precisions, logs) == pytest.approx(0.75, abs=1e-6)
    assert missing_share(points[:40], precisions[:40], logs[:40]) == 0


def test_a_light_mode_far_away_may_be_most_of_the_variance():
    weight = 0.001
    points = np.concatenate([np.repeat([-1.0, 1.0], 20), [31.0]])[:, None]
    precisions = np.full((41, 1, 1), 1e4)
    logs = np.log(np.array([1.0] * 40 + [2 * weight]))
    exact = weight * 31**2 / (1 + weight * 31**2)
    assert missing_share(points, precisions, logs) == pytest.approx(exact, rel=0.05)


def test_a_start_without_slope_does_not_link_modes():
    points = np.concatenate([np.linspace(-0.01, 0.01, 21), [2.0]])[:, None]
    precisions = np.array([1e4] * 10 + [1.0] + [1e4] * 11)[:, None, None]
    found = missing_share(points, precisions, np.zeros(22))
    assert found == pytest.approx(0.5, abs=0.01)
