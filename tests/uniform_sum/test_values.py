"""Log density and log tail probabilities against the 40-digit answers of the bank."""

from fractions import Fraction

import numpy as np
import pytest

from nn_uq_dist import uniform_sum as lc
from tests.bank import reference
from tests.bank.loader import float32_cases, float64_cases
from tests.compiling import fully_optimized_jit, jit
from tests.uniform_sum.stacks import stacked

# More than four weights take one way whatever their number: one program for all.
DOUBLE = stacked(float64_cases(), sizes=(31,))
SINGLE = stacked(float32_cases(), sizes=(31,))
SOME = [stack for stack in DOUBLE if stack.name in {"3_weights", "4_weights_normal_part"}]
# Common lines pay from some hundred points on: the points of each case are repeated.
REPEATS = 200


def _apart(*arguments):
    return lc.logpdf(*arguments), lc.logsf(*arguments)


BOTH_WAYS = pytest.mark.parametrize("both", [_apart, lc.logpdf_and_logsf])


def _errors(stack, values, answer):
    """Pairs of a case and the errors at its points."""
    return [(case, np.abs(row - getattr(case, answer))) for case, row in stack.rows(values)]


def _misses(stack, values, tolerance):
    """Worst error over tolerance of each case and function that misses its tolerance."""
    misses = {}
    for answer, value in zip(("log_density", "log_survival"), values, strict=True):
        for case, error in _errors(stack, value, answer):
            worst = np.max(error / tolerance(case, getattr(case, answer)))
            if not worst <= 1:  # NaN misses
                misses[case.name, answer] = float(worst)
    return misses


def _double(case, answer):
    del case
    return 1e-11 * np.maximum(1.0, np.abs(answer) / 10)


def _single(case, answer):
    return np.where(np.abs(case.x) <= 0.9501 * case.edge, 1e-4, 2e-3)


def _on_repeated_points(stack):
    """Both functions at many points of each distribution, and the answers at the distinct
    points."""
    x = np.tile(stack.x, (1, REPEATS))
    scale = () if stack.normal_scale is None else (stack.normal_scale[:, None],)
    values = jit(_apart)(x, stack.weights[:, None], *scale)
    shape = (len(stack.cases), REPEATS, stack.x.shape[1])
    return [np.asarray(value).reshape(shape) for value in values]


@BOTH_WAYS
@pytest.mark.parametrize("stack", DOUBLE, ids=str)
def test_double_precision_with_a_distribution_per_point(stack, both, x64):
    values = fully_optimized_jit(both)(*stack.distribution_per_point())
    assert all(value.dtype == np.float64 for value in values)
    assert not _misses(stack, values, _double)


@pytest.mark.slow
@BOTH_WAYS
@pytest.mark.parametrize("stack", SINGLE, ids=str)
def test_single_precision_with_a_distribution_per_point(stack, both):
    values = jit(both)(*stack.distribution_per_point())
    assert all(value.dtype == np.float32 for value in values)
    assert not _misses(stack, values, _single)


@pytest.mark.slow
@pytest.mark.parametrize(
    "stack",
    [
        *stacked(c for c in float64_cases("comparable", "normal_part") if len(c.weights) == 31),
        *stacked(c for c in float64_cases("comparable") if c.name.startswith("draws_12_times")),
        # Dominated distributions leave the lines for a copy of the distribution for each point.
        *stacked(c for c in float64_cases("dominated") if c.name == "one_large_7_small"),
    ],
    ids=str,
)
def test_double_precision_with_many_points_of_each_distribution(stack, x64):
    values = _on_repeated_points(stack)
    for value in values:
        np.testing.assert_array_equal(value, np.broadcast_to(value[:, :1], value.shape))
    assert not _misses(stack, [value[:, 0] for value in values], _double)


@pytest.mark.slow
@pytest.mark.parametrize(
    "stack",
    [
        *stacked(c for c in float32_cases() if c.name.startswith("draws_12_normal")),
        *stacked(c for c in float32_cases() if c.name in {"draws_31_float32", "equal_31_float32"}),
    ],
    ids=str,
)
def test_single_precision_with_many_points_of_each_distribution(stack):
    values = _on_repeated_points(stack)
    assert not _misses(stack, [value[:, 0] for value in values], _single)


@pytest.mark.parametrize("stack", SOME, ids=str)
def test_probabilities_and_the_lower_tail(stack, x64):
    x, *distribution = stack.distribution_per_point()
    density, above, below, log_below = jit(
        lambda x, *distribution: (
            lc.pdf(x, *distribution),
            lc.sf(x, *distribution),
            lc.cdf(-x, *distribution),
            lc.logcdf(-x, *distribution),
        )
    )(x, *distribution)
    for case, values in stack.rows(density):
        np.testing.assert_allclose(values, np.exp(case.log_density), rtol=1e-7)
    for values in (above, below):
        for case, row in stack.rows(values):
            np.testing.assert_allclose(row, np.exp(case.log_survival), rtol=1e-7)
    for case, error in _errors(stack, log_below, "log_survival"):
        assert np.all(error <= _double(case, case.log_survival)), case.name


@pytest.mark.slow
def test_nearly_normal_distributions(x64):
    """The nodes are spaced most widely here, as the untilted variance allows."""
    rng = np.random.default_rng(1)
    weights = np.exp(rng.normal(size=(6, 5)))
    scale = np.sqrt((weights**2).sum(-1) / 3) * np.array([3.0, 5.0, 8.0, 10.0, 2.0, 1.0])
    x = rng.uniform([0.0, 0.3, 2.0, 6.0], [0.1, 1.0, 5.0, 12.0], (6, 4)) * scale[:, None]
    values = jit(lc.logpdf_and_logsf)(x, weights[:, None], scale[:, None])
    for row, distribution, sd, *found in zip(x, weights, scale, *values, strict=True):
        exact = [
            reference.log_values(
                Fraction(point), [Fraction(w) for w in distribution], Fraction(sd), 20
            )
            for point in row
        ]
        for value, answer in zip(found, np.array(exact, float).T, strict=True):
            np.testing.assert_allclose(value, answer, rtol=1e-13, atol=1e-12)
