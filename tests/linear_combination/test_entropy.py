"""Differential entropy against closed forms and SciPy's quadrature of independent densities."""

from fractions import Fraction

import jax
import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import ndtr

from nn_uq_dist import linear_combination as lc
from tests.bank.reference import exact_alternating_sum
from tests.compiling import jit

ENTROPY = jit(lc.entropy)


def _by_quadrature(density, edge):
    """Twice the integral of ``-p log p`` over the upper half."""

    def integrand(x):
        p = density(x)
        return -p * np.log(p) if p > 0 else 0.0

    return 2 * quad(integrand, 0, edge, epsabs=1e-12, epsrel=1e-12, limit=200)[0]


@pytest.mark.parametrize("half_width", [1e-3, 0.5, 7.0])
def test_one_uniform(half_width, precision):
    expected = np.log(2 * half_width)
    tolerance = {"float32": 3e-6, "float64": 1e-12}[precision]
    assert abs(ENTROPY([half_width]) - expected) < tolerance


@pytest.mark.parametrize("weight", [0.3, -4.0])
def test_triangular_law(weight, precision):
    # On [-2 w, 2 w]: 1/2 + log(2 w). The kink is at the end of the quadrature.
    expected = 0.5 + np.log(2 * abs(weight))
    assert abs(ENTROPY([weight, weight]) - expected) < 1e-5


def test_twelve_equal_weights(x64):
    half_widths = [Fraction(1, 2)] * 12

    def density(x):
        return float(np.exp(float(exact_alternating_sum(Fraction(x), half_widths, 20).log_density)))

    assert abs(ENTROPY([0.5] * 12) - _by_quadrature(density, 6.0)) < 1e-10


@pytest.mark.parametrize("scale", [0.1, 1.0, 20.0])
def test_uniform_with_normal_part(scale, precision):
    weight = 1.5

    def density(x):
        # Mirrored, so that both distribution functions are lower tails.
        return (ndtr((weight - x) / scale) - ndtr((-weight - x) / scale)) / (2 * weight)

    expected = _by_quadrature(density, weight + 12 * scale)
    tolerance = {"float32": 1e-5, "float64": 1e-9}[precision]
    assert abs(ENTROPY([weight], scale) - expected) < tolerance


def test_normal_law_alone(x64):
    # 9.5 standard deviations of it; a zero weight stands for no uniform part.
    expected = 0.5 * np.log(2 * np.pi * np.e * 0.7**2)
    assert abs(ENTROPY([0.0], 0.7) - expected) < 1e-12


def test_scale_law_and_batches(x64):
    weights = np.array([[0.9, -0.5, 0.3], [0.2, 0.0, 0.7]])
    scales = np.array([2.0**-20, 1.0, 3.0])
    together = ENTROPY(weights[:, None] * scales[:, None])
    assert together.shape == (2, 3)
    np.testing.assert_allclose(together - np.log(scales), together[:, 1:2] + 0 * scales, atol=1e-9)


def test_gradient_in_the_scale_of_the_law(x64):
    # entropy(c w) = entropy(w) + log c
    weights = np.array([0.9, -0.5, 0.3])
    slope = jit(jax.grad(lambda c: lc.entropy(c * weights)))(2.0)
    assert abs(slope - 0.5) < 1e-4


def test_invalid_laws_are_nan(precision):
    weights = np.array([[0.0, 0.0], [np.nan, 1.0], [np.inf, 1.0]])
    assert np.all(np.isnan(ENTROPY(weights)))
    assert np.isnan(ENTROPY([1.0], -1.0))
