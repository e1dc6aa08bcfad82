"""Time of linearization and of Monte Carlo through networks.

Run with ``python -m tests.benchmarks.bench_networks`` or ``make bench``.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp

import nn_uq_dist as nuq
from tests.benchmarks._timing import markdown_table, time_interleaved


def random_network(sizes: list[int]) -> Callable[[jax.Array], jax.Array]:
    """Leaky-ReLU network with random weights."""
    keys = jax.random.split(jax.random.key(0), len(sizes) - 1)
    layers = [
        jax.random.normal(key, (wide, narrow)) / narrow**0.5
        for key, narrow, wide in zip(keys, sizes[:-1], sizes[1:], strict=True)
    ]

    def network(x: jax.Array) -> jax.Array:
        for weights in layers[:-1]:
            x = jax.nn.leaky_relu(weights @ x)
        return layers[-1] @ x

    return network


def linearization() -> None:
    """Large outputs, and many means of one network."""
    wide = random_network([3072, 128, 1000])
    box = nuq.Input.box(jnp.zeros(3072), half_width=0.1)
    small = random_network([31, 64, 31])
    means = jax.random.normal(jax.random.key(1), (10_000, 31))
    batch = nuq.Input.box(means, half_width=0.1)
    linearize_small = jax.jit(lambda distribution: nuq.linearize(small, distribution))
    timings = time_interleaved(
        {
            "linearize, 1000 outputs x 3072 inputs": lambda: nuq.linearize(wide, box).jacobian,
            "linearize, 10,000 means of a 31-64-31 network": lambda: linearize_small(batch).loc,
        },
        num_rounds=5,
    )
    print("\n## Linearization, float32\n")
    print(markdown_table(timings, relative_to="linearize, 10,000 means of a 31-64-31 network"))


def draws() -> None:
    """Reference draws."""
    network = random_network([31, *[64] * 5, 31])
    distribution = nuq.Input.box(jnp.ones(31), half_width=0.5)
    key = jax.random.key(2)
    timings = time_interleaved(
        {
            "monte_carlo, 1e5 draws": lambda: nuq.monte_carlo(
                network, distribution, key, 100_000, progress=False
            ),
        },
        num_rounds=3,
    )
    print("\n## Draws through a network of 5 hidden layers of 64 neurons, 31 inputs and outputs\n")
    print(markdown_table(timings, relative_to="monte_carlo, 1e5 draws"))


if __name__ == "__main__":
    linearization()
    draws()
