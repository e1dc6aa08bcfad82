"""Moments of a density of one variable, against closed forms."""

import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy.special import ndtr

from nn_uq_dist.box_gaussian._own_density import by_own_density

ENDS = (-jnp.inf, jnp.inf)


def moments(log_density, mean, scale, ends=ENDS):
    found = by_own_density(jnp.asarray(mean), jnp.asarray(scale), log_density, ends)
    return mean + np.asarray(found.shift), scale * np.asarray(found.factor)


@pytest.mark.parametrize("noise", [0.3, 0.03, 0.01])
def test_of_sharp_ends(noise, x64):
    """A uniform on (-1, 1) plus noise, which has the variance 1/3 + noise^2."""

    def log_density(x):
        x = jnp.abs(x)
        return jnp.log(ndtr((1 - x) / noise) - ndtr((-1 - x) / noise))

    scale = np.sqrt(1 / 3 + noise**2)
    found = moments(log_density, np.array([0.2]), np.array([0.8 * scale]))
    np.testing.assert_allclose(found[0], [0.0], atol=0.005 * scale)
    np.testing.assert_allclose(found[1], [scale], rtol=0.005)


def test_the_support_is_kept_to_and_an_entry_without_a_density_is_left_as_it_is():
    start = np.array([0.3]), np.array([0.4])
    found = moments(jnp.zeros_like, *start, (-1.0, 1.0))
    np.testing.assert_allclose(found, [[0.0], [3**-0.5]], rtol=1e-5, atol=1e-6)
    found = moments(lambda x: jnp.full_like(x, -jnp.inf), *start)
    np.testing.assert_array_equal(found, start)
