"""`LinearizedJoint`: moments, draws, densities, models, mistakes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from jax.test_util import check_grads

from nn_uq_dist import LinearizedJoint
from tests.box_gaussian.references import by_quadrature

KEY = jax.random.key(5)
LOC = np.array([0.2, -0.3])
WEIGHTS = np.array([[0.7, -0.4, 0.2], [0.3, 0.5, 0.1]])
COVARIANCE = np.array([[0.04, 0.01], [0.01, 0.09]])
NORMAL = np.linalg.cholesky(COVARIANCE)


@pytest.mark.slow
def test_density_against_quadrature(x64):
    joint = LinearizedJoint(LOC, WEIGHTS, NORMAL)
    values = np.asarray(joint.sample(KEY, (10,)))
    exact = [by_quadrature(value - LOC, WEIGHTS, COVARIANCE, 60) for value in values]
    np.testing.assert_allclose(joint.log_prob(values), exact, atol=0.05)
    turned = joint.marginalize((1, 0)).log_prob(values[:, ::-1])
    np.testing.assert_allclose(turned, joint.log_prob(values), rtol=1e-6, atol=1e-7)


@pytest.mark.slow
def test_normal_part_of_less_than_full_rank(x64):
    """Two normal inputs behind three outputs of two uniforms: no noise, and yet a density."""
    weights = np.array([[1.0, 0.2], [0.3, 0.8], [0.5, -0.4]])
    root = np.array([[0.3, 0.1], [0.2, -0.3], [0.1, 0.4]])
    d = LinearizedJoint(np.zeros(3), weights, root)
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


def test_gradients_of_draws_with_fewer_normal_variables_than_outputs(x64):
    column = np.array([[0.3], [0.5]])

    def total(weights, normal_weights):
        joint = LinearizedJoint(LOC, weights, normal_weights, validate_args=False)
        return jnp.sum(joint.rsample(KEY, (4,)) ** 2)

    check_grads(total, (WEIGHTS, column), order=1, modes=["rev"], rtol=1e-6)


# Noise relative to the standard deviation of an output.
@pytest.mark.slow
@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize("noise", [1e-16, 1e-8, 1e-6])
def test_as_many_inputs_as_outputs_with_noise_at_rounding_level(size, noise, precision):
    """The density of a parallelepiped, as edges within the noise hold hardly any draw."""
    weights = np.random.default_rng(size).normal(size=(3, size, size)).astype(precision)
    scale = noise * np.sqrt((weights**2).sum(axis=-1) / 3)[..., None] * np.eye(size)
    joint = LinearizedJoint(np.ones(size, precision), weights, scale.astype(precision))
    found = joint.log_prob(joint.sample(KEY, (200,)))
    exact = -np.linalg.slogdet(2 * np.float64(weights))[1]
    assert np.mean(~(np.abs(found - exact) < 0.05)) < 0.01

    def total(loc, weights):
        return LinearizedJoint(loc, weights, joint.normal_weights).log_prob(inside).sum()

    inputs = np.random.default_rng(0).uniform(-0.95, 0.95, (20, 1, size, 1)).astype(precision)
    inside = 1 + (weights @ inputs)[..., 0]
    slopes = jax.grad(total, (0, 1))(joint.loc, weights)
    np.testing.assert_allclose(slopes[0], np.zeros((1, size)), atol=1e-3)
    np.testing.assert_allclose(slopes[1], -20 * np.linalg.inv(weights).mT, rtol=2e-4, atol=1e-3)


# The numbers of single precision are 1e-7 apart.
little_noise = pytest.mark.parametrize(
    ("noise", "precision"),
    [(1e-2, "float32"), (1e-5, "float32"), (1e-4, "float64"), (1e-9, "float64")],
    indirect=["precision"],
)


@little_noise
def test_outputs_that_repeat_a_sum_of_two_inputs(noise, precision):
    """Their mean has all that the inputs say; its density is of a trapezium plus noise."""
    weights = np.tile([0.7, 0.3], (3, 1)).astype(precision)
    joint = LinearizedJoint(np.zeros(3, precision), weights, np.eye(3, dtype=precision) * noise)
    values = np.asarray(joint.sample(KEY, (200,)))
    exact, mean = np.float64(values), np.float64(values).mean(axis=1)
    scale = noise / np.sqrt(3)
    corners = np.array([1.0, 0.4, -0.4, -1.0])[:, None] + mean
    normal = scipy.stats.norm
    parts = corners * normal.cdf(corners / scale) + scale * normal.pdf(corners / scale)
    logs = np.log(np.array([1, -1, -1, 1]) @ parts / (4 * 0.7 * 0.3))
    logs -= ((exact - mean[:, None]) ** 2).sum(axis=1) / (2 * noise**2)
    logs -= 2 * np.log(noise * np.sqrt(2 * np.pi)) + np.log(3) / 2
    # What expectation propagation misses at the corners of two inputs with one sum.
    np.testing.assert_allclose(joint.log_prob(values), logs, atol=0.11)


@pytest.mark.slow
@little_noise
def test_outputs_that_repeat_normal_inputs(noise, precision):
    """Their sum has all that the inputs say, their difference the noise alone."""
    normal = np.concatenate([np.ones((2, 1)), noise * np.eye(2)], axis=1).astype(precision)
    joint = LinearizedJoint(np.zeros(2, precision), np.zeros((2, 1), precision), normal)
    values = np.asarray(joint.sample(KEY, (200,)))
    mean, gap = np.float64(values).mean(axis=1), np.diff(np.float64(values))[:, 0]
    logs = scipy.stats.norm.logpdf(mean, scale=np.sqrt(1 + noise**2 / 2))
    logs += scipy.stats.norm.logpdf(gap, scale=noise * np.sqrt(2))
    np.testing.assert_allclose(joint.log_prob(values), logs, atol=5e-3)
    slopes = jax.grad(lambda at: joint.log_prob(at).sum())(values) @ np.array([0.5, -0.5])
    np.testing.assert_allclose(slopes * noise, gap / (2 * noise), atol=5e-3)
    rest = joint.condition(0, values[0, 0])
    sd = float(rest.variance[0]) ** 0.5
    np.testing.assert_allclose(sd, noise * np.sqrt(2), rtol=5e-3)
    np.testing.assert_allclose(rest.mean[0], values[0, 0], atol=0.01 * sd + 1e-7)


@pytest.mark.slow
def test_noise_of_some_outputs_alone(x64):
    """A normal part of less than full rank, and as many uniforms as outputs."""
    weights, scale = np.array([[1.0, 0.4], [-0.3, 0.8]]), 0.05
    joint = LinearizedJoint(np.zeros(2), weights, [[scale], [0.0]])
    values = np.asarray(joint.sample(KEY, (50,)))
    # Given the second output, the noise is a shift along the first: one integral over it.
    inputs = np.linalg.solve(weights, values.T).T
    along = np.linalg.solve(weights, [scale, 0.0])
    ends = np.sort((np.array([[-1.0], [1.0]])[..., None] - inputs) / -along, axis=0)
    low, high = ends[0].max(-1), ends[1].min(-1)
    exact = np.log(scipy.stats.norm.cdf(high) - scipy.stats.norm.cdf(low))
    exact -= np.linalg.slogdet(2 * weights)[1]
    np.testing.assert_allclose(joint.log_prob(values), exact, atol=0.03)
