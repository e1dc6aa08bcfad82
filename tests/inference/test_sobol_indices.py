"""Sobol indices of networks against closed forms, and their standard errors against repetitions."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
import scipy.stats

import nn_uq_dist as nuq
from tests.counting import CountedNetwork

KEY = jax.random.key(0)
CUBE = nuq.Input.box(jnp.zeros(3), half_width=jnp.pi)


def found(network, f, key=KEY, **kwargs):
    return nuq.sobol_indices(network, f, key, progress=False, **kwargs)


def ishigami(x):
    sine = jnp.sin(x)
    return (sine[0] + 7 * sine[1] ** 2 + 0.1 * x[2] ** 4 * sine[0])[None]


# Variances of the effects of Ishigami's function with a = 7 and b = 0.1.
ALONE = np.array([0.5 * (1 + 0.1 * np.pi**4 / 5) ** 2, 49 / 8, 0.0])
TOGETHER = 0.01 * np.pi**8 * (1 / 18 - 1 / 50)
FIRST = ALONE / (ALONE.sum() + TOGETHER)
TOTAL = (ALONE + TOGETHER * np.array([1, 0, 1])) / (ALONE.sum() + TOGETHER)


def assert_right(result, first, total, outputs=slice(None)):
    """Within four standard errors: an index is wrong once in 16,000 right programs."""
    for name, truth in (("first_order", first), ("total", total)):
        value, error = (getattr(result, part)[outputs] for part in (name, f"{name}_error"))
        assert np.all(np.abs(value - truth) <= 4 * error + 1e-6)


def test_ishigami():
    np.testing.assert_allclose(FIRST, [0.3139, 0.4424, 0], atol=1e-4)
    np.testing.assert_allclose(TOTAL, [0.5576, 0.4424, 0.2437], atol=1e-4)
    result = found(ishigami, CUBE, num_runs=100_000)
    assert result.num_runs == 100_000
    assert result.total.shape == result.total_error.shape == (1, 3)
    assert_right(result, FIRST, TOTAL)
    assert result.first_order_error.max() < 0.01
    assert result.total_error.max() < 0.01


def test_runs_are_what_the_network_computes():
    network = CountedNetwork(ishigami)
    result = found(network, CUBE, num_runs=10_007)
    assert 9990 < result.num_runs == network.count <= 10_007


@pytest.mark.slow
def test_errors_are_those_of_repetitions():
    results = [found(ishigami, CUBE, jax.random.key(i), num_runs=2500) for i in range(200)]
    for name, truth in (("first_order", FIRST), ("total", TOTAL)):
        value = np.array([getattr(result, name)[0] for result in results])
        error = np.array([getattr(result, f"{name}_error")[0] for result in results])
        # The ratio of the spread and the mean error is known to 5%: 4 standard errors, and that of
        # a mean over 200 keys is a fourteenth of the spread.
        np.testing.assert_allclose(error.mean(axis=0) / value.std(axis=0), 1, atol=0.22)
        assert np.all(np.abs(value.mean(axis=0) - truth) < 4 * value.std(axis=0) / 200**0.5)
        # 95% are expected; fewer than 88% of 200 have a chance below 1e-4.
        assert np.all((np.abs(value - truth) < 1.96 * error).mean(axis=0) > 0.88)


def test_linear_network_has_shares_of_variance():
    matrix = np.array([[1.0, -2.0, 0.5, 3.0], [0.0, 1.0, 0.0, 3.0], [0.0, 0.0, 0.0, 4.0]])
    f = nuq.Input.box(jnp.full(4, 1e3), [1.0, 0.5, 2.0, 0.0]) + nuq.Input.normal(
        jnp.zeros(4), [0.5, 0.3, 0.0, 0.0]
    )
    parts = matrix[:2] ** 2 * np.asarray(f.variance)
    shares = parts / parts.sum(axis=1, keepdims=True)
    with pytest.warns(RuntimeWarning, match=r"outputs y\[2\] are the same in all runs"):
        result = found(lambda x: jnp.asarray(matrix) @ (x - 1e3), f)
    assert_right(result, shares, shares, outputs=slice(2))
    # The last output is constant, the last input known, and the second output is of the second.
    assert np.all(np.isnan(result.total[2]))
    assert np.all(result.total[:2, 3] == 0)
    assert np.all(result.total_error[:2, 3] == 0)
    np.testing.assert_allclose(result.first_order[1], [0, 1, 0, 0], atol=0.01)


def test_inputs_and_outputs_have_names():
    pitch = dist.LogNormal(jnp.zeros(2), 0.3).to_event(1)
    f = {"wind": dist.Normal(8.0, 0.5), "pitch": pitch, "gain": 2.0}
    result = found(lambda x: {"power": x["gain"] * x["wind"], "load": x["pitch"]}, f, num_runs=1000)
    assert result.input_names == ["pitch[0]", "pitch[1]", "wind"]
    assert result.output_names == ["load[0]", "load[1]", "power"]
    assert_right(result, np.eye(3), np.eye(3))
    assert repr(result) == "SobolIndices(num_outputs=3, num_groups=3, num_runs=1000)"
    assert (
        f"{result.input_names[1]} {result.first_order[0, 1]:.3g}".split()
        == (str(result).splitlines()[2].split()[:2])
    )


def test_dependent_inputs_are_one_group():
    factor = np.diag([1.0, 1.0, 1.2, 3**0.5])
    factor[2, 0] = 0.6  # the third depends on the first
    result = found(
        lambda x: x.sum(keepdims=True), nuq.Input.normal(jnp.zeros(4), scale_tril=factor)
    )
    assert result.input_names == ["f[0], f[2]", "f[1]", "f[3]"]
    shares = np.array([[4.0, 1.0, 3.0]]) / 8
    assert_right(result, shares, shares)
    together = dist.MultivariateNormal(jnp.zeros(4), jnp.eye(4) + 1.0)
    f = {"image": together, "gain": dist.Uniform(1.0, 2.0)}
    names = found(lambda x: x["image"] * x["gain"], f, num_runs=400).input_names
    assert names == ["gain", "image[0], ..., image[3]"]


def test_errors_that_few_draws_tell_are_nan():
    """Of a rare event few draws have the variance; the index of a part of it rests on fewer."""
    f = nuq.Input.normal(jnp.zeros(2), 1.0)

    def network(x):
        return jnp.stack([jnp.where(x.sum() > limit, 1.0, 0.0) for limit in (2.0, 4.0)])

    with pytest.warns(RuntimeWarning, match=r"carry the variance of outputs y\[1\] \(\d+\)"):
        result = found(network, f, num_runs=5000)
    assert np.isnan(result.first_order_error[1]).all()
    assert np.isnan(result.total_error[1]).all()
    # P(x0 + x1 > 2 | x0) is the distribution function of x0 - 2: a quadrature.
    score = np.linspace(-8, 8, 4001)
    density = scipy.stats.norm.pdf(score) * (score[1] - score[0])
    share = scipy.stats.norm.sf(2.0, scale=2**0.5)
    exact = (density @ scipy.stats.norm.cdf(score - 2) ** 2 - share**2) / (share * (1 - share))
    assert (np.abs(result.first_order[0] - exact) < 4 * result.first_order_error[0]).all()


def test_outputs_that_are_not_finite_do_not_touch_others():
    with pytest.warns(RuntimeWarning, match="of 5000 network outputs drawn are NaN or infinite"):
        result = found(lambda x: jnp.stack([jnp.log(x[0]), x[1]]), CUBE, num_runs=2500)
    assert np.all(np.isnan(result.total[0]))
    assert_right(result, [[0, 1, 0]], [[0, 1, 0]], outputs=slice(1, 2))


WRONG = [
    ({"num_runs": 499}, "num_runs must be at least 500"),
    ({"key": 3}, "key"),
    ({"f": nuq.Input.box(jnp.zeros(3), 0.0)}, "f must be random"),
    ({"f": nuq.Input.box(jnp.zeros((2, 3)), 1.0)}, "f must be one input"),
    ({"network": 3}, "network"),
]


def test_wrong_arguments_are_named():
    for wrong, message in WRONG:
        arguments = {"network": ishigami, "f": CUBE, "key": KEY} | wrong
        with pytest.raises((TypeError, ValueError), match=message):
            nuq.sobol_indices(**arguments, progress=False)
    with pytest.raises(TypeError, match="call sobol_indices outside of jit"):
        jax.jit(lambda key: nuq.sobol_indices(ishigami, CUBE, key).total)(KEY)
