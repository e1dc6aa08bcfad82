"""NumPyro's distributions as distributions of outputs."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

from nn_uq_dist.distributions import as_output_distribution


@pytest.mark.parametrize("name", ["log_prob", "normal_score"])
def test_nan_has_nan_derivatives(name):
    distribution = as_output_distribution(dist.Gamma(3.0, 2.0))
    assert np.isnan(jax.jit(jax.value_and_grad(getattr(distribution, name)))(jnp.nan)).all()


@pytest.mark.parametrize("tails", [dist.Cauchy(0.0, 1.0), dist.Levy(0.0, 1.0)])
def test_no_moments_of_transformed_distributions_that_have_none(tails):
    base = tails.expand((1,))
    scale = dist.transforms.AffineTransform(jnp.zeros(1), jnp.ones(1), domain=tails.support)
    distribution = as_output_distribution(dist.TransformedDistribution(base, scale))
    assert np.isnan(distribution.mean).all()
    assert np.isnan(distribution.variance).all()
