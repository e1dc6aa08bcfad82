"""Outputs with normal noise against closed forms and quadrature over the values."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
import scipy.integrate
import scipy.special
import scipy.stats

import nn_uq_dist as nuq
from nn_uq_dist.distributions import CorrectedMarginal, MonotoneSpline, NoisyMarginal
from tests.distributions.outputs import IMAGES, LOC, SCORES, WEIGHTS, corrected


def quadrature(distribution, row, sigma, x):
    """Log density of output `row` plus noise at `x`: an integral over the values of the output."""
    part = distribution[..., [row]]
    ends = np.asarray(part.from_normal_score(np.array([[-20.0], [20.0]])))[:, 0]
    corners = (
        np.asarray(part.base.loc)[0]
        + (2 * np.indices((2, 2, 2)).reshape(3, -1).T - 1) @ (WEIGHTS[row])
    )
    kinks = np.concatenate([np.asarray(part.transform(corners[:, None]))[:, 0], IMAGES[row], ends])
    nodes, weights = np.polynomial.legendre.leggauss(20)
    # Panels about each point, between kinks, and evenly spread ones; some have no length.
    near = x[:, None] + sigma * np.linspace(-14, 14, 57)
    fixed = np.concatenate([kinks, np.linspace(*ends, 200)])
    breaks = np.concatenate([near, np.broadcast_to(fixed, (len(x), len(fixed)))], axis=1)
    breaks = np.sort(np.clip(breaks, *ends), axis=1)
    half, middle = np.diff(breaks) / 2, (breaks[:, 1:] + breaks[:, :-1]) / 2
    y = (middle[..., None] + half[..., None] * nodes).reshape(len(x), -1)
    shares = (half[..., None] * weights).reshape(len(x), -1)
    logs = np.asarray(part.log_prob(y.reshape(-1, 1))).reshape(y.shape)
    logs = logs + scipy.stats.norm.logpdf(x[:, None], y, sigma)
    return scipy.special.logsumexp(logs, axis=1, b=shares)


@pytest.mark.slow
@pytest.mark.parametrize(
    # Noise scales are in standard deviations of the output.
    ("normal_scale", "share"),
    [(None, 1e-3), (0.3, 0.03), (0.3, 3.0)],
)
def test_density_is_that_of_quadrature(x64, normal_scale, share):
    distribution = corrected(normal_scale)
    sigma = share * np.sqrt(np.asarray(distribution.variance))
    noisy = NoisyMarginal(distribution, sigma)
    x = np.asarray(noisy.from_normal_score(SCORES[:, None]))
    found = np.asarray(noisy.log_prob(x))
    for row in range(3):
        known = quadrature(distribution, row, sigma[row], x[:, row])
        np.testing.assert_allclose(found[:, row], known, rtol=1e-6, atol=1e-6)


@pytest.mark.slow
def test_linear_output_with_noise_is_known(precision):
    # Noise of a distribution that is not mapped is one more term of its sum.
    wide, sigma = precision == "float64", 0.1
    base, known = (nuq.LinearizedMarginal(LOC, WEIGHTS, scale) for scale in (None, sigma))
    distribution, x = NoisyMarginal(base, sigma), known.from_normal_score(SCORES[:, None])
    tolerance = {"rtol": 1e-6 if wide else 2e-4, "atol": 1e-7 if wide else 2e-4}
    for name in ("log_prob", "log_cdf", "log_sf", "normal_score"):
        found = getattr(distribution, name)(x)
        np.testing.assert_allclose(found, getattr(known, name)(x), **tolerance)
    np.testing.assert_allclose(distribution.from_normal_score(SCORES[:, None]), x, **tolerance)
    for name in ("mean", "variance", "skewness", "excess_kurtosis"):
        found = getattr(distribution, name)
        np.testing.assert_allclose(found, getattr(known, name), rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_kinked_distribution_with_little_noise(x64):
    # Pieces end at the corners, where the density bends.
    base, known = (nuq.LinearizedMarginal(0.0, WEIGHTS[0], scale) for scale in (None, 1e-3))
    corners = (2 * np.indices((2, 2, 2)).reshape(3, -1).T - 1) @ WEIGHTS[0]
    x = np.add.outer([-2e-3, 0, 1e-3], corners)
    found = NoisyMarginal(base, 1e-3).log_prob(x)
    np.testing.assert_allclose(found, known.log_prob(x), rtol=1e-6, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("share", [1e-3, 1.0])
def test_derivatives_in_the_noise(x64, share):
    distribution = corrected()
    scale = np.sqrt(np.asarray(distribution.variance))

    def value(sigma):
        return NoisyMarginal(distribution, sigma * scale).log_prob(at)

    at = distribution.from_normal_score(np.array([[-2.0], [0.3], [1.5]]))
    step = 1e-3 * share
    stencil = np.array([[-2, 1], [-1, -8], [1, 8], [2, -1]]) / np.array([1, 12])
    found = jax.jacfwd(value)(share)
    known = sum(weight * np.asarray(value(share + k * step)) for k, weight in stencil) / step
    np.testing.assert_allclose(found * share, known * share, rtol=1e-6, atol=1e-6)
    second = jax.jacfwd(jax.jacrev(lambda s: value(s).sum()))(share)
    slope = jax.grad(lambda s: value(s).sum())
    known = sum(weight * slope(share + k * step) for k, weight in stencil) / step
    np.testing.assert_allclose(second * share**2, known * share**2, rtol=1e-5, atol=1e-5)


@pytest.mark.slow
def test_without_noise_it_is_the_output():
    distribution = corrected()
    x = distribution.from_normal_score(np.array([[-1.0], [0.5]]))
    none = NoisyMarginal(distribution, 0.0)
    np.testing.assert_array_equal(none.log_prob(x), distribution.log_prob(x))
    some = NoisyMarginal(distribution, np.array([0.0, 0.1, 0.1]))
    np.testing.assert_array_equal(some.log_prob(x)[:, 0], distribution.log_prob(x)[:, 0])
    assert (some.log_prob(x)[:, 1] != distribution.log_prob(x)[:, 1]).all()


def test_tiny_noise_that_is_traced(precision):
    distribution = corrected()
    x = distribution.from_normal_score(np.array([[-1.0], [0.5]]))
    found = jax.jit(lambda s: NoisyMarginal(distribution, s).log_prob(x))(0.0)
    wide = precision == "float64"
    # The least noise, 1e-9 or 1e-4 standard deviations, shows how quantiles are rounded.
    np.testing.assert_allclose(found, distribution.log_prob(x), atol=1e-3 if wide else 2e-2)


@pytest.mark.slow
def test_values_out_of_reach():
    distribution = NoisyMarginal(corrected(), 0.1)
    x = jnp.array([-jnp.inf, jnp.inf, jnp.nan])[:, None]
    with pytest.warns(UserWarning, match="Out-of-support"):
        found = distribution.log_prob(x)
    np.testing.assert_array_equal(found[:2], -np.inf)
    np.testing.assert_array_equal(distribution.cdf(x), [[0.0] * 3, [1.0] * 3, [np.nan] * 3])
    far = jax.vmap(jax.grad(lambda y: distribution.log_prob(y).sum()))(jnp.array([1e3, -1e3]))
    assert jnp.isfinite(far).all()


@pytest.mark.slow
def test_far_beyond_both_ends_of_a_bent_support(precision):
    # The inverse of the map is rounded, at its ends too.
    knots = jnp.linspace(-1.0, 1.0, 17)
    base = CorrectedMarginal(nuq.LinearizedMarginal(0.0, [1.0]), knots, knots + 0.3 * knots**2)
    sigma = {"float32": 3e-4, "float64": 3e-9}[precision]
    noisy = NoisyMarginal(base, sigma)
    value = jnp.array([-20.0, -3.0, 3.0, 6.0, 40.0])
    away = np.where(value < 0, value + 0.7, value - 1.3)
    np.testing.assert_allclose(noisy.log_prob(value), -0.5 * (away / sigma) ** 2, rtol=1e-4)
    tail = jnp.where(value < 0, noisy.log_cdf(value), noisy.log_sf(value))
    np.testing.assert_allclose(tail, -0.5 * (away / sigma) ** 2, rtol=1e-4)
    slope = jax.vmap(jax.grad(noisy.log_prob))(value)
    np.testing.assert_allclose(slope, -away / sigma**2, rtol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sigma", "precision"), [(0.01, "float32"), (0.5, "float64")], indirect=["precision"]
)
def test_far_tails_of_two_normals(precision, sigma):
    """Log densities where densities underflow: outliers, and where a chain may begin."""
    images = jnp.linspace(-3.0, 3.0, 9)
    normal = nuq.LinearizedMarginal(jnp.zeros(1), jnp.zeros((1, 1)), jnp.ones(1))
    base = CorrectedMarginal(normal, images[None], images[None])
    distribution = NoisyMarginal(base, sigma)
    known = scipy.stats.norm(scale=np.hypot(1, sigma))
    x = np.array([-60.0, -20.0, 14.0, 16.0, 30.0, 80.0])
    tolerance = 1e-9 if precision == "float64" else 2e-5
    found = distribution.log_prob(x[:, None])[:, 0]
    np.testing.assert_allclose(found, known.logpdf(x), rtol=tolerance)
    np.testing.assert_allclose(
        distribution.log_cdf(x[:2, None])[:, 0], known.logcdf(x[:2]), rtol=tolerance
    )
    slopes = jax.vmap(jax.grad(lambda at: distribution.log_prob(at[None])[0]))(jnp.asarray(x))
    np.testing.assert_allclose(slopes, -x / known.var(), rtol=1e-5 if tolerance < 1e-6 else 0.03)


def integral(function, ends):
    pieces = itertools.pairwise(ends)
    return sum(scipy.integrate.fixed_quad(function, *piece, n=100)[0] for piece in pieces)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("share", "precision"),
    [(0.03, "float32"), (0.3, "float64"), (3.0, "float32")],
    indirect=["precision"],
)
def test_map_with_steep_and_flat_pieces(precision, share):
    # Slopes that change by up to 50 times between neighbors, as of networks that turn back.
    knots = np.linspace(-3.0, 3.0, 41)
    images = np.cumsum(0.3 * np.exp(-4.0 * np.sin(2.5 * knots) ** 2))
    base = CorrectedMarginal(dist.Normal(jnp.zeros(()), 1.0), jnp.asarray(knots), images)
    sigma = share * float(base.standard_deviation)
    noisy, levels = NoisyMarginal(base, sigma), np.array([-2.0, 0.2, 1.5])
    x = images.mean() + levels * np.hypot(sigma, images.std())
    ends = np.array([-9.0, *knots, 9.0])
    transform = MonotoneSpline(knots, images)  # NumPy's, in float64
    normal = scipy.stats.norm

    def known(kernel, at):
        def integrand(value):
            return normal.pdf(value) * kernel((at - transform(value)) / sigma)

        return np.log(integral(integrand, ends))

    for kernel, found in (
        (lambda u: normal.pdf(u) / sigma, noisy.log_prob(x)),
        (normal.cdf, noisy.log_cdf(x)),
        (normal.sf, noisy.log_sf(x)),
    ):
        np.testing.assert_allclose(found, [known(kernel, at) for at in x], atol=5e-4)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sigma", "low", "precision"),
    [(0.01, -0.03, "float32"), (1.0, 1.3, "float64")],
    indirect=["precision"],
)
@pytest.mark.parametrize(
    ("base", "known"),
    [
        (dist.StudentT(3.0, 0.0, 1.0), scipy.stats.t(3)),
        (dist.LogNormal(0.0, 1.0), scipy.stats.lognorm(1.0)),
    ],
)
def test_heavy_tails(precision, base, known, sigma, low):
    def expected(of, at):
        ends = np.linspace(-9, 9, 37)
        return integral(lambda u: of(at - sigma * u) * scipy.stats.norm.pdf(u), ends)

    noisy, x = NoisyMarginal(base, sigma), np.array([low, 0.5, 30.0])
    density, below = ([expected(of, at) for at in x] for of in (known.pdf, known.cdf))
    atol = 1e-4 if precision == "float32" else 1e-6
    np.testing.assert_allclose(noisy.log_prob(x), np.log(density), atol=atol)
    np.testing.assert_allclose(noisy.cdf(x), below, atol=1e-5)
    np.testing.assert_allclose(noisy.icdf(below[1]), x[1], rtol=1e-4)


HALF_LINES = {
    "exponential": (
        dist.Exponential(1.0),
        lambda x, s: scipy.stats.exponnorm.logpdf(x, 1 / s, 0, s),
    ),
    # A. Azzalini 1985
    "half normal": (
        dist.HalfNormal(1.0),
        lambda x, s: scipy.stats.skewnorm.logpdf(x, 1 / s, 0, np.sqrt(1 + s**2)),
    ),
}


@pytest.mark.parametrize("name", HALF_LINES)
def test_half_lines_beside_their_ends(name, precision):
    base, known = HALF_LINES[name]
    sigma = np.array([1e-3, 0.01, 0.1, 1.0])[:, None]
    x = (
        np.array([-2.0, 0.0, 0.5, 2.0, 5.0]) * sigma
        + np.array([[0.0], [0.1], [0.3], [2.0]])[:, None]
    )
    x = x.astype(precision)
    found = NoisyMarginal(base, sigma.astype(precision)).log_prob(x)
    expected = known(x.astype(float), sigma.astype(precision).astype(float))
    np.testing.assert_allclose(found, expected, atol=1e-4 if precision == "float32" else 1e-9)
