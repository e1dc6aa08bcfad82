"""The contract of linear models, for both: noise, copulas, entries of batches."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nn_uq_dist as nuq

KEY = jax.random.key(0)
MEANS = np.array([[0.1, 0.2], [1.0, -0.5], [0.3, 0.0]], np.float32)
NOISE = np.array([[0.04, 0.01], [0.01, 0.09]])


def network(x):
    return jnp.stack([jnp.tanh(x[0]) + x[1] ** 2, x[0] * x[1] + x[1]])


def tangent(f):
    return nuq.linearize(network, f)


def corrected(f):
    lin = tangent(f)
    return lin.corrected(nuq.paired_draws(network, lin, KEY, 200, progress=False))


@pytest.fixture(scope="module", params=[tangent, corrected])
def models(request):
    """A model of three points, and of the second of them alone."""
    many, one = (nuq.Input.box(means, half_width=0.5) for means in (MEANS, MEANS[1]))
    return request.param(many), request.param(one)


@pytest.mark.slow
def test_entries_are_models_of_their_points(models):
    many, one = models
    if isinstance(one, nuq.linearization.CorrectedLinearization):
        # As a batch of one: a single correction is controlled by a response surface, too.
        one = many.linearization[1:2].corrected(many.pairs[1:2])[0]
        many = many.linearization.corrected(many.pairs)
    part = many[1]
    for name in ("mean", "variance", "covariance", "correlation"):
        np.testing.assert_allclose(getattr(part, name), getattr(one, name), rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(getattr(many, name)[1], getattr(one, name), rtol=1e-4, atol=1e-6)
    value = jnp.array([0.5, 0.3])
    found, expected = (model.joint(0.1).log_prob(value) for model in (part, one))
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)
    assert many[np.array([True, False, True])].batch_shape == (2,)
    assert len(many.remarks) == many.mean.size
    with pytest.raises(TypeError, match="needs batch axes"):
        list(one)


def test_noise_adds_to_the_covariance(models):
    _, model = models
    scale = np.array([0.1, 0.3])
    total = NOISE + np.diag(scale**2)
    for make, clean in (
        (model.gaussian_copula, model.covariance),
        (model.joint, model.joint(1e-3).covariance_matrix),
    ):
        found = make(noise_scale=scale, noise_covariance=NOISE).covariance_matrix
        np.testing.assert_allclose(found, clean + total, rtol=5e-3, atol=2e-4)
    variance = model.marginals(scale, NOISE).variance
    np.testing.assert_allclose(variance, model.variance + np.diagonal(total), rtol=2e-3)


def test_draws_have_the_moments_of_the_model(models):
    _, model = models
    inputs, outputs = model.sample_pairs(KEY, (20_000,))
    assert inputs.shape == outputs.shape == (20_000, 2)
    np.testing.assert_allclose(outputs.mean(axis=0), model.mean, atol=0.02)
    np.testing.assert_allclose(outputs.var(axis=0), model.variance, rtol=0.05)
    np.testing.assert_array_equal(model.sample(KEY, (20_000,)), outputs)
