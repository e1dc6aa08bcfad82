"""Log density of several outputs, and its second order, against references without expansions."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

import nn_uq_dist as nuq
from nn_uq_dist.box_gaussian import log_evidence, second_order
from tests.array_sizes import largest_array
from tests.box_gaussian.references import by_quadrature_or_separation, by_separations, problem
from tests.compiling import jit

# The bars are those of the documentation.
MEAN_ERROR, WORST_ERROR = 0.02, 0.1


def evaluate(draws, weights, covariance):
    factor = None if covariance is None else jnp.linalg.cholesky(jnp.asarray(covariance))
    return np.asarray(log_evidence(jnp.asarray(draws), jnp.asarray(weights), factor))


def check(errors):
    assert abs(np.mean(errors)) < MEAN_ERROR
    assert np.max(np.abs(errors)) < WORST_ERROR


# Inputs, outputs, noise over standard deviation.
@pytest.mark.slow
@pytest.mark.parametrize(
    ("num_inputs", "num_outputs", "noise"),
    [(2, 6, 0.05), (3, 2, 0.1), (6, 6, 0.1), (12, 31, 0.1)],
)
def test_against_quadrature_and_box_probabilities(num_inputs, num_outputs, noise, x64):
    arguments = problem(np.random.default_rng(1), num_inputs, num_outputs, noise, 30)
    check(evaluate(*arguments) - by_quadrature_or_separation(*arguments))


def test_without_uniforms_it_is_normal(x64):
    generator = np.random.default_rng(5)
    draws = generator.normal(size=(10, 4))
    root = generator.normal(size=(4, 4))
    covariance = root @ root.T + np.eye(4)
    found = evaluate(draws, np.zeros((4, 2)), covariance)
    exact = scipy.stats.multivariate_normal(np.zeros(4), covariance).logpdf(draws)
    np.testing.assert_allclose(found, exact, rtol=1e-10)


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


def test_nan_is_not_outside_and_its_gradient_is_nan():
    weights = np.array([[1.0, 1.0], [1.0, -1.0]])
    values = np.array([[np.nan, 0.0], [np.inf, 0.0]])
    np.testing.assert_array_equal(evaluate(values, weights, None), [np.nan, -np.inf])
    # Passes that do not converge look like the second case: a gradient of zero would hide it.
    unknown = jnp.array([[1.0, 0.5, 0.2], [0.3, jnp.nan, 0.4]])
    for parts in (
        (jnp.array([jnp.nan, 0.0]), jnp.asarray(weights)),
        (jnp.zeros(2), unknown, 0.01 * jnp.eye(2)),
    ):
        joint = nuq.LinearizedJoint(*parts, validate_args=False)
        value, slope = jax.value_and_grad(joint.log_prob)(jnp.array([0.1, 0.2]))
        assert jnp.isnan(value)
        assert jnp.isnan(slope).all()


@pytest.mark.slow
@pytest.mark.parametrize(("num_inputs", "num_outputs", "noise"), [(3, 7, 0.3), (12, 3, 0.0)])
def test_gradients_against_finite_differences(num_inputs, num_outputs, noise, x64):
    generator = np.random.default_rng(8)
    arguments = list(map(jnp.asarray, problem(generator, num_inputs, num_outputs, noise or 0.1, 4)))
    arguments[2] = jnp.linalg.cholesky(arguments[2])
    directions = [generator.normal(size=part.shape) for part in arguments[:2]]
    directions.append(0.3 * arguments[2])
    if not noise:
        draws = generator.uniform(-0.7, 0.7, (4, num_inputs)) @ np.asarray(arguments[1]).T
        arguments, directions = [jnp.asarray(draws), arguments[1]], directions[:2]

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


@pytest.mark.slow
@pytest.mark.parametrize(
    "weights",
    [
        np.array([[1e4, 1.0, 0.0], [0.0, 1.0, 1e-1]]),
        np.ones((2, 5)),
        np.array([[1.0, 0.0, 0.5], [0.0, 0.0, 0.0]]),
    ],
    ids=["span_1e4", "equal", "zero_column_and_noise_alone"],
)
def test_unusual_weights(weights, x64):
    generator = np.random.default_rng(9)
    scale = 0.1 * np.sqrt((weights**2).sum(1) / 3 + 0.1)
    inputs = generator.uniform(-1, 1, (25, weights.shape[1]))
    draws = inputs @ weights.T + scale * generator.normal(size=(25, 2))
    covariance = np.diag(scale**2)
    exact = by_separations(draws, weights, covariance, 3e-3, 14)
    check(evaluate(draws, weights, covariance) - exact)


@pytest.mark.slow
def test_normal_inputs_beside_the_box(x64):
    """Columns of normal inputs are a normal part whose entries are correlated."""
    num_inputs, num_outputs = 5, 2
    generator = np.random.default_rng(12)
    _, weights, small = problem(generator, num_inputs, num_outputs, 0.05, 1)
    normal = 0.3 * generator.normal(size=(num_outputs, 2))
    covariance = normal @ normal.T + small
    draws = generator.uniform(-1, 1, (20, num_inputs)) @ weights.T
    draws = draws + generator.multivariate_normal(np.zeros(num_outputs), covariance, 20)
    exact = by_separations(draws, weights, covariance, 3e-3, 14)
    check(evaluate(draws, weights, covariance) - exact)


# Many outputs of few inputs: what is shared gives the density and the gradients of each point.
def many_outputs(num_outputs=12, count=4, rank=4):
    rng = np.random.default_rng(0)
    weights = rng.standard_normal((num_outputs, rank)) @ rng.standard_normal((rank, count))
    noise = rng.standard_normal((num_outputs, num_outputs)) / 5
    covariance = noise @ noise.T + 0.1 * np.eye(num_outputs)
    uniform = rng.uniform(-1, 1, (5, count))
    normal = rng.multivariate_normal(np.zeros(num_outputs), covariance, 5)
    factor = np.linalg.cholesky(covariance)
    return tuple(map(jnp.asarray, (uniform @ weights.T + normal, weights, factor)))


@pytest.mark.slow
@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize(("num_outputs", "rank"), [(12, 2), (3, 3)])
def test_values_and_gradients_are_those_of_each_point(num_outputs, rank):
    arguments = many_outputs(num_outputs, rank=rank)

    def alone(r, w, b):
        points = len(r)
        own = (jnp.broadcast_to(part, (points, *part.shape)) for part in (w, b))
        return log_evidence(r, *own)

    def total(function):
        return lambda *parts: jnp.sum(jnp.sin(function(*parts)))

    np.testing.assert_allclose(jit(log_evidence)(*arguments), jit(alone)(*arguments), rtol=1e-9)
    found, expected = (
        jit(jax.grad(total(function), (0, 1, 2)))(*arguments) for function in (log_evidence, alone)
    )
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-7)


def test_derivatives_beyond_the_gradient_are_refused():
    deviation, weights, factor = many_outputs()
    with pytest.raises(NotImplementedError, match="second derivatives of the joint density"):
        jax.hessian(lambda r: log_evidence(r, weights, factor))(deviation[0])
    with pytest.raises(NotImplementedError, match="which has gradients"):
        jax.grad(lambda r: second_order(r, weights, factor))(deviation[0])


def test_no_matrix_of_the_outputs_for_each_point():
    deviation, weights = jnp.zeros((100, 2000)), jnp.ones((2000, 50))
    largest = largest_array(log_evidence, deviation, weights, jnp.eye(2000))
    assert largest <= 2 * 2000 * 2000  # columns of the normal part, and those of a rest beside them


def errors(arguments, exact):
    """Of the density and of the one with its second order."""
    first = evaluate(*arguments) - exact
    draws, weights, covariance = map(jnp.asarray, arguments)
    return first, first + np.asarray(second_order(draws, weights, jnp.linalg.cholesky(covariance)))


@pytest.mark.slow
@pytest.mark.parametrize(("num_inputs", "num_outputs", "seed"), [(3, 2, 0), (6, 6, 0), (12, 3, 0)])
def test_the_second_order_takes_most_of_the_error_away(num_inputs, num_outputs, seed, x64):
    arguments = problem(np.random.default_rng(seed), num_inputs, num_outputs, 0.1, 30)
    # References of twelve inputs have standard errors of up to .062.
    first, second = errors(arguments, by_quadrature_or_separation(*arguments, bar=0.1))
    assert np.sqrt(np.mean(second**2)) < 0.6 * np.sqrt(np.mean(first**2))
    assert np.abs(second).max() < 0.05
    assert abs(second.mean()) < 0.01


@pytest.mark.slow
def test_the_second_order_is_zero_where_the_density_is_exact_and_outside(x64):
    scale = jnp.diag(jnp.array([0.5, 2.0]))
    points = jnp.array([[0.1, 0.3], [0.4, -1.9]])
    np.testing.assert_allclose(second_order(points, scale, 0.1 * jnp.eye(2)), 0.0, atol=1e-12)
    np.testing.assert_array_equal(second_order(points, scale, None), 0.0)
    weights = jnp.array([[1.0, 1.0, 0.5], [1.0, -1.0, 0.5]])
    assert float(second_order(jnp.array([2.4, 2.4]), weights, None)) == 0.0


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


@pytest.mark.parametrize(
    ("num_outputs", "num_inputs", "dtype"), [(2, 3, np.float64), (4, 9, np.float32)]
)
def test_impossible_points_with_a_normal_part_in_one_direction(num_outputs, num_inputs, dtype, x64):
    rng = np.random.default_rng(num_outputs)
    weights, root = rng.normal(size=(num_outputs, num_inputs)), rng.normal(size=(num_outputs, 1))
    weights[:, 1] = 0.0
    points = []
    for _ in range(20):  # corners of the support in a direction without noise
        normal = np.linalg.svd(root)[0][:, 1:] @ rng.normal(size=num_outputs - 1)
        corner = weights @ np.sign(weights.T @ normal)
        points.append([size * corner + root[:, 0] for size in (0.7, 1.05, 1.5, 10.0)])
    values = np.array(points, dtype)
    parts = (jnp.asarray(part, dtype) for part in (values, weights, root))
    found = np.asarray(log_evidence(*parts))
    assert np.isfinite(found[:, 0]).all()
    # NaN where the passes do not converge.
    assert (np.isneginf(found[:, 1:]) | np.isnan(found[:, 1:])).all()
