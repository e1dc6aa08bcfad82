"""Outputs of any size: numerics in units of the outputs, against the same problem at size one."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from nn_uq_dist import box_gaussian
from nn_uq_dist.box_gaussian._own_units import joint_covariance

# Powers of two scale without rounding; the covariance of the last pair spans 1e-24 to 1e24.
UNITS = {
    "tiny": np.full(3, 2.0**-59, np.float32),
    "huge": np.full(3, 2.0**59, np.float32),
    "mixed": np.array([2.0**-40, 1.0, 2.0**40], np.float32),
}
GENERATOR = np.random.default_rng(0)
WEIGHTS = GENERATOR.normal(size=(3, 5)).astype(np.float32)
COVARIANCE = np.array([[0.1, 0.03, 0], [0.03, 0.16, 0], [0, 0, 0.25]], np.float32)
POINTS = np.array([[0.5, 0.7, -0.4], [-1.0, 0.2, 0.8]], np.float32)
KEY = jax.random.key(0)


@jax.jit
def without_units(units, covariance):
    """What the numerics give for outputs in these units, in numbers that do not depend on them."""
    weights = WEIGHTS * units[:, None]
    deviation = POINTS * units
    if covariance is not None:
        covariance = covariance * units[:, None] * units
    log_volume = jnp.sum(jnp.log(units))

    def log_density(deviation, weights, covariance):
        return box_gaussian.log_evidence(deviation, weights, covariance)

    given = (deviation, weights, covariance)
    own = None if covariance is None else covariance[:1, :1]
    kept = (0, 1) if covariance is None else (0, 1, 2)
    slopes = jax.grad(lambda *parts: log_density(*parts).sum(), kept)(*given)
    both = box_gaussian.conditional_moments(deviation[:, :1], weights, covariance)
    inputs = box_gaussian.posterior_moments(*given)
    found = {
        "log density": log_density(*given) + log_volume,
        "correction": box_gaussian.second_order(*given),
        "slope in points": slopes[0] * units,
        "slope in weights": slopes[1] * units[:, None],
        "scores": box_gaussian.conditional_scores(*given),
        "inputs": inputs,
        "others": both.mean / units[1:],
        "covariance of others": both.covariance / units[1:] / units[1:, None],
        "draws": box_gaussian.input_draws(KEY, deviation[:, :1], weights[:1], own, 3),
        "covariance": joint_covariance(weights, covariance) / units / units[:, None],
    }
    if covariance is not None:
        found["slope in covariance"] = slopes[2] * units * units[:, None]
    return found


@pytest.mark.slow
@pytest.mark.parametrize("name", UNITS)
@pytest.mark.parametrize("covariance", [COVARIANCE, None], ids=["noise", "no noise"])
def test_values_do_not_depend_on_the_units(name, covariance):
    expected = without_units(np.ones(3, np.float32), covariance)
    found = without_units(UNITS[name], covariance)
    for label, value in expected.items():
        parts = zip(jax.tree.leaves(found[label]), jax.tree.leaves(value), strict=True)
        for own, other in parts:
            assert np.isfinite(other).all(), label
            np.testing.assert_allclose(own, other, rtol=1e-5, atol=1e-4, err_msg=label)


def test_as_many_inputs_as_outputs():
    units, weights = UNITS["tiny"], WEIGHTS[:, :3]
    point = weights @ np.array([0.3, -0.5, 0.2], np.float32) * units
    value = box_gaussian.log_evidence(point, weights * units[:, None], None)
    volume = np.linalg.slogdet(2 * weights.astype(float))[1]
    np.testing.assert_allclose(value, -volume - np.log(units.astype(float)).sum(), rtol=1e-5)


def test_a_shared_law_of_many_outputs(monkeypatch):
    monkeypatch.setattr(box_gaussian._evidence, "FEWEST_OUTPUTS", 3)
    units = UNITS["mixed"]
    covariance = COVARIANCE * units[:, None] * units
    given = POINTS * units, WEIGHTS[:, :2] * units[:, None], covariance
    value = box_gaussian.log_evidence_of_shared_law(*given) + np.log(units).sum()
    expected = box_gaussian.log_evidence(POINTS, WEIGHTS[:, :2], COVARIANCE)
    np.testing.assert_allclose(value, expected, rtol=1e-5)
