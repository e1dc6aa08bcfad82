"""What arguments and values are refused, and that messages name them."""

import math
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro import handlers
from numpyro.distributions import constraints

import nn_uq_dist as nuq
from nn_uq_dist import GaussianCopulaJoint, LinearizedJoint, LinearizedMarginal
from nn_uq_dist.distributions import (
    CorrectedMarginal,
    InputReparam,
    LinearizedConditional,
    MonotoneSpline,
    NoisyMarginal,
    as_output_distribution,
    batch_entries,
    clipped_correlation,
    nataf_correlation,
)

X, Y = np.array([-1.0, 0.0, 0.5, 2.0]), np.array([-3.0, 0.0, 2.0, 2.5])
WEIGHTS = np.array([[0.7, -0.4, 0.2], [0.3, 0.5, 0.1], [0.2, 0.2, 0.6]])
UNIT = np.eye(3)
NORMALS = dist.Normal(jnp.zeros((2, 3)), 1.0)
KEY = jax.random.key(0)


def with_entry(row, column, value):
    matrix = np.eye(3)
    matrix[row, column] = value
    return matrix


class Hidden(dist.Distribution):
    """A multivariate distribution that does not keep an argument."""

    arg_constraints: ClassVar = {"loc": constraints.real_vector}

    def __init__(self, center):
        self.loc = center
        super().__init__(center.shape[:-1], center.shape[-1:])


SUMS = LinearizedMarginal(0.0, np.ones((2, 3)))
UNIFORMS = dist.Uniform(jnp.zeros((2, 3)), 1.0)
COPULAS = GaussianCopulaJoint(UNIFORMS, UNIT)
COPULA = COPULAS[0]
JOINT = LinearizedJoint(np.zeros(3), UNIT)
# What is called, with which arguments, and what the message says.
TYPES = [
    (SUMS.log_prob, ({"a": 1.0},), "value must be .* got dict; pass .*leaves"),
    (COPULA.condition, (True, 0.5), "indices must be known integers.*; pass positions"),
    (LinearizedMarginal, (0.0, None), "weights must be"),
    (LinearizedMarginal, (1j, [1.0]), "loc must be .* got dtype complex"),
    (SUMS.icdf, ("a",), "q must be"),
    (LinearizedMarginal(0.0, [1.0]).__getitem__, (0,), "index .* needs batch axes"),
    (jax.jit(SUMS.__getitem__), (0,), "index .* must be known"),
    (batch_entries, (Hidden(np.zeros((2, 3))), 0), "Hidden with center"),
    (CorrectedMarginal, (1.0, X, Y), "base must be a NumPyro distribution, got float"),
    (NoisyMarginal, (dist.Normal(), "0.1"), "noise_scale must be"),
    (COPULA.condition, ("a", 0.5), "indices must be"),
]
VALUES = [
    (LinearizedMarginal, (0.0, 1.0), r"weights must .* got \(\)"),
    (LinearizedMarginal, (np.zeros(3), np.ones((2, 4))), "must broadcast, got loc"),
    (LinearizedMarginal, (np.nan, [1.0]), "loc must be finite, got nan"),
    (LinearizedMarginal, (0.0, [1.0, np.inf]), r"weights must be finite, got inf at index \(1,\)"),
    (LinearizedMarginal, (0.0, [1.0], -1.0), "normal_scale must not be negative, got -1.0"),
    (LinearizedMarginal, (0.0, np.zeros(3)), "weights .* got a point mass: .*noise_scale"),
    (LinearizedMarginal, (0.0, np.zeros(2), [1.0, 0.0]), r"point mass at batch index \(1,\)"),
    (SUMS.log_prob, (np.zeros(3),), r"value must broadcast .*\(2,\), got shape \(3,\); .*reshape"),
    (SUMS.icdf, (95.0,), "q must be probabilities"),
    (SUMS.coverage_interval, (95,), "probability must be between 0 and 1, got 95"),
    (SUMS.expand, ((2, 4),), r"of shape \(2,\) to shape \(2, 4\)"),
    (SUMS.to_event(1).log_prob, (np.zeros((5, 1)),), r"value must have shape \(..., 2\)"),
    (LinearizedJoint, (np.zeros(2), [1.0, 1.0]), r"weights must have shape \(\.\.\., d, n\)"),
    (LinearizedJoint, (np.array([1e300, 0, 0]), np.float32(UNIT)), "loc must be at most"),
    (LinearizedJoint, (np.zeros(2), np.ones((2, 1))), "as many columns .*noise_scale in Linear"),
    (LinearizedJoint, (np.zeros(2), np.ones((2, 2))), "outputs 0, 1; pass normal_weights"),
    (LinearizedJoint, (0.0, UNIT, np.eye(4)), r"normal_weights must have shape \(\.\.\., 3, m\)"),
    (LinearizedJoint, (0.0, UNIT, np.ones(3)), r"normal_weights .* got \(3,\); .*jnp.diag"),
    (JOINT.log_prob, (np.zeros(2),), "value must have .*one entry per output"),
    (JOINT.condition(2, 0.5).condition, (0, 9.0), r"values must .* got 9.0 .*\(output 0\)"),
    (LinearizedConditional, (np.zeros(3), np.zeros(3), WEIGHTS), "values must .* than the 3"),
    (MonotoneSpline, (X, Y[:3]), r"images must have shape \(\.\.\., k\) with k >= 2"),
    (MonotoneSpline, (X, Y * 0), "images must ascend"),
    (MonotoneSpline, (X, Y, -np.ones(4)), "slopes must be positive"),
    (NoisyMarginal, (dist.Normal(), -0.1), "noise_scale must not be negative"),
    (clipped_correlation, (np.ones((2, 3)),), r"matrix must have shape .*got shape \(2, 3\)"),
    (clipped_correlation, (with_entry(1, 1, np.nan),), r"matrix must be finite, .*\(1, 1\)"),
    (clipped_correlation, (with_entry(0, 1, 0.3),), r"matrix must be symmetric, got 0.3 .*\(0, 1"),
    (clipped_correlation, (with_entry(1, 1, 2),), r"matrix must have ones .*, got 2.0 .*\(1, 1\)"),
    *((clipped_correlation, (UNIT, floor), "min_eigenvalue must be") for floor in (-1e-3, 1.0)),
    (GaussianCopulaJoint, (NORMALS, np.eye(2)), r"correlation_matrix .* \(2, 2\)"),
    (GaussianCopulaJoint, (dist.Normal(), UNIT), r"batch_shape .*got \(\) from Normal"),
    (GaussianCopulaJoint, (NORMALS, np.ones((3, 3))), "positive definite.*clipped_correlation"),
    (GaussianCopulaJoint, (NORMALS, UNIT, np.zeros(2)), "score_loc .* N_y = 3"),
    (GaussianCopulaJoint, (NORMALS, None, None, np.eye(2)), "score_tril must"),
    (GaussianCopulaJoint, (NORMALS, UNIT, None, UNIT), "correlation_matrix and score_tril"),
    (COPULAS.marginal_cdf, (np.zeros((5, 3)),), r"value \(5,\), batch_shape \(2,\)"),
    (COPULA.marginalize, ((0, 0),), "indices must be distinct, got 0 twice"),
    (COPULA.condition, ((0, 1, 2), np.zeros(3)), "indices must leave an output"),
    (COPULA.condition, ((0, 1), 0.1), "values must have shape .* with k = 2"),
    (COPULA.condition, ((2, 0), (0.5, -0.25)), r"values must lie within.*-0.25 .*\(output 0\)"),
    (COPULA.condition, (1, 1.0), r"values must lie inside.*got 1.0 .*\(output 1\)"),
]


MISSING = [
    (JOINT.condition(2, 0.5).icdf, (0.5,), "LinearizedConditional has no icdf; use draws of"),
    (COPULA.cdf, (0.5,), "GaussianCopulaJoint has no cdf; .*marginal_cdf"),
    (lambda: COPULA.condition(0, 0.5).marginals, (), "no marginals as an object; .*marginal_icdf"),
    (CorrectedMarginal(NORMALS, X, Y).entropy, (), "has no entropy; estimate it"),
    (JOINT.condition(2, 0.5).rsample, (KEY,), "no draws with derivatives"),
]
ERRORS = {
    TypeError: TYPES,
    ValueError: VALUES,
    IndexError: [(SUMS.__getitem__, (3,), r"fit the batch shape \(2,\)")],
    NotImplementedError: MISSING,
}


@pytest.mark.parametrize(
    ("error", "call", "arguments", "message"),
    [(error, *mistake) for error, mistakes in ERRORS.items() for mistake in mistakes],
)
def test_mistakes_are_named(error, call, arguments, message):
    with pytest.raises(error, match=message):
        call(*arguments)


MARGINALS = {
    "discrete": (lambda: dist.Poisson(jnp.ones(3)), "continuous, got the discrete Poisson"),
    "event": (lambda: NORMALS.to_event(1), "univariate, got Independent.*without to_event"),
    "no distribution": (lambda: 3, "a NumPyro distribution, got int"),
    "no functions": (lambda: dist.VonMises(jnp.zeros(3), 1.0), "got VonMises without cdf and icdf"),
    "bounds of each component": (
        lambda: dist.MixtureGeneral(
            dist.Categorical(jnp.ones(2) / 2), [dist.Uniform(jnp.arange(3.0), 5.0)] * 2
        ),
        "got MixtureGeneral without support",
    ),
}


@pytest.mark.parametrize(("make", "message"), MARGINALS.values(), ids=MARGINALS)
def test_what_is_no_output(make, message):
    for use in (
        as_output_distribution,
        lambda marginals: nataf_correlation(marginals, UNIT),
        lambda marginals: GaussianCopulaJoint(marginals, UNIT),
    ):
        with pytest.raises(TypeError, match=f"(marginals|distribution) must .*{message}"):
            use(make())


@pytest.mark.parametrize(
    "network",
    [
        lambda x: jnp.array([x[0], x[1], x[0] + x[1]]),
        lambda x: jnp.array([x[0], x[1], jnp.hypot(x[0], x[1])]),  # GUM H.2
    ],
)
def test_outputs_that_are_functions_of_others(network, precision):
    mean, scale = jnp.array([0.3, 0.2, 0.1]), jnp.array([0.3, 0.7, 0.2])
    for f in (nuq.Input.normal(mean, scale), nuq.Input.box(mean, scale)):
        with pytest.raises(ValueError, match="outputs 0, 1, 2; pass"):
            nuq.linearize(network, f).joint()


def test_sites_that_are_not_reparametrized():
    wrong = {
        "is observed": lambda: numpyro.sample("y", JOINT, obs=jnp.ones(3)),
        "is a Normal; .*of copulas": lambda: numpyro.sample("y", dist.Normal(0.0, 1.0)),
    }
    for message, model in wrong.items():
        reparam = handlers.reparam(model, {"y": InputReparam()})
        with pytest.raises((ValueError, TypeError), match=message):
            handlers.seed(reparam, 0)()


@pytest.mark.slow
def test_values_that_jit_hides_give_nan():
    @jax.jit
    @jax.vmap
    def functions(weights, scale):
        d = LinearizedMarginal(0.4, weights, scale)
        return d.log_prob(0.4), d.cdf(0.1), d.icdf(0.3), d.excess_kurtosis

    weights = jnp.array([[1.0, 1.0], [1.0, math.nan], [math.inf, 1.0], [1.0, 1.0]])
    assert np.isnan(functions(weights, jnp.array([-1.0, 0.5, 0.5, math.nan]))).all()


def test_copulas_that_jit_hides_give_nan():
    def log_prob(matrix):
        return GaussianCopulaJoint(batch_entries(NORMALS, 0), matrix).log_prob(jnp.zeros(3))

    both = np.stack([UNIT, with_entry(0, 1, 1.5) + with_entry(1, 0, 1.5) - UNIT])
    assert np.isnan(jax.jit(jax.vmap(log_prob))(both)).tolist() == [False, True]
    mean = jax.jit(jax.vmap(lambda value: COPULA.condition(0, value).mean))
    assert np.isnan(mean(jnp.array([1.5, 1.0, 0.9]))).all(axis=-1).tolist() == [True, True, False]
