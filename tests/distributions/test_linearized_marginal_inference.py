"""`LinearizedMarginal` in NumPyro models: MCMC, SVI, prediction, effect handlers, mixtures."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.distributions import constraints
from numpyro.infer import MCMC, NUTS, SVI, Predictive, Trace_ELBO
from numpyro.infer.autoguide import AutoNormal

from nn_uq_dist import LinearizedMarginal

KEY = jax.random.key(0)
WEIGHTS = np.array([1.0, 0.5], np.float32)


@pytest.mark.slow
def test_nuts_learns_parameters_from_observations():
    rng = np.random.default_rng(1)
    observed = 1.5 + 0.3 * rng.uniform(-1, 1, (100, 2)) @ WEIGHTS
    observed = observed.astype(np.float32)

    def model(y):
        center = numpyro.sample("center", dist.Normal(0.0, 5.0))
        width = numpyro.sample("width", dist.HalfNormal(2.0))
        with numpyro.plate("data", len(y)):
            numpyro.sample("y", LinearizedMarginal(center, width * WEIGHTS), obs=y)

    # A start at which the observations are inside the support.
    start = numpyro.infer.init_to_value(values={"center": 1.0, "width": 2.0})
    mcmc = MCMC(
        NUTS(model, init_strategy=start), num_warmup=200, num_samples=200, progress_bar=False
    )
    mcmc.run(KEY, observed)
    samples = mcmc.get_samples()
    reach = 1.5 * samples["width"]
    assert (samples["center"] + reach >= observed.max()).all()
    assert (samples["center"] - reach <= observed.min()).all()
    assert abs(samples["center"].mean() - 1.5) < 0.05
    assert abs(samples["width"].mean() - 0.3) < 0.03


@pytest.mark.slow
def test_svi_with_an_automatic_guide():
    d = LinearizedMarginal(2.0, WEIGHTS)

    def model():
        numpyro.sample("x", d)

    guide = AutoNormal(model)
    svi = SVI(model, guide, numpyro.optim.Adam(0.05), Trace_ELBO(num_particles=8))
    result = svi.run(KEY, 300, progress_bar=False)
    assert np.isfinite(result.losses).all()
    # The bound is at best 0, the evidence of a model without data.
    assert result.losses[-50:].mean() < 0.1
    draws = guide.sample_posterior(KEY, result.params, sample_shape=(500,))["x"]
    assert d.support(draws).all()
    assert abs(draws.mean() - 2.0) < 0.2


def test_svi_gradients_reach_the_parameters():
    observed = np.array([0.8, 1.0, 1.2], np.float32)

    def model():
        loc = numpyro.param("loc", 0.5)
        numpyro.sample("y", LinearizedMarginal(loc, WEIGHTS).expand((3,)).to_event(1), obs=observed)

    svi = SVI(model, lambda: None, numpyro.optim.Adam(0.05), Trace_ELBO())
    result = svi.run(KEY, 200, progress_bar=False)
    # The density is flat within 0.5 of its center and falls beyond: any such center is best.
    best = LinearizedMarginal(1.0, WEIGHTS).log_prob(observed).sum()
    np.testing.assert_allclose(-result.losses[-1], best, atol=0.02)


def site(loc):
    return numpyro.sample("y", LinearizedMarginal(loc, WEIGHTS))


def test_predictive():
    def model():
        site(numpyro.sample("loc", dist.Normal(0.0, 1.0)))

    loc = jnp.array([-4.0, 0.0, 4.0])
    predicted = Predictive(model, {"loc": loc})(KEY)["y"]
    assert predicted.shape == (3,)
    assert (abs(predicted - loc) <= 1.5).all()
    prior = Predictive(model, num_samples=50)(KEY)
    assert (abs(prior["y"] - prior["loc"]) <= 1.5).all()
    batched = Predictive(model, {"loc": loc[:, None]}, batch_ndims=2, parallel=True)(KEY)["y"]
    assert batched.shape == (3, 1)


@pytest.mark.parametrize("scale", [None, 0.3])
def test_mixture_general(scale):
    # Without validation: each component sees values that only the others can take.
    components = [
        LinearizedMarginal(loc, WEIGHTS, scale, validate_args=False) for loc in (-1.0, 2.0)
    ]
    probs = jnp.array([0.3, 0.7])
    # Components with bounds of their own need a support that covers all of them.
    support = constraints.real if scale is None else None
    mixture = dist.MixtureGeneral(dist.Categorical(probs), components, support=support)
    x = jnp.array([-1.2, 0.4, 2.5])
    density = sum(p * jnp.exp(c.log_prob(x)) for p, c in zip(probs, components, strict=True))
    np.testing.assert_allclose(jnp.exp(mixture.log_prob(x)), density, rtol=1e-5)
    below = sum(p * c.cdf(x) for p, c in zip(probs, components, strict=True))
    np.testing.assert_allclose(mixture.cdf(x), below, rtol=1e-5)
    assert mixture.sample(KEY, (5,)).shape == (5,)
    np.testing.assert_allclose(mixture.mean, 1.1, rtol=1e-6)


def test_mixture_same_family_needs_a_fixed_support():
    probs = dist.Categorical(jnp.array([0.3, 0.7]))
    with pytest.raises(AssertionError, match="support that does not depend on"):
        dist.MixtureSameFamily(probs, LinearizedMarginal(np.array([-1.0, 2.0]), WEIGHTS))
    locs = np.array([-1.0, 2.0])
    mixture = dist.MixtureSameFamily(probs, LinearizedMarginal(locs, WEIGHTS, 0.3))
    density = np.exp(LinearizedMarginal(locs, WEIGHTS, 0.3).log_prob(0.4)) @ [0.3, 0.7]
    np.testing.assert_allclose(np.exp(mixture.log_prob(0.4)), density, rtol=1e-5)
