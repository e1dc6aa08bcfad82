"""Train one network to be an integro-differential operator, as those in `weights` were.

    python train.py --operator nonlinear --layers 5

Every step draws fresh inputs f ~ Normal(0, I), so there is no training set to overfit. The learning
rate rises linearly over the first twentieth of the steps and falls to zero as a cosine. Two
optimizers adapt to whole weight matrices instead of single weights: SOAP for the deep networks, and
Muon, which ends closer with one layer. With five, Adam is several times as far from the nonlinear
operator after the same number of steps.
"""

import argparse
import dataclasses
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import optax
import optax.contrib
from integro_differential import OPERATORS, SIZE
from jax import Array
from networks import relative_error, save
from soap import soap
from tqdm import tqdm

from nn_uq_dist import LeakyReLUNetwork

WIDTH = 64
NEGATIVE_SLOPE = 0.01
RESNET_LAYERS = 5
_STEPS_PER_CALL = 500

Parameters = tuple[list[Array], list[Array], Array]  # hidden weights, biases, output matrix


@dataclasses.dataclass(frozen=True)
class Recipe:
    """How one network is trained."""

    optimizer: str
    steps: int
    learning_rate: float
    batch: int = 1000
    seed: int = 0


OPTIMIZERS: dict[str, Callable[[optax.Schedule], optax.GradientTransformation]] = {
    "muon": optax.contrib.muon,
    "soap": soap,
}
RECIPES = {
    "nonlinear_1": Recipe("muon", 120_000, 0.01),
    "nonlinear_5": Recipe("soap", 80_000, 0.006),
    "nonlinear_20": Recipe("soap", 20_000, 0.006),
    "nonlinear_resnet": Recipe("soap", 30_000, 0.006),
    "linear_1": Recipe("muon", 5_000, 0.005),
    "linear_5": Recipe("soap", 5_000, 0.003),
    "linear_20": Recipe("soap", 5_000, 0.003),
}


def random_keys(seed: int) -> Array:
    """Return three keys: for the initial weights, the training inputs and the test inputs."""
    return jax.random.split(jax.random.key(seed), 3)


def initialize(key: Array, layers: int) -> Parameters:
    """Draw scaled orthogonal weights, which keep the size of signals; biases are zero."""
    draw = jax.nn.initializers.orthogonal(jnp.sqrt(2 / (1 + NEGATIVE_SLOPE**2)))
    keys = jax.random.split(key, layers + 1)
    shapes = [(WIDTH, SIZE), *[(WIDTH, WIDTH)] * (layers - 1), (SIZE, WIDTH)]
    *weights, output_matrix = [draw(k, shape) for k, shape in zip(keys, shapes, strict=True)]
    return weights, [jnp.zeros(WIDTH) for _ in weights], output_matrix


def assemble(parameters: Parameters, *, resnet: bool) -> LeakyReLUNetwork:
    """Make a network of what is trained; the slope and the absence of an output bias are fixed."""
    return LeakyReLUNetwork(*parameters, NEGATIVE_SLOPE, resnet)


def train(
    operator: Callable[[Array], Array],
    layers: int,
    recipe: Recipe,
    *,
    resnet: bool = False,
    progress: bool = True,
) -> tuple[LeakyReLUNetwork, list[float]]:
    """Return the trained network and its relative error over each 500 steps of training."""
    schedule = optax.warmup_cosine_decay_schedule(
        0, recipe.learning_rate, recipe.steps // 20, recipe.steps
    )
    optimizer = OPTIMIZERS[recipe.optimizer](schedule)
    initial_key, key, _ = random_keys(recipe.seed)
    parameters = initialize(initial_key, layers)

    def loss(parameters: Parameters, inputs: Array) -> tuple[Array, Array]:
        expected = operator(inputs)
        error = jax.vmap(assemble(parameters, resnet=resnet))(inputs) - expected
        squares = jnp.array([jnp.sum(error**2), jnp.sum(expected**2)])
        return squares[0] / recipe.batch, squares

    def step(state: Any, key: Array) -> tuple[Any, Array]:
        parameters, optimizer_state = state
        inputs = jax.random.normal(key, (recipe.batch, SIZE))
        gradient, squares = jax.grad(loss, has_aux=True)(parameters, inputs)
        updates, optimizer_state = optimizer.update(gradient, optimizer_state, parameters)
        return (optax.apply_updates(parameters, updates), optimizer_state), squares

    @jax.jit
    def some_steps(state: Any, keys: Array) -> tuple[Any, Array]:
        state, squares = jax.lax.scan(step, state, keys)
        error, total = jnp.sum(squares, axis=0)
        return state, jnp.sqrt(error / total)

    state = (parameters, optimizer.init(parameters))
    errors: list[float] = []
    with tqdm(total=recipe.steps, desc="training", disable=not progress, unit="step") as bar:
        for start in range(0, recipe.steps, _STEPS_PER_CALL):
            count = min(_STEPS_PER_CALL, recipe.steps - start)
            keys = jax.random.split(jax.random.fold_in(key, start), count)
            state, error = some_steps(state, keys)
            errors.append(float(error))
            bar.update(count)
            bar.set_postfix(relative_error=f"{errors[-1]:.5f}")
    return assemble(state[0], resnet=resnet), errors


def parse_arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    """Read and check the command line; what is not given is the recipe of the committed network."""
    parser = argparse.ArgumentParser(description="Train a network to be an operator.")
    parser.add_argument("--operator", choices=OPERATORS, default="nonlinear")
    parser.add_argument("--layers", type=int, choices=(1, 5, 20), help="hidden layers, default 5")
    parser.add_argument(
        "--resnet", action="store_true", help=f"{RESNET_LAYERS} layers, skipped by a connection"
    )
    parser.add_argument("--optimizer", choices=OPTIMIZERS)
    parser.add_argument("--steps", type=int)
    parser.add_argument("--batch", type=int, help="fresh inputs per step")
    parser.add_argument("--learning-rate", type=float, help="the highest of the schedule")
    parser.add_argument("--seed", type=int)
    parser.add_argument("--out", type=Path, help="file, default NAME.safetensors in this folder")
    parser.add_argument("--no-progress", action="store_true", help="show no progress bar")
    arguments = parser.parse_args(argv)
    if arguments.resnet and (arguments.operator != "nonlinear" or arguments.layers is not None):
        parser.error(
            f"--resnet is the nonlinear operator's, with {RESNET_LAYERS} layers; leave out "
            f"--operator and --layers"
        )
    arguments.layers = arguments.layers or RESNET_LAYERS
    arguments.name = f"{arguments.operator}_{'resnet' if arguments.resnet else arguments.layers}"
    given = {
        field.name: value
        for field in dataclasses.fields(Recipe)
        if (value := getattr(arguments, field.name)) is not None
    }
    arguments.recipe = dataclasses.replace(RECIPES[arguments.name], **given)
    for name in ("steps", "batch", "learning_rate"):
        value = getattr(arguments.recipe, name)
        if not 0 < value < float("inf"):
            parser.error(f"--{name.replace('_', '-')} must be positive, got {value}")
    arguments.out = arguments.out or Path(f"{arguments.name}.safetensors")
    return arguments


def main(argv: Sequence[str] | None = None) -> None:
    """Train, print time and error, write the weights."""
    arguments = parse_arguments(argv)
    recipe, operator = arguments.recipe, OPERATORS[arguments.operator]
    print(f"{arguments.name}: {recipe}")
    start = time.perf_counter()
    net, _ = train(
        operator,
        arguments.layers,
        recipe,
        resnet=arguments.resnet,
        progress=not arguments.no_progress,
    )
    print(f"training: {time.perf_counter() - start:.0f} s")
    error = relative_error(net, operator, SIZE, random_keys(recipe.seed)[2])
    print(f"relative L2 error on 100,000 fresh inputs: {error:.5f}")
    save(net, arguments.out)
    print(f"weights: {arguments.out}")


if __name__ == "__main__":
    main()
