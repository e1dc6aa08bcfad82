"""The derivatives in the bank, checked by identities that are independent of finite differences."""

from fractions import Fraction

import numpy as np
import pytest
from mpmath import mp

from tests.bank.loader import derivative_cases
from tests.bank.reference import log_values

CASES = derivative_cases()
by_case = pytest.mark.parametrize("case", CASES, ids=str)


def derivatives(case):
    """Gradient and Hessian of the log density, then of the log survival."""
    return [
        (getattr(case, f"log_{name}_gradient"), getattr(case, f"log_{name}_hessian"))
        for name in ("density", "survival")
    ]


@by_case
def test_derivatives_are_finite_and_symmetric(case):
    size = 1 + case.weights.size + (case.normal_scale is not None)
    for gradient, hessian in derivatives(case):
        assert gradient.shape == (case.x.size, size)
        assert hessian.shape == (case.x.size, size, size)
        assert np.isfinite(gradient).all()
        assert np.isfinite(hessian).all()
        np.testing.assert_array_equal(hessian, hessian.swapaxes(1, 2))
        # The distribution depends on the square of a weight.
        assert (gradient[:, 1 : case.weights.size + 1][:, case.weights == 0] == 0).all()


@by_case
def test_euler_identities(case):
    """Density is homogeneous of degree -1 in all arguments, survival of degree 0."""
    s = [] if case.normal_scale is None else [case.normal_scale]
    for (gradients, hessians), degree in zip(derivatives(case), (-1.0, 0.0), strict=True):
        for x, gradient, hessian in zip(case.x, gradients, hessians, strict=True):
            theta = np.array([x, *case.weights, *s])
            size = np.abs(gradient * theta).max()
            assert abs(gradient @ theta - degree) <= 1e-14 * max(1.0, size) * theta.size
            size = np.abs(hessian * theta).max(axis=1)
            error = np.abs(hessian @ theta + gradient)
            assert (error <= 1e-14 * theta.size * np.maximum(size, np.abs(gradient))).all()


@by_case
def test_slope_of_the_survival_is_the_density(case):
    """``h = -d log S/dx``, ``d log h/d theta = d log p/d theta - d log S/d theta``."""
    (density, _), (survival, hessian) = derivatives(case)
    hazard = -survival[:, 0]
    error = np.abs(-hessian[:, 0] / hazard[:, None] - (density - survival))
    np.testing.assert_array_less(error, 1e-14 * (np.abs(density) + np.abs(survival)) + 1e-300)
    s, weights = Fraction(case.normal_scale or 0.0), [Fraction(w) for w in case.weights]
    values = [log_values(Fraction(x), weights, s, 15) for x in case.x]
    exact = [float(mp.exp(v.log_density - v.log_survival)) for v in values]
    np.testing.assert_allclose(hazard, exact, rtol=1e-13)


def by_square(gradient, hessian, k):
    """Second derivatives of density or survival over the values, and the size of their parts."""
    squares = gradient[:, k] ** 2
    return hessian[:, k, k] + squares, np.abs(hessian[:, k, k]) + squares


@pytest.mark.parametrize("case", [c for c in CASES if c.normal_scale is not None], ids=str)
def test_heat_equation(case):
    """``d/ds = s d^2/dx^2`` for density and survival function."""
    for gradient, hessian in derivatives(case):
        curvature, size = by_square(gradient, hessian, 0)
        error = np.abs(gradient[:, -1] - case.normal_scale * curvature)
        assert (error <= 1e-14 * case.normal_scale * size).all()


@pytest.mark.parametrize("case", [c for c in CASES if "zeros" in c.tags], ids=str)
def test_a_zero_weight_acts_like_a_small_variance(case):
    """``d^2/dw^2 = (1/3) d^2/dx^2`` at ``w = 0``."""
    for k in np.flatnonzero(case.weights == 0) + 1:
        for gradient, hessian in derivatives(case):
            curvature, size = by_square(gradient, hessian, 0)
            assert (np.abs(hessian[:, k, k] - curvature / 3) <= 1e-14 * size + 1e-30).all()


def density_and_survival(x, weights, s):
    if s == 0 and abs(x) >= sum(abs(w) for w in weights):
        return np.array([0.0, float(x < 0)])
    return np.array([float(mp.exp(v)) for v in log_values(x, weights, s, 16)])


@by_case
def test_slopes_in_the_weights_follow_from_the_distribution_of_the_others(case):
    """``d(w f)/dw = [f_R(x - w) + f_R(x + w)] / 2`` for density and survival function."""
    s, weights = Fraction(case.normal_scale or 0.0), [Fraction(w) for w in case.weights]
    slopes = np.stack([gradient for gradient, _ in derivatives(case)], axis=1)
    for x, got in zip(map(Fraction, case.x), slopes, strict=True):
        value = density_and_survival(x, weights, s)
        for k, w in enumerate(weights):
            if w == 0:
                continue
            rest = weights[:k] + weights[k + 1 :]
            ends = [density_and_survival(x + e * w, rest, s) for e in (-1, 1)]
            mean = (ends[0] + ends[1]) / 2 / value
            error = np.abs(float(w) * got[:, k + 1] + 1 - mean)
            assert (error <= 1e-13 * (1 + mean)).all()
