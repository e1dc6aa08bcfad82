"""Gradients and Hessians against finite differences of the 40-digit reference."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from nn_uq_dist import uniform_sum as lc
from tests.bank.loader import derivative_cases
from tests.compiling import jit
from tests.uniform_sum.stacks import stacked, with_gradient, with_hessian

# More than four weights take one way whatever their number: one program for all.
STACKS = stacked(derivative_cases(), sizes=(12,))
PAIRS = [
    (stack, answer)
    for stack in STACKS
    for answer in ("log_density", "log_survival")
    # Covered by two weights with a normal part.
    if (stack.name, answer) != ("1_weights_normal_part", "log_density")
]
FUNCTIONS = {"log_density": lc.logpdf, "log_survival": lc.logsf}

# A combination of both, so that the derivatives of each reach the answer.
PART_OF_DENSITY, PART_OF_SURVIVAL = 0.6, -1.7
BOTH = [
    (stack, order)
    for stack, order in itertools.product(STACKS, (1, 2))
    if (stack.name, order) in {("3_weights", 2), ("12_weights", 1)}
]

# Second derivatives of distributions with a contour integral take five to ten seconds to compile.
WITH_HESSIAN = {
    ("2_weights", "log_density"),
    ("2_weights", "log_survival"),
    ("3_weights", "log_density"),
    ("4_weights", "log_survival"),
    ("2_weights_normal_part", "log_density"),
    ("12_weights", "log_density"),
    ("12_weights_normal_part", "log_survival"),
}


def _arguments(stack):
    x, weights, *scale = stack.distribution_per_point()
    return np.concatenate([x[..., None], weights, *(s[..., None] for s in scale)], axis=-1)


def _own(stack, case):
    """Positions of the arguments of a case, without the zeros that pad its weights."""
    count = stack.weights.shape[-1]
    own = [*range(len(case.weights) + 1)]
    return own if stack.normal_scale is None else [*own, count + 1]


def _check(stack, values, answer, order):
    """Errors are relative to the largest entry of each derivative."""
    bar = {1: 1e-8, 2: 1e-6}[order]
    suffix = {1: "gradient", 2: "hessian"}[order]
    for case, padded in stack.rows(values):
        own = _own(stack, case)
        value = padded[:, own] if order == 1 else padded[:, own][:, :, own]
        expected = getattr(case, f"{answer}_{suffix}")
        axes = tuple(range(1, expected.ndim))
        error = np.abs(value - expected).max(axis=axes) / np.abs(expected).max(axis=axes)
        assert np.all(error <= bar), (case.name, suffix, error)


@pytest.mark.slow
@pytest.mark.parametrize(("stack", "answer"), PAIRS, ids=str)
def test_derivatives_of_the_bank(stack, answer, x64):
    hessian = (stack.name, answer) in WITH_HESSIAN
    derivative = with_hessian if hessian else with_gradient
    function = derivative(FUNCTIONS[answer], stack.weights.shape[-1])
    values = jit(function)(_arguments(stack))
    for order, value in enumerate(values if hessian else (values,), start=1):
        assert np.all(np.isfinite(value))
        _check(stack, value, answer, order)


def _combined(*arguments):
    density, survival = lc.logpdf_and_logsf(*arguments)
    return PART_OF_DENSITY * density + PART_OF_SURVIVAL * survival


@pytest.mark.slow
@pytest.mark.parametrize(("stack", "order"), BOTH, ids=str)
def test_derivatives_of_both_at_once(stack, order, x64):
    derivative = {1: with_gradient, 2: with_hessian}[order]
    values = jit(derivative(_combined, stack.weights.shape[-1]))(_arguments(stack))
    for case, padded in stack.rows(values if order == 1 else values[1]):
        own = _own(stack, case)
        row = padded[:, own] if order == 1 else padded[:, own][:, :, own]
        suffix = {1: "gradient", 2: "hessian"}[order]
        parts = [getattr(case, f"{answer}_{suffix}") for answer in ("log_density", "log_survival")]
        expected = PART_OF_DENSITY * parts[0] + PART_OF_SURVIVAL * parts[1]
        largest = max(np.abs(part).max() for part in parts)
        assert np.abs(row - expected).max() <= {1: 1e-8, 2: 1e-6}[order] * largest, case.name


@pytest.mark.slow
def test_transformations_of_jax_agree(x64):
    case = next(c for c in derivative_cases() if c.name == "unequal_3")
    x, weights = case.x[1], case.weights
    expected = case.log_density_hessian[1]
    along_x = jit(jax.grad(jax.grad(lc.logpdf)))(x, weights)
    np.testing.assert_allclose(along_x, expected[0, 0], rtol=1e-8)
    hessian = jit(jax.hessian(lc.logpdf, argnums=1))(x, weights)
    reverse_twice = jit(jax.jacrev(jax.jacrev(lc.logpdf, argnums=1), argnums=1))(x, weights)
    for value in (hessian, reverse_twice):
        np.testing.assert_allclose(value, expected[1:, 1:], atol=1e-8 * np.abs(expected).max())


def _vanishing(weights, x, scale=None):
    """Arguments at each point, for a distribution with zero weights."""
    x = jnp.asarray(x)
    columns = [x[:, None], jnp.broadcast_to(jnp.asarray(weights), (x.size, len(weights)))]
    if scale is not None:
        columns.append(jnp.asarray(scale)[:, None])
    return jnp.concatenate(columns, axis=1)


def _assert_even_in_zero_weights(arguments, gradient):
    """The first derivative at a zero weight vanishes, beside the largest of the other ones."""
    largest = np.abs(gradient).max(axis=1, keepdims=True)
    at_zero = np.where(arguments[:, 1:] == 0, gradient[:, 1:], 0.0)
    # At the edge the distance to it is of the order of rounding, and so is any zero.
    edge = np.abs(arguments[:, 1:]).sum(axis=1)
    away = np.abs(np.abs(arguments[:, 0]) - edge) > 1e-5
    assert np.all((np.abs(at_zero) <= 1e-5 * largest)[away])


@pytest.mark.slow
@pytest.mark.parametrize("function", [lc.logpdf, lc.logcdf], ids=lambda f: f.__name__)
def test_finite_where_something_vanishes(function, precision):
    # Center, kinks, the edge 1.25 itself and beyond; one weight is zero.
    x = [-2.0, -1.25, -1.0, -0.75, 0.0, 0.3, 0.75, 1.0, 1.25, 2.0]
    arguments = _vanishing([1.0, 0.0, -0.25], x)
    gradient, hessian = jit(with_hessian(function, 3))(arguments)
    assert np.all(np.isfinite(gradient))
    assert np.all(np.isfinite(hessian))
    _assert_even_in_zero_weights(arguments, gradient)
    beyond = [0, -1] if function is lc.logpdf else [0]
    assert not np.any(gradient[jnp.array(beyond)])
    assert not np.any(hessian[jnp.array(beyond)])


@pytest.mark.slow
def test_finite_where_something_vanishes_with_a_normal_part(x64):
    x = [-2.0, -1.0, -0.75, 0.0, 1.0, 2.0]
    # The normal part may itself vanish.
    arguments = _vanishing([1.0, 0.0], x * 2, [0.2] * 6 + [0.0] * 6)
    gradient, hessian = jit(with_hessian(lc.logpdf, 2))(arguments)
    assert np.all(np.isfinite(gradient))
    assert np.all(np.isfinite(hessian))
    _assert_even_in_zero_weights(arguments[:, :3], gradient[:, :3])


@pytest.mark.slow
def test_gradient_of_many_weights_is_finite_where_something_vanishes():
    edge = 1.5
    x = [-2.0, -edge, -1.4, 0.0, 0.5, 1.499, edge, 2.0]
    arguments = _vanishing([0.5, 0.0, -0.3, 0.2, 0.0, 0.1, 0.4], x)
    gradient = jit(with_gradient(lc.logpdf, 7))(arguments)
    assert np.all(np.isfinite(gradient))
    _assert_even_in_zero_weights(arguments, gradient)
    assert not np.any(gradient[jnp.array([0, -1])])
    assert abs(gradient[3, 0]) < 1e-5


# In single precision rounding may take the tail of many weights at the center above one half.
@pytest.mark.parametrize("weights", [[0.9, -0.5, 0.3], [0.7, 1.3, -0.4, 0.25, 0.9, 0.5]])
def test_slopes_at_the_center(weights, precision):
    weights = jnp.asarray(weights)
    expected = {lc.logsf: -2.0, lc.logcdf: 2.0, lc.normal_score: np.sqrt(2 * np.pi)}
    slopes = jit(lambda x: [jax.grad(function)(x, weights) for function in expected])(0.0)
    density = float(lc.pdf(0.0, weights))
    np.testing.assert_allclose(slopes, np.array([*expected.values()]) * density, rtol=1e-5)


def test_third_derivative_is_refused():
    third = jax.grad(jax.grad(jax.grad(lc.logpdf)))
    with pytest.raises(NotImplementedError, match=r"third derivatives.*finite differences"):
        third(0.3, jnp.asarray([0.5]), 0.4)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: lc.ppf(x, jnp.ones(2)),
        lambda x: lc.logpdf(0.5, jnp.ones(2), x),
    ],
)
def test_mistakes_that_are_traced_have_nan_derivatives(function):
    value, slope = jax.jit(jax.value_and_grad(function))(-0.1)
    assert np.isnan(value)
    assert np.isnan(slope)
