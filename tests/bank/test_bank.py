"""The bank of reference problems, checked by methods that its generator does not use."""

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
    number_of_terms,
    saddlepoint,
)

VALUE_CASES = {case.name: case for case in (*float64_cases(), *float32_cases())}
by_name = pytest.mark.parametrize("case", VALUE_CASES.values(), ids=str)


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


def assert_close(got, expected, digits):
    for one, other in zip(got, expected, strict=True):
        error = abs(one - other) / max(1, abs(other))
        assert error <= mp.mpf(10) ** -digits, (mp.nstr(one, 30), mp.nstr(other, 30))


# --- form ---------------------------------------------------------------------------------------


def test_data_is_what_the_generator_would_ask_for():
    assert DATA.stat().st_size < 1_500_000
    cases = *float64_cases(), *float32_cases(), *derivative_cases()
    for case, (block, pattern, points) in zip(cases, jobs(), strict=True):
        assert case.name == pattern.name
        dtype = "float32" if block == "float32" else "float64"
        for found, wanted in ((case.weights, pattern.weights), (case.x, points)):
            assert found.dtype == dtype
            # Arguments are exact in single precision, too.
            np.testing.assert_allclose(found, wanted, rtol=1e-14, err_msg=case.name)


@by_name
def test_values_are_finite_and_reach_both_tails(case):
    for array in (case.x, case.weights, case.log_density, case.log_survival):
        assert np.isfinite(array).all()
        assert not array.flags.writeable
    assert case.x.shape == case.log_density.shape == case.log_survival.shape
    assert np.unique(case.x).size == case.x.size >= 12
    assert case.x.min() < -0.94 * case.edge
    assert case.x.max() > 0.992 * case.edge
    assert (case.log_survival < 0).all()
    assert case.log_survival[case.x == 0] == np.log(0.5)
    if case.normal_scale is None:
        assert np.abs(case.x).max() < case.edge
    else:
        assert case.normal_scale > 0


# --- laws that the values must obey -------------------------------------------------------------


@by_name
def test_density_is_even_and_the_tails_add_to_one(case):
    values = {x: rest for x, *rest in decimals(case)}
    pairs = [x for x in values if x > 0 and -x in values]
    assert len(pairs) >= 2
    with mp.workdps(60):
        for x in pairs:
            (density, survival), (other, below) = values[x], values[-x]
            assert_close((density, mp.expm1(below)), (other, -mp.exp(survival)), 38)
            # The small number log(1 - tail) must be right itself, not only its exponential.
            assert abs(below / mp.log1p(-mp.exp(survival)) - 1) < mp.mpf(10) ** -37


@pytest.mark.parametrize("case", float64_cases("scaled"), ids=str)
def test_scale_distribution(case):
    name, factor = case.name.rsplit("_times_", 1)
    base, c = VALUE_CASES[name], float(factor)
    np.testing.assert_allclose(case.x, c * base.x, rtol=1e-15)
    # Only the rounding of the scaled weights and points separates the two.
    density = case.log_density + math.log(c)
    for found, exact in ((density, base.log_density), (case.log_survival, base.log_survival)):
        np.testing.assert_allclose(found, exact, rtol=1e-11, atol=2e-9)


# --- other formulas -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["equal_4", "equal_8", "equal_31", "equal_31_float32"])
def test_irwin_hall(name):
    """``sum_k (-1)^k C(n, k) (y - k)_+^m / m!`` on the sum of n uniforms on (0, 1)."""
    case = VALUE_CASES[name]
    n, w = case.weights.size, Fraction(float(case.weights[0]))
    with mp.workdps(60):
        for x, *found in decimals(case):
            y = (n - x / w) / 2  # the survival function at x is the distribution function here
            terms = [((-1) ** k * math.comb(n, k), y - k) for k in range(n + 1) if y > k]
            density = sum(c * d ** (n - 1) for c, d in terms) / math.factorial(n - 1) / (2 * w)
            survival = sum(c * d**n for c, d in terms) / math.factorial(n)
            exact = [mp.log(mp.mpf(v.numerator) / v.denominator) for v in (density, survival)]
            assert_close(found, exact, 38)


WITH_NORMAL_PART = [case for case in VALUE_CASES.values() if "normal_part" in case.tags]


@pytest.mark.parametrize(
    "case", [c for c in WITH_NORMAL_PART if number_of_terms(half_widths(c)) < 100], ids=str
)
def test_normal_part_against_iterated_integrals_of_the_normal_distribution(case):
    widths, scale = half_widths(case), Fraction(case.normal_scale)
    with mp.workdps(120):
        for x, *found in decimals(case):
            assert_close(found, iterated_normal_integrals(x, widths, scale), 38)


@pytest.mark.parametrize(
    ("name", "digits"),
    [
        ("draws_12", 8),
        ("draws_12_float32", 6),
        ("draws_6_float32", 2),
        ("equal_8", 5),
        ("equal_31", 30),
        ("geometric_10", 6),
        ("lognormal_12", 6),
        ("three_large_20_small", 5),
    ],
)
def test_contour_integral_agrees_with_exact_sum(name, digits):
    case = VALUE_CASES[name]
    with mp.workdps(50):
        for x, *expected in decimals(case)[3:10:3]:
            got = contour_integral(x, half_widths(case), Fraction(0), digits)
            assert_close(got, expected, digits)


def on_another_contour(case, x, factor, digits):
    widths, s = half_widths(case), Fraction(case.normal_scale or 0)
    tilt = factor * saddlepoint(float(x), [(float(w), 1) for w in widths], float(s))
    return contour_integral(x, widths, s, digits, tilt)


@pytest.mark.parametrize("name", ["draws_31", "draws_120", "lognormal_31", "draws_120_float32"])
def test_contour_integral_does_not_depend_on_the_contour(name):
    case = VALUE_CASES[name]
    with mp.workdps(50):
        for index, factor in ((2, 0.5), (5, 0.85), (6, 1.1)):
            x, *expected = decimals(case)[index]
            assert_close(on_another_contour(case, x, factor, 15), expected, 15)


@pytest.mark.parametrize(
    "case", [c for c in WITH_NORMAL_PART if number_of_terms(half_widths(c)) >= 100], ids=str
)
def test_normal_part_does_not_depend_on_the_contour(case):
    with mp.workdps(50):
        for x, *expected in [v for v in decimals(case) if v[0] >= 0][::2]:
            assert_close(on_another_contour(case, x, 0.85, 9), expected, 9)


def test_contour_integral_refuses_a_hopeless_contour():
    case = VALUE_CASES["draws_120"]
    with pytest.raises(ArithmeticError, match="not converged at x = "):
        contour_integral(fractions(case.x)[5], half_widths(case), Fraction(0), 15, tilt=0.9)
