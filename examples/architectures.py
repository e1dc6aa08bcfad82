"""Linearize three networks other than plain perceptrons, and see how far that can be trusted.

A DeepONet learns how light fades along a path, a Fourier neural operator one time step of the
viscous Burgers equation, and a convolutional Flax NNX network reads handwritten digits. Each gets
an input that is uncertain within a box, from narrow to wide; boxes around gray values are not cut
off at white and black. Its outputs by linearization are compared with Monte Carlo; for the digits,
so is the probability that the predicted class changes.

Run `python examples/architectures.py --help` for the arguments.
"""

import argparse
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import optax
from flax import nnx
from jax import Array
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from tqdm import tqdm

import nn_uq_dist as nuq

# Half-widths of the box. Unit: the standard deviation of the clean inputs of the operators, the
# range from white to black of the digits.
HALF_WIDTHS = np.array([0.01, 0.05, 0.1, 0.2, 0.4])
SHOWN = 2  # the one whose densities are drawn
SMALL_DISTANCE = 0.02  # the verdict of `summary` calls larger ones moderate
STEPS = {"DeepONet": 2000, "Fourier neural operator": 1000, "digits": 300}
SENSORS = np.arange(32) / 31  # of the DeepONet
QUERIES = np.arange(1, 9) / 8
GRID_POINTS, MODES, WIDTH = 32, 8, 12  # of the Fourier neural operator
VISCOSITY, TIME = 0.2, 1.0
# Ranks, as fractions, of the test images that the network reads right, by the margin of the highest
# logit over the second: from doubtful to typical.
MARGIN_RANKS = (0.003, 0.01, 0.03, 0.5)
BLUE, VERMILION, GREEN, GRAY = "#0072B2", "#D55E00", "#009E73", "#8C8C8C"

Network = Callable[[Array], Array]
Layers = list[tuple[Array, Array]]


@contextmanager
def timed(step: str) -> Iterator[None]:
    """Print how long a step took."""
    start = time.perf_counter()
    yield
    print(f"{step}: {time.perf_counter() - start:.1f} s")


def train(
    loss: Callable[[Any, Array], Array], parameters: Any, key: Array, name: str, *, progress: bool
) -> Any:
    """Minimize ``loss(parameters, key)``, which draws its own batch, by Adam."""
    optimizer = optax.adam(optax.cosine_decay_schedule(3e-3, STEPS[name]))

    @jax.jit
    def some_steps(state: Any, keys: Array) -> tuple[Any, Array]:
        def step(state: Any, key: Array) -> tuple[Any, Array]:
            parameters, optimizer_state = state
            value, gradient = jax.value_and_grad(loss)(parameters, key)
            updates, optimizer_state = optimizer.update(gradient, optimizer_state)
            return (optax.apply_updates(parameters, updates), optimizer_state), value

        return jax.lax.scan(step, state, keys)

    state = (parameters, optimizer.init(parameters))
    with tqdm(total=STEPS[name], desc=name, disable=not progress, leave=False) as bar:
        for keys in jax.random.split(key, (20, STEPS[name] // 20)):
            state, losses = some_steps(state, keys)
            bar.update(losses.size)
            bar.set_postfix(loss=f"{losses[-1]:.1e}")
    return state[0]


def dense_layers(key: Array, *sizes: int) -> Layers:
    """Draw weights and biases of a perceptron."""
    shapes = list(zip(sizes[1:], sizes[:-1], strict=True))
    return [
        (jax.random.normal(k, shape) / jnp.sqrt(shape[1]), jnp.zeros(shape[0]))
        for k, shape in zip(jax.random.split(key, len(shapes)), shapes, strict=True)
    ]


def perceptron(layers: Layers, x: Array) -> Array:
    """Evaluate a perceptron, GELU between its layers."""
    for weights, bias in layers[:-1]:
        x = jax.nn.gelu(weights @ x + bias)
    weights, bias = layers[-1]
    return weights @ x + bias


def rough(key: Array, shape: tuple[int, ...]) -> Array:
    """Draw boxes of noise, from none to half-width 0.5.

    Trained on smooth inputs alone, the operators would do anything with the rough ones of the box.
    """
    key_noise, key_width = jax.random.split(key)
    widths = jax.random.uniform(key_width, (shape[0], 1), maxval=0.5)
    return widths * jax.random.uniform(key_noise, shape, minval=-1, maxval=1)


def deeponet(parameters: dict[str, Layers], u: Array, points: Array) -> Array:
    """Evaluate the DeepONet at `points` from the values `u` at the sensors."""
    features = jax.vmap(lambda point: perceptron(parameters["trunk"], point[None]))(points)
    return features @ perceptron(parameters["branch"], u - 2)


def draw_attenuation(key: Array) -> tuple[Array, Array]:
    """Draw an attenuation coefficient: its mean 2 and the amplitudes of four sines."""
    return jnp.asarray(2.0), jax.random.normal(key, (4,)) / jnp.arange(1, 5)


def attenuation(coefficient: tuple[Array, Array], s: np.ndarray | Array) -> Array:
    """Evaluate the attenuation coefficient at the places `s`."""
    mean, amplitudes = coefficient
    return mean + jnp.sin(jnp.pi * s[:, None] * jnp.arange(1, 5)) @ amplitudes


def transmitted(coefficient: tuple[Array, Array], s: np.ndarray | Array) -> Array:
    """Share of the light left at the places `s`: exp(-integral of the attenuation up to there)."""
    mean, amplitudes = coefficient
    frequencies = jnp.pi * jnp.arange(1, 5)
    integrals = (1 - jnp.cos(s[:, None] * frequencies)) / frequencies
    return jnp.exp(-mean * s - integrals @ amplitudes)


def fit_deeponet(key: Array, *, progress: bool) -> tuple[Network, Array, Array]:
    """Train the DeepONet; return it, a mean input and the scale of the inputs."""
    keys = dict(zip(("branch", "trunk", "train", "test"), jax.random.split(key, 4), strict=True))
    parameters = {
        "branch": dense_layers(keys["branch"], SENSORS.size, 64, 64, 32),
        "trunk": dense_layers(keys["trunk"], 1, 64, 64, 32),
    }

    def loss(parameters: dict[str, Layers], key: Array) -> Array:
        key_u, key_noise, key_points = jax.random.split(key, 3)
        points = jax.random.uniform(key_points, (16,))
        coefficients = jax.vmap(draw_attenuation)(jax.random.split(key_u, 128))
        u = jax.vmap(attenuation, in_axes=(0, None))(coefficients, SENSORS)
        u += rough(key_noise, u.shape)
        outputs = jax.vmap(deeponet, in_axes=(None, 0, None))(parameters, u, points)
        targets = jax.vmap(transmitted, in_axes=(0, None))(coefficients, points)
        return jnp.mean((outputs - targets) ** 2)

    parameters = train(loss, parameters, keys["train"], "DeepONet", progress=progress)

    def net(u: Array) -> Array:
        return deeponet(parameters, u, jnp.asarray(QUERIES))

    fresh = jax.vmap(draw_attenuation)(jax.random.split(keys["test"], 1000))
    inputs = jax.vmap(attenuation, in_axes=(0, None))(fresh, SENSORS)
    print_error(net, inputs, jax.vmap(transmitted, in_axes=(0, None))(fresh, QUERIES))
    return net, inputs[0], jnp.std(inputs, axis=0).mean()


def spectral_convolution(weights: Array, v: Array) -> Array:
    """Multiply the lowest Fourier modes of `v`, (points, width), each by its complex matrix."""
    coefficients = jnp.fft.rfft(v, axis=0)[:MODES]
    product = jnp.einsum("kij,kj->ki", weights[0] + 1j * weights[1], coefficients)
    return jnp.fft.irfft(product, n=v.shape[0], axis=0)  # fills the higher modes with zeros


def fourier_operator(parameters: dict[str, Any], u: Array) -> Array:
    """Evaluate the Fourier neural operator on the values `u` at equidistant points."""
    v = jax.vmap(lambda value: perceptron(parameters["lift"], value[None]))(u)
    for spectral, (weights, bias) in parameters["blocks"]:
        v = jax.nn.gelu(spectral_convolution(spectral, v) + v @ weights.T + bias)
    return jax.vmap(lambda features: perceptron(parameters["project"], features))(v)[:, 0]


def burgers(u: Array) -> Array:
    """Solve the viscous Burgers equation from `u` at time 0, one period 2 pi, by Cole and Hopf.

    With ``u = -2 nu d/dx log(phi)``, ``phi`` obeys the heat equation, which is diagonal in Fourier
    modes. A mean velocity moves the solution along.
    """
    frequency = jnp.arange(u.size // 2 + 1)
    mean = jnp.mean(u)
    coefficients = jnp.fft.rfft(u - mean) * (frequency < u.size // 2)
    potential = jnp.fft.irfft(coefficients / (1j * jnp.maximum(frequency, 1)))
    heat = jnp.fft.rfft(jnp.exp(-potential / (2 * VISCOSITY)))
    heat *= jnp.exp((-VISCOSITY * frequency**2 - 1j * frequency * mean) * TIME)
    return mean - 2 * VISCOSITY * jnp.fft.irfft(1j * frequency * heat) / jnp.fft.irfft(heat)


def draw_velocity(key: Array) -> Array:
    """Draw a smooth periodic initial velocity at the grid points."""
    x = 2 * jnp.pi * jnp.arange(GRID_POINTS) / GRID_POINTS
    phases = x[:, None] * jnp.arange(1, 4)
    sines, cosines = 0.5 * jax.random.normal(key, (2, 3)) / jnp.arange(1, 4)
    return jnp.sin(phases) @ sines + jnp.cos(phases) @ cosines


def fit_fourier_operator(key: Array, *, progress: bool) -> tuple[Network, Array, Array]:
    """Train the Fourier neural operator; return it, a mean input and the scale of the inputs."""
    key_lift, key_blocks, key_project, key_train, key_test = jax.random.split(key, 5)
    shape = (2, MODES, WIDTH, WIDTH)
    parameters = {
        "lift": dense_layers(key_lift, 1, WIDTH),
        "blocks": [
            (jax.random.normal(k, shape) / WIDTH, dense_layers(k, WIDTH, WIDTH)[0])
            for k in jax.random.split(key_blocks, 3)
        ],
        "project": dense_layers(key_project, WIDTH, 32, 1),
    }

    def loss(parameters: dict[str, Any], key: Array) -> Array:
        key_u, key_noise = jax.random.split(key)
        u = jax.vmap(draw_velocity)(jax.random.split(key_u, 32))
        u += rough(key_noise, u.shape)
        outputs = jax.vmap(fourier_operator, in_axes=(None, 0))(parameters, u)
        return jnp.mean((outputs - jax.vmap(burgers)(u)) ** 2)

    name = "Fourier neural operator"
    parameters = train(loss, parameters, key_train, name, progress=progress)

    def net(u: Array) -> Array:
        return fourier_operator(parameters, u)[::4]  # eight points suffice for the table

    inputs = jax.vmap(draw_velocity)(jax.random.split(key_test, 1000))
    print_error(net, inputs, jax.vmap(burgers)(inputs)[:, ::4])
    return net, inputs[0], jnp.std(inputs, axis=0).mean()


def print_error(net: Network, inputs: Array, targets: Array) -> None:
    """Print the relative L2 error on fresh inputs."""
    error = jnp.linalg.norm(jax.vmap(net)(inputs) - targets) / jnp.linalg.norm(targets)
    print(f"relative L2 error on {len(inputs)} fresh smooth inputs: {error:.4f}")


class DigitNetwork(nnx.Module):
    """Two convolutions and a linear layer: 64 gray values in [0, 1] to 10 logits."""

    def __init__(self, rngs: nnx.Rngs) -> None:
        self.first = nnx.Conv(1, 8, (3, 3), rngs=rngs)
        self.second = nnx.Conv(8, 16, (3, 3), strides=2, rngs=rngs)
        self.last = nnx.Linear(4 * 4 * 16, 10, rngs=rngs)

    def __call__(self, pixels: Array) -> Array:
        """Evaluate one image, (64,) to (10,)."""
        image = jax.nn.leaky_relu(self.first(pixels.reshape(8, 8, 1)))
        return self.last(jax.nn.leaky_relu(self.second(image)).reshape(-1))


def fit_digits(key: Array, *, progress: bool) -> tuple[Network, np.ndarray, np.ndarray]:
    """Train the digit network; return it, the test images, shape (450, 64), and their labels."""
    pixels, labels = load_digits(return_X_y=True)
    images = (pixels / 16).astype(np.float32)
    known, test, known_labels, test_labels = train_test_split(
        images, labels, test_size=450, random_state=0, stratify=labels
    )
    key_network, key_train = jax.random.split(key)
    definition, parameters = nnx.split(DigitNetwork(nnx.Rngs(key_network)))
    known, known_labels = jnp.asarray(known), jnp.asarray(known_labels)

    def loss(parameters: Any, key: Array) -> Array:
        chosen = jax.random.randint(key, (128,), 0, len(known))
        logits = jax.vmap(nnx.merge(definition, parameters))(known[chosen])
        return optax.softmax_cross_entropy_with_integer_labels(logits, known_labels[chosen]).mean()

    net = nnx.merge(definition, train(loss, parameters, key_train, "digits", progress=progress))
    right = np.asarray(jax.vmap(net)(test).argmax(axis=1)) == test_labels
    print(f"test accuracy: {right.mean():.1%} of {len(test)} images")
    return net, test, test_labels


class Propagated(NamedTuple):
    """Uncertain inputs at every half-width: the linear models and the draws of the network."""

    linear: nuq.Linearization  # batch shape (means, half-widths)
    draws: np.ndarray  # (draws, means, half-widths, outputs)

    def at(self, *index: int) -> "Propagated":
        """Take one mean, or one mean and one half-width."""
        return Propagated(self.linear[index], self.draws[:, *index])


def propagate(
    net: Network, means: Array, widths: Array, key: Array, num_draws: int, *, progress: bool
) -> Propagated:
    """Push the boxes of all `widths` about all `means` through the network, both ways."""
    distribution = nuq.Input.box(means[:, None, :], widths[:, None])
    linear = jax.jit(lambda distribution: nuq.linearize(net, distribution))(distribution)
    return Propagated(linear, nuq.monte_carlo(net, distribution, key, num_draws, progress=progress))


def print_comparison(result: Propagated) -> None:
    """Print how far the linearized outputs are from the draws, half-width by half-width."""
    print("Largest error of the linearization over the outputs and, in brackets, what chance makes")
    print("of one output: the standard error of sd and mean, the mean of KS (the distance of the")
    print("distribution functions). Then how many outputs differ by more than chance, and the")
    print("verdict on the one with the largest KS.")
    print(f"  {'half-width':12}{'sd (%)':16}{'mean (sd)':18}{'KS':18}outputs")
    agrees = True
    for i, width in enumerate(HALF_WIDTHS):
        table = nuq.diagnostics.summary(*result.at(i), progress=False)
        scale = table["sd", "monte_carlo"]
        sd, mean = ((table[name].div(scale, axis=0)).abs().max() for name in ("sd", "mean"))
        distance = table["kolmogorov_smirnov"].max()
        beyond = (table["verdict", "dominates"] != "noise").sum()
        print(
            f"  {width:<12g}"
            f"{f'{100 * sd.error:.2f} ({100 * sd.standard_error:.2f})':16}"
            f"{f'{mean.error:.4f} ({mean.standard_error:.4f})':18}"
            f"{f'{distance.monte_carlo:.4f} ({distance.noise_floor:.4f})':18}"
            f"{beyond} of {len(table)}"
        )
        worst = table["kolmogorov_smirnov", "monte_carlo"].idxmax()
        print(f"      {table.loc[worst, ('verdict', 'words')]}")
        if agrees and distance.monte_carlo > SMALL_DISTANCE:
            agrees = False
            print(f"      (from here on KS exceeds {SMALL_DISTANCE:g}: the linearization shows)")


def change_bounds(linear: nuq.Linearization) -> tuple[np.ndarray, np.ndarray]:
    """Bound the probability that another logit of the linear model exceeds the predicted one.

    The difference of two linearized logits is linear too, so the probability that one class
    overtakes the predicted one is exact. The change of class is the union of these events: it is
    at least as probable as the most probable one, and at most their sum. No draws.
    """
    order = jnp.argsort(-linear.loc, axis=-1)  # the predicted class first
    logits = jnp.take_along_axis(linear.loc, order, axis=-1)
    slopes = jnp.take_along_axis(linear.jacobian, order[..., None], axis=-2)
    gaps = nuq.Linearization(
        logits[..., 1:] - logits[..., :1], slopes[..., 1:, :] - slopes[..., :1, :], linear.input
    )
    overtakes = np.exp(np.asarray(gaps.marginals().log_sf(0.0)))
    return overtakes.max(axis=-1), np.minimum(overtakes.sum(axis=-1), 1)


def change_probabilities(
    result: Propagated, widths: Array, key: Array, *, progress: bool
) -> dict[str, np.ndarray]:
    """Return the share of draws with another class than the mean input, by three methods."""
    linear, num_draws = result.linear, len(result.draws)
    predicted = linear.loc.argmax(axis=-1)
    key_linear, key_copula = jax.random.split(key)
    # In the linear model the deviations are proportional to the half-width, so the draws of a box
    # of half-width 1 serve all: the quantile functions of the copula are what takes time.
    mean, slopes = linear.input.mean[:, 0], linear.jacobian[:, 0]
    unit = nuq.Linearization(jnp.zeros(slopes.shape[:-1]), slopes, nuq.Input.box(mean, 1.0))
    group = min(num_draws, 10_000)  # bounds the memory

    @jax.jit
    def changed(deviations: Any, key: Array) -> Array:
        deviation = deviations.sample(key, (group,))[..., None, :] * widths[:, None]
        return ((linear.loc + deviation).argmax(axis=-1) != predicted).mean(axis=0)

    def share(deviations: Any, key: Array, name: str) -> np.ndarray:
        keys = jax.random.split(key, -(-num_draws // group))
        bar = tqdm(keys, desc=name, disable=not progress, leave=False)
        return np.mean([np.asarray(changed(deviations, key)) for key in bar], axis=0)

    return {
        "Monte Carlo": (result.draws.argmax(axis=-1) != np.asarray(predicted)).mean(axis=0),
        "copula": share(unit.gaussian_copula(), key_copula, "copula"),
        "linear draws": share(unit, key_linear, "linear draws"),
    }


def print_changes(
    chosen: Sequence[int],
    labels: np.ndarray,
    result: Propagated,
    changes: dict[str, np.ndarray],
) -> None:
    """Print the probabilities of another class, with the standard errors of sampling."""
    low, high = change_bounds(result.linear)
    print(
        "Probability that another class is predicted: Monte Carlo through the network, the copula"
    )
    print(
        "of the ten logits, draws of the linear model, and the bounds without draws for the last."
    )
    names = "".join(f"{name:20}" for name in changes)
    print(f"  {'half-width':12}{names}{'at least':12}at most")
    for i, image in enumerate(chosen):
        logits = np.asarray(result.linear.loc[i, 0])
        first, second = np.argsort(-logits)[:2]
        margin = logits[first] - logits[second]
        print(f"  image {image}, a {labels[image]}: {first}, then {second}, margin {margin:.2f}")
        for j, width in enumerate(HALF_WIDTHS):
            cells = ""
            for values in changes.values():
                error = np.sqrt(values[i, j] * (1 - values[i, j]) / len(result.draws))
                cells += f"{f'{values[i, j]:.5f} ({error:.5f})':20}"
            print(f"  {width:<12g}{cells}{low[i, j]:<12.3g}{high[i, j]:.3g}")


def draw_digit(
    image: np.ndarray, label: int, result: Propagated, changes: dict[str, np.ndarray]
) -> plt.Figure:
    """Draw an image, its highest logits, and how its class becomes uncertain."""
    figure, (left, middle, right) = plt.subplots(
        1, 3, figsize=(9.5, 3.5), width_ratios=(0.75, 1.2, 1.2), layout="constrained"
    )
    linear, draws = result.at(SHOWN)
    top = np.argsort(-np.asarray(linear.loc))[:3]
    left.imshow(image.reshape(8, 8), cmap="gray_r", vmin=0, vmax=1)
    left.set(xticks=[], yticks=[], title=f"A {label}, read as {top[0]}")

    marginals, sd = linear.marginals(), np.sqrt(np.asarray(linear.variance))
    low, high = (linear.loc - 4 * sd)[top].min(), (linear.loc + 4 * sd)[top].max()
    grid = np.linspace(low, high, 401, dtype=np.float32)
    # Under jit there is no warning for points beyond the support of an output.
    density = np.exp(
        np.asarray(
            jax.jit(lambda distribution, x: distribution.log_prob(x))(marginals, grid[:, None])
        )
    )
    edges = np.linspace(low, high, 81)
    for j, color in zip(top, (BLUE, VERMILION, GREEN), strict=True):
        counts = np.histogram(draws[:, j], edges)[0] / (len(draws) * np.diff(edges))
        middle.stairs(counts, edges, fill=True, color=color, alpha=0.3)
        middle.plot(grid, density[:, j], color=color)
        middle.annotate(f"{j}", (float(linear.loc[j]), density[:, j].max()), (0, 3), color=color,
                        textcoords="offset points", ha="center", weight="bold")  # fmt: skip
    middle.set(xlabel="logit (histograms: Monte Carlo)", ylabel="density",
               ylim=(0, 1.15 * density[:, top].max()),
               title=f"Three highest logits, half-width {HALF_WIDTHS[SHOWN]:g}")  # fmt: skip

    widths = np.geomspace(HALF_WIDTHS[0], HALF_WIDTHS[-1], 60)
    distribution = nuq.Input.box(
        jnp.broadcast_to(image, (60, 64)), widths.astype(np.float32)[:, None]
    )
    low, high = change_bounds(nuq.Linearization(
        jnp.broadcast_to(linear.loc, (60, 10)),
        jnp.broadcast_to(linear.jacobian, (60, 10, 64)), distribution,
    ))  # fmt: skip
    # The bounds coincide for narrow boxes; their edge is what shows there.
    right.fill_between(
        widths, low, high, fc="#BCE0F5", ec=BLUE, lw=0.8, label="bounds, linear model"
    )
    styles = (("o", GRAY, GRAY, 7), ("s", "none", VERMILION, 9), ("^", BLUE, BLUE, 4))
    for (name, values), (marker, face, color, size) in zip(changes.items(), styles, strict=True):
        right.plot(HALF_WIDTHS, values, marker, mfc=face, mec=color, ms=size, label=name,
                   clip_on=False)  # fmt: skip
    right.set(xscale="log", xlabel="half-width of the box (white to black: 1)", ylim=(0, None),
              ylabel="probability", title="Another class is predicted")  # fmt: skip
    right.set_xticks(HALF_WIDTHS, [f"{width:g}" for width in HALF_WIDTHS])
    right.minorticks_off()
    right.legend(frameon=False, loc="upper left")
    for axis in (middle, right):
        axis.spines[["top", "right"]].set_visible(False)
    return figure


def parse_arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    """Read and check the command line."""
    parser = argparse.ArgumentParser(description="Three architectures, linearized.")
    parser.add_argument("--num-draws", type=int, default=100_000, help="Monte Carlo draws")
    parser.add_argument("--seed", type=int, default=0, help="of the training and of the draws")
    parser.add_argument("--out", type=Path, default=Path("architectures_output"), help="folder")
    parser.add_argument("--no-progress", action="store_true", help="show no progress bars")
    arguments = parser.parse_args(argv)
    if arguments.num_draws < 100:
        parser.error(f"--num-draws must be at least 100, got {arguments.num_draws}")
    return arguments


def main(argv: Sequence[str] | None = None) -> None:
    """Train the three networks, compare linearization and Monte Carlo, write the figure."""
    arguments = parse_arguments(argv)
    progress, num_draws = not arguments.no_progress, arguments.num_draws
    *keys, digits_key, draw_key = jax.random.split(jax.random.key(arguments.seed), 4)
    operators = {
        "DeepONet, fading light": fit_deeponet,
        "Fourier neural operator, Burgers equation": fit_fourier_operator,
    }
    for key, (name, fit) in zip(keys, operators.items(), strict=True):
        print(f"{name}: 32 inputs, 8 outputs")
        with timed("training"):
            net, mean, scale = fit(key, progress=progress)
        print(f"half-widths in units of the standard deviation of the inputs, {scale:.3f}")
        widths = jnp.asarray(HALF_WIDTHS) * scale
        with timed("linearization, Monte Carlo and comparison"):
            print_comparison(
                propagate(net, mean[None], widths, draw_key, num_draws, progress=progress).at(0)
            )
        print()

    print("Convolutional network, handwritten digits: 64 inputs, 10 outputs")
    with timed("training"):
        net, images, labels = fit_digits(digits_key, progress=progress)
    logits = np.asarray(jax.vmap(net)(images))
    right = np.flatnonzero(logits.argmax(axis=1) == labels)
    second, first = np.sort(logits[right], axis=1).T[-2:]
    by_margin = right[np.argsort(first - second)]
    chosen = [int(by_margin[int(rank * right.size)]) for rank in MARGIN_RANKS]
    means, widths = jnp.asarray(images[chosen]), jnp.asarray(HALF_WIDTHS, jnp.float32)
    with timed("linearization and Monte Carlo"):
        result = propagate(net, means, widths, draw_key, num_draws, progress=progress)
    with timed("change of class"):
        changes = change_probabilities(result, widths, draw_key, progress=progress)
        print_changes(chosen, labels, result, changes)
    drawn = 2
    print(f"\nThe logits of image {chosen[drawn]}:")
    with timed("comparison"):
        print_comparison(result.at(drawn))

    arguments.out.mkdir(parents=True, exist_ok=True)
    file = arguments.out / "digit.png"
    draw_digit(
        images[chosen[drawn]],
        labels[chosen[drawn]],
        result.at(drawn),
        {name: values[drawn] for name, values in changes.items()},
    ).savefig(file, dpi=150)
    plt.close("all")
    print(f"figure: {file.resolve()}")


if __name__ == "__main__":
    main()
