"""Posteriors of a network's inputs: do intervals hold, does NUTS agree, how long does it take.

Run with ``python -m tests.benchmarks.bench_inverse_problem`` or ``make bench
BENCH=bench_inverse_problem``; ``--problems 0 2 --data-sets 20`` for a short run, ``--tables`` picks
some of ``coverage nuts wine cost``. Networks with random weights, two hidden layers of 24, whose
inputs have the standard deviation one; the noise is in units of the outputs' standard deviations.
"""

import argparse
import itertools
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax.scipy.special import ndtr, ndtri
from numpyro.diagnostics import effective_sample_size, split_gelman_rubin
from numpyro.infer import MCMC, NUTS

import nn_uq_dist as nuq

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
Network = Callable[[jax.Array], jax.Array]
TOGETHER = 20
# Draws of the inputs' distribution, and inputs up to which enough of them have a weight.
BLOCK, NUM_BLOCKS, MOST_FOR_DRAWS = 2**18, 256, 4


class Problem(NamedTuple):
    """A network, the distribution of its inputs, and the noise of its outputs."""

    network: Network
    distribution: nuq.Input
    noise: np.ndarray

    def data(self, key: jax.Array, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Inputs and observed outputs."""
        keys = jax.random.split(key)
        x = self.distribution.sample(keys[0], (count,))
        noise = self.noise * jax.random.normal(keys[1], (count, self.noise.size))
        return np.asarray(x), np.asarray(jax.vmap(self.network)(x) + noise, float)

    def posterior(self, y: np.ndarray, key: jax.Array, **kwargs: Any) -> Any:
        """Of a row of `y`, or of all of them."""
        return nuq.input_posterior(
            self.network,
            self.distribution,
            y,
            noise_scale=self.noise,
            key=key,
            progress=False,
            **kwargs,
        )


def random_network(
    seed: int, sizes: list[int], activation: str, gain: float, bias: float
) -> Network:
    """Network of random weights."""
    rng = np.random.default_rng(seed)
    layers = []
    for before, after in itertools.pairwise(sizes):
        weights = rng.normal(size=(after, before)) * gain / before**0.5
        layers.append((jnp.asarray(weights), jnp.asarray(rng.normal(size=after) * bias)))

    def network(x: jax.Array) -> jax.Array:
        for weights, biases in layers[:-1]:
            x = weights.astype(x.dtype) @ x + biases.astype(x.dtype)
            x = jnp.tanh(x) if activation == "tanh" else jnp.where(x > 0, x, 0.01 * x)
        weights, biases = layers[-1]
        return weights.astype(x.dtype) @ x + biases.astype(x.dtype)

    return network


def problem(number: int) -> Problem:
    """One of the twelve."""
    inputs, outputs, activation, kind, noise = PROBLEMS[number]
    network = random_network(number, [inputs, 24, 24, outputs], activation, 1.4, 0.3)
    is_box = {"box": np.ones(inputs), "normal": np.zeros(inputs), "mixed": np.arange(inputs) % 2}
    box = is_box[kind].astype(np.float32)
    distribution = nuq.Input.box(jnp.zeros(inputs), 3**0.5 * box) + nuq.Input.normal(
        jnp.zeros(inputs), 1 - box
    )
    sd = jax.vmap(network)(distribution.sample(jax.random.key(0), (4000,))).std(axis=0)
    return Problem(network, distribution, noise * np.asarray(sd))


def within(found: Any, x: np.ndarray) -> np.ndarray:
    """Whether 90% intervals of the inputs hold, as `x`."""
    low, high = np.quantile(found.draws, [0.05, 0.95], axis=0)
    return np.asarray((low <= x) & (x <= high))


def coverage(numbers: list[int], count: int) -> None:
    """Print coverage, what has converged, runs and times of each problem."""
    print("inputs outputs activation kind noise | converged  coverage +- error | all | runs  s")
    shares, means, errors = [], [], []
    for number in numbers:
        one = problem(number)
        x, y = one.data(jax.random.key(100 + number), count)
        held, converged, runs = [], [], []
        start = time.perf_counter()
        for first in range(0, count, TOGETHER):
            rows = slice(first, first + TOGETHER)
            found = one.posterior(y[rows], jax.random.key(first))
            held.append(within(found, x[rows]))
            converged.append(found.converged)
            runs.append(found.num_runs)
        seconds = time.perf_counter() - start
        good, inside = np.concatenate(converged), np.concatenate(held)
        kept = inside[good].mean(axis=1)
        error = kept.std() / max(len(kept), 1) ** 0.5
        shares.append(good.mean())
        means.append(kept.mean())
        errors.append(error)
        print(
            *PROBLEMS[number],
            f"| {good.mean():.3f}  {kept.mean():.3f} +- {error:.3f} | {inside.mean():.3f} | "
            f"{np.concatenate(runs).mean():.0f} {seconds / count:.2f}",
            flush=True,
        )
    overall = np.sqrt(np.sum(np.square(errors))) / len(errors)
    print(f"mean: {np.mean(shares):.3f} converged, {np.mean(means):.3f} +- {overall:.3f} covered")


def compare_with_nuts(numbers: list[int], count: int, draws: int) -> None:
    """Print how means and sds differ from those of four chains, and effective draws per second.

    Up to four inputs from weighted draws of their distribution: chains that start in one of several
    modes may agree and be wrong.
    """
    print("problem | mean, sd: largest difference (root mean square) | in errors | draws/s")
    for number in numbers:
        one = problem(number)
        _, y = one.data(jax.random.key(100 + number), count)
        start = time.perf_counter()
        found = one.posterior(y, jax.random.key(number))
        ours = found.effective_draws.sum() / (time.perf_counter() - start)
        shifts, ratios, errors, theirs, left_out = [], [], [], [], 0
        few = by_prior_draws(one, y) if one.distribution.num_inputs <= MOST_FOR_DRAWS else None
        for row in np.flatnonzero(found.converged):
            if few is not None:
                mean, sd, size = (part[row] for part in few)
                seconds = 0.0
            else:
                x, seconds = by_nuts(one, y[row], found.draws[:, row], draws)
                sizes = effective_sample_size(x)
                size = sizes.min()
                # A mean is known to .05 sd only from 400 effective draws on; and chains that stay
                # in one of several modes, or at kinks, are no reference.
                if size < 400 or split_gelman_rubin(x).max() > 1.01:
                    left_out += 1
                    continue
                flat = x.reshape(-1, x.shape[-1])
                mean, sd = flat.mean(axis=0), flat.std(axis=0)
            theirs.append(size / seconds if seconds else np.nan)
            shifts.append((found.mean[row] - mean) / sd)
            ratios.append(np.sqrt(found.variance[row]) / sd - 1)
            error = np.sqrt(1 / found.effective_draws[row] + 1 / size)
            errors.append(np.full(len(mean), error))
        jax.clear_caches()  # each model is a program of its own, and their number is limited
        if not shifts:
            print(number, "chains of NUTS agree for no data set", flush=True)
            continue
        shift, ratio = np.concatenate(shifts), np.concatenate(ratios)
        in_errors = np.sqrt(np.mean((shift / np.concatenate(errors)) ** 2))
        print(
            f"{number} | {abs(shift).max():.3f} ({np.sqrt(np.mean(shift**2)):.3f}) sd, "
            f"{abs(ratio).max():.1%} ({np.sqrt(np.mean(ratio**2)):.1%}) | {in_errors:.2f} | "
            f"{ours:.0f} against {np.mean(theirs):.0f} | {len(shifts)} data sets, {left_out} left "
            f"out: NUTS has not converged",
            flush=True,
        )


def by_nuts(
    one: Problem, y: np.ndarray, starts: np.ndarray, draws: int
) -> tuple[np.ndarray, float]:
    """Draws of four chains from draws of a posterior, ``(4, draws, N_x)``, and seconds."""
    half_width = np.asarray(one.distribution.half_width)

    def model() -> None:
        z = numpyro.sample("z", dist.Normal(jnp.zeros(half_width.size), 1).to_event(1))
        box = half_width * (2 * ndtr(z) - 1)
        x = numpyro.deterministic("x", jnp.where(half_width > 0, box, z))
        numpyro.sample("y", dist.Normal(one.network(x), one.noise).to_event(1), obs=y)

    mcmc = MCMC(
        NUTS(model, target_accept_prob=0.9),
        num_warmup=1000,
        num_samples=draws,
        num_chains=4,
        chain_method="vectorized",
        progress_bar=False,
    )
    x = np.random.default_rng(1).choice(starts, 4)
    in_box = ndtri((x / np.where(half_width > 0, half_width, np.inf) + 1) / 2)
    starts = jnp.where(half_width > 0, in_box, x)
    start = time.perf_counter()
    mcmc.run(jax.random.key(2), init_params={"z": starts})
    x = np.asarray(mcmc.get_samples(group_by_chain=True)["x"], float)
    return x, time.perf_counter() - start


def by_prior_draws(one: Problem, y: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Means and sds of the posteriors of rows of `y`, and effective numbers of weighted draws.

    The draws are of the distribution of the inputs, so no mode is missed.
    """

    @jax.jit
    def block(key: jax.Array) -> tuple[jax.Array, jax.Array]:
        x = one.distribution.sample(key, (BLOCK,))
        misfits = (jax.vmap(one.network)(x) - y[:, None]) / one.noise
        return x, -0.5 * jnp.sum(misfits**2, axis=-1)

    largest = np.full(len(y), -np.inf)
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


def wine() -> None:
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
    residual = outputs[old] - fitted.predict(inputs[old])
    covariance = np.cov(residual.T)
    layers = [(jnp.asarray(w.T, jnp.float32), jnp.asarray(b, jnp.float32))
              for w, b in zip(fitted.coefs_, fitted.intercepts_, strict=True)]  # fmt: skip

    def network(x: jax.Array) -> jax.Array:
        return layers[1][0] @ jnp.tanh(layers[0][0] @ x + layers[0][1]) + layers[1][1]

    f = nuq.Input.normal(jnp.zeros(3), 2.5)
    rng = np.random.default_rng(1)
    near = rng.multivariate_normal(np.zeros(10), covariance, len(new))
    cases = {
        "held-out rows": (inputs[new], outputs[new]),
        "simulated, same inputs": (inputs[new], fitted.predict(inputs[new]) + near),
    }
    drawn = 2.5 * rng.standard_normal((len(new), 3))
    cases["simulated, inputs of the prior"] = drawn, fitted.predict(drawn) + near
    for name, (x, y) in cases.items():
        found = nuq.input_posterior(
            network, f, y, noise_covariance=covariance, key=jax.random.key(0), progress=False
        )
        held = within(found, x)[found.converged].mean(axis=1)
        error = held.std() / len(held) ** 0.5
        print(
            f"wine, {name}: {found.converged.sum()} of {len(new)} converged, 90% intervals hold "
            f"in {held.mean():.3f} +- {error:.3f}, runs {found.num_runs.mean():.0f}",
            flush=True,
        )


def cost() -> None:
    """Print the time of 50 observations, 12 inputs, 5 layers of 128, after compilation."""
    for outputs, activation, gain in ((24, "tanh", 1.2), (24, "leaky ReLU", 2**0.5)):
        network = random_network(0, [12, *[128] * 5, outputs], activation, gain, 0.1)
        distribution = nuq.Input.box(jnp.zeros(12), half_width=1.0)
        sd = jax.vmap(network)(distribution.sample(jax.random.key(0), (4000,))).std(axis=0)
        one = Problem(network, distribution, 0.2 * np.asarray(sd))
        _, y = one.data(jax.random.key(1), 50)
        one.posterior(y[:1], jax.random.key(2), num_runs=20_000)
        start, cpu = time.perf_counter(), time.process_time()
        found = one.posterior(y, jax.random.key(3))
        seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
        print(
            f"50 observations, 12 inputs, {outputs} outputs, 5 layers of 128, {activation}: "
            f"{seconds:.1f} s ({cpu:.1f} CPU s), {found.converged.sum()} converged, "
            f"{found.num_runs.mean():.0f} runs each, {np.median(found.effective_draws):.0f} "
            f"effective draws",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    tables = ("coverage", "nuts", "wine", "cost")
    parser.add_argument("--tables", nargs="+", choices=tables, default=tables)
    parser.add_argument("--problems", nargs="+", type=int, default=range(len(PROBLEMS)))
    parser.add_argument("--data-sets", type=int, default=400, help="for the coverage")
    parser.add_argument("--nuts-data-sets", type=int, default=10)
    parser.add_argument("--nuts-draws", type=int, default=5000, help="of each of four chains")
    arguments = parser.parse_args()
    numbers = list(arguments.problems)
    if "coverage" in arguments.tables:
        coverage(numbers, arguments.data_sets)
    if "nuts" in arguments.tables:
        compare_with_nuts(numbers, arguments.nuts_data_sets, arguments.nuts_draws)
    if "wine" in arguments.tables:
        wine()
    if "cost" in arguments.tables:
        cost()


if __name__ == "__main__":
    main()
