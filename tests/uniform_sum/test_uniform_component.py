"""Sines and cosines of nodes: against mpmath, near 0, near half turns, and far away."""

import jax.numpy as jnp
import mpmath
import numpy as np
import pytest

from nn_uq_dist.uniform_sum import _uniform_component as component

pytestmark = pytest.mark.usefixtures("precision")

# In units of the type's rounding error. Reduction of a large angle leaves some of its own.
MODERATE, LARGE = 2.0, 4.0


def angles(largest):
    """Of the default type: from tiny ones to `largest`, and beside multiples of a quarter turn."""
    rng = np.random.default_rng(0)
    sizes = np.geomspace(1e-6, largest, 300) * rng.uniform(0.9, 1.0, 300)
    quarters = np.arange(1, 40) * np.pi / 2
    beside = np.concatenate([quarters * (1 + shift) for shift in (0, 1e-3, -1e-6)])
    return jnp.asarray(np.concatenate([sizes, beside[beside < largest]]))


def exact(function, points):
    with mpmath.workdps(40):
        return np.array([float(function(mpmath.mpf(float(v)))) for v in points])


@pytest.mark.parametrize(("largest", "units"), [(60.0, MODERATE), (1e4, LARGE)])
def test_sine_and_cosine(largest, units):
    points = jnp.concatenate([angles(largest), -angles(largest)])
    eps = float(jnp.finfo(points.dtype).eps)
    sine, cosine = component.sine_and_cosine(points)
    np.testing.assert_allclose(sine, exact(mpmath.sin, points), rtol=0, atol=units * eps)
    np.testing.assert_allclose(cosine, exact(mpmath.cos, points), rtol=0, atol=units * eps)


@pytest.mark.parametrize(("largest", "units"), [(60.0, MODERATE), (1e4, LARGE)])
def test_squares_products_and_what_is_missing_from_one(largest, units):
    points = angles(largest)
    eps = float(jnp.finfo(points.dtype).eps)
    squared, product, *missing = component.square_product_and_deficits(points, 1 / points)
    for found, again in zip((squared, product), component.square_and_product(points), strict=True):
        np.testing.assert_array_equal(found, again)
    references = (lambda v: mpmath.sin(v) ** 2, lambda v: mpmath.sin(v) * mpmath.cos(v))
    for found, reference in zip((squared, product), references, strict=True):
        np.testing.assert_allclose(found, exact(reference, points), rtol=0, atol=units * eps)
    references = (
        lambda v: 1 - (mpmath.sin(v) / v) ** 2,
        lambda v: (v - mpmath.sin(v) * mpmath.cos(v)) / v**2,
    )
    # Relative, also for the smallest angles, where the plain formulas have no digit left.
    for found, reference in zip(missing, references, strict=True):
        np.testing.assert_allclose(found, exact(reference, points), rtol=8 * eps)
