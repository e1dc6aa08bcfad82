"""The references of `bench_input_posterior` agree with quadrature: errors there would be ours."""

import numpy as np
import pytest

from tests.benchmarks._posterior_reference import (
    Observed,
    by_mpmath,
    by_quadrature,
    by_weighted_draws,
)

JACOBIAN = np.array([[1.0, -0.6], [0.3, 0.8], [-0.5, 1.2]])


def observed(box, normal, outputs, noise, triangular):
    deviation = np.array([0.5, -0.4, 0.3])[:outputs]
    scale = np.full(outputs, noise)
    return Observed(box, normal, JACOBIAN[:outputs], deviation, scale, triangular)


@pytest.mark.parametrize("outputs", [1, 3])
@pytest.mark.parametrize("triangular", [False, True])
def test_weighted_draws(outputs, triangular):
    box, normal = np.diag([1.5, 0.7]), np.array([[0.0], [0.4]])[:, : outputs // 3]
    for noise in (0.05, 0.3):
        seen = observed(box, normal, outputs, noise, triangular)
        exact, found = by_quadrature(seen, 500), by_weighted_draws(seen)
        np.testing.assert_allclose((found.mean - exact.mean) / exact.sd, 0, atol=5e-4)
        np.testing.assert_allclose(found.sd, exact.sd, rtol=1e-3)
        np.testing.assert_allclose(found.log_evidence, exact.log_evidence, atol=1e-4)
        assert max(found.mean_error, found.sd_error) < 2e-3


def test_a_box_that_does_not_matter_leaves_a_normal_distribution():
    wide = 1e4
    box = by_quadrature(observed(np.diag([1.0, 1.0]), np.zeros((2, 0)), 3, 0.02, False))
    normal = by_mpmath(observed(np.zeros((2, 0)), wide * np.eye(2), 3, 0.02, False))
    np.testing.assert_allclose(box.mean, normal.mean, rtol=1e-5)
    np.testing.assert_allclose(box.sd, normal.sd, rtol=1e-5)
