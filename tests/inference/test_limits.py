"""Limits of an output: compared as the output holds its numbers; bounds in the order of limits."""

import jax.numpy as jnp
import numpy as np
import pytest

import nn_uq_dist as nuq
from nn_uq_dist.inference._limits import Limits
from nn_uq_dist.inputs.flat_network import flat_network


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
