"""One network or operator at one perturbation amplitude: its distribution beside its draws."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import integro_differential
import jax
import jax.numpy as jnp
import networks
import numpy as np
import pandas as pd

import nn_uq_dist as nuq

AMPLITUDES = (0.1, 0.5, 1.0, 1.5, 2.0, 3.0)
DEPTHS = (1, 5, 20)
NAMES = [f"g{j}" for j in range(1, integro_differential.SIZE + 1)]
# Both operators vanish at y = 0: what a network gives there is the noise of its training.
ZERO_OUTPUT = "g16"
NONZERO = [name for name in NAMES if name != ZERO_OUTPUT]


class Study(NamedTuple):
    """A map, its box input, the linearized distribution, and Monte Carlo draws of the outputs."""

    title: str
    net: Callable[[jax.Array], jax.Array]
    f: nuq.Input
    lin: nuq.Linearization
    draws: np.ndarray


def study(name: str, amplitude: float, key: jax.Array, num_draws: int) -> Study:
    """Push the box of an amplitude around ``exp(sin(5 x))`` through a network or an operator.

    Parameters
    ----------
    name
        The name of committed weights, such as ``"nonlinear_5"``, or of an operator,
        ``"nonlinear"`` or ``"linear"``.
    amplitude
        Half-width of the box.
    key
        Of the draws; the same key gives every map the same inputs.
    num_draws
        Monte Carlo draws.
    """
    operators = integro_differential.OPERATORS
    net = operators[name] if name in operators else networks.load(name)
    mean = jnp.asarray(integro_differential.mean_input(), jnp.float32)
    f = nuq.Input.box(mean, half_width=amplitude)
    lin = nuq.linearize(net, f)
    draws = nuq.monte_carlo(net, f, key, num_draws, progress=False)
    return Study(f"{title(name)}, amplitude {amplitude:g}", net, f, lin, draws)


def title(name: str) -> str:
    """Return the name of a map in words."""
    operator, _, kind = name.partition("_")
    if not kind:
        return f"{operator} operator itself"
    if kind == "resnet":
        return f"{operator} operator, ResNet"
    return f"{operator} operator, {kind} layer{'s' if kind != '1' else ''}"


def comparison(case: Study) -> pd.DataFrame:
    """Return the table of `nuq.diagnostics.summary`, without the output that vanishes."""
    shown = np.array([NAMES.index(name) for name in NONZERO])
    lin = nuq.Linearization(case.lin.loc[shown], case.lin.jacobian[shown], case.lin.input)
    return nuq.diagnostics.summary(
        lin, case.draws[:, shown], output_names=NONZERO, quantiles=[0.5], tails=[], progress=False
    )


def as_markdown(heading: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Return a table; short rows are filled with empty cells."""
    lines = ["| " + " | ".join(heading) + " |", "|" + "---|" * len(heading)]
    for row in rows:
        cells = [str(cell) for cell in row] + [""] * (len(heading) - len(row))
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"
