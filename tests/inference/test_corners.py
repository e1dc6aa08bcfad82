"""Corners of what fails: planes, of several components and of steps."""

import jax.numpy as jnp
import numpy as np
import pytest

import nn_uq_dist as nuq
from nn_uq_dist.inference._corners import Corner, are_beyond, corners, distinct
from tests.inference.test_limit_state import PLANE, plane_and_starts, searched

RNG = np.random.default_rng(0)


@pytest.mark.parametrize("upper", [True, False])
def test_a_plane_is_found_exactly(upper, x64):
    space, limits, direction, starts = plane_and_starts(upper)
    found = corners(space, limits.values[0], starts, RNG)
    assert len(found) == len(starts)
    for one in found:
        np.testing.assert_allclose(one.directions, direction[None], atol=1e-12)
        assert one.distances == pytest.approx([4], rel=1e-10)
        # The failing point nearest to zero is a thousandth beyond the plane.
        np.testing.assert_allclose(one.point, 1.001 * 4 * direction, atol=1e-6)
    assert len(distinct(found, 30)) == 1


def test_a_step_has_a_plane_across_the_ray(x64):
    space, _ = searched(lambda x: jnp.where(x[:1] > 3, 1.0, 0.0), 0.5, PLANE)
    (found,) = corners(space, 0.5, np.array([[4.0, 1.0]]), RNG)
    # The ray meets the step at x_0 = 3: no slope says more.
    point = np.array([3.0, 0.75])
    np.testing.assert_allclose(found.directions[0], point / np.linalg.norm(point), rtol=1e-6)
    # Next to the step, by six halvings of the ray.
    beyond = found.distances[0] - np.linalg.norm(point)
    assert 0 < beyond < np.hypot(4.0, 1.0) / 2**6 + 1e-9


def test_no_tangent_if_zero_fails(x64):
    space, _ = searched(lambda x: x[:1], -1.0, PLANE)
    assert corners(space, -1.0, np.ones((3, 2)), RNG) == []
    assert corners(space, 2.0, np.ones((0, 2)), RNG) == []


def test_corners_of_components_that_fail_together(x64):
    # Two of three, and planes that are not at right angles.
    rows = np.array([[1.0, 0, 0, 0], [0.6, 0.8, 0, 0], [0, 0, 1.0, 0]])
    space, _ = searched(lambda x: jnp.sort(rows @ x)[1:2], 6.0, nuq.Input.normal(jnp.zeros(4), 1.0))
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
