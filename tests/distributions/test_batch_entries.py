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
KNOTS = jnp.array([-1.0, 0.0, 1.0])
# Of batch shape (2, 3).
LAWS = {
    "linearized": lambda: nuq.LinearizedMarginal(jnp.arange(6.0).reshape(2, 3), WEIGHTS),
    "shared weights": lambda: nuq.LinearizedMarginal(
        jnp.arange(6.0).reshape(2, 3), jnp.array([1.0, 0.5]), 0.1
    ),
    "known numbers": lambda: nuq.LinearizedMarginal(
        np.arange(6.0).reshape(2, 3), np.asarray(WEIGHTS), np.array([[0.1], [0.2]])
    ),
    "corrected": lambda: nuq.distributions.CorrectedMarginal(
        nuq.LinearizedMarginal(jnp.arange(6.0).reshape(2, 3), WEIGHTS), KNOTS, 2 * KNOTS
    ),
    "joint": lambda: nuq.LinearizedJoint(jnp.arange(6.0)[:, None].reshape(2, 3, 1), WEIGHTS[:1]),
    "joint of two": lambda: nuq.LinearizedJoint(
        jnp.zeros((2, 3, 2)), jnp.eye(2), jnp.stack([jnp.eye(2), 2 * jnp.eye(2)])[:, None]
    ),
    "copula": lambda: nuq.GaussianCopulaJoint(
        nuq.LinearizedMarginal(jnp.arange(12.0).reshape(2, 3, 2), jnp.array([1.0, 0.5])),
        jnp.array([[1.0, 0.5], [0.5, 1.0]]),
    ),
    "normal": lambda: dist.Normal(jnp.arange(6.0).reshape(2, 3), jnp.array([[1.0], [2.0]])),
    "uniform": lambda: dist.Uniform(-1.0, jnp.arange(1.0, 7).reshape(2, 3)),
    "expanded": lambda: dist.Normal(0.5, 2.0).expand((2, 3)),
    "expanded twice": lambda: dist.Normal(jnp.arange(3.0), 1.0).expand((2, 3)),
    "truncated": lambda: dist.TruncatedNormal(
        jnp.arange(3.0), jnp.ones((2, 1)), low=-1.0, high=4.0
    ),
}
INDICES = {
    "entry": (1, 2),
    "row": 1,
    "negative": (-1, -3),
    "slice": (slice(None), slice(1, 3)),
    "list": (..., [2, 0]),
    "steps": slice(None, None, -1),
    "mask": np.array([[True, False, True], [False, False, True]]),
    "two lists": ([0, 1, 1], [2, 2, 0]),
    "twice the same": ([0, 0], [1, 1]),
}


PLACES = np.arange(6).reshape(2, 3)


def at(values, distribution, index):
    """Entries of what has the batch axes in front."""
    values = jnp.broadcast_to(values, distribution.batch_shape + distribution.event_shape)
    return np.asarray(values).reshape(6, *distribution.event_shape)[PLACES[index]]


# All kinds of indices for a distribution, a distribution of NumPyro, and arrays that are NumPy's.
EVERY = {"linearized", "normal", "known numbers"}


@pytest.mark.parametrize("name", LAWS)
def test_entries_have_their_moments(name):
    distribution = LAWS[name]()
    mean, variance = distribution.mean, distribution.variance
    for index in INDICES.values() if name in EVERY else (INDICES["row"], INDICES["two lists"]):
        part = batch_entries(distribution, index)
        assert part.batch_shape == PLACES[index].shape
        np.testing.assert_allclose(part.mean, at(mean, distribution, index), rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(part.variance, at(variance, distribution, index), rtol=1e-5)
        if isinstance(
            distribution, nuq.distributions.OutputDistribution | nuq.distributions.JointDistribution
        ):
            assert type(distribution[index]) is type(distribution)
        if name == "normal":  # with a cdf, which an expanded one lacks
            assert type(part) is dist.Normal


# Distributions that mean and variance do not determine.
@pytest.mark.parametrize("name", ["corrected", "joint of two", "copula", "truncated"])
def test_entries_have_their_densities(name):
    distribution, index = LAWS[name](), INDICES["two lists"]
    value = jnp.full(distribution.batch_shape + distribution.event_shape, 0.3)
    expected = np.asarray(evaluate(distribution, "log_prob", value))[index]
    found = evaluate(
        batch_entries(distribution, index),
        "log_prob",
        jnp.full((3, *distribution.event_shape), 0.3),
    )
    np.testing.assert_allclose(found, expected, rtol=2e-5)


def test_shared_parameters_stay_shared():
    distribution = LAWS["shared weights"]()
    assert distribution[:, 1:].weights.size == 2
    assert distribution[1, 2].weights.shape == (2,)


def test_known_numbers_stay_known():
    assert isinstance(LAWS["known numbers"]()[1].weights, np.ndarray)


MISTAKES = {
    "no batch": (lambda: nuq.LinearizedMarginal(0.0, [1.0])[0], TypeError, "needs batch axes"),
    "too far": (lambda: LAWS["linearized"]()[0, 3], IndexError, r"fit the batch shape \(2, 3\)"),
    "traced": (
        lambda: jax.jit(lambda i: LAWS["linearized"]()[i].mean)(0),
        TypeError,
        "must be known, got a traced",
    ),
    "hidden": (
        lambda: batch_entries(
            dist.TransformedDistribution(
                dist.Normal(jnp.zeros(3), 1.0), dist.transforms.ExpTransform()
            ),
            0,
        ),
        TypeError,
        "keep the arguments .* got TransformedDistribution without",
    ),
}


@pytest.mark.parametrize(("call", "error", "message"), MISTAKES.values(), ids=MISTAKES)
def test_mistakes(call, error, message):
    with pytest.raises(error, match=message):
        call()
