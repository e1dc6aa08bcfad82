"""Sines and cosines of nodes: against mpmath, near 0, near half turns, and far away."""

import jax.numpy as jnp
import mpmath
import numpy as np
import pytest

from nn_uq_dist.uniform_sum import _uniform_component as component

pytestmark = pytest.mark.usefixtures("precision")

# The largest angle, and an error in roundings of the type: reducing large angles has its own.
SIZES = pytest.mark.parametrize(("largest", "units"), [(60.0, 2.0), (1e4, 4.0)])


def angles(largest):
    """Of the default type: from tiny ones to `largest`, and beside multiples of a quarter turn."""
    rng = np.random.default_rng(0)
    sizes = np.geomspace(1e-6, largest, 300) * rng.uniform(0.9, 1.0, 300)
    quarters = np.arange(1, 40) * np.pi / 2
    beside = np.concatenate([quarters * (1 + shift) for shift in (0, 1e-3, -1e-6)])
    points = jnp.asarray(np.concatenate([sizes, beside[beside < largest]]))
    return points, float(jnp.finfo(points.dtype).eps)


def check(found, function, points, **tolerance):
    with mpmath.workdps(40):
        exact = [float(function(mpmath.mpf(float(v)))) for v in points]
    np.testing.assert_allclose(found, exact, **{"rtol": 0, **tolerance})


@SIZES
def test_sine_and_cosine(largest, units):
    points, eps = angles(largest)
    points = jnp.concatenate([points, -points])
    found = component.sine_and_cosine(points)
    for value, function in zip(found, (mpmath.sin, mpmath.cos), strict=True):
        check(value, function, points, atol=units * eps)


@SIZES
def test_squares_products_and_what_is_missing_from_one(largest, units):
    points, eps = angles(largest)
    squared, product, *missing = component.square_product_and_deficits(points, 1 / points)
    for found, again in zip((squared, product), component.square_and_product(points), strict=True):
        np.testing.assert_array_equal(found, again)
    sin, cos = mpmath.sin, mpmath.cos
    check(squared, lambda v: sin(v) ** 2, points, atol=units * eps)
    check(product, lambda v: sin(v) * cos(v), points, atol=units * eps)
    # Relative, also for the smallest angles, where the plain formulas have no digit left.
    check(missing[0], lambda v: 1 - (sin(v) / v) ** 2, points, rtol=8 * eps)
    check(missing[1], lambda v: (v - sin(v) * cos(v)) / v**2, points, rtol=8 * eps)
