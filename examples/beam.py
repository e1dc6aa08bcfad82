"""Deflection of a beam whose loads, material and width are known only up to an error.

A network with random weights in its hidden layer is fitted to 4000 simulations of a cantilever beam
of 2 m: two loads (kN), Young's modulus (GPa) and the width (mm) give the largest stress (MPa) and
the deflection (mm). The loads of a real beam vary, and its modulus and width are within tolerances.
Their errors go through the network

- by linearization ("tangent"), and by linearization corrected with a thousand runs of the network;
- by `nuq.failure_probability`, for a deflection beyond a limit that few draws reach.

Both are compared with 300,000 beams that are simulated, and 2000 held-out beams, each with nominal
inputs of its own, are counted that lie in their 90% intervals.

Run `python examples/beam.py --help` for the arguments.
"""

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
from jax import Array

import nn_uq_dist as nuq

CENTER, REACH = (1.0, 3.0, 200.0, 60.0), (1.0, 2.0, 40.0, 2.0)  # of the simulations
SCALE, HALF_WIDTH = (0.15, 0.3, 0.0, 0.0), (0.0, 0.0, 15.0, 1.0)  # loads; modulus, width
NUM_SIMULATIONS, NUM_HIDDEN, NUM_PAIRS = 4000, 200, 1000
NUM_HELD_OUT, NUM_PAIRS_EACH = 2000, 200
OUTPUTS, LIMIT = ("stress (MPa)", "deflection (mm)"), 13.0
ENDS = (0.05, 0.95)  # of the 90% intervals

Network = Callable[[Array], Array]


def simulate(x: Array) -> Array:
    """Return stress and deflection, shape (..., 2), of beams with inputs (..., 4)."""
    side, load, modulus, width = jnp.moveaxis(x, -1, 0)
    stress = 1.2e7 * (load / (width * 1e4) + side / (width**2 * 100))
    deflection = 3.2e8 * jnp.hypot(load / 1e4, side / width**2) / (modulus * width)
    return jnp.stack([stress, deflection], axis=-1)


def fit(key: Array) -> Network:
    """Fit the last layer of a network to simulations, by least squares."""
    key_weights, key_runs = jax.random.split(key)
    center, reach = jnp.array(CENTER), jnp.array(REACH)
    weights = jax.random.normal(key_weights, (4, NUM_HIDDEN)) / 2

    def hidden(x: Array) -> Array:
        return jnp.tanh((x - center) / reach @ weights + jnp.linspace(-2, 2, NUM_HIDDEN))

    x = center + reach * jax.random.uniform(key_runs, (NUM_SIMULATIONS, 4), minval=-1)
    features, targets = np.asarray(hidden(x), float), np.asarray(simulate(x), float)
    gram = features.T @ features + 1e-4 * np.eye(NUM_HIDDEN)
    output = jnp.asarray(np.linalg.solve(gram, features.T @ targets), jnp.float32)
    return lambda x: hidden(x) @ output


def input_distribution(loc: Array) -> nuq.Input:
    """Return the distribution of the inputs around nominal ones, shape (..., 4)."""
    return nuq.Input.box(loc, jnp.array(HALF_WIDTH)) + nuq.Input.normal(0 * loc, jnp.array(SCALE))


def coverage(network: Network, key: Array) -> dict[str, np.ndarray]:
    """Return the shares of held-out beams in 90% intervals, of each output.

    Nominal inputs are so far inside of the simulations that no beam leaves them.
    """
    keys = jax.random.split(key, 3)
    spread = jnp.array(REACH) * jnp.array([0.3, 0.3, 0.5, 0.4])
    nominal = jax.random.uniform(keys[0], (NUM_HELD_OUT, 4), minval=-1)
    distributions = input_distribution(jnp.array(CENTER) + spread * nominal)
    truth = simulate(distributions.sample(keys[1]))
    linear = nuq.linearize(network, distributions)  # batch_shape (2000,)
    pairs = nuq.paired_draws(network, linear, keys[2], NUM_PAIRS_EACH, progress=False)
    shares = {}
    for name, model in (("tangent", linear), ("corrected", linear.corrected(pairs))):
        low, high = (model.marginals().icdf(end) for end in ENDS)
        shares[name] = np.asarray((low < truth) & (truth < high)).mean(axis=0)
    return shares


def draw(models: dict[str, nuq.linearization.LinearModel], truth: np.ndarray, file: Path) -> None:
    """Draw the probability beyond each deflection, the simulated beams and the limit."""
    figure, axes = plt.subplots(1, 2, figsize=(7.5, 3.4), sharex=True, layout="constrained")
    for axis, model in zip(axes, models.values(), strict=True):
        nuq.plots.plot_tails(model, truth, outputs=[1], output_names=OUTPUTS, limits=LIMIT, ax=axis)
    figure.savefig(file, dpi=200)
    plt.close(figure)


def parse_arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    """Read and check the command line."""
    parser = argparse.ArgumentParser(description="A beam's deflection as a distribution.")
    parser.add_argument("--rare", type=float, default=16.0, help="rare deflection in mm")
    parser.add_argument("--num-beams", type=int, default=300_000, help="that are simulated")
    parser.add_argument("--seed", type=int, default=0, help="of the network and of all draws")
    parser.add_argument("--out", type=Path, default=Path("beam_output"), help="folder")
    parser.add_argument("--no-progress", action="store_true", help="show no progress bars")
    arguments = parser.parse_args(argv)
    if not 0 < arguments.rare < float("inf"):
        parser.error(f"--rare must be positive, got {arguments.rare}")
    if arguments.num_beams < 1000:
        parser.error(f"--num-beams must be at least 1000, got {arguments.num_beams}")
    return arguments


def main(argv: Sequence[str] | None = None) -> None:
    """Fit, push the uncertain inputs through the network, print what comes out, draw it."""
    arguments = parse_arguments(argv)
    progress = not arguments.no_progress
    keys = jax.random.split(jax.random.key(arguments.seed), 5)
    network = fit(keys[0])
    f = input_distribution(jnp.array(CENTER))
    linear = nuq.linearize(network, f)
    pairs = nuq.paired_draws(network, linear, keys[1], NUM_PAIRS, progress=progress)
    models = {"tangent": linear, "corrected": linear.corrected(pairs)}

    beams = f.sample(keys[2], (arguments.num_beams,))
    truth = np.asarray(simulate(beams))
    own = np.mean((truth - network(beams)) ** 2, axis=0)
    variance = truth.var(axis=0)
    print(
        "Share of the input error in the forecast's variance (the rest: the network's own error):"
    )
    for name, share in zip(OUTPUTS, variance / (variance + own), strict=True):
        print(f"  {name:18}{share:.2%}")

    levels = (np.arange(1000) + 0.5) / 1000
    at = np.quantile(truth, levels, axis=0)
    above = (truth[:, 1] > LIMIT).mean()
    print(f"\nKolmogorov-Smirnov distance to these beams, and P(deflection > {LIMIT:g} mm):")
    for name, model in models.items():
        outputs = model.marginals()  # NumPyro distributions, batch_shape (2,)
        distance = np.abs(np.asarray(outputs.cdf(at)) - levels[:, None]).max(axis=0)
        probability = float(jnp.exp(outputs.log_sf(LIMIT))[1])
        print(f"  {name:12}{distance[0]:.3f} {distance[1]:.3f}   {probability:.4f}")
    print(f"  {'simulated':24}{above:.4f}")

    rare = nuq.failure_probability(
        network, f, keys[3], arguments.rare, output=1, num_runs=20_000, progress=progress
    )
    tangent = float(jnp.exp(linear.marginals().log_sf(arguments.rare))[1])
    print(f"\nP(deflection > {arguments.rare:g} mm): {rare.probability:.2e} ± ", end="")
    print(f"{rare.standard_error:.0e} with {rare.num_runs:,} runs, tangent {tangent:.1e}")

    error = np.sqrt(0.9 * 0.1 / NUM_HELD_OUT)
    print(f"\n{NUM_HELD_OUT} held-out beams inside of 90% intervals, ± {error:.1%} by chance:")
    for name, shares in coverage(network, keys[4]).items():
        print(f"  {name:12}stress {shares[0]:.1%}, deflection {shares[1]:.1%}")

    arguments.out.mkdir(parents=True, exist_ok=True)
    file = arguments.out / "deflection.png"
    draw(models, truth, file)
    print(f"\nfigure: {file.resolve()}")


if __name__ == "__main__":
    main()
