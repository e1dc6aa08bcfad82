"""Bounds on distribution functions of linear combinations, against 40 digits."""

import mpmath
import numpy as np
import pytest
import scipy.stats

from nn_uq_dist.error_analysis._distribution_bounds import distribution_bounds
from tests.bank.loader import float64_cases


def test_the_bank_lies_between_the_bounds():
    tolerances = (1e-12, 1e-7, 1e-3)
    widths = {tolerance: [] for tolerance in tolerances}
    for case in float64_cases():
        scale = np.array([case.normal_scale or 0.0])
        above = [mpmath.exp(mpmath.mpf(log)) for log in case.log_survival_decimal]
        for sign, exact in ((1.0, [1 - share for share in above]), (-1.0, above)):
            for tolerance in tolerances:
                given = sign * case.x[None], case.weights[None], scale
                low, high = distribution_bounds(*given, tolerance)
                rows = zip(low[0], high[0], exact, strict=True)
                assert all(a <= share <= b for a, b, share in rows), case.name
                widths[tolerance].append((high - low).max())
    # Distributions of one large weight and a few tiny ones have wider bounds.
    for tolerance, found in widths.items():
        assert np.quantile(found, 0.8) < max(1e-9, 2 * tolerance)


def test_a_normal_distribution_and_tails():
    y = np.linspace(-12, 12, 97)[None]
    low, high = distribution_bounds(y, np.zeros((1, 3)), np.ones(1))
    exact = scipy.stats.norm.cdf(y)
    assert np.all((low <= exact) & (exact <= high))
    assert (high - low).max() < 1e-11
    assert high[0, 0] < 1e-30


@pytest.mark.parametrize("unit", [1e-300, 1e150])
def test_any_unit(unit):
    # The sum of two uniform variables with weights 1 and 2: F(1) = 3/4, F(-2) = 1/16.
    y = unit * np.array([[-3.1, -2.0, 0.0, 1.0, 3.1]])
    low, high = distribution_bounds(y, unit * np.array([[1.0, 2.0]]), np.zeros(1))
    exact = np.array([0, 1 / 16, 1 / 2, 3 / 4, 1])
    assert np.all((low[0] <= exact) & (exact <= high[0]))
    if unit > 1e-140:
        assert (high - low).max() < 1e-11
