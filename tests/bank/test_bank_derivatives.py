"""The derivatives in the bank, checked by identities that are independent of finite differences."""

from fractions import Fraction

import numpy as np
import pytest
from mpmath import mp

from tests.bank import loader
from tests.bank.reference import log_values

DERIVATIVE_CASES = loader.derivative_cases()
by_derivative = pytest.mark.parametrize("case", DERIVATIVE_CASES, ids=str)


def fractions(array):
    return [Fraction(float(v)) for v in array]


def arguments(case):
    s = [] if case.normal_scale is None else [case.normal_scale]
    return [np.array([x, *case.weights, *s]) for x in case.x]


@by_derivative
def test_derivatives_are_finite_and_symmetric(case):
    size = 1 + case.weights.size + (case.normal_scale is not None)
    for kind in ("log_density", "log_survival"):
        gradient, hessian = getattr(case, f"{kind}_gradient"), getattr(case, f"{kind}_hessian")
        assert gradient.shape == (case.x.size, size)
        assert hessian.shape == (case.x.size, size, size)
        assert np.isfinite(gradient).all()
        assert np.isfinite(hessian).all()
        np.testing.assert_array_equal(hessian, hessian.swapaxes(1, 2))
        # The distribution depends on the square of a weight.
        assert (gradient[:, 1 : case.weights.size + 1][:, case.weights == 0] == 0).all()


@by_derivative
def test_euler_identities(case):
    """Density is homogeneous of degree -1 in all arguments, survival of degree 0."""
    for i, theta in enumerate(arguments(case)):
        for kind, degree in (("log_density", -1.0), ("log_survival", 0.0)):
            gradient, hessian = (
                getattr(case, f"{kind}_gradient")[i],
                getattr(case, f"{kind}_hessian")[i],
            )
            size = np.abs(gradient * theta).max()
            assert abs(gradient @ theta - degree) <= 1e-14 * max(1.0, size) * theta.size
            size = np.abs(hessian * theta).max(axis=1)
            error = np.abs(hessian @ theta + gradient)
            assert (error <= 1e-14 * theta.size * np.maximum(size, np.abs(gradient))).all()


@by_derivative
def test_slope_of_the_survival_is_the_density(case):
    """``h = -d log S/dx``, ``d log h/d theta = d log p/d theta - d log S/d theta``."""
    for i in range(case.x.size):
        hazard = -case.log_survival_gradient[i, 0]
        slope = -case.log_survival_hessian[i, 0] / hazard
        expected = case.log_density_gradient[i] - case.log_survival_gradient[i]
        scale = np.abs(case.log_density_gradient[i]) + np.abs(case.log_survival_gradient[i])
        np.testing.assert_array_less(np.abs(slope - expected), 1e-14 * scale + 1e-300)
        x = Fraction(float(case.x[i]))
        s = Fraction(case.normal_scale or 0.0)
        values = log_values(x, fractions(case.weights), s, 15)
        np.testing.assert_allclose(
            hazard, float(mp.exp(values.log_density - values.log_survival)), rtol=1e-13
        )


@pytest.mark.parametrize(
    "case", [c for c in DERIVATIVE_CASES if c.normal_scale is not None], ids=str
)
def test_heat_equation(case):
    """``d/ds = s d^2/dx^2`` for density and survival function."""
    for kind in ("log_density", "log_survival"):
        gradient, hessian = getattr(case, f"{kind}_gradient"), getattr(case, f"{kind}_hessian")
        squares = gradient[:, 0] ** 2
        expected = case.normal_scale * (hessian[:, 0, 0] + squares)
        scale = case.normal_scale * (np.abs(hessian[:, 0, 0]) + squares)
        assert (np.abs(gradient[:, -1] - expected) <= 1e-14 * scale).all()


@pytest.mark.parametrize("case", [c for c in DERIVATIVE_CASES if "zeros" in c.tags], ids=str)
def test_a_zero_weight_acts_like_a_small_variance(case):
    """``d^2/dw^2 = (1/3) d^2/dx^2`` at ``w = 0``."""
    for k in np.flatnonzero(case.weights == 0) + 1:
        for kind in ("log_density", "log_survival"):
            gradient, hessian = getattr(case, f"{kind}_gradient"), getattr(case, f"{kind}_hessian")
            curvature, squares = hessian[:, 0, 0], gradient[:, 0] ** 2
            error = np.abs(hessian[:, k, k] - (curvature + squares) / 3)
            assert (error <= 1e-14 * (np.abs(curvature) + squares) + 1e-30).all()


def density_and_survival(x, weights, s):
    edge = sum(abs(w) for w in weights)
    if s == 0 and abs(x) >= edge:
        return np.array([0.0, float(x < 0)])
    values = log_values(x, weights, s, 16)
    return np.array([float(mp.exp(v)) for v in values])


@by_derivative
def test_slopes_in_the_weights_follow_from_the_distribution_of_the_others(case):
    """``d(w f)/dw = [f_R(x - w) + f_R(x + w)] / 2`` for density and survival function."""
    s, weights = Fraction(case.normal_scale or 0.0), fractions(case.weights)
    for i, x in enumerate(fractions(case.x)):
        value = density_and_survival(x, weights, s)
        got = np.array([case.log_density_gradient[i], case.log_survival_gradient[i]])
        for k, w in enumerate(weights):
            if w == 0:
                continue
            rest = weights[:k] + weights[k + 1 :]
            ends = [density_and_survival(x + e * w, rest, s) for e in (-1, 1)]
            mean = (ends[0] + ends[1]) / 2 / value
            error = np.abs(float(w) * got[:, k + 1] + 1 - mean)
            assert (error <= 1e-13 * (1 + mean)).all()
