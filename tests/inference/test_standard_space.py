"""Inputs at standard normal variables: next to the edges of a box, and derivatives."""

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import ndtr

import nn_uq_dist as nuq
from nn_uq_dist.inference._standard_space import StandardSpace
from nn_uq_dist.sampling.flat_network import flat_network
from tests.counting import CountedNetwork


def space_of(network, distribution, num_runs=1000):
    flat = flat_network(network, distribution)
    return StandardSpace(flat, lambda outputs: outputs[:, 0], num_runs)


def test_inputs_next_to_an_edge_keep_their_digits():
    distribution = nuq.Input.box(np.full(1, 0.5, np.float32), half_width=0.5)
    z = np.array([[-5.0], [-9.0], [-1.0], [1.0]])
    found = space_of(lambda x: x, distribution).inputs(z)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, ndtr(z), rtol=1e-6)


def test_slopes_are_by_the_standard_variables(x64):
    row = jnp.array([2.0, -3.0])
    distribution = nuq.Input.box(jnp.zeros(2), jnp.array([0.5, 0.0])) + nuq.Input.normal(
        jnp.zeros(2), jnp.array([0.0, 2.0])
    )
    space = space_of(lambda x: jnp.sin(row @ x)[None], distribution)
    z = np.array([[0.3, 0.2], [-1.0, 0.5]])
    outputs, slopes = space.slopes(z)
    np.testing.assert_allclose(outputs, space.run(z))
    step = 1e-6
    for variable in np.eye(2):
        difference = space.run(z + step * variable) - space.run(z - step * variable)
        np.testing.assert_allclose(slopes @ variable, difference / (2 * step), rtol=1e-6)
    assert space.num_runs == 2 * 3 + 2 + 2 * 4


def test_runs_are_reported_and_inputs_are_none():
    told = []
    distribution = nuq.Input.normal(jnp.zeros(2), 1.0)
    flat = flat_network(lambda x: x, distribution)
    space = StandardSpace(flat, lambda outputs: outputs[:, 1], 1000, told.append)
    z = np.array([[0.0, 3.0], [np.nan, 1.0]])
    inputs = space.inputs(z)
    np.testing.assert_array_equal(inputs, [[0.0, 3.0], [np.nan, np.nan]])
    assert sum(told) == 0
    assert space.run(z[:1]) == pytest.approx([3.0])
    assert sum(told) == space.num_runs == 1


@pytest.mark.parametrize(("num_runs", "block"), [(1000, 1), (10_000, 4), (1_000_000, 256)])
def test_runs_are_what_the_network_computes(num_runs, block):
    network = CountedNetwork(lambda x: jnp.sum(x**2, keepdims=True))
    space = space_of(network, nuq.Input.normal(jnp.zeros(2), 1.0), num_runs)
    assert space.block == block
    z = np.random.default_rng(0).normal(size=(1100, 2))
    for count in (0, 3, 513, 1100):
        before, evaluations = space.num_runs, network.count
        np.testing.assert_allclose(space.run(z[:count]), np.sum(z[:count] ** 2, axis=1), rtol=1e-5)
        done = space.num_runs - before
        assert done == network.count - evaluations
        assert count <= done < count + block
    before, evaluations = space.num_runs, network.count
    space.slopes(z[:33])
    assert space.num_runs - before == 3 * (network.count - evaluations)
    assert 33 <= network.count - evaluations < 33 + min(block, 32)
