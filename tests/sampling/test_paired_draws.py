"""`paired_draws`: the inputs of `monte_carlo`, Sobol points, noise, tracing, errors."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy import stats

from nn_uq_dist import Input, Linearization, linearize, monte_carlo, paired_draws

KEY = jax.random.key(0)
MATRIX = np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32)
FACTOR = np.array([[1.0, 0, 0], [0.5, 0.6, 0], [-0.3, 0.2, 0.4]], np.float32)
CENTER = np.array([0.3, -0.2, 0.1], np.float32)
LAWS = {
    "box": Input.box(CENTER, [0.5, 1.0, 0.2]),
    "factor": Input.normal(CENTER, scale_tril=FACTOR),
    "box and factor": Input.box(CENTER, 0.7) + Input.normal(0 * CENTER, scale_tril=FACTOR),
    "sum": Input.box(CENTER, 0.7) + Input.box(np.zeros(3, np.float32), 0.3),
}


def net(x):
    return jnp.tanh(MATRIX @ x)


def pair(num_samples, distribution=LAWS["box"], *, net=net, key=KEY, **options):
    return paired_draws(
        net, linearize(net, distribution), key, num_samples, progress=False, **options
    )


def test_inputs_and_outputs_are_those_of_monte_carlo():
    distribution = LAWS["box and factor"]
    pairs = pair(5000, distribution)
    inputs = monte_carlo(lambda x: x, distribution, KEY, 5000, progress=False)
    # Other programs may round their last bits otherwise.
    np.testing.assert_allclose(pairs.inputs, inputs, rtol=1e-6, atol=1e-6)
    outputs = monte_carlo(net, distribution, KEY, 5000, progress=False)
    np.testing.assert_allclose(pairs.network, outputs, rtol=1e-5, atol=1e-5)


def test_both_outputs_are_of_the_same_inputs():
    lin = linearize(net, LAWS["box"])
    pairs = paired_draws(net, lin, KEY, 500, progress=False)
    assert all(isinstance(a, np.ndarray) for a in (pairs.inputs, pairs.network, pairs.linear))
    np.testing.assert_allclose(pairs.network, np.tanh(pairs.inputs @ MATRIX.T), atol=3e-6)
    tangent = np.asarray(lin.loc) + (pairs.inputs - CENTER) @ np.asarray(lin.jacobian).T
    np.testing.assert_allclose(pairs.linear, tangent, atol=3e-6)
    assert (pairs.num_samples, pairs.num_randomizations) == (500, 0)


def test_pairs_do_not_depend_on_the_batch_size():
    f = Input.box(np.zeros((2, 3), np.float32), 0.1)
    some, one = (pair(1000, f, batch_size=b, points="sobol") for b in (300, None))
    assert some.network.shape == some.linear.shape == (1000, 2, 4)
    for name in ("inputs", "network", "linear"):
        np.testing.assert_allclose(getattr(some, name), getattr(one, name), rtol=1e-6, atol=1e-6)


SOBOL = {
    "factor": (FACTOR @ FACTOR.T, stats.norm(CENTER[0], 1.0)),
    "sum": ((0.49 + 0.09) / 3 * np.eye(3), stats.trapezoid(0.3, 0.7, CENTER[0] - 1.0, 2.0)),
}


@pytest.mark.parametrize("name", SOBOL)
def test_sobol_inputs_follow_the_distribution(name):
    (variance, marginal), count = SOBOL[name], 4096
    pairs = pair(count, LAWS[name], points="sobol", num_randomizations=8)
    inputs = np.asarray(pairs.inputs, np.float64)
    # Moments as the families define them; the tolerances are a third of what independent points
    # would scatter (of the distance, half of its mean).
    plain = np.sqrt(np.diag(variance) / count)
    assert (np.abs(inputs.mean(axis=0) - CENTER) < 0.3 * plain).all()
    np.testing.assert_allclose(np.cov(inputs.T), variance, atol=8e-3 * variance.max())
    distance = stats.kstest(inputs[:, 0], marginal.cdf).statistic
    assert distance < 0.5 * stats.kstwobign.mean() / np.sqrt(count)


def test_sobol_sequences_are_independent_and_the_draws_of_a_key():
    pairs = pair(64, points="sobol", num_randomizations=4)
    sequences = np.split(pairs.inputs, 4)
    other = pair(64, key=jax.random.key(1), points="sobol", num_randomizations=4)
    others = [*sequences[1:], other.inputs[:16]]
    assert not any(np.array_equal(sequences[0], another) for another in others)
    # Each sequence has one point in each 16th of the box.
    for part in sequences:
        cells = np.floor((part - (CENTER - [0.5, 1.0, 0.2])) / [1.0, 2.0, 0.4] * 16)
        assert (np.sort(cells, axis=0) == np.arange(16)[:, None]).all()


@pytest.mark.slow
def test_traced_distributions_have_the_known_inputs_and_derivatives():
    def pairs_of(half_width):
        return pair(64, Input.box(CENTER, half_width), points="sobol")

    known, traced = pairs_of(0.5), jax.jit(pairs_of)(0.5)
    for name in ("inputs", "network", "linear"):
        np.testing.assert_allclose(getattr(traced, name), getattr(known, name), atol=2e-6)
    # Common random numbers: the inputs are the mean plus the half-width times the same uniforms.
    slope = jax.jacfwd(lambda b: pairs_of(b).inputs)(0.5)
    np.testing.assert_allclose(slope, (known.inputs - CENTER) / 0.5, atol=3e-6)


def test_outputs_that_are_not_finite_are_reported_and_kept():
    lin = linearize(lambda x: x, LAWS["box"])
    with pytest.warns(RuntimeWarning, match="of 3000 network outputs drawn are NaN or infinite"):
        pairs = paired_draws(jnp.log, lin, KEY, 1000, progress=False)
    np.testing.assert_array_equal(np.isfinite(pairs.network), pairs.inputs > 0)
    assert np.isfinite(pairs.linear).all()


WIDE = Linearization(jnp.zeros(1), jnp.ones((1, 21_202)), Input.box(jnp.zeros(21_202), 1.0))
WRONG = [
    ({"linearization": LAWS["box"]}, TypeError, "linearization must be a Linearization"),
    ({"num_randomizations": 7}, ValueError, "num_randomizations must be None for random points"),
    ({"points": "halton"}, ValueError, "points must be 'random' or 'sobol'"),
    ({"points": "sobol", "num_samples": 101}, ValueError, "num_samples must be a multiple .* 96"),
    ({"points": "sobol", "num_randomizations": 0}, ValueError, "num_randomizations must be a pos"),
    ({"network": lambda x: x}, ValueError, "network must have the 4 outputs .* got 3"),
    (
        {"network": lambda x: x[:1], "linearization": WIDE, "points": "sobol"},
        ValueError,
        "21201 random variables, got 21202",
    ),
]


def test_wrong_arguments_are_named():
    lin = linearize(net, LAWS["box"])
    right = {"network": net, "linearization": lin, "key": KEY, "num_samples": 16}
    for wrong, error, message in WRONG:
        with pytest.raises(error, match=message):
            paired_draws(**right | wrong)
    with pytest.raises(TypeError, match="key must be known for points='sobol', got a traced one"):
        jax.jit(lambda key: pair(16, key=key, points="sobol").network)(KEY)


def test_inputs_are_what_the_network_takes():
    f = {"a": dist.LogNormal(jnp.zeros(2), 0.5).to_event(1), "k": 2}

    def network(x):
        return x["a"] * x["k"]

    pairs = paired_draws(network, linearize(network, f), KEY, 16, progress=False)
    assert isinstance(pairs.inputs["a"], np.ndarray)
    assert pairs.inputs["k"].shape == (16,)
    np.testing.assert_allclose(pairs.network, network(pairs.inputs | {"k": 2}), rtol=1e-6)
    np.testing.assert_allclose(np.exp(0.5 * pairs.base_inputs), pairs.inputs["a"], rtol=1e-5)
