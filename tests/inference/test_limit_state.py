"""Limits as the output holds its numbers; points and planes there, of components and of steps."""

import jax.numpy as jnp
import numpy as np
import pytest

import nn_uq_dist as nuq
from nn_uq_dist.inference._failure_search import searched
from nn_uq_dist.inference._limit_state import (
    Corner,
    Limits,
    are_beyond,
    corners,
    design_points,
    distinct,
    gradient_ascent,
)
from nn_uq_dist.inference._search_state import Problem
from nn_uq_dist.inference._standard_space import StandardSpace
from nn_uq_dist.sampling.flat_network import flat_network

PLANE = nuq.Input.normal(jnp.zeros(2), 1.0)
RNG = np.random.default_rng(0)
ROW, LOC, SCALE = np.array([1.0, -2.0, 0.5]), np.array([1.0, 0.0, 2.0]), np.array([0.5, 1.0, 2.0])


def space_of(network, limit, distribution, upper=True):
    flat = flat_network(network, distribution)
    limits = Limits(flat, limit, 0, upper)
    return StandardSpace(flat, limits.read, 1000), limits


def plane_and_starts(upper=True):
    """A linear network with the limit at 4 standard deviations, and inputs that fail."""
    distribution = nuq.Input.normal(jnp.asarray(LOC), jnp.asarray(SCALE))
    slope = ROW * SCALE
    size = np.linalg.norm(slope)
    sign = 1 if upper else -1
    space, limits = space_of(
        lambda x: ROW @ x[:, None], ROW @ LOC + sign * 4 * size, distribution, upper
    )
    direction = sign * slope / size
    rng = np.random.default_rng(0)
    across = rng.standard_normal((6, 3))
    across -= np.outer(across @ direction, direction)
    return space, limits, direction, 5 * direction + across


def test_steps_from_zero_reach_a_plane(x64):
    space, limits, _, _ = plane_and_starts()
    reached = gradient_ascent(space, limits.values[0], np.zeros((2, 3)))
    assert len(reached) == 2
    assert np.all(space.run(reached) > limits.values[0])


def test_steps_stay_where_there_is_no_slope(x64):
    space, _ = space_of(lambda x: jnp.where(x[:1] > 3, 1.0, 0.0), 0.5, PLANE)
    starts = np.array([[4.0, 1.0], [0.0, 0.0]])
    np.testing.assert_array_equal(gradient_ascent(space, 0.5, starts), starts[:1])


def test_design_points_of_several_limits(x64):
    space, limits = space_of(lambda x: x[:1], [4.0, 3.0, 6.0], PLANE)
    rays, none = np.array([[4.5, 0.0], [4.0, 3.0]]), np.full((3, 2), np.nan)
    found = design_points(space, limits, rays, none, 1000.0)
    # On the first ray, which is shorter; none reaches the last limit.
    np.testing.assert_allclose(found[:2, 1], 0, atol=1e-12)
    assert found[:2, 0] == pytest.approx([4, 3], rel=0.005)
    assert np.all(found[:2, 0] > [4, 3])
    assert np.isnan(found[2]).all()
    assert np.isnan(design_points(space, limits, np.zeros((0, 2)), none, 100.0)).all()
    # Of what failed: nearer than the rays, halved where no ray fails, and kept without rays.
    failed = np.array([[6.0, 0.0], [3.0001, 0.0], [9.0, 0.0]])
    found = design_points(space, limits, rays, failed, 1000.0)
    assert found[:, 0] == pytest.approx([4, 3.0001, 6], rel=0.005)
    assert np.all(found[:, 0] > limits.values)
    assert found[1, 0] == 3.0001
    none_of_rays = design_points(space, limits, np.zeros((0, 2)), failed, 100.0)
    np.testing.assert_array_equal(none_of_rays, failed)


def test_nearest_of_all_that_a_search_has_seen(x64):
    space, limits = space_of(lambda x: x[:1], [4.0, 5.0, 4.5, 30.0], PLANE)
    search = searched(Problem(space, limits, 2000, np.random.default_rng(0)))
    found = search.nearest()
    assert np.all(found[:3, 0] > [4, 5, 4.5])
    assert np.isnan(found[3]).all()
    lengths = np.linalg.norm(found, axis=1)
    for target in search.targets[:-1]:
        points = [target.population.points, target.chains.points]
        points += [one.point[None] for one in target.corners]
        least = np.linalg.norm(np.concatenate(points), axis=1).min()
        # Tangents lead to within a thousandth.
        assert lengths[target.number] <= least < 1.002 * target.limit


def limits_of(limit, upper=True):
    distribution = nuq.Input.normal(np.zeros(2, np.float32), 1.0)
    flat = flat_network(lambda x: jnp.clip(x[:1], -1.0, 0.1), distribution)
    return Limits(flat, limit, 0, upper)


# In single precision 0.1 is rounded up and 0.7 down.
@pytest.mark.parametrize("limit", [0.1, 0.7])
def test_an_output_at_the_limit_is_not_beyond_it(limit):
    output = np.float32([[limit]])
    for upper, beyond in ((True, 2), (False, -2)):
        limits = limits_of(limit, upper=upper)
        assert not limits.fails(limits.read(output).astype(float)).any()
        next_one = np.nextafter(output, np.float32(beyond))
        assert limits.fails(limits.read(next_one).astype(float)).all()


def test_bounds_of_rarer_limits_are_not_larger():
    found = limits_of([250.0, 200.0, 300.0]).in_order(np.array([2.5e-6, 8.5e-4, 4.8e-2]))
    np.testing.assert_array_equal(found, [2.5e-6, 8.5e-4, 2.5e-6])
    found = limits_of([-2.0, -3.0], upper=False).in_order(np.array([0.1, 0.2]))
    np.testing.assert_array_equal(found, [0.1, 0.1])


def test_targets_are_the_least_rare_first_and_span_all():
    limits = limits_of(np.arange(11.0)[::-1])
    assert limits.values[list(limits.targets)].tolist() == [0, 2, 5, 8, 10]
    lower = limits_of([1.0, 3.0, 2.0], upper=False)
    assert lower.targets == (1, 2, 0)


@pytest.mark.parametrize("upper", [True, False])
def test_a_plane_is_found_exactly(upper, x64):
    space, limits, direction, starts = plane_and_starts(upper)
    planes = corners(space, limits.values[0], starts, RNG)
    assert len(planes) == len(starts)
    for one in planes:
        np.testing.assert_allclose(one.directions, direction[None], atol=1e-12)
        assert one.distances == pytest.approx([4], rel=1e-10)
        # The failing point nearest to zero is a thousandth beyond the plane.
        np.testing.assert_allclose(one.point, 1.001 * 4 * direction, atol=1e-6)
    assert len(distinct(planes, 30)) == 1


def test_a_step_has_a_plane_across_the_ray(x64):
    space, _ = space_of(lambda x: jnp.where(x[:1] > 3, 1.0, 0.0), 0.5, PLANE)
    (plane,) = corners(space, 0.5, np.array([[4.0, 1.0]]), RNG)
    # The ray meets the step at x_0 = 3: no slope says more.
    point = np.array([3.0, 0.75])
    np.testing.assert_allclose(plane.directions[0], point / np.linalg.norm(point), rtol=1e-6)
    # Next to the step, by six halvings of the ray.
    beyond = plane.distances[0] - np.linalg.norm(point)
    assert 0 < beyond < np.hypot(4.0, 1.0) / 2**6 + 1e-9


def test_no_tangent_if_zero_fails(x64):
    space, _ = space_of(lambda x: x[:1], -1.0, PLANE)
    assert corners(space, -1.0, np.ones((3, 2)), RNG) == []
    assert corners(space, 2.0, np.ones((0, 2)), RNG) == []


def test_corners_of_components_that_fail_together(x64):
    # Two of three, and planes that are not at right angles.
    rows = np.array([[1.0, 0, 0, 0], [0.6, 0.8, 0, 0], [0, 0, 1.0, 0]])
    space, _ = space_of(lambda x: jnp.sort(rows @ x)[1:2], 6.0, nuq.Input.normal(jnp.zeros(4), 1.0))
    starts = np.array([[8.0, 6.0, 0.2, 1.0], [10.0, -2.0, 12.0, -1.0], [-0.4, 10.0, 8.0, 0.3]])
    feet = [[6.0, 3.0, 0.0, 0.0], [6.0, 0.0, 6.0, 0.0], [3.6, 4.8, 6.0, 0.0]]
    for one, foot in zip(corners(space, 6.0, starts, RNG), feet, strict=True):
        np.testing.assert_allclose(one.foot, foot, atol=1e-6)
        np.testing.assert_allclose(one.directions @ foot, 6.0)
        np.testing.assert_allclose(one.point, 1.001 * np.array(foot), atol=1e-6)


def test_half_spaces_that_hold_others():
    def tangent(x, y):
        point = np.array([x, y])
        length = np.linalg.norm(point)
        return Corner(point[None] / length, length[None], point, point)

    near, beyond, other = tangent(3.0, 0.0), tangent(3.5, 0.1), tangent(0.0, 4.0)
    assert distinct([other, beyond, near], 30) == [near, other]
    assert distinct([other, beyond, near], 1) == [near]
    # Nearly beyond counts: by the slack over the distance, 1/6.
    points = np.array([[2.9, 5.0], [2.8, 0.0], [0.0, 3.0]])
    assert are_beyond([near], points).tolist() == [True, False, False]
    assert not are_beyond([], points).any()
