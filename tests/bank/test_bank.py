"""The bank of reference problems, checked by methods that its generator does not use."""

import itertools
import json
import math
from fractions import Fraction

import numpy as np
import pytest
from mpmath import mp

from tests.bank import loader
from tests.bank.patterns import derivative_patterns, float32_patterns, float64_patterns
from tests.bank.reference import (
    _tilt,
    contour_integral,
    number_of_terms,
)

VALUE_CASES = (*loader.float64_cases(), *loader.float32_cases())
DERIVATIVE_CASES = loader.derivative_cases()
by_name = pytest.mark.parametrize("case", VALUE_CASES, ids=str)


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


def assert_close(got, expected, tolerance):
    assert abs(got - expected) <= tolerance * max(1, abs(expected)), (
        mp.nstr(got, 30),
        mp.nstr(expected, 30),
    )


# --- form ---------------------------------------------------------------------------------------


def test_names_are_unique_and_data_is_small():
    for cases in (VALUE_CASES, DERIVATIVE_CASES):
        names = [c.name for c in cases]
        assert len(set(names)) == len(names)
    assert loader.DATA.stat().st_size < 1_500_000


def test_data_is_what_the_generator_would_ask_for():
    stored = json.loads(loader.DATA.read_text(encoding="utf-8"))
    wanted = {
        "float64": float64_patterns(),
        "float32": float32_patterns(),
        "derivatives": [pattern for pattern, _ in derivative_patterns()],
    }
    for block, patterns in wanted.items():
        assert [e["name"] for e in stored[block]] == [p.name for p in patterns]
        for entry, pattern in zip(stored[block], patterns, strict=True):
            np.testing.assert_allclose(entry["weights"], pattern.weights, rtol=1e-6)
            if block != "derivatives":
                assert len(entry["x"]) == len(pattern.points())


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


def test_single_precision_arguments_are_exact():
    stored = json.loads(loader.DATA.read_text(encoding="utf-8"))["float32"]
    for case, entry in zip(loader.float32_cases(), stored, strict=True):
        assert case.x.dtype == case.weights.dtype == np.float32
        assert case.x.tolist() == entry["x"]
        assert case.weights.tolist() == entry["weights"]


def test_cases_are_found_by_name_and_tag():
    assert loader.value_case("draws_31").weights.shape == (31,)
    assert all(c.normal_scale is not None for c in loader.float64_cases("normal_part"))
    assert len(loader.float64_cases("dominated", "normal_part")) == 3
    with pytest.raises(KeyError, match="no value case named 'nothing'"):
        loader.value_case("nothing")


# --- distributions that the values must obey
# -------------------------------------------------------------


@by_name
def test_density_is_even_and_the_tails_add_to_one(case):
    values = {x: rest for x, *rest in decimals(case)}
    pairs = [x for x in values if x > 0 and -x in values]
    assert len(pairs) >= 2
    with mp.workdps(60):
        for x in pairs:
            assert_close(values[x][0], values[-x][0], mp.mpf(10) ** -38)
            assert_close(mp.expm1(values[-x][1]), -mp.exp(values[x][1]), mp.mpf(10) ** -38)
            # The small number log(1 - tail) must be right itself, not only its exponential.
            tail = mp.log1p(-mp.exp(values[x][1]))
            assert abs(values[-x][1] / tail - 1) < mp.mpf(10) ** -37


@pytest.mark.parametrize("case", loader.float64_cases("scaled"), ids=str)
def test_scale_distribution(case):
    name, factor = case.name.rsplit("_times_", 1)
    base, c = loader.value_case(name), float(factor)
    np.testing.assert_allclose(case.x, c * base.x, rtol=1e-15)
    # Only the rounding of the scaled weights and points separates the two.
    np.testing.assert_allclose(
        case.log_density + math.log(c), base.log_density, rtol=1e-11, atol=2e-9
    )
    np.testing.assert_allclose(case.log_survival, base.log_survival, rtol=1e-11, atol=2e-9)


# --- other formulas -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["equal_4", "equal_8", "equal_31", "equal_31_float32"])
def test_irwin_hall(name):
    """``sum_k (-1)^k C(n, k) (y - k)_+^m / m!`` on the sum of n uniforms on (0, 1)."""
    case = loader.value_case(name)
    n, w = case.weights.size, Fraction(float(case.weights[0]))
    with mp.workdps(60):
        for x, log_density, log_survival in decimals(case):
            y = (n - x / w) / 2  # the survival function at x is the distribution function here
            terms = [((-1) ** k * math.comb(n, k), y - k) for k in range(n + 1) if y > k]
            density = sum(c * d ** (n - 1) for c, d in terms) / math.factorial(n - 1) / (2 * w)
            survival = sum(c * d**n for c, d in terms) / math.factorial(n)
            for got, exact in ((log_density, density), (log_survival, survival)):
                expected = mp.log(mp.mpf(exact.numerator) / exact.denominator)
                assert_close(got, expected, mp.mpf(10) ** -38)


def normal_integrals(y, order):
    """``J_m(y) = Int_-inf^y J_(m-1)`` with ``J_0`` the normal distribution function."""
    before, last = mp.npdf(y), mp.erfc(-y / mp.sqrt(2)) / 2
    values = [before, last]
    for m in range(1, order + 1):
        before, last = last, (y * last + before) / m
        values.append(last)
    return values


@pytest.mark.parametrize(
    "case",
    [c for c in VALUE_CASES if "normal_part" in c.tags and number_of_terms(half_widths(c)) < 100],
    ids=str,
)
def test_normal_part_against_iterated_integrals_of_the_normal_distribution(case):
    widths = half_widths(case)
    n, s_exact = len(widths), Fraction(case.normal_scale)
    sums = {}
    for signs in itertools.product((1, -1), repeat=n):
        total = sum((e * w for e, w in zip(signs, widths, strict=True)), Fraction(0))
        sums[total] = sums.get(total, 0) + math.prod(signs)
    with mp.workdps(120):
        s = mp.mpf(case.normal_scale)
        scale = mp.mpf(2) ** n * mp.fprod(mp.mpf(float(w)) for w in widths)
        for x, log_density, log_survival in decimals(case):
            density = survival = mp.mpf(0)
            for total, sign in sums.items():
                y = (total - x) / s_exact
                *_, lower, upper = normal_integrals(mp.mpf(y.numerator) / y.denominator, n)
                density += sign * lower
                survival += sign * upper
            expected = mp.log(density * s ** (n - 1) / scale), mp.log(survival * s**n / scale)
            assert_close(log_density, expected[0], mp.mpf(10) ** -38)
            assert_close(log_survival, expected[1], mp.mpf(10) ** -38)


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
    case = loader.value_case(name)
    with mp.workdps(50):
        for x, *expected in decimals(case)[3:10:3]:
            got = contour_integral(x, half_widths(case), Fraction(0), digits)
            for value, exact in zip(got, expected, strict=True):
                assert_close(value, exact, mp.mpf(10) ** -digits)


@pytest.mark.parametrize("name", ["draws_31", "draws_120", "lognormal_31", "draws_120_float32"])
def test_contour_integral_does_not_depend_on_the_contour(name):
    case = loader.value_case(name)
    widths = half_widths(case)
    groups = [(float(w), 1) for w in widths]
    with mp.workdps(50):
        for index, factor in ((2, 0.5), (5, 0.85), (6, 1.1)):
            x, *expected = decimals(case)[index]
            got = contour_integral(x, widths, Fraction(0), 15, factor * _tilt(float(x), groups, 0))
            for value, stored in zip(got, expected, strict=True):
                assert_close(value, stored, mp.mpf(10) ** -15)


@pytest.mark.parametrize(
    "case",
    [c for c in VALUE_CASES if "normal_part" in c.tags and number_of_terms(half_widths(c)) >= 100],
    ids=str,
)
def test_normal_part_does_not_depend_on_the_contour(case):
    widths, s = half_widths(case), Fraction(case.normal_scale)
    groups = [(float(w), 1) for w in widths]
    with mp.workdps(50):
        for x, *expected in [v for v in decimals(case) if v[0] >= 0][::2]:
            tilt = 0.85 * _tilt(float(x), groups, float(s))
            got = contour_integral(x, widths, s, 9, tilt)
            for value, stored in zip(got, expected, strict=True):
                assert_close(value, stored, mp.mpf(10) ** -9)


def test_contour_integral_refuses_a_hopeless_contour():
    case = loader.value_case("draws_120")
    with pytest.raises(ArithmeticError, match="not converged at x = "):
        contour_integral(fractions(case.x)[5], half_widths(case), Fraction(0), 15, tilt=0.9)
