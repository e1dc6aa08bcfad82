"""Forecast next year's sea-surface temperatures from this year's, which are known to +-0.3 degrees.

The monthly El Nino temperatures of 1950 to 2010 come with statsmodels. A small leaky-ReLU network
learns one year's curve from the previous year's. The measured curve of 2010 is then uncertain in
two ways: each month within +-beta independently (a box), or by a correlated Gaussian error of the
same standard deviation. Both are pushed through the network by linearization, by linearization
corrected with a thousand runs of the network, and by Monte Carlo.

Run `python examples/sea_surface.py --help` for the arguments.
"""

import argparse
import calendar
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import numpyro.distributions as dist
import optax
import pandas as pd
from jax import Array
from statsmodels.datasets import elnino
from tqdm import tqdm

import nn_uq_dist as nuq

MONTHS = list(calendar.month_abbr[1:])  # "Jan" to "Dec"
FIRST_TEST_YEAR = 1996
# The lowest error of five-fold cross-validation on the training years. Little data, little skill:
# weaker regularization fits the training years and forecasts worse than their average.
HIDDEN, INPUT_NOISE, WEIGHT_PENALTY, STEPS = 32, 0.6, 0.003, 1000
CORRELATION_MONTHS = 3.0  # of the Gaussian error: exp(-|i - j| / 3)
NUM_PAIRS = 1000  # runs of the network that correct its linearization
BLUE, VERMILION, GREEN, GRAY = "#0072B2", "#D55E00", "#009E73", "#8C8C8C"

Parameters = list[tuple[Array, Array]]


@contextmanager
def timed(step: str) -> Iterator[None]:
    """Print how long a step took."""
    start = time.perf_counter()
    yield
    print(f"{step}: {time.perf_counter() - start:.1f} s")


def load_curves() -> tuple[np.ndarray, np.ndarray]:
    """Return years, shape (61,), and their monthly temperatures in degrees C, shape (61, 12)."""
    table = elnino.load_pandas().data
    return table["YEAR"].to_numpy(int), table.drop(columns="YEAR").to_numpy(np.float32)


def network(parameters: Parameters, x: Array) -> Array:
    """Evaluate a leaky-ReLU network with slope 0.01 in standardized units, (12,) to (12,)."""
    for weights, bias in parameters[:-1]:
        x = jax.nn.leaky_relu(weights @ x + bias, 0.01)
    weights, bias = parameters[-1]
    return weights @ x + bias


def train(key: Array, inputs: Array, targets: Array, *, progress: bool) -> Parameters:
    """Fit the network to pairs of standardized curves, shape (years, 12) each."""
    key, *layer_keys = jax.random.split(key, 3)
    parameters = [
        (jax.random.normal(k, (rows, columns)) * jnp.sqrt(2 / columns), jnp.zeros(rows))
        for k, (rows, columns) in zip(layer_keys, [(HIDDEN, 12), (12, HIDDEN)], strict=True)
    ]
    optimizer = optax.adam(optax.cosine_decay_schedule(3e-3, STEPS))

    def loss(parameters: Parameters, key: Array) -> Array:
        noisy = inputs + INPUT_NOISE * jax.random.normal(key, inputs.shape)
        outputs = jax.vmap(network, in_axes=(None, 0))(parameters, noisy)
        penalty = sum(jnp.sum(weights**2) for weights, _ in parameters)
        return jnp.mean((outputs - targets) ** 2) + WEIGHT_PENALTY * penalty

    @jax.jit
    def some_steps(state: Any, keys: Array) -> tuple[Any, Array]:
        def step(state: Any, key: Array) -> tuple[Any, Array]:
            parameters, optimizer_state = state
            value, gradient = jax.value_and_grad(loss)(parameters, key)
            updates, optimizer_state = optimizer.update(gradient, optimizer_state)
            return (optax.apply_updates(parameters, updates), optimizer_state), value

        return jax.lax.scan(step, state, keys)

    state = (parameters, optimizer.init(parameters))
    with tqdm(total=STEPS, desc="training", disable=not progress, leave=False) as bar:
        for keys in jax.random.split(key, (20, STEPS // 20)):
            state, losses = some_steps(state, keys)
            bar.update(losses.size)
            bar.set_postfix(loss=f"{losses[-1]:.3f}")
    return state[0]


def fit_forecast(
    key: Array, years: np.ndarray, curves: np.ndarray, *, progress: bool
) -> Callable[[Array], Array]:
    """Train up to the test period, report the errors there, return a map in degrees C."""
    past = curves[years < FIRST_TEST_YEAR]
    mean, sd = jnp.asarray(past.mean(axis=0)), jnp.asarray(past.std(axis=0))
    inputs, targets = curves[:-1], curves[1:]
    is_test = years[1:] >= FIRST_TEST_YEAR
    known = ((inputs[~is_test] - mean) / sd, (targets[~is_test] - mean) / sd)
    parameters = train(key, *known, progress=progress)

    def forecast(x: Array) -> Array:
        return mean + sd * network(parameters, (x - mean) / sd)

    candidates = {
        "network": np.asarray(jax.vmap(forecast)(inputs[is_test])),
        "persistence (the previous year again)": inputs[is_test],
        "climatology (mean of the training years)": np.broadcast_to(mean, targets[is_test].shape),
    }
    print(f"root-mean-square error in degrees C, {FIRST_TEST_YEAR} to {years[-1]}:")
    print(f"  {'':42}{'Jan-Mar':>8}{'Apr-Dec':>8}{'year':>8}")
    for name, values in candidates.items():
        squared = (values - targets[is_test]) ** 2
        errors = [np.sqrt(np.mean(part)) for part in (squared[:, :3], squared[:, 3:], squared)]
        print(f"  {name:42}" + "".join(f"{error:8.2f}" for error in errors))
    return forecast


def input_laws(curve: Array, beta: float) -> dict[str, dist.Distribution]:
    """Return the two laws of the measured curve; both have standard deviation beta / sqrt(3)."""
    month = jnp.arange(12)
    correlation = jnp.exp(-jnp.abs(month[:, None] - month) / CORRELATION_MONTHS)
    return {
        "box": dist.Uniform(curve - beta, curve + beta).to_event(1),
        "Gaussian": dist.MultivariateNormal(curve, correlation * beta**2 / 3),
    }


def distances(laws: dist.Distribution, draws: np.ndarray) -> np.ndarray:
    """Return the Kolmogorov-Smirnov distance of each law to its draws, seen at 1000 of them."""
    ordered, levels = np.sort(draws, axis=0), (np.arange(1000) + 0.5) / 1000
    found = laws.cdf(ordered[(levels * len(draws)).astype(int)])
    return np.abs(np.asarray(found) - levels[:, None]).max(axis=0)


def print_summary(table: pd.DataFrame, corrected: np.ndarray) -> None:
    """Print the main columns of a summary, with distances after correction; 100 wide at most."""
    columns = {}
    for statistic, label, digits in [
        ("mean", "mean", 3), ("sd", "sd", 3), ("q0.05", "5%", 3), ("q0.95", "95%", 3),
        ("skewness", "skew", 2), ("excess_kurtosis", "kurt", 2),
    ]:  # fmt: skip
        # Adding 0 turns -0.00 into 0.00.
        for value, name in (("analytic", label), ("monte_carlo", f"{label} MC")):
            columns[name] = (table[statistic, value].round(digits) + 0).map(
                f"{{:.{digits}f}}".format
            )
    tangent = table["kolmogorov_smirnov", "monte_carlo"]
    columns["KS"] = tangent.map("{:.3f}".format)
    columns["corr."] = [f"{distance:.3f}" for distance in corrected]
    del columns["skew"]  # the linearized law is symmetric
    headings = {name: "MC" for name in columns if name.endswith(" MC")} | {"skew MC": "skew"}
    print(pd.DataFrame(columns).rename(columns=headings).rename_axis(None).to_string())
    floor = table["kolmogorov_smirnov", "noise_floor"].iloc[0]
    print(
        "MC: Monte Carlo, for the column before it; skew: Monte Carlo, analytically 0; KS: distance"
    )
    print(
        f"to Monte Carlo's distribution, by chance about {floor:.3f}; corr.: the same, corrected by"
    )
    print(
        f"{NUM_PAIRS} pairs: {corrected.mean():.3f} instead of {tangent.mean():.3f} on average, "
        f"{corrected.max():.3f} instead of {tangent.max():.3f} at worst"
    )


def draw_forecast(
    cases: dict[str, tuple[nuq.Linearization, nuq.CorrectedMarginal, np.ndarray]],
    measured: np.ndarray,
    year: int,
) -> plt.Figure:
    """Draw the forecast with bands, and below it the deviations with the monthly densities."""
    figure, axes = plt.subplots(2, 2, figsize=(10, 6.6), sharex=True, sharey="row",
                                height_ratios=(1, 1.3), layout="constrained")  # fmt: skip
    position = np.arange(12)
    for (name, (lin, corrected, draws)), (upper, lower) in zip(cases.items(), axes.T, strict=True):
        mean, sd = np.asarray(lin.mean), np.sqrt(np.asarray(lin.variance))
        upper.plot(position, measured, "o--", color=GREEN, ms=3, label=f"measured {year}")
        upper.plot(position, mean, "-", color=BLUE, label=f"forecast {year + 1}")
        upper.set_title(f"{name[0].upper()}{name[1:]} error of the measured curve")
        for k, color in ((3, "#E2F2FB"), (2, "#BCE0F5"), (1, "#8CCBEE")):
            for axis, center in ((upper, mean), (lower, 0 * mean)):
                axis.fill_between(position, center - k * sd, center + k * sd, color=color,
                                  lw=0, zorder=0, label=f"±{k} sd")  # fmt: skip
        grid = np.linspace(-3.4, 3.4, 201)[:, None] * sd
        density, after = (
            np.asarray(jnp.exp(law.log_prob(jnp.clip(mean + grid, *law.bounds))))
            for law in (lin.marginals(), corrected)
        )
        for j in position:
            scale = 0.42 / max(density[:, j].max(), after[:, j].max())
            edges = np.linspace(grid[0, j], grid[-1, j], 41)
            deviation = draws[:, j] - mean[j]
            counts = np.histogram(deviation, edges)[0] / (len(draws) * np.diff(edges))
            lower.stairs(j - scale * counts, edges, baseline=j, orientation="horizontal",
                         fill=True, color=GRAY, lw=0,
                         label="Monte Carlo" if j == 0 else None)  # fmt: skip
            lower.fill_betweenx(grid[:, j], j, j + scale * density[:, j], color=BLUE, lw=0,
                                label="tangent" if j == 0 else None)  # fmt: skip
            for side in (-1, 1):
                shown = scale * after[:, j] > 0.002
                lower.plot(j + side * scale * after[shown, j], grid[shown, j], color="black",
                           lw=0.8,
                           label="corrected" if j == 0 and side > 0 else None)  # fmt: skip
        lower.axhline(0, color=VERMILION, lw=0.8, ls="--", label="mean")
        lower.set_xticks(position, MONTHS)
        for axis in (upper, lower):
            axis.spines[["top", "right"]].set_visible(False)
    axes[0, 0].set_ylabel("sea-surface temperature (°C)")
    axes[1, 0].set_ylabel("deviation from the forecast (°C)")
    entries = {}
    for axis in axes[:, 0]:
        entries |= dict(zip(*reversed(axis.get_legend_handles_labels()), strict=True))
    figure.legend(entries.values(), entries, loc="outside upper center", ncols=len(entries),
                  frameon=False, fontsize="small", columnspacing=1.2)  # fmt: skip
    return figure


def parse_arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    """Read and check the command line."""
    parser = argparse.ArgumentParser(description="A network's forecast as distributions.")
    parser.add_argument(
        "--beta", type=float, default=0.3, help="half-width of the box in degrees C"
    )
    parser.add_argument("--num-draws", type=int, default=100_000, help="Monte Carlo draws")
    parser.add_argument("--seed", type=int, default=0, help="of the training and of the draws")
    parser.add_argument("--out", type=Path, default=Path("sea_surface_output"), help="folder")
    parser.add_argument("--no-progress", action="store_true", help="show no progress bars")
    arguments = parser.parse_args(argv)
    if not 0 < arguments.beta < float("inf"):
        parser.error(f"--beta must be positive, got {arguments.beta}")
    if arguments.num_draws < 100:
        parser.error(f"--num-draws must be at least 100, got {arguments.num_draws}")
    return arguments


def main(argv: Sequence[str] | None = None) -> None:
    """Train, push both uncertain inputs through the network, print tables, write figures."""
    arguments = parse_arguments(argv)
    progress = not arguments.no_progress
    training_key, draw_key, pair_key = jax.random.split(jax.random.key(arguments.seed), 3)
    years, curves = load_curves()
    with timed("training and test"):
        net = fit_forecast(training_key, years, curves, progress=progress)

    arguments.out.mkdir(parents=True, exist_ok=True)
    cases = {}
    for name, f in input_laws(jnp.asarray(curves[-1]), arguments.beta).items():
        print(f"\n{name} error of the {years[-1]} curve, outputs in degrees C:")
        with timed("linearization"):
            lin = jax.block_until_ready(nuq.linearize(net, f))
        with timed(f"Monte Carlo, {arguments.num_draws} draws"):
            draws = nuq.monte_carlo(net, f, draw_key, arguments.num_draws, progress=progress)
        with timed("summary"):
            table = nuq.diagnostics.summary(lin, draws, output_names=MONTHS)
        with timed(f"correction by {NUM_PAIRS} pairs"):
            pairs = nuq.paired_draws(net, lin, pair_key, NUM_PAIRS, progress=progress)
            corrected = lin.corrected(pairs).marginals()
        print_summary(table, distances(corrected, draws))
        cases[name] = (lin, corrected, draws)

    print("\nThe distributions hold the error of the measured curve alone: the errors of the")
    print("forecast itself, in the first table, come on top of it.\n")
    with timed("figures"):
        figure = draw_forecast(cases, curves[-1], years[-1])
        files = [arguments.out / "forecast.png"]
        figure.savefig(files[0], dpi=150)
        for name, (lin, _, draws) in cases.items():
            files.append(arguments.out / f"marginals_{name.lower()}.png")
            nuq.plots.plot_marginals(
                lin, draws, output_names=MONTHS, xlabel="temperature (°C)", backend="matplotlib"
            ).savefig(files[-1], dpi=150)
        plt.close("all")
    print("\n".join(f"figure: {file.resolve()}" for file in files))


if __name__ == "__main__":
    main()
