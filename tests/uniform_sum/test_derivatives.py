"""Gradients and Hessians against finite differences of the 40-digit reference."""

from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from mpmath import mp

from nn_uq_dist import uniform_sum as lc
from tests.bank.loader import derivative_cases
from tests.bank.reference import iterated_normal_integrals
from tests.compiling import jit
from tests.uniform_sum.stacks import stacked, with_gradient, with_hessian

# A combination of both functions, so that the derivatives of each reach the answer.
FACTORS = {"density": 0.6, "survival": -1.7}
DENSITY, SURVIVAL, BOTH = {"density": 1.0}, {"survival": 1.0}, FACTORS
FUNCTIONS = {"density": lc.logpdf, "survival": lc.logsf}


def _combined(*arguments):
    values = lc.logpdf_and_logsf(*arguments)
    return sum(c * value for c, value in zip(FACTORS.values(), values, strict=True))


# Second derivatives of distributions with a contour integral take five to ten seconds to compile.
# The density of one weight with a normal part is covered by that of two.
CASES = {
    "2_weights": [(DENSITY, 2)],
    "3_weights": [(BOTH, 2)],
    "4_weights": [(SURVIVAL, 2)],
    "12_weights": [(DENSITY, 2), (BOTH, 1)],
    "1_weights_normal_part": [(SURVIVAL, 1)],
    "2_weights_normal_part": [(DENSITY, 2)],
    "12_weights_normal_part": [(SURVIVAL, 2)],
}
# More than four weights take one way whatever their number: one program for all.
STACKS = {stack.name: stack for stack in stacked(derivative_cases(), 12)}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("stack", "parts", "order"), [(name, *rest) for name, cases in CASES.items() for rest in cases]
)
def test_derivatives_of_the_bank(stack, parts, order, x64):
    """Errors are relative to the largest entry of each derivative."""
    assert CASES.keys() == STACKS.keys()
    stack = STACKS[stack]
    count = stack.weights.shape[-1]
    function = _combined if len(parts) == 2 else FUNCTIONS[next(iter(parts))]
    derivatives = [with_gradient, with_hessian][order - 1](function, count)
    x, weights, *scale = stack.distribution_per_point()
    columns = [x[..., None], weights, *(s[..., None] for s in scale)]
    values = jit(derivatives)(np.concatenate(columns, axis=-1))
    for name, bar, value in zip(
        ("gradient", "hessian"), (1e-8, 1e-6), values if order == 2 else (values,), strict=False
    ):
        assert np.all(np.isfinite(value))
        for case, padded in stack.rows(value):
            # Without the zeros that pad its weights.
            own = [*range(len(case.weights) + 1), *[count + 1] * len(scale)]
            found = padded[:, own] if name == "gradient" else padded[:, own][:, :, own]
            exact = [c * getattr(case, f"log_{part}_{name}") for part, c in parts.items()]
            axes = tuple(range(1, found.ndim))
            error = np.abs(found - sum(exact)).max(axis=axes)
            size = sum(np.abs(part).max(axis=axes) for part in exact)
            assert np.all(error <= bar * size), (case.name, name, error)


@pytest.mark.slow
def test_reverse_mode_twice(x64):
    case = next(c for c in derivative_cases() if c.name == "unequal_3")
    x, weights = case.x[1], case.weights
    expected = case.log_density_hessian[1]
    found = jit(jax.jacrev(jax.jacrev(lc.logpdf, argnums=1), argnums=1))(x, weights)
    np.testing.assert_allclose(found, expected[1:, 1:], atol=1e-8 * np.abs(expected).max())


def _vanishing(x, weights, scale=()):
    """Arguments at each point, for distributions with zero weights."""
    rows = [np.asarray(x), *(np.full(len(x), w) for w in weights), *scale]
    return jnp.asarray(np.stack(rows, axis=1))


def _check_vanishing(arguments, count, *derivatives):
    """All is finite; the derivative at a zero weight is 0, beside the largest of the others."""
    for value in derivatives:
        assert np.all(np.isfinite(value))
    weights, slopes = arguments[:, 1 : count + 1], derivatives[0][:, 1 : count + 1]
    largest = np.abs(derivatives[0][:, : count + 1]).max(axis=1, keepdims=True)
    # At the edge the distance to it is of the order of rounding, and so is any zero.
    away = np.abs(np.abs(arguments[:, 0]) - np.abs(weights).sum(axis=1)) > 1e-5
    assert np.all((np.abs(np.where(weights == 0, slopes, 0.0)) <= 1e-5 * largest)[away])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("function", "precision"),
    [(lc.logpdf, "float32"), (lc.logcdf, "float64")],
    ids=["logpdf", "logcdf"],
    indirect=["precision"],
)
def test_finite_where_something_vanishes(function, precision):
    # Center, kinks, the edge 1.25 itself and beyond; one weight is zero.
    x = [-2.0, -1.25, -1.0, -0.75, 0.0, 0.3, 0.75, 1.0, 1.25, 2.0]
    arguments = _vanishing(x, [1.0, 0.0, -0.25])
    found = jit(with_hessian(function, 3))(arguments)
    _check_vanishing(arguments, 3, *found)
    beyond = np.array([0, -1] if function is lc.logpdf else [0])
    assert not any(np.any(part[beyond]) for part in found)


@pytest.mark.slow
def test_finite_where_something_vanishes_with_a_normal_part(x64):
    # The normal part may itself vanish.
    x = [-2.0, -1.0, -0.75, 0.0, 1.0, 2.0] * 2
    arguments = _vanishing(x, [1.0, 0.0], [np.repeat([0.2, 0.0], 6)])
    _check_vanishing(arguments, 2, *jit(with_hessian(lc.logpdf, 2))(arguments))


@pytest.mark.slow
def test_gradient_of_many_weights_is_finite_where_something_vanishes():
    x = [-2.0, -1.5, -1.4, 0.0, 0.5, 1.499, 1.5, 2.0]
    arguments = _vanishing(x, [0.5, 0.0, -0.3, 0.2, 0.0, 0.1, 0.4])
    gradient = jit(with_gradient(lc.logpdf, 7))(arguments)
    _check_vanishing(arguments, 7, gradient)
    assert not np.any(gradient[np.array([0, -1])])
    assert abs(gradient[3, 0]) < 1e-5


@pytest.mark.slow
def test_slopes_at_the_center():
    # In single precision rounding may take the tail of many weights at the center above one half.
    weights = jnp.array([0.7, 1.3, -0.4, 0.25, 0.9, 0.5])
    expected = {lc.logsf: -2.0, lc.logcdf: 2.0, lc.normal_score: np.sqrt(2 * np.pi)}
    slopes = jit(lambda x: [jax.grad(function)(x, weights) for function in expected])(0.0)
    density = np.exp(lc.logpdf(0.0, weights))
    np.testing.assert_allclose(slopes, np.array([*expected.values()]) * density, rtol=1e-5)


WEIGHTS = {1: [0.5], 3: [0.5, 0.3, 0.1], 5: [0.5, 0.3, 0.1, 0.2, 0.4]}


def values_and_slopes(x, weights, scale):
    """Log density and log survival with derivatives in ``x``, a weight and the scale, in mpmath."""

    def logs(x, scale, first):
        return iterated_normal_integrals(x, [first, *widths[1:]], scale)

    x, scale, *widths = (Fraction(float(v)) for v in (x, scale, *weights))
    arguments, step = [x, scale, widths[0]], scale / 10**12
    columns = [logs(*arguments)]
    for k in range(3):
        ends = [[v + sign * step * (i == k) for i, v in enumerate(arguments)] for sign in (1, -1)]
        above, below = (logs(*end) for end in ends)
        twice = 2 * mp.mpf(step.numerator) / step.denominator
        columns.append([(a - b) / twice for a, b in zip(above, below, strict=True)])
    return np.array(columns, float).T


@pytest.mark.slow
@pytest.mark.parametrize(
    ("count", "precision"),
    [(1, "float32"), (3, "float64"), (5, "float32")],
    indirect=["precision"],
)
def test_a_tiny_normal_part_has_right_slopes(count, precision):
    # Inside, beside, at and beyond the edge.
    eps, weights = float(np.finfo(precision).eps), np.array(WEIGHTS[count], precision)
    width = weights.sum(dtype=np.longdouble).astype(precision)
    far = [np.nextafter(width, np.array(end, precision)) for end in (0, 9)]
    x = np.array([0.1, 0.7, 1 - 1e-4, 1, 1.2]) * width
    x = np.concatenate([x, far]).astype(precision)
    lost = [1e-30, 1e-18, 1e-12 if precision == "float32" else 1e-17, eps / 2]
    kept = [2 * eps, 100 * eps, 1e-4, 0.1] if count < 5 else [100 * eps]
    scale = np.array([0, *lost, *kept], precision) * width
    points = [part.ravel() for part in np.broadcast_arrays(x, scale[:, None])]

    def both(x, scale, weights):
        return jnp.stack(lc.logpdf_and_logsf(x, weights, scale))

    slopes = jax.jacrev(both, argnums=(0, 1, 2))
    each = jax.vmap(lambda *at: (both(*at), slopes(*at)), (0, 0, None))
    values, (of_x, of_scale, of_weights) = jit(each)(*points, weights)
    assert all(np.isfinite(part).all() for part in (of_x, of_scale, of_weights))
    found = np.stack([values, of_x, of_scale, of_weights[..., 0]], axis=-1)
    found = found.reshape(len(scale), len(x), 2, 4)
    # Below the rounding of the values it is none, and has no slope.
    assert (found[1:5] == found[0]).all()
    assert (found[1:5, :, :, 2] == 0).all()
    with mp.workdps(160):
        for row, s in zip(found[5:], scale[5:], strict=True):
            expected = np.array([values_and_slopes(at, weights, s) for at in x])
            size = 1 + np.abs(expected)
            # Slopes are as large as one over the scale, and near the edge, where it cancels, that
            # of the scale is of this size, too.
            size[..., 1:] += np.abs(expected[..., 1:2])
            bar = [3e-6] * 4 if precision == "float32" else [1e-11, *[1e-8] * 3]
            rounding = np.array([0, 1, 1, 1]) * 4 * eps / s
            assert (np.abs(row - expected) <= bar * size + rounding).all(), s


@pytest.mark.slow
def test_far_out_in_the_normal_part(precision):
    # The uniforms leave the distance from their edge, and a factor ``1 / (2 w t)`` each.
    weights, scale = np.array([0.5, 0.3, 0.1], precision), 0.125
    z = np.array([1e5, 1e7, 1e9, 1e12, 1e16, 1e18])
    x = (weights.sum(dtype=float) + scale * z).astype(precision)

    def both(x, s):
        return jnp.stack(lc.logpdf_and_logsf(x, weights, s))

    slopes = jit(jax.vmap(lambda x, s: (both(x, s), jax.jacrev(both, (0, 1))(x, s)), (0, None)))
    values, (of_x, of_scale) = slopes(x, jnp.asarray(scale, precision))
    away = x.astype(float) - weights.sum(dtype=float)
    for found, expected in (
        (values, -((away / scale) ** 2) / 2),
        (of_x, -away / scale**2),
        (of_scale, away**2 / scale**3),
    ):
        np.testing.assert_allclose(found, np.stack([expected] * 2, 1), rtol=1e-6)
    farther = np.array([1e25 if precision == "float32" else 1e200, np.inf], precision)
    beyond = jit(lambda x: lc.logpdf(x, weights, scale))(farther)
    assert (np.asarray(beyond) == -np.inf).all()


def test_third_derivative_is_refused():
    third = jax.grad(jax.grad(jax.grad(lc.logpdf)))
    with pytest.raises(NotImplementedError, match=r"third derivatives.*finite differences"):
        third(0.3, jnp.asarray([0.5]), 0.4)


@pytest.mark.parametrize(
    "function", [lambda x: lc.ppf(x, jnp.ones(2)), lambda x: lc.logpdf(0.5, jnp.ones(2), x)]
)
def test_mistakes_that_are_traced_have_nan_derivatives(function):
    assert np.isnan(jit(jax.value_and_grad(function))(-0.1)).all()
