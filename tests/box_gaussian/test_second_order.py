"""The second order of the joint density against references that use no expansion."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from nn_uq_dist.box_gaussian import log_evidence, second_order
from tests.box_gaussian.references import by_quadrature, by_separation, problem


def errors(num_inputs, num_outputs, noise, seed):
    """Of the density and of the corrected one."""
    draws, weights, covariance = problem(
        np.random.default_rng(seed), num_inputs, num_outputs, noise, 30
    )
    if num_inputs == 3:
        exact = np.array([by_quadrature(point, weights, covariance, 100) for point in draws])
    else:
        exact = np.array([by_separation(point, weights, covariance).value for point in draws])
    parts = [jnp.asarray(part) for part in (draws, weights, covariance)]
    first = np.asarray(log_evidence(*parts)) - exact
    return first, first + np.asarray(second_order(*parts))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("num_inputs", "num_outputs", "noise", "seed"),
    [(3, 2, 0.1, 0), (3, 2, 0.1, 2), (6, 3, 0.1, 1), (6, 6, 0.1, 0), (12, 3, 0.1, 0)],
)
def test_it_takes_most_of_the_error_away(num_inputs, num_outputs, noise, seed, x64):
    first, second = errors(num_inputs, num_outputs, noise, seed)
    assert np.sqrt(np.mean(second**2)) < 0.6 * np.sqrt(np.mean(first**2))
    assert np.abs(second).max() < 0.05
    assert abs(second.mean()) < 0.01


def test_it_is_zero_where_the_density_is_exact(x64):
    scale = jnp.diag(jnp.array([0.5, 2.0]))
    points = jnp.array([[0.1, 0.3], [0.4, -1.9]])
    np.testing.assert_allclose(second_order(points, scale, 0.01 * jnp.eye(2)), 0.0, atol=1e-12)
    np.testing.assert_array_equal(second_order(points, scale, None), 0.0)


def test_outside_of_the_support_there_is_nothing_to_correct():
    weights = jnp.array([[1.0, 1.0, 0.5], [1.0, -1.0, 0.5]])
    assert float(second_order(jnp.array([2.4, 2.4]), weights, None)) == 0.0


def test_derivatives_are_refused():
    weights = jnp.array([[1.0, 0.5, 0.2]])
    with pytest.raises(NotImplementedError, match="which has gradients"):
        jax.grad(lambda point: second_order(point, weights, jnp.eye(1)))(jnp.zeros(1))
