"""The two networks of the gallery: one nearly linear where it is used, and one that is not."""

import sys
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

import nn_uq_dist as nuq

sys.path.append(str(Path(__file__).parents[2] / "examples"))


class Case(NamedTuple):
    """The linearized distribution of a network, and draws of its outputs."""

    name: str
    lin: nuq.Linearization
    draws: np.ndarray
    input_names: list[str]
    output_names: list[str]
    unit: str | None
    ylabel: str
    limits: dict[str, float]


def seasons(num_draws: int) -> Case:
    """Return a small tanh network, trained to forecast the seasons of next year from 12 months.

    Inputs and outputs are deviations of the sea-surface temperature from the mean of the years
    before 1996. Each month is rounded to 0.1 degrees C and has a normal error of sd 0.03 besides.
    """
    import sea_surface as example

    years, curves = example.load_curves()
    anomalies = jnp.asarray(curves - curves[years < example.FIRST_TEST_YEAR].mean(axis=0))
    known = anomalies[years < example.FIRST_TEST_YEAR]
    targets = known[1:].reshape(-1, 4, 3).mean(axis=-1)

    def forecast(parameters: Any, x: jax.Array) -> jax.Array:
        hidden, bias, output = parameters
        return output @ jnp.tanh(hidden @ x + bias)

    def loss(parameters: Any) -> jax.Array:
        outputs = jax.vmap(forecast, (None, 0))(parameters, known[:-1])
        penalty = sum(jnp.sum(part**2) for part in parameters)
        return jnp.mean((outputs - targets) ** 2) + 0.003 * penalty

    @jax.jit
    def train(parameters: Any) -> Any:
        optimizer = optax.adam(3e-3)

        def step(state: Any, _: None) -> tuple[Any, None]:
            parameters, moments = state
            updates, moments = optimizer.update(jax.grad(loss)(parameters), moments)
            return (optax.apply_updates(parameters, updates), moments), None

        return jax.lax.scan(step, (parameters, optimizer.init(parameters)), length=2000)[0][0]

    keys = jax.random.split(jax.random.key(0))
    initial = (0.3 * jax.random.normal(keys[0], (16, 12)), jnp.zeros(16),
               0.3 * jax.random.normal(keys[1], (4, 16)))  # fmt: skip
    parameters = train(initial)

    def net(x: jax.Array) -> jax.Array:
        return forecast(parameters, x)

    f = nuq.Input.box(anomalies[-1], 0.05) + nuq.Input.normal(0 * anomalies[-1], 0.03)
    draws = nuq.monte_carlo(net, f, jax.random.key(1), num_draws, progress=False)
    outputs = ["Jan-Mar", "Apr-Jun", "Jul-Sep", "Oct-Dec"]
    return Case("seasons", nuq.linearize(net, f), draws, example.MONTHS, outputs, "°C",
                "temperature anomaly (°C)", {"Apr-Jun": -0.5})  # fmt: skip


def untrained(num_draws: int) -> Case:
    """Return two wide layers of random weights whose units change sign all over the box."""
    keys = jax.random.split(jax.random.key(4), 4)
    sizes = [12, 256, 256, 8]
    weights = [
        jax.random.normal(k, (rows, columns)) * jnp.sqrt(2 / columns)
        for k, columns, rows in zip(keys, sizes[:-1], sizes[1:], strict=False)
    ]

    def net(f: jax.Array) -> jax.Array:
        for w in weights[:-1]:
            f = jax.nn.leaky_relu(w @ f, 0.01)
        return weights[-1] @ f

    f = nuq.Input.box(0.2 * jax.random.normal(keys[3], (12,)), half_width=2.0)
    draws = nuq.monte_carlo(net, f, jax.random.key(1), num_draws, progress=False)
    lin = nuq.linearize(net, f)
    inputs = [f"f{k}" for k in range(1, 13)]
    outputs = [f"g{k}" for k in range(1, 9)]
    return Case("untrained", lin, draws, inputs, outputs, None, "value", {"g1": 4.0})
