"""Laws as arguments and results of `jax.vmap`, without a normal part and with one."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nn_uq_dist as nuq

WEIGHTS = np.array([[1.0, 0.4, 0.2], [0.3, 0.9, -0.5]], np.float32)
# Three laws, wider and wider.
WIDTHS = np.array([1.0, 1.5, 2.0], np.float32)
POINTS = np.array([[0.1, 0.2], [0.0, -0.4], [0.5, 0.3]], np.float32)


def marginals(width, scale):
    scale = None if scale is None else jnp.full(2, scale)
    return nuq.LinearizedMarginal(jnp.zeros(2), WEIGHTS * width, scale)


def corrected(width, scale):
    knots = jnp.array([-1.0, 0.0, 1.0])
    return nuq.distributions.CorrectedMarginal(
        marginals(width, scale), knots, knots + 0.1 * knots**2
    )


def joint(width, scale):
    covariance = None if scale is None else scale**2 * jnp.eye(2)
    return nuq.LinearizedJoint(jnp.zeros(2), WEIGHTS * width, covariance)


def conditional(width, scale):
    return joint(width, scale).condition(0, 0.1)


def copula(width, scale):
    return nuq.GaussianCopulaJoint(marginals(width, scale), jnp.array([[1.0, 0.5], [0.5, 1.0]]))


def copula_conditional(width, scale):
    return copula(width, scale).condition(0, 0.1)


CASES = [
    (marginals, None),
    (corrected, None),
    (joint, None),
    (conditional, 0.3),
    (copula, 0.3),
    (copula_conditional, None),
]


@pytest.mark.parametrize(("make", "scale"), CASES)
def test_mapped_laws_are_those_of_a_loop(make, scale):
    laws = jax.vmap(lambda width: make(width, scale))(WIDTHS)
    shape = laws.shape()
    points = POINTS[:, : shape[-1]] if shape else POINTS[:, 0]
    found = jax.vmap(lambda law, x: law.log_prob(x))(laws, points)
    expected = [make(w, scale).log_prob(x) for w, x in zip(WIDTHS, points, strict=True)]
    np.testing.assert_allclose(found, np.stack(expected), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("scale", [None, 0.3], ids=["bounded", "normal part"])
def test_a_batch_without_a_leaf_for_what_is_not_there(scale):
    scales = None if scale is None else np.full(3, scale, np.float32)
    laws = nuq.LinearizedMarginal(np.zeros(3), WEIGHTS[0] * WIDTHS[:, None], scales)
    found = jax.vmap(lambda law, x: law.log_prob(x))(laws, POINTS[:, 0])
    np.testing.assert_allclose(found, laws.log_prob(POINTS[:, 0]), rtol=1e-5)


def test_no_normal_part_stays_none():
    law = jax.jit(lambda law: law)(nuq.LinearizedMarginal(0.0, [1.0]))
    assert law.normal_scale is None
    assert law.support.upper_bound == 1
