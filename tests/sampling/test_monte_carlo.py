"""`monte_carlo`: the draws, and errors."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy import stats

from nn_uq_dist import Input, linearize, monte_carlo
from tests.counting import CountedNetwork

KEY = jax.random.key(0)
MATRIX = np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32)
BOX = Input.box(np.array([0.3, -0.2, 0.1], np.float32), 0.5)


def network(x):
    return jnp.tanh(MATRIX @ x)


def draw(num_samples, **options):
    options = {"progress": False, "f": BOX, "network": network, "key": KEY} | options
    return monte_carlo(num_samples=num_samples, **options)


def test_outputs_are_those_of_the_drawn_inputs():
    of_batch = draw(10, f=Input.box(np.zeros((2, 3, 3), np.float32), 0.1))
    assert isinstance(of_batch, np.ndarray)
    assert (of_batch.shape, of_batch.dtype) == ((10, 2, 3, 4), np.float32)
    inputs = draw(500, network=lambda x: x)
    assert (np.abs(inputs - np.asarray(BOX.mean)) <= 0.5).all()
    np.testing.assert_allclose(draw(500), np.tanh(inputs @ MATRIX.T), rtol=1e-4, atol=1e-6)


def test_draws_do_not_depend_on_how_many_come_at_a_time():
    some = draw(5001, batch_size=1000)
    np.testing.assert_allclose(some, draw(5001), atol=1e-6)
    np.testing.assert_allclose(some[:100], draw(100), atol=1e-6)


def test_batches_are_equal():
    network = CountedNetwork(jnp.tanh)
    draw(10_001, network=network)
    assert 10_001 <= network.count <= 10_003


def test_progress_bar(bars):
    draw(100, progress=True)
    draw(100)
    assert [bar.n for bar in bars] == [100, 0]


def test_keys():
    np.testing.assert_array_equal(draw(100, key=jax.random.key_data(KEY)), draw(100))
    assert not np.array_equal(draw(100, key=jax.random.key(1)), draw(100))
    identity = {"network": lambda x: x, "key": jax.random.key(0, impl="rbg")}
    some = draw(100, batch_size=7, **identity)
    np.testing.assert_allclose(some, draw(200, **identity)[:100], atol=1e-6)


def test_draws_are_independent_and_follow_the_distribution():
    distribution = Input.box(np.zeros(2, np.float32), [1.0, 0.0]) + Input.normal(
        np.zeros(2, np.float32), scale_tril=[[0.0, 0.0], [0.0, 2.0]]
    )
    draws = draw(50_000, f=distribution, network=lambda x: x)
    # Fixed key; each test fails for 1 key in 1000.
    assert stats.kstest(draws[:, 0], stats.uniform(-1, 2).cdf).pvalue > 1e-3
    assert stats.kstest(draws[:, 1], stats.norm(0, 2).cdf).pvalue > 1e-3
    for pair in [(draws[:, 0], draws[:, 1]), (draws[:-1, 0], draws[1:, 0])]:
        assert stats.pearsonr(*pair).pvalue > 1e-3


@pytest.mark.slow
def test_distributions_without_an_input_distribution_are_drawn_from():
    f = {
        "count": dist.Poisson(3.0),
        "share": dist.Dirichlet(jnp.array([1.0, 2.0, 3.0])),
        "level": dist.LogNormal(0.0, 0.5),
        "box": Input.box([1.0], half_width=0.5),
        "known": np.array([2, 3]),
    }

    def net(x):
        assert x["count"].dtype == jnp.int32
        assert x["known"].dtype == jnp.int32
        return {"y": x["count"] * x["share"], "z": x["level"] + x["box"][0] * x["known"][1]}

    draws = draw(50_000, f=f, network=net)
    assert draws.shape == (50_000, 4)
    # Of a sum in which z is 3 b + e^(n/2), and products of independent factors.
    expected = [3 * 1 / 6, 3 * 2 / 6, 3 * 3 / 6, 3 + np.exp(0.125)]
    error = draws.std(axis=0) / np.sqrt(len(draws))
    assert (np.abs(draws.mean(axis=0) - expected) <= 5 * error).all()
    with pytest.raises(TypeError, match=r"f\['count'\] must be of a supported family, got Poisson"):
        linearize(net, f)


def test_nonfinite_outputs_are_counted_and_reported():
    def partial(x):
        return jnp.stack([jnp.sqrt(x[0]), x[0], x[0] * jnp.nan, 1 / jnp.maximum(x[0], 0)])

    distribution = Input.box(np.zeros(1, np.float32), 1.0)
    with pytest.warns(RuntimeWarning, match="of 20000 network outputs drawn are NaN or infinite"):
        draws = draw(5000, f=distribution, network=partial)
    assert np.isfinite(draws[:, 1]).all()
    assert np.isnan(draws[:, 2]).all()


WRONG = [
    ({"num_samples": 0}, ValueError, "num_samples must be a positive integer, got 0"),
    ({"num_samples": 1e3}, TypeError, "num_samples must be a positive integer, got float"),
    ({"num_samples": 2**31 + 1}, ValueError, "num_samples must be at most 2147483648"),
    ({"batch_size": 0}, ValueError, "batch_size must be a positive"),
    ({"f": "normal"}, TypeError, "got str"),
    ({"f": dist.Gamma(np.ones(3), 1.0)}, ValueError, r"got batch_shape \(3,\)"),
]


def test_wrong_arguments_are_named():
    for wrong, error, message in WRONG:
        with pytest.raises(error, match=message):
            draw(**{"num_samples": 10} | wrong)
    with pytest.raises(TypeError, match="f and key must hold numbers, got traced values"):
        jax.jit(lambda key: draw(10, key=key))(KEY)
    with pytest.raises(TypeError, match="the network must hold numbers, got outputs with traced"):
        jax.grad(lambda a: draw(10, network=lambda x: a * x).sum())(1.0)
