"""Linearizations at points other than the mean, and by least squares."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nn_uq_dist as nuq

KEY = jax.random.key(0)
BOX = nuq.InputLaw(np.array([0.1, 0.2]), half_width=1.5)


def net(x):
    return jnp.stack([jnp.tanh(x[0]) + x[1] ** 2, x[0] * x[1], x[1] - 2 * x[0]])


def test_tangent_at_a_point(precision):
    at = jnp.array([0.7, -0.4])
    lin = nuq.linearize(net, BOX, at)
    np.testing.assert_allclose(lin.jacobian, jax.jacobian(net)(at), rtol=1e-6)
    np.testing.assert_allclose(lin(at), net(at), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(lin.mean, net(at) + lin.jacobian @ (BOX.loc - at), rtol=1e-5)


def test_batches_of_points_and_gradients():
    points = jnp.array([[0.7, -0.4], [0.0, 1.0]])
    lin = nuq.linearize(net, BOX, points)
    assert lin.batch_shape == (2,)
    for k in range(2):
        np.testing.assert_allclose(lin.loc[k], nuq.linearize(net, BOX, points[k]).loc, rtol=1e-5)
    slope = jax.grad(lambda a: nuq.linearize(net, BOX, a).loc[0])(points[0])
    step = 1e-2
    for k in range(2):
        up, down = (nuq.linearize(net, BOX, points[0].at[k].add(s * step)).loc[0] for s in (1, -1))
        assert float(slope[k]) == pytest.approx(float(up - down) / (2 * step), abs=2e-3)


@pytest.mark.slow
def test_fit_is_the_regression_on_the_inputs(x64):
    lin = nuq.linearize(net, BOX, "fit", key=KEY, num_samples=20_000)
    inputs = np.asarray(BOX.sample(jax.random.key(5), (400_000,)))
    terms = np.concatenate([np.ones((400_000, 1)), inputs - np.asarray(BOX.loc)], axis=1)
    expected = np.linalg.lstsq(terms, np.asarray(jax.vmap(net)(inputs)), rcond=None)[0]
    np.testing.assert_allclose(lin.loc, expected[0], atol=0.03)
    np.testing.assert_allclose(lin.jacobian, expected[1:].T, atol=0.03)
    # The third output is linear: no noise.
    np.testing.assert_allclose(lin.jacobian[2], [-2.0, 1.0], rtol=1e-10)


def test_fit_explains_more_variance_than_the_tangent():
    draws = nuq.paired_draws(net, nuq.linearize(net, BOX), KEY, 5000, progress=False)
    fitted = nuq.linearize(net, BOX, "fit", key=jax.random.key(1), num_samples=500)
    other = nuq.paired_draws(net, fitted, KEY, 5000, progress=False)
    left = [np.var(p.network - p.linear, axis=0) for p in (draws, other)]
    assert (left[1] <= left[0] * 1.02 + 1e-9).all()
    assert left[1][0] < 0.92 * left[0][0]


def test_fit_in_batches_and_under_jit():
    f = nuq.InputLaw(np.array([[0.1, 0.2], [1.0, -1.0]]), half_width=0.5)
    lin = jax.jit(lambda law: nuq.linearize(net, law, "fit", key=KEY, num_samples=400))(f)
    assert lin.jacobian.shape == (2, 3, 2)
    np.testing.assert_allclose(lin.jacobian[:, 2], [[-2.0, 1.0]] * 2, rtol=1e-4)


@pytest.mark.parametrize(
    ("arguments", "options", "error", "message"),
    [
        ((np.zeros(3),), {}, ValueError, r"at must have shape \(\.\.\., N_x\) with N_x = 2"),
        (("mode",), {"key": KEY}, ValueError, 'at must be a point or "fit"'),
        (("fit",), {}, TypeError, 'key must be a JAX random key for at="fit"'),
        (("fit",), {"key": KEY, "num_samples": 2}, ValueError, "above the number of inputs, 2"),
        ((), {"key": KEY}, TypeError, 'key and num_samples are for at="fit"'),
        ((np.array([np.nan, 0.0]),), {}, ValueError, "at must be finite"),
    ],
)
def test_errors(arguments, options, error, message):
    with pytest.raises(error, match=message):
        nuq.linearize(net, BOX, *arguments, **options)
