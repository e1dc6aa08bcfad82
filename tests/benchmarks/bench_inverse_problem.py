"""Posteriors of a network's inputs: do intervals hold, does NUTS agree, how long does it take.

``--problems 0 2 --data-sets 20`` for a short run, ``--tables`` picks some of ``coverage nuts wine
cost extremes``. Networks of the first two have random weights, two hidden layers of 24, and inputs
of standard deviation one; their noise is in units of the outputs' standard deviations.
"""

import time
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax.scipy.special import ndtr, ndtri
from numpyro.diagnostics import effective_sample_size, split_gelman_rubin
from numpyro.infer import MCMC, NUTS

import nn_uq_dist as nuq
from tests.benchmarks._command_line import head, print_tables, row
from tests.benchmarks._networks import random_network
from tests.benchmarks._timing import timed

# Inputs, outputs, activation, kind of inputs, noise.
PROBLEMS = (
    (3, 5, "tanh", "box", 0.05),
    (4, 6, "leaky ReLU", "box", 0.1),
    (2, 2, "tanh", "box", 0.02),
    (8, 12, "leaky ReLU", "mixed", 0.1),
    (12, 12, "tanh", "normal", 0.05),
    (6, 3, "tanh", "normal", 0.1),
    (12, 12, "leaky ReLU", "box", 0.2),
    (12, 6, "tanh", "mixed", 0.2),
    (4, 2, "leaky ReLU", "normal", 0.05),
    (8, 8, "tanh", "box", 0.02),
    (5, 10, "leaky ReLU", "normal", 0.02),
    (10, 4, "leaky ReLU", "mixed", 0.1),
)
ACTIVATIONS = {"tanh": jnp.tanh, "leaky ReLU": jax.nn.leaky_relu}
TOGETHER = 20
# Draws of the inputs' distribution, and inputs up to which enough of them have a weight.
BLOCK, NUM_BLOCKS, MOST_FOR_DRAWS = 2**18, 256, 4


class Problem(NamedTuple):
    """A network, the distribution of its inputs, and the noise of its outputs."""

    network: Callable
    distribution: nuq.Input
    noise: np.ndarray

    @classmethod
    def of(cls, network, distribution, noise):
        """With noise in standard deviations of the outputs."""
        sd = jax.vmap(network)(distribution.sample(jax.random.key(0), (4000,))).std(axis=0)
        return cls(network, distribution, noise * np.asarray(sd))

    def data(self, key, count):
        """Inputs and observed outputs."""
        keys = jax.random.split(key)
        x = self.distribution.sample(keys[0], (count,))
        noise = self.noise * jax.random.normal(keys[1], (count, self.noise.size))
        return np.asarray(x), np.asarray(jax.vmap(self.network)(x) + noise, float)

    def posterior(self, y, seed, **options):
        """Of a row of `y`, or of all of them."""
        return nuq.input_posterior(
            self.network, self.distribution, y, noise_scale=self.noise, key=jax.random.key(seed),
            progress=False, **options,
        )  # fmt: skip


def problem(number):
    """One of the twelve."""
    inputs, outputs, activation, kind, noise = PROBLEMS[number]
    sizes = [inputs, 24, 24, outputs]
    network = random_network(number, sizes, ACTIVATIONS[activation], gain=1.4, bias=0.3)
    is_box = {"box": np.ones(inputs), "normal": np.zeros(inputs), "mixed": np.arange(inputs) % 2}
    box = is_box[kind].astype(np.float32)
    zeros = jnp.zeros(inputs)
    distribution = nuq.Input.box(zeros, 3**0.5 * box) + nuq.Input.normal(zeros, 1 - box)
    return Problem.of(network, distribution, noise)


def within(found, x):
    """Whether 90% intervals of the inputs hold, as `x`."""
    low, high = np.quantile(found.draws, [0.05, 0.95], axis=0)
    return (low <= x) & (x <= high)


def mean_and_error(held):
    """Of shares of intervals that hold, one for each data set."""
    return held.mean(), held.std() / max(len(held), 1) ** 0.5


def coverage(given):
    """Print coverage, what has converged, runs and times of each problem."""
    columns = "converged", "coverage", "error", "runs"
    head("inputs", "outputs", "network", "kind", "noise", *columns, left=5)
    rows = []
    for number in given.problems:
        one, count = problem(number), given.data_sets
        x, y = one.data(jax.random.key(100 + number), count)
        starts = range(0, count, TOGETHER)
        found = [one.posterior(y[k : k + TOGETHER], k) for k in starts]
        good = np.concatenate([part.converged for part in found])
        inside = np.concatenate(
            [within(part, x[k : k + TOGETHER]) for k, part in zip(starts, found, strict=True)]
        )
        runs = np.concatenate([part.num_runs for part in found]).mean()
        mean, error = mean_and_error(inside[good].mean(axis=1))
        rows.append((good.mean(), mean, error))
        cells = [f"{value:.3f}" for value in rows[-1]]
        row(*PROBLEMS[number], *cells, f"{runs:.0f}")
    shares, means, errors = np.array(rows).T
    overall = np.sqrt(np.sum(errors**2)) / len(errors)
    print(f"mean: {np.mean(shares):.3f} converged, {np.mean(means):.3f} +- {overall:.3f} covered")


def nuts(given):
    """Print how means and sds differ from those of four chains, and effective draws per second.

    Up to four inputs from weighted draws of their distribution: chains that start in one of several
    modes may agree and be wrong.
    """
    cells = "mean: largest difference (root mean square)", "in errors", "sd: the same", "draws/s"
    head("problem", *cells, "of NUTS", "data sets", "left out: NUTS has not converged")
    for number in given.problems:
        one = problem(number)
        _, y = one.data(jax.random.key(100 + number), given.nuts_data_sets)
        found, seconds = timed(partial(one.posterior, y, number))
        ours = found.effective_draws.sum() / seconds
        few = by_prior_draws(one, y) if one.distribution.num_inputs <= MOST_FOR_DRAWS else None
        rows, theirs, left_out = [], [], 0
        for k in np.flatnonzero(found.converged):
            if few is not None:
                mean, sd, size, rate = few[0][k], few[1][k], few[2][k], np.nan
            else:
                x, seconds = by_nuts(one, y[k], found.draws[:, k], given.nuts_draws)
                size = effective_sample_size(x).min()
                # A mean is known to .05 sd only from 400 effective draws on; and chains that stay
                # in one of several modes, or at kinks, are no reference.
                if size < 400 or split_gelman_rubin(x).max() > 1.01:
                    left_out += 1
                    continue
                flat = x.reshape(-1, x.shape[-1])
                mean, sd, rate = flat.mean(axis=0), flat.std(axis=0), size / seconds
            shift, ratio = (found.mean[k] - mean) / sd, np.sqrt(found.variance[k]) / sd - 1
            rows.append((shift, ratio, shift / np.sqrt(1 / found.effective_draws[k] + 1 / size)))
            theirs.append(rate)
        jax.clear_caches()  # each model is a program of its own, and their number is limited
        if not rows:
            row(number, *"-----", 0, left_out)
            continue
        shift, ratio, in_errors = np.moveaxis(np.array(rows), 1, 0)
        of_shift, of_ratio, of_errors = (np.sqrt(np.mean(p**2)) for p in (shift, ratio, in_errors))
        row(
            number, f"{abs(shift).max():.3f} ({of_shift:.3f})", f"{of_errors:.2f}",
            f"{abs(ratio).max():.1%} ({of_ratio:.1%})", f"{ours:.0f}", f"{np.mean(theirs):.0f}",
            len(rows), left_out,
        )  # fmt: skip


def by_nuts(one, y, starts, draws):
    """Draws of four chains from draws of a posterior, ``(4, draws, N_x)``, and seconds."""
    half_width = np.asarray(one.distribution.half_width)

    def model():
        z = numpyro.sample("z", dist.Normal(jnp.zeros(half_width.size), 1).to_event(1))
        box = half_width * (2 * ndtr(z) - 1)
        x = numpyro.deterministic("x", jnp.where(half_width > 0, box, z))
        numpyro.sample("y", dist.Normal(one.network(x), one.noise).to_event(1), obs=y)

    mcmc = MCMC(
        NUTS(model, target_accept_prob=0.9), num_warmup=1000, num_samples=draws, num_chains=4,
        chain_method="vectorized", progress_bar=False,
    )  # fmt: skip
    x = np.random.default_rng(1).choice(starts, 4)
    in_box = ndtri((x / np.where(half_width > 0, half_width, np.inf) + 1) / 2)
    starts = jnp.where(half_width > 0, in_box, x)
    start = time.perf_counter()
    mcmc.run(jax.random.key(2), init_params={"z": starts})
    x = np.asarray(mcmc.get_samples(group_by_chain=True)["x"], float)
    return x, time.perf_counter() - start


def by_prior_draws(one, y):
    """Means and sds of the posteriors of rows of `y`, and effective numbers of weighted draws.

    The draws are of the distribution of the inputs, so no mode is missed.
    """

    @jax.jit
    def block(key):
        x = one.distribution.sample(key, (BLOCK,))
        misfits = (jax.vmap(one.network)(x) - y[:, None]) / one.noise
        return x, -0.5 * jnp.sum(misfits**2, axis=-1)

    largest = np.full(len(y), -np.inf)
    # Of weights and their squares, of inputs and their squares.
    sums = np.zeros((len(y), 2 + 2 * one.distribution.num_inputs))
    for key in jax.random.split(jax.random.key(3), NUM_BLOCKS):
        x, logs = (np.asarray(part, float) for part in block(key))
        new = np.maximum(largest, logs.max(axis=1))
        sums *= np.exp(largest - new)[:, None] ** np.where(np.arange(sums.shape[1]) == 1, 2, 1)
        largest, weights = new, np.exp(logs - new[:, None])
        parts = weights.sum(axis=1)[:, None], np.sum(weights**2, axis=1)[:, None]
        sums += np.concatenate([*parts, weights @ x, weights @ x**2], axis=1)
    mean, square = np.split(sums[:, 2:] / sums[:, :1], 2, axis=1)
    return mean, np.sqrt(square - mean**2), sums[:, 0] ** 2 / sums[:, 1]


def wine(given):
    """Three inputs behind ten outputs of real data, and the same check on simulated outputs."""
    from sklearn.datasets import load_wine
    from sklearn.neural_network import MLPRegressor

    table = load_wine().data
    table = (table - table.mean(axis=0)) / table.std(axis=0)
    order = np.random.default_rng(0).permutation(len(table))
    new, old = order[:58], order[58:]
    columns = [0, 6, 9]  # alcohol, flavanoids, color
    inputs, outputs = table[:, columns], np.delete(table, columns, axis=1)
    fitted = MLPRegressor(
        hidden_layer_sizes=(16,), activation="tanh", alpha=3.0, max_iter=5000, random_state=0
    )
    fitted.fit(inputs[old], outputs[old])
    covariance = np.cov((outputs[old] - fitted.predict(inputs[old])).T)
    weights, biases = (
        [jnp.asarray(part.T, jnp.float32) for part in parts]
        for parts in (fitted.coefs_, fitted.intercepts_)
    )

    def network(x):
        return weights[1] @ jnp.tanh(weights[0] @ x + biases[0]) + biases[1]

    f = nuq.Input.normal(jnp.zeros(3), 2.5)
    rng = np.random.default_rng(1)
    near = rng.multivariate_normal(np.zeros(10), covariance, len(new))
    drawn = 2.5 * rng.standard_normal((len(new), 3))
    cases = {
        "held-out rows": (inputs[new], outputs[new]),
        "simulated, same inputs": (inputs[new], fitted.predict(inputs[new]) + near),
        "simulated, inputs of the prior": (drawn, fitted.predict(drawn) + near),
    }
    head("wine", "converged", "90% intervals hold", "error", "runs")
    for name, (x, y) in cases.items():
        found = nuq.input_posterior(
            network, f, y, noise_covariance=covariance, key=jax.random.key(0), progress=False
        )
        mean, error = mean_and_error(within(found, x)[found.converged].mean(axis=1))
        shares = f"{mean:.3f}", f"{error:.3f}", f"{found.num_runs.mean():.0f}"
        row(name, f"{found.converged.sum()} of {len(new)}", *shares)


def cost(given):
    """Print the time of 50 observations, 12 inputs, 5 layers of 128, after compilation."""
    columns = "seconds", "converged", "runs", "effective draws in the median"
    head("50 observations, 12 inputs, 24 outputs, 5 layers of 128", *columns)
    for activation, gain in (("tanh", 1.2), ("leaky ReLU", 2**0.5)):
        sizes = [12, *[128] * 5, 24]
        network = random_network(0, sizes, ACTIVATIONS[activation], gain=gain, bias=0.1)
        one = Problem.of(network, nuq.Input.box(jnp.zeros(12), half_width=1.0), 0.2)
        _, y = one.data(jax.random.key(1), 50)
        one.posterior(y[:1], 2, num_runs=20_000)
        found, seconds = timed(partial(one.posterior, y, 3))
        means = f"{found.num_runs.mean():.0f}", f"{np.median(found.effective_draws):.0f}"
        row(activation, f"{seconds:.1f}", found.converged.sum(), *means)


def peak(width):
    """Name and function of a wide peak and a narrow one, which is far from it and higher."""
    return (
        f"peaks of width 1 at 0 and {width} at 2",
        lambda x: jnp.exp(-(x**2) / 2) + 1.5 * jnp.exp(-(((x - 2) / width) ** 2) / 2),
    )


# Name and function of each input, whose sum is observed; inputs, observed sum, noise.
EXTREMES = (
    ("sin(10x) + .1x", lambda x: jnp.sin(10 * x) + 0.1 * x, nuq.Input.normal, 1, 1.2, 0.01),
    ("sin(20x) + .1x", lambda x: jnp.sin(20 * x) + 0.1 * x, nuq.Input.normal, 1, 1.2, 0.01),
    ("cos(8x) + .1x", lambda x: jnp.cos(8 * x) + 0.1 * x, nuq.Input.normal, 2, 2.2, 0.05),
    ("sin(6x)", lambda x: jnp.sin(6 * x), nuq.Input.normal, 3, 2.9, 0.05),
    ("sin(3x) + .3x", lambda x: jnp.sin(3 * x) + 0.3 * x, nuq.Input.normal, 4, 3.0, 0.05),
    (*peak(0.02), nuq.Input.box, 1, 1.0, 0.05),
    (*peak(0.04), nuq.Input.box, 1, 1.0, 0.05),
)


def extremes(given):
    """Observations at an extreme of the network, or of a narrow peak: sds with several keys."""
    cells = "converged", "of these sd off by more than 10%", "sd, of the truth: least", "mean"
    head("of each input, sum", "inputs", "observed", *cells)
    for name, function, family, count, y, noise in EXTREMES:
        f = family(jnp.zeros(count), 4.0 if family == nuq.Input.box else 1.0)
        one = Problem(lambda x, of=function: jnp.sum(of(x), keepdims=True), f, np.array([noise]))
        _, sd, _ = by_prior_draws(one, np.array([[y]]))
        found = [one.posterior(np.array([y]), seed) for seed in range(given.keys)]
        ratio = np.array([np.sqrt(part.variance) / sd[0] for part in found if part.converged])
        off = np.sum(np.any(abs(ratio - 1) > 0.1, axis=1))
        of_truth = f"{ratio.min():.2f}", f"{ratio.mean():.2f}"
        row(name, count, y, f"{len(ratio)} of {given.keys}", off, *of_truth)


if __name__ == "__main__":
    print_tables(
        (coverage, nuts, wine, cost, extremes),
        # Draws of NUTS are those of each of four chains.
        problems=tuple(range(len(PROBLEMS))), data_sets=400, nuts_data_sets=10, nuts_draws=5000,
        keys=26,
    )  # fmt: skip
