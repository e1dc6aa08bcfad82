"""Log density of several outputs against quadrature, SciPy's box probability and exact cases."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

import nn_uq_dist as nuq
from nn_uq_dist import linear_combination
from nn_uq_dist.box_gaussian import log_evidence
from tests.box_gaussian.references import by_genz, by_quadrature, problem

# Inputs, outputs, noise over standard deviation: the bars are those of the documentation.
QUADRATURE = [(2, 6, 0.05), (2, 6, 0.3), (3, 7, 0.1)]
GENZ = [(4, 6, 0.1), (6, 12, 0.1)]
MEAN_ERROR, WORST_ERROR = 0.02, 0.1
KEY = jax.random.key(0)


def evaluate(draws, weights, covariance):
    parts = (draws, weights, covariance)
    return np.asarray(log_evidence(*(None if p is None else jnp.asarray(p) for p in parts)))


def check(errors):
    assert abs(np.mean(errors)) < MEAN_ERROR
    assert np.max(np.abs(errors)) < WORST_ERROR


@pytest.mark.parametrize(("num_inputs", "num_outputs", "noise"), QUADRATURE)
def test_few_inputs_against_quadrature(num_inputs, num_outputs, noise, x64):
    draws, weights, covariance = problem(
        np.random.default_rng(1), num_inputs, num_outputs, noise, 40
    )
    nodes = {2: 300, 3: 80}[num_inputs]
    exact = [by_quadrature(point, weights, covariance, nodes) for point in draws]
    check(evaluate(draws, weights, covariance) - exact)


@pytest.mark.parametrize(("num_inputs", "num_outputs", "noise"), GENZ)
def test_more_inputs_against_box_probabilities(num_inputs, num_outputs, noise, x64):
    draws, weights, covariance = problem(
        np.random.default_rng(2), num_inputs, num_outputs, noise, 20
    )
    exact = [by_genz(point, weights, covariance) for point in draws]
    check(evaluate(draws, weights, covariance) - exact)


def test_fewer_outputs_than_inputs(x64):
    draws, weights, covariance = problem(np.random.default_rng(3), 3, 2, 0.1, 40)
    exact = [by_quadrature(point, weights, covariance, 150) for point in draws]
    check(evaluate(draws, weights, covariance) - exact)


def test_single_precision_agrees_with_double():
    draws, weights, covariance = problem(np.random.default_rng(4), 4, 6, 0.1, 30)
    with jax.enable_x64(True):
        exact = evaluate(draws, weights, covariance)
    found = evaluate(*(part.astype(np.float32) for part in (draws, weights, covariance)))
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, exact, rtol=1e-2, atol=1e-2)


def test_without_uniforms_it_is_normal(x64):
    generator = np.random.default_rng(5)
    draws = generator.normal(size=(10, 4))
    root = generator.normal(size=(4, 4))
    covariance = root @ root.T + np.eye(4)
    found = evaluate(draws, np.zeros((4, 2)), covariance)
    exact = scipy.stats.multivariate_normal(np.zeros(4), covariance).logpdf(draws)
    np.testing.assert_allclose(found, exact, rtol=1e-10)


@pytest.mark.parametrize("noise", [1e-4, 0.01, 0.3, 10.0])
def test_an_input_for_each_output_is_exact(noise, x64):
    generator = np.random.default_rng(6)
    sizes = np.array([0.5, 2.0, 1.0])
    draws = sizes * generator.uniform(-1, 1, (20, 3)) + noise * generator.normal(size=(20, 3))
    found = evaluate(draws, np.diag(sizes), noise**2 * np.eye(3))
    exact = linear_combination.logpdf(draws, sizes[:, None], noise).sum(-1)
    np.testing.assert_allclose(found, exact, rtol=1e-7, atol=1e-7)


def test_as_many_uniforms_as_outputs_have_a_constant_density(precision):
    weights = np.array([[1.0, 1.0], [1.0, -1.0]])
    points = np.array([[0.0, 0.0], [1.9, 0.0], [1.9, 0.2], [0.0, 3.0]])
    found = evaluate(points.astype(precision), weights.astype(precision), None)
    np.testing.assert_allclose(found[:2], -np.log(8.0), rtol=1e-6)
    assert (found[2:] == -np.inf).all()


def test_no_density_is_nan_or_an_error():
    with pytest.raises(ValueError, match=r"3 outputs of 2 uniform inputs have no density"):
        evaluate(np.zeros(3), np.ones((3, 2)), None)
    assert np.isnan(evaluate(np.zeros(2), np.ones((2, 2)), None))
    assert np.isnan(evaluate(np.zeros(2), np.ones((2, 3)), None))


# Fine enough a grid that hardly any smoothing is added to it.
@pytest.mark.parametrize(
    ("num_inputs", "num_points", "bar"), [(6, 256, 0.02), (12, 128, 0.005), (31, 128, 0.001)]
)
def test_two_outputs_without_noise_against_the_grid(num_inputs, num_points, bar, x64):
    generator = np.random.default_rng(7)
    weights = generator.uniform(-1, 1, (2, num_inputs))
    law = nuq.InputLaw(jnp.zeros(num_inputs), half_width=1.0)
    grid = nuq.Linearization(jnp.zeros(2), weights, law).joint_density_grid(num_points=num_points)
    axes = [np.asarray(axis) for axis in grid.points]
    points = np.stack(np.meshgrid(*axes, indexing="ij"), -1).reshape(-1, 2)
    density = np.exp(evaluate(points, weights, None))
    exact = np.asarray(grid.density).ravel()
    cell = np.prod([axis[1] - axis[0] for axis in axes])
    # Next to the edge of the support the passes may not converge: hardly any mass is there.
    found = np.isfinite(density)
    assert exact[~found].sum() * cell < 1e-4
    assert 0.5 * np.abs(density - exact)[found].sum() * cell < bar


@pytest.mark.parametrize(
    ("num_inputs", "num_outputs", "noise"), [(2, 6, 0.3), (12, 12, 0.1), (12, 3, 0.0)]
)
def test_gradients_against_finite_differences(num_inputs, num_outputs, noise, x64):
    generator = np.random.default_rng(8)
    draws, weights, covariance = problem(generator, num_inputs, num_outputs, noise or 0.1, 4)
    arguments = [jnp.asarray(draws), jnp.asarray(weights)]
    directions = [generator.normal(size=part.shape) for part in arguments]
    if noise:
        arguments.append(jnp.asarray(covariance))
        directions.append(0.3 * covariance)
    else:
        draws = generator.uniform(-0.7, 0.7, (4, num_inputs)) @ weights.T
        arguments[0] = jnp.asarray(draws)

    def total(*parts):
        return log_evidence(*parts, *[None] * (3 - len(parts))).sum()

    slopes = jax.grad(total, range(len(arguments)))(*arguments)
    step = 1e-5
    for index, (slope, direction) in enumerate(zip(slopes, directions, strict=True)):
        values = []
        for factor in (1, -1, 2, -2):
            moved = list(arguments)
            moved[index] = moved[index] + factor * step * direction
            values.append(float(total(*moved)))
        difference = (8 * (values[0] - values[1]) - (values[2] - values[3])) / (12 * step)
        exact = float(jnp.sum(slope * direction))
        assert abs(exact - difference) < 1e-6 * max(abs(difference), float(jnp.abs(slope).max()))


def test_second_derivatives_are_refused():
    weights = jnp.array([[1.0, 0.5], [0.3, 1.0]])
    with pytest.raises(NotImplementedError, match="at most one differentiation"):
        jax.hessian(lambda point: log_evidence(point, weights, 0.1 * jnp.eye(2)))(jnp.zeros(2))


@pytest.mark.parametrize(
    "weights",
    [
        np.array([[1e4, 1.0, 0.0], [0.0, 1.0, 1e-1]]),
        np.ones((2, 5)),
        np.array([[1.0, 0.0, 0.5], [0.3, 0.0, 1.0]]),
        np.array([[1.0, 0.0], [0.0, 0.0]]),
        np.array([[1.0, 1.0, 0.4, 0.4], [0.5, 0.5, 2.0, 2.0]]),
    ],
    ids=["span_1e4", "equal", "zero_column", "noise_alone", "duplicated"],
)
def test_unusual_weights(weights, x64):
    generator = np.random.default_rng(9)
    scale = 0.1 * np.sqrt((weights**2).sum(1) / 3 + 0.1)
    inputs = generator.uniform(-1, 1, (20, weights.shape[1]))
    draws = inputs @ weights.T + scale * generator.normal(size=(20, 2))
    found = evaluate(draws, weights, np.diag(scale**2))
    # A column that is none, and two that are the same as one sum, change nothing: the reference
    # takes what is left of them.
    kept = weights[:, (weights != 0).any(0)][:, :3]
    if kept.shape[1] == weights[:, (weights != 0).any(0)].shape[1] and kept.max() < 10:
        exact = [by_quadrature(point, kept, np.diag(scale**2), 200) for point in draws]
        check(found - exact)
    assert np.isfinite(found).all()


@pytest.mark.parametrize(
    ("num_inputs", "num_outputs", "noise"), [(3, 2, 0.1), (6, 6, 0.1), (12, 12, 0.3)]
)
def test_the_density_integrates_to_one(num_inputs, num_outputs, noise, x64):
    """Importance sampling from a wider normal law; the error is asserted, not assumed."""
    generator = np.random.default_rng(10)
    _, weights, covariance = problem(generator, num_inputs, num_outputs, noise, 1)
    total = weights @ weights.T / 3 + covariance
    proposal = scipy.stats.multivariate_normal(np.zeros(num_outputs), 1.1 * total)
    points = proposal.rvs(20_000, random_state=generator)
    ratios = np.exp(evaluate(points, weights, covariance) - proposal.logpdf(points))
    error = ratios.std() / np.sqrt(len(ratios))
    assert error < 0.01
    assert abs(ratios.mean() - 1.0) < 0.02 + 3 * error


def test_many_points_are_the_same_as_few(precision):
    draws, weights, covariance = problem(np.random.default_rng(11), 4, 3, 0.2, 700)
    parts = [part.astype(precision) for part in (draws, weights, covariance)]
    many = evaluate(*parts)
    few = evaluate(parts[0][300:310], *parts[1:])
    tolerance = {"float32": 1e-3, "float64": 1e-7}[precision]
    np.testing.assert_allclose(many[300:310], few, rtol=tolerance, atol=tolerance)
