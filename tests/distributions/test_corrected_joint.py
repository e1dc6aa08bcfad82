"""Joint laws moved componentwise: change of variables against the base, moments against draws."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nn_uq_dist as nuq

WEIGHTS = np.array([[1.0, 0.6, 0.3], [0.5, -0.5, 0.1]])
SPLINE = nuq.MonotoneSpline(
    np.array([[-1.0, 0.0, 1.0], [-0.8, 0.1, 0.9]]), np.array([[-1.5, 0.2, 1.0], [-0.5, 0.1, 2.0]])
)
KEY = jax.random.key(0)


def linear_joint():
    return nuq.LinearizedJoint(np.zeros(2), WEIGHTS, 0.05 * np.eye(2))


def copula():
    marginals = nuq.LinearizedMarginal(np.zeros(2), WEIGHTS, 0.2)
    return nuq.GaussianCopulaJoint(marginals, np.array([[1.0, 0.4], [0.4, 1.0]]))


@pytest.mark.parametrize("make", [linear_joint, copula])
def test_density_is_that_of_the_base_by_change_of_variables(precision, make):
    base = make()
    joint = nuq.CorrectedJoint(base, *SPLINE.parameters)
    y = np.array([[0.3, 0.2], [-2.0, 1.5]])
    before = SPLINE.inv(y)
    step = 1e-3
    chords = (SPLINE.inv(y + step) - SPLINE.inv(y - step)) / (2 * step)
    expected = base.log_prob(before) + jnp.log(chords).sum(axis=-1)
    np.testing.assert_allclose(joint.log_prob(y), expected, atol=5e-3)
    np.testing.assert_allclose(joint.rosenblatt(y), base.rosenblatt(before), rtol=1e-3, atol=1e-3)


def test_density_integrates_to_one(x64):
    joint = nuq.CorrectedJoint(copula(), *SPLINE.parameters)
    low, high = joint.marginals.from_normal_score(-6.0), joint.marginals.from_normal_score(6.0)
    axes = [np.linspace(a, b, 301) for a, b in zip(low, high, strict=True)]
    grid = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1)
    density = np.exp(np.asarray(joint.log_prob(grid.reshape(-1, 2)))).reshape(301, 301)
    total = np.trapezoid(np.trapezoid(density, axes[1]), axes[0])
    assert total == pytest.approx(1, abs=1e-3)


@pytest.mark.parametrize("make", [linear_joint, copula])
def test_moments_and_marginals_are_those_of_draws(make):
    joint = nuq.CorrectedJoint(make(), *SPLINE.parameters)
    draws = np.asarray(joint.sample(KEY, (200_000,)))
    np.testing.assert_allclose(joint.mean, draws.mean(axis=0), atol=0.01)
    np.testing.assert_allclose(joint.covariance_matrix, np.cov(draws.T), atol=0.02)
    np.testing.assert_allclose(joint.marginals.cdf(draws).mean(axis=0), 0.5, atol=5e-3)


def test_conditioning_and_marginalizing():
    base = linear_joint()
    joint = nuq.CorrectedJoint(base, *SPLINE.parameters)
    y = jnp.array([0.4, 0.3])
    rest = joint.condition(1, y[1])
    expected = joint.log_prob(y) - joint.marginalize(1).log_prob(y[1:])
    np.testing.assert_allclose(rest.log_prob(y[:1]), expected, atol=1e-3)
    assert rest.sample(KEY, (5,)).shape == (5, 1)
    swapped = joint.marginalize((1, 0))
    np.testing.assert_allclose(swapped.log_prob(y[::-1]), joint.log_prob(y), atol=1e-4)
    assert joint.expand((3,)).log_prob(y).shape == (3,)


def test_in_tables_and_through_jit():
    joint = nuq.CorrectedJoint(copula(), *SPLINE.parameters)
    assert joint.kind == "corrected joint"
    found = jax.jit(lambda law, v: law.log_prob(v))(joint, jnp.array([0.3, 0.2]))
    np.testing.assert_allclose(found, joint.log_prob(jnp.array([0.3, 0.2])), rtol=1e-5)


def test_errors():
    with pytest.raises(TypeError, match="base must be a JointLaw, got LinearizedMarginal"):
        nuq.CorrectedJoint(nuq.LinearizedMarginal(0.0, [1.0]), *SPLINE.parameters)
    with pytest.raises(ValueError, match="broadcast to the shape"):
        nuq.CorrectedJoint(copula(), np.zeros((3, 1)) + np.arange(4), np.arange(4.0))
    with pytest.raises(ValueError, match="one entry per output"):
        nuq.CorrectedJoint(copula(), *SPLINE.parameters).log_prob(jnp.zeros(3))
