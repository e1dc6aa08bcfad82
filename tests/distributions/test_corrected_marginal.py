"""Distributions moved by increasing maps: a case that SciPy has, maps in batches, errors."""

import jax
import numpy as np
import numpyro.distributions as dist
import pytest
import scipy.stats
from numpyro.distributions.batch_util import vmap_over

import nn_uq_dist as nuq
from nn_uq_dist.distributions import CorrectedMarginal
from tests.distributions.outputs import IMAGES, KNOTS, LOC, WEIGHTS


@pytest.mark.slow
def test_is_what_scipy_makes_of_a_uniform(x64):
    # One uniform, and a map that is straight: uniform again.
    base = nuq.LinearizedMarginal(0.0, [2.0])
    distribution = CorrectedMarginal(base, [-1.0, 1.0], [1.0, 4.0])
    known = scipy.stats.uniform(2.5 - 3, 6)
    y = np.linspace(-0.4, 5.4, 9)
    np.testing.assert_allclose(distribution.log_prob(y), known.logpdf(y), rtol=1e-12)
    np.testing.assert_allclose(distribution.log_cdf(y), known.logcdf(y), rtol=1e-9)
    np.testing.assert_allclose(distribution.mean, known.mean(), rtol=1e-9)
    np.testing.assert_allclose(distribution.variance, known.var(), rtol=1e-7)
    assert float(distribution.support.lower_bound) == pytest.approx(-0.5)
    with pytest.warns(UserWarning, match="Out-of-support"):
        assert distribution.log_prob(6.0) == -np.inf


def test_derived_slopes_have_the_axis_of_the_map():
    base = nuq.LinearizedMarginal(LOC, WEIGHTS, 0.3)
    stacked = np.stack([IMAGES, IMAGES + 0.1])
    axes = vmap_over(CorrectedMarginal(base, KNOTS, IMAGES), images=0)
    found = jax.vmap(lambda part: CorrectedMarginal(base, KNOTS, part), out_axes=axes)(stacked)
    np.testing.assert_allclose(found.images, stacked, rtol=1e-6)


def test_maps_may_have_more_axes_than_the_base():
    distribution = CorrectedMarginal(dist.Normal(), [[0.0, 1.0], [0.0, 2.0]], [0.0, 1.0])
    assert distribution.batch_shape == distribution.mean.shape == (2,)
    np.testing.assert_allclose(distribution.mean, [0.0, 0.0], atol=1e-6)
