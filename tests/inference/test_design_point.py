"""Most probable failing inputs of planes and a sphere."""

import jax.numpy as jnp
import numpy as np
import pytest

import nn_uq_dist as nuq
from nn_uq_dist.inference._design_point import design_points
from nn_uq_dist.inference._limits import Limits
from nn_uq_dist.inference._standard_space import StandardSpace
from nn_uq_dist.inputs._flat_network import flat_network


def test_points_of_several_limits(x64):
    flat = flat_network(lambda x: x[:1], nuq.InputLaw(jnp.zeros(2), scale=1.0))
    limits = Limits(flat, [4.0, 3.0, 6.0], 0, True)
    space = StandardSpace(flat, limits.read)
    rays = np.array([[4.5, 0.0], [4.0, 3.0]])
    found = design_points(space, limits, rays, 1000.0)
    # On the first ray, which is shorter; none reaches the last limit.
    np.testing.assert_allclose(found[:2, 1], 0, atol=1e-12)
    assert found[:2, 0] == pytest.approx([4, 3], rel=0.005)
    assert np.all(found[:2, 0] > [4, 3])
    assert np.isnan(found[2]).all()


def test_without_candidates(x64):
    flat = flat_network(lambda x: x[:1], nuq.InputLaw(jnp.zeros(2), scale=1.0))
    limits = Limits(flat, [4.0], 0, True)
    space = StandardSpace(flat, limits.read)
    assert np.isnan(design_points(space, limits, np.zeros((0, 2)), 100.0)).all()
