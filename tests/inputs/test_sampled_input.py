"""Monte Carlo with inputs that can only be sampled."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import nn_uq_dist as nuq

KEY = jax.random.key(0)


@pytest.mark.slow
def test_any_distribution_is_drawn_from():
    f = {
        "count": dist.Poisson(3.0),
        "share": dist.Dirichlet(jnp.array([1.0, 2.0, 3.0])),
        "level": dist.LogNormal(0.0, 0.5),
        "box": nuq.InputLaw([1.0], half_width=0.5),
        "known": np.array([2, 3]),
    }

    def net(x):
        assert x["count"].dtype == jnp.int32
        assert x["known"].dtype == jnp.int32
        return {"y": x["count"] * x["share"], "z": x["level"] + x["box"][0] * x["known"][1]}

    draws = nuq.monte_carlo(net, f, KEY, 50_000, progress=False)
    assert draws.shape == (50_000, 4)
    # Of a sum in which z is 3 b + e^(n/2), and products of independent factors.
    expected = [3 * 1 / 6, 3 * 2 / 6, 3 * 3 / 6, 3 + np.exp(0.125)]
    error = draws.std(axis=0) / np.sqrt(len(draws))
    assert (np.abs(draws.mean(axis=0) - expected) <= 5 * error).all()
    found = nuq.monte_carlo_statistics(net, f, KEY, 50_000, progress=False)
    np.testing.assert_allclose(found.mean, draws.mean(axis=0), rtol=1e-4)
    with pytest.raises(TypeError, match=r"f\['count'\] must be of a supported family, got Poisson"):
        nuq.linearize(net, f)


@pytest.mark.slow
def test_batches_of_any_distribution():
    f = [dist.Dirichlet(jnp.ones((4, 3))), dist.Bernoulli(0.5)]
    draws = nuq.monte_carlo(lambda x: x[0] * (1 + x[1]), f, KEY, 1000, progress=False)
    assert draws.shape == (1000, 4, 3)
    np.testing.assert_allclose(draws.mean(axis=0), np.full((4, 3), 0.5), atol=0.08)
    again = nuq.monte_carlo(
        lambda x: x[0] * (1 + x[1]), f, KEY, 1000, batch_size=100, progress=False
    )
    np.testing.assert_allclose(again, draws, rtol=1e-5)


def test_a_mixture_is_drawn_from():
    mixture = dist.MixtureSameFamily(
        dist.Categorical(jnp.array([0.3, 0.7])), dist.Normal(jnp.array([-1.0, 2.0]), 0.1)
    )
    draws = nuq.monte_carlo(lambda x: x, mixture, KEY, 10_000, progress=False)
    assert draws.mean() == pytest.approx(1.1, abs=5 * 1.4 / 100)


def test_errors():
    with pytest.raises(ValueError, match=r"f must be .* got batch_shape \(3,\) .* call .to_event"):
        nuq.monte_carlo(jnp.sum, dist.Poisson(jnp.ones(3)), KEY, 10)
    with pytest.raises(TypeError, match="f must have a method sample that works, got NotImpl"):
        nuq.monte_carlo(jnp.sum, dist.Distribution((), (2,)), KEY, 10)
