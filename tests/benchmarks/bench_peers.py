"""Linearization with exact distributions, compared with other methods for the distribution of a
network's outputs.

Run with ``python -m tests.benchmarks.bench_peers`` or ``make bench BENCH=bench_peers``. Errors are
those of one output, the worst or the median over the outputs, against draws through the network
with another key; the last table compares distributions of the linearized network with 40-digit
references.
"""

import importlib
import itertools
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import ArrayLike, NDArray
from scipy.stats import norm

import nn_uq_dist as nuq
from nn_uq_dist import error_analysis
from tests.benchmarks import _peers as peers
from tests.benchmarks._peer_distributions import distribution_errors
from tests.benchmarks._timing import markdown_table, time_interleaved

type Cdf = Callable[[ArrayLike], ArrayLike]
TAIL = 0.001
REFERENCE_DRAWS, CORRELATION_DRAWS = 4_000_000, 1_000_000
# Every so many of the sorted draws are compared with a distribution function.
SPACING = 250
NUM_DRAWS = (1_000, 10_000, 100_000)


class Job(NamedTuple):
    """A network, the mean of its input, and half-widths from small to large."""

    title: str
    net: nuq.LeakyReLUNetwork
    mean: Array
    half_widths: tuple[float, ...]


def trained_job() -> Job:
    """Return the trained operator network of five layers, without the output that vanishes."""
    sys.path.insert(0, str(Path(__file__).parents[2] / "examples" / "operators"))
    operators = importlib.import_module("integro_differential")
    net = importlib.import_module("networks").load("nonlinear_5")
    outputs = np.delete(np.asarray(net.output_matrix), operators.SIZE // 2, axis=0)
    net = nuq.LeakyReLUNetwork(net.hidden_weights, net.biases, outputs, net.negative_slope)
    mean = jnp.asarray(operators.mean_input(), jnp.float32)
    return Job("trained, 31 inputs, 5 layers of 64", net, mean, (0.1, 0.5, 1.5))


def small_job() -> Job:
    """Return a seeded network of four inputs and three outputs."""
    rng = np.random.default_rng(0)
    sizes = (4, 16, 16, 3)
    weights = [rng.normal(size=(m, n)) / n**0.5 for n, m in itertools.pairwise(sizes)]
    biases = [0.5 * rng.normal(size=m) for m in sizes[1:-1]]
    net = nuq.LeakyReLUNetwork(weights[:-1], biases, weights[-1])
    return Job("seeded, 4 inputs, 2 layers of 16", net, jnp.ones(4), (0.02, 1.5))


def normal_cdf(moments: peers.Moments) -> Cdf:
    """Distribution functions of normal distributions with these moments."""
    mean, deviation = np.asarray(moments.mean), np.sqrt(np.diag(moments.covariance))
    return lambda y: norm.cdf(np.asarray(y), mean, deviation)


def empirical_cdf(draws: NDArray[np.floating]) -> Cdf:
    """Empirical distribution functions, for values ``(num_values, N_y)``."""
    columns = np.sort(draws, axis=0).T

    def cdf(y: ArrayLike) -> ArrayLike:
        ranks = [
            np.searchsorted(column, value, side="right")
            for column, value in zip(columns, np.asarray(y).T, strict=True)
        ]
        return np.stack(ranks, axis=-1) / len(draws)

    return cdf


def estimates(job: Job, distribution: nuq.Input) -> dict[str, tuple[peers.Moments, Cdf]]:
    """Moments and distribution functions by every method."""
    linear = nuq.linearize(job.net, distribution)
    moments = peers.Moments(linear.mean, linear.covariance)
    results: dict[str, tuple[peers.Moments, Cdf]] = {
        "nn_uq_dist": (moments, jax.jit(linear.marginals().cdf)),
    }
    normal = {
        "delta method, normal distribution": moments,
        "moment matching, independent neurons": peers.moment_matching(
            job.net, distribution, full=False
        ),
        "moment matching, full covariance": peers.moment_matching(job.net, distribution, full=True),
        "unscented, spread 1.8": peers.unscented(job.net, distribution, 1.8),
        "unscented, spread N_x": peers.unscented(
            job.net, distribution, float(distribution.num_inputs)
        ),
    }
    results |= {name: (part, normal_cdf(part)) for name, part in normal.items()}
    for number in NUM_DRAWS:
        part, draws = peers.sampled(job.net, distribution, jax.random.key(number), number)
        results[f"Monte Carlo, {number:,} draws"] = part, empirical_cdf(np.asarray(draws))
    return results


def correlation(covariance: ArrayLike) -> NDArray[np.float64]:
    """Correlation matrix of a covariance matrix."""
    matrix = np.asarray(covariance, float)
    deviation = np.sqrt(np.diag(matrix))
    return matrix / np.outer(deviation, deviation)


def network_errors(job: Job, half_width: float) -> None:
    """Print the errors against the network itself."""
    distribution = nuq.Input.box(job.mean, half_width=half_width)
    key = jax.random.key(2**20)
    draws = nuq.monte_carlo(job.net, distribution, key, REFERENCE_DRAWS, progress=False)
    target = correlation(np.cov(draws[:CORRELATION_DRAWS], rowvar=False))
    mean, deviation = draws.mean(axis=0, dtype=float), draws.std(axis=0, dtype=float)
    draws.sort(axis=0)
    quantile = draws[None, round((1 - TAIL) * REFERENCE_DRAWS)]
    ranks = np.arange(SPACING // 2, REFERENCE_DRAWS, SPACING)
    exact = bool(error_analysis.is_exact_on_support(job.net, distribution))
    flips = [
        float(np.max(layer)) for layer in error_analysis.flip_probabilities(job.net, distribution)
    ]
    print(f"\n## {job.title}, half-width {half_width}, {job.net.num_outputs} outputs\n")
    print(f"Exact on this box: {exact}; largest flip probability of a neuron: {max(flips):.2g}.\n")
    print("| method | mean / sd | sd | correlation | KS, median | KS, worst | P(Y > q), mean |")
    print("|---|---:|---:|---:|---:|---:|---:|")
    for name, (moments, cdf) in estimates(job, distribution).items():
        covariance = np.asarray(moments.covariance, float)
        levels = (ranks[:, None] + 0.5) / REFERENCE_DRAWS
        distance = np.abs(np.asarray(cdf(draws[ranks])) - levels).max(axis=0)
        with np.errstate(invalid="ignore"):
            errors = [
                np.max(np.abs(np.asarray(moments.mean) - mean) / deviation),
                np.max(np.abs(np.sqrt(np.diag(covariance)) / deviation - 1)),
                np.max(np.abs(correlation(covariance) - target)),
                np.median(distance),
                np.max(distance),
                np.mean(np.abs((1 - np.asarray(cdf(quantile))[0]) / TAIL - 1)),
            ]
        print(f"| {name} | " + " | ".join(f"{error:.2g}" for error in errors) + " |")


def times(job: Job) -> None:
    """Print the time of one evaluation for all outputs."""
    import openturns as ot

    net, distribution = job.net, nuq.Input.box(job.mean, half_width=job.half_widths[0])
    value = nuq.linearize(net, distribution).mean

    def density(distribution: nuq.Input) -> tuple[peers.Moments, Array]:
        linear = nuq.linearize(net, distribution)
        return peers.Moments(linear.mean, linear.covariance), linear.marginals().log_prob(value)

    def normal_density(distribution: nuq.Input) -> tuple[peers.Moments, Array]:
        moments = peers.linear_moments(net, distribution)
        scale = jnp.sqrt(jnp.diagonal(moments.covariance))
        return moments, jax.scipy.stats.norm.logpdf(value, moments.mean, scale)

    functions: dict[str, Callable[[nuq.Input], object]] = {
        "nn_uq_dist: moments": partial(peers.linear_moments, net),
        "nn_uq_dist: moments, log density": density,
        "delta method: moments, log density": normal_density,
        "moment matching, independent": partial(peers.moment_matching, net, full=False),
        "moment matching, full": partial(peers.moment_matching, net, full=True),
        "unscented": partial(peers.unscented, net, spread=1.8),
    }
    functions |= {
        f"Monte Carlo, {number:,} draws: moments": partial(
            lambda distribution, number: peers.sampled(
                net, distribution, jax.random.key(0), number
            )[0],
            number=number,
        )
        for number in NUM_DRAWS
    }
    compiled = {name: jax.jit(function) for name, function in functions.items()}
    calls: dict[str, Callable[[], object]] = {
        name: partial(function, distribution) for name, function in compiled.items()
    }
    weights = np.asarray(nuq.linearize(net, distribution).marginals().weights, float)
    uniforms = [ot.Uniform(-1.0, 1.0)] * weights.shape[1]
    calls["OpenTURNS: log density of the weights"] = lambda: [
        ot.LinearCombinationDistribution(uniforms, row.tolist()).computeLogPDF(0.0)
        for row in weights
    ]
    print(f"\n## Time for all outputs: {job.title}, float32\n")
    print(markdown_table(time_interleaved(calls), relative_to="nn_uq_dist: moments"))
    with jax.enable_x64(True):
        wide = jax.tree.map(lambda leaf: jnp.asarray(np.asarray(leaf, float)), (net, distribution))
        ours = jax.tree.map(np.asarray, peers.linear_moments(*wide))
        start = time.perf_counter()
        mean, covariance = peers.with_uncertainties(*wide)
        seconds = time.perf_counter() - start
    scale = np.sqrt(np.diag(covariance))
    error = max(
        np.max(np.abs(ours.mean - mean) / scale),
        np.max(np.abs(ours.covariance - covariance) / np.outer(scale, scale)),
    )
    print(
        f"\nThe package `uncertainties`: {seconds:.2f} s; largest difference of mean or covariance "
        f"from ours in float64, in standard deviations: {error:.0e}"
    )


if __name__ == "__main__":
    print(f"JAX {jax.__version__}, {jax.devices()[0].platform}")
    for job in (small_job(), trained_job()):
        for half_width in job.half_widths:
            network_errors(job, half_width)
        for half_width in (job.half_widths[0], job.half_widths[-1]):
            title = f"{job.title}, half-width {half_width}"
            distribution_errors(title, job.net, nuq.Input.box(job.mean, half_width=half_width))
        times(job)
