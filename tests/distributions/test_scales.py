"""Distributions of outputs far from one in single precision: what has no unit stays what it is.

A distribution scaled by ``s`` has ``log p(s y) = log p(y) - log s`` and all else scaled. Values at
size one are tested against references elsewhere.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nn_uq_dist as nuq

# Squares of these leave single precision nearly, those of narrow components altogether. Powers of
# two scale without rounding.
UNITS = [2.0**-59, 2.0**59]
KEY = jax.random.key(0)
LEVELS = jnp.array([0.01, 0.3, 0.9])
WEIGHTS = np.array([[1.0, -0.6, 0.2], [0.3, 0.5, -0.8]], np.float32)
NORMAL = np.array([[0.2, 0.0], [0.1, 0.28]], np.float32)
POINTS = np.array([0.4, -0.3], np.float32)


def marginal(unit, scale=None):
    loc, weights = np.float32(0.1) * unit, WEIGHTS[0] * unit
    return nuq.LinearizedMarginal(loc, weights, None if scale is None else scale * unit)


def corrected(unit, scale=None):
    knots = np.array([-1.0, -0.98, 0.0, 0.7], np.float32) * unit
    images = np.array([-1.0, -0.985, 0.1, 1.2], np.float32) * unit
    return nuq.distributions.CorrectedMarginal(marginal(unit, scale), knots, images)


@jax.jit
@jax.grad
def slopes(weights, scale):
    distribution = nuq.LinearizedMarginal(0.0, weights, scale)
    return distribution.excess_kurtosis + distribution.entropy()


def univariate(make, unit, scale):
    distribution = make(unit, scale)
    points = np.array([-0.5, 2e-3, 0.9], np.float32) * unit
    values = {
        "log_prob": distribution.log_prob(points) + np.log(unit),
        "variance": distribution.variance / unit / unit,
        "icdf": distribution.icdf(LEVELS) / unit,
        "draws": distribution.sample(KEY, (3,)) / unit,
    }
    functions, shape = ("cdf", "log_sf", "normal_score"), ("skewness", "excess_kurtosis")
    values |= {name: getattr(distribution, name)(points) for name in functions}
    values |= {name: getattr(distribution, name) for name in shape}
    values |= {name: getattr(distribution, name) / unit for name in ("mean", "standard_deviation")}
    if isinstance(distribution, nuq.LinearizedMarginal):
        values["entropy"] = distribution.entropy() - np.log(unit)
        values["slopes"] = slopes(distribution.weights, distribution.normal_scale) * unit
    return values


@pytest.mark.parametrize("scale", [None, np.float32(0.1)], ids=["bounded", "normal part"])
@pytest.mark.parametrize("make", [marginal, corrected])
def test_distributions_of_single_outputs(make, scale):
    expected = univariate(make, np.float32(1), scale)
    for unit in UNITS:
        found = univariate(make, np.float32(unit), scale)
        for label, value in expected.items():
            assert np.isfinite(value).all(), label
            np.testing.assert_allclose(found[label], value, rtol=1e-5, atol=1e-5, err_msg=label)


def linearized(units, normal_weights):
    loc, weights = np.array([0.1, -0.2], np.float32) * units, WEIGHTS * units[:, None]
    if normal_weights is not None:
        normal_weights = normal_weights * units[:, None]
    return nuq.LinearizedJoint(loc, weights, normal_weights, validate_args=False)


def copula(units, normal_weights):
    marginals = linearized(units, normal_weights).marginals
    correlation = jnp.array([[1.0, 0.5], [0.5, 1.0]])
    matrix = nuq.distributions.nataf_correlation(marginals, correlation).matrix
    return nuq.GaussianCopulaJoint(marginals, matrix, validate_args=False)


def multivariate(make, units, normal_weights):
    distribution = make(units, normal_weights)
    points, log_volume = POINTS * units, jnp.sum(jnp.log(units))
    values = {
        "log_prob": distribution.log_prob(points) + log_volume,
        "slope": jax.grad(distribution.log_prob)(points) * units,
        "covariance": distribution.covariance_matrix / units / units[:, None],
        "draws": distribution.sample(KEY, (3,)) / units,
        "rosenblatt": distribution.rosenblatt(points),
    }
    rest = distribution.condition(0, points[:1])
    values |= {
        "conditional log_prob": rest.log_prob(points[1:]) + jnp.log(units[1]),
        "conditional mean": rest.mean / units[1:],
        "conditional variance": rest.variance / units[1:] / units[1:],
        "conditional draws": rest.sample(KEY, (3,)) / units[1:],
    }
    if make is copula:
        values["entropy"] = distribution.entropy() - log_volume
        values["matrix"] = distribution.correlation_matrix
    return values


@pytest.mark.slow
@pytest.mark.parametrize(
    ("make", "normal_weights"), [(linearized, None), (linearized, NORMAL), (copula, None)]
)
def test_joint_distributions(make, normal_weights):
    # Distributions of single outputs have few programs for all shapes outside of `jit`.
    compiled = (lambda function: function) if make is copula else jax.jit
    program = compiled(lambda units: multivariate(make, units, normal_weights))
    expected = program(jnp.ones(2))
    for units in (*(np.full(2, unit, np.float32) for unit in UNITS), [2.0**-40, 2.0**40]):
        found = program(jnp.asarray(units, jnp.float32))
        for label, value in expected.items():
            assert np.isfinite(value).all(), label
            np.testing.assert_allclose(found[label], value, rtol=1e-4, atol=1e-4, err_msg=label)


def test_a_singular_normal_part_of_different_sizes():
    # Both outputs share their noise.
    column = np.array([2.0**-40, 2.0**40], np.float32)
    joint = nuq.LinearizedJoint(np.zeros(2), 1e-3 * np.diag(column), column[:, None])
    draws = joint.sample(KEY, (1000,)) / column
    np.testing.assert_allclose(draws.std(axis=0), 1, rtol=0.1)
    np.testing.assert_allclose(draws[:, 0], draws[:, 1], atol=3e-3)


def of_models(unit):
    """Results of a linearization in the unit of inputs and outputs."""
    half_width, scale = np.float32(0.4) * unit, np.float32(0.1) * unit
    mean = np.array([0.3, -0.2, 0.1], np.float32) * unit
    distribution = nuq.Input.box(mean, half_width) + nuq.Input.normal(0 * mean, scale)
    linear = nuq.Linearization(0 * mean[:2], WEIGHTS, distribution)
    y, noise = linear.mean + np.array([0.1, -0.1], np.float32) * unit, np.float32(0.2) * unit
    joint, posterior = linear.joint(noise), linear.input_posterior(y, noise)
    values = {
        "joint": joint.log_prob(y) + 2 * np.log(unit),
        "rest": joint.condition(0, y[0]).mean / unit,
        "posterior": posterior.mean / unit,
        "posterior sd": posterior.standard_deviation / unit,
        "correlation": linear.correlation,
        "copula": linear.gaussian_copula(noise).log_prob(y) + 2 * np.log(unit),
    }
    return values, (linear.variance, joint.covariance_matrix, distribution.covariance)


@pytest.mark.slow
def test_models_where_variances_leave_the_type():
    expected, _ = of_models(np.float32(1))
    for unit in (np.float32(1e-30), np.float32(1e30)):
        with pytest.warns(RuntimeWarning, match="variances are NaN, as float32 has no numbers as"):
            found, variances = of_models(unit)
        for label, value in expected.items():
            np.testing.assert_allclose(found[label], value, rtol=2e-3, atol=2e-3, err_msg=label)
        for variance in variances:
            assert np.isnan(np.diagonal(np.atleast_2d(variance))).all()


def test_variances_below_the_smallest_normal_number_are_nan():
    distribution = nuq.Input.normal([0.0], np.float32(8.2e-20))
    linear = nuq.Linearization([0.0], [[1.0]], distribution)
    with pytest.warns(RuntimeWarning, match="take standard deviations, or other units"):
        assert np.isnan(linear.variance)
    # A program turns such numbers to zero.
    assert np.isnan(jax.jit(lambda model: model.variance)(linear))
    weights = np.array([[1.0, 2.0], [0.0, 2.0]], np.float32)
    for unit in (np.float32(1e-25), np.float32(1e25)):
        rest = nuq.LinearizedJoint(np.zeros(2), unit * weights).condition(0, 2 * unit)
        assert np.isnan(rest.variance)
        np.testing.assert_allclose(rest.mean / unit, 1.5, rtol=1e-3)
