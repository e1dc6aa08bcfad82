"""The two networks of the gallery: one nearly linear where it is used, and one that is not."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import nn_uq_dist as nuq

sys.path.append(str(Path(__file__).parents[2] / "examples"))


class Case(NamedTuple):
    """A network, its uncertain input, the linearized law, and draws of the outputs."""

    name: str
    net: Callable[[jax.Array], jax.Array]
    f: nuq.InputLaw
    lin: nuq.Linearization
    draws: np.ndarray
    input_names: list[str]
    output_names: list[str]
    unit: str | None


def sea_surface(num_draws: int) -> Case:
    """Return the forecast of `examples/sea_surface.py`: each month is known to +-0.3 degrees C."""
    import sea_surface as example

    years, curves = example.load_curves()
    net = example.fit_forecast(jax.random.key(0), years, curves, progress=False)
    f = nuq.InputLaw(jnp.asarray(curves[-1]), half_width=0.3)
    draws = nuq.monte_carlo(net, f, jax.random.key(1), num_draws)
    lin = nuq.linearize(net, f)
    return Case("sea_surface", net, f, lin, draws, example.MONTHS, example.MONTHS, "°C")


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

    f = nuq.InputLaw(0.2 * jax.random.normal(keys[3], (12,)), half_width=2.0)
    draws = nuq.monte_carlo(net, f, jax.random.key(1), num_draws)
    lin = nuq.linearize(net, f)
    inputs = [f"f{k}" for k in range(1, 13)]
    outputs = [f"g{k}" for k in range(1, 9)]
    return Case("untrained", net, f, lin, draws, inputs, outputs, None)
