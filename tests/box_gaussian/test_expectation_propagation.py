"""Moments of a truncated normal distribution against adaptive quadrature."""

import jax.numpy as jnp
import mpmath
import numpy as np
import pytest

from nn_uq_dist.box_gaussian._expectation_propagation import tilted_moments

# Precision, slope, and the lower end; the interval has the length two.
CASES = {
    "uniform": (0.0, 0.0, -1.0),
    "exponential": (0.0, 3.0, -1.0),
    "steep_exponential": (0.0, -400.0, -0.3),
    "wide_normal": (1e-6, 1e-7, -1.5),
    "moderate_normal": (3.0, 0.5, -1.0),
    "normal_inside": (1e4, 20.0, -0.4),
    "narrow_normal": (1e8, 0.0, -1.0),
    "normal_at_an_end": (1e4, 2e4, -1.0),
    "normal_far_outside": (50.0, 1e4, -1.0),
    "at_the_very_end": (100.0, 30.0, -2.0),
}


def exact(precision, slope, low):
    with mpmath.workdps(30):
        peak = min(max(slope / precision if precision else np.sign(slope) * 9.0, low), low + 2)
        width = min(1, 1 / np.sqrt(precision + 1e-12), 1 / (abs(slope - precision * peak) + 1))
        inner = [peak + k * width for k in (-40, -10, -3, -1, 0, 1, 3, 10, 40)]
        knots = [low, *[x for x in inner if low < x < low + 2], low + 2]
        unit = slope * peak - precision * peak**2 / 2

        def density(v):
            return mpmath.exp(slope * v - precision * v * v / 2 - unit)

        mass, first, second = (
            mpmath.quad(lambda v, k=k: (v - peak) ** k * density(v), knots) for k in range(3)
        )
        mean = first / mass
        found = mpmath.log(mass) + unit, peak + mean, second / mass - mean**2
        return [float(value) for value in found]


@pytest.mark.parametrize("name", CASES)
def test_against_quadrature(name, precision):
    dtype, tolerance = precision, {"float64": 2e-8, "float32": 3e-4}[precision]
    precision, slope, low = CASES[name]
    log_mass, mean, variance = exact(precision, slope, low)
    found = tilted_moments(*(jnp.asarray([x], dtype) for x in (precision, slope, low, low + 2)))
    assert found.mean.dtype == dtype
    np.testing.assert_allclose(found.log_mass[0], log_mass, rtol=tolerance, atol=tolerance)
    np.testing.assert_allclose((found.mean[0] - mean) / variance**0.5, 0.0, atol=tolerance)
    np.testing.assert_allclose(found.variance[0], variance, rtol=tolerance)
