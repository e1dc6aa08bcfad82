"""Other methods for the distribution of a network's outputs, from their formulas, for
`bench_peers`.

All take a leaky-ReLU network without skip connection and a box as input.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.scipy.stats import norm
from numpy.typing import NDArray

import nn_uq_dist as nuq

NODES = 20  # of the Gauss-Legendre rule


class Moments(NamedTuple):
    """Mean ``(N_y,)`` and covariance ``(N_y, N_y)`` of the outputs."""

    mean: Array
    covariance: Array


def linear_moments(net: Callable[[Array], Array], distribution: nuq.Input) -> Moments:
    """Mean and covariance of the linearized network: the delta method."""
    linear = nuq.linearize(net, distribution)
    return Moments(linear.mean, linear.covariance)


def leaky_relu_moments(mean: Array, variance: Array, slope: Array) -> tuple[Array, Array]:
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


def leaky_relu_covariance(mean: Array, covariance: Array, slope: Array) -> Array:
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


def moment_matching(net: nuq.LeakyReLUNetwork, distribution: nuq.Input, *, full: bool) -> Moments:
    """Assumed-density filtering: every layer's pre-activations are taken as normal.

    Parameters
    ----------
    net, distribution
        The network and its input.
    full
        Whether covariances between neurons are kept. Without them neurons are independent, as in
        J. Gast and S. Roth, Lightweight probabilistic deep networks (CVPR 2018).
    """
    mean, covariance = distribution.mean, distribution.covariance
    for weights, bias in zip(net.hidden_weights, net.biases, strict=True):
        mean, covariance = weights @ mean + bias, weights @ covariance @ weights.T
        variance = jnp.diagonal(covariance)
        if full:
            covariance = leaky_relu_covariance(mean, covariance, net.negative_slope)
            mean, _ = leaky_relu_moments(mean, variance, net.negative_slope)
        else:
            mean, variance = leaky_relu_moments(mean, variance, net.negative_slope)
            covariance = jnp.diag(variance)
    outputs = net.output_matrix
    return Moments(outputs @ mean, outputs @ covariance @ outputs.T)


def unscented(net: Callable[[Array], Array], distribution: nuq.Input, spread: float) -> Moments:
    """Moments from ``2 N_x + 1`` points, all but the mean ``sqrt(spread)`` deviations from it.

    S. Julier and J. Uhlmann, Proc. IEEE 92 (2004) 401, with ``spread = N_x + kappa``. The fourth
    moment of a coordinate is matched if `spread` is its kurtosis, 1.8 for a uniform distribution.
    """
    size = distribution.num_inputs
    steps = jnp.diag(jnp.sqrt(spread * distribution.variance))
    points = distribution.mean + jnp.concatenate([jnp.zeros((1, size)), steps, -steps])
    weights = jnp.full(2 * size + 1, 0.5 / spread).at[0].set(1 - size / spread)
    outputs = jax.vmap(net)(points)
    mean = weights @ outputs
    centered = outputs - mean
    return Moments(mean, (weights * centered.T) @ centered)


def sampled(
    net: Callable[[Array], Array], distribution: nuq.Input, key: Array, num_samples: int
) -> tuple[Moments, Array]:
    """Moments of draws through the network, and the draws ``(num_samples, N_y)``."""
    outputs = jax.vmap(net)(distribution.sample(key, (num_samples,)))
    return Moments(outputs.mean(0), jnp.cov(outputs, rowvar=False)), outputs


def with_uncertainties(
    net: nuq.LeakyReLUNetwork, distribution: nuq.Input
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Mean and covariance by the package `uncertainties`, which carries numbers with errors."""
    from uncertainties import covariance_matrix, ufloat

    deviations = np.sqrt(np.asarray(distribution.variance, float))
    values = np.asarray(distribution.mean, float)
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


def on_the_real_axis(
    weights: NDArray[np.float64], x: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Density and survival function by the inverse Fourier integral, without a tilt.

    The trapezoidal rule with the step ``pi / (2 W)``, ``W = sum |w|``, has no aliases on the
    support, and ends where the characteristic function is below 1e-17: no quadrature of this
    integral in float64 is better. `weights` has shape ``(n,)``, `x` is measured from the center.
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


def on_a_fixed_grid(weights: NDArray[np.float64], x: NDArray[np.float64]) -> NDArray[np.float64]:
    """Density from 2048 frequencies of step one, whose result has the period ``2 pi``."""
    frequency = np.arange(-1023.5, 1024.0)
    transform = np.prod(np.sinc(np.outer(weights, frequency) / np.pi), axis=0)
    return np.abs(np.exp(-1j * np.outer(x, frequency)) @ transform) / (2 * np.pi)
