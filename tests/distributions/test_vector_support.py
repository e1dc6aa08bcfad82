"""Supports of laws of adapted families: their ends, bijections onto them, where NUTS starts."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.distributions.transforms import biject_to
from numpyro.infer.util import initialize_model

import nn_uq_dist as nuq

KEY = jax.random.key(0)
# Each with the ends of its support.
FAMILIES = {
    "gamma": (lambda: dist.Gamma(2.0, 1.0), 0, np.inf),
    "beta": (lambda: dist.Beta(2.0, 3.0), 0, 1),
    "truncated on the left": (lambda: dist.TruncatedNormal(0.0, 1.0, low=-1.0), -1, np.inf),
    "truncated on the right": (lambda: dist.TruncatedNormal(0.0, 1.0, high=2.0), -np.inf, 2),
    "truncated": (lambda: dist.TruncatedNormal(0.0, 1.0, low=-1.0, high=2.0), -1, 2),
    "uniform": (lambda: dist.Uniform(0.0, 2.0), 0, 2),
    "normal": (lambda: dist.Normal(0.0, 1.0), -np.inf, np.inf),
}
# The map 2 x + 1.
KNOTS = jnp.array([0.2, 0.5, 0.8])


def corrected(base):
    return nuq.distributions.CorrectedMarginal(base, KNOTS, 2 * KNOTS + 1, [2.0, 2.0, 2.0])


@pytest.mark.parametrize("name", FAMILIES)
def test_support_of_an_adapted_family(name):
    make, low, high = FAMILIES[name]
    law = corrected(make())
    low, high = 2 * low + 1, 2 * high + 1
    support = law.support
    assert getattr(support, "lower_bound", -np.inf) == pytest.approx(low, abs=1e-6)
    assert getattr(support, "upper_bound", np.inf) == pytest.approx(high, abs=1e-6)
    assert support(law.sample(KEY, (100,))).all()
    reached = np.sort(biject_to(support)(jnp.array([-15.0, 0.0, 15.0])))
    assert reached[0] == pytest.approx(low, abs=1e-4) or (low == -np.inf and reached[0] < -10)
    assert reached[2] == pytest.approx(high, abs=1e-4) or (high == np.inf and reached[2] > 10)
    assert low < reached[1] < high

    def model():
        numpyro.sample("y", law)

    start = initialize_model(KEY, model).param_info
    assert np.isfinite(start.potential_energy)
    assert np.isfinite(start.z_grad["y"])


def test_ends_of_a_batch():
    high = jnp.array([1.0, 3.0])
    law = corrected(dist.TruncatedNormal(0.0, 1.0, high=high))
    np.testing.assert_allclose(law.support.upper_bound, 2 * high + 1, rtol=1e-6)
    at_ends = biject_to(law.support)(jnp.full(2, -20.0))
    np.testing.assert_allclose(at_ends, 2 * high + 1, rtol=1e-5)
    joint = nuq.GaussianCopulaJoint(law, jnp.eye(2))
    np.testing.assert_allclose(biject_to(joint.support)(jnp.full(2, -20.0)), at_ends, rtol=1e-6)
