"""The references against each other, closed forms and the density on a grid."""

import numpy as np
import pytest
import scipy.special

from tests.box_gaussian.joint_density_grid import joint_density_grid
from tests.box_gaussian.references import (
    by_box_spline,
    by_quadrature,
    by_separations,
    each_alone,
    far_outside,
    problem,
)  # fmt: skip


@pytest.mark.parametrize(("num_inputs", "num_outputs", "nodes"), [(2, 6, 300), (3, 2, 100)])
def test_separation_against_quadrature(num_inputs, num_outputs, nodes):
    points, weights, covariance = problem(np.random.default_rng(2), num_inputs, num_outputs, 0.1, 4)
    exact = [by_quadrature(point, weights, covariance, nodes) for point in points]
    np.testing.assert_allclose(by_separations(points, weights, covariance, 1e-3), exact, atol=1e-3)


@pytest.mark.slow
def test_separation_of_equal_columns_is_an_integral_over_their_sum():
    """A sum of `n` uniforms on (-1, 1) has a density in closed form (Irwin and Hall)."""
    column, count = np.array([1.0, 0.5]), 12
    covariance = np.diag([0.02, 0.01])
    points = np.array([[0.0, 0.1], [2.0, 1.1], [3.0, 1.6]])
    nodes, rule = np.polynomial.legendre.leggauss(400)
    sums = count * nodes
    terms = np.arange(count + 1)
    powers = np.maximum((sums[:, None] + count) / 2.0 - terms, 0.0) ** (count - 1)
    density = powers @ ((-1.0) ** terms * scipy.special.comb(count, terms))
    density = 0.5 * density / scipy.special.factorial(count - 1)
    normal = scipy.stats.multivariate_normal(np.zeros(2), covariance)
    exact = [
        np.log((count * rule * density * normal.pdf(point - sums[:, None] * column)).sum())
        for point in points
    ]
    weights = np.repeat(column[:, None], count, axis=1)
    found = by_separations(points, weights, covariance, 2e-3, 16)
    np.testing.assert_allclose(found, exact, atol=2e-3)


def test_box_spline_against_the_grid():
    weights = np.random.default_rng(3).uniform(-1, 1, (2, 6))
    grid = joint_density_grid(weights, 512)
    assert not grid.smoothing.any()
    points = np.stack(np.meshgrid(*grid.points, indexing="ij"), -1)[::16, ::16].reshape(-1, 2)
    exact = grid.density[::16, ::16].ravel()
    found = by_box_spline(points, weights)
    np.testing.assert_allclose(found, exact, atol=1e-7 * exact.max())


def test_far_outside_against_the_distribution_of_each_output():
    sizes, noise = np.array([0.5, 2.0, 1.0]), 0.01
    points = np.array([[0.55, 0.3, -2.0], [0.7, 2.5, 1.2], [-0.1, 1.0, 0.4]])
    found = [far_outside(point, np.diag(sizes), noise**2 * np.eye(3)) for point in points]
    for estimate, value in zip(found, each_alone(points, sizes, noise), strict=True):
        assert abs(estimate.value - value) <= 2.0 * estimate.error + 1e-6
