"""Train a network on inputs that were measured with errors of known size.

A network of one input learns y = g(f) + noise from pairs (x, y), where x is a noisy measurement of
the true input f. Fitted to the pairs as they are, the network learns E[y | x], which is flatter
than g: the fit is attenuated. Its weights are inferred by NUTS in three ways:

- naive: y ~ Normal(net(x), sigma).
- calibrated: y ~ Normal(net(E[f | x]), sigma), regression calibration. The slopes are repaired;
  predictions of y from x are not, as the naive network could learn the same ones.
- linearized: the whole distribution of f given x goes through the network,
  `nuq.linearize(net, distribution).marginals(noise_scale=sigma)`. So y scatters more where the
  network is steep, and sigma is the noise of y alone.

What these need is the distribution of the true input given the measured one, which is not the
distribution of the error about x. For f ~ Normal(m, v) and x = f + e, e ~ Normal(0, s^2), it is
Normal(m + r (x - m), r s^2) with the reliability r = v / (v + s^2); slopes of the naive fit are
about r times the true ones (R. J. Carroll, D. Ruppert, L. A. Stefanski and C. M. Crainiceanu,
Measurement Error in Nonlinear Models, 2nd ed., 2006, chapter 4). m and v are estimated from the
measured inputs, s is known; that m and v are estimates is not propagated.

Run `python examples/noisy_inputs.py --help` for the arguments.
"""

import argparse
import math
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import numpyro
import numpyro.distributions as dist
import pandas as pd
from flax import nnx
from jax import Array
from numpyro import handlers
from numpyro.contrib.module import random_nnx_module
from numpyro.diagnostics import effective_sample_size, split_gelman_rubin
from numpyro.infer import MCMC, NUTS
from tqdm import tqdm

import nn_uq_dist as nuq

HIDDEN = 8  # neurons
NOISE = 0.2  # standard deviation of y about g(f)
REACH = 1.5  # slopes are means over true inputs from -REACH to REACH
GRID = np.linspace(-2.5, 2.5, 41)  # where the fits are drawn
WATCHED = slice(4, -4, 4)  # its nine points from -2 to 2, where convergence is checked
COLORS = {"naive": "#D55E00", "calibrated": "#009E73", "linearized": "#0072B2"}
GRAY = "#8C8C8C"

Draws = dict[str, Array]


class Perceptron(nnx.Module):
    """One hidden layer; tanh, because kinks would break the trajectories of NUTS."""

    def __init__(self, rngs: nnx.Rngs) -> None:
        self.hidden = nnx.Linear(1, HIDDEN, rngs=rngs)
        self.output = nnx.Linear(HIDDEN, 1, rngs=rngs)

    def __call__(self, x: Array) -> Array:
        """Map one input, shape (1,), to one output, shape (1,)."""
        return self.output(jnp.tanh(self.hidden(x)))


class Data(NamedTuple):
    """True inputs, measured inputs and outputs, shape (n, 1) each."""

    f: Array
    x: Array
    y: Array


class Calibration(NamedTuple):
    """What the distribution of a true input given the measured one takes."""

    error_sd: float
    mean: float  # of the true inputs
    reliability: float  # their variance over that of the measured ones

    def distribution(self, x: Array) -> nuq.Input:
        """Return the distribution of the true inputs given the measured ones."""
        loc = self.mean + self.reliability * (x - self.mean)
        sd = self.reliability**0.5 * self.error_sd
        return nuq.Input.normal(loc, jnp.full(x.shape[-1], sd, x.dtype))


class Fit(NamedTuple):
    """What a fit says of the function and of y on the grid, and of new observations."""

    functions: np.ndarray  # (draws, points)
    y: np.ndarray  # draws of y given x, (10 draws, points)
    score: np.ndarray  # log predictive density given the measured input, (n,)
    score_exact: np.ndarray  # the same given the true input, (n,)


def truth(f: Array) -> Array:
    """Evaluate the function to be learned, whose slope grows from 0 to 2.

    Its mean slope from -a to a is 1 for each a; that of E[y | x] is exactly the reliability, if the
    mean input is 0.
    """
    return 2 * jax.nn.softplus(f)


def simulate(key: Array, count: int, error_sd: float) -> Data:
    """Draw true inputs, their measurements and noisy outputs."""
    input_key, error_key, noise_key = jax.random.split(key, 3)
    f = jax.random.normal(input_key, (count, 1))
    x = f + error_sd * jax.random.normal(error_key, (count, 1))
    return Data(f, x, truth(f) + NOISE * jax.random.normal(noise_key, (count, 1)))


def calibrate(x: Array, error_sd: float) -> Calibration:
    """Estimate the true inputs from the measured ones and the size of the errors."""
    variance = float(x.var(ddof=1))
    if variance <= error_sd**2:
        raise ValueError(
            f"error_sd must be less than the standard deviation of the measured inputs, "
            f"{variance**0.5:.3g}, got {error_sd:g}; nothing is left for the true inputs to vary, "
            f"so state the errors smaller or measure more inputs"
        )
    return Calibration(error_sd, float(x.mean()), 1 - error_sd**2 / variance)


def prior(name: str, shape: tuple[int, ...]) -> Any:
    """Return the prior of a weight: functions that bend on the scale of the inputs, which is 1."""
    scale = 2 / HIDDEN**0.5 if name == "output.kernel" else 1.0
    return dist.Normal(0, scale).expand(shape).to_event(len(shape))


def model(
    module: Perceptron, fit: str, calibration: Calibration, x: Array, y: Array | None = None
) -> None:
    """Observe y at the measured inputs x, in one of the three ways."""
    net = random_nnx_module("net", module, prior)
    # Mostly 0.1 to 0.8. A wider prior reaches down to where the linearized fit cannot tell sigmas
    # apart, since the scatter from the inputs is larger, and NUTS mixes slowly there.
    sigma = numpyro.sample("sigma", dist.LogNormal(math.log(0.3), 0.5))
    distribution = calibration.distribution(x)
    if fit == "linearized":
        outputs = nuq.linearize(net, distribution).marginals(noise_scale=sigma)
    else:
        outputs = dist.Normal(jax.vmap(net)(x if fit == "naive" else distribution.mean), sigma)
    with numpyro.plate("observations", len(x), dim=-2):
        numpyro.sample("y", outputs, obs=y)


def run_nuts(
    key: Array, module: Perceptron, fit: str, calibration: Calibration, data: Data,
    arguments: argparse.Namespace,
) -> tuple[Draws, int]:  # fmt: skip
    """Return draws of weights and sigma, shape (chains, draws, ...), and count the divergences."""
    # At the default acceptance of 0.8 the linearized fit has a few divergences. Longer
    # trajectories, 1023 steps at most by default, cost twice the time for no more effective draws.
    mcmc = MCMC(
        NUTS(model, target_accept_prob=0.9, max_tree_depth=8),
        num_warmup=arguments.num_warmup,
        num_samples=arguments.num_draws,
        num_chains=arguments.num_chains,
        chain_method="sequential",
        progress_bar=not arguments.no_progress,
    )
    if not arguments.no_progress:
        tqdm.write(f"{fit} fit", file=sys.stderr)  # the bars of NumPyro do not say
    mcmc.run(key, module, fit, calibration, data.x, data.y)
    return mcmc.get_samples(group_by_chain=True), int(mcmc.get_extra_fields()["diverging"].sum())


def curves(module: Perceptron, draws: Draws, f: Array) -> Array:
    """Evaluate the network of every draw at inputs of shape (points,): shape (draws, points)."""

    def curve(draw: Draws) -> Array:
        net = handlers.substitute(random_nnx_module, data=draw)("net", module, prior)
        return jax.vmap(net)(f[:, None])[:, 0]

    return jax.vmap(curve)(draws)


def predict(
    key: Array, module: Perceptron, fit: str, calibration: Calibration, draws: Draws, data: Data
) -> tuple[np.ndarray, np.ndarray]:
    """Return the log predictive density at y, shape (n,), and ten y for each draw, (draws, n)."""

    def one(keyed: tuple[Array, Draws]) -> tuple[Array, Array]:
        key, draw = keyed
        conditioned = handlers.substitute(model, data=draw)
        trace = handlers.trace(conditioned).get_trace(module, fit, calibration, data.x, data.y)
        outputs = trace["y"]["fn"]
        return outputs.log_prob(data.y), outputs.sample(key, (10,))

    keys = jax.random.split(key, len(draws["sigma"]))
    density, y = jax.jit(lambda keyed: jax.lax.map(one, keyed))((keys, draws))
    log_density = jax.nn.logsumexp(density, axis=0) - math.log(len(keys))
    return np.ravel(log_density), np.reshape(y, (-1, len(data.y)))


def describe(module: Perceptron, chains: Draws, divergences: int) -> dict[str, float]:
    """Return the posterior of slope and sigma, and how well NUTS converged."""
    sigma = np.asarray(chains["sigma"])
    points = jnp.asarray([-REACH, REACH, *GRID[WATCHED]])
    values = np.asarray(jax.vmap(lambda draws: curves(module, draws, points))(chains))
    slope = (values[..., 1] - values[..., 0]) / (2 * REACH)
    # Two neurons can change places, so weights need not converge, but what the network does.
    watched = [*np.moveaxis(values, -1, 0), sigma]
    return {
        "slope": slope.mean(),
        "its sd": slope.std(),
        "sigma": sigma.mean(),
        "sd of sigma": sigma.std(),
        "r_hat": max(float(split_gelman_rubin(one)) for one in watched),
        "ess": min(float(effective_sample_size(one)) for one in watched),
        "divergences": divergences,
    }


def check_linearization(
    key: Array, module: Perceptron, calibration: Calibration, draws: Draws
) -> pd.DataFrame:
    """Compare linearized distributions of y with Monte Carlo, at five measured inputs.

    The network is the posterior mean of the function, sigma its posterior mean.
    """
    x, sigma = jnp.arange(-2.0, 3.0), float(draws["sigma"].mean())
    sample_key, noise_key = jax.random.split(key)
    some = {name: values[:: max(1, len(values) // 50)] for name, values in draws.items()}

    def net(f: Array) -> Array:  # five inputs to five outputs, each from its own
        return curves(module, some, f).mean(0)

    distribution = calibration.distribution(x)
    y = nuq.monte_carlo(net, distribution, sample_key, 10_000, progress=False)
    y += sigma * jax.random.normal(noise_key, y.shape)
    marginals = nuq.linearize(net, distribution).marginals(noise_scale=sigma)
    names = [f"x = {point:+.0f}" for point in x]
    table = nuq.diagnostics.summary(marginals, y, output_names=names, progress=False)
    sd = table["sd", "monte_carlo"]
    columns = {"sd of y": sd, "error of mean, in sd": table["mean", "error"] / sd,
               "ratio of sd": table["sd", "analytic"] / sd,
               "KS distance": table["kolmogorov_smirnov", "monte_carlo"]}  # fmt: skip
    return pd.DataFrame(columns).rename_axis(None)


def mean_and_error(values: np.ndarray) -> tuple[float, float]:
    """Return the mean of independent values and its standard error."""
    return float(values.mean()), float(values.std(ddof=1) / len(values) ** 0.5)


def draw(fits: dict[str, Fit], train: Data, new: Data) -> plt.Figure:
    """Draw the fitted functions, intervals of y, and where the log scores differ."""
    figure, axes = plt.subplots(1, 3, figsize=(13, 4.2), layout="constrained")
    function, interval, gain = axes
    for axis, shown in ((function, train), (interval, Data(*(part[:300] for part in new)))):
        axis.plot(shown.x, shown.y, ".", ms=3, color=GRAY, label="pairs (x, y)")
        axis.set(xlim=(-3, 3), ylim=(-1.5, 7), ylabel="y")
    x = np.ravel(new.x)
    tenths = np.array_split(np.argsort(x), 10)
    for name, fit in fits.items():
        color = COLORS[name]
        if name != "calibrated":  # nearly the function of the one, the intervals of the other
            low, middle, high = np.quantile(fit.functions, [0.05, 0.5, 0.95], axis=0)
            function.fill_between(GRID, low, high, alpha=0.25, lw=0, color=color)
            function.plot(GRID, middle, color=color)
            interval.plot(GRID, np.quantile(fit.y, [0.05, 0.95], axis=0).T, color=color)
        if name != "naive":
            differences = fit.score - fits["naive"].score
            means, errors = np.transpose([mean_and_error(differences[one]) for one in tenths])
            places = [x[one].mean() for one in tenths]
            gain.errorbar(places, means, errors, fmt="o-", ms=4, lw=1, capsize=2, color=color)
        gain.plot([], [], color=color, label=name)
    function.plot(GRID, truth(GRID), "--", color="black", label="truth")
    gain.axhline(0, color=COLORS["naive"])
    function.set(xlabel="true input (points: measured)", title="fitted function, 90% band")
    interval.set(xlabel="measured input", title="90% intervals of new y")
    gain.set(xlabel="measured input (means of tenths)", ylabel="nats per observation",
             title="log score minus the naive fit's, ± se")  # fmt: skip
    entries: dict[str, Any] = {}
    for axis in axes:
        axis.spines[["top", "right"]].set_visible(False)
        handles, labels = axis.get_legend_handles_labels()
        entries |= dict(zip(labels, handles, strict=True))
    figure.legend(entries.values(), entries, loc="outside upper center", ncols=6, frameon=False)
    return figure


def parse_arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    """Read and check the command line."""
    parser = argparse.ArgumentParser(description="Train a small network on noisy inputs.")
    parser.add_argument("--error-sd", type=float, default=0.5,
                        help="of the errors; that of the inputs is 1 (default: 0.5)")  # fmt: skip
    counts = {
        "--num-observations": (200, 20, "to learn from"),
        "--num-new": (1000, 20, "new observations, to score predictions"),
        "--num-warmup": (200, 10, "of each chain"),
        "--num-draws": (300, 10, "of each chain"),
        "--num-chains": (4, 1, "one after the other"),
    }
    for option, (default, _, text) in counts.items():
        parser.add_argument(option, type=int, default=default, help=f"{text} (default: {default})")
    parser.add_argument("--seed", type=int, default=0, help="of data and chains (default: 0)")
    parser.add_argument("--out", type=Path, default=Path("noisy_inputs_output"), help="folder")
    parser.add_argument("--no-progress", action="store_true", help="show no progress bars")
    arguments = parser.parse_args(argv)
    for option, (_, least, _) in counts.items():
        if (number := getattr(arguments, option[2:].replace("-", "_"))) < least:
            parser.error(f"{option} must be at least {least}, got {number}")
    if not 0 < arguments.error_sd < math.inf:
        parser.error(f"--error-sd must be positive and finite, got {arguments.error_sd}")
    return arguments


def main(argv: Sequence[str] | None = None) -> None:
    """Fit the network in three ways, print what they say, draw it."""
    arguments = parse_arguments(argv)
    start = time.perf_counter()
    train_key, new_key, chain_key, predict_key, check_key = jax.random.split(
        jax.random.key(arguments.seed), 5
    )
    train = simulate(train_key, arguments.num_observations, arguments.error_sd)
    new = simulate(new_key, arguments.num_new, arguments.error_sd)
    calibration = calibrate(train.x, arguments.error_sd)
    module = Perceptron(nnx.Rngs(0))
    grid = jnp.asarray(GRID)[:, None]
    fits, rows = {}, {}
    for name in COLORS:
        chains, divergences = run_nuts(chain_key, module, name, calibration, train, arguments)
        rows[name] = describe(module, chains, divergences)
        draws = {site: values.reshape(-1, *values.shape[2:]) for site, values in chains.items()}
        told = calibration, draws
        functions = np.asarray(curves(module, draws, grid[:, 0]))
        # Only the draws of y are used here, so any y will do to score.
        _, y = predict(predict_key, module, name, *told, Data(grid, grid, grid))
        score, _ = predict(predict_key, module, name, *told, new)
        # An exact input needs no distribution: each fit then predicts by its network and its sigma.
        score_exact, _ = predict(predict_key, module, "naive", *told, new._replace(x=new.f))
        fits[name] = Fit(functions, y, score, score_exact)

    table = pd.DataFrame.from_dict(rows, orient="index")
    digits = {"r_hat": 4, "ess": 0, "divergences": 0}
    print(f"Posterior of the mean slope (truth: 1) and of sigma (truth: {NOISE}); r_hat and ess:")
    print("the worst of sigma and of the function at eleven inputs")
    print(table.to_string(formatters={c: f"{{:.{digits.get(c, 3)}f}}".format for c in table}))
    attenuation = rows["naive"]["slope"] / rows["linearized"]["slope"]
    # The delta method, for normal inputs: the relative error of a variance is (2 / n)^(1/2).
    reliability, size = calibration.reliability, arguments.num_observations
    print(f"attenuation, naive slope / linearized slope: {attenuation:.3f}; reliability: "
          f"{reliability:.3f}, se {(1 - reliability) * (2 / size) ** 0.5:.3f}\n")  # fmt: skip
    gains = {
        name: [*mean_and_error(fit.score - fits["naive"].score),
               *mean_and_error(fit.score_exact - fits["naive"].score_exact)]
        for name, fit in fits.items() if name != "naive"
    }  # fmt: skip
    print(f"Mean log score of {arguments.num_new} new observations, minus the naive fit's")
    columns = ["noisy inputs", "se", "exact inputs", "se of it"]
    print(pd.DataFrame.from_dict(gains, orient="index", columns=columns).round(3).to_string())
    print("\nDistribution of y by linearization, at five measured inputs, against Monte Carlo")
    check = check_linearization(check_key, module, calibration, draws)
    print(check.round(3).to_string())
    arguments.out.mkdir(parents=True, exist_ok=True)
    file = arguments.out / "noisy_inputs.png"
    draw(fits, train, new).savefig(file, dpi=150)
    plt.close("all")
    print(f"figure: {file.resolve()}\ntime, with compilation: {time.perf_counter() - start:.0f} s")


if __name__ == "__main__":
    main()
