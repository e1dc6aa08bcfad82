"""Noise on corrected distributions: time of values and gradients, and distance to draws.

Run with ``python -m tests.benchmarks.bench_noise`` or ``make bench BENCH=bench_noise``;
``--draws 0`` for times alone.
"""

import argparse
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import nn_uq_dist as nuq
from tests.benchmarks._timing import markdown_table, time_interleaved
from tests.benchmarks.bench_corrected import make_case

NETWORK, HALF_WIDTH, PAIRS, POINTS = "nonlinear_5", 1.5, 1000, 40
SHARES = (1e-3, 0.03, 0.3, 1.0, 3.0)  # of the noise, in standard deviations


def costs(dtype: Any) -> str:
    """Times of a gradient in the noise, or of the values, where distribution and map are known or
    traced."""
    case = make_case(NETWORK, HALF_WIDTH)
    lin = jax.tree.map(lambda leaf: jnp.asarray(leaf, dtype), case.lin)
    pairs = nuq.paired_draws(case.net, lin, jax.random.key(0), PAIRS, progress=False)
    corrected = lin.corrected(pairs)
    distribution = corrected.marginals()
    outputs = np.flatnonzero(np.asarray(lin.variance) > 0)
    distribution = distribution[outputs]
    levels = (np.arange(POINTS) + 0.5) / POINTS
    y = distribution.icdf(jnp.asarray(levels[:, None], dtype))
    noisy = nuq.distributions.NoisyMarginal

    def without(shift: Any, distribution: Any) -> Any:
        return distribution.log_prob(y + shift).sum()

    def known(sigma: Any) -> Any:
        return noisy(distribution, sigma * scale).log_prob(y).sum()

    def traced(sigma: Any, distribution: Any) -> Any:
        return noisy(distribution, sigma * scale).log_prob(y).sum()

    scale = jnp.sqrt(distribution.variance)
    one, zero = jnp.asarray(0.3, dtype), jnp.asarray(0.0, dtype)
    value, gradient = jax.jit, lambda f, **o: jax.jit(jax.value_and_grad(f, **o))
    of_distribution = jax.jit(jax.value_and_grad(traced, argnums=(0, 1), allow_int=True))
    calls: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
        "without noise": (value(lambda s: without(s, distribution)), (zero,)),
        "known": (value(known), (one,)),
        "traced": (value(traced), (one, distribution)),
        "gradient, without noise": (gradient(lambda s: without(s, distribution)), (zero,)),
        "gradient, known": (gradient(known), (one,)),
        "gradient, without noise, of distribution and map": (
            jax.jit(jax.value_and_grad(without, argnums=(0, 1), allow_int=True)),
            (zero, distribution),
        ),
        "gradient, traced, of distribution and map": (of_distribution, (one, distribution)),
    }
    timings = time_interleaved({name: (lambda f=f, a=a: f(*a)) for name, (f, a) in calls.items()})
    return markdown_table(timings, relative_to="gradient, without noise")


def distance(draws: int) -> None:
    """Print the largest error of a distribution function against draws."""
    case = make_case(NETWORK, HALF_WIDTH)
    pairs = nuq.paired_draws(case.net, case.lin, jax.random.key(0), PAIRS, progress=False)
    corrected = case.lin.corrected(pairs)
    distribution = corrected.marginals()[10]
    normal = np.random.default_rng(0).standard_normal(draws)
    base = np.asarray(distribution.sample(jax.random.key(1), (draws,)), np.float64)
    print("| noise/sd | largest error of the distribution function | by chance, 95% |")
    print("|---:|---:|---:|")
    for share in SHARES:
        sigma = share * float(distribution.variance) ** 0.5
        ordered = np.sort(base + sigma * normal)[:: max(1, draws // 2000)]
        ranks = np.arange(0, draws, max(1, draws // 2000)) / draws
        error = np.abs(
            np.asarray(
                nuq.distributions.NoisyMarginal(distribution, sigma).cdf(jnp.asarray(ordered))
            )
            - ranks
        ).max()
        print(f"| {share:g} | {error:.1e} | {1.36 / np.sqrt(draws):.1e} |", flush=True)


def main() -> None:
    """Print tables."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--draws", type=int, default=10_000_000)
    options = parser.parse_args()
    print(costs(jnp.float32))
    if options.draws:
        distance(options.draws)


if __name__ == "__main__":
    main()
