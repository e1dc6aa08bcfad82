"""Noise of outputs: both kinds add up, and what is none is refused."""

import jax
import numpy as np
import pytest

from nn_uq_dist import Input, Linearization

JACOBIAN = np.random.default_rng(0).normal(size=(4, 3))
LAW = Input.box(np.zeros((2, 3)), 1.0)
IMAGE = LAW.image(JACOBIAN)


@pytest.mark.usefixtures("x64")
def test_both_kinds_of_noise_add_up():
    covariance = [[1.0, 0.5], [0.5, 2.0]]
    image = Input.box(np.zeros(3), [0.5, 0.0, 2.0]).image(JACOBIAN[:2])
    noisy = image.with_noise([0.1, 0.0], covariance).with_noise(2.0)
    expected = np.array(covariance) + np.diag([0.01, 0.0]) + 4 * np.eye(2)
    np.testing.assert_allclose(noisy.covariance - image.covariance, expected, rtol=1e-12)
    np.testing.assert_allclose(noisy.variance, np.diag(noisy.covariance), rtol=1e-13)
    np.testing.assert_allclose(noisy.root @ noisy.root.T, noisy.covariance, rtol=1e-12)
    np.testing.assert_allclose(noisy.normal_covariance, expected, rtol=1e-13)
    np.testing.assert_allclose(noisy.normal_scale**2, np.diag(expected), rtol=1e-13)
    singular = image.with_noise(None, np.ones((2, 2)))
    np.testing.assert_allclose(singular.covariance, image.covariance + 1, rtol=1e-13)
    np.testing.assert_allclose(singular.root @ singular.root.T, singular.covariance, rtol=1e-12)


def test_errors():
    one, shape = LAW.image(JACOBIAN[:1]), r"noise_covariance must have shape \(\.\.\., 4, 4\), got"
    for image, noise, message in (
        (IMAGE, (np.ones(3),), r"noise_scale \(3,\), outputs \(2, 4\)"),
        (one, (np.ones(3),), r"noise_scale .* axis 1 \(as the outputs\).* got shape \(3,\)"),
        (IMAGE, ([0.0, 0.0, -1.0, 0.0],), r"noise_scale .* not .*, got -1.0 at index \(2,\)"),
        (IMAGE, (None, np.eye(3)), shape + r" \(3, 3\); for independent noise"),
        (IMAGE, (None, np.zeros((3, 4, 4))), r"noise_covariance \(3,\), batch_shape \(2,\)"),
        (IMAGE, (None, -np.eye(4)), "noise_covariance must be positive semi.*, got the eigenvalue"),
    ):
        with pytest.raises((TypeError, ValueError), match=message):
            image.with_noise(*noise)


def test_traced_noise_that_is_negative_gives_nan():
    assert np.isnan(jax.jit(lambda s: IMAGE.with_noise(s).variance)(-1.0)).all()


def test_a_traced_covariance_that_is_none_gives_nan():
    model = Linearization(np.zeros(2), np.eye(2), Input.box(np.zeros(2), 1.0))

    def numbers(covariance):
        y = np.array([0.3, 0.2])
        noise = {"noise_covariance": covariance}
        joint, copula = model.joint(**noise), model.gaussian_copula(**noise)
        marginals = model.marginals(**noise).log_prob(y).sum()
        return (
            marginals,
            joint.log_prob(y),
            copula.log_prob(y),
            model.input_posterior(y, **noise).mean,
        )

    def matrix(first, above, below, last):
        return [[first, above], [below, last]]

    covariances = [
        matrix(1, 0.5, 0.5, 2),
        matrix(1, 1, 1, 1),
        matrix(0, 0, 0, 0),
        matrix(1e-20, 0, 0, 1),
    ]
    others = [
        matrix(1, 0.5, 0.4, 2),
        matrix(1, 2, 2, 1),
        matrix(0.1, 0.101, 0.101, 0.1),
        matrix(-1, 0, 0, 1),
    ]
    program = jax.jit(jax.vmap(numbers))
    for part in program(np.array(covariances, np.float32)):
        assert np.isfinite(part).all()
    for part in program(np.array(others, np.float32)):
        assert np.isnan(part).all()
