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
    saddlepoint,
)

CASES = {case.name: case for case in (*float64_cases(), *float32_cases())}
WITH_NORMAL_PART = [case for case in CASES.values() if "normal_part" in case.tags]
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


# --- values -------------------------------------------------------------------------------------


def test_density_is_even_and_the_tails_add_to_one():
    for case in CASES.values():
        values = {x: rest for x, *rest in decimals(case)}
        pairs = [x for x in values if x > 0 and -x in values]
        assert len(pairs) >= 2
        with mp.workdps(60):
            for x in pairs:
                (density, survival), (other, below) = values[x], values[-x]
                assert_close((density, mp.expm1(below)), (other, -mp.exp(survival)), 38)
                # The small number log(1 - tail) must be right itself, not only its exponential.
                assert abs(below / mp.log1p(-mp.exp(survival)) - 1) < mp.mpf(10) ** -37


def test_scale_distribution():
    for case in float64_cases("scaled"):
        name, factor = case.name.rsplit("_times_", 1)
        base, c = CASES[name], float(factor)
        # Only the rounding of the scaled weights and points separates the two.
        density = case.log_density + math.log(c)
        pairs = ((density, base.log_density), (case.log_survival, base.log_survival))
        for values, exact in pairs:
            np.testing.assert_allclose(values, exact, rtol=1e-11, atol=2e-9)


@pytest.mark.parametrize("name", ["equal_4", "equal_8", "equal_31", "equal_31_float32"])
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


@pytest.mark.parametrize(
    "case", [c for c in WITH_NORMAL_PART if number_of_terms(half_widths(c)) < 100], ids=str
)
def test_normal_part_against_iterated_integrals_of_the_normal_distribution(case):
    widths, scale = half_widths(case), Fraction(case.normal_scale)
    with mp.workdps(120):
        for x, *values in decimals(case):
            assert_close(values, iterated_normal_integrals(x, widths, scale), 38)


@pytest.mark.parametrize(
    ("name", "digits"),
    [
        ("draws_12", 8), ("draws_12_float32", 6), ("draws_6_float32", 2), ("equal_8", 5),
        ("equal_31", 30), ("geometric_10", 6), ("lognormal_12", 6), ("three_large_20_small", 5),
    ],
)  # fmt: skip
def test_contour_integral_agrees_with_exact_sum(name, digits):
    case = CASES[name]
    with mp.workdps(50):
        for x, *expected in decimals(case)[3:10:3]:
            values = contour_integral(x, half_widths(case), Fraction(0), digits)
            assert_close(values, expected, digits)


MANY = [CASES[name] for name in ("draws_31", "draws_120", "lognormal_31", "draws_120_float32")]
MANY += [c for c in WITH_NORMAL_PART if number_of_terms(half_widths(c)) >= 100]


@pytest.mark.parametrize("case", MANY, ids=str)
def test_contour_integral_does_not_depend_on_the_contour(case):
    widths, s = half_widths(case), Fraction(case.normal_scale or 0)
    digits, factors = (9, (0.85,)) if s else (15, (0.5, 0.85, 1.1))
    with mp.workdps(50):
        points = [point for point in decimals(case) if point[0] > 0]
        for factor, (x, *expected) in zip(factors, points[2::2], strict=False):
            tilt = factor * saddlepoint(float(x), [(float(w), 1) for w in widths], float(s))
            assert_close(contour_integral(x, widths, s, digits, tilt), expected, digits)


def test_contour_integral_refuses_a_hopeless_contour():
    case = CASES["draws_120"]
    with pytest.raises(ArithmeticError, match="not converged at x = "):
        contour_integral(fractions(case.x)[5], half_widths(case), Fraction(0), 15, tilt=0.9)


# --- derivatives --------------------------------------------------------------------------------


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


def by_square(gradient, hessian, k):
    """Second derivatives of density or survival over the values, and the size of their parts."""
    squares = gradient[:, k] ** 2
    return hessian[:, k, k] + squares, np.abs(hessian[:, k, k]) + squares


@by_derivatives
def test_heat_equation(case):
    """``d/ds = s d^2/dx^2``, and ``d^2/dw^2 = (1/3) d^2/dx^2`` at ``w = 0``."""
    for gradient, hessian in derivatives(case):
        curvature, size = by_square(gradient, hessian, 0)
        if (s := case.normal_scale) is not None:
            assert (np.abs(gradient[:, -1] - s * curvature) <= 1e-14 * s * size).all()
        for k in np.flatnonzero(case.weights == 0) + 1:
            assert (gradient[:, k] == 0).all()
            error = np.abs(by_square(gradient, hessian, k)[0] - curvature / 3)
            assert (error <= 1e-14 * size + 1e-30).all()


def density_and_survival(x, weights, s):
    if s == 0 and abs(x) >= sum(abs(w) for w in weights):
        return np.array([0.0, float(x < 0)])
    return np.array([float(mp.exp(v)) for v in log_values(x, weights, s, 16)])


@by_derivatives
def test_slopes_in_the_weights_follow_from_the_distribution_of_the_others(case):
    """``d(w f)/dw = [f_R(x - w) + f_R(x + w)] / 2`` for density and survival function."""
    s, weights = Fraction(case.normal_scale or 0.0), [Fraction(w) for w in case.weights]
    slopes = np.stack([gradient for gradient, _ in derivatives(case)], axis=1)
    for x, slope in zip(map(Fraction, case.x), slopes, strict=True):
        value = density_and_survival(x, weights, s)
        for k in np.flatnonzero(case.weights):
            rest = weights[:k] + weights[k + 1 :]
            ends = [density_and_survival(x + e * weights[k], rest, s) for e in (-1, 1)]
            mean = (ends[0] + ends[1]) / 2 / value
            error = np.abs(float(weights[k]) * slope[:, k + 1] + 1 - mean)
            assert (error <= 1e-13 * (1 + mean)).all()
