"""Other methods for the distribution of a network's outputs, from their formulas.

Methods for moments take a network and its input; distribution functions take values ``(n, N_y)``.
"""

import math
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.scipy.stats import norm
from scipy.interpolate import PchipInterpolator
from scipy.special import ndtr, ndtri
from scipy.stats import gaussian_kde

import nn_uq_dist as nuq
from nn_uq_dist.basics.quadrature_nodes import sobol_points

NODES = 20  # of the Gauss-Legendre rule
SURROGATE_DRAWS = 200_000  # of a quadratic or polynomial, which do not run the network


class Moments(NamedTuple):
    """Mean ``(N_y,)`` and covariance ``(N_y, N_y)`` of the outputs."""

    mean: Array
    covariance: Array


def linear_moments(net, f):
    """Mean and covariance of the linearized network: the delta method."""
    linear = nuq.linearize(net, f)
    return Moments(linear.mean, linear.covariance)


def leaky_relu_moments(mean, variance, slope):
    """Mean and variance of the leaky ReLU of normal variables, in closed form."""
    scale = jnp.sqrt(variance)
    ratio = mean / scale
    positive = norm.cdf(ratio)
    tail = scale * norm.pdf(ratio)
    relu = mean * positive + tail
    relu_square = (mean**2 + variance) * positive + mean * tail
    result = slope * mean + (1 - slope) * relu
    square = slope**2 * (mean**2 + variance) + (1 - slope**2) * relu_square
    return result, square - result**2


def leaky_relu_covariance(mean, covariance, slope):
    """Covariance of the leaky ReLU of jointly normal variables.

    By Price's theorem the second derivative of ``E[relu(x) relu(y)]`` in the correlation is the
    density at the kinks, so that, with ``r = mean / scale``, the covariance of the ReLUs is ::

        scale_x scale_y (rho Phi(r_x) Phi(r_y) + Int_0^rho (rho - t) phi_2(r_x, r_y; t) dt)

    The integral is taken over ``arcsin t`` by the Gauss-Legendre rule.
    """
    scale = jnp.sqrt(jnp.diagonal(covariance))
    ratio = mean / scale
    gain = slope + (1 - slope) * norm.cdf(ratio)
    rho = jnp.clip(covariance / jnp.outer(scale, scale), -1, 1)
    end = jnp.arcsin(rho)
    squares, product = ratio[:, None] ** 2 + ratio**2, jnp.outer(ratio, ratio)
    kinks = jnp.zeros_like(rho)
    for node, weight in zip(*np.polynomial.legendre.leggauss(NODES), strict=True):
        angle = 0.5 * (1 + node) * end
        t = jnp.sin(angle)
        exponent = (product * t - 0.5 * squares) / jnp.cos(angle) ** 2
        kinks += weight * (rho - t) * jnp.exp(exponent)
    kinks *= 0.5 * end / (2 * math.pi)
    return jnp.outer(gain, gain) * covariance + (1 - slope) ** 2 * jnp.outer(scale, scale) * kinks


def moment_matching(net, f, *, full):
    """Assumed-density filtering of a leaky-ReLU network: pre-activations are taken as normal.

    Unless `full`, neurons are independent: J. Gast and S. Roth, Lightweight probabilistic deep
    networks (CVPR 2018).
    """
    mean, covariance = f.mean, f.covariance
    for weights, bias in zip(net.hidden_weights, net.biases, strict=True):
        mean, covariance = weights @ mean + bias, weights @ covariance @ weights.T
        new, variance = leaky_relu_moments(mean, jnp.diagonal(covariance), net.negative_slope)
        if full:
            covariance = leaky_relu_covariance(mean, covariance, net.negative_slope)
        else:
            covariance = jnp.diag(variance)
        mean = new
    outputs = net.output_matrix
    return Moments(outputs @ mean, outputs @ covariance @ outputs.T)


def stable_propagation(layers, activation, f, *, full):
    """Location and scale matrix of a normal variable, sent through each layer.

    F. Petersen et al., Uncertainty quantification via stable distribution propagation (ICLR 2024):
    an affine map is exact, an activation acts on the location and by its slope there on the scale.
    Without `full`, neurons are independent after each layer.
    """
    mean, covariance = f.mean, f.covariance
    for number, (weights, bias) in enumerate(layers, 1):
        mean, covariance = weights @ mean + bias, weights @ covariance @ weights.T
        if number < len(layers):
            mean, slope = jax.jvp(activation, (mean,), (jnp.ones_like(mean),))
            covariance = slope[:, None] * covariance * slope
        covariance = covariance if full else jnp.diag(jnp.diagonal(covariance))
    return Moments(mean, covariance)


def unscented(net, f, spread):
    """Moments from ``2 N_x + 1`` points, all but the mean ``sqrt(spread)`` deviations from it.

    S. Julier and J. Uhlmann, Proc. IEEE 92 (2004) 401, with ``spread = N_x + kappa``. The fourth
    moment of a coordinate is matched if `spread` is its kurtosis, 1.8 for a uniform distribution.
    """
    size = f.num_inputs
    steps = jnp.diag(jnp.sqrt(spread * f.variance))
    points = f.mean + jnp.concatenate([jnp.zeros((1, size)), steps, -steps])
    weights = jnp.full(2 * size + 1, 0.5 / spread).at[0].set(1 - size / spread)
    outputs = jax.vmap(net)(points)
    mean = weights @ outputs
    centered = outputs - mean
    return Moments(mean, (weights * centered.T) @ centered)


def sampled(net, f, key, num_samples):
    """Moments of draws through the network, and the draws ``(num_samples, N_y)``."""
    outputs = jax.vmap(net)(f.sample(key, (num_samples,)))
    return Moments(outputs.mean(0), jnp.cov(outputs, rowvar=False)), outputs


def with_uncertainties(net, f):
    """Mean and covariance by the package `uncertainties`, which carries numbers with errors."""
    from uncertainties import covariance_matrix, ufloat

    deviations = np.sqrt(np.asarray(f.variance, float))
    values = np.asarray(f.mean, float)
    x = np.array([ufloat(m, s) for m, s in zip(values, deviations, strict=True)])
    slope = float(net.negative_slope)
    for weights, bias in zip(net.hidden_weights, net.biases, strict=True):
        hidden = np.asarray(weights, float) @ x + np.asarray(bias, float)
        for h in hidden:
            # Sums are kept as trees; unless expanded layer by layer, they grow like 64**5.
            _ = h.derivatives
        x = np.array([h if h.nominal_value >= 0 else slope * h for h in hidden])
    outputs = np.asarray(net.output_matrix, float) @ x
    mean = np.array([y.nominal_value for y in outputs])
    return mean, np.asarray(covariance_matrix(list(outputs)))


def normal_cdf(moments):
    """Distribution functions of normal distributions with these moments."""
    mean, covariance = (np.asarray(part, float) for part in moments)
    return lambda y: ndtr((np.asarray(y) - mean) / np.sqrt(np.diag(covariance)))


def _by_column(draws, cdf_of):
    """Distribution functions of the columns of draws: ``cdf_of(sorted column)`` is one."""
    cdfs = [cdf_of(column) for column in np.sort(np.asarray(draws), axis=0).T]
    return lambda y: np.stack(
        [cdf(values) for cdf, values in zip(cdfs, np.asarray(y).T, strict=True)], axis=-1
    )


def empirical_cdf(draws):
    """Empirical distribution functions of draws ``(num_draws, N_y)``."""
    return _by_column(
        draws, lambda column: lambda y: np.searchsorted(column, y, side="right") / len(column)
    )


def kernel(draws):
    """Gaussian kernel estimates with Scott's width."""

    def cdf_of(column):
        width = gaussian_kde(column).factor * column.std(ddof=1)
        return lambda y: ndtr((y[:, None] - column) / width).mean(axis=1)

    return _by_column(draws, cdf_of)


def spline(draws):
    """Monotone cubic spline of the normal score through root-n empirical quantiles, in the output.

    Beyond the outermost knots the normal score is a straight line.
    """

    def cdf_of(column):
        ranks = np.unique(np.linspace(0, len(column) - 1, math.isqrt(len(column))).astype(int))
        at, scores = column[ranks], ndtri((ranks + 0.5) / len(column))
        low, high = ((np.diff(scores) / np.diff(at))[k] for k in (0, -1))
        inside = PchipInterpolator(at, scores)

        def cdf(y):
            beyond = np.minimum(y - at[0], 0) * low + np.maximum(y - at[-1], 0) * high
            return ndtr(inside(np.clip(y, at[0], at[-1])) + beyond)

        return cdf

    return _by_column(draws, cdf_of)


def second_order(network, f, key):
    """Distribution of the quadratic Taylor polynomial at the mean, from draws of it."""
    value, slopes, curvatures = _taylor(network, f.mean)
    z = f.sample(key, (SURROGATE_DRAWS,)) - f.mean
    return empirical_cdf(_quadratic(value, slopes, curvatures, z))


@partial(jax.jit, static_argnums=0)
def _taylor(network, mean):
    return network(mean), jax.jacobian(network)(mean), jax.hessian(network)(mean)


@jax.jit
def _quadratic(value, slopes, curvatures, z):
    bend = [jnp.sum((z @ matrix) * z, axis=1) for matrix in curvatures]
    return value + z @ slopes.T + 0.5 * jnp.stack(bend, axis=1)


def sobol_inputs(f, key, count):
    """Inputs at Sobol points, and the same as uniform (-1, 1) or standard normal variables."""
    points = sobol_points(key, count, 1, f.num_inputs)
    standard = 2 * points - 1 if f.normal_scale is None else ndtri(points)
    scale = f.half_width if f.normal_scale is None else f.normal_scale
    return f.mean + scale * jnp.asarray(standard), standard


def on_the_real_axis(weights, x):
    """Density and survival function of a sum of uniforms by the inverse Fourier integral.

    Without a tilt. The trapezoidal rule with the step ``pi / (2 W)``, ``W = sum |w|``, has no
    aliases on the support, and ends where the characteristic function is below 1e-17: no quadrature
    of this integral in float64 is better. `weights` has shape ``(n,)``, `x` is measured from the
    center.
    """
    step = np.pi / (2 * np.abs(weights).sum())
    # |phi(a)| <= prod 1/|w a|
    geometric_mean = np.exp(np.log(np.abs(weights)).mean())
    last = 10 ** (17 / len(weights)) / geometric_mean
    frequency = step * np.arange(1, min(int(last / step) + 2, 200_000))
    transform = np.prod(np.sinc(np.outer(weights, frequency) / np.pi), axis=0)
    angle = np.outer(x, frequency)
    density = step / np.pi * (0.5 + np.cos(angle) @ transform)
    # The constant term of the sine series is the straight line of the period.
    survival = 0.5 - step / np.pi * (0.5 * x + np.sin(angle) @ (transform / frequency))
    return density, survival


def on_a_fixed_grid(weights, x):
    """Density from 2048 frequencies of step one, whose result has the period ``2 pi``."""
    frequency = np.arange(-1023.5, 1024.0)
    transform = np.prod(np.sinc(np.outer(weights, frequency) / np.pi), axis=0)
    return np.abs(np.exp(-1j * np.outer(x, frequency)) @ transform) / (2 * np.pi)
