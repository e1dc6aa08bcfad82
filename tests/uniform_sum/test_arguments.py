"""Arguments: shapes, types, what is not valid, and JAX's transformations."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from nn_uq_dist import uniform_sum as lc
from tests.compiling import jit

FUNCTIONS = lc.logpdf, lc.logcdf, lc.logsf, lc.cdf, lc.normal_score, lc.ppf, lc.from_normal_score
LOG = jit(lambda x, weights, scale=None: lc.logpdf(x, weights, scale))
WEIGHTS = np.array([0.9, -0.5, 0.3])


def test_integers_are_promoted(precision):
    for function in FUNCTIONS:
        value = function(0, np.array([2, 1]))
        assert isinstance(value, jax.Array)
        for result in (value, jax.eval_shape(function, 0, np.array([2, 1]))):  # known, traced
            assert result.dtype == precision
            assert result.shape == ()
        assert value == function(0.0, np.array([2.0, 1.0]))


@pytest.mark.parametrize(
    ("x", "weights", "expected"),
    [
        (jnp.float16, jnp.float16, "float32"),
        (jnp.bfloat16, jnp.bfloat16, "float32"),
        (np.float32, np.float32, "float32"),
        (np.float32, np.float64, "float64"),
        (np.float64, np.float32, "float64"),
        (np.int32, np.float32, "float32"),
        (np.float64, np.float64, "float64"),
    ],
)
def test_types_follow_the_arguments(x, weights, expected, x64):
    value = LOG(np.array([0.25, 0.5]).astype(x), np.array([1.0, 0.5]).astype(weights))
    assert value.dtype == expected
    np.testing.assert_allclose(value, np.log([0.5, 0.5]), rtol=1e-6)


def test_python_scalars_are_weak_and_doubles_without_x64_single():
    single = np.ones(1, np.float32)
    with jax.enable_x64(True):
        assert LOG(0.5, single).dtype == LOG(single[0], single, 0.1).dtype == np.float32
    assert LOG(np.array([0.5]), np.ones(1), np.array(0.0)).dtype == np.float32


@pytest.mark.slow
def test_invalid_parameters_are_nan(precision):
    weights = np.array([[np.nan, 1.0], [np.inf, 1.0], [-np.inf, 1.0], [0.0, 0.0], [1.0, 0.5]])
    x = np.array([0.2, 0.5, 0.9])[:, None]
    functions = (lc.logpdf, lc.logsf, lc.normal_score, lc.ppf)
    for values in jit(lambda x: [function(x, weights) for function in functions])(x):
        assert np.all(np.isnan(values[:, :4]))
        assert np.all(np.isfinite(values[:, 4]))
    assert np.isnan(jit(lc.ppf)(0.1, np.ones(2), -1.0))
    scales = np.array([-1.0, -np.inf, np.inf, np.nan])
    assert np.all(np.isnan(LOG(x, np.ones(1), scales)))
    assert np.all(np.isnan(LOG(np.array([np.nan]), np.ones(2))))


def test_outside_of_the_support(precision):
    x = np.array([-np.inf, -3.0, -1.8, 1.8, 3.0, np.inf])
    expected = {
        lc.logpdf: [-np.inf] * 6,
        lc.logsf: [0] * 3 + [-np.inf] * 3,
        lc.sf: [1] * 3 + [0] * 3,
        lc.logcdf: [-np.inf] * 3 + [0] * 3,
        lc.cdf: [0] * 3 + [1] * 3,
    }
    evaluate = jit(lambda x: [function(x, WEIGHTS) for function in expected])
    for value, answer in zip(evaluate(x), expected.values(), strict=True):
        np.testing.assert_array_equal(value, answer)


@pytest.mark.slow
def test_infinity_with_a_normal_part(precision):
    x = np.array([-np.inf, np.inf])
    np.testing.assert_array_equal(LOG(x, np.ones(1), 0.1), [-np.inf, -np.inf])
    np.testing.assert_array_equal(jit(lc.sf)(x, np.ones(1), 0.1), [1, 0])


@pytest.mark.parametrize(
    ("x", "distributions", "scales"),
    [((), (), None), ((0,), (), None), ((), (3,), None), ((4,), (3, 1), None),
     ((2, 1, 4), (3, 1), ()), ((2, 1), (1, 5), (2, 5)), ((3, 0), (3, 1), None)],
)  # fmt: skip
def test_shapes_broadcast(x, distributions, scales, x64):
    generator = np.random.default_rng(7)
    points = generator.uniform(-1.5, 1.5, x)
    count = 2 if scales is None else 1
    weights = generator.uniform(0.5, 1.5, (*distributions, count))
    scale = None if scales is None else generator.uniform(0.5, 1.0, scales)
    values = LOG(points, weights, scale)
    shape = np.broadcast_shapes(x, distributions, scales or ())
    assert values.shape == shape
    parts = [np.broadcast_to(points, shape), np.broadcast_to(weights, (*shape, count))]
    parts += [] if scale is None else [np.broadcast_to(scale, shape)]
    loop = [LOG(*(part[index] for part in parts)) for index in np.ndindex(shape)]
    np.testing.assert_allclose(values, np.reshape(loop, shape), rtol=1e-12)


@pytest.mark.slow
def test_many_points_of_distributions_on_mixed_axes(x64):
    # Enough points for tables: axes 0 and 2 are the points', axis 1 the distributions'.
    generator = np.random.default_rng(8)
    weights = generator.uniform(0.5, 1.5, (3, 1, 6))
    x = np.linspace(-2.0, 2.0, 600).reshape(2, 1, 300)
    values = jit(lc.logsf)(x, weights)
    assert values.shape == (2, 3, 300)
    few = x[:, :, ::100]
    copies = np.broadcast_to(weights, (2, 3, 3, 6))
    expected = jit(lc.logsf)(np.broadcast_to(few, (2, 3, 3)), copies)
    np.testing.assert_allclose(values[:, :, ::100], expected, rtol=1e-9)


# `jax.vmap` over parameters gives the results of a loop, without evaluating every method.
MAPPED_WEIGHTS = np.array([1.0, 0.8, 0.6, 0.5, 0.3, 0.2])
MAPPED_POINTS = np.array([0.0, 0.4, -1.9, 3.2])
# The third set needs conditioning, the others do not.
FACTORS = np.array([[1.0] * 6, [0.5] * 6, [1.0, *[1e-3] * 5]])


def _values(factors, scale):
    return jnp.stack([*lc.logpdf_and_logsf(MAPPED_POINTS, factors * MAPPED_WEIGHTS, scale)])


@pytest.mark.slow
def test_mapped_values_and_gradients_are_those_of_a_loop(x64):
    def total(factors):
        values = _values(factors, 0.01)
        return jnp.sum(jnp.where(jnp.isfinite(values), values, 0.0)), values

    slope = jax.grad(total, has_aux=True)
    gradients, values = jit(jax.vmap(slope))(FACTORS)
    alone = jit(slope)
    for factors, gradient, value in zip(FACTORS, gradients, values, strict=True):
        expected_gradient, expected = alone(factors)
        np.testing.assert_allclose(value, expected, rtol=1e-12)
        np.testing.assert_allclose(gradient, expected_gradient, rtol=1e-9, atol=1e-10)


def test_mapped_functions_decide_once():
    program = str(jax.make_jaxpr(jax.vmap(lambda f: _values(f, 0.05)))(FACTORS))
    assert "cond[" in program
