"""Quantiles by a bracketed Newton method on normal scores, against SciPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from nn_uq_dist.basics.quantile_search import quantile_at_score

SCORES = np.array([-6.0, -2.0, -0.1, 0.0, 1.0, 4.0, 6.0])
LAWS = {
    "normal": scipy.stats.norm(3.0, 0.2),
    "exponential": scipy.stats.expon(),
    "student": scipy.stats.t(3),
}


def evaluator(distribution):
    def now(x):
        upper = x > distribution.median()
        tail = np.where(upper, distribution.sf(x), distribution.cdf(x))
        score = scipy.stats.norm.isf(tail)
        return np.where(upper, score, -score), distribution.logpdf(x)

    return lambda x: jax.pure_callback(now, (x, x), x)


@pytest.mark.parametrize("name", LAWS)
def test_quantiles_are_scipys(name, x64):
    distribution = LAWS[name]
    upper = SCORES > 0
    tail = scipy.stats.norm.sf(np.abs(SCORES))
    expected = np.where(upper, distribution.isf(tail), distribution.ppf(tail))
    low, high = jnp.full(SCORES.shape, -1e4), jnp.full(SCORES.shape, 1e4)
    found = quantile_at_score(
        jnp.asarray(SCORES), (low + high) / 2, low, high, evaluator(distribution)
    )
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-14)


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
