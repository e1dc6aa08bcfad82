"""Positions of draws under distributions that are not symmetric, against SciPy."""

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
import scipy.stats

from nn_uq_dist.diagnostics import summary
from nn_uq_dist.diagnostics.output_functions import OutputFunctions, Tails
from nn_uq_dist.distributions import as_output_distribution

pytestmark = pytest.mark.viz

# Two outputs each, and the same in SciPy's words.
KNOWN = {
    "float32": (
        lambda: dist.Exponential(jnp.array([2.0, 1 / 3])),
        [scipy.stats.expon(0, 0.5), scipy.stats.expon(0, 3)],
    ),
    "float64": (
        lambda: dist.LogNormal(jnp.array([0.0, 1.0]), jnp.array([0.5, 0.3])),
        [scipy.stats.lognorm(0.5), scipy.stats.lognorm(0.3, scale=np.e)],
    ),
}


def test_both_tails_are_resolved(precision):
    make, known = KNOWN[precision]
    levels = np.array([1e-12, 0.01, 0.3])
    x = np.stack([[*of.ppf(levels), *of.isf(levels)] for of in known], axis=1)
    tails = Tails(OutputFunctions(as_output_distribution(make())), x)
    p = tails.probabilities()
    expected = np.stack([levels, levels], axis=1)
    np.testing.assert_allclose(p[:3], expected, rtol=1e-3)
    np.testing.assert_allclose(1 - p[3:], expected, rtol=1e-3)
    scores = scipy.stats.norm.ppf(levels)
    expected = np.stack([[*scores, *-scores]] * 2, axis=1)
    np.testing.assert_allclose(tails.normal_scores(), expected, rtol=1e-3)


def test_draws_beyond_one_end_are_outside():
    make, known = KNOWN["float32"]
    x = np.stack([of.rvs(5_000, random_state=np.random.default_rng(0)) for of in known], axis=1)
    x[:50] = [-0.1, -0.5]
    x[50:60] = 0.0  # at the end itself
    tails = Tails(OutputFunctions(as_output_distribution(make())), x)
    np.testing.assert_array_equal(tails.is_outside.sum(axis=0), [50, 50])
    np.testing.assert_array_equal(tails.scores[:50], -np.inf)
    np.testing.assert_array_equal(tails.normal_scores()[:50], -38)
    table = summary(make(), x)
    np.testing.assert_allclose(table["draws", "outside_support"], 0.01)
    assert (table["kolmogorov_smirnov", "monte_carlo"] > 0.01).all()
