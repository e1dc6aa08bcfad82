"""Time of one gradient of errors-in-variables regression, against normal marginals.

The model: observations of a network's outputs, each at its own measured input that lies in a box
of unknown half-width beta, with normal noise sigma. The peer has normal distributions of the same
means and standard deviations (the delta method), or the multivariate normal of the same covariance.
Then values and gradients of corrected distributions with noise.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

import nn_uq_dist as nuq
from nn_uq_dist.distributions import NoisyMarginal
from tests.benchmarks._networks import VARYING, operator_and_box, random_layers
from tests.benchmarks._timing import print_timings, time_interleaved

OBSERVATIONS, INPUTS, HIDDEN, OUTPUTS = 1000, 12, 64, 12
BETA, SIGMA = 0.3, 0.1


def network(weights, x):
    """Leaky-ReLU network with two hidden layers."""
    for matrix in weights[:-1]:
        x = jax.nn.leaky_relu(matrix @ x)
    return weights[-1] @ x


DISTRIBUTIONS = {
    "Normal": lambda linear, sigma: dist.Normal(
        linear.mean, jnp.sqrt(linear.variance + sigma**2), validate_args=False
    ),
    "marginals": lambda linear, sigma: linear.marginals(noise_scale=sigma),
    "MultivariateNormal": lambda linear, sigma: dist.MultivariateNormal(
        linear.mean, linear.covariance + sigma**2 * jnp.eye(OUTPUTS, dtype=sigma.dtype),
        validate_args=False,
    ),
    "copula": lambda linear, sigma: linear.gaussian_copula(noise_scale=sigma),
    "joint": lambda linear, sigma: linear.joint(noise_scale=sigma),
}  # fmt: skip
PEERS = {"marginals": "Normal", "copula": "MultivariateNormal", "joint": "MultivariateNormal"}


def fixed_network(distribution, parameters, x, y, weights):
    """Gradient in beta and sigma; the network was linearized beforehand."""
    unit = nuq.linearize(partial(network, weights), nuq.Input.box(x, half_width=1.0))

    def density(beta, sigma, x, y, loc, rows):
        linear = nuq.Linearization(loc, rows, nuq.Input.box(x, half_width=beta))
        return distribution(linear, sigma).log_prob(y).sum()

    slope = jax.jit(jax.value_and_grad(density, argnums=(0, 1)))
    return lambda: slope(*parameters, x, y, unit.loc, unit.jacobian)


def trained_network(distribution, parameters, x, y, weights):
    """Gradient in the weights of the network, beta and sigma: a linearization each time."""

    def density(weights, beta, sigma, x, y):
        linear = nuq.linearize(partial(network, weights), nuq.Input.box(x, half_width=beta))
        return distribution(linear, sigma).log_prob(y).sum()

    slope = jax.jit(jax.value_and_grad(density, argnums=(0, 1, 2)))
    return lambda: slope(weights, *parameters, x, y)


def gradients(dtype):
    """Both kinds of gradient, all distributions, in one run."""
    keys = jax.random.split(jax.random.key(0), 3)
    sizes = [INPUTS, HIDDEN, HIDDEN, OUTPUTS]
    layers = random_layers(np.random.default_rng(0), sizes, gain=2**0.5, dtype=dtype)
    weights = [matrix for matrix, _ in layers]
    x = jax.random.normal(keys[0], (OBSERVATIONS, INPUTS), dtype)
    noise = SIGMA * jax.random.normal(keys[1], (OBSERVATIONS, OUTPUTS), dtype)
    drawn = nuq.Input.box(x, half_width=BETA).sample(keys[2])
    y = jax.vmap(partial(network, weights))(drawn) + noise
    parameters = jnp.asarray(BETA, dtype), jnp.asarray(SIGMA, dtype)
    kinds = {
        "beta and sigma": fixed_network,
        "the network's weights, beta and sigma": trained_network,
    }
    for kind, prepare in kinds.items():
        calls = {
            name: prepare(distribution, parameters, x, y, weights)
            for name, distribution in DISTRIBUTIONS.items()
        }
        timings = time_interleaved(calls)
        print(
            f"\n## Gradient in {kind}: {OBSERVATIONS} observations x {OUTPUTS} outputs x "
            f"{INPUTS} inputs, {dtype}"
        )
        print_timings(timings, relative_to="Normal")
        for name, peer in PEERS.items():
            print(f"\n{name} / {peer}: {timings[name].ratio_to(timings[peer]):.3g}", flush=True)


def noise_on_corrected(pairs=1000, points=40):
    """Density of corrected outputs of a trained operator, without and with noise, and gradients."""
    net, f = operator_and_box("nonlinear_5", 1.5)
    lin = nuq.linearize(net, f)
    draws = nuq.paired_draws(net, lin, jax.random.key(0), pairs, progress=False)
    distribution = lin.corrected(draws).marginals()[VARYING]
    levels = (np.arange(points, dtype=np.float32) + 0.5) / points
    y, scale = distribution.icdf(jnp.asarray(levels[:, None])), jnp.sqrt(distribution.variance)

    def without(shift):
        return distribution.log_prob(y + shift).sum()

    def noisy(sigma):
        return NoisyMarginal(distribution, sigma * scale).log_prob(y).sum()

    calls = {}
    for name, function, at in (("without noise", without, 0.0), ("with noise", noisy, 0.3)):
        calls[name] = partial(jax.jit(function), jnp.float32(at))
        calls[f"gradient, {name}"] = partial(jax.jit(jax.value_and_grad(function)), jnp.float32(at))
    print(f"\n## {points} values of {len(VARYING)} corrected outputs, {pairs} pairs, float32")
    print_timings(time_interleaved(calls), relative_to="gradient, without noise")


if __name__ == "__main__":
    gradients("float32")
    noise_on_corrected()
    with jax.enable_x64(True):
        gradients("float64")
