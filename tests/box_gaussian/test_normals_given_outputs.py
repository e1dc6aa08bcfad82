"""Normal variables given outputs: against the closed form in 50 digits."""

import jax.numpy as jnp
import mpmath
import numpy as np
import pytest
import scipy.stats

from nn_uq_dist.box_gaussian import normals_given_outputs

NONE = jnp.zeros((3, 0))


def exact(columns, noise):
    """Gain and covariance."""
    with mpmath.workdps(50):
        of_normals, of_noise = mpmath.matrix(columns), mpmath.matrix(noise)
        total = of_normals * of_normals.T + of_noise * of_noise.T
        gain = of_normals.T * total**-1
        covariance = mpmath.eye(columns.shape[1]) - gain * of_normals
        return np.array(gain.tolist(), float), np.array(covariance.tolist(), float)


@pytest.mark.parametrize("count", [2, 3, 5])
@pytest.mark.parametrize("noise", [1.0, 1e-6])
def test_gain_and_covariance(count, noise, x64):
    rng = np.random.default_rng(count)
    columns = rng.normal(size=(3, count)) * np.array([[1.0], [1e6], [1e-6]])
    root = noise * np.tril(rng.normal(size=(3, 3)) + 2 * np.eye(3)) * np.array([[1], [1e6], [1e-6]])
    found = normals_given_outputs(jnp.asarray(columns), jnp.asarray(root), NONE)
    gain, covariance = exact(columns, root)
    scale = np.sqrt(np.diag(covariance))
    largest = np.abs(gain).max(axis=0)
    np.testing.assert_allclose(found.gain / largest, gain / largest, rtol=1e-6, atol=1e-9)
    error = (found.root @ found.root.mT - covariance) / np.outer(scale, scale)
    np.testing.assert_allclose(error, np.zeros_like(error), atol=1e-7)
    rest = columns @ rng.normal(size=count)
    units = np.array([1.0, 1e6, 1e-6])
    scaled = np.hstack([columns, root]) / units[:, None]
    if noise == 1.0:  # SciPy's factorization is that of the covariance
        distribution = scipy.stats.multivariate_normal(np.zeros(3), scaled @ scaled.T)
        want = distribution.logpdf(rest / units) - np.log(units).sum()
        np.testing.assert_allclose(found.log_density(jnp.asarray(rest)), want, rtol=1e-9)


def test_outputs_that_normals_do_not_reach(x64):
    # The second output has uniforms alone, which say nothing about the normal variable.
    found = normals_given_outputs(
        jnp.array([[2.0], [0.0], [0.0]]), jnp.zeros((3, 0)), jnp.array([[0.0], [1.0], [1.0]])
    )
    np.testing.assert_allclose(found.gain, [[0.5, 0.0, 0.0]], atol=1e-6)
    np.testing.assert_allclose(found.root @ found.root.mT, [[0.0]], atol=1e-9)
