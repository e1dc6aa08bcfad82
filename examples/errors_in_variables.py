"""Infer how uncertain a network's inputs are, from noisy observations of its outputs.

Errors-in-variables regression through a fixed network: the true inputs of each observation are
within +-beta of the measured ones, the outputs carry normal noise of standard deviation sigma, and
both are unknown. Models of the same data, all sampled by NUTS:

- marginalized: the network is linearized once; the joint distribution of the outputs of an
  observation, `Linearization.joint`, has its input error integrated out. Two latent variables
  remain.
- latent: every true input is a latent variable, and the network runs in each step.

The outputs of one observation share its input error. So the marginalized likelihood is their joint
distribution; a product of their marginals would count the shared error once for each output. With a
single output they are the same.

`--models` adds three more. One is for input errors so large that the network bends over them:

- relinearized: as marginalized, but linearized anew for each beta and sigma, by least squares over
  the inputs that explain the observation. It runs the network far more often than latent does.

The other two tell what a difference between the first two comes from:

- copula: as marginalized, with `Linearization.gaussian_copula` for the joint distribution;
- latent-linear: as latent, with the linearized network in place of the network.

Run `python examples/errors_in_variables.py --help` for the arguments.
"""

import argparse
import math
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import numpyro
import numpyro.distributions as dist
import pandas as pd
import sea_surface
from jax import Array
from numpyro.diagnostics import effective_sample_size, split_gelman_rubin
from numpyro.infer import NUTS, init_to_sample
from scipy.stats import qmc
from tqdm import tqdm

import nn_uq_dist as nuq

INPUTS, LAYERS = 12, 5  # of the synthetic network
PARAMETERS = {"beta": "half-width of the input error", "sigma": "noise of the outputs"}
BLOCK = 25  # draws between two updates of the progress bar
PASSES, DRAWS = 12, 512  # of the inputs that explain an observation: improvements, and how many
MODELS = {"marginalized": "#0072B2", "relinearized": "#E69F00", "copula": "#009E73",
          "latent": "#8C8C8C", "latent-linear": "#CC79A7"}  # fmt: skip
VERMILION = "#D55E00"  # the truth

Network = Callable[[Array], Array]
Model = Callable[..., None]


class Experiment(NamedTuple):
    """Measured inputs, shape (T, N_x), observed outputs, shape (T, N_y), and the network."""

    name: str
    net: Network
    x: Array
    y: Array
    medians: tuple[float, float]  # of the priors of beta and sigma
    truth: tuple[float, float] | None


class Posterior(NamedTuple):
    """Draws of beta and sigma, shape (chains, draws) each, and what they cost."""

    draws: dict[str, np.ndarray]
    seconds: float  # of sampling, all chains, without warm-up and compilation
    steps: float  # mean number of gradients per draw
    divergences: int


def sample_prior(medians: Array) -> tuple[Array, Array]:
    """Sample beta and sigma, with log-normal priors of scale 1 about their medians."""
    beta = numpyro.sample("beta", dist.LogNormal(jnp.log(medians[0]), 1.0))
    sigma = numpyro.sample("sigma", dist.LogNormal(jnp.log(medians[1]), 1.0))
    return beta, sigma


def marginalized_model(*, copula: bool = False) -> Model:
    """Return the model with the input error integrated out.

    It takes the values and Jacobians of the network at the measured inputs: they depend on neither
    beta nor sigma, so the network is not evaluated while sampling.
    """

    def model(medians: Array, x: Array, y: Array, value: Array, jacobian: Array) -> None:
        beta, sigma = sample_prior(medians)
        linear = nuq.Linearization(value, jacobian, nuq.Input.box(x, half_width=beta))
        if y.shape[1] == 1:
            outputs = linear.marginals(noise_scale=sigma).to_event(1)
        elif copula:
            outputs = linear.gaussian_copula(noise_scale=sigma)
        else:
            outputs = linear.joint(noise_scale=sigma)
        with numpyro.plate("observations", len(y)):
            numpyro.sample("y", outputs, obs=y)

    return model


def relinearized_model(net: Network) -> Model:
    """Return the model whose linearization fits where the inputs explain the outputs.

    Posterior linearization (A. Garcia-Fernandez et al., 2015): each pass takes the inputs behind an
    observation as normal, given the linearization of the pass before, and regresses the network's
    outputs on draws of them. What the regression leaves is correlated noise. The standard normal
    draws are the same in each pass and for each beta and sigma, and the number of passes is fixed,
    so the density is smooth, and differentiated as it is computed. net: of all inputs.
    """

    def model(
        medians: Array, x: Array, y: Array, value: Array, jacobian: Array, normal: Array
    ) -> None:
        beta, sigma = sample_prior(medians)
        f = nuq.Input.normal(x, beta / 3**0.5)

        def improve(fit: tuple[Array, Array, Array], _: None) -> tuple[Any, None]:
            loc, jacobian, rest = fit
            linear = nuq.Linearization(loc, jacobian, f)
            behind = linear.input_posterior(y, noise_scale=sigma, noise_covariance=rest)
            spread = normal @ jnp.linalg.cholesky(behind.covariance_matrix).mT
            deviation = (behind.mean - x)[:, None] + spread
            outputs = net(x[:, None] + deviation)

            center, middle = deviation.mean(1, keepdims=True), outputs.mean(1, keepdims=True)
            deviation, outputs = deviation - center, outputs - middle
            slopes = jnp.linalg.solve(deviation.mT @ deviation, deviation.mT @ outputs)
            left = outputs - deviation @ slopes
            rest_now = left.mT @ left / (len(normal) - x.shape[1] - 1)
            fit_now = (middle - center @ slopes)[:, 0], slopes.mT, rest_now
            # Halfway: whole steps jump to and fro between regions of the network.
            return jax.tree.map(lambda old, new: (old + new) / 2, fit, fit_now), None

        start = value, jacobian, jnp.zeros((*y.shape, y.shape[1]), y.dtype)
        (loc, slopes, rest), _ = jax.lax.scan(improve, start, length=PASSES)
        linear = nuq.Linearization(loc, slopes, nuq.Input.box(x, half_width=beta))
        with numpyro.plate("observations", len(y)):
            outputs = linear.joint(noise_scale=sigma, noise_covariance=rest)
            numpyro.sample("y", outputs, obs=y)

    return model


def standard_normal(count: int, size: int) -> Array:
    """Return points that fill a standard normal, with their negatives: (count, size)."""
    half = qmc.MultivariateNormalQMC(np.zeros(size), rng=0).random(count // 2)
    return jnp.asarray(np.concatenate([half, -half]), jnp.result_type(float))


def latent_model(net: Network) -> Model:
    """Return the model that samples the true input of each observation; net: of all inputs."""

    def model(medians: Array, x: Array, y: Array) -> None:
        beta, sigma = sample_prior(medians)
        unit = dist.Uniform(-1.0, 1.0).expand([x.shape[1]]).to_event(1)
        with numpyro.plate("observations", len(y)):
            deviation = numpyro.sample("deviation", unit)
            outputs = net(x + beta * deviation)
            numpyro.sample("y", dist.Normal(outputs, sigma).to_event(1), obs=y)

    return model


def run_nuts(
    key: Array, model: Model, data: tuple[Array, ...], arguments: argparse.Namespace, label: str
) -> Posterior:
    """Sample by NUTS, one chain after the other, each started at a draw from the prior.

    It does what `numpyro.infer.MCMC` does, in blocks, so that the time of the draws alone can be
    told from that of warm-up and compilation.
    """
    # Where sigma is small the likelihood falls like a wall: at the default acceptance of 0.8 steps
    # are too long there, and a single output mixes badly.
    kernel = NUTS(
        model, init_strategy=init_to_sample, dense_mass=[("beta", "sigma")], target_accept_prob=0.9
    )
    num_warmup, num_chains = arguments.num_warmup, arguments.num_chains

    @jax.jit
    def block(state: Any, data: tuple[Array, ...]) -> tuple[Any, dict[str, Array]]:
        def step(state: Any, _: None) -> tuple[Any, dict[str, Array]]:
            state = kernel.sample(state, data, {})
            # NUTS works with the logarithms of positive variables.
            kept = {name: jnp.exp(state.z[name]) for name in PARAMETERS}
            return state, {**kept, "diverging": state.diverging, "steps": state.num_steps}

        return jax.lax.scan(step, state, length=BLOCK)

    blocks, seconds = [], 0.0
    warmup, total = num_warmup // BLOCK, (num_warmup + arguments.num_draws) // BLOCK
    with tqdm(total=num_chains * total * BLOCK, desc=label, leave=False,
              disable=arguments.no_progress) as bar:  # fmt: skip
        for chain_key in jax.random.split(key, num_chains):
            state = kernel.init(chain_key, num_warmup, None, data, {})
            for i in range(total):
                start = time.perf_counter()
                state, out = jax.block_until_ready(block(state, data))
                if i >= warmup:
                    seconds += time.perf_counter() - start
                    blocks.append(out)
                bar.update(BLOCK)
    joined = jax.tree.map(lambda *parts: np.concatenate(parts), *blocks)
    draws = {name: joined[name].reshape(num_chains, -1) for name in PARAMETERS}
    return Posterior(draws, seconds, float(joined["steps"].mean()), int(joined["diverging"].sum()))


def synthetic(
    key: Array, name: str, beta: float, sigma: float, arguments: argparse.Namespace
) -> Experiment:
    """Simulate observations of a network with random weights."""
    *layer_keys, bias_key, x_key, f_key, noise_key = jax.random.split(key, LAYERS + 5)
    sizes = [INPUTS, *[arguments.num_hidden] * LAYERS, arguments.num_outputs]
    weights = [
        jax.random.normal(k, (rows, columns)) * (2 / columns) ** 0.5
        for k, columns, rows in zip(layer_keys, sizes[:-1], sizes[1:], strict=True)
    ]
    biases = 0.5 * jax.random.normal(bias_key, (LAYERS, arguments.num_hidden))
    net = nuq.LeakyReLUNetwork(weights[:-1], list(biases), weights[-1])
    x = jax.random.normal(x_key, (arguments.num_observations, INPUTS))
    f = nuq.Input.box(x, half_width=beta)
    flips = np.concatenate(nuq.error_analysis.flip_probabilities(net, f), axis=-1)
    print(f"{name}: a neuron changes its sign with probability {flips.mean():.2g}")
    outputs = jax.vmap(net)(f.sample(f_key))
    y = outputs + sigma * jax.random.normal(noise_key, outputs.shape)
    return Experiment(name, net, x, y, (beta, sigma), (beta, sigma))


def forecasts(key: Array) -> Experiment:
    """Return the trained network, and the pairs of sea-surface curves that it has not seen."""
    years, curves = sea_surface.load_curves()
    net = sea_surface.fit_forecast(key, years, curves)
    new = years[1:] >= sea_surface.FIRST_TEST_YEAR
    x, y = jnp.asarray(curves[:-1][new]), jnp.asarray(curves[1:][new])
    return Experiment("sea surface", net, x, y, (0.3, 0.7), None)


def infer(
    key: Array, experiment: Experiment, arguments: argparse.Namespace
) -> dict[str, Posterior]:
    """Return the posteriors of the chosen models, by name."""
    _, net, x, y, medians, _ = experiment
    linear = nuq.linearize(net, nuq.Input.box(x, half_width=1.0))

    def linearized(f: Array) -> Array:
        return linear.loc + jnp.einsum("tij,tj->ti", linear.jacobian, f - x)

    data = (jnp.asarray(medians), x, y)
    with_jacobian = (*data, linear.loc, linear.jacobian)
    with_draws = (*with_jacobian, standard_normal(DRAWS, x.shape[1]))
    batched = jnp.vectorize(net, signature="(n)->(m)")
    models = {
        "marginalized": (marginalized_model(), with_jacobian),
        "relinearized": (relinearized_model(batched), with_draws),
        "copula": (marginalized_model(copula=True), with_jacobian),
        "latent": (latent_model(batched), data),
        "latent-linear": (latent_model(linearized), data),
    }
    return {
        name: run_nuts(key, *models[name], arguments, f"{experiment.name}, {name}")
        for name in arguments.models
    }


def tabulate(posteriors: dict[str, Posterior]) -> pd.DataFrame:
    """Return a row for each model and parameter; mc error: of the posterior mean."""
    rows = {}
    for model, found in posteriors.items():
        for name, draws in found.draws.items():
            size = float(effective_sample_size(draws))
            rows[model, name] = {
                "mean": draws.mean(),
                "sd": draws.std(),
                "mc error": draws.std() / size**0.5,
                "r_hat": float(split_gelman_rubin(draws)),
                "divergences": found.divergences,
                "gradients": found.steps,
                "ess": size,
                "ess/s": size / found.seconds,
            }
    return pd.DataFrame.from_dict(rows, orient="index")


def print_table(table: pd.DataFrame, truth: tuple[float, float] | None) -> None:
    """Print the table, and how the first model differs from each of the others."""
    digits = {"mean": 4, "sd": 4, "mc error": 5, "r_hat": 3, "divergences": 0, "gradients": 1,
              "ess": 0, "ess/s": 1}  # fmt: skip
    shown = {name: table[name].map(f"{{:.{places}f}}".format) for name, places in digits.items()}
    print(pd.DataFrame(shown).to_string())
    first, *others = dict.fromkeys(table.index.get_level_values(0))
    for i, name in enumerate(PARAMETERS):
        print(name if truth is None else f"{name} (truth {truth[i]:g})")
        for other in others:
            ours, theirs = table.loc[(first, name)], table.loc[(other, name)]
            error = math.hypot(ours["mc error"], theirs["mc error"])
            difference = ours["mean"] - theirs["mean"]
            print(
                f"  {first} less {other}: {difference / theirs['sd']:+.3f} sd, "
                f"{difference / error:+.1f} Monte Carlo errors; "
                f"ess/s: {ours['ess/s'] / theirs['ess/s']:.1f} times"
            )


def draw(results: dict[str, dict[str, Posterior]], experiments: list[Experiment]) -> plt.Figure:
    """Draw the posterior densities of the models over each other, a row for each experiment."""
    figure, axes = plt.subplots(len(results), 2, figsize=(8, 2.3 * len(results)), squeeze=False,
                                layout="constrained")  # fmt: skip
    for row, experiment in zip(axes, experiments, strict=True):
        for i, (axis, name) in enumerate(zip(row, PARAMETERS, strict=True)):
            found = {model: one.draws[name] for model, one in results[experiment.name].items()}
            pooled = np.concatenate([draws.ravel() for draws in found.values()])
            edges = np.linspace(*np.quantile(pooled, [0.001, 0.999]), 41)
            for model, draws in found.items():
                density, _ = np.histogram(draws, edges, density=True)
                fill = model == "latent"
                axis.stairs(density, edges, fill=fill, color=MODELS[model], lw=1.5,
                            alpha=0.5 if fill else 1, label=model)  # fmt: skip
            if experiment.truth is not None:
                axis.axvline(experiment.truth[i], color=VERMILION, ls="--", label="truth")
            title = experiment.name if len(results) > 1 else ""  # one needs no name
            axis.set(yticks=[], xlabel=f"{name}: {PARAMETERS[name]}", title=title)
            axis.title.set_fontsize("medium")
            axis.spines[["top", "right", "left"]].set_visible(False)
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=5, frameon=False)
    return figure


def parse_arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    """Read and check the command line."""
    parser = argparse.ArgumentParser(description="Errors-in-variables regression.")
    parser.add_argument("--num-observations", type=int, default=60, help="of synthetic data")
    parser.add_argument("--num-outputs", type=int, default=3, help="of the synthetic network")
    parser.add_argument("--num-hidden", type=int, default=128, help="neurons of each layer of it")
    parser.add_argument("--num-warmup", type=int, default=200, help="of each chain")
    parser.add_argument("--num-draws", type=int, default=300, help="of each chain")
    parser.add_argument("--num-chains", type=int, default=4)
    parser.add_argument("--only", nargs="+", choices=("narrow", "wide", "sea"), help="experiments",
                        default=["narrow"])  # fmt: skip
    parser.add_argument("--models", nargs="+", choices=MODELS, help="the first is compared",
                        default=["marginalized", "latent"])  # fmt: skip
    parser.add_argument("--seed", type=int, default=0, help="of data, training and chains")
    parser.add_argument(
        "--out", type=Path, default=Path("errors_in_variables_output"), help="folder"
    )
    parser.add_argument("--no-progress", action="store_true", help="show no progress bars")
    arguments = parser.parse_args(argv)
    for name in ("num_warmup", "num_draws"):
        if (number := getattr(arguments, name)) < BLOCK or number % BLOCK:
            option = "--" + name.replace("_", "-")
            parser.error(f"{option} must be a positive multiple of {BLOCK}, got {number}")
    for name in ("num_observations", "num_outputs", "num_hidden", "num_chains"):
        if (number := getattr(arguments, name)) < 1:
            parser.error(f"--{name.replace('_', '-')} must be at least 1, got {number}")
    return arguments


def main(argv: Sequence[str] | None = None) -> None:
    """Run the experiments, print a table of each, write the figure."""
    arguments = parse_arguments(argv)
    data_key, training_key, chain_key = jax.random.split(jax.random.key(arguments.seed), 3)
    makers: dict[str, Callable[[], Experiment]] = {
        "narrow": lambda: synthetic(data_key, "narrow", 0.01, 0.005, arguments),
        "wide": lambda: synthetic(data_key, "wide", 0.3, 0.1, arguments),
        "sea": lambda: forecasts(training_key),
    }
    experiments, results = [], {}
    for name in arguments.only:
        start = time.perf_counter()
        experiment = makers[name]()
        experiments.append(experiment)
        results[experiment.name] = infer(chain_key, experiment, arguments)
        print_table(tabulate(results[experiment.name]), experiment.truth)
        print(f"time, with compilation: {time.perf_counter() - start:.1f} s\n")
    if "sea" in arguments.only:
        print("Sea surface: the models have no other place for errors of the forecast that months")
        print("share, so these count as input errors; where beta is large, the linearization is")
        print("rough, and the two models need not agree.\n")
    arguments.out.mkdir(parents=True, exist_ok=True)
    file = arguments.out / "posteriors.png"
    draw(results, experiments).savefig(file, dpi=150)
    plt.close("all")
    print(f"figure: {file.resolve()}")


if __name__ == "__main__":
    main()
