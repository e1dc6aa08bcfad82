"""The estimate of a final sample, against the probabilities of half-lines."""

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import norm

import nn_uq_dist as nuq
from nn_uq_dist.inference._final_sample import FinalSample
from nn_uq_dist.inference._limits import Limits
from nn_uq_dist.inference._mixture import HalfSpace, Normal, NormalMixture
from nn_uq_dist.inference._standard_space import StandardSpace
from nn_uq_dist.inputs.flat_network import flat_network

LIMITS = np.array([3.0, -2.0])
MIXTURE = NormalMixture(
    (Normal.standard(1), Normal.standard(1, 4.0), HalfSpace(np.ones(1), 3.0)),
    np.array([0.4, 0.2, 0.4]),
)


def sample(control, nan_below=-np.inf):
    flat = flat_network(
        lambda x: jnp.where(x < nan_below, jnp.nan, x), nuq.Input.normal(jnp.zeros(1), 1.0)
    )
    limits = Limits(flat, LIMITS, 0, True)
    space = StandardSpace(flat, limits.read)
    final = FinalSample(space, limits, np.asarray(control))
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


def test_failing_draws_have_the_mean_beyond_the_limit():
    z, weights = sample([0.0, 0.0]).failing_draws()
    np.testing.assert_allclose(weights.sum(axis=1), 1)
    means = weights @ z[:, 0]
    np.testing.assert_allclose(means, norm.pdf(LIMITS) / norm.sf(LIMITS), atol=0.05)
    assert np.all(weights[0, z[:, 0] <= 3] == 0)


def test_nan_is_counted_with_its_weight():
    final = sample([0.0, 0.0], nan_below=-1.0)
    assert final.nan_weight / final.count == pytest.approx(norm.cdf(-1.0), abs=0.02)
    assert 0 < final.num_nan < 6000
