"""Arguments: shapes, types, what is not valid, and JAX's transformations."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from nn_uq_dist import uniform_sum as lc
from tests.compiling import jit

FUNCTIONS = lc.logpdf, lc.logcdf, lc.logsf, lc.cdf, lc.normal_score, lc.ppf, lc.from_normal_score
LOG = jit(lambda x, weights, scale=None: lc.logpdf(x, weights, scale))


def test_integers_are_promoted(precision):
    for function in FUNCTIONS:
        value = function(0, np.array([2, 1]))
        for result in (value, jax.eval_shape(function, 0, np.array([2, 1]))):  # known, traced
            assert result.dtype == precision
            assert result.shape == ()
        assert value == function(0.0, np.array([2.0, 1.0]))


@pytest.mark.parametrize(
    ("x", "weights", "expected"),
    [
        (jnp.bfloat16, jnp.bfloat16, "float32"),
        (np.float32, np.float64, "float64"),
        (np.int32, np.float32, "float32"),
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
def test_invalid_parameters_are_nan():
    weights = np.array([[np.nan, 1.0], [np.inf, 1.0], [-np.inf, 1.0], [0.0, 0.0], [1.0, 0.5]])
    x = np.array([0.2, 0.5, 0.9])[:, None]
    functions = lc.logpdf, lc.logsf, lc.normal_score, lc.ppf
    for values in jit(lambda x: [*(f(x, weights) for f in functions), lc.entropy(weights)])(x):
        assert np.all(np.isnan(values[..., :4]))
        assert np.all(np.isfinite(values[..., 4]))
    scales = np.array([-1.0, -np.inf, np.inf, np.nan])
    assert np.all(np.isnan(jit(lc.entropy)(np.ones(1), scales)))
    assert np.all(np.isnan(LOG(x, np.ones(1), scales)))
    assert np.all(np.isnan(LOG(np.array([np.nan]), np.ones(2))))


@pytest.mark.slow
def test_outside_of_the_support():
    x = np.array([-np.inf, -3.0, -1.8, 1.8, 3.0, np.inf])
    expected = {
        lc.logpdf: [-np.inf] * 6,
        lc.logsf: [0] * 3 + [-np.inf] * 3,
        lc.sf: [1] * 3 + [0] * 3,
        lc.logcdf: [-np.inf] * 3 + [0] * 3,
        lc.cdf: [0] * 3 + [1] * 3,
    }
    evaluate = jit(lambda x, *rest: [function(x, *rest) for function in expected])
    for value, answer in zip(evaluate(x, [0.9, -0.5, 0.3]), expected.values(), strict=True):
        np.testing.assert_array_equal(value, answer)
    ends = x[[0, -1]]  # with a normal part only infinity is outside
    for value, answer in zip(evaluate(ends, np.ones(1), 0.1), expected.values(), strict=True):
        np.testing.assert_array_equal(value, np.array(answer)[[0, -1]])


@pytest.mark.parametrize(
    ("x", "distributions", "scales"),
    [((0,), (), None), ((4,), (3, 1), None), ((2, 1), (1, 5), (2, 5))],
)
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
    weights = np.random.default_rng(8).uniform(0.5, 1.5, (3, 1, 6))
    x = np.linspace(-2.0, 2.0, 600).reshape(2, 1, 300)
    values = jit(lc.logsf)(x, weights)
    assert values.shape == (2, 3, 300)
    few = np.broadcast_to(x[:, :, ::100], (2, 3, 3))
    expected = jit(lc.logsf)(few, np.broadcast_to(weights, (2, 3, 3, 6)))
    np.testing.assert_allclose(values[:, :, ::100], expected, rtol=1e-9)


@pytest.mark.slow
def test_mapped_values_and_gradients_are_those_of_a_loop(x64):
    """`jax.vmap` over parameters; the third set needs conditioning, the others do not."""
    weights, points = np.array([1.0, 0.8, 0.6, 0.5, 0.3, 0.2]), np.array([0.0, 0.4, -1.9, 3.2])
    factors = np.array([[1.0] * 6, [0.5] * 6, [1.0, *[1e-3] * 5]])

    def total(factor):
        values = jnp.stack(lc.logpdf_and_logsf(points, factor * weights, 0.01))
        return jnp.sum(jnp.where(jnp.isfinite(values), values, 0.0)), values

    slope = jax.grad(total, has_aux=True)
    gradients, values = jit(jax.vmap(slope))(factors)
    alone = jit(slope)
    for factor, gradient, value in zip(factors, gradients, values, strict=True):
        expected_gradient, expected = alone(factor)
        np.testing.assert_allclose(value, expected, rtol=1e-12)
        np.testing.assert_allclose(gradient, expected_gradient, rtol=1e-9, atol=1e-10)
