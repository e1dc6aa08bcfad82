"""Units are powers of two near each size, whether numbers are known, traced, tiny or huge."""

import jax
import numpy as np

from nn_uq_dist.basics.row_algebra import binary_unit

SIZES = [1e-30, 0.3, 1.0, 1.3, 1.6, 7.0, 1e30]
WITHOUT = [0.0, -1.0, np.inf, np.nan]


def test_units_are_powers_of_two_near_sizes(precision):
    sizes = np.asarray(SIZES, precision)
    for units in (binary_unit(sizes), np.asarray(jax.jit(binary_unit)(sizes))):
        assert units.dtype == precision
        np.testing.assert_array_equal(np.frexp(units)[0], 0.5)
        assert np.all((sizes / units >= 0.75) & (sizes / units < 1.5))


def test_what_has_no_size_has_unit_one(precision):
    sizes = np.asarray(WITHOUT, precision)
    np.testing.assert_array_equal(binary_unit(sizes), 1)
    np.testing.assert_array_equal(jax.jit(binary_unit)(sizes), 1)


def test_no_gradient_flows_through_units():
    assert jax.grad(lambda x: x * binary_unit(x))(3.0) == 2.0
