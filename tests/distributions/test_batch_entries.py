"""Entries of batches: `distribution[index]` has the log densities of the batch at that index."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import nn_uq_dist as nuq
from nn_uq_dist.distributions import batch_entries
from tests.compiling import evaluate

WEIGHTS = jnp.array([[0.1, 1.0], [0.5, 0.2], [0.4, 0.4]])
LOC = jnp.arange(6.0).reshape(2, 3)
KNOTS = jnp.array([-1.0, 0.0, 1.0])
# Of batch shape (2, 3).
LAWS = {
    "linearized": lambda: nuq.LinearizedMarginal(LOC, WEIGHTS),
    "known numbers": lambda: nuq.LinearizedMarginal(
        np.asarray(LOC), np.asarray(WEIGHTS), np.array([[0.1], [0.2]])
    ),
    "corrected": lambda: nuq.distributions.CorrectedMarginal(
        nuq.LinearizedMarginal(LOC, WEIGHTS), KNOTS, 2 * KNOTS
    ),
    "joint of two": lambda: nuq.LinearizedJoint(
        jnp.zeros((2, 3, 2)), jnp.eye(2), jnp.stack([jnp.eye(2), 2 * jnp.eye(2)])[:, None]
    ),
    "copula": lambda: nuq.GaussianCopulaJoint(
        nuq.LinearizedMarginal(jnp.arange(12.0).reshape(2, 3, 2), jnp.array([1.0, 0.5])),
        jnp.array([[1.0, 0.5], [0.5, 1.0]]),
    ),
    "normal": lambda: dist.Normal(LOC, jnp.array([[1.0], [2.0]])),
    "expanded twice": lambda: dist.Normal(jnp.arange(3.0), 1.0).expand((2, 3)),
    "truncated": lambda: dist.TruncatedNormal(
        jnp.arange(3.0), jnp.ones((2, 1)), low=-1.0, high=4.0
    ),
}
# Of NumPyro, without the arguments of their constructor or without moments.
WRAPPED = {
    "transformed, shared base": lambda: dist.TransformedDistribution(
        dist.Normal(0.0, 1.0), dist.transforms.AffineTransform(LOC, 1.0)
    ),
    "mixture, shared components": lambda: dist.MixtureSameFamily(
        dist.Categorical(jnp.stack([LOC + 1, 9 - LOC], -1) / 10),
        dist.Normal(jnp.array([0.0, 1.0]), 1.0),
    ),
    "mixture": lambda: dist.MixtureGeneral(
        dist.Categorical(jnp.array([0.2, 0.8])), [dist.Normal(LOC, 1.0), dist.Laplace(0.0, 1.0)]
    ),
    "masked": lambda: dist.Normal(LOC, 1.0).mask(LOC > 2),
    "other arguments": lambda: dist.BetaProportion((LOC + 1) / 8, 3.0),
}
INDICES = {
    "entry": (1, 2),
    "row": 1,
    "slice": (slice(None), slice(1, 3)),
    "list": (..., [2, -3]),
    "mask": np.array([[True, False, True], [False, False, True]]),
    "two lists": ([0, 1, 1], [2, 2, 0]),
}


PLACES = np.arange(6).reshape(2, 3)


@pytest.mark.parametrize("name", ["linearized", "known numbers", "normal", "expanded twice"])
def test_entries_have_their_moments(name):
    distribution = LAWS[name]()
    mean, variance = distribution.mean, distribution.variance
    for index in INDICES.values():
        part = batch_entries(distribution, index)
        assert part.batch_shape == PLACES[index].shape
        for found, values in ((part.mean, mean), (part.variance, variance)):
            expected = np.broadcast_to(values, distribution.shape())[index]
            np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
        if name == "normal":  # with a cdf, which an expanded one lacks
            assert type(part) is dist.Normal


# Distributions that mean and variance do not determine.
@pytest.mark.parametrize("name", ["corrected", "joint of two", "copula", "truncated", *WRAPPED])
def test_entries_have_their_densities(name):
    distribution = (LAWS | WRAPPED)[name]()
    expected = evaluate(distribution, "log_prob", jnp.full(distribution.shape(), 0.3))
    index = INDICES["two lists"]
    part = batch_entries(distribution, index)
    found = evaluate(part, "log_prob", jnp.full(part.shape(), 0.3))
    np.testing.assert_allclose(found, expected[index], rtol=2e-5)
    assert batch_entries(distribution, 1).sample(jax.random.key(0)).shape[:1] == (3,)


def test_shared_parameters_stay_shared_and_known_numbers_known():
    distribution = nuq.LinearizedMarginal(LOC, jnp.array([1.0, 0.5]), 0.1)
    assert distribution[:, 1:].weights.size == 2
    assert distribution[1, 2].weights.shape == (2,)
    assert isinstance(LAWS["known numbers"]()[1].weights, np.ndarray)
