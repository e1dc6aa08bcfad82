"""`Input.join` and `Input.known`: parts one after the other, by SciPy's block diagonal."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg

import nn_uq_dist as nuq
from nn_uq_dist import Input
from nn_uq_dist.basics.concrete import in_float64

TRIL = np.array([[1.0, 0.0], [0.5, 0.2]])
BOX = nuq.Input.box([0.0, 1.0], half_width=[1.0, 3.0])
NORMAL = nuq.Input.normal([2.0, 3.0], scale_tril=TRIL)
KNOWN = Input.known([5.0])
LAW = Input.join(BOX, KNOWN, NORMAL)
COVARIANCE = scipy.linalg.block_diag(np.diag([1 / 3, 3.0]), 0.0, TRIL @ TRIL.T)


def test_moments_are_those_of_the_parts():
    np.testing.assert_array_equal(LAW.mean, [0.0, 1.0, 5.0, 2.0, 3.0])
    np.testing.assert_allclose(LAW.covariance, COVARIANCE, rtol=1e-6)
    np.testing.assert_allclose(LAW.variance, np.diag(COVARIANCE), rtol=1e-6)
    np.testing.assert_allclose(LAW.half_width, [1, 3, 0, 0, 0])
    np.testing.assert_allclose(LAW.normal_scale, [0, 0, 0, 1, np.hypot(0.5, 0.2)], rtol=1e-6)
    assert LAW.num_standard_variables == (2, 2)
    assert not LAW.has_independent_entries
    assert Input.join(BOX, KNOWN).has_independent_entries
    exact = in_float64(LAW)
    for found in (exact.covariance, exact.half_width, exact.image(np.eye(5)).covariance):
        assert isinstance(found, np.ndarray)
    np.testing.assert_allclose(exact.covariance, COVARIANCE, rtol=1e-7)


def test_known_inputs_have_no_columns():
    jacobian = np.random.default_rng(0).normal(size=(3, 5)).astype(np.float32)
    image = LAW.image(jacobian)
    np.testing.assert_allclose(image.uniform, jacobian[:, :2] * [1.0, 3.0], rtol=1e-6)
    np.testing.assert_allclose(image.normal, jacobian[:, 3:] @ TRIL, rtol=1e-5)
    assert Input.join(BOX, KNOWN).normal_scale is None
    shifted = BOX + Input.known([1.0, 1.0])
    assert shifted.num_standard_variables == (2, 0)
    np.testing.assert_array_equal(shifted.mean, [1.0, 2.0])
    np.testing.assert_array_equal(shifted.half_width, [1.0, 3.0])


@pytest.mark.parametrize(
    "distribution", [KNOWN, Input.join(KNOWN, KNOWN), KNOWN + KNOWN], ids=["one", "blocks", "sum"]
)
def test_known_inputs_alone_are_constant(distribution):
    size = distribution.num_inputs
    np.testing.assert_array_equal(
        distribution.sample(jax.random.key(0), (3,)), np.tile(distribution.mean, (3, 1))
    )
    image = distribution.image(np.ones((2, size), np.float32))
    assert image.is_constant.all()
    assert distribution.num_standard_variables == (0, 0)
    found = distribution.deviation_at_points(jnp.full((4, 1), 0.3))
    np.testing.assert_array_equal(found, np.zeros((4, size)))
    np.testing.assert_array_equal(distribution.variance, np.zeros(size))
    np.testing.assert_array_equal(distribution.covariance, np.zeros((size, size)))
    assert distribution.has_independent_entries


def test_draws_and_points_are_those_of_the_parts():
    draws = np.asarray(LAW.sample_deviation(jax.random.key(0), (50_000,)), np.float64)
    error = 5 * np.sqrt(2 / len(draws))
    sd = np.sqrt(np.diag(COVARIANCE))
    assert (np.abs(np.cov(draws.T) - COVARIANCE) <= error * np.outer(sd, sd) + 1e-12).all()
    assert (np.abs(draws[:, :3]) <= [1.0, 3.0, 0.0]).all()
    uniform, normal = np.array([[0.5, -1.0]]), np.array([[2.0, 1.0]])
    found = LAW.deviation_at(jnp.asarray(uniform), jnp.asarray(normal))
    np.testing.assert_allclose(found, [[0.5, -3.0, 0.0, *(TRIL @ [2.0, 1.0])]], rtol=1e-6)
    both = LAW.deviation_at(jnp.asarray(uniform[0]), jnp.asarray(np.tile(normal, (3, 1))))
    np.testing.assert_allclose(both, np.tile(found, (3, 1)), rtol=1e-6)
    # Of a sum: a distribution that makes its columns from the identity says the same.
    total = BOX + NORMAL
    image = total.image(np.eye(2, dtype=np.float32))
    expected = uniform @ np.asarray(image.uniform).T + normal @ np.asarray(image.normal).T
    found = total.deviation_at(jnp.asarray(uniform), jnp.asarray(normal))
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_batches_broadcast_and_expand():
    distribution = Input.join(BOX, nuq.Input.normal(np.zeros((4, 1)), 1.0))
    assert distribution.batch_shape == (4,)
    assert distribution.covariance.shape == (4, 3, 3)
    assert distribution.expand((2, 4)).sample(jax.random.key(0), (5,)).shape == (5, 2, 4, 3)
    found = jax.vmap(lambda one: one.variance)(distribution)
    np.testing.assert_allclose(found, np.tile([1 / 3, 3, 1], (4, 1)), rtol=1e-6)
    values = distribution.deviation_at(jnp.ones((7, 4, 2)), jnp.ones((7, 4, 1)))
    assert values.shape == (7, 4, 3)


def test_shares_of_bounded_inputs_that_depend_on_others_are_refused():
    rows = np.array([[1.0, 2.0]])
    for other in (Input.normal([0.0, 0.0], scale_tril=TRIL), Input.normal([0.0, 0.0], 1.0)):
        lin = nuq.Linearization([0.0], rows, Input.box([0.0, 0.0], [1.0, 0.0]) + other)
        if lin.input.has_independent_entries:
            found = nuq.diagnostics.sensitivity(lin).values[0]
            np.testing.assert_allclose(found, np.array([4 / 3, 4.0]) / (16 / 3), rtol=1e-6)
        else:
            with pytest.raises(ValueError, match="first-order indices need independent or Gauss"):
                nuq.diagnostics.sensitivity(lin)


def test_shares_of_a_block_are_those_of_its_inputs_alone():
    rows = np.array([[1.0, 2.0, 1.0, -1.0]])
    factor = Input.normal([0.0, 0.0], factor=TRIL)
    lin = nuq.Linearization([0.0], rows, Input.join(BOX, factor))
    found = nuq.diagnostics.sensitivity(lin).values[0]
    covariance = TRIL @ TRIL.T
    total = rows[0, :2] ** 2 @ [1 / 3, 3.0] + rows[0, 2:] @ covariance @ rows[0, 2:]
    # What a normal input tells: (C r)_k^2 / C_kk.
    told = (covariance @ rows[0, 2:]) ** 2 / np.diag(covariance)
    expected = np.concatenate([rows[0, :2] ** 2 * [1 / 3, 3.0], told]) / total
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_errors():
    with pytest.raises(ValueError, match=r"Input.join must have parts, got none"):
        Input.join()
    with pytest.raises(
        TypeError, match=r"part 1 must be an nn_uq_dist.Input, got ndarray; pass nn"
    ):
        Input.join(BOX, np.zeros(2))
    mapped = nuq.inputs.as_input({"a": BOX})
    with pytest.raises(TypeError, match=r"part 0 must be an input of the vector .* pass a dict"):
        Input.join(mapped)
    with pytest.raises(TypeError, match="part 1 must be an input of the vector"):
        BOX + mapped
    assert (BOX + mapped.base).num_standard_variables == (4, 0)
    with pytest.raises(ValueError, match=r"part 0 \(2,\), part 1 \(3,\)"):
        Input.join(BOX.expand((2,)), KNOWN.expand((3,)))
    with pytest.raises(ValueError, match="mean must be finite, got nan"):
        Input.known([np.nan])
    with pytest.raises(ValueError, match=r"mean must have shape .* got shape \(\)"):
        Input.known(1.0)
