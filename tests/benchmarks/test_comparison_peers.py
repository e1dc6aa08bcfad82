"""The peers of `bench_comparison` are right where the answer is known, else the table is biased.

Those of OpenTURNS, which the tests do not install, are checked by the benchmark itself.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

import nn_uq_dist as nuq
from tests.benchmarks import _comparison_peers as peers
from tests.benchmarks._comparison_functions import Layer, TestFunction, functions

pytestmark = pytest.mark.usefixtures("x64")
LEVELS = np.array([0.01, 0.3, 0.5, 0.9, 0.999])


def networks():
    rng = np.random.default_rng(3)
    first, last = rng.normal(size=(5, 3)), rng.normal(size=(2, 5))
    return (
        Layer(jnp.asarray(first), jnp.asarray(rng.normal(size=5)), jnp.tanh),
        Layer(jnp.asarray(last), jnp.zeros(2), lambda h: h),
    )


@pytest.mark.slow
def test_second_order_is_exact_for_a_square():
    f = nuq.Input.normal(jnp.zeros(3), 1.0)
    cdf = peers.second_order(lambda x: jnp.sum(x**2, keepdims=True), f, jax.random.key(0))
    distribution = scipy.stats.chi2(3)
    # Five standard errors of an empirical distribution function of 200,000 draws.
    np.testing.assert_allclose(cdf(distribution.ppf(LEVELS)[:, None])[:, 0], LEVELS, atol=0.0056)


def test_stable_propagation_with_covariances_is_the_delta_method():
    f = nuq.Input.box(jnp.array([0.3, -0.2, 0.5]), half_width=0.4)
    case = TestFunction("", networks(), f)
    found = peers.stable_propagation(case.layers, f, full=True)
    linear = nuq.linearize(case.network, f)
    np.testing.assert_allclose(found.mean, linear.mean, rtol=1e-12)
    np.testing.assert_allclose(found.covariance, linear.covariance, rtol=1e-12)


def test_stable_propagation_of_independent_neurons_is_right_where_they_are():
    f = nuq.Input.normal(jnp.array([0.3, -0.2]), jnp.array([0.1, 0.4]))
    layers = [Layer(jnp.diag(jnp.array([2.0, -1.0])), jnp.zeros(2), jnp.tanh)] * 2
    found = peers.stable_propagation(layers, f, full=False)
    linear = nuq.linearize(TestFunction("", tuple(layers), f).network, f)
    np.testing.assert_allclose(found.covariance, linear.covariance, rtol=1e-12)


def test_kernel_and_spline_of_normal_quantiles_are_near_the_normal_distribution():
    draws = scipy.stats.norm.ppf((np.arange(1000) + 0.5) / 1000)[:, None]
    values = scipy.stats.norm.ppf(LEVELS)[:, None]
    # The kernel adds the square of its width, 1000^(-1/5), to the variance.
    width = 1000 ** (-0.2) * draws.std(ddof=1)
    wider = scipy.stats.norm.cdf(values / np.hypot(1, width))
    np.testing.assert_allclose(peers.kernel(draws)(values), wider, atol=1e-3)
    np.testing.assert_allclose(peers.spline(draws)(values), LEVELS[:, None], atol=5e-4)


@pytest.mark.slow
def test_five_functions_have_three_outputs_and_their_single_ones():
    for case in functions():
        outputs = case.network(case.f.mean)
        assert outputs.shape == (3,)
        at_center = case.output(1).at_scores(jnp.zeros(case.f.num_inputs))
        np.testing.assert_allclose(at_center, outputs[1], rtol=1e-12)
