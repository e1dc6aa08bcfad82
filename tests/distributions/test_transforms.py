"""Increasing maps: formulas, both directions, derivatives, shapes, equality, errors."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax.test_util import check_grads
from scipy.interpolate import PchipInterpolator

from nn_uq_dist import LinearizedMarginal
from nn_uq_dist.distributions import MonotoneSpline, NormalScoreTransform

X = np.array([-1.0, 0.0, 0.5, 2.0])
Y = np.array([-3.0, 0.0, 2.0, 2.5])
WEIGHTS = np.array([[1.0, 0.5], [0.7, 0.4]], np.float32)
ZEROS = np.zeros(2, np.float32)
steps = st.lists(st.floats(0.05, 5.0), min_size=6, max_size=6)


def test_goes_through_the_knots_and_is_straight_beyond(precision):
    spline = MonotoneSpline(X, Y)
    np.testing.assert_allclose(spline(jnp.asarray(X)), Y, rtol=1e-6, atol=1e-6)
    slopes = np.asarray(spline.slopes)
    np.testing.assert_allclose(spline(-4.0), Y[0] - 3 * slopes[0], rtol=1e-6)
    np.testing.assert_allclose(spline(7.0), Y[-1] + 5 * slopes[-1], rtol=1e-6)
    # The derivatives of Fritsch and Butland, as SciPy has them.
    inner = PchipInterpolator(X, Y).derivative()(X[1:-1])
    np.testing.assert_allclose(slopes[1:-1], inner, rtol=1e-6)


def test_is_the_rational_quadratic_of_its_formula(x64):
    slopes = np.array([1.0, 2.0, 0.5, 0.3])
    spline = MonotoneSpline(X, Y, slopes)
    x = np.linspace(0.01, 0.49, 7)
    t, s = (x - X[1]) / 0.5, 4.0
    expected = Y[1] + 2.0 * (s * t**2 + slopes[1] * t * (1 - t)) / (
        s + (slopes[1] + slopes[2] - 2 * s) * t * (1 - t)
    )
    np.testing.assert_allclose(spline(x), expected, rtol=1e-13)


@jax.jit
def around(knots, images, x):
    """Images, the way back, log slopes, and derivatives of both directions."""
    spline = MonotoneSpline(knots, images)
    y = spline(x)
    slopes, back = jax.vmap(jax.grad(spline))(x), jax.vmap(jax.grad(spline.inv))(y)
    return y, spline.inv(y), spline.log_abs_det_jacobian(x, y), slopes, back


@pytest.mark.slow
@given(widths=steps, rises=steps)
def test_both_directions_and_the_slope(widths, rises):
    with jax.enable_x64(True):
        x = np.linspace(-3.0, sum(widths) + 3, 211)
        y, again, log_slopes, slopes, back = around(np.cumsum(widths), np.cumsum(rises), x)
        assert bool((jnp.diff(y) > 0).all())
        np.testing.assert_allclose(again, x, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(log_slopes, jnp.log(slopes), rtol=1e-7, atol=1e-7)
        np.testing.assert_allclose(back * slopes, 1, rtol=1e-7)


@pytest.mark.slow
def test_gradients_in_the_knots(x64):
    def value(y):
        spline = MonotoneSpline(X, y)
        return jnp.sum(jnp.sin(spline(jnp.linspace(-2, 3, 9)))) + spline.inv(1.0)

    check_grads(value, (jnp.asarray(Y),), order=1, rtol=1e-6)


def test_nan_stays_nan_and_infinity_infinite():
    spline = MonotoneSpline(X, Y)
    values = jnp.array([jnp.nan, jnp.inf, -jnp.inf])
    for found in (spline(values), spline.inv(values)):
        assert np.isnan(found[0])
        assert found[1:].tolist() == [np.inf, -np.inf]


def test_compares():
    assert MonotoneSpline(X, Y) == MonotoneSpline(X, Y)
    assert MonotoneSpline(X, Y) != MonotoneSpline(X, Y + 1)


@pytest.mark.slow
def test_normal_scores_to_outputs():
    marginals = LinearizedMarginal(ZEROS, WEIGHTS)
    transform = NormalScoreTransform(marginals)
    assert (transform.domain.event_dim, transform.codomain.event_dim) == (1, 1)
    z = jnp.array([[-2.0, 0.3], [1.0, 2.0]])
    y = transform(z)
    np.testing.assert_allclose(transform.inv(y), z, rtol=1e-4)
    slopes = jax.vmap(lambda z: jnp.linalg.slogdet(jax.jacobian(transform)(z))[1])(z)
    np.testing.assert_allclose(transform.log_abs_det_jacobian(z, y), slopes, rtol=1e-4)
    assert transform == NormalScoreTransform(LinearizedMarginal(ZEROS, WEIGHTS))
    assert transform != NormalScoreTransform(LinearizedMarginal(ZEROS, 2 * WEIGHTS))
    assert transform != NormalScoreTransform(dist.Normal(ZEROS, 1.0))
