"""Posteriors of a half-width and a noise: marginalized likelihoods beside latent inputs.

``--sets 2`` for a short run. Observations of six outputs of a trained operator share one mean
input. Marginalized likelihoods are integrated over a grid of both parameters; the model with latent
inputs is sampled by NUTS. Means are compared in standard deviations of the latter.
"""

import time
from collections import defaultdict
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.infer import MCMC, NUTS

import nn_uq_dist as nuq
from tests.benchmarks._command_line import head, options, row
from tests.benchmarks.bench_corrected_joint import NETWORKS, operator_case

HALF_WIDTH, NOISE = 1.5, 0.1  # the noise in standard deviations of the outputs
PRIOR_SCALE = 0.5  # of the logarithms of both
OBSERVATIONS, OUTPUTS, PAIRS = 20, 6, 1000
DRAWS, PASSES = 256, 12  # of the relinearized model
PLACES = 17
PARAMETERS = ("half_width", "noise")


class Posterior(NamedTuple):
    """Means and standard deviations of the logarithms of half-width and noise."""

    mean: np.ndarray
    sd: np.ndarray
    seconds: float  # of an evaluation, or of an effective draw


def likelihoods(case):
    """Log likelihoods of half-width, noise and outputs ``(n, N_y)``."""
    scale, center = jnp.asarray(case.sd, jnp.float32), case.lin.input.mean

    def linear_at(half_width):
        return nuq.linearize(case.network, nuq.Input.box(center, half_width=half_width))

    def tangent(half_width, noise, y):
        joint = linear_at(half_width).joint(noise_scale=noise * scale)
        return joint.log_prob(y).sum()

    def corrected(half_width, noise, y):
        lin = linear_at(half_width)
        pairs = nuq.paired_draws(case.network, lin, jax.random.key(5), PAIRS, progress=False)
        return lin.corrected(pairs).joint(noise_scale=noise * scale).log_prob(y).sum()

    return {
        "tangent": tangent,
        "corrected.joint": corrected,
        "relinearized": lambda *args: relinearized(case, scale, *args),
    }


def relinearized(case, scale, half_width, noise, y):
    """Posterior linearization of each observation (A. Garcia-Fernandez et al., 2015).

    Regressions on draws of the inputs that an observation leaves possible, halfway in each pass.
    """
    center = jnp.asarray(case.lin.input.mean)
    network = jax.vmap(jax.vmap(case.network))
    half = jax.random.normal(jax.random.key(3), (DRAWS // 2, center.size))
    normal = jnp.concatenate([half, -half])
    prior = 3 / half_width**2 * jnp.eye(center.size)
    noise = noise * scale
    noise_covariance = jnp.diag(noise**2)

    def improve(fit, _):
        loc, jacobian, rest = fit
        pull = jnp.linalg.solve(rest + noise_covariance, jacobian)
        precision = prior + jacobian.mT @ pull
        mean = jnp.linalg.solve(precision, pull.mT @ (y - loc)[..., None]).mT
        deviation = mean + normal @ jnp.linalg.inv(jnp.linalg.cholesky(precision))
        outputs = network(center + deviation)
        middle, average = deviation.mean(1, keepdims=True), outputs.mean(1, keepdims=True)
        deviation, outputs = deviation - middle, outputs - average
        slopes = jnp.linalg.solve(deviation.mT @ deviation, deviation.mT @ outputs)
        left = outputs - deviation @ slopes
        rest_now = left.mT @ left / (DRAWS - center.size - 1)
        fit_now = (average - middle @ slopes)[:, 0], slopes.mT, rest_now
        return jax.tree.map(lambda old, new: (old + new) / 2, fit, fit_now), None

    parts = case.lin.loc, case.lin.jacobian, jnp.zeros((y.shape[1], y.shape[1]))
    start = jax.tree.map(lambda part: jnp.broadcast_to(part, (len(y), *part.shape)), parts)
    (loc, slopes, rest), _ = jax.lax.scan(improve, start, length=PASSES)
    centers = jnp.broadcast_to(center, (len(y), center.size))
    linear = nuq.Linearization(loc, slopes, nuq.Input.box(centers, half_width=half_width))
    return linear.joint(noise_scale=noise, noise_covariance=rest).log_prob(y).sum()


def on_grid(function, y):
    """Posterior by quadrature over a grid of the logarithms."""
    truth = np.log([HALF_WIDTH, NOISE])
    grid = truth[:, None] + np.log([[1.8], [2.5]]) * np.linspace(-1, 1, PLACES)
    evaluate = jax.jit(function)
    jax.block_until_ready(evaluate(jnp.exp(truth[0]), jnp.exp(truth[1]), y))
    start, logs = time.perf_counter(), np.empty((PLACES, PLACES))
    for i, j in np.ndindex(*logs.shape):
        at = jnp.exp(jnp.float32(grid[0, i])), jnp.exp(jnp.float32(grid[1, j]))
        logs[i, j] = evaluate(*at, y)
    seconds = (time.perf_counter() - start) / logs.size
    away = (np.stack(np.meshgrid(*grid, indexing="ij")) - truth[:, None, None]) / PRIOR_SCALE
    logs -= (away**2).sum(axis=0) / 2
    weights = np.exp(logs - logs.max())
    weights /= weights.sum()
    if (edge := 1 - weights[1:-1, 1:-1].sum()) > 0.02:
        print(f"  (a share of {edge:.2f} lies on the edge of the grid)")
    shares = np.stack([weights.sum(axis=1), weights.sum(axis=0)])
    mean, square = (shares * grid).sum(axis=1), (shares * grid**2).sum(axis=1)
    return Posterior(mean, np.sqrt(square - mean**2), seconds)


def latent(case, y, draws):
    """Posterior of the model that samples the input of each observation."""
    center = jnp.asarray(case.lin.input.mean)
    scale = jnp.asarray(case.sd, jnp.float32)

    def model(y):
        half_width = numpyro.sample("half_width", dist.LogNormal(np.log(HALF_WIDTH), PRIOR_SCALE))
        noise = numpyro.sample("noise", dist.LogNormal(np.log(NOISE), PRIOR_SCALE))
        with numpyro.plate("observations", len(y)):
            unit = dist.Uniform(-1.0, 1.0).expand([center.size]).to_event(1)
            deviation = numpyro.sample("deviation", unit)
            outputs = jax.vmap(case.network)(center + half_width * deviation)
            numpyro.sample("y", dist.Normal(outputs, noise * scale).to_event(1), obs=y)

    kernel = NUTS(model, dense_mass=[PARAMETERS], target_accept_prob=0.9)
    mcmc = MCMC(kernel, num_warmup=500, num_samples=draws, progress_bar=False)
    mcmc.warmup(jax.random.key(0), y)
    start = time.perf_counter()
    mcmc.run(jax.random.key(1), y)
    seconds = time.perf_counter() - start
    found = np.log([np.asarray(mcmc.get_samples()[name], np.float64) for name in PARAMETERS])
    effective = min(numpyro.diagnostics.effective_sample_size(part[None]) for part in found)
    return Posterior(found.mean(axis=1), found.std(axis=1), seconds / float(effective))


def main():
    """Print a line for each data set and method, then the means; `draws` are of latent inputs."""
    given = options(sets=15, draws=1500)
    networks = NETWORKS[: min(given.sets, 4)]
    cases = [operator_case(name, HALF_WIDTH, OUTPUTS, 2000) for name in networks]
    away = defaultdict(list)
    for number in range(given.sets):
        case = cases[number % len(cases)]
        chosen = slice(number * OBSERVATIONS, (number + 1) * OBSERVATIONS)
        y = jnp.asarray(case.noisy(NOISE, chosen), jnp.float32)
        known = latent(case, y, given.draws)
        print(f"{networks[number % len(cases)]}, set {number}", flush=True)
        print(f"  latent: {known.mean} ± {known.sd}, {known.seconds:.3f} s", flush=True)
        for name, function in likelihoods(case).items():
            found = on_grid(function, y)
            difference, ratio = (found.mean - known.mean) / known.sd, found.sd / known.sd
            away[name].append([*difference, *ratio, found.seconds])
            print(f"  {name}: {difference} sd, sds {ratio}, {found.seconds:.4f} s", flush=True)
    head("likelihood", "half-width: mean distance, bias, ratio of sds", "noise: same", "seconds")
    for name, rows in away.items():
        table = np.array(rows)
        distance, (bias, ratio) = np.abs(table).mean(axis=0), table.mean(axis=0)[:4].reshape(2, 2)
        cells = [f"{distance[k]:.2f}, {bias[k]:+.2f}, {ratio[k]:.2f}" for k in range(2)]
        row(name, *cells, f"{np.median(table[:, 4]):.4f}")


if __name__ == "__main__":
    main()
