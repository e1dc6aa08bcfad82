"""Log density and log tail probabilities against the 40-digit answers of the bank."""

import jax
import numpy as np
import pytest

from nn_uq_dist import uniform_sum as lc
from tests.bank.loader import float32_cases, float64_cases
from tests.bank.reference import float_log_values
from tests.compiling import fully_optimized_jit, jit
from tests.uniform_sum.stacks import stacked

# More than four weights take one way whatever their number: one program for all.
DOUBLE, SINGLE = stacked(float64_cases(), 31), stacked(float32_cases(), 31)
SOME = [stack for stack in DOUBLE if stack.name in {"3_weights", "4_weights_normal_part"}]
# Common lines pay from some hundred points on: the points of each case are repeated.
REPEATS = 200


def check(stack, values, tolerance):
    """Each value of each case within its tolerance; NaN is not."""
    for name, value in zip(("log_density", "log_survival"), values, strict=True):
        for case, found in stack.rows(value):
            answer = getattr(case, name)
            excess = np.max(np.abs(found - answer) / tolerance(case, answer))
            assert excess <= 1, (case.name, name, excess)


def double(case, answer):
    return 1e-11 * np.maximum(1.0, np.abs(answer) / 10)


def single(case, answer):
    return np.where(np.abs(case.x) <= 0.9501 * case.edge, 1e-4, 2e-3)


@pytest.mark.parametrize("stack", DOUBLE, ids=str)
def test_double_precision_with_a_distribution_per_point(stack, x64):
    values = fully_optimized_jit(lc.logpdf_and_logsf)(*stack.distribution_per_point())
    assert all(value.dtype == np.float64 for value in values)
    check(stack, values, double)


@pytest.mark.slow
@pytest.mark.parametrize("stack", SINGLE, ids=str)
def test_single_precision_with_a_distribution_per_point(stack):
    values = jit(lc.logpdf_and_logsf)(*stack.distribution_per_point())
    assert all(value.dtype == np.float32 for value in values)
    check(stack, values, single)


MANY_POINTS = [
    *stacked(c for c in float64_cases("comparable", "normal_part") if len(c.weights) == 31),
    *stacked(c for c in float64_cases("comparable") if c.name.startswith("draws_12_times")),
    # Dominated distributions leave the lines for a copy of the distribution for each point.
    *stacked(c for c in float64_cases("dominated") if c.name == "one_large_7_small"),
    *stacked(c for c in float32_cases() if c.name in {"draws_31_float32", "equal_31_float32"}),
]


@pytest.mark.slow
@pytest.mark.parametrize("stack", MANY_POINTS, ids=str)
def test_many_points_of_each_distribution(stack, x64):
    x = np.tile(stack.x, (1, REPEATS))
    scale = () if stack.normal_scale is None else (stack.normal_scale[:, None],)
    values = jit(lc.logpdf_and_logsf)(x, stack.weights[:, None], *scale)
    assert all(value.dtype == x.dtype for value in values)
    values = [np.reshape(value, (len(x), REPEATS, -1)) for value in values]
    is_double = x.dtype == np.float64
    for value in values:
        if is_double:
            np.testing.assert_array_equal(value, np.broadcast_to(value[:, :1], value.shape))
    check(stack, [value[:, 0] for value in values], double if is_double else single)


@pytest.mark.parametrize("stack", SOME, ids=str)
def test_probabilities_and_the_lower_tail(stack, x64):
    def evaluate(x, *rest):
        tails = lc.sf(x, *rest), lc.cdf(-x, *rest)
        return tails, (lc.logpdf(-x, *rest), lc.logcdf(-x, *rest))

    tails, logs = jit(evaluate)(*stack.distribution_per_point())
    check(stack, logs, double)
    for values in tails:
        for case, row in stack.rows(values):
            np.testing.assert_allclose(row, np.exp(case.log_survival), rtol=1e-7)


@pytest.mark.slow
def test_nearly_normal_distributions(x64):
    """The nodes are spaced most widely here, as the untilted variance allows."""
    rng = np.random.default_rng(1)
    weights = np.exp(rng.normal(size=(6, 5)))
    scale = np.sqrt((weights**2).sum(-1) / 3) * np.array([3.0, 5.0, 8.0, 10.0, 2.0, 1.0])
    x = rng.uniform([0.0, 0.3, 2.0, 6.0], [0.1, 1.0, 5.0, 12.0], (6, 4)) * scale[:, None]
    values = jit(lc.logpdf_and_logsf)(x, weights[:, None], scale[:, None])
    for row, distribution, sd, *found in zip(x, weights, scale, *values, strict=True):
        exact = float_log_values(row, distribution, sd, 20)
        np.testing.assert_allclose(found, exact, rtol=1e-13, atol=1e-12)


@pytest.mark.slow
def test_random_distributions(x64):
    """Signs, order and zeros of weights, with and without a normal part, in one program."""
    rng = np.random.default_rng(2)
    weights = rng.uniform(-2, 2, (60, 1, 6)) * (rng.uniform(size=(60, 1, 6)) > 0.2)
    scale = np.where(rng.uniform(size=60) < 0.5, 0, rng.uniform(0.01, 3, 60))[:, None]
    x = rng.uniform(-0.98, 0.98, (60, 3)) * np.abs(weights).sum(-1)
    values = jit(lc.logpdf_and_logsf)(x, np.repeat(weights, 3, axis=1), np.repeat(scale, 3, axis=1))
    for row, distribution, sd, *found in zip(x, weights[:, 0], scale[:, 0], *values, strict=True):
        exact = float_log_values(row, distribution, sd, 16)
        np.testing.assert_allclose(found, exact, rtol=1e-12, atol=1e-11)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("weights", "count", "tiny", "precision"),
    [
        ([1.0, 0.3, 0.09], 20, 0.0, "float64"),
        ([1.0, 0.3], 129, 1e-6, "float32"),
        ([1.0, 0.3, 0.09, 0.027], 20, 1e-6, "float32"),
    ],
    indirect=["precision"],
)
def test_few_weights_that_dominate_among_many(weights, count, tiny, precision):
    """Outside of programs weights are padded, also those of leaves that nothing is left of."""
    points = np.array([0.2, 1.0] if count == 129 else [0.2, 1.0, 1.3], precision)
    exact = float_log_values(points, np.array(weights), 0.0)
    many = np.r_[weights, np.full(count - len(weights), tiny)].astype(precision)
    np.testing.assert_allclose(lc.logpdf_and_logsf(points, many), exact, rtol=2e-4, atol=2e-4)
    slope = jax.grad(lambda x: lc.logsf(x, many))(points[1])
    np.testing.assert_allclose(slope, -np.exp(exact[0][1] - exact[1][1]), rtol=1e-3)
