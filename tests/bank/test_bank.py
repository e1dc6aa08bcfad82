"""The bank of reference problems, checked by methods that its generator does not use.

Derivatives are checked by identities that are independent of finite differences.
"""

import math
from fractions import Fraction

import numpy as np
import pytest
from mpmath import mp

from tests.bank.generate import jobs
from tests.bank.loader import DATA, derivative_cases, float32_cases, float64_cases
from tests.bank.reference import (
    contour_integral,
    iterated_normal_integrals,
    log_values,
    number_of_terms,
)

CASES = {case.name: case for case in (*float64_cases(), *float32_cases())}
by_derivatives = pytest.mark.parametrize("case", derivative_cases(), ids=str)


def fractions(array):
    return [Fraction(float(v)) for v in array]


def half_widths(case):
    return [abs(w) for w in fractions(case.weights) if w]


def decimals(case):
    """All (x, log density, log survival), with all stored digits."""
    columns = case.log_density_decimal, case.log_survival_decimal
    with mp.workdps(60):
        values = zip(*([mp.mpf(v) for v in column] for column in columns), strict=True)
        return [(x, *v) for x, v in zip(fractions(case.x), values, strict=True)]


def assert_close(values, expected, digits):
    for one, other in zip(values, expected, strict=True):
        error = abs(one - other) / max(1, abs(other))
        assert error <= mp.mpf(10) ** -digits, (mp.nstr(one, 30), mp.nstr(other, 30))


def test_data_is_what_the_generator_would_ask_for():
    assert DATA.stat().st_size < 1_500_000
    cases = *float64_cases(), *float32_cases(), *derivative_cases()
    for case, (block, pattern, points) in zip(cases, jobs(), strict=True):
        assert case.name == pattern.name
        dtype = "float32" if block == "float32" else "float64"
        for stored, wanted in ((case.weights, pattern.weights), (case.x, points)):
            assert stored.dtype == dtype
            # Arguments are exact in single precision, too.
            np.testing.assert_allclose(stored, wanted, rtol=1e-14, err_msg=case.name)


@pytest.mark.parametrize("name", ["equal_8", "equal_31_float32"])
def test_irwin_hall(name):
    """``sum_k (-1)^k C(n, k) (y - k)_+^m / m!`` on the sum of n uniforms on (0, 1)."""
    case = CASES[name]
    n, w = case.weights.size, Fraction(float(case.weights[0]))
    with mp.workdps(60):
        for x, *values in decimals(case):
            y = (n - x / w) / 2  # the survival function at x is the distribution function here
            terms = [((-1) ** k * math.comb(n, k), y - k) for k in range(n + 1) if y > k]
            density = sum(c * d ** (n - 1) for c, d in terms) / math.factorial(n - 1) / (2 * w)
            survival = sum(c * d**n for c, d in terms) / math.factorial(n)
            exact = [mp.log(mp.mpf(v.numerator) / v.denominator) for v in (density, survival)]
            assert_close(values, exact, 38)


@pytest.mark.slow
def test_normal_part_against_iterated_integrals_of_the_normal_distribution():
    cases = [case for case in CASES.values() if "normal_part" in case.tags]
    with mp.workdps(120):
        for case in cases:
            widths, scale = half_widths(case), Fraction(case.normal_scale)
            for x, *values in decimals(case)[::4] if number_of_terms(widths) < 100 else ():
                assert_close(values, iterated_normal_integrals(x, widths, scale), 38)


@pytest.mark.parametrize(
    ("name", "digits"),
    [("draws_12", 8), ("equal_31", 30), ("lognormal_12", 6), ("three_large_20_small", 5)],
)
def test_contour_integral_agrees_with_exact_sum(name, digits):
    case = CASES[name]
    with mp.workdps(50):
        for x, *expected in decimals(case)[3:10:3]:
            values = contour_integral(x, half_widths(case), Fraction(0), digits)
            assert_close(values, expected, digits)


def derivatives(case):
    """Gradient and Hessian of the log density, then of the log survival."""
    return [
        (getattr(case, f"log_{name}_gradient"), getattr(case, f"log_{name}_hessian"))
        for name in ("density", "survival")
    ]


@by_derivatives
def test_euler_identities(case):
    """Density is homogeneous of degree -1 in all arguments, survival of degree 0."""
    s = [] if case.normal_scale is None else [case.normal_scale]
    for (gradients, hessians), degree in zip(derivatives(case), (-1.0, 0.0), strict=True):
        np.testing.assert_array_equal(hessians, hessians.swapaxes(1, 2))
        for x, gradient, hessian in zip(case.x, gradients, hessians, strict=True):
            theta = np.array([x, *case.weights, *s])
            size = np.abs(gradient * theta).max()
            assert abs(gradient @ theta - degree) <= 1e-14 * max(1.0, size) * theta.size
            size = np.abs(hessian * theta).max(axis=1)
            error = np.abs(hessian @ theta + gradient)
            assert (error <= 1e-14 * theta.size * np.maximum(size, np.abs(gradient))).all()


@by_derivatives
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
