"""The map from normal scores to outputs: both directions, its determinant, shapes, equality."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

from nn_uq_dist import LinearizedMarginal
from nn_uq_dist.distributions import NormalScoreTransform

WEIGHTS = np.array([[1.0, 0.5], [0.7, 0.4]], np.float32)
ZEROS = np.zeros(2, np.float32)


def test_transform():
    marginals = LinearizedMarginal(ZEROS, WEIGHTS)
    transform = NormalScoreTransform(marginals)
    assert (transform.domain.event_dim, transform.codomain.event_dim) == (1, 1)
    assert transform.forward_shape((5, 2)) == transform.inverse_shape((5, 2)) == (5, 2)
    assert transform.forward_shape((5, 1)) == (5, 2)
    z = jnp.array([[-2.0, 0.3], [1.0, 2.0]])
    y = transform(z)
    np.testing.assert_allclose(transform.inv(y), z, rtol=1e-4)
    slopes = jax.vmap(lambda z: jnp.linalg.slogdet(jax.jacobian(transform)(z))[1])(z)
    np.testing.assert_allclose(transform.log_abs_det_jacobian(z, y), slopes, rtol=1e-4)
    np.testing.assert_allclose(jax.jit(lambda t, z: t(z))(transform, z), y, rtol=1e-5)
    assert transform == NormalScoreTransform(LinearizedMarginal(ZEROS, WEIGHTS))
    assert transform != NormalScoreTransform(LinearizedMarginal(ZEROS, 2 * WEIGHTS))
    assert transform != NormalScoreTransform(dist.Normal(ZEROS, 1.0))
