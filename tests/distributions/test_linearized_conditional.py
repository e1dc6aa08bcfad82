"""`LinearizedConditional`: density, moments, draws."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads

import nn_uq_dist as nuq
from nn_uq_dist import LinearizedJoint
from tests.box_gaussian.references import by_quadrature

KEY = jax.random.key(6)
LOC = np.array([0.2, -0.3, 1.0])
WEIGHTS = np.array([[0.7, -0.4, 0.2], [0.3, 0.5, 0.1], [0.2, 0.2, 0.6]])
COVARIANCE = 0.1 * np.array([[0.4, 0.1, 0.0], [0.1, 0.9, 0.2], [0.0, 0.2, 0.5]])
NORMAL = np.linalg.cholesky(COVARIANCE)


def test_support():
    weights = np.concatenate([WEIGHTS, 0.5 * WEIGHTS], axis=-1)
    support = LinearizedJoint(LOC, weights).condition(0, 0.5).support
    reach = np.abs(weights[1:]).sum(-1)
    assert bool(support(jnp.asarray(LOC[1:] + 0.99 * reach)))
    assert not bool(support(jnp.asarray(LOC[1:] + 1.01 * reach)))


@pytest.mark.slow
def test_density_is_a_ratio_of_integrals(x64):
    joint = LinearizedJoint(LOC, WEIGHTS, NORMAL)
    distribution = joint.condition((2,), 0.7)
    value = np.array([0.1, -0.2])
    order = [2, 0, 1]
    deviation = np.array([0.7, *value]) - LOC[order]
    both = by_quadrature(deviation, WEIGHTS[order], COVARIANCE[np.ix_(order, order)], 100)
    known = by_quadrature(np.array([0.7]) - LOC[2:], WEIGHTS[2:], COVARIANCE[2:, 2:], 100)
    assert abs(float(distribution.log_prob(value)) - (both - known)) < 0.02


@pytest.mark.slow
def test_draws_are_those_of_the_joint_distribution_near_the_value(x64):
    """A window of the joint's own draws, which do without all that is tested here."""
    joint = LinearizedJoint(LOC, WEIGHTS, NORMAL)
    many = np.asarray(joint.sample(KEY, (2_000_000,)))
    near = many[np.abs(many[:, 0] - 0.6) < 0.01][:, 1:]
    assert len(near) > 10_000
    distribution = joint.condition(0, 0.6)
    draws = np.asarray(distribution.sample(KEY, (10_000,)))
    scale = near.std(0)
    # Four standard errors of the difference of 10,000 and as many.
    assert (np.abs(draws.mean(0) - near.mean(0)) / scale < 0.06).all()
    np.testing.assert_allclose(draws.std(0), scale, rtol=0.04)
    np.testing.assert_allclose(np.corrcoef(draws.T), np.corrcoef(near.T), atol=0.06)
    assert (np.abs(distribution.mean - near.mean(0)) / scale < 0.02 + 0.04).all()
    np.testing.assert_allclose(np.sqrt(distribution.variance), scale, rtol=0.02 + 0.03)


@pytest.mark.slow
def test_outputs_that_are_functions_of_the_known_ones_are_found(x64):
    """Without noise: the third output is the sum of the others, but for a part of its own."""
    weights = np.array([[1.0, 0.5, 0.2, 0.0], [0.3, 1.0, 0.4, 0.0], [1.3, 1.5, 0.6, 0.01]])
    distribution = LinearizedJoint(np.zeros(3), weights).condition((0, 1), [0.4, -0.3])
    draws = np.asarray(distribution.sample(KEY, (500,)))
    assert np.abs(draws - 0.1).max() <= 0.01
    assert draws.std() == pytest.approx(0.01 / np.sqrt(3), rel=0.1)
    assert float(distribution.mean[0]) == pytest.approx(0.1, abs=1e-6)


@pytest.mark.slow
def test_gradients_of_the_density(x64):
    def log_density(known, value):
        return LinearizedJoint(LOC, WEIGHTS, NORMAL).condition(0, known).log_prob(value)

    at = jnp.array(0.5), jnp.array([0.1, 0.9])
    check_grads(log_density, at, order=1, modes=["rev"], rtol=1e-5, eps=1e-5)


@pytest.mark.slow
def test_values_that_no_input_gives_are_nan():
    joint = nuq.LinearizedJoint(jnp.zeros(3), [[1.0, 1.0, 0, 0], [1.0, 1.1, 0, 0], [0, 0, 1, 1]])
    distribution = joint.marginalize((0, 1, 2)).condition((0, 1), [1.5, -1.5])
    assert np.isnan(distribution.sample(KEY)).all()
    assert np.isnan(distribution.mean).all()


@pytest.mark.slow
@pytest.mark.parametrize("normal_weights", [None, 0.1 * np.eye(4)])
def test_conditions_one_after_the_other_are_one_condition(normal_weights, x64):
    weights = np.random.default_rng(0).normal(size=(4, 6))
    joint = LinearizedJoint(np.zeros(4), weights, normal_weights)
    y = np.array(joint.sample(jax.random.key(0)))
    first = y[3] * np.array([[0.5], [1.0]])
    step, once = joint.condition(3, first).condition(0, y[0]), joint.condition((3, 0), y[[3, 0]])
    assert step.batch_shape == (2,)
    for name in ("mean", "variance"):
        np.testing.assert_allclose(getattr(step, name)[1], getattr(once, name), rtol=1e-9)
    np.testing.assert_allclose(step.log_prob(y[1:3])[1], once.log_prob(y[1:3]), rtol=1e-9)
    back = joint.condition(3, y[3]).condition((2, 1), y[[2, 1]])
    np.testing.assert_allclose(back.mean, joint.condition((3, 2, 1), y[[3, 2, 1]]).mean, rtol=1e-9)
