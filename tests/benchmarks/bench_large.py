"""Large networks: time and memory from the Jacobian to log densities, one process per case.

Run with ``python -m tests.benchmarks.bench_large`` or ``make bench BENCH=bench_large``.
"""

import itertools
import os
import sys
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import nn_uq_dist as nuq
from tests.benchmarks._timing import peak_megabytes, run_alone

NUM_POINTS = 100
# Inputs, outputs, and whether the inputs are uniform.
MARGINALS = {
    "150,528 uniform inputs, 10 outputs": (150_528, 10, True),
    "150,528 normal inputs, 10 outputs": (150_528, 10, False),
    "20,000 uniform inputs, 1,000 outputs": (20_000, 1_000, True),
    "20,000 normal inputs, 1,000 outputs": (20_000, 1_000, False),
    "3 uniform inputs, 10,000 outputs": (3, 10_000, True),
}
BATCH = "10,000 test points, 12-64-64-3"
JOINT = "joint of 2,000 outputs, 50 inputs"


def network(sizes: list[int]) -> Callable[[jax.Array], jax.Array]:
    """Layers of tanh with random weights."""
    rng = np.random.default_rng(0)
    layers = [
        jnp.asarray(rng.standard_normal((wide, narrow), np.float32) / narrow**0.5)
        for narrow, wide in itertools.pairwise(sizes)
    ]

    def net(x: jax.Array) -> jax.Array:
        for weights in layers[:-1]:
            x = jnp.tanh(weights @ x)
        return layers[-1] @ x

    return net


def input_distribution(
    num_inputs: int, *, is_uniform: bool, batch: tuple[int, ...] = ()
) -> nuq.Input:
    """Random means, and inputs that vary by a tenth about them."""
    loc = np.random.default_rng(1).standard_normal((*batch, num_inputs), np.float32)
    scale = jnp.full(num_inputs, 0.1)
    return nuq.Input.box(loc, half_width=scale) if is_uniform else nuq.Input.normal(loc, scale)


def twice(call: Callable[[], Any]) -> tuple[Any, str]:
    """The result, and the seconds of the first and of the best of three more calls."""
    seconds, result = [], None
    for _ in range(4):
        start = time.perf_counter()
        result = jax.block_until_ready(call())
        seconds.append(time.perf_counter() - start)
    return result, f"{seconds[0]:.2f} / {min(seconds[1:]):.3f}"


def row(name: str, jacobian: jax.Array, before: float, *cells: str) -> str:
    """A row of the table; the memory is what was added since the network stood."""
    peak = peak_megabytes() - before
    return f"| {name} | {' | '.join(cells)} | {jacobian.nbytes / 2**20:.0f} | {peak:.0f} |"


def of_marginals(name: str) -> str:
    """Tangent, marginals, and log densities of points within three standard deviations."""
    num_inputs, num_outputs, is_uniform = MARGINALS[name]
    net = network([num_inputs, 64, num_outputs])
    distribution = input_distribution(num_inputs, is_uniform=is_uniform)
    before = peak_megabytes()
    linear, of_linear = twice(lambda: nuq.linearize(net, distribution))
    marginals, of_marginals = twice(linear.marginals)
    steps = jnp.linspace(-3, 3, NUM_POINTS)[:, None]
    low, high = marginals.bounds
    points = jnp.clip(marginals.mean + steps * marginals.variance**0.5, low, high)
    logs, of_density = twice(lambda: marginals.log_prob(points))
    assert not jnp.isnan(logs).any()
    return row(name, linear.jacobian, before, of_linear, of_marginals, of_density)


def of_batch(name: str) -> str:
    """Tangents and marginals of many test points, and the density of an observation of each."""
    net = network([12, 64, 64, 3])
    distribution = input_distribution(12, is_uniform=True, batch=(10_000,))
    before = peak_megabytes()
    linear, of_linear = twice(lambda: nuq.linearize(net, distribution))
    marginals, of_marginals = twice(linear.marginals)
    points = marginals.mean + 0.5 * marginals.variance**0.5
    _, of_density = twice(lambda: marginals.log_prob(points))
    return row(name, linear.jacobian, before, of_linear, of_marginals, of_density)


def of_joint(name: str) -> str:
    """The joint distribution with noise, draws of it, and their log densities."""
    net = network([50, 64, 2_000])
    distribution = input_distribution(50, is_uniform=True)
    before = peak_megabytes()
    linear, of_linear = twice(lambda: nuq.linearize(net, distribution))
    joint, of_distribution = twice(lambda: linear.joint(noise_scale=0.1))
    draws, of_draws = twice(lambda: joint.sample(jax.random.key(0), (NUM_POINTS,)))
    logs, of_density = twice(lambda: joint.log_prob(draws))
    assert jnp.isfinite(logs).all()
    return row(
        name, linear.jacobian, before, of_linear, of_distribution, f"{of_density}, draws {of_draws}"
    )


def case(name: str) -> str:
    """One row, measured in this process."""
    if name == BATCH:
        return of_batch(name)
    return of_joint(name) if name == JOINT else of_marginals(name)


def main() -> None:
    """All rows, a process each."""
    load = os.getloadavg()[0]
    print(f"\n## Large networks, float32, {NUM_POINTS} points for each output\n")
    print(f"Seconds of the first call / of a later one; load of the machine {load:.1f}.\n")
    print("| case | `linearize` | distribution | `log_prob` | Jacobian, MB | peak memory, MB |")
    print("|---|---:|---:|---:|---:|---:|", flush=True)
    for name in (*MARGINALS, BATCH, JOINT):
        print(run_alone(__spec__.name, name).strip(), flush=True)


if __name__ == "__main__":
    if sys.argv[1:]:
        print(case(sys.argv[1]))
    else:
        main()
