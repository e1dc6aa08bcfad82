"""The estimate of a final sample for half-lines, how far its search reaches, and its bounds."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import norm

import nn_uq_dist as nuq
from nn_uq_dist.inference._failure_estimate import FinalSample, reach
from nn_uq_dist.inference._limit_state import Limits
from nn_uq_dist.inference._normal_mixture import Normal, NormalMixture, Wedge
from nn_uq_dist.inference._standard_space import StandardSpace
from nn_uq_dist.sampling.flat_network import flat_network

LIMITS = np.array([3.0, -2.0])
MIXTURE = NormalMixture(
    (
        Normal.around(np.zeros(1)),
        Normal.around(np.zeros(1), 4.0),
        Wedge(np.ones((1, 1)), np.array([3.0])),
    ),
    np.array([0.4, 0.2, 0.4]),
)


def sample(control, nan_below=-np.inf):
    flat = flat_network(
        lambda x: jnp.where(x < nan_below, jnp.nan, x), nuq.Input.normal(jnp.zeros(1), 1.0)
    )
    limits = Limits(flat, LIMITS, 0, True)
    space = StandardSpace(flat, limits.read, 6000)
    final = FinalSample(space, limits, np.asarray(control), np.array([[3.001], [np.nan]]))
    for _ in range(3):
        final.draw(MIXTURE, 2000, np.random.default_rng(final.count))
    return final


@pytest.mark.parametrize("control", [[0.0, 0.0], [0.0, 0.97]])
def test_estimate_and_error(control):
    final, expected = sample(control), norm.sf(LIMITS)
    assert np.all(abs(final.probability - expected) < 4 * final.standard_error)
    assert final.standard_error[0] < 0.02 * expected[0]
    # With a control what does not fail is counted, which is seldom.
    assert (final.standard_error[1] < 0.005) == (control[1] > 0)
    assert final.count == 6000
    assert final.num_plain == 2400
    assert final.plain_hits == pytest.approx(2400 * expected, abs=4 * 8)


def test_nan_is_counted_with_its_weight():
    final = sample([0.0, 0.0], nan_below=-1.0)
    assert final.nan_weight / final.count == pytest.approx(norm.cdf(-1.0), abs=0.02)
    assert 0 < final.num_nan < 6000


LINE = nuq.Input.normal(jnp.zeros(1), 1.0)


def found(network, limit, **kwargs):
    return nuq.failure_probability(
        network, LINE, jax.random.key(0), limit, progress=False, **kwargs
    )


def test_reach_is_missed_by_one_search_in_a_hundred():
    # 8% of the runs are first draws, a fifth of them with each of the spreads; of six rounds of
    # 4.5% and of the final draws 4% are wide.
    each = 160 + 0.04 * (6 * 450 + 5000) / 3
    at = reach(10_000, 5000)
    none = [(1 - norm.sf(at / spread)) ** each for spread in (1.75, 2.5, 3.5)]
    assert np.prod(none) == pytest.approx(0.01, rel=0.1)
    assert 7.2 < at < 7.6
    distances = [reach(10**k, 6 * 10 ** (k - 1)) for k in range(3, 11)]
    assert np.all(np.diff(distances) > 1)


@pytest.mark.slow
def test_bounds_over_limits():
    # In no order; one is always exceeded, one never.
    limits = np.array([2.0, 4.5, 3.0, 0.0, -9.0, 30.0])
    result = found(lambda x: x, limits)
    off = np.abs(result.probability - norm.sf(limits))
    assert np.all(off[:5] < 4 * result.standard_error[:5])
    order = np.argsort(limits)
    for bound in (result.upper_bound, result.plain_bound):
        assert np.all(np.diff(bound[order]) <= 0)
        assert np.all(bound >= result.probability)
        assert np.all(bound >= norm.sf(limits) * (1 - 1e-9))
    assert not result.converged[5]


def test_few_plain_draws_do_not_say_more():
    result = found(lambda x: x, 4.0)
    assert result.converged
    assert result.upper_bound < 1.2 * norm.sf(4.0)
    assert 1e-3 < result.plain_bound < 0.1
