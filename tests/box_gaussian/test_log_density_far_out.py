"""Far from the bulk, beyond the support of the uniforms, at its edge, and without noise."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import linprog

from nn_uq_dist.box_gaussian import log_evidence
from tests.box_gaussian.joint_density_grid import joint_density_grid
from tests.box_gaussian.references import (
    by_box_spline,
    by_separations,
    each_alone,
    far_outside,
    problem,
)

RELATIVE = {"float64": 1e-3, "float32": 1e-2}


def evaluate(points, weights, covariance, dtype):
    factor = None if covariance is None else jnp.asarray(np.linalg.cholesky(covariance), dtype)
    return np.asarray(log_evidence(jnp.asarray(points, dtype), jnp.asarray(weights, dtype), factor))


def eight_deviations(generator, weights, covariance, count):
    """Points eight standard deviations out, in the metric of the distribution."""
    directions = generator.normal(size=(count, len(weights)))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    return 8.0 * directions @ np.linalg.cholesky(weights @ weights.T / 3.0 + covariance).T


@pytest.mark.parametrize("noise", [0.1, 10.0])
@pytest.mark.parametrize(("num_inputs", "num_outputs"), [(2, 2), (3, 7)])
def test_eight_deviations_out(num_inputs, num_outputs, noise, precision):
    generator = np.random.default_rng(1)
    _, weights, covariance = problem(generator, num_inputs, num_outputs, noise, 1)
    points = eight_deviations(generator, weights, covariance, 8)
    exact = by_separations(points, weights, covariance, 1e-3)
    found = evaluate(points, weights, covariance, precision)
    np.testing.assert_allclose(found, exact, rtol=RELATIVE[precision])


def far_points(num_inputs, num_outputs, noise, count=8, chosen=slice(None)):
    generator = np.random.default_rng(2)
    _, weights, covariance = problem(generator, num_inputs, num_outputs, noise, 1)
    points = eight_deviations(generator, weights, covariance, count)[chosen]
    exact = [far_outside(point, weights, covariance) for point in points]
    for estimate in exact:
        assert estimate.error < 1e-3 * abs(estimate.value)
    return points, weights, covariance, [estimate.value for estimate in exact]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("num_inputs", "num_outputs", "noise"),
    [(3, 3, 1e-4), (3, 2, 1e-4), (3, 2, 1e-2), (6, 6, 1e-3), (12, 31, 1e-4), (12, 31, 1e-2)],
)
def test_eight_deviations_out_with_little_noise(num_inputs, num_outputs, noise):
    *arguments, exact = far_points(num_inputs, num_outputs, noise)
    np.testing.assert_allclose(evaluate(*arguments, np.float32), exact, rtol=1e-2)
    with jax.enable_x64(True):
        np.testing.assert_allclose(evaluate(*arguments, np.float64), exact, rtol=1e-3)


@pytest.mark.parametrize("noise", [1e-3, 1e-4])
def test_passes_that_ran_in_circles_of_three_in_float32(noise):
    *arguments, exact = far_points(3, 3, noise, count=2000, chosen=[927, 1770, 1874, 1990])
    np.testing.assert_allclose(evaluate(*arguments, np.float32), exact, rtol=1e-2)


def test_an_input_that_outputs_determine_in_float32():
    weights = np.array([[-0.347, 1.064, 1.061], [-0.252, 0.212, -1.211]])
    covariance = np.diag([0.00205, 0.00136])
    point = np.array([2.1955, -0.1844])
    (exact,) = by_separations([point], weights, covariance, 1e-3)
    assert abs(evaluate(point, weights, covariance, np.float32) - exact) < 0.1


@pytest.mark.slow
@pytest.mark.parametrize("noise", [1e-4, 0.3, 10.0])
def test_from_the_center_to_beyond_the_edge(noise, x64):
    sizes = np.array([0.5, 2.0, 1.0])
    factors = np.array([0.0, 0.5, 0.9, 0.999, 1.0, 1.001, 1.05, 1.3, 2.0])
    points = factors[:, None] * sizes * np.array([1.0, -1.0, 1.0])
    found = evaluate(points, np.diag(sizes), np.diag((noise * sizes) ** 2), np.float64)
    np.testing.assert_allclose(found, each_alone(points, sizes, noise * sizes), rtol=1e-6)


@pytest.mark.slow
def test_outputs_of_condition_300_have_densities_in_float32():
    """As many outputs as inputs, which determine all inputs, some of them far better."""
    noise = 1e-4
    generator = np.random.default_rng(3)
    left, _, right = np.linalg.svd(generator.normal(size=(4, 4)))
    weights = (left * np.geomspace(1.0, 1.0 / 300.0, 4)) @ right
    scale = noise * np.sqrt((weights**2).sum(axis=1) / 3.0)
    inputs = generator.uniform(-1, 1, (4000, 4))
    points = inputs @ weights.T + scale * generator.normal(size=(4000, 4))
    found = evaluate(points, weights, np.diag(scale**2), np.float32)
    assert np.isfinite(found).all()
    exact = by_separations(points[:20], weights, np.diag(scale**2), 3e-3)
    np.testing.assert_allclose(found[:20], exact, atol=0.1)


# Outputs, inputs, and the bar of the mean over Jacobians.
CASES = [(2, 6, 0.02), (2, 31, 0.001), (3, 12, 0.02)]
JACOBIANS, POINTS, GRID = 5, 400, 128


def draws_of_grids(num_outputs, num_inputs):
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
    parts = draws_of_grids(num_outputs, num_inputs)
    weights = np.concatenate([np.broadcast_to(w, (len(p), *w.shape)) for w, p, _ in parts])
    points = np.concatenate([p for _, p, _ in parts])
    exact = np.concatenate([p for _, _, p in parts])
    found = evaluate(points, weights, None, np.float64)
    assert np.isfinite(found).all()
    assert 0.5 * np.abs(np.exp(found) / exact - 1.0).mean() < bar


@pytest.mark.slow
def test_the_support_is_the_image_of_the_box(precision):
    """The least half-width of a box that reaches a point, by linear programs."""
    generator = np.random.default_rng(2)
    weights = generator.normal(size=(4, 6))
    root = np.linalg.cholesky(weights @ weights.T / 3)
    points = 1.3 * generator.normal(size=(300, 4)) @ root.T
    cost, within = np.r_[np.zeros(6), 1.0], np.r_[np.eye(6), -np.eye(6)]
    limits, outputs = (np.c_[within, -np.ones(12)], np.zeros(12)), np.c_[weights, np.zeros(4)]
    solutions = [linprog(cost, *limits, outputs, point, (None, None)) for point in points]
    reach = np.array([solution.fun for solution in solutions])
    found = evaluate(points, weights, None, precision)
    # In single precision the edge is not resolved.
    clear = np.abs(reach - 1.0) > 2e-3
    assert (reach > 1.0).sum() > 50
    # There passes may not settle, for one point outside in 2,000: no number, and not a wrong one.
    unknown = np.isnan(found) & (reach > 1.0)
    assert unknown.sum() <= (1 if precision == "float32" else 0)
    assert (np.isneginf(found) == (reach > 1.0))[clear & ~unknown].all()
    assert np.isfinite(found)[clear & (reach < 1.0)].all()
