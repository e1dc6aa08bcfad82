"""The second order of the joint density, and pairs, against references that use no expansion."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.integrate
import scipy.stats

from nn_uq_dist.box_gaussian import log_evidence, second_order
from nn_uq_dist.box_gaussian._second_order import corrected_log_evidence
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


PAIRS = ((0, 1),)


def exact(point, direction, sizes, scale):
    """Log density of ``direction (a u + b u')`` plus independent noise."""
    law = scipy.stats.multivariate_normal(np.zeros(len(point)), scale**2 * np.eye(len(point)))
    wide, narrow = max(np.abs(sizes)), min(np.abs(sizes))

    def integrand(x):
        trapezoid = min(1 / (2 * wide), (wide + narrow - abs(x)) / (4 * wide * narrow))
        return trapezoid * law.pdf(point - x * direction)

    best = np.clip(direction @ point / (direction @ direction), -wide - narrow, wide + narrow)
    knots = [*np.outer((-1, 1), (wide + narrow, wide - narrow)).ravel(), best]
    knots += [x for x in best + scale * np.array([-8, -2, 2, 8]) if abs(x) < wide + narrow]
    knots = np.unique(knots)
    parts = [
        scipy.integrate.quad(integrand, *ends, epsabs=0, epsrel=1e-11)[0]
        for ends in itertools.pairwise(knots)
    ]
    return np.log(sum(parts))


@pytest.mark.parametrize("sizes", [(1.0, 1.0), (1.0, -0.4)])
@pytest.mark.parametrize("direction", [[1.0], [0.5, -1.0, 0.2]])
def test_the_density_of_a_pair_is_exact(sizes, direction, x64):
    direction = np.array(direction)
    weights = np.outer(direction, sizes)
    for scale in (0.02, 0.3):
        noise = scale * np.random.default_rng(0).normal(size=(5, len(direction)))
        points = np.outer([-1.45, -0.6, 0.0, 0.9, 1.5], direction) + noise
        covariance = scale**2 * np.eye(len(direction))
        found = corrected_log_evidence(*map(jnp.asarray, (points, weights, covariance)), PAIRS)
        expected = [exact(point, direction, sizes, scale) for point in points]
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-7)


def test_nothing_is_added_where_the_outputs_do_not_see_the_pair(precision):
    weights = jnp.array([[1.0, 0.0, 0.0], [0.5, 0.0, 0.0]])
    points = jnp.array([[0.5, 0.2], [-0.9, 0.0]])
    covariance = 0.1 * jnp.eye(2)
    found = corrected_log_evidence(points, weights, covariance, ((1, 2),))
    np.testing.assert_array_equal(found, corrected_log_evidence(points, weights, covariance))


@pytest.mark.parametrize("scale", [1e-3, 0.02, 0.5])
def test_in_single_precision(scale):
    weights, points = jnp.array([[1.0, 1.0]]), jnp.linspace(-1.8, 1.8, 7)[:, None]
    covariance = jnp.full((1, 1), scale**2)
    expected = [exact(np.asarray(x), np.ones(1), (1.0, 1.0), scale) for x in points]
    errors = [
        np.abs(np.asarray(corrected_log_evidence(points, weights, covariance, pairs)) - expected)
        for pairs in ((), PAIRS)
    ]
    # With little noise the covariance may have no digits left: then nothing is changed, but for
    # what sums in another order differ by.
    assert np.all(errors[1] <= np.maximum(errors[0] + 1e-5, 2e-3))
    assert scale < 0.01 or errors[1].max() < 2e-3
