"""NumPyro's distributions as laws of outputs."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

from nn_uq_dist.distributions import as_output_law


@pytest.mark.parametrize("name", ["log_prob", "normal_score"])
def test_nan_has_nan_derivatives(name):
    law = as_output_law(dist.Gamma(3.0, 2.0))
    assert np.isnan(jax.jit(jax.value_and_grad(getattr(law, name)))(jnp.nan)).all()
