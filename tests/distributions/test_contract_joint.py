"""Laws of joint distributions: draws, parts, conditionals, order of the outputs."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from nn_uq_dist import GaussianCopulaJoint, LinearizedJoint, LinearizedMarginal

KEY = jax.random.key(5)
LOC = np.array([0.2, -0.3, 1.0])
WEIGHTS = np.array([[0.7, -0.4, 0.2], [0.3, 0.5, 0.1], [0.2, 0.2, 0.6]])
COVARIANCE = 0.1 * np.array([[0.4, 0.1, 0.0], [0.1, 0.9, 0.2], [0.0, 0.2, 0.5]])
MATRIX = np.array([[1.0, 0.7, -0.4], [0.7, 1.0, 0.1], [-0.4, 0.1, 1.0]])
JOINTS = {
    "linearized": lambda: LinearizedJoint(LOC, WEIGHTS, np.linalg.cholesky(COVARIANCE)),
    "copula": lambda: GaussianCopulaJoint(LinearizedMarginal(LOC, WEIGHTS), MATRIX),
}

pytestmark = pytest.mark.slow
of_all = pytest.mark.parametrize("name", JOINTS)


@of_all
def test_draws_have_the_marginals_and_the_covariance(name):
    joint, count = JOINTS[name](), 20_000
    draws = np.asarray(joint.sample(KEY, (count,)))
    for column in np.asarray(joint.marginals.cdf(draws), float).T:
        assert scipy.stats.kstest(column, "uniform").pvalue > 1e-4
    covariance = np.asarray(joint.covariance_matrix)
    np.testing.assert_allclose(np.diag(covariance), joint.variance, rtol=1e-5)
    sd = np.sqrt(np.diag(covariance))
    assert (np.abs(draws.mean(axis=0) - joint.mean) < 4.5 * sd / np.sqrt(count)).all()
    error = (np.cov(draws.T) - covariance) / np.outer(sd, sd)
    assert np.abs(error).max() < 4.5 * np.sqrt(2 / count)


@of_all
def test_rosenblatt_scores_are_normal(name):
    joint = JOINTS[name]().marginalize((2, 0))
    scores = np.asarray(joint.rosenblatt(joint.sample(KEY, (400,))))
    for column in scores.T:
        assert scipy.stats.kstest(column, "norm").pvalue > 1e-3
    # The correlation of 400 independent pairs.
    assert abs(np.corrcoef(scores.T)[0, 1]) < 0.18


# For linearized outputs, with densities that are approximations: `test_linearized_conditional.py`.
def test_density_is_that_of_a_part_times_the_conditional(x64):
    joint, observed = JOINTS["copula"](), (2, 0)
    points = np.asarray(joint.sample(KEY, (20,)))
    rest = joint.condition(observed, points[:, observed])
    assert rest.batch_shape == (20,)
    found = joint.marginalize(observed).log_prob(points[:, observed])
    found += rest.log_prob(points[:, [1]])
    np.testing.assert_allclose(found, joint.log_prob(points), atol=1e-9)


def test_order_of_the_outputs_and_of_the_steps_does_not_matter(x64):
    joint, point, order = JOINTS["copula"](), jnp.array([0.1, -0.2, 1.3]), jnp.array([2, 0, 1])
    turned = joint.marginalize(order).log_prob(point[order])
    np.testing.assert_allclose(turned, joint.log_prob(point), rtol=1e-6, atol=1e-7)
    first = joint.condition(1, 0.3).marginalize(1)
    second = joint.marginalize((1, -1)).condition(0, 0.3)
    np.testing.assert_allclose(first.mean, second.mean, rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(first.log_prob([0.4]), second.log_prob([0.4]), rtol=1e-6)
    at_once = joint.condition((2, 0), (0.5, 0.2))
    for other in (
        joint.condition((0, -1), (0.2, 0.5)),
        joint.condition(2, 0.5).condition(0, 0.2),
        joint.condition(0, 0.2).condition(1, 0.5),  # output 2 is now the second of two
    ):
        np.testing.assert_allclose(other.score_loc, at_once.score_loc, atol=1e-12)
        np.testing.assert_allclose(other.score_tril, at_once.score_tril, atol=1e-12)
