"""Error against cost for networks of two to four inputs: corrected distributions and draws.

Run with ``python -m tests.benchmarks.bench_few_inputs`` or ``make bench BENCH=bench_few_inputs``;
``--inputs 2 --counts 100 1000 --keys 1`` for a short run. References are a million draws with
another key.
"""

import argparse
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

import nn_uq_dist as nuq
from nn_uq_dist.basics.nodes import sobol_points

COUNTS = (10, 30, 100, 300, 1000, 3000, 10_000, 30_000, 100_000)
NUM_OUTPUTS = 3
OUTPUTS = ("bimodal", "one-sided", "square")
HALF_WIDTH = 1.5
REFERENCE_DRAWS = 1_000_000
NUM_POINTS = 2000
# Of the points of pairs, whose scatter tells their noise; Sobol points alone are one set.
RANDOMIZATIONS = 4
METHODS = ("plain", "Sobol", "corrected tangent")

Array = NDArray[np.float64]


class Case(NamedTuple):
    """A network of few inputs with its input distribution and what a million draws say."""

    net: Callable[[jax.Array], jax.Array]
    many: Callable[[jax.Array], jax.Array]  # the network, compiled for many inputs
    distribution: nuq.Input
    points: Array  # outputs at which distribution functions are compared
    probabilities: Array


def make_case(num_inputs: int, smooth: bool) -> Case:
    """Two hidden layers of 16, and three functions of what comes out."""
    rng = np.random.default_rng(10 * num_inputs)
    first = rng.normal(size=(16, num_inputs)) / np.sqrt(num_inputs)
    second, last = rng.normal(size=(16, 16)) / 4, rng.normal(size=(1, 16)) / 4
    biases = rng.normal(size=16) * 0.5, rng.normal(size=16) * 0.3

    def activation(h: jax.Array) -> jax.Array:
        return jnp.tanh(h) if smooth else jax.nn.leaky_relu(h, 0.1)

    def raw(x: jax.Array) -> jax.Array:
        hidden = activation(first @ x + biases[0])
        return (last @ activation(second @ hidden + biases[1]))[0]

    distribution = nuq.Input.box(jnp.zeros(num_inputs), half_width=HALF_WIDTH)
    inputs = distribution.sample(jax.random.key(9), (REFERENCE_DRAWS,))
    scalar = np.asarray(jax.jit(jax.vmap(raw))(inputs), np.float64)
    mean, sd = scalar.mean(), scalar.std()

    def net(x: jax.Array) -> jax.Array:
        s = (raw(x) - mean) / sd
        return jnp.stack([jnp.tanh(4 * s / 1.5), jax.nn.softplus(3 * s), s**2])

    many = jax.jit(jax.vmap(net))
    ordered = np.sort(np.asarray(many(inputs), np.float64), axis=0)
    ranks = np.linspace(0, REFERENCE_DRAWS - 1, NUM_POINTS).astype(int)
    return Case(net, many, distribution, ordered[ranks], (ranks + 0.5) / REFERENCE_DRAWS)


def of_draws(case: Case, draws: Any) -> Array:
    """Kolmogorov-Smirnov distances of the empirical distribution of draws, at the points."""
    found = [
        np.searchsorted(np.sort(column), at, side="right") / len(column)
        for column, at in zip(np.asarray(draws, np.float64).T, case.points.T, strict=True)
    ]
    return np.abs(np.stack(found) - case.probabilities).max(axis=1)


def of_distribution(case: Case, distribution: Any) -> Array:
    """Kolmogorov-Smirnov distances of a distribution of outputs."""
    found = np.asarray(distribution.cdf(jnp.asarray(case.points, jnp.float32)), np.float64)
    return np.abs(found - case.probabilities[:, None]).max(axis=0)


def at_sobol_points(
    case: Case, base: nuq.Linearization, count: int, key: jax.Array
) -> nuq.sampling.PairedDraws:
    """Pairs at Sobol points."""
    points = sobol_points(key, count, RANDOMIZATIONS, base.num_coordinates)
    inputs, linear = base.pairs_at(jnp.asarray(points, jnp.float32))
    return nuq.sampling.PairedDraws(
        inputs,
        np.asarray(case.many(inputs)),
        linear,
        base,
        key,
        num_randomizations=RANDOMIZATIONS,
    )


def one_budget(case: Case, budget: int, num_keys: int) -> dict[str, Array]:
    """Distances of each method, means over keys; shape ``(outputs,)``."""
    rows: dict[str, list[Array]] = {name: [] for name in METHODS}
    tangent = nuq.linearize(case.net, case.distribution)
    for number in range(num_keys):
        key = jax.random.key(100 + number)
        plain = case.many(case.distribution.sample(key, (budget,)))
        rows["plain"].append(of_draws(case, plain))
        one_set = sobol_points(key, budget, 1, tangent.num_coordinates)
        inputs = tangent.pairs_at(jnp.asarray(one_set, jnp.float32))[0]
        rows["Sobol"].append(of_draws(case, case.many(inputs)))
        pairs = at_sobol_points(case, tangent, budget, key)
        rows["corrected tangent"].append(
            of_distribution(case, tangent.corrected(pairs).marginals())
        )
    return {name: np.mean(found, axis=0) for name, found in rows.items()}


def main() -> None:
    """Print a table for each network."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--inputs", nargs="+", type=int, default=(2, 3, 4))
    parser.add_argument("--counts", nargs="+", type=int, default=COUNTS)
    parser.add_argument("--keys", type=int, default=4)
    options = parser.parse_args()
    for num_inputs in options.inputs:
        for smooth in (True, False):
            case = make_case(num_inputs, smooth)
            name = "tanh" if smooth else "leaky ReLU"
            print(f"\n{num_inputs} inputs, {name}: {', '.join(OUTPUTS)}\n")
            print("| runs |", *(f"{method} |" for method in METHODS))
            print("|---:|" + "---:|" * len(METHODS))
            for budget in options.counts:
                methods = one_budget(case, budget, options.keys)
                cells = [", ".join(f"{value:.2g}" for value in found) for found in methods.values()]
                print(f"| {budget} |", " | ".join(cells), "|", flush=True)


if __name__ == "__main__":
    sys.exit(main())
