"""`Input`: construction, moments, sampling, conversion from NumPyro, JAX transformations."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

from nn_uq_dist import Input, linearize
from nn_uq_dist.inputs import InputTerm, as_input
from tests.array_sizes import largest_array

TRIL = np.array([[1.0, 0.0, 0.0], [0.5, 0.0, 0.0], [-0.3, 0.2, 2.0]], np.float32)


def spread(seed, shape):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


LAWS = {
    "box": Input.box(spread(0, 3), [0.3, 0.0, 2.0]),
    "mixed": Input.box(spread(2, (4, 3)), spread(3, (2, 1, 3)) ** 2)
    + Input.normal(0 * spread(2, (4, 3)), scale_tril=TRIL),
    "mixed, independent": Input.box(spread(2, (4, 3)), 0.3)
    + Input.normal(0 * spread(2, (4, 3)), spread(3, (2, 1, 3)) ** 2),
}


@pytest.mark.parametrize("name", ["mixed", "mixed, independent"])
def test_moments_match_draws(name):
    distribution = LAWS[name]
    draws = np.asarray(distribution.sample(jax.random.key(1), (100_000,)), np.float64)
    assert draws.shape == (100_000, *distribution.batch_shape, 3)
    centered = draws - draws.mean(axis=0)
    covariance = np.einsum("s...i,s...j->...ij", centered, centered) / len(draws)
    variance = np.asarray(distribution.variance, np.float64)
    # Five standard errors; the fourth moments of these distributions are at most normal.
    sd = np.sqrt(variance)
    bound = 5 * sd[..., :, None] * sd[..., None, :] * np.sqrt(2 / len(draws)) + 1e-6
    assert (
        np.abs(draws.mean(axis=0) - distribution.mean) <= 5 * sd / np.sqrt(len(draws)) + 1e-6
    ).all()
    assert (np.abs(covariance - distribution.covariance) <= bound).all()
    np.testing.assert_allclose(
        np.diagonal(distribution.covariance, axis1=-2, axis2=-1), variance, rtol=1e-5, atol=1e-7
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
    distribution = as_input(d)
    assert distribution.batch_shape == d.batch_shape
    assert (distribution.num_inputs,) == d.event_shape
    # Parameters that were written in float32 stay so.
    rtol = 1e-12 if distribution.dtype == jnp.float64 else 1e-5
    np.testing.assert_allclose(distribution.mean, d.mean, rtol=rtol)
    np.testing.assert_allclose(distribution.variance, d.variance, rtol=rtol)
    if hasattr(d, "covariance_matrix"):
        expected = np.broadcast_to(d.covariance_matrix, distribution.covariance.shape)
        np.testing.assert_allclose(distribution.covariance, expected, rtol=rtol, atol=rtol)


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
        return as_input(make(s)).variance.sum()

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
        distribution = Input.box(loc, half_width)
        for part in (
            distribution.mean,
            distribution.half_width,
            distribution.covariance,
            distribution.sample(jax.random.key(0)),
        ):
            assert part.dtype == expected


def test_pytree_round_trip_does_not_validate():
    distribution = LAWS["mixed"]
    leaves, structure = jax.tree.flatten(distribution)
    again = jax.tree.unflatten(structure, leaves)
    assert all(a is b for a, b in zip(leaves, jax.tree.leaves(again), strict=True))
    jax.tree.unflatten(structure, [object()] * len(leaves))
    paths = [jax.tree_util.keystr(path) for path, _ in jax.tree.leaves_with_path(distribution)]
    assert paths == [".mean", ".terms[0].factor", ".terms[1].factor"]
    # A negative half-width made by arithmetic on the tree goes through without a check.
    assert jax.tree.map(lambda leaf: -leaf, LAWS["box"]).half_width[0] < 0


def test_scales_are_a_diagonal_factor_without_the_matrix(precision):
    rng = np.random.default_rng(4)
    mean, width, scale = rng.normal(size=(5, 3)), rng.uniform(size=3), rng.uniform(size=(5, 3))
    box = Input.box(mean, width)
    vector = box + Input.normal(0 * mean, scale)
    matrix = box + Input.normal(0 * mean, scale_tril=np.eye(3) * scale[:, None, :])
    assert vector.dtype == vector.terms[1].factor.dtype == precision
    np.testing.assert_array_equal(vector.normal_scale, scale.astype(precision))
    rtol = 1e-14 if precision == "float64" else 1e-6
    np.testing.assert_allclose(matrix.normal_scale, scale, rtol=rtol)
    np.testing.assert_allclose(vector.variance, matrix.variance, rtol=rtol)
    np.testing.assert_allclose(vector.covariance, matrix.covariance, rtol=rtol)
    draws = [
        distribution.sample_deviation(jax.random.key(3), (7,)) for distribution in (vector, matrix)
    ]
    np.testing.assert_allclose(*draws, rtol=rtol, atol=rtol)
    assert vector.expand((2, 5)).terms[1].factor.shape == (2, 5, 3)


@pytest.mark.parametrize("batch", [(), (4,)])
def test_covariance_and_precision_are_factored(precision, batch):
    rng = np.random.default_rng(5)
    root = rng.normal(size=(*batch, 3, 3)) * 10.0 ** np.array([-8, 0, 6])[:, None]
    covariance = (root @ root.mT).astype(precision)
    sd = np.sqrt(np.diagonal(covariance, axis1=-2, axis2=-1))
    rtol = 1e-12 if precision == "float64" else 1e-5
    for make in (Input.normal, jax.jit(Input.normal)):
        found = make(np.zeros(3), covariance_matrix=covariance)
        assert found.dtype == precision
        assert found.batch_shape == batch
        unit = sd[..., :, None] * sd[..., None, :]
        np.testing.assert_allclose(found.covariance / unit, covariance / unit, rtol=0, atol=rtol)
    matrix = np.array([[2.0, 0.5, 0.0], [0.5, 1.0, 0.3], [0.0, 0.3, 3.0]], precision)
    found = Input.normal(np.zeros(3), precision_matrix=matrix)
    np.testing.assert_allclose(found.covariance, np.linalg.inv(matrix), rtol=10 * rtol)
    slope = jax.jacfwd(lambda p: Input.normal(np.zeros(3), precision_matrix=p).variance)(matrix)
    assert np.isfinite(slope).all()


def test_a_singular_covariance_is_one_and_what_is_none_is_refused_or_nan():
    ones = np.ones((2, 2))
    found = Input.normal(np.zeros(2), covariance_matrix=ones)
    np.testing.assert_allclose(found.covariance, ones, atol=1e-6)
    bent = np.diag([1.0, -1.0])
    with pytest.raises(ValueError, match=r"covariance_matrix must be positive semidefinite, got"):
        Input.normal(np.zeros(2), covariance_matrix=bent)
    assert np.isnan(
        jax.jit(lambda c: Input.normal(np.zeros(2), covariance_matrix=c).variance)(bent)
    ).any()
    with pytest.raises(ValueError, match="covariance_matrix must be symmetric, got a difference"):
        Input.normal(np.zeros(2), covariance_matrix=np.array([[1.0, 0.5], [0.0, 1.0]]))
    with pytest.raises(ValueError, match=r"precision_matrix must be positive definite, got a sing"):
        Input.normal(np.zeros(2), precision_matrix=np.zeros((2, 2)))


def test_parts_that_there_are_not_are_none():
    assert LAWS["box"].normal_scale is None
    assert Input.normal([0.0], 1.0).half_width is None


def test_units_from_the_smallest_to_the_largest(precision):
    for unit in (1e-30, 1e30):
        mean = np.array([1.0, -2.0]) * unit
        distribution = Input.box(mean, unit) + Input.normal(0 * mean, factor=unit * np.ones((2, 1)))
        sd = np.full(2, unit * np.sqrt(4 / 3))
        np.testing.assert_allclose(distribution.standard_deviation, sd, rtol=1e-6)
        image = distribution.image(np.array([[1.0, 1.0]]))
        np.testing.assert_allclose(image.standard_deviation, unit * np.sqrt(14 / 3), rtol=1e-6)
        has_number = precision == "float64"
        assert np.isfinite(distribution.variance).all() == has_number


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
    distribution = Input.from_samples(draws)
    rtol = 1e-12 if precision == "float64" else 1e-5
    np.testing.assert_allclose(distribution.mean, draws.mean(axis=0), rtol=rtol, atol=rtol)
    for k in range(2):
        expected = np.cov(draws[:, k].T)
        np.testing.assert_allclose(distribution.covariance[k], expected, rtol=rtol, atol=10 * rtol)
    few = draws[:3, 0]  # fewer than four: a singular covariance, exactly
    distribution = Input.from_samples(few)
    np.testing.assert_allclose(distribution.covariance, np.cov(few.T), rtol=rtol, atol=10 * rtol)
    assert distribution.terms[0].factor.shape == (3, 3)
    found = jax.jit(lambda x: Input.from_samples(x).variance)(few)
    np.testing.assert_allclose(found, few.var(axis=0, ddof=1), rtol=10 * rtol)


def test_vmap_over_a_distribution_with_shared_parts():
    distribution = Input.box(spread(0, (5, 3)), 0.3) + Input.normal(
        0 * spread(0, (5, 3)), scale_tril=TRIL
    )
    mapped = jax.vmap(lambda one: one.covariance)(distribution)
    np.testing.assert_allclose(mapped, distribution.covariance, rtol=3e-7)


@pytest.mark.parametrize(
    "variance",
    [
        lambda x: Input.box(jnp.zeros(2), x).variance,
        lambda x: Input.normal(jnp.zeros(2), scale_tril=x * jnp.eye(2)).variance,
        lambda x: Input.normal(jnp.zeros(2), x).variance,
        lambda x: Input.normal(jnp.zeros(2), scale_tril=jnp.array([[1.0, x], [0.0, 1.0]])).variance[
            :1
        ],
    ],
)
def test_bad_traced_values_give_nan(variance):
    assert np.isnan(jax.jit(variance)(-1.0)).all()
    assert np.isnan(jax.vmap(variance)(jnp.array([-1.0]))).all()


ERRORS = {
    "two normal parts": (
        lambda: Input.normal([1.0], scale=1.0, scale_tril=[[1.0]]),
        ValueError,
        "must have one of scale, .*got scale and scale_tril; pass scale for independent",
    ),
    "rows of a term": (
        lambda: Input([1.0], [InputTerm(np.ones((2, 1)), is_uniform=True)]),
        ValueError,
        r"terms\[0\] must have rows of the 1 inputs, got a factor of shape \(2, 1\) from input 0",
    ),
    "batch of a term": (
        lambda: Input(np.ones((4, 1)), [InputTerm(np.ones((3, 1, 1)), is_uniform=True)]),
        ValueError,
        r"terms\[0\] \(3,\), mean \(4,\)",
    ),
    "negative scales": (
        lambda: Input.normal([0.0, 0.0], [1.0, -2.0]),
        ValueError,
        r"scale must not be negative, got -2.0 at index \(1,\); pass standard deviations",
    ),
    "scalar loc": (lambda: Input.box(1.0, 1.0), ValueError, r"\(\.\.\., N_x\).*got shape \(\)"),
    "empty loc": (lambda: Input.box(np.zeros(0), 1.0), ValueError, r"got shape \(0,\)"),
    "text": (lambda: Input.box("abc", 1.0), TypeError, "mean must be an array of real numbers"),
    "width size": (
        lambda: Input.box(np.zeros(3), np.ones(2)),
        ValueError,
        r"half_width must have last axis N_x = 3 .as mean. .* got shape \(2,\); give",
    ),
    "width batch": (
        lambda: Input.box(np.zeros((2, 3)), np.ones((4, 3))),
        ValueError,
        r"half_width \(4,\), mean \(2,\); make the leading axes agree",
    ),
    "inf factor": (
        lambda: Input.normal([0.0], scale_tril=[[np.inf]]),
        ValueError,
        "scale_tril must be finite",
    ),
    "vector factor": (
        lambda: Input.normal(np.zeros(2), scale_tril=np.ones(2)),
        ValueError,
        r"got shape \(2,\); for independent entries pass scale",
    ),
    "factor batch": (
        lambda: Input.normal(np.zeros((2, 2)), scale_tril=np.zeros((3, 2, 2))),
        ValueError,
        r"scale_tril \(3,\), mean \(2,\)",
    ),
    "negative scale": (
        lambda: Input.normal(np.zeros(2), scale_tril=-np.eye(2)),
        ValueError,
        "the diagonal of scale_tril must not be negative, got -1.0",
    ),
    "expand": (
        lambda: Input.box(np.zeros((2, 3)), 1.0).expand((3,)),
        ValueError,
        r"requested \(3,\), present \(2,\)",
    ),
    "expand to less": (
        lambda: Input.box(np.zeros((2, 3)), 1.0).expand(()),
        ValueError,
        r"requested \(\), present \(2,\); pass a batch_shape that ends",
    ),
    "key": (
        lambda: Input.box([0.0], 1.0).sample(0),
        TypeError,
        r"key must be a JAX random key, got int 0; pass one key, such as jax.random.key\(0\)",
    ),
    "nan draws": (
        lambda: Input.from_samples([[0.0], [np.nan]]),
        ValueError,
        r"draws must be finite, got nan at index \(1, 0\)",
    ),
    "low above high": (
        lambda: as_input(dist.Uniform(np.ones(2), 0.0).to_event(1)),
        ValueError,
        "half_width must not be negative, got -0.5",
    ),
}


@pytest.mark.parametrize("case", ERRORS)
def test_errors(case):
    call, kind, message = ERRORS[case]
    with pytest.raises(kind, match=message):
        call()
