"""Latent outputs that are sampled through their inputs."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro import handlers, infer
from numpyro.infer.autoguide import AutoNormal

import nn_uq_dist as nuq

ROWS = jnp.array([[1.0, 0.5, -0.3], [0.2, 1.0, 0.4]])
KINDS = {
    "event": lambda width: nuq.LinearizedMarginal(0.5, width * ROWS, 0.2).to_event(1),
    "joint": lambda width: nuq.LinearizedJoint(jnp.ones(2), width * ROWS, 0.1 * jnp.eye(2)),
}


@pytest.mark.parametrize("name", KINDS)
def test_draws_have_the_distribution_of_the_site(name):
    def model():
        with numpyro.plate("rows", 20_000, dim=-1):
            numpyro.sample("y", KINDS[name](0.7))

    config = {"y": nuq.distributions.InputReparam()}
    traced = handlers.trace(handlers.seed(handlers.reparam(model, config), 0)).get_trace()
    draws, own = np.asarray(traced["y"]["value"]), KINDS[name](0.7)
    assert traced["y"]["type"] == "deterministic"
    assert draws.shape == (20_000, 2)
    # Four standard errors.
    np.testing.assert_allclose(draws.mean(axis=0), own.mean, atol=0.02)
    np.testing.assert_allclose(draws.var(axis=0), own.variance, rtol=0.04)
    correlation = np.corrcoef(draws.T)[0, 1]
    expected = (
        0.0 if name != "joint" else own.covariance_matrix[0, 1] / np.prod(own.variance) ** 0.5
    )
    np.testing.assert_allclose(correlation, expected, atol=0.03)


@pytest.mark.slow
def test_bounds_that_move():
    # The bounds of y move with the width, which an autoguide does not follow.
    def model():
        width = numpyro.sample("width", dist.LogNormal(0.0, 0.5))
        y = numpyro.sample("y", nuq.LinearizedMarginal(0.0, width * jnp.ones(2)))
        numpyro.sample("seen", dist.Normal(y, 0.3), obs=1.2)

    # By quadrature over width and y, whose density is a triangle.
    scores, y = np.linspace(-4, 4, 401), np.linspace(-8, 8, 2001)
    widths = np.exp(0.5 * scores)
    density = np.maximum(2 * widths[:, None] - np.abs(y), 0) / (4 * widths[:, None] ** 2)
    weights = density * np.exp(-0.5 * ((1.2 - y) / 0.3) ** 2)
    weights = weights * np.exp(-0.5 * scores**2)[:, None]
    expected = (weights @ y).sum() / weights.sum(), (widths @ weights).sum() / weights.sum()

    reparam = handlers.reparam(model, {"y": nuq.distributions.InputReparam()})
    mcmc = infer.MCMC(infer.NUTS(reparam), num_warmup=500, num_samples=4000, progress_bar=False)
    mcmc.run(jax.random.key(3))
    draws = mcmc.get_samples()
    # Six standard errors.
    np.testing.assert_allclose(draws["y"].mean(), expected[0], atol=0.04)
    np.testing.assert_allclose(draws["width"].mean(), expected[1], atol=0.06)

    guide = AutoNormal(reparam)
    svi = infer.SVI(reparam, guide, numpyro.optim.Adam(0.01), infer.Trace_ELBO(20))
    found = svi.run(jax.random.key(0), 3000, progress_bar=False)
    assert np.isfinite(found.losses).all()  # without the reparametrization most are not
    latent = guide.sample_posterior(jax.random.key(1), found.params, sample_shape=(4000,))
    draws = infer.Predictive(reparam, latent, return_sites=["y"])(jax.random.key(2))
    np.testing.assert_allclose(draws["y"].mean(), expected[0], atol=0.1)
