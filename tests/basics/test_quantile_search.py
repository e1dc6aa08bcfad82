"""Quantiles at jumps; those of smooth distributions are tested with their distributions."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from nn_uq_dist.basics.quantile_search import quantile_at_score


@pytest.mark.parametrize("jitted", [False, True])
def test_jumps_and_missing_targets(jitted):
    # A distribution with the atom 2 of probability one half: its score jumps from 0 to infinity.
    def evaluate(x):
        return jnp.where(x < 2, x - 2, jnp.inf), jnp.where(x < 2, 0.0, -jnp.inf)

    def solve(target):
        low, high = jnp.full(3, -10.0), jnp.full(3, 10.0)
        return quantile_at_score(target, (low + high) / 2, low, high, evaluate)

    found = (jax.jit(solve) if jitted else solve)(jnp.array([1.0, 3.0, jnp.nan]))
    np.testing.assert_allclose(found, [2.0, 2.0, jnp.nan], rtol=1e-6)
