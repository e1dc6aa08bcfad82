"""NumPyro's distributions as distributions of outputs."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

from nn_uq_dist import GaussianCopulaJoint
from nn_uq_dist.distributions import (
    as_output_distribution,
    nataf_correlation,
)


@pytest.mark.parametrize("name", ["log_prob", "normal_score"])
def test_nan_has_nan_derivatives(name):
    distribution = as_output_distribution(dist.Gamma(3.0, 2.0))
    assert np.isnan(jax.jit(jax.value_and_grad(getattr(distribution, name)))(jnp.nan)).all()


@pytest.mark.parametrize(
    "tails", [dist.Cauchy(0.0, 1.0), dist.HalfCauchy(1.0), dist.Levy(0.0, 1.0)]
)
def test_no_moments_of_transformed_distributions_that_have_none(tails, precision):
    base = tails.expand((1,))
    scale = dist.transforms.AffineTransform(
        jnp.zeros(1, precision), jnp.ones(1, precision), domain=tails.support
    )
    distribution = as_output_distribution(dist.TransformedDistribution(base, scale))
    assert np.isnan(distribution.mean).all()
    assert np.isnan(distribution.variance).all()


MARGINALS = {
    "discrete": (lambda: dist.Poisson(jnp.ones(3)), "continuous, got the discrete Poisson; a"),
    "multivariate": (
        lambda: dist.MultivariateNormal(jnp.zeros(3), jnp.eye(3)),
        r"univariate, got MultivariateNormal with event_shape \(3,\); give one distribution",
    ),
    "event": (
        lambda: dist.Normal(jnp.zeros(3), 1.0).to_event(1),
        "univariate, got Independent.*without to_event",
    ),
    "no distribution": (lambda: 3, "a NumPyro distribution, got int; pass a LinearizedMarginal"),
    "no functions": (
        lambda: dist.VonMises(jnp.zeros(3), 1.0),
        "a distribution function, got VonMises without cdf and icdf; pass a LinearizedMarginal",
    ),
    "bounds of each component": (
        lambda: dist.MixtureGeneral(
            dist.Categorical(jnp.ones(2) / 2), [dist.Uniform(jnp.arange(3.0), 5.0)] * 2
        ),
        "got MixtureGeneral without support; pass",
    ),
}


@pytest.mark.parametrize(("make", "message"), MARGINALS.values(), ids=MARGINALS)
def test_what_is_no_output_is_refused(make, message):
    for use in (
        as_output_distribution,
        lambda marginals: nataf_correlation(marginals, np.eye(3)),
        lambda marginals: GaussianCopulaJoint(marginals, np.eye(3)),
        lambda marginals: GaussianCopulaJoint(marginals, None, np.zeros(3), np.eye(3)),
    ):
        with pytest.raises(TypeError, match=f"(marginals|distribution) must .*{message}"):
            use(make())
