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
