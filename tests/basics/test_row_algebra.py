"""Units are powers of two near each size, whether numbers are known, traced, tiny or huge."""

import jax
import numpy as np

from nn_uq_dist.basics.row_algebra import binary_unit


def test_units_are_powers_of_two_near_sizes(precision):
    sizes = np.array([1e-30, 0.3, 1.0, 1.3, 1.6, 7.0, 1e30], precision)
    without = np.array([0.0, -1.0, np.inf, np.nan], precision)
    for function in (binary_unit, jax.jit(binary_unit)):
        units = np.asarray(function(sizes))
        assert units.dtype == precision
        np.testing.assert_array_equal(np.frexp(units)[0], 0.5)
        assert np.all((sizes / units >= 0.75) & (sizes / units < 1.5))
        np.testing.assert_array_equal(function(without), 1)


def test_no_gradient_flows_through_units():
    assert jax.grad(lambda x: x * binary_unit(x))(3.0) == 2.0
