"""Linearization with exact distributions, compared with other methods for outputs of a network.

Errors are those of the worst output, against draws through the network with another key; those of
distributions of the linearized network are against 40-digit references.
"""

import itertools
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy.stats import norm

import nn_uq_dist as nuq
from nn_uq_dist import error_analysis, uniform_sum
from tests.bank.reference import float_log_values
from tests.benchmarks import _peers as peers
from tests.benchmarks._command_line import head, row
from tests.benchmarks._networks import VARYING, operator
from tests.benchmarks._openturns_peers import combination
from tests.benchmarks._timing import print_timings, time_interleaved, timed

TAIL = 0.001
REFERENCE_DRAWS, CORRELATION_DRAWS = 4_000_000, 1_000_000
# Every so many of the sorted draws are compared with a distribution function.
SPACING = 250
NUM_DRAWS = (1_000, 10_000, 100_000)
# Of the linearized network: tails and a share of the reach, some outputs, draws.
TAILS, NEAR_EDGE = (1e-3, 1e-6, 1e-9, 1e-12), 0.98
NUM_OUTPUTS, NUM_LINEAR_DRAWS = 3, 1_000_000


class Job(NamedTuple):
    """A network, the mean of its input, and a small and a large half-width."""

    title: str
    net: nuq.LeakyReLUNetwork
    mean: jax.Array
    half_widths: tuple[float, float]


def jobs():
    """A seeded network of four inputs, and the trained operator of five layers."""
    rng = np.random.default_rng(0)
    sizes = (4, 16, 16, 3)
    weights = [rng.normal(size=(m, n)) / n**0.5 for n, m in itertools.pairwise(sizes)]
    biases = [0.5 * rng.normal(size=m) for m in sizes[1:-1]]
    net = nuq.LeakyReLUNetwork(weights[:-1], biases, weights[-1])
    yield Job("seeded, 4 inputs, 2 layers of 16", net, jnp.ones(4), (0.02, 1.5))
    net, mean = operator("nonlinear_5")
    outputs = np.asarray(net.output_matrix)[VARYING]
    net = nuq.LeakyReLUNetwork(net.hidden_weights, net.biases, outputs, net.negative_slope)
    mean = jnp.asarray(mean, jnp.float32)
    yield Job("trained, 31 inputs, 5 layers of 64", net, mean, (0.1, 1.5))


def estimates(net, f):
    """Moments and distribution functions by every method."""
    moments = peers.linear_moments(net, f)
    normal = {
        "delta method, normal distribution": moments,
        "moment matching, independent neurons": peers.moment_matching(net, f, full=False),
        "moment matching, full covariance": peers.moment_matching(net, f, full=True),
        "unscented, spread 1.8": peers.unscented(net, f, 1.8),
        "unscented, spread N_x": peers.unscented(net, f, float(f.num_inputs)),
    }
    results = {"nn_uq_dist": (moments, jax.jit(nuq.linearize(net, f).marginals().cdf))}
    results |= {name: (part, peers.normal_cdf(part)) for name, part in normal.items()}
    for number in NUM_DRAWS:
        part, draws = peers.sampled(net, f, jax.random.key(number), number)
        results[f"Monte Carlo, {number:,} draws"] = part, peers.empirical_cdf(draws)
    return results


def sd_and_correlation(covariance):
    """Standard deviations and correlation matrix of a covariance matrix."""
    matrix = np.asarray(covariance, float)
    deviation = np.sqrt(np.diag(matrix))
    return deviation, matrix / np.outer(deviation, deviation)


def network_errors(job, half_width):
    """Print the errors against the network itself."""
    f = nuq.Input.box(job.mean, half_width=half_width)
    key = jax.random.key(2**20)
    draws = nuq.monte_carlo(job.net, f, key, REFERENCE_DRAWS, progress=False)
    _, target = sd_and_correlation(np.cov(draws[:CORRELATION_DRAWS], rowvar=False))
    mean, deviation = draws.mean(axis=0, dtype=float), draws.std(axis=0, dtype=float)
    draws.sort(axis=0)
    quantile = draws[None, round((1 - TAIL) * REFERENCE_DRAWS)]
    ranks = np.arange(SPACING // 2, REFERENCE_DRAWS, SPACING)
    levels = (ranks[:, None] + 0.5) / REFERENCE_DRAWS
    exact = bool(error_analysis.is_exact_on_support(job.net, f))
    flips = max(float(np.max(p)) for p in error_analysis.flip_probabilities(job.net, f))
    print(f"\n## {job.title}, half-width {half_width}, {job.net.num_outputs} outputs\n")
    print(f"Exact on this box: {exact}; largest flip probability of a neuron: {flips:.2g}.")
    columns = "mean / sd", "sd", "correlation", "KS, median", "KS, worst", "P(Y > q), mean"
    head("method", *columns)
    for name, (moments, cdf) in estimates(job.net, f).items():
        with np.errstate(invalid="ignore"):
            sd, correlation = sd_and_correlation(moments.covariance)
            distance = np.abs(np.asarray(cdf(draws[ranks])) - levels).max(axis=0)
            errors = [
                np.max(np.abs(np.asarray(moments.mean) - mean) / deviation),
                np.max(np.abs(sd / deviation - 1)),
                np.max(np.abs(correlation - target)),
                np.median(distance),
                np.max(distance),
                np.mean(np.abs((1 - np.asarray(cdf(quantile))[0]) / TAIL - 1)),
            ]
        row(name, *(f"{error:.2g}" for error in errors))


def times(job):
    """Print the time of one evaluation for all outputs."""
    net, f = job.net, nuq.Input.box(job.mean, half_width=job.half_widths[0])
    value = nuq.linearize(net, f).mean

    def density(f):
        linear = nuq.linearize(net, f)
        return linear.mean, linear.covariance, linear.marginals().log_prob(value)

    def normal_density(f):
        moments = peers.linear_moments(net, f)
        scale = jnp.sqrt(jnp.diagonal(moments.covariance))
        return moments, jax.scipy.stats.norm.logpdf(value, moments.mean, scale)

    functions = {
        "nn_uq_dist: moments": partial(peers.linear_moments, net),
        "nn_uq_dist: moments, log density": density,
        "delta method: moments, log density": normal_density,
        "moment matching, independent": partial(peers.moment_matching, net, full=False),
        "moment matching, full": partial(peers.moment_matching, net, full=True),
        "unscented": partial(peers.unscented, net, spread=1.8),
    }
    for number in NUM_DRAWS:
        functions[f"Monte Carlo, {number:,} draws: moments"] = lambda f, number=number: (
            peers.sampled(net, f, jax.random.key(0), number)[0]
        )
    calls = {name: partial(jax.jit(function), f) for name, function in functions.items()}
    weights = np.asarray(nuq.linearize(net, f).marginals().weights, float)
    calls["OpenTURNS: log density of the weights"] = lambda: [
        combination(one).computeLogPDF(0.0) for one in weights
    ]
    print(f"\n## Time for all outputs: {job.title}, float32")
    print_timings(time_interleaved(calls), relative_to="nn_uq_dist: moments")
    with jax.enable_x64(True):
        wide = jax.tree.map(lambda leaf: jnp.asarray(np.asarray(leaf, float)), (net, f))
        ours = jax.tree.map(np.asarray, peers.linear_moments(*wide))
        (mean, covariance), seconds = timed(partial(peers.with_uncertainties, *wide))
    scale = np.sqrt(np.diag(covariance))
    error = max(
        np.max(np.abs(ours.mean - mean) / scale),
        np.max(np.abs(ours.covariance - covariance) / np.outer(scale, scale)),
    )
    print(
        f"\nThe package `uncertainties`: {seconds:.2f} s; largest difference of mean or covariance "
        f"from ours in float64, in standard deviations: {error:.0e}"
    )


def ours(weights, x, dtype):
    """Log density and log survival by `nn_uq_dist.uniform_sum`."""
    with jax.enable_x64(dtype == "float64"):
        arguments = x.astype(dtype), weights.astype(dtype)
        values = uniform_sum.logpdf(*arguments), uniform_sum.logsf(*arguments)
    return [np.asarray(value, float) for value in values]


def normal(weights, x):
    """The normal distribution of the same variance."""
    scale = np.sqrt((weights**2).sum() / 3)
    return norm.logpdf(x, scale=scale), norm.logsf(x, scale=scale)


def openturns(weights, x):
    """The distribution that OpenTURNS makes of the same weights."""
    distribution, points = combination(weights), x[:, None]
    survival = np.asarray(distribution.computeComplementaryCDF(points))[:, 0]
    return np.asarray(distribution.computeLogPDF(points))[:, 0], np.log(survival)


def real_axis(weights, x):
    """The inverse Fourier integral on the real axis."""
    return [np.log(np.maximum(part, 0)) for part in peers.on_the_real_axis(weights, x)]


def drawn(weights, x):
    """Draws of the linear distribution; no density."""
    signs = np.random.default_rng(0).uniform(-1, 1, size=(NUM_LINEAR_DRAWS, len(weights)))
    draws = signs @ weights
    return np.full(len(x), np.nan), np.log([np.mean(draws > value) for value in x])


METHODS = {
    "nn_uq_dist, float64": partial(ours, dtype="float64"),
    "nn_uq_dist, float32": partial(ours, dtype="float32"),
    "normal distribution (delta method)": normal,
    "inverse Fourier integral": real_axis,
    "the same, 2048 fixed frequencies": lambda weights, x: (
        np.log(peers.on_a_fixed_grid(weights, x)),
        np.full(len(x), np.nan),
    ),
    "OpenTURNS": openturns,
    f"Monte Carlo, {NUM_LINEAR_DRAWS:,} draws": drawn,
}


def distribution_errors(job, half_width):
    """Print worst relative errors over some outputs, at tail probabilities and near the edge."""
    linear = nuq.linearize(job.net, nuq.Input.box(job.mean, half_width=half_width))
    rows = np.asarray(linear.marginals().weights, float)
    rows = rows[:: len(rows) // NUM_OUTPUTS][:NUM_OUTPUTS]
    errors = {name: [] for name in METHODS}
    edge = []
    for weights in rows:
        with jax.enable_x64(True):
            x = -np.asarray(uniform_sum.ppf(np.array(TAILS), weights))
        x = np.append(x, NEAR_EDGE * np.abs(weights).sum())
        exact = float_log_values(x, weights)
        edge.append(exact[1, -1])
        for name, method in METHODS.items():
            with np.errstate(divide="ignore", invalid="ignore"):
                errors[name].append(np.abs(np.expm1(np.stack(method(weights, x)) - exact)))
    columns = [f"{p:.0e}" for p in TAILS] + [f"{NEAR_EDGE} of edge"]
    title = f"{job.title}, half-width {half_width}, {NUM_OUTPUTS} outputs"
    print(f"\n## Distribution of the linearized network: {title}\n")
    print(f"At {NEAR_EDGE} of the edge P(Y > q) is {np.exp(min(edge)):.0e} at the least.")
    densities = "density at 1e-6", f"density, {NEAR_EDGE} of edge"
    head("relative error of P(Y > q) at", *columns, *densities)
    for name, parts in errors.items():
        density, survival = np.max(parts, axis=0)
        shown = [*survival, density[TAILS.index(1e-6)], density[-1]]
        row(name, *("-" if np.isnan(value) else f"{value:.1g}" for value in shown))


if __name__ == "__main__":
    print(f"JAX {jax.__version__}, {jax.devices()[0].platform}")
    for job in jobs():
        for half_width in job.half_widths:
            network_errors(job, half_width)
            distribution_errors(job, half_width)
        times(job)
