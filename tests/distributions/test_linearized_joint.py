"""`LinearizedJoint`: moments, draws, densities, models, mistakes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

import nn_uq_dist as nuq
from nn_uq_dist import LinearizedJoint
from tests.box_gaussian.references import by_quadrature

KEY = jax.random.key(5)
LOC = np.array([0.2, -0.3])
WEIGHTS = np.array([[0.7, -0.4, 0.2], [0.3, 0.5, 0.1]])
COVARIANCE = np.array([[0.04, 0.01], [0.01, 0.09]])
CASES = {
    "bounded": (LOC, WEIGHTS),
    "normal": (LOC, WEIGHTS, COVARIANCE),
    "one_mean": (0.5, WEIGHTS, COVARIANCE),
    "both": (np.zeros((2, 1, 2)), np.stack([WEIGHTS, 2.0 * WEIGHTS, -WEIGHTS]), COVARIANCE),
    "covariance_batch": (LOC, WEIGHTS, np.stack([COVARIANCE] * 3)),
}


def make(name, **kwargs):
    return LinearizedJoint(*CASES[name], **kwargs)


@pytest.fixture(params=["bounded", "one_mean", "both"])
def case(request):
    return make(request.param)


def test_moments_and_draws_agree(case):
    draws = np.asarray(case.sample(KEY, (40_000,)))
    error = 5 * np.sqrt(np.asarray(case.variance) / len(draws))
    assert (np.abs(draws.mean(0) - np.asarray(case.mean)) < error).all()
    centered = draws - np.asarray(case.mean)
    covariance = np.einsum("i...j,i...k->...jk", centered, centered) / len(draws)
    scale = np.sqrt(np.asarray(case.variance))
    tolerance = 0.04 * scale[..., :, None] * scale[..., None, :]
    assert (np.abs(covariance - np.asarray(case.covariance_matrix)) < tolerance).all()


@pytest.mark.slow
def test_marginals_and_marginalize_are_exact(x64):
    d = make("normal")
    np.testing.assert_allclose(d.marginals.variance, d.variance, rtol=1e-12)
    other = d.marginalize([1, 0])
    value = np.array([0.1, 0.4])
    np.testing.assert_allclose(other.log_prob(value[::-1]), d.log_prob(value), rtol=1e-9)
    one = d.marginalize(1)
    # One output of several inputs: the density is that of the marginal up to what passes miss.
    exact = d.marginals.log_prob(value)[1]
    np.testing.assert_allclose(one.log_prob(value[1:]), exact, atol=0.05)


@pytest.mark.slow
def test_density_against_quadrature(x64):
    d = make("normal")
    values = np.asarray(d.sample(KEY, (10,)))
    exact = [by_quadrature(value - LOC, WEIGHTS, COVARIANCE, 60) for value in values]
    np.testing.assert_allclose(d.log_prob(values), exact, atol=0.05)


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
    nodes, rule = np.polynomial.legendre.leggauss(2000)
    row = normal @ weights
    exact = []
    for value in values:
        # Along the line row @ u = normal @ value of the square, by its first coordinate.
        first = nodes
        second = (normal @ value - row[0] * first) / row[1]
        inside = np.abs(second) <= 1
        inputs = np.stack([first, second], -1)
        distribution = scipy.stats.multivariate_normal(
            np.zeros(2), (plane.T @ root) @ (plane.T @ root).T
        )
        density = distribution.pdf((value - inputs @ weights.T) @ plane)
        exact.append(np.log((rule * inside * density).sum() / 4 / abs(row[1])))
    found = np.asarray(d.log_prob(values))
    assert np.abs(found - exact).max() < 0.1


@pytest.mark.slow
def test_rosenblatt_scores_are_normal():
    d = make("normal")
    scores = np.asarray(d.rosenblatt(d.sample(KEY, (400,))))
    assert scores.shape == (400, 2)
    for column in scores.T:
        assert scipy.stats.kstest(column, "norm").pvalue > 1e-3
    assert abs(np.corrcoef(scores.T)[0, 1]) < 0.15


def test_noise_as_a_covariance():
    linear = nuq.Linearization(
        jnp.zeros(2), jnp.asarray(WEIGHTS), nuq.Input.box(jnp.zeros(3), half_width=1.0)
    )
    want = linear.joint(noise_scale=np.array([0.2, 0.3])).log_prob(jnp.ones(2) * 0.3)
    noise = np.diag([0.04, 0.09])
    found = linear.joint(noise_covariance=noise).log_prob(jnp.ones(2) * 0.3)
    np.testing.assert_allclose(found, want, rtol=1e-4)
    with pytest.raises(ValueError, match=r"noise_covariance must have shape \(\.\.\., 2, 2\)"):
        linear.joint(noise_covariance=np.eye(3))


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


def test_values_that_do_not_fit():
    d = make("normal")
    with pytest.raises(ValueError, match="one entry per output"):
        d.log_prob(np.zeros(3))
    with pytest.raises(ValueError, match="Cannot broadcast distribution"):
        make("covariance_batch").expand((2,))
    with pytest.warns(UserWarning, match="Out-of-support"):
        assert make("bounded", validate_args=True).log_prob(np.array([9.0, 9.0])) == -np.inf
