"""The Nataf correlation against closed forms and double integrals."""

import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from jax.test_util import check_grads
from scipy import stats

from nn_uq_dist import LinearizedMarginal
from nn_uq_dist.distributions import nataf_correlation

# name: weights of the two outputs, normal scales. Sums of one to four uniforms, a dominating weight
# (a corner of the quantile function far out), and a normal part.
PAIRS = {
    "uniform_and_triangle": ([[1.0, 0.0], [0.5, 0.5]], None),
    "trapezoids": ([[1.0, 0.6], [0.2, -1.1]], None),
    "second_1e-6": ([[1.0, 1e-6], [0.7, 0.7]], None),
    "four_equal": ([[1.0] * 4, [1.0, 0.9, 0.8, 0.1]], None),
    "normal_part": ([[1.0, 0.4], [0.3, 0.0]], [0.2, 0.5]),
    "little_normal": ([[1.0, 0.0], [0.3, 0.0]], [1e-3, 0.5]),
}
CORRELATIONS = [-0.95, 0.3, 0.9]


def matrix(rho):
    return jnp.array([[1.0, rho], [rho, 1.0]])


def spline_cdf(weights, x):
    """Distribution function of ``sum w_k U_k`` at ``x <= 0``, a piecewise polynomial; its ends."""
    ends = np.array(list(itertools.product([-1, 1], repeat=len(weights))))
    powers = np.maximum(np.asarray(x)[..., None] + ends @ weights, 0) ** len(weights)
    factor = np.prod(2 * weights) * math.factorial(len(weights))
    return (powers * ends.prod(axis=-1)).sum(axis=-1) / factor, ends @ weights


def quantiles_and_rule(weights, scale):
    """Quantiles of one output at nodes over the scores, times the weights of these nodes.

    Panels end where the quantile function bends. A normal part is left to `LinearizedMarginal`.
    """
    ends, used = np.linspace(-8.5, 8.5, 171), np.abs([w for w in weights if w])
    if not scale:
        corners = spline_cdf(used, 0.0)[1]
        inner = corners[(corners <= 0) & (corners > 1e-9 - used.sum())]
        bends = stats.norm.ppf(spline_cdf(used, inner)[0])
        ends = np.unique(np.concatenate([ends, bends, -bends]))
    points, factors = np.polynomial.legendre.leggauss(6)
    half = 0.5 * np.diff(ends)[:, None]
    z = (0.5 * (ends[1:] + ends[:-1])[:, None] + half * points).ravel()
    if scale:
        marginal = LinearizedMarginal(0.0, np.array(weights), scale)
        return z, np.asarray(marginal.from_normal_score(z)) * (half * factors).ravel()
    target = stats.norm.cdf(-np.abs(z))
    low, high = np.full(z.shape, -used.sum()), np.zeros(z.shape)
    for _ in range(80):
        middle = 0.5 * (low + high)
        below = spline_cdf(used, middle)[0] < target
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    return z, np.where(z < 0, middle, -middle) * (half * factors).ravel()


def covariance_by_double_integral(weights, scales, rho):
    """The paper's integral of ``g_1(z_1) g_2(z_2) phi(z_1, z_2; rho)``, its density corrected."""
    (z1, g1), (z2, g2) = map(quantiles_and_rule, weights, scales)
    exponent = z1[:, None] ** 2 + z2**2 - 2 * rho * z1[:, None] * z2
    density = np.exp(-0.5 * exponent / (1 - rho**2)) / (2 * np.pi * np.sqrt(1 - rho**2))
    return g1 @ density @ g2


@pytest.mark.slow
@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("name", PAIRS)
def test_nataf_correlation_against_double_integrals(name):
    weights, scales = PAIRS[name]
    marginals = LinearizedMarginal(np.zeros(2), np.array(weights), scales and np.array(scales))
    deviation = np.asarray(jnp.sqrt(marginals.variance))
    for rho in CORRELATIONS:
        expected = covariance_by_double_integral(weights, scales or [None] * 2, rho)
        fit = nataf_correlation(marginals, matrix(expected / deviation.prod()))
        assert abs(fit.matrix[0, 1] - rho) <= 1e-8
        assert fit.attainable.all()


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("family", ["numpyro", "ours"])
def test_uniform_outputs(family):
    rho = np.linspace(-1, 1, 21)
    wanted = 6 / np.pi * np.arcsin(rho / 2)
    if family == "numpyro":
        marginals = dist.Uniform(jnp.array([0.0, -3.0]), jnp.array([1.0, 4.0]))
    else:
        marginals = LinearizedMarginal(jnp.array([1.0, 2.0]), jnp.array([[0.3], [-2.0]]))
    targets = jnp.stack([matrix(r) for r in wanted])
    fit = nataf_correlation(marginals, targets)
    np.testing.assert_allclose(fit.matrix[:, 0, 1], rho, atol=1e-10)
    assert fit.attainable.all()


@pytest.mark.usefixtures("x64")
def test_log_normal_and_uniform_against_closed_forms():
    # (Liu and Der Kiureghian 1986): corr = (exp(rho s^2) - 1)/(exp(s^2) - 1) for two log-normals.
    scale, rho = 0.5, 0.4
    wanted = np.expm1(rho * scale**2) / np.expm1(scale**2)
    fit = nataf_correlation(dist.LogNormal(jnp.zeros(2), scale), matrix(wanted))
    assert abs(fit.matrix[0, 1] - rho) <= 1e-10
    fit = nataf_correlation(dist.Normal(jnp.zeros(2), jnp.array([0.1, 7.0])), matrix(-0.3))
    assert abs(fit.matrix[0, 1] + 0.3) <= 1e-12


@pytest.mark.usefixtures("x64")
def test_unattainable_targets_are_clipped_and_reported():
    # A log-normal and its mirror image: at correlation 1 of the scores theirs is far below 1.
    marginals = dist.LogNormal(jnp.zeros(2), jnp.array([0.2, 1.5]))
    limits = [
        float(np.expm1(sign * 0.2 * 1.5) / np.sqrt(np.expm1(0.04) * np.expm1(2.25)))
        for sign in (1, -1)
    ]
    for sign, limit in zip((1, -1), limits, strict=True):
        fit = nataf_correlation(marginals, matrix(limit + 0.01 * sign))
        assert not fit.attainable[0, 1]
        assert not fit.attainable[1, 0]
        assert fit.attainable[0, 0]
        assert fit.matrix[0, 1] == sign
        assert nataf_correlation(marginals, matrix(0.99 * limit)).attainable.all()


@pytest.mark.slow
@pytest.mark.usefixtures("x64")
def test_derivatives():
    def entry(weights, scale, target):
        marginals = LinearizedMarginal(jnp.zeros(2), weights, scale)
        return nataf_correlation(marginals, matrix(target)).matrix[0, 1]

    arguments = jnp.array([[1.0, 0.4], [0.3, 0.2]]), jnp.array([0.2, 0.5]), jnp.array(0.4)
    check_grads(jax.jit(entry), arguments, order=1, modes=["rev"], rtol=1e-6, eps=1e-4)


def test_nan_under_jit_stays_nan_and_stops():
    marginals = dist.Uniform(jnp.zeros(3), 1.0)
    target = jnp.eye(3).at[0, 1].set(jnp.nan).at[1, 0].set(jnp.nan).at[0, 2].set(0.5)
    fit = jax.jit(nataf_correlation)(marginals, target.at[2, 0].set(0.5))
    assert np.isnan(fit.matrix[0, 1])
    assert abs(fit.matrix[0, 2] - 2 * np.sin(np.pi / 12)) <= 1e-6
