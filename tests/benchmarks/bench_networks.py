"""Time of linearization and of Monte Carlo through networks."""

import jax
import jax.numpy as jnp

import nn_uq_dist as nuq
from tests.benchmarks._networks import random_network
from tests.benchmarks._timing import print_timings, time_interleaved


def linearization():
    """Large outputs, and many means of one network."""
    wide, small = (
        random_network(0, sizes, jax.nn.leaky_relu) for sizes in ([3072, 128, 1000], [31, 64, 31])
    )
    box = nuq.Input.box(jnp.zeros(3072), half_width=0.1)
    batch = nuq.Input.box(jax.random.normal(jax.random.key(1), (10_000, 31)), half_width=0.1)
    linearize_small = jax.jit(lambda f: nuq.linearize(small, f))
    many = "linearize, 10,000 means of a 31-64-31 network"
    calls = {
        "linearize, 1000 outputs x 3072 inputs": lambda: nuq.linearize(wide, box).jacobian,
        many: lambda: linearize_small(batch).loc,
    }
    print("\n## Linearization, float32")
    print_timings(time_interleaved(calls, num_rounds=5), relative_to=many)


def draws():
    """Reference draws."""
    network = random_network(0, [31, *[64] * 5, 31], jax.nn.leaky_relu)
    f = nuq.Input.box(jnp.ones(31), half_width=0.5)
    name, key = "monte_carlo, 1e5 draws", jax.random.key(2)
    calls = {name: lambda: nuq.monte_carlo(network, f, key, 100_000, progress=False)}
    print("\n## Draws through a network of 5 hidden layers of 64 neurons, 31 inputs and outputs")
    print_timings(time_interleaved(calls, num_rounds=3), relative_to=name)


if __name__ == "__main__":
    linearization()
    draws()
