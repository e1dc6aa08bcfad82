"""Linearizations at points other than the mean."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nn_uq_dist as nuq

BOX = nuq.Input.box(np.array([0.1, 0.2]), half_width=1.5)


def net(x):
    return jnp.stack([jnp.tanh(x[0]) + x[1] ** 2, x[0] * x[1], x[1] - 2 * x[0]])


def test_tangent_at_a_point(precision):
    at = jnp.array([0.7, -0.4])
    lin = nuq.linearize(net, BOX, at)
    np.testing.assert_allclose(lin.jacobian, jax.jacobian(net)(at), rtol=1e-6)
    np.testing.assert_allclose(lin(at), net(at), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(lin.mean, net(at) + lin.jacobian @ (BOX.mean - at), rtol=1e-5)


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


@pytest.mark.parametrize(
    ("at", "error", "message"),
    [
        (np.zeros(3), ValueError, r"at must have shape \(\.\.\., N_x\) with N_x = 2"),
        ("mode", TypeError, "at must be an array of real numbers"),
        (np.array([np.nan, 0.0]), ValueError, "at must be finite"),
    ],
)
def test_errors(at, error, message):
    with pytest.raises(error, match=message):
        nuq.linearize(net, BOX, at)
