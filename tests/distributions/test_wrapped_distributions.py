"""Distributions inside NumPyro's wrappers.

The distribution of two weights is a trapezoid, which SciPy has.
"""

from functools import partial

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro.distributions import constraints
from numpyro.distributions.transforms import AffineTransform, ExpTransform, biject_to

from nn_uq_dist import GaussianCopulaJoint, LinearizedJoint, LinearizedMarginal
from tests.distributions.test_models import KEY, WEIGHTS, trapezoid

MARGINAL = LinearizedMarginal(2.0, WEIGHTS)


@pytest.mark.parametrize(
    ("transform", "forward", "log_slope"),
    [
        (partial(AffineTransform, 1.0, -2.0), lambda x: 1 - 2 * x, lambda x: np.log(2.0)),
        (ExpTransform, np.exp, lambda x: x),
    ],
)
def test_transformed(transform, forward, log_slope):
    distribution = dist.TransformedDistribution(MARGINAL, transform(domain=MARGINAL.support))
    reference, x = trapezoid(2.0), np.array([0.7, 1.8, 3.3])
    y = jnp.asarray(forward(x), jnp.float32)
    expected = reference.logpdf(x) - log_slope(x)
    np.testing.assert_allclose(distribution.log_prob(y), expected, rtol=1e-4)
    below = reference.cdf(x) if transform is ExpTransform else reference.sf(x)
    np.testing.assert_allclose(distribution.cdf(y), below, rtol=1e-4)
    np.testing.assert_allclose(distribution.icdf(jnp.asarray(below, jnp.float32)), y, rtol=1e-4)
    # With the domain given, samplers know where the density ends; without it they do not.
    ends = forward(np.array([0.5, 3.5]))
    reached = biject_to(distribution.support)(jnp.array([-30.0, 30.0]))
    np.testing.assert_allclose(reached, np.sort(ends), rtol=1e-5, atol=1e-5)
    unaware = dist.TransformedDistribution(MARGINAL, transform())
    with pytest.warns(UserWarning, match="Out-of-support values"):
        assert unaware.log_prob(jnp.asarray(forward(3.6), jnp.float32)) == -np.inf


@pytest.mark.parametrize(
    ("batch_shape", "of_transform"), [((), "support"), ((3,), "support of one output")]
)
@pytest.mark.parametrize(
    "base",
    [
        LinearizedMarginal(np.zeros(2), np.diag(WEIGHTS)).to_event(1),
        LinearizedJoint(np.zeros(2), np.diag(WEIGHTS)),
        GaussianCopulaJoint(LinearizedMarginal(np.zeros(2), np.diag(WEIGHTS)), np.eye(2)),
    ],
    ids=["event", "joint", "copula"],
)
def test_transformed_events(base, of_transform, batch_shape):
    base = base.expand(batch_shape)
    domain = base.support if of_transform == "support" else base.support.entry
    transform = [AffineTransform(1.0, -2.0, domain=domain), ExpTransform()]
    distribution = dist.TransformedDistribution(base, transform)
    assert (distribution.batch_shape, distribution.event_shape) == (batch_shape, (2,))
    # Uniform on a rectangle of 2 by 1.
    y = np.array([[0.3, 0.2], [-0.5, 0.1], [0.7, -0.4]])[: 3 if batch_shape else 1].squeeze()
    expected = -np.log(2.0) - np.sum(np.log(2.0) + 1 - 2 * y, axis=-1)
    np.testing.assert_allclose(distribution.log_prob(jnp.exp(1 - 2 * y)), expected, rtol=1e-4)


def test_censored():
    reference = trapezoid(2.0)
    right = dist.RightCensoredDistribution(MARGINAL, np.array(1)).log_prob(jnp.array(3.3))
    np.testing.assert_allclose(right, reference.logsf(3.3), rtol=1e-4)
    left = dist.LeftCensoredDistribution(MARGINAL, np.array(1)).log_prob(jnp.array(0.7))
    np.testing.assert_allclose(left, reference.logcdf(0.7), rtol=1e-4)


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
