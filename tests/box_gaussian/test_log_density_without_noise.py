"""Densities without noise: total variation distance to a box spline and to the grid."""

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import linprog

from nn_uq_dist.box_gaussian import log_evidence
from tests.box_gaussian.joint_density_grid import joint_density_grid
from tests.box_gaussian.references import by_box_spline

# Outputs, inputs, and the bar of the mean over Jacobians.
CASES = [(2, 6, 0.02), (2, 12, 0.005), (2, 31, 0.001), (3, 12, 0.02)]
JACOBIANS, POINTS, GRID = 5, 400, 128


def draws(num_outputs, num_inputs):
    """Weights, points of the exact distribution (those of a grid) and its densities there."""
    parts = []
    for seed in range(JACOBIANS):
        generator = np.random.default_rng([num_outputs, num_inputs, seed])
        weights = generator.uniform(-1, 1, (num_outputs, num_inputs))
        grid = joint_density_grid(weights, GRID)
        mass = grid.mass.ravel()
        chosen = generator.choice(mass.size, POINTS, p=mass / mass.sum())
        picked = np.unravel_index(chosen, grid.density.shape)
        axes = zip(grid.points, picked, strict=True)
        points = np.stack([axis[index] for axis, index in axes], -1)
        # The grid of few inputs is smoothed; that of 12 by less than half a cell, if at all.
        exact = by_box_spline(points, weights) if num_inputs == 6 else grid.density[picked]
        assert num_inputs == 6 or (grid.smoothing < 0.5 * grid.spacing).all()
        inside = exact > 0
        parts.append((weights, points[inside], exact[inside]))
    return parts


@pytest.mark.parametrize(("num_outputs", "num_inputs", "bar"), CASES)
def test_total_variation(num_outputs, num_inputs, bar, x64):
    """It is half the mean of ``|q/p - 1|`` over draws of ``p``."""
    parts = draws(num_outputs, num_inputs)
    weights = np.concatenate([np.broadcast_to(w, (len(p), *w.shape)) for w, p, _ in parts])
    points = np.concatenate([p for _, p, _ in parts])
    exact = np.concatenate([p for _, _, p in parts])
    found = np.asarray(log_evidence(jnp.asarray(points), jnp.asarray(weights), None))
    assert np.isfinite(found).all()
    assert 0.5 * np.abs(np.exp(found) / exact - 1.0).mean() < bar


@pytest.mark.slow
def test_the_support_is_the_image_of_the_box(precision):
    """The least half-width of a box that reaches a point, by linear programs."""
    generator = np.random.default_rng(2)
    weights = generator.normal(size=(4, 6))
    root = np.linalg.cholesky(weights @ weights.T / 3)
    points = 1.3 * generator.normal(size=(400, 4)) @ root.T
    cost, within = np.r_[np.zeros(6), 1.0], np.r_[np.eye(6), -np.eye(6)]
    limits, outputs = (np.c_[within, -np.ones(12)], np.zeros(12)), np.c_[weights, np.zeros(4)]
    solutions = [linprog(cost, *limits, outputs, point, (None, None)) for point in points]
    reach = np.array([solution.fun for solution in solutions])
    found = log_evidence(jnp.asarray(points, precision), jnp.asarray(weights, precision), None)
    # In single precision the edge is not resolved.
    clear = np.abs(reach - 1.0) > 2e-3
    assert (reach > 1.0).sum() > 50
    assert (np.isneginf(found) == (reach > 1.0))[clear].all()
    assert np.isfinite(found)[clear & (reach < 1.0)].all()
