"""`Input`: what makes one, checks, types, units and JAX transformations."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import nn_uq_dist as nuq
from nn_uq_dist import Input
from nn_uq_dist.distributions import LinearImage
from nn_uq_dist.inputs import InputTerm, as_input
from tests.array_sizes import largest_array

KEY = jax.random.key(0)
TRIL = np.array([[1.0, 0.0, 0.0], [0.5, 0.0, 0.0], [-0.3, 0.2, 2.0]], np.float32)
FACTOR = np.array([[1.0, 0.0], [1.0, 1.0], [0.0, 2.0]])


def random_batch():
    mean = np.random.default_rng(2).normal(size=(4, 3)).astype(np.float32)
    return Input.box(mean, [0.3, 0.0, 2.0]) + Input.normal(0 * mean, scale_tril=TRIL)


def test_dtype_is_promoted_as_in_jax():
    for loc, half_width, x64, expected in (
        ([1, 2], 1, False, jnp.float32),
        (np.arange(2), 1, True, jnp.float64),
        (np.ones(2, np.float32), 0.5, True, jnp.float32),
        (np.ones(2, np.float32), np.ones(2), True, jnp.float64),
        (jnp.ones(2, jnp.bfloat16), 0.5, False, jnp.bfloat16),
        (np.ones(2, np.float16), 1, True, jnp.float16),
    ):
        with jax.enable_x64(x64):
            f = Input.box(loc, half_width)
            for part in (f.mean, f.half_width, f.covariance, f.sample(KEY)):
                assert part.dtype == expected


def test_pytree_is_mapped_and_does_not_validate():
    f = random_batch()
    leaves, structure = jax.tree.flatten(f)
    jax.tree.unflatten(structure, [object()] * len(leaves))
    paths = [jax.tree_util.keystr(path) for path, _ in jax.tree.leaves_with_path(f)]
    assert paths == [".mean", ".terms[0].factor", ".terms[1].factor"]
    mapped = jax.vmap(lambda one: one.covariance)(f)
    np.testing.assert_allclose(mapped, f.covariance, rtol=3e-7)
    # A negative half-width made by arithmetic on the tree goes through without a check.
    assert jax.tree.map(lambda leaf: -leaf, Input.box([0.0], 1.0)).terms[0].factor < 0


@pytest.mark.slow
def test_covariance_and_precision_are_factored(precision):
    rng = np.random.default_rng(5)
    root = rng.normal(size=(4, 3, 3)) * 10.0 ** np.array([-8, 0, 6])[:, None]
    covariance = (root @ root.mT).astype(precision)
    sd = np.sqrt(np.diagonal(covariance, axis1=-2, axis2=-1))
    unit = sd[..., :, None] * sd[..., None, :]
    rtol = 1e-12 if precision == "float64" else 1e-5
    for make in (Input.normal, jax.jit(Input.normal)):
        found = make(np.zeros(3), covariance_matrix=covariance)
        assert (found.dtype, found.batch_shape) == (precision, (4,))
        np.testing.assert_allclose(found.covariance / unit, covariance / unit, rtol=0, atol=rtol)
    matrix = np.array([[2.0, 0.5, 0.0], [0.5, 1.0, 0.3], [0.0, 0.3, 3.0]], precision)
    found = Input.normal(np.zeros(3), precision_matrix=matrix)
    np.testing.assert_allclose(found.covariance, np.linalg.inv(matrix), rtol=10 * rtol)
    slope = jax.jacfwd(lambda p: Input.normal(np.zeros(3), precision_matrix=p).variance)(matrix)
    assert np.isfinite(slope).all()
    singular = Input.normal(np.zeros(2), covariance_matrix=np.ones((2, 2)))
    np.testing.assert_allclose(singular.covariance, np.ones((2, 2)), atol=1e-6)


def test_a_factor_of_any_shape():
    f = Input.normal(np.arange(3.0), factor=FACTOR)
    np.testing.assert_allclose(f.covariance, FACTOR @ FACTOR.T, rtol=1e-6)
    np.testing.assert_allclose(f.normal_scale, np.sqrt([1, 2, 4]), rtol=1e-6)
    assert f.half_width is None
    values = np.array([[1.0, 2.0], [0.5, -1.0]])
    found = f.deviation_at(np.zeros((2, 0)), values)
    np.testing.assert_allclose(found, values @ FACTOR.T, rtol=1e-6)


def test_very_many_inputs_take_vectors_and_the_factor_only():
    size, rank, num_outputs = 150_528, 10, 2
    loc, scale = jnp.zeros(size), jnp.ones(size)
    factor = jnp.ones((size, rank))
    rows = jnp.full((num_outputs, size), 1e-3)

    def outputs(loc, factor, diagonal, key):
        f = dist.LowRankMultivariateNormal(loc, factor, diagonal)
        parts = {"image": f, "level": dist.Uniform(-1.0, 1.0)}
        lin = nuq.linearize(lambda x: rows @ x["image"] + x["level"], parts)
        of_outputs = lin.variance, lin.covariance, lin.marginals(noise_scale=0.1).normal_scale
        return lin.input.variance, of_outputs, lin.sample(key, (2,)), lin.input.sample(key)

    largest = largest_array(outputs, loc, factor, scale, KEY)
    # A draw or a Jacobian has so many numbers for each column; a matrix would have 2e10.
    assert largest <= 2 * size * (rank + 3)
    f = as_input(dist.LowRankMultivariateNormal(loc, factor, scale))
    variance = LinearImage(*f.columns(rows)).variance[0]
    assert variance == pytest.approx(rank * (size * 1e-3) ** 2 + size * 1e-6, rel=5e-3)


def test_units_from_the_smallest_to_the_largest():
    for unit in (1e-30, 1e30):
        mean = np.array([1.0, -2.0]) * unit
        f = Input.box(mean, unit) + Input.normal(0 * mean, factor=unit * np.ones((2, 1)))
        sd = np.full(2, unit * np.sqrt(4 / 3))
        np.testing.assert_allclose(f.standard_deviation, sd, rtol=1e-6)
        image = LinearImage(*f.columns(np.array([[1.0, 1.0]])))
        np.testing.assert_allclose(image.standard_deviation, unit * np.sqrt(14 / 3), rtol=1e-6)
        with pytest.warns(RuntimeWarning, match="some variances are NaN, as float32 has no"):
            assert not np.isfinite(f.variance).any()


def test_draws_give_mean_and_covariance():
    draws = np.random.default_rng(7).normal(size=(50, 2, 3)) @ np.array(TRIL, float).T
    f = Input.from_samples(draws)
    rtol = 1e-5
    np.testing.assert_allclose(f.mean, draws.mean(axis=0), rtol=rtol, atol=rtol)
    for k in range(2):
        expected = np.cov(draws[:, k].T)
        np.testing.assert_allclose(f.covariance[k], expected, rtol=rtol, atol=10 * rtol)
    few = draws[:3, 0]  # fewer than four: a singular covariance, exactly
    f = Input.from_samples(few)
    np.testing.assert_allclose(f.covariance, np.cov(few.T), rtol=rtol, atol=10 * rtol)


TRAPEZIA = {
    "triangle far out": (1e3, 1e3 + 1, 1e3 + 1, 1e3 + 2),
    "trapezium": (0.0, 1.0, 4.0, 5.0),
    "nearly a box": (-1.0, -0.999, 0.999, 1.0),
}


@pytest.mark.parametrize("case", TRAPEZIA)
@pytest.mark.usefixtures("x64")
def test_log_density_of_trapezia_up_to_the_edge(case):
    low, start, stop, high = ends = TRAPEZIA[case]
    is_triangle = case.startswith("triangle")
    make = Input.triangular if is_triangle else Input.trapezoidal
    f = make(*(jnp.array([end]) for end in (ends[::3] if is_triangle else ends)))
    distribution = nuq.linearize(lambda x: x, f).marginals()
    slope = start - low
    rising = low + slope * np.array([1e-6, 1e-4, 0.125, 0.5, 0.999])
    falling = high - slope * np.array([1e-6, 1e-3, 0.3, 0.9])
    inside = np.concatenate([rising, np.linspace(start, stop, 5), falling])
    found = distribution.log_prob(jnp.asarray(inside)[:, None])[:, 0]
    # The distance of a value to an edge is rounded as the value is, and as an end that is no short
    # binary fraction.
    roundings = 4 if case in {"triangle far out", "nearly a box"} else 1
    edge = np.minimum(inside - low, high - inside)
    atol = 1e-10 + roundings * np.finfo(float).eps * max(map(abs, ends)) / edge
    share = np.minimum((inside - low) / (start - low), (high - inside) / (high - stop))
    exact = np.log(2 / (high + stop - start - low) * np.minimum(share, 1))
    assert (np.abs(found - exact) <= atol).all()
    outside = jnp.array([low - 1e-6, high + 1e-6])[:, None]
    with pytest.warns(UserWarning, match="Out-of-support"):
        assert (distribution.log_prob(outside) == -np.inf).all()


@pytest.mark.slow
def test_bad_traced_values_give_nan():
    def variances(x):
        zeros, unit = jnp.zeros(2), jnp.eye(2)
        found = [
            Input.box(zeros, x),
            Input.normal(zeros, scale_tril=x * unit),
            Input.normal(zeros, x),
            Input.normal(zeros, covariance_matrix=x * unit),
            Input.triangular(zeros, x),
            nuq.linearize(lambda y: y, Input.trapezoidal(zeros, 3.0, 3.0 + x, 4.0)),
        ]
        bent = Input.normal(zeros, scale_tril=[[1.0, x], [0.0, 1.0]])
        return jnp.stack([*(f.variance for f in found), bent.variance[:1] * jnp.ones(2)])

    assert np.isnan(jax.jit(variances)(-1.0)).all()
    assert np.isnan(jax.vmap(variances)(jnp.array([-1.0]))).all()


ZEROS, ONES = np.zeros((2, 3)), np.ones((2, 2))
BOX, VECTOR = Input.box(ZEROS, 1.0), np.zeros(2)
MAPPED = as_input({"a": Input.box([0.0], 1.0)})
COLUMN = InputTerm(ONES[:, :1], is_uniform=True)
ERRORS = (
    (lambda: Input([1.0], [COLUMN]), r"terms\[0\] .* 1 inputs, .* \(2, 1\)"),
    (lambda: Input([0.0], ["a"]), r"terms\[0\] must be an InputTerm"),
    (lambda: Input.box(1.0, 1.0), r"mean must have shape .*got shape \(\)"),
    (lambda: Input.box("abc", 1.0), "mean must be an array of real numbers"),
    (lambda: Input.box(ZEROS, np.ones(2)), r"half_width must have last axis 3"),
    (lambda: Input.box(ZEROS, np.ones((4, 3))), r"half_width \(4,\), mean \(2,\)"),
    (lambda: Input.known([np.nan]), "mean must be finite, got nan"),
    (lambda: Input.normal([1.0], 1.0, scale_tril=[[1.0]]), "got scale and scale_tril"),
    (lambda: Input.normal(VECTOR, [1.0, -2.0]), r"scale must not be .*, got -2.0 at index \(1,\)"),
    (lambda: Input.normal(VECTOR, scale_tril=-np.eye(2)), "diagonal of .* not be neg.* got -1.0"),
    (lambda: Input.normal(ZEROS, factor=ONES), r"factor must have .* N_x = 3 .* shape \(2, 2\)"),
    (lambda: Input.normal(VECTOR, covariance_matrix=np.triu(ONES)), "must be symmetric"),
    (lambda: Input.normal(VECTOR, precision_matrix=0 * ONES), "positive definite, got a sing"),
    (lambda: BOX.expand((3,)), r"requested \(3,\), present \(2,\)"),
    (lambda: Input.from_samples([[0.0], [np.nan]]), r"draws must .*, got nan at index \(1, 0\)"),
    (lambda: Input.triangular(VECTOR, 1.0, [0.5, 1.4]), r"low, mode, high .* at index \(1,\)"),
    (lambda: Input.arcsine([1.0], 0.0), "arcsine inputs must have low, high that do not decrease"),
    (lambda: Input.student_t([1.0], 1.0, 0), "df must be positive, got 0"),
    (lambda: Input.student_t([1.0], 1.0, 2).of_same_moments, "f must have a finite variance"),
    (lambda: Input.curvilinear_trapezoidal([0.0], 1.0, 2.0), "inexactness must not exceed half_w"),
    (lambda: Input.trapezoidal([0.0], 3.0, 1.0, 4.0), "start, stop, high that do not decrease"),
    (lambda: Input.triangular(VECTOR, np.ones(3)), r"low \(2,\), high \(3,\)"),
    (Input.join, "Input.join must have parts, got none"),
    (lambda: Input.join(BOX, ZEROS), "part 1 must be an nn_uq_dist.Input, got ndarray"),
    (lambda: Input.join(MAPPED), "part 0 must be a uniform or normal input"),
    (lambda: MAPPED.network_input(VECTOR), r"x must have shape \(\.\.\., 1\), got shape"),
)


def test_errors():
    for call, message in ERRORS:
        with pytest.raises((TypeError, ValueError), match=message):
            call()


def test_means_that_float32_rounds_are_named():
    mean = np.array([1.0, 6378137.37])
    for make in (
        lambda: Input.normal(mean, 0.01),
        lambda: as_input(dist.Normal(mean, 0.01).to_event(1)),
        lambda: as_input({"x": dist.Normal(mean, 0.01).to_event(1)}),
        lambda: as_input(dist.StudentT(4.0, mean, 0.01).to_event(1)),
        lambda: Input.triangular(mean - 0.5, mean + 0.5),
    ):
        with pytest.warns(RuntimeWarning, match=r"6378137.5 at .*jax_enable_x64") as told:
            make()
        assert [one.filename for one in told] == [__file__]
    with pytest.warns(RuntimeWarning, match=r"mean 0.9999\d* is rounded.*6e-08 apart"):
        as_input(dist.Beta(1e6, 10.0))
    # Nothing where rounding does not matter, nor of known and of traced numbers.
    Input.normal(mean, 100.0)
    Input.known(mean)
    jax.eval_shape(lambda m: Input.normal(m, 0.01).mean, mean)
    with jax.enable_x64(True):
        Input.normal(mean, 0.01)


def test_numbers_that_overflow_are_refused():
    for make in (
        lambda: Input.box([0.0], np.array([1e39])),
        lambda: as_input(dist.Normal(np.array([1e39]), 1e38).to_event(1)),
        lambda: as_input(dist.Logistic(np.array([1e39]), 1.0).to_event(1)),
        lambda: as_input({"x": dist.Normal(0.0, 1.0), "known": np.array(1e39)}),
    ):
        with pytest.raises(ValueError, match=r"at most 3.4e\+38.*jax_enable_x64"):
            make()
