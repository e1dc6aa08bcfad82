"""Joint distributions made from paired draws: log scores of new noisy outputs of the network.

Run with ``python -m tests.benchmarks.bench_corrected_joint`` or ``make bench
BENCH=bench_corrected_joint``; ``--networks nonlinear_5 --half-widths 3 --keys 2`` for a short run,
``--outputs 30`` for all outputs that vary, ``--random 2 4`` for random tanh networks of so many
inputs. The normal distribution has the mean and the covariance of a million draws, with other keys.
"""

import argparse
import importlib
import sys
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from numpy.typing import NDArray

import nn_uq_dist as nuq

NETWORKS = ("linear_5", "nonlinear_1", "nonlinear_5", "nonlinear_20")
HALF_WIDTHS = (0.5, 1.5, 3.0)
COUNTS = (1000, 100, 30)
NOISE = (0.05, 0.2)
DRAWS_PER_CALL, CALLS = 100_000, 10
METHODS = ("mean shift, residual", "corrected.joint", "gaussian_copula")

Array = NDArray[np.float64]


class Case(NamedTuple):
    """A network with its input, and what many draws say about its outputs."""

    network: Any
    lin: nuq.Linearization
    mean: Array
    covariance: Array
    outputs: Array  # new outputs without noise
    noise: Array  # standard normal

    @property
    def sd(self) -> Array:
        """Standard deviations of the outputs."""
        found: Array = np.sqrt(np.diag(self.covariance))
        return found


def operator(name: str, half_width: float, num_outputs: int, num_points: int) -> Case:
    """A trained operator, some of its outputs, spread evenly."""
    sys.path.insert(0, str(Path(__file__).parents[2] / "examples" / "operators"))
    operators = importlib.import_module("integro_differential")
    whole = importlib.import_module("networks").load(name)
    varying = np.delete(np.arange(operators.SIZE), operators.SIZE // 2)
    chosen = varying[np.round(np.linspace(0, varying.size - 1, num_outputs)).astype(int)]
    mean = jnp.asarray(operators.mean_input(), jnp.float32)
    distribution = nuq.Input.box(mean, half_width=half_width)
    return case_of(lambda x: whole(x)[chosen], distribution, num_points)


def random_network(num_inputs: int, half_width: float, seed: int, num_points: int) -> Case:
    """A tanh network with two hidden layers, strongly bent, and two more outputs than inputs."""
    rng = np.random.default_rng(seed)
    sizes = ((16, num_inputs), (16, 16), (num_inputs + 2, 16))
    first, second, last = (
        jnp.asarray(rng.normal(size=size) / np.sqrt(size[1]), jnp.float32) for size in sizes
    )
    biases = [jnp.asarray(rng.normal(size=16) / 2, jnp.float32) for _ in range(2)]

    def network(x: jax.Array) -> jax.Array:
        hidden = jnp.tanh(1.5 * first @ x + biases[0])
        return last @ jnp.tanh(1.5 * second @ hidden + biases[1])

    mean = jnp.asarray(rng.normal(size=num_inputs) * 0.3, jnp.float32)
    return case_of(network, nuq.Input.box(mean, half_width=half_width), num_points)


def case_of(network: Any, distribution: nuq.Input, num_points: int) -> Case:
    """Linearize, and draw."""
    many = jax.jit(jax.vmap(network))

    def outputs(key: int, count: int) -> Array:
        return np.asarray(many(distribution.sample(jax.random.key(key), (count,))), np.float64)

    draws = np.concatenate([outputs(100 + call, DRAWS_PER_CALL) for call in range(CALLS)])
    new = outputs(7, num_points)
    noise = np.random.default_rng(5).normal(size=new.shape)
    lin = nuq.linearize(network, distribution)
    return Case(network, lin, draws.mean(axis=0), np.cov(draws.T), new, noise)


def shifted(case: Case, pairs: nuq.sampling.PairedDraws, noise: Array) -> nuq.LinearizedJoint:
    """The tangent, its mean moved, with the covariance of what it leaves: without a fit."""
    rest = np.asarray(pairs.network, np.float64) - np.asarray(pairs.linear, np.float64)
    covariance = np.atleast_2d(np.cov(rest.T)) * (1 + 1 / len(rest)) + np.diag(noise**2)
    loc = case.lin.loc + jnp.asarray(rest.mean(axis=0), jnp.float32)
    weights = case.lin.image().weights
    return nuq.LinearizedJoint(loc, weights, jnp.asarray(covariance, jnp.float32))


@jax.jit
def _log_prob(joint: dist.Distribution, values: jax.Array) -> jax.Array:
    return joint.log_prob(values)


def score(case: Case, joint: dist.Distribution, noise: float) -> float:
    """Mean log density of new outputs with noise."""
    values = jnp.asarray(case.outputs + noise * case.sd * case.noise, jnp.float32)
    return float(np.asarray(_log_prob(joint, values), np.float64).mean())


def normal_score(case: Case, noise: float) -> float:
    """Mean log density under the normal distribution with the true mean and covariance."""
    covariance = case.covariance + np.diag((noise * case.sd) ** 2)
    factor = np.linalg.cholesky(covariance)
    values = case.outputs + noise * case.sd * case.noise - case.mean
    whitened = np.linalg.solve(factor, values.T)
    log_scale = np.log(np.diag(factor)).sum() + len(factor) / 2 * np.log(2 * np.pi)
    return float(-(whitened**2).sum(axis=0).mean() / 2 - log_scale)


def scores(case: Case, count: int, noise: float, number: int, with_copula: bool) -> Array:
    """Scores of all methods with one key."""
    key, scale = jax.random.key(1000 + number), noise * case.sd
    pairs = nuq.paired_draws(case.network, case.lin, key, count, progress=False)
    corrected = case.lin.corrected(pairs)
    found = [shifted(case, pairs, scale), corrected.joint(noise_scale=scale)]
    if with_copula:
        found.append(corrected.gaussian_copula(noise_scale=scale))
    logs = [score(case, distribution, noise) for distribution in found]
    return np.array(logs + [np.nan] * (len(METHODS) - len(logs)))


def row(name: str, case: Case, count: int, noise: float, options: argparse.Namespace) -> None:
    """Print the scores of a case, averaged over keys."""
    found = np.array(
        [scores(case, count, noise, k, k < options.copulas) for k in range(options.keys)]
    )
    cells = [score(case, case.lin.joint(noise_scale=noise * case.sd), noise)]
    cells += [np.nanmean(column) if not np.isnan(column).all() else np.nan for column in found.T]
    cells.append(normal_score(case, noise))
    print(f"| {name} | {count} | {noise:g} |", *(f"{cell:.3f} |" for cell in cells), flush=True)


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--networks", nargs="*", default=NETWORKS)
    parser.add_argument("--random", nargs="*", type=int, default=(), help="numbers of inputs")
    parser.add_argument("--half-widths", nargs="+", type=float, default=HALF_WIDTHS)
    parser.add_argument("--counts", nargs="+", type=int, default=COUNTS)
    parser.add_argument("--noise", nargs="+", type=float, default=NOISE)
    parser.add_argument("--outputs", type=int, default=6)
    parser.add_argument("--points", type=int, default=2000)
    parser.add_argument("--keys", type=int, default=5)
    parser.add_argument("--copulas", type=int, default=1, help="keys of the copula")
    options = parser.parse_args()
    columns = ("network, half-width", "pairs", "noise/sd", "tangent", *METHODS, "normal")
    print("|", " | ".join(columns), "|")
    print("|---|" + "---:|" * (len(columns) - 1))
    for width in options.half_widths:
        cases = [
            (f"{name}, {width:g}", operator(name, width, options.outputs, options.points))
            for name in options.networks
        ]
        cases += [
            (f"tanh {size}, seed {seed}, {width:g}", random_network(size, width, seed, 2000))
            for size in options.random
            for seed in range(3)
        ]
        for name, case in cases:
            for count in options.counts:
                for noise in options.noise:
                    row(name, case, count, noise, options)


if __name__ == "__main__":
    main()
