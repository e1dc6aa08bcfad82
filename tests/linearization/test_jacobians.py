"""Jacobians in portions: the same numbers as JAX's own, and never a large identity matrix."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from nn_uq_dist import Input, Linearization, linearize
from nn_uq_dist.linearization import jacobians
from nn_uq_dist.linearization.jacobians import values_and_jacobians
from nn_uq_dist.sampling.flat_network import flat_network
from tests.array_sizes import largest_array


def network(num_inputs, num_outputs, width=6):
    keys = jax.random.split(jax.random.key(0), 2)
    first = jax.random.normal(keys[0], (width, num_inputs))
    last = jax.random.normal(keys[1], (num_outputs, width))
    return lambda x: last @ jnp.tanh(first @ x)


@pytest.fixture
def small_portions(monkeypatch):
    """Portions that a small network needs several of, the last one not full."""
    monkeypatch.setattr(jacobians, "_MOST_NUMBERS", 40)


@pytest.mark.usefixtures("small_portions", "x64")
@pytest.mark.parametrize(("shape", "batch"), [((7, 13), ()), ((13, 7), (2, 3))])
def test_portions_are_the_jacobian(shape, batch):
    net = network(*shape)
    points = jax.random.normal(jax.random.key(1), (*batch, shape[0]))
    flat = flat_network(net, Input.known(jnp.zeros(shape[0])))
    values, jacobians = jax.jit(lambda x: values_and_jacobians(flat, x, shape[1]))(points)
    expected, slope = net, jax.jacfwd(net)
    for _ in batch:
        expected, slope = jax.vmap(expected), jax.vmap(slope)
    np.testing.assert_allclose(values, expected(points), rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(jacobians, slope(points), rtol=1e-12, atol=1e-14)


def test_batch_size_changes_nothing():
    net = network(4, 3)
    distribution = Input.box(jax.random.normal(jax.random.key(2), (7, 4)), 0.1)
    whole = linearize(net, distribution)
    parts = linearize(net, distribution, batch_size=3)
    np.testing.assert_allclose(parts.loc, whole.loc, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(parts.jacobian, whole.jacobian, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("shape", [(200, 30_000), (150_528, 10)])
def test_no_array_is_much_larger_than_the_jacobian(shape):
    net = network(*shape)

    def jacobian(mean):
        return linearize(net, Input.box(mean, 0.1)).jacobian

    largest = largest_array(jacobian, jnp.zeros(shape[0]))
    assert largest <= max(shape[0] * shape[1], 2 * jacobians._MOST_NUMBERS)


def test_points_are_handled_some_at_a_time():
    # The Jacobians of all points are 0.4 million numbers, the activations of one point 4096.
    net = network(12, 3, width=4096)

    def jacobian(mean):
        return linearize(net, Input.box(mean, 0.1), batch_size=16).jacobian

    assert largest_array(jacobian, jnp.zeros((10_000, 12))) <= 400_000


@pytest.mark.parametrize("make", [Input.box, Input.normal])
def test_marginals_with_noise_make_no_covariance(make):
    distribution = make(jnp.zeros(3), 0.1)

    def marginals(jacobian):
        linear = Linearization(jnp.zeros(10_000), jacobian, distribution)
        made = linear.marginals(noise_scale=0.1)
        return made.weights, made.normal_scale, made.variance, linear.variance

    assert largest_array(marginals, jnp.ones((10_000, 3))) <= 4 * 10_000
