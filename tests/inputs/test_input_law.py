"""`InputLaw`: construction, moments, sampling, conversion from NumPyro, JAX transformations."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

from nn_uq_dist import InputLaw, linearize
from tests.array_sizes import largest_array

TRIL = np.array([[1.0, 0.0, 0.0], [0.5, 0.0, 0.0], [-0.3, 0.2, 2.0]], np.float32)


def spread(seed, shape):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


LAWS = {
    "box": InputLaw(spread(0, 3), [0.3, 0.0, 2.0]),
    "mixed": InputLaw(spread(2, (4, 3)), spread(3, (2, 1, 3)) ** 2, TRIL),
    "mixed, independent": InputLaw(spread(2, (4, 3)), 0.3, scale=spread(3, (2, 1, 3)) ** 2),
}


@pytest.mark.parametrize("name", ["mixed", "mixed, independent"])
def test_moments_match_draws(name):
    law = LAWS[name]
    draws = np.asarray(law.sample(jax.random.key(1), (100_000,)), np.float64)
    assert draws.shape == (100_000, *law.batch_shape, 3)
    centered = draws - draws.mean(axis=0)
    covariance = np.einsum("s...i,s...j->...ij", centered, centered) / len(draws)
    variance = np.asarray(law.variance, np.float64)
    # Five standard errors; the fourth moments of these laws are at most normal.
    sd = np.sqrt(variance)
    bound = 5 * sd[..., :, None] * sd[..., None, :] * np.sqrt(2 / len(draws)) + 1e-6
    assert (np.abs(draws.mean(axis=0) - law.mean) <= 5 * sd / np.sqrt(len(draws)) + 1e-6).all()
    assert (np.abs(covariance - law.covariance) <= bound).all()
    np.testing.assert_allclose(
        np.diagonal(law.covariance, axis1=-2, axis2=-1), variance, rtol=1e-5, atol=1e-7
    )


CONVERSIONS = {
    "uniform": lambda: dist.Uniform(jnp.array([-1.0, 0.0, 2.0]), 3.0).to_event(1),
    "uniform, expand inside and outside": lambda: (
        dist.Uniform(np.zeros((4, 1)), 2.0).expand((4, 3)).to_event(1).expand((2, 4))
    ),
    "normal": lambda: dist.Normal(jnp.arange(3.0), jnp.array([1.0, 2.0, 3.0])).to_event(1),
    "integers": lambda: dist.Normal(np.arange(3), 2).to_event(1),
    "multivariate normal": lambda: dist.MultivariateNormal(
        jnp.arange(3.0), covariance_matrix=jnp.eye(3) + 0.5
    ),
    "multivariate normal, expanded": lambda: dist.MultivariateNormal(
        jnp.zeros((4, 3)), scale_tril=jnp.linalg.cholesky(jnp.eye(3) + 0.5)
    ).expand([2, 4]),
}


@pytest.mark.parametrize("name", CONVERSIONS)
@pytest.mark.usefixtures("x64")
def test_from_distribution_keeps_shape_and_moments(name):
    d = CONVERSIONS[name]()
    law = InputLaw.from_distribution(d)
    assert law.batch_shape == d.batch_shape
    assert (law.num_inputs,) == d.event_shape
    # Parameters that were written in float32 stay so.
    rtol = 1e-12 if law.dtype == jnp.float64 else 1e-5
    np.testing.assert_allclose(law.mean, d.mean, rtol=rtol)
    np.testing.assert_allclose(law.variance, d.variance, rtol=rtol)
    if hasattr(d, "covariance_matrix"):
        expected = np.broadcast_to(d.covariance_matrix, law.covariance.shape)
        np.testing.assert_allclose(law.covariance, expected, rtol=rtol, atol=rtol)


@pytest.mark.parametrize(
    "make",
    [
        lambda s: dist.Uniform(-s * jnp.ones(2), s).to_event(1),
        lambda s: dist.Normal(jnp.zeros(2), s / jnp.sqrt(3.0)).to_event(1),
        lambda s: dist.MultivariateNormal(jnp.zeros(2), covariance_matrix=s**2 / 3 * jnp.eye(2)),
    ],
)
def test_from_distribution_of_traced_parameters_has_gradients(make):
    def total_variance(s):
        return InputLaw.from_distribution(make(s)).variance.sum()

    # 2 s^2 / 3, so the derivative is 4 s / 3.
    assert jax.jit(jax.grad(total_variance))(1.5) == pytest.approx(2.0, rel=1e-5)


@pytest.mark.parametrize(
    ("loc", "half_width", "x64", "expected"),
    [
        ([1, 2], 1, False, jnp.float32),
        (np.arange(2), 1, True, jnp.float64),
        (np.ones(2, np.float32), 0.5, True, jnp.float32),
        (np.ones(2, np.float32), np.ones(2), True, jnp.float64),
        (jnp.ones(2, jnp.bfloat16), 0.5, False, jnp.bfloat16),
        (np.ones(2, np.float16), 1, True, jnp.float16),
    ],
)
def test_dtype_is_promoted_as_in_jax(loc, half_width, x64, expected):
    with jax.enable_x64(x64):
        law = InputLaw(loc, half_width)
        for part in (law.loc, law.half_width, law.covariance, law.sample(jax.random.key(0))):
            assert part.dtype == expected


def test_pytree_round_trip_does_not_validate():
    law = LAWS["mixed"]
    leaves, structure = jax.tree.flatten(law)
    again = jax.tree.unflatten(structure, leaves)
    assert all(a is b for a, b in zip(leaves, jax.tree.leaves(again), strict=True))
    jax.tree.unflatten(structure, [object()] * len(leaves))
    paths = [jax.tree_util.keystr(path) for path, _ in jax.tree.leaves_with_path(law)]
    assert paths == [".loc", ".half_width", ".scale_tril"]
    # A negative half-width made by arithmetic on the tree goes through without a check.
    assert jax.tree.map(lambda leaf: -leaf, LAWS["box"]).half_width[0] < 0


def test_scales_are_a_diagonal_factor_without_the_matrix(precision):
    rng = np.random.default_rng(4)
    loc, width, scale = rng.normal(size=(5, 3)), rng.uniform(size=3), rng.uniform(size=(5, 3))
    vector = InputLaw(loc, width, scale=scale)
    matrix = InputLaw(loc, width, np.eye(3) * scale[:, None, :])
    assert vector.dtype == vector.scale.dtype == precision
    np.testing.assert_array_equal(vector.scale_tril, matrix.scale_tril)
    np.testing.assert_array_equal(vector.normal_scale, scale.astype(precision))
    assert matrix.scale is None
    rtol = 1e-14 if precision == "float64" else 1e-6
    np.testing.assert_allclose(matrix.normal_scale, scale, rtol=rtol)
    np.testing.assert_allclose(vector.variance, matrix.variance, rtol=rtol)
    np.testing.assert_allclose(vector.covariance, matrix.covariance, rtol=rtol)
    draws = [law.sample_deviation(jax.random.key(3), (7,)) for law in (vector, matrix)]
    np.testing.assert_allclose(*draws, rtol=rtol, atol=rtol)
    assert vector.expand((2, 5)).scale.shape == (2, 5, 3)
    paths = [jax.tree_util.keystr(path) for path, _ in jax.tree.leaves_with_path(vector)]
    assert paths == [".loc", ".half_width", ".scale"]


def test_there_is_no_factor_without_a_normal_part():
    law = LAWS["box"]
    assert law.scale is law.scale_tril is law.normal_scale is None


def test_independent_normal_inputs_cost_vectors_only():
    size, num_outputs = 20_000, 3
    rows = jnp.ones((num_outputs, size))

    def outputs(loc, scale, key):
        f = dist.Normal(loc, scale).to_event(1)
        lin = linearize(lambda x: jnp.tanh(rows @ x), f)
        marginals = lin.marginals(noise_scale=0.1)
        moments = lin.variance, lin.covariance, lin.correlation, lin.input.variance
        return moments, marginals.normal_scale, lin.sample(key, (2,)), lin.input.sample(key)

    largest = largest_array(outputs, jnp.zeros(size), jnp.ones(size), jax.random.key(0))
    # Columns and the noise: a row more than the Jacobian has entries, never inputs squared.
    assert largest <= num_outputs * (size + 1) + 2 * size


def test_draws_give_mean_and_covariance(precision):
    draws = np.random.default_rng(7).normal(size=(50, 2, 3)) @ np.array(TRIL, float).T
    law = InputLaw.from_samples(draws)
    rtol = 1e-12 if precision == "float64" else 1e-5
    np.testing.assert_allclose(law.mean, draws.mean(axis=0), rtol=rtol, atol=rtol)
    for k in range(2):
        expected = np.cov(draws[:, k].T)
        np.testing.assert_allclose(law.covariance[k], expected, rtol=rtol, atol=10 * rtol)
    few = draws[:3, 0]  # fewer than four: a singular covariance, exactly
    law = InputLaw.from_samples(few)
    np.testing.assert_allclose(law.covariance, np.cov(few.T), rtol=rtol, atol=10 * rtol)
    assert (np.diagonal(law.scale_tril) >= 0).all()
    found = jax.jit(lambda x: InputLaw.from_samples(x).variance)(few)
    np.testing.assert_allclose(found, few.var(axis=0, ddof=1), rtol=10 * rtol)


def test_vmap_over_a_law_with_shared_parts():
    law = InputLaw(spread(0, (5, 3)), 0.3, TRIL)
    mapped = jax.vmap(lambda one: one.covariance)(law)
    np.testing.assert_allclose(mapped, law.covariance, rtol=3e-7)


@pytest.mark.parametrize(
    "variance",
    [
        lambda x: InputLaw(jnp.zeros(2), x).variance,
        lambda x: InputLaw(jnp.zeros(2), None, x * jnp.eye(2)).variance,
        lambda x: InputLaw(jnp.zeros(2), scale=x).variance,
        lambda x: InputLaw(jnp.zeros(2), None, jnp.array([[1.0, x], [0.0, 1.0]])).variance[:1],
    ],
)
def test_bad_traced_values_give_nan(variance):
    assert np.isnan(jax.jit(variance)(-1.0)).all()
    assert np.isnan(jax.vmap(variance)(jnp.array([-1.0]))).all()


ERRORS = {
    "two normal parts": (
        lambda: InputLaw([1.0], scale=1.0, scale_tril=[[1.0]]),
        ValueError,
        "one Gaussian part, got both scale and scale_tril; pass scale for independent",
    ),
    "negative scales": (
        lambda: InputLaw([0.0, 0.0], scale=[1.0, -2.0]),
        ValueError,
        r"scale must not be negative, got -2.0 at index \(1,\); pass standard deviations",
    ),
    "scalar loc": (lambda: InputLaw(1.0, 1.0), ValueError, r"\(\.\.\., N_x\).*got shape \(\)"),
    "empty loc": (lambda: InputLaw(np.zeros(0), 1.0), ValueError, r"got shape \(0,\)"),
    "text": (lambda: InputLaw("abc", 1.0), TypeError, "loc must be an array of real numbers"),
    "width size": (
        lambda: InputLaw(np.zeros(3), np.ones(2)),
        ValueError,
        r"half_width must have last axis N_x = 3 .* got shape \(2,\); give",
    ),
    "width batch": (
        lambda: InputLaw(np.zeros((2, 3)), np.ones((4, 3))),
        ValueError,
        r"half_width \(4,\), loc \(2,\); make the leading axes agree",
    ),
    "inf factor": (
        lambda: InputLaw([0.0], scale_tril=[[np.inf]]),
        ValueError,
        "scale_tril must be finite",
    ),
    "vector factor": (
        lambda: InputLaw(np.zeros(2), scale_tril=np.ones(2)),
        ValueError,
        r"got shape \(2,\); for independent scales pass jnp.diag",
    ),
    "factor batch": (
        lambda: InputLaw(np.zeros((2, 2)), scale_tril=np.zeros((3, 2, 2))),
        ValueError,
        r"scale_tril \(3,\), loc \(2,\)",
    ),
    "negative scale": (
        lambda: InputLaw(np.zeros(2), scale_tril=-np.eye(2)),
        ValueError,
        "the diagonal of scale_tril must not be negative, got -1.0",
    ),
    "expand": (
        lambda: InputLaw(np.zeros((2, 3)), 1.0).expand((3,)),
        ValueError,
        r"requested \(3,\), present \(2,\)",
    ),
    "expand to less": (
        lambda: InputLaw(np.zeros((2, 3)), 1.0).expand(()),
        ValueError,
        r"requested \(\), present \(2,\); pass a batch_shape that ends",
    ),
    "key": (
        lambda: InputLaw([0.0], 1.0).sample(0),
        TypeError,
        r"key must be a JAX random key, got int 0; pass one key, such as jax.random.key\(0\)",
    ),
    "family": (
        lambda: InputLaw.from_distribution(dist.Gamma(1.0, np.ones(3)).to_event(1)),
        TypeError,
        "got the law MappedInput; use nn_uq_dist.inputs.as_input_law",
    ),
    "scalar law": (
        lambda: InputLaw.from_distribution(dist.Uniform(0.0, 1.0)),
        TypeError,
        "a vector that is a box, Gaussian or both, got the law MappedInput",
    ),
    "nan draws": (
        lambda: InputLaw.from_samples([[0.0], [np.nan]]),
        ValueError,
        r"draws must be finite, got nan at index \(1, 0\)",
    ),
    "low above high": (
        lambda: InputLaw.from_distribution(dist.Uniform(np.ones(2), 0.0).to_event(1)),
        ValueError,
        "half_width must not be negative, got -0.5",
    ),
}


@pytest.mark.parametrize("case", ERRORS)
def test_errors(case):
    call, kind, message = ERRORS[case]
    with pytest.raises(kind, match=message):
        call()
