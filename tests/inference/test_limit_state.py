"""Limits of an output: compared as the output holds its numbers; bounds in the order of limits."""

import jax.numpy as jnp
import numpy as np
import pytest

import nn_uq_dist as nuq
from nn_uq_dist.inference._limit_state import BeyondLimits
from nn_uq_dist.inputs._flat_network import flat_network


def beyond(limit, upper=True):
    law = nuq.InputLaw(np.zeros(2, np.float32), scale=1.0)
    flat = flat_network(lambda x: jnp.clip(x[:1], -1.0, 0.1), law)
    return BeyondLimits(flat, limit, 0, upper)


# In single precision 0.1 is rounded up and 0.7 down.
@pytest.mark.parametrize("limit", [0.1, 0.7])
def test_an_output_at_the_limit_is_not_beyond_it(limit):
    kept = np.float64(np.float32([[limit]]))
    assert not beyond(limit).fails(kept).any()
    assert not beyond(limit, upper=False).fails(kept).any()
    assert beyond(limit).fails(np.nextafter(np.float32(kept), np.float32(2))).all()


def test_bounds_of_rarer_limits_are_not_larger():
    found = beyond([250.0, 200.0, 300.0]).in_order(np.array([2.5e-6, 8.5e-4, 4.8e-2]))
    np.testing.assert_array_equal(found, [2.5e-6, 8.5e-4, 2.5e-6])
    found = beyond([-2.0, -3.0], upper=False).in_order(np.array([0.1, 0.2]))
    np.testing.assert_array_equal(found, [0.1, 0.1])
