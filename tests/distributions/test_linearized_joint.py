"""`LinearizedJoint`: moments, draws, densities, models, mistakes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

import nn_uq_dist as nuq
from nn_uq_dist import LinearizedJoint
from nn_uq_dist.distributions import LinearizedConditional
from tests.box_gaussian.references import by_quadrature

KEY = jax.random.key(5)
LOC = np.array([0.2, -0.3])
WEIGHTS = np.array([[0.7, -0.4, 0.2], [0.3, 0.5, 0.1]])
COVARIANCE = np.array([[0.04, 0.01], [0.01, 0.09]])


@pytest.fixture
def normal():
    return LinearizedJoint(LOC, WEIGHTS, COVARIANCE)


@pytest.mark.slow
def test_density_of_one_output_is_that_of_its_marginal(x64, normal):
    # One output of several inputs: up to what passes miss.
    found, expected = normal.marginalize(1).log_prob([0.4]), normal.marginals.log_prob([0.1, 0.4])
    np.testing.assert_allclose(found, expected[1], atol=0.05)


@pytest.mark.slow
def test_density_against_quadrature(x64, normal):
    values = np.asarray(normal.sample(KEY, (10,)))
    exact = [by_quadrature(value - LOC, WEIGHTS, COVARIANCE, 60) for value in values]
    np.testing.assert_allclose(normal.log_prob(values), exact, atol=0.05)


@pytest.mark.slow
def test_normal_part_of_less_than_full_rank(x64):
    """Two normal inputs behind three outputs of two uniforms: no noise, and yet a density."""
    weights = np.array([[1.0, 0.2], [0.3, 0.8], [0.5, -0.4]])
    root = np.array([[0.3, 0.1], [0.2, -0.3], [0.1, 0.4]])
    d = LinearizedJoint(np.zeros(3), weights, root @ root.T)
    values = np.asarray(d.sample(KEY, (20,)))
    # The same distribution with a uniform direction of the null space integrated out: two
    # coordinates of the plane are normal, the third depends on the uniforms alone.
    normal = scipy.linalg.null_space(root.T)[:, 0]
    plane = np.linalg.qr(root)[0]
    first, rule = np.polynomial.legendre.leggauss(2000)
    row = normal @ weights
    distribution = scipy.stats.multivariate_normal(cov=plane.T @ root @ root.T @ plane)
    exact = []
    for value in values:
        # Along the line row @ u = normal @ value of the square, by its first coordinate.
        second = (normal @ value - row[0] * first) / row[1]
        inside = np.abs(second) <= 1
        density = distribution.pdf((value - np.stack([first, second], -1) @ weights.T) @ plane)
        exact.append(np.log((rule * inside * density).sum() / 4 / abs(row[1])))
    found = np.asarray(d.log_prob(values))
    assert np.abs(found - exact).max() < 0.1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([0.0, 0.0], [1.0, 1.0]), r"weights must have shape \(\.\.\., d, n\)"),
        (([0.0] * 3, np.ones((2, 2)), np.eye(2)), "must broadcast"),
        (([0.0, 0.0], np.ones((2, 1))), "without a normal part must have at least as many columns"),
        (([0.0, 0.0], np.ones((2, 2))), "got outputs 0, 1, which are linearly dependent"),
        (
            (np.zeros(3), [[1.0, 0.5, 0.1], [1.5, 0.5, 0.2], [2.5, 1.0, 0.3]]),
            "got outputs 0, 1, 2, which are linearly dependent",
        ),
        (([0.0, 0.0], [[1.0, 0.5], [0.0, 0.0]]), "got output 1, which is constant"),
        ((LOC, WEIGHTS, np.eye(3)), r"normal_covariance must have shape \(\.\.\., 2, 2\)"),
        ((LOC, WEIGHTS, [[1.0, 2.0], [2.0, 1.0]]), "must be positive semidefinite"),
        ((LOC, WEIGHTS, [[1.0, 0.5], [0.0, 1.0]]), "must be symmetric"),
        (([np.nan, 0.0], WEIGHTS), "loc"),
    ],
)
def test_mistakes_are_named(arguments, message):
    arguments = [np.asarray(part) for part in arguments]
    with pytest.raises(ValueError, match=message):
        LinearizedJoint(*arguments, validate_args=True)


def test_messages_of_a_linearization():
    distribution = nuq.Input.box(jnp.zeros(2), half_width=1.0)
    lin = nuq.Linearization(jnp.zeros(3), np.ones((3, 2)), distribution)
    with pytest.raises(ValueError, match=r"got 3 outputs of 2 uniforms, .* pass normal_covariance"):
        lin.joint()
    wide = nuq.Input.box(jnp.zeros(20), half_width=1.0)
    of_rank_two = np.random.default_rng(0).normal(size=(12, 2)) @ np.ones((2, 20))
    with pytest.raises(ValueError, match=r"outputs 0, 1, .* and 4 more, .* pass normal_covariance"):
        nuq.Linearization(jnp.zeros(12), of_rank_two, wide).joint()


@pytest.mark.parametrize(("of", "known"), [(LinearizedJoint, 0), (LinearizedConditional, 1)])
def test_a_traced_scale_beside_known_numbers(of, known):
    def log_density(scale):
        values = () if of is LinearizedJoint else (LOC[:1],)
        return of(*values, LOC, WEIGHTS, COVARIANCE, scale).log_prob(LOC[known:])

    # At the mean: the density in units of the outputs, divided by the scale of each.
    scale = np.array([2.0, 0.5])
    expected = np.where(np.arange(2) < known, 0, -1 / scale)
    np.testing.assert_allclose(jax.jit(jax.grad(log_density))(scale), expected, atol=1e-5)


def test_values_that_do_not_fit(normal):
    with pytest.raises(ValueError, match="one entry per output"):
        normal.log_prob(np.zeros(3))
    with pytest.raises(ValueError, match="Cannot broadcast distribution"):
        normal.expand((3,)).expand((2,))
    with pytest.warns(UserWarning, match="Out-of-support"):
        assert LinearizedJoint(LOC, WEIGHTS).log_prob(np.array([9.0, 9.0])) == -np.inf
