"""Laws of a thousand weights and more: accuracy up to the edge, derivatives, and memory."""

from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from nn_uq_dist import linear_combination as lc
from nn_uq_dist.linear_combination._many_weights import _by_power_sums
from nn_uq_dist.linear_combination._points import values_of_points
from nn_uq_dist.linear_combination._power_sums import reduce
from tests.array_sizes import largest_array
from tests.bank.reference import contour_integral
from tests.compiling import jit

# Distinct weights and how many there are of each: few distinct ones keep the reference quick.
WEIGHTS = {
    "a_thousand_equal": ([1.0], [1024]),
    "an_image": ([0.5, 1.0, 1.5], [3000, 3000, 1000]),
    "few_large": ([1.0, 0.01], [6, 3000]),
    "more_large_than_kept": ([1.0, 0.125, 1e-3], [200, 900, 2000]),
    "most_zero": ([1.0, 0.5, 0.0], [20, 60, 2000]),
}
DEVIATIONS = [0.0, 0.3, 2.0, 6.0]


def law_of(name, dtype):
    values, numbers = WEIGHTS[name]
    weights = np.repeat(np.asarray(values, dtype), numbers)
    order = np.random.default_rng(0).permutation(len(weights))
    signs = np.where(np.arange(len(weights)) % 2, -1, 1).astype(dtype)
    return weights[order] * signs


def references(weights, points, scale):
    half_widths = [Fraction(float(w)) for w in np.abs(weights) if w]
    scale = Fraction(0.0 if scale is None else float(scale))
    found = [contour_integral(Fraction(float(x)), half_widths, scale, 25) for x in points]
    return np.array(found, float).T


@pytest.mark.slow
@pytest.mark.parametrize("normal_scale", [None, 0.5])
@pytest.mark.parametrize("name", WEIGHTS)
def test_values_match_mpmath(name, normal_scale, precision):
    weights = law_of(name, precision)
    deviation = np.sqrt(np.sum(weights.astype(float) ** 2) / 3 + (normal_scale or 0) ** 2)
    edge = np.sum(np.abs(weights), dtype=float)
    # Far out all weights are taken one by one.
    points = np.asarray([*np.multiply(DEVIATIONS, deviation), 0.7 * edge], precision)
    points = points[points < 0.9 * edge]
    scale = () if normal_scale is None else (np.asarray(normal_scale, precision),)
    found = np.array(lc.logpdf_and_logsf(points, weights, *scale))
    expected = references(weights, points, normal_scale)
    error = np.abs(found - expected) / np.maximum(1, np.abs(expected) / 10)
    near = points < 7 * deviation
    assert error[:, near].max() < {"float32": 5e-5, "float64": 1e-12}[precision]
    # All factors at a node share one rounding of t/z, which adds up over the weights.
    assert error.max() < {"float32": 1e-3, "float64": 1e-11}[precision]


@pytest.mark.slow
@pytest.mark.usefixtures("x64")
def test_traced_and_known_numbers_agree():
    weights = np.stack([law_of("few_large", float), law_of("few_large", float) * 3])
    y = np.array([[0.1, 5.0], [2.0, 40.0], [-1.0, 200.0]])  # the last one beyond the support
    known, traced = lc.logpdf(y, weights), jit(lc.logpdf)(y, weights)
    mapped = jit(jax.vmap(lc.logpdf, in_axes=(1, 0), out_axes=1))(y, weights)
    np.testing.assert_allclose(traced, known, rtol=1e-12)
    np.testing.assert_allclose(mapped, known, rtol=1e-12)
    assert np.isneginf(known).tolist() == [[False, False], [False, False], [False, True]]


@pytest.mark.slow
@pytest.mark.usefixtures("x64")
def test_the_series_serves_ordinary_points():
    reduced = reduce(jnp.asarray(law_of("an_image", float))[None], None)
    points = jnp.linspace(0, 8, 9) * jnp.sqrt(jnp.sum(law_of("an_image", float) ** 2) / 3)
    assert _by_power_sums((0, 1), points, reduced.take(jnp.zeros(9, int)))[1].all()


@pytest.mark.slow
@pytest.mark.usefixtures("x64")
def test_derivatives_are_those_of_all_weights():
    weights, y = law_of("a_thousand_equal", float)[None], np.array([[3.0, 40.0]])

    def total(function):
        return lambda y, w, s: jnp.sum(jnp.sin(function(y, w, s)))

    def one_by_one(y, w, s):
        return values_of_points((0,), y[0], jnp.repeat(w, 2, 0).T, jnp.repeat(s, 2))[0]

    arguments = y, weights, np.array([0.5])
    names = ("y", "weights", "normal_scale")
    found = jit(jax.grad(total(lc.logpdf), (0, 1, 2)))(*arguments)
    expected = jit(jax.grad(total(one_by_one), (0, 1, 2)))(*arguments)
    for name, a, b in zip(names, found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12, err_msg=name)


@pytest.mark.parametrize("differentiate", [False, True])
def test_no_array_is_much_larger_than_the_weights(differentiate):
    weights, points = jnp.ones((10, 150_528)), jnp.zeros((100, 10))

    def total(w):
        return jnp.sum(lc.logpdf(points, w))

    # With derivatives: four numbers for each weight of the points of a block.
    largest = largest_array(jax.grad(total) if differentiate else total, weights)
    assert largest <= (2**23 if differentiate else 4 * weights.size)
