"""The second order of the joint density against references that use no expansion."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from nn_uq_dist.box_gaussian import log_evidence, second_order
from tests.box_gaussian.references import by_quadrature_or_separation, by_separations, problem


def errors(arguments, exact):
    """Of the density and of the corrected one."""
    parts = [jnp.asarray(part) for part in arguments]
    first = np.asarray(log_evidence(*parts)) - exact
    return first, first + np.asarray(second_order(*parts))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("num_inputs", "num_outputs", "noise", "seed"),
    [(3, 2, 0.1, 0), (3, 2, 0.1, 2), (6, 3, 0.1, 1), (6, 6, 0.1, 0), (12, 3, 0.1, 0)],
)
def test_it_takes_most_of_the_error_away(num_inputs, num_outputs, noise, seed, x64):
    arguments = problem(np.random.default_rng(seed), num_inputs, num_outputs, noise, 30)
    # References of twelve inputs have standard errors of up to .062.
    first, second = errors(arguments, by_quadrature_or_separation(*arguments, bar=0.1))
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


@pytest.mark.slow
def test_triangular_inputs_are_pairs_of_equal_columns(x64):
    generator = np.random.default_rng(0)
    weights = generator.normal(size=(2, 3))
    covariance = np.diag(0.01 * (weights**2).sum(axis=1) / 6)
    points = generator.triangular(-1, 0, 1, size=(30, 3)) @ weights.T
    points += generator.normal(size=points.shape) * np.sqrt(np.diag(covariance))
    arguments = points, np.repeat(weights / 2, 2, axis=1), covariance
    first, second = errors(arguments, by_separations(*arguments, 0.01))
    # Of four such distributions .060 on average, .13 at worst; with the correction .015, .064.
    assert np.abs(first).max() < 0.16
    assert np.abs(second).max() < 0.08
    assert np.abs(second).mean() < 0.4 * np.abs(first).mean()
