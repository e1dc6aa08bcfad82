"""The references against each other; `far_outside` is compared in test_log_density_far_out.py."""

import numpy as np

from tests.box_gaussian.joint_density_grid import joint_density_grid
from tests.box_gaussian.references import (
    by_box_spline,
    by_quadrature,
    by_separations,
    problem,
)


def test_separation_against_quadrature():
    points, weights, covariance = problem(np.random.default_rng(2), 3, 2, 0.1, 4)
    exact = [by_quadrature(point, weights, covariance, 100) for point in points]
    np.testing.assert_allclose(by_separations(points, weights, covariance, 1e-3), exact, atol=1e-3)


def test_box_spline_against_the_grid():
    weights = np.random.default_rng(3).uniform(-1, 1, (2, 6))
    grid = joint_density_grid(weights, 512)
    assert not grid.smoothing.any()
    points = np.stack(np.meshgrid(*grid.points, indexing="ij"), -1)[::16, ::16].reshape(-1, 2)
    exact = grid.density[::16, ::16].ravel()
    found = by_box_spline(points, weights)
    np.testing.assert_allclose(found, exact, atol=1e-7 * exact.max())
