"""Time of one gradient of errors-in-variables regression, against normal marginals.

The model: observations of a network's outputs, each at its own measured input that lies in a box
of unknown half-width beta, with normal noise sigma. The peer has normal distributions of the same
means and standard deviations (the delta method), or the multivariate normal of the same covariance.

Run with ``python -m tests.benchmarks.bench_regression`` or ``make bench BENCH=bench_regression``.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jax import Array

import nn_uq_dist as nuq
from tests.benchmarks._timing import Timing, markdown_table, time_interleaved

OBSERVATIONS, INPUTS, HIDDEN, OUTPUTS = 1000, 12, 64, 12
BETA, SIGMA = 0.3, 0.1

Layers = list[Array]
LogLikelihood = Callable[[nuq.Linearization, Array, Array], Array]


def network(layers: Layers, x: Array) -> Array:
    """Leaky-ReLU network with two hidden layers."""
    for weights in layers[:-1]:
        x = jax.nn.leaky_relu(weights @ x, 0.01)
    return layers[-1] @ x


def marginals(linear: nuq.Linearization, sigma: Array, y: Array) -> Array:
    """Sum over observations and outputs, each with its exact distribution."""
    return linear.marginals(noise_scale=sigma).log_prob(y).sum()


def normal(linear: nuq.Linearization, sigma: Array, y: Array) -> Array:
    """Sum over observations and outputs, each taken as normal."""
    scale = jnp.sqrt(linear.variance + sigma**2)
    return dist.Normal(linear.mean, scale, validate_args=False).log_prob(y).sum()


def copula(linear: nuq.Linearization, sigma: Array, y: Array) -> Array:
    """Sum over observations, the outputs of each coupled by the copula."""
    return linear.gaussian_copula(noise_scale=sigma, correlation="linear").log_prob(y).sum()


def multivariate_normal(linear: nuq.Linearization, sigma: Array, y: Array) -> Array:
    """Sum over observations, the outputs of each jointly normal."""
    covariance = linear.covariance + sigma**2 * jnp.eye(OUTPUTS, dtype=y.dtype)
    distribution = dist.MultivariateNormal(linear.mean, covariance, validate_args=False)
    return distribution.log_prob(y).sum()


def joint(linear: nuq.Linearization, sigma: Array, y: Array) -> Array:
    """Sum over observations, the joint distribution, by expectation propagation."""
    return linear.joint(noise_scale=sigma).log_prob(y).sum()


LAWS: dict[str, LogLikelihood] = {
    "Normal": normal,
    "marginals": marginals,
    "MultivariateNormal": multivariate_normal,
    "copula": copula,
    "joint": joint,
}


def fixed_network(
    distribution: LogLikelihood, x: Array, y: Array, unit: nuq.Linearization
) -> Callable[[], tuple[Array, ...]]:
    """Gradient in beta and sigma; the network was linearized beforehand."""

    def density(beta: Array, sigma: Array, x: Array, y: Array, loc: Array, rows: Array) -> Array:
        return distribution(
            nuq.Linearization(loc, rows, nuq.Input.box(x, half_width=beta)), sigma, y
        )

    slope = jax.jit(jax.value_and_grad(density, argnums=(0, 1)))
    parameters = jnp.asarray(BETA, x.dtype), jnp.asarray(SIGMA, x.dtype)
    return lambda: slope(*parameters, x, y, unit.loc, unit.jacobian)


def trained_network(
    distribution: LogLikelihood, x: Array, y: Array, layers: Layers
) -> Callable[[], tuple[Array, ...]]:
    """Gradient in the weights of the network, beta and sigma: a linearization each time."""

    def density(layers: Layers, beta: Array, sigma: Array, x: Array, y: Array) -> Array:
        linear = nuq.linearize(lambda one: network(layers, one), nuq.Input.box(x, half_width=beta))
        return distribution(linear, sigma, y)

    slope = jax.jit(jax.value_and_grad(density, argnums=(0, 1, 2)))
    parameters = jnp.asarray(BETA, x.dtype), jnp.asarray(SIGMA, x.dtype)
    return lambda: slope(layers, *parameters, x, y)


def gradients(dtype: str) -> None:
    """Both kinds of gradient, all distributions, in one run."""
    keys = jax.random.split(jax.random.key(0), 6)
    sizes = [INPUTS, HIDDEN, HIDDEN, OUTPUTS]
    layers = [
        jax.random.normal(key, (wide, narrow), dtype) * (2 / narrow) ** 0.5
        for key, narrow, wide in zip(keys[:3], sizes[:-1], sizes[1:], strict=True)
    ]
    x = jax.random.normal(keys[3], (OBSERVATIONS, INPUTS), dtype)
    f = nuq.Input.box(x, half_width=BETA)
    noise = SIGMA * jax.random.normal(keys[5], (OBSERVATIONS, OUTPUTS), dtype)
    y = jax.vmap(lambda one: network(layers, one))(f.sample(keys[4])) + noise
    unit = nuq.linearize(lambda one: network(layers, one), nuq.Input.box(x, half_width=1.0))

    kinds = {
        "beta and sigma": lambda distribution: fixed_network(distribution, x, y, unit),
        "the network's weights, beta and sigma": lambda distribution: trained_network(
            distribution, x, y, layers
        ),
    }
    for kind, prepare in kinds.items():
        timings = time_interleaved(
            {name: prepare(distribution) for name, distribution in LAWS.items()}
        )
        print(
            f"\n## Gradient in {kind}: {OBSERVATIONS} observations x {OUTPUTS} outputs x "
            f"{INPUTS} inputs, {dtype}\n"
        )
        print(markdown_table(timings, relative_to="Normal"))
        _print_ratio(timings, "marginals", "Normal")
        _print_ratio(timings, "copula", "MultivariateNormal")
        _print_ratio(timings, "joint", "MultivariateNormal")
        _print_ratio(timings, "joint", "copula")


def _print_ratio(timings: dict[str, Timing], name: str, peer: str) -> None:
    print(f"\n{name} / {peer}: {timings[name].ratio_to(timings[peer]):.3g}", flush=True)


if __name__ == "__main__":
    gradients("float32")
    with jax.enable_x64(True):
        gradients("float64")
