"""`Linearization.gaussian_copula`: its correlation, repair at low rank, noise, errors."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from nn_uq_dist import GaussianCopulaJoint, Input, Linearization

pytestmark = pytest.mark.slow

KEY = jax.random.key(2)


def linear(jacobian, dtype="float64"):
    """A linear model of a box."""
    jacobian = np.asarray(jacobian, dtype)
    distribution = Input.box(np.zeros(jacobian.shape[-1], dtype), 1.0)
    return Linearization(np.zeros(jacobian.shape[:-1], dtype), jacobian, distribution)


def off_target(covariance, target):
    sd = np.sqrt(np.diag(np.asarray(covariance, float)))
    return np.abs(np.asarray(covariance, float) / np.outer(sd, sd) - np.asarray(target)).max()


@pytest.mark.usefixtures("x64")
def test_operator_like_case():
    # 31 outputs of 31 inputs, of rank 2, the last one a millionth of a like one in scale.
    rng = np.random.default_rng(0)
    jacobian = rng.normal(size=(31, 2)) @ rng.normal(size=(2, 31))
    jacobian[-1] *= 1e-6
    lin = linear(jacobian)
    fit = lin.copula_correlation()
    assert fit.attainable.all()
    assert 0 < fit.moved < 1e-3  # measured: 1.4e-4 for rank 2
    smallest = np.linalg.eigvalsh(np.asarray(fit.matrix, float))[0]
    np.testing.assert_allclose(smallest, 1e-4, rtol=0.02)
    joint = GaussianCopulaJoint(lin.marginals(), fit.matrix)
    # Measured: 1.4e-4.
    assert off_target(joint.covariance_matrix, lin.correlation) <= 1e-3


def test_proportional_and_opposite_outputs():
    lin = linear([[1.0, 2.0], [3.0, 6.0], [-1.0, -2.0], [1.0, -1.0]], "float32")
    fit = lin.copula_correlation()
    np.testing.assert_allclose(fit.matrix[0, 1], 1 - fit.moved, atol=1e-4)
    joint = lin.gaussian_copula()
    draws = joint.sample(KEY, (50,))
    assert np.isfinite(joint.log_prob(draws)).all()
    assert (np.abs(draws) <= joint.support.upper_bound).all()


@pytest.mark.usefixtures("x64")
def test_achieved_correlation_of_few_inputs():
    lin = linear([[1.0, 0.2], [0.3, 1.0]])
    copula = lin.gaussian_copula()
    assert off_target(copula.covariance_matrix, lin.correlation) < 1e-8
    np.testing.assert_allclose(np.diag(copula.covariance_matrix), lin.variance, rtol=1e-8)
    assert lin.copula_correlation().moved == 0


@pytest.mark.usefixtures("x64")
def test_in_a_model():
    # Traced numbers take the closed form, known ones the Hermite series. Pairs of outputs of 2 to
    # 12 inputs with weights of all sizes; of 2,400 pairs the largest error was 7.6e-4.
    rng = np.random.default_rng(0)
    sizes = np.exp(2 * rng.normal(size=(60, 1, 12)) * np.linspace(0, 1, 12))
    sizes[:20, :, 5:], sizes[20:40, :, 2:] = 0, 0
    lin = linear(rng.normal(size=(60, 2, 12)) * sizes)
    scale = 0.3 * np.sqrt(lin.variance)
    exact = lin.copula_correlation(scale, min_eigenvalue=1e-9)
    found = jax.jit(lambda lin: lin.copula_correlation(scale, min_eigenvalue=1e-9))(lin)
    kept = np.asarray(exact.moved) < 1e-6
    assert kept.sum() > 55
    np.testing.assert_allclose(found.matrix[kept], exact.matrix[kept], rtol=0, atol=8e-4)


def test_joint_of_a_batch_and_under_jit():
    jacobian = np.random.default_rng(1).normal(size=(4, 3, 3)).astype("float32")
    lin = linear(jacobian, "float32")
    joint = lin.gaussian_copula()
    assert joint.batch_shape == (4,)
    single = linear(jacobian[2], "float32")

    @jax.jit
    def log_prob(lin, value):
        return lin.gaussian_copula().log_prob(value)

    value = jnp.array([0.1, -0.2, 0.3])
    # The closed form of models is off by 5e-4 in entries.
    np.testing.assert_allclose(joint.log_prob(value)[2], log_prob(single, value), atol=1e-2)


def test_forbidden_repair_under_jit_gives_nan():
    lin = linear([[1.0, 2.0], [-1.0, -2.0], [1.0, 1.0], [2.0, 3.0]], "float32")

    @jax.jit
    def log_prob(jacobian):
        traced = Linearization(lin.loc, jacobian, lin.input)
        joint = traced.gaussian_copula(min_eigenvalue=None)
        return joint.log_prob(jnp.zeros(4))

    assert np.isnan(log_prob(lin.jacobian))


def test_a_constant_output():
    lin = linear([[1.0, 2.0], [0.0, 0.0]], "float32")
    with pytest.raises(ValueError, match=r"sensitivity for output y\[1\].*pass noise_scale > 0"):
        lin.gaussian_copula()
    joint = lin.gaussian_copula(0.1)
    assert joint.correlation_matrix[0, 1] == 0
    np.testing.assert_allclose(joint.variance, [5 / 3 + 0.01, 0.01], rtol=1e-6)
