"""Distributions of certificates: moments, draws and gradients, against SciPy's."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads
from scipy import stats

import nn_uq_dist as nuq
from nn_uq_dist import Input

ZERO = np.zeros(1)
SHAPES = {
    "arcsine": (lambda: Input.arcsine(ZERO + 19, 21.0), stats.arcsine(19, 2)),
    "Student's t": (lambda: Input.student_t(ZERO + 1, 0.1, 4), stats.t(4, 1, 0.1)),
    "triangle": (lambda: Input.triangular(ZERO, 3.0, mode=2.7), stats.triang(0.9, 0, 3)),
    "half a triangle": (lambda: Input.triangular(ZERO, 3.0, mode=0.0), stats.triang(0, 0, 3)),
    "trapezium": (lambda: Input.trapezoidal(ZERO, 0.5, 1, 4), stats.trapezoid(0.125, 0.25, 0, 4)),
    "ramp": (lambda: Input.trapezoidal(ZERO, 3.0, 4.0, 4.0), stats.trapezoid(0.75, 1, 0, 4)),
}


@pytest.mark.parametrize("name", SHAPES)
def test_moments_and_draws(name):
    make, known = SHAPES[name]
    f = make()
    lin = nuq.linearize(lambda x: x, f)
    np.testing.assert_allclose(lin.mean, [known.mean()], rtol=1e-5)
    np.testing.assert_allclose(lin.variance, [known.var()], rtol=1e-5)
    assert "not the shape" in lin.remarks[0]
    scores = np.array([[-6.0], [-1.0], [0.0], [0.5], [4.0]], f.dtype)
    expected = np.where(
        scores > 0, known.isf(stats.norm.sf(scores)), known.ppf(stats.norm.cdf(scores))
    )
    np.testing.assert_allclose(f.network_input(scores), expected, rtol=2e-6, atol=2e-6)


def test_ends_that_are_not_exact():
    f = Input.curvilinear_trapezoidal(ZERO + 5, 3.0, 1.5)
    lin = nuq.linearize(lambda x: 2 * x, f)
    np.testing.assert_allclose(lin.variance, [4 * (3.0**2 / 3 + 1.5**2 / 9)], rtol=1e-5)
    draws = np.asarray(nuq.monte_carlo(lambda x: x, f, jax.random.key(0), 20_000, progress=False))
    place, width = np.random.default_rng(0).uniform(-1, 1, (2, 20_000))
    assert stats.ks_2samp(draws[:, 0], 5 + (3 + 1.5 * width) * place).pvalue > 0.01


@pytest.mark.slow
@pytest.mark.usefixtures("x64")
def test_ends_broadcast_and_have_gradients():
    def values(low, mode, high, df):
        f = {"a": Input.triangular(low, high, mode), "b": Input.student_t(low, high, df)}
        lin = nuq.linearize(lambda x: x["a"] ** 2 + x["b"], f)
        draw = Input.triangular(low, high, mode).network_input(jnp.array([-0.7]))
        return lin.mean, lin.variance, draw, Input.arcsine(low, high).network_input(low)

    mode = jnp.array([0.5, 1.0, 1.5])
    f = Input.triangular(jnp.zeros((4, 1)), 2 * mode, mode=mode)
    np.testing.assert_allclose(f.variance, np.tile(np.array([1, 4, 9]) / 24, (4, 1)))
    arguments = jnp.array([0.1]), jnp.array([0.5]), jnp.array([2.0]), jnp.array([5.0])
    check_grads(values, arguments, order=1, modes=["rev"], rtol=1e-6)
    slope = jax.grad(lambda mode: values(ZERO, mode * jnp.ones(1), jnp.ones(1), 5.0)[2][0])(0.0)
    assert np.isfinite(slope)
