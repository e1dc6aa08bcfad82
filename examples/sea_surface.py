"""Forecast a year of sea-surface temperatures from the year before, with two kinds of error.

The monthly El Nino temperatures of 1950 to 2010 come with statsmodels. A small leaky-ReLU network
learns one year's curve from the previous year's; it sees no year after 1995. Its forecasts of 1996
to 2010 are off for two reasons:

- the input error: each month of the measured input is known to +-beta only. It goes through the
  network by linearization ("tangent"), by linearization corrected with a thousand runs of the
  network, and by Monte Carlo;
- the network's own error, as large as cross-validation finds it on the training years.

The script prints and draws the distributions of the forecast of 2010, and counts how many of the
observed months of all held-out years lie in the 90% bands.

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

import nn_uq_dist as nuq

MONTHS = list(calendar.month_abbr[1:])  # "Jan" to "Dec"
FIRST_TEST_YEAR = 1996
NUM_FOLDS = 5  # of the cross-validation on the training years
# The lowest error of that cross-validation. Little data, little skill: weaker regularization fits
# the training years and forecasts worse than their average.
HIDDEN, INPUT_NOISE, WEIGHT_PENALTY, STEPS = 32, 0.6, 0.003, 1000
NUM_PAIRS = 1000  # runs of the network that correct its linearization
ENDS = (0.05, 0.95)  # of the 90% bands
TAILS = (0.005, 0.995)  # ends of the densities in the figure
BLUE, SKY, VERMILION, GRAY = "#0072B2", "#BCE0F5", "#D55E00", "#8C8C8C"

Parameters = list[tuple[Array, Array]]
Network = Callable[[Array], Array]


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


def loss(parameters: Parameters, inputs: Array, targets: Array, key: Array) -> Array:
    """Return the squared error, with noise on the inputs and a penalty against overfitting."""
    noisy = inputs + INPUT_NOISE * jax.random.normal(key, inputs.shape)
    outputs = jax.vmap(network, in_axes=(None, 0))(parameters, noisy)
    penalty = sum(jnp.sum(weights**2) for weights, _ in parameters)
    return jnp.mean((outputs - targets) ** 2) + WEIGHT_PENALTY * penalty


@jax.jit
def minimize(parameters: Parameters, inputs: Array, targets: Array, keys: Array) -> Parameters:
    """Take a step of Adam for each key."""
    optimizer = optax.adam(optax.cosine_decay_schedule(3e-3, len(keys)))

    def step(state: Any, key: Array) -> tuple[Any, None]:
        parameters, moments = state
        gradient = jax.grad(loss)(parameters, inputs, targets, key)
        updates, moments = optimizer.update(gradient, moments)
        return (optax.apply_updates(parameters, updates), moments), None

    return jax.lax.scan(step, (parameters, optimizer.init(parameters)), keys)[0][0]


def train(key: Array, inputs: np.ndarray, targets: np.ndarray) -> Network:
    """Fit a network to pairs of successive curves, shape (years, 12) each, in degrees C."""
    curves = np.concatenate([inputs[:1], targets])
    mean, sd = jnp.asarray(curves.mean(axis=0)), jnp.asarray(curves.std(axis=0))
    key, *layer_keys = jax.random.split(key, 3)
    initial = [
        (jax.random.normal(k, (rows, columns)) * jnp.sqrt(2 / columns), jnp.zeros(rows))
        for k, (rows, columns) in zip(layer_keys, [(HIDDEN, 12), (12, HIDDEN)], strict=True)
    ]
    keys = jax.random.split(key, STEPS)
    parameters = minimize(initial, (inputs - mean) / sd, (targets - mean) / sd, keys)
    return lambda x: mean + sd * network(parameters, (x - mean) / sd)


def fit_forecast(key: Array, years: np.ndarray, curves: np.ndarray) -> Network:
    """Train up to the test period, report the errors there, return a map in degrees C."""
    inputs, targets = curves[:-1], curves[1:]
    is_test = years[1:] >= FIRST_TEST_YEAR
    forecast = train(key, inputs[~is_test], targets[~is_test])
    candidates = {
        "network": np.asarray(jax.vmap(forecast)(inputs[is_test])),
        "persistence (the previous year again)": inputs[is_test],
        "climatology (mean of the training years)": curves[years < FIRST_TEST_YEAR].mean(axis=0),
    }
    print(f"Root-mean-square errors of the forecasts of {FIRST_TEST_YEAR} to {years[-1]}, °C. "
          "The network has to beat the others:")  # fmt: skip
    print(f"  {'':42}{'Jan-Mar':>8}{'Apr-Dec':>8}{'year':>8}")
    for name, values in candidates.items():
        squared = (values - targets[is_test]) ** 2
        errors = [np.sqrt(np.mean(part)) for part in (squared[:, :3], squared[:, 3:], squared)]
        print(f"  {name:42}" + "".join(f"{error:8.2f}" for error in errors))
    return forecast


def input_distribution(curves: np.ndarray, beta: float) -> dist.Distribution:
    """Return measured curves, each month known to +-beta; any distribution may stand here."""
    return dist.Uniform(curves - beta, curves + beta).to_event(1)


def own_error(key: Array, years: np.ndarray, curves: np.ndarray, beta: float) -> np.ndarray:
    """Return the standard deviation of the network's own error in each month, shape (12,).

    Five networks are trained, each without nine successive training years, and forecast those nine.
    The inputs of these forecasts have measurement errors, too. So the mean square of the residuals
    holds the variance that the input error causes, and this is subtracted. (It is a little too
    small all the same: the constants of the training were chosen by these residuals.)

    The errors of neighboring months are correlated. Single months do not need that; a
    joint distribution of the months would need the covariance of the residuals.
    """
    known = curves[years < FIRST_TEST_YEAR]
    inputs, targets = known[:-1], known[1:]
    squares = []
    for fold in np.array_split(np.arange(len(inputs)), NUM_FOLDS):
        others = np.delete(np.arange(len(inputs)), fold)
        net = train(key, inputs[others], targets[others])
        lin = nuq.linearize(net, input_distribution(inputs[fold], beta))
        squares.append((targets[fold] - lin.mean) ** 2 - lin.variance)
    return np.sqrt(np.maximum(np.concatenate(squares).mean(axis=0), 0))


def quantiles(distribution: dist.Distribution, levels: tuple[float, float] = ENDS) -> np.ndarray:
    """Return two quantiles of each distribution, shape (2,) and the batch shape."""
    return np.asarray(
        distribution.icdf(jnp.array(levels).reshape(2, *[1] * len(distribution.batch_shape)))
    )


def distances(distribution: dist.Distribution, draws: np.ndarray) -> np.ndarray:
    """Return the Kolmogorov-Smirnov distance of each distribution to 1000 of its draws."""
    ordered, levels = np.sort(draws, axis=0), (np.arange(1000) + 0.5) / 1000
    found = distribution.cdf(ordered[(levels * len(draws)).astype(int)])
    return np.abs(np.asarray(found) - levels[:, None]).max(axis=0)


def print_methods(distributions: dict[str, dist.Distribution], draws: np.ndarray) -> None:
    """Print what the distributions of the months say, beside Monte Carlo draws."""
    bands = {name: quantiles(distribution) for name, distribution in distributions.items()}
    bands["MC"] = np.quantile(draws, ENDS, axis=0)
    far = {name: distances(distribution, draws) for name, distribution in distributions.items()}
    columns = {
        ("sd", name): np.sqrt(distribution.variance) for name, distribution in distributions.items()
    }
    columns["sd", "MC"] = draws.std(axis=0)
    for end, level in enumerate(ENDS):
        columns |= {(f"{level:.0%}", name): band[end] for name, band in bands.items()}
    columns |= {("KS", name): distance for name, distance in far.items()}
    print(pd.DataFrame(columns, index=MONTHS).to_string(float_format="{:.3f}".format))
    print("MC: Monte Carlo. KS: largest difference of the distribution functions of both,")
    print(f"by chance alone about {0.87 / np.sqrt(len(draws)):.3f}:")
    for name, distance in far.items():
        print(f"  {name:10}{distance.mean():.3f} on average, {distance.max():.3f} at worst")


def share_inside(observed: np.ndarray, band: np.ndarray) -> tuple[float, float]:
    """Return the share of all months that lie in a band, and its standard error.

    The months of a year are correlated, so it is the standard error of a mean over the years.
    """
    shares = ((band[0] <= observed) & (observed <= band[1])).mean(axis=1)
    return shares.mean(), shares.std(ddof=1) / np.sqrt(len(shares))


def draw_years(
    last: Any, every: Any, years: np.ndarray, observed: np.ndarray, mean: np.ndarray,
    bands: dict[str, np.ndarray],
) -> None:  # fmt: skip
    """Draw the forecast of the last year, and the errors of every year, both with bands."""
    month, errors = np.arange(12), observed - mean
    for axis, center in ((last, 0), (every, mean[-1])):
        for (name, band), color in zip(bands.items(), (SKY, BLUE), strict=True):
            ends = band[:, -1] - center
            axis.fill_between(month, *ends, color=color, lw=0, label=f"90%, {name}")
        axis.set_xticks(month, [name[0] for name in MONTHS])
    last.plot(month, observed[-1], "o", color=VERMILION, ms=5, label="observed")
    last.set_title(f"Forecast of {years[-1]} from the curve of {years[-1] - 1}")
    last.set_ylabel("sea-surface temperature (°C)")
    last.legend(frameon=False)
    other = every.plot(month, errors[:-1].T, color=GRAY, lw=0.8)
    (line,) = every.plot(month, errors[-1], "o-", color=VERMILION, ms=5, lw=1)
    every.legend([line, other[0]], [f"{years[-1]}", "other years"], frameon=False, loc="upper left")
    worst, k = np.unravel_index(np.abs(errors).argmax(), errors.shape)
    every.annotate(f"{years[worst]}", (k, errors[worst, k]), ha="right", va="bottom")
    share, error = share_inside(observed, bands["both errors"])
    every.set_title(f"{years[0]} to {years[-1]}: {share:.0%} ± {error:.0%} inside the 90% band")
    every.set_ylabel("observed less forecast (°C)")


def draw_distributions(
    axis: Any, distributions: dict[str, dist.Distribution], draws: np.ndarray, mean: np.ndarray
) -> None:
    """Draw the months: Monte Carlo left, tangent right, corrected as outline."""
    grids = {
        name: np.linspace(*quantiles(distribution, TAILS), 201)
        for name, distribution in distributions.items()
    }
    densities = {
        name: np.exp(distribution.log_prob(grids[name]))
        for name, distribution in distributions.items()
    }
    ends = np.quantile(draws, TAILS, axis=0)
    for j in range(12):
        scale = 0.4 / max(density[:, j].max() for density in densities.values())
        right, outline = (
            (j + scale * densities[name][:, j], grids[name][:, j] - mean[j])
            for name in distributions
        )
        counts, edges = np.histogram(draws[:, j], 40, ends[:, j], density=True)
        axis.stairs(j - scale * counts, edges - mean[j], baseline=j, orientation="horizontal",
                    fill=True, color=GRAY, label=f"Monte Carlo, {len(draws):,} draws")  # fmt: skip
        axis.fill_betweenx(right[1], j, right[0], color=BLUE, lw=0, label="tangent")
        for side in (outline[0], 2 * j - outline[0]):
            axis.plot(side, outline[1], "k", lw=1, label=f"tangent corrected by {NUM_PAIRS:,} runs")
    axis.set_xticks(range(12), MONTHS)
    axis.set(title="Input error alone: distribution of each month, central 99%",
             ylabel="deviation from forecast (°C)")  # fmt: skip
    axis.set_ylim(top=1.25 * axis.get_ylim()[1])  # room for the legend
    entries = dict(zip(*reversed(axis.get_legend_handles_labels()), strict=True))
    axis.legend(entries.values(), entries, loc="upper center", ncols=3, frameon=False)


def parse_arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    """Read and check the command line."""
    parser = argparse.ArgumentParser(description="A network's forecast as distributions.")
    parser.add_argument(
        "--beta", type=float, default=0.3, help="half-width of the input error in degrees C"
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
    """Train, push the uncertain inputs through the network, print tables, draw the figure."""
    arguments = parse_arguments(argv)
    beta, progress = arguments.beta, not arguments.no_progress
    training_key, draw_key, noise_key, pair_key = jax.random.split(
        jax.random.key(arguments.seed), 4
    )
    years, curves = load_curves()
    with timed("training and test"):
        net = fit_forecast(training_key, years, curves)
    with timed("cross-validation"):
        own_sd = own_error(training_key, years, curves, beta)

    is_test = years[1:] >= FIRST_TEST_YEAR
    inputs, observed, years = curves[:-1][is_test], curves[1:][is_test], years[1:][is_test]
    with timed("bands of all held-out years"):
        lin = nuq.linearize(net, input_distribution(inputs, beta))  # batch shape (15,)
        mean = np.asarray(lin.mean)
        bands = {
            "both errors": quantiles(lin.marginals(noise_scale=own_sd)),
            "input error alone": quantiles(lin.marginals()),
        }
    f = input_distribution(inputs[-1], beta)
    with timed(f"correction of the last year by {NUM_PAIRS:,} runs"):
        last = nuq.linearize(net, f)
        pairs = nuq.paired_draws(net, last, pair_key, NUM_PAIRS, progress=progress)
        distributions = {
            "tangent": last.marginals(),
            "corrected": last.corrected(pairs).marginals(),
        }
    with timed(f"Monte Carlo of the last year, {arguments.num_draws:,} draws"):
        draws = nuq.monte_carlo(net, f, draw_key, arguments.num_draws, progress=progress)
        noise = own_sd * np.asarray(jax.random.normal(noise_key, draws.shape))

    print(
        f"\nForecast of {years[-1]} in °C. The year before is known to ±{beta:g}, which causes the"
    )
    print("input sd; own sd: the network's own error. The quantiles hold both errors:")
    columns = {
        "observed": observed[-1], "forecast": mean[-1],
        "input sd": np.sqrt(last.variance), "own sd": own_sd,
    }  # fmt: skip
    columns |= dict(zip(("5%", "95%"), bands["both errors"][:, -1], strict=True))
    columns |= dict(zip(("5% MC", "95% MC"), np.quantile(draws + noise, ENDS, axis=0), strict=True))
    print(pd.DataFrame(columns, index=MONTHS).to_string(float_format="{:.2f}".format))
    print("\nThe input error alone, in °C, by three methods:")
    print_methods(distributions, draws)
    print("\nObserved months of all held-out years inside the 90% bands of the tangent (± standard")
    print("error over the years):")
    for name, band in bands.items():
        share, error = share_inside(observed, band)
        print(f"  {name:20}{share:.0%} ± {error:.0%}")

    file = arguments.out / "forecast.png"
    with timed("\nfigure"):
        figure, axes = plt.subplot_mosaic(
            [["last", "every"], ["distributions", "distributions"]],
            figsize=(9, 7),
            layout="constrained",
        )
        draw_years(axes["last"], axes["every"], years, observed, mean, bands)
        draw_distributions(axes["distributions"], distributions, draws, mean[-1])
        for axis in axes.values():
            axis.spines[["top", "right"]].set_visible(False)
        arguments.out.mkdir(parents=True, exist_ok=True)
        figure.savefig(file, dpi=200)
        plt.close(figure)
    print(f"figure: {file.resolve()}")


if __name__ == "__main__":
    main()
