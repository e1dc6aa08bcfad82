"""The tables of the paper's results section, and what it leaves out, as Markdown."""

import itertools
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import jax
import jax.numpy as jnp
import layer_errors
import networks
import numpy as np
import pandas as pd
from integro_differential import OPERATORS, SIZE
from study import (
    AMPLITUDES,
    DEPTHS,
    NAMES,
    NONZERO,
    Study,
    as_markdown,
    comparison,
    study,
    title,
)  # fmt: skip
from tqdm import tqdm

import nn_uq_dist as nuq

CORRELATED = ("g1", "g6", "g11", "g16", "g21")
ERROR_DRAWS = 20_000
DEPTH_NAMES = [f"{depth} layer{'s' if depth > 1 else ''}" for depth in DEPTHS]


def training_errors(key: jax.Array, num_inputs: int) -> str:
    """Relative L2 errors of all networks on fresh normal inputs."""
    bars = {
        "nonlinear_1": 0.05, "nonlinear_5": 0.01, "nonlinear_20": 0.02, "linear_1": 0.001,
        "linear_5": 0.002, "linear_20": 0.002, "nonlinear_resnet": None,
    }  # fmt: skip
    authors = {"nonlinear_1": 0.056, "nonlinear_5": 0.0096, "nonlinear_20": 0.036}
    rows = []
    for name, bar in bars.items():
        operator = OPERATORS[name.partition("_")[0]]
        error = networks.relative_error(networks.load(name), operator, SIZE, key, num_inputs)
        known = authors.get(name)
        rows.append([title(name), f"{error:.2g}", bar or "-", known or "-"])
    heading = ["network", "relative L2 error", "target", "authors' network"]
    return as_markdown(heading, rows)


def correlations(cases: Sequence[Study]) -> str:
    """The paper's correlation table, one for each network: linear model (Monte Carlo)."""
    index = [NAMES.index(name) for name in CORRELATED]
    parts = []
    for case in cases:
        linear = np.asarray(case.lin.correlation, np.float64)
        # The operator itself has an output that is exactly zero: no correlation.
        with np.errstate(invalid="ignore"):
            found = np.corrcoef(case.draws.astype(np.float64), rowvar=False)
        rows = []
        for a, i in enumerate(index[:-1]):
            cells = [
                f"{linear[i, j]:.2f} ({found[i, j]:.2f})" if np.isfinite(found[i, j]) else "none"
                for j in index[a + 1 :]
            ]
            rows.append([NAMES[i], *[""] * a, *cells])
        parts += [
            f"{case.title[0].upper()}{case.title[1:]}:\n",
            as_markdown(["", *CORRELATED[1:]], rows),
        ]
    return "\n".join(parts)


def agreement(operator: str, key: jax.Array, num_draws: int, *, progress: bool) -> str:
    """Variance ratios and distances by amplitude, networks beside the operator itself."""
    columns = [f"{operator}_{depth}" for depth in DEPTHS] + [operator]
    work = list(itertools.product(AMPLITUDES, columns))

    def table(item: tuple[float, str]) -> pd.DataFrame:
        amplitude, name = item
        return comparison(study(name, amplitude, key, num_draws))

    # Two at a time: JAX and NumPy release the interpreter while they work.
    with ThreadPoolExecutor(2) as pool:
        found = list(tqdm(pool.map(table, work), operator, len(work), disable=not progress))
    rows = []
    for k, amplitude in enumerate(AMPLITUDES):
        cells = []
        for t in found[k * len(columns) : (k + 1) * len(columns)]:
            ratio = ((t["sd", "analytic"] / t["sd", "monte_carlo"]) ** 2).mean()
            distance = t["kolmogorov_smirnov", "monte_carlo"].mean()
            cells.append(f"{ratio:.2f}; {distance:.3f}")
        rows.append([f"{amplitude:g}", *cells])
    return as_markdown(["amplitude", *DEPTH_NAMES, "operator itself"], rows)


def linearization_errors(key: jax.Array) -> str:
    """Mean absolute errors of the linearization by depth and amplitude: total and last layer's.

    The mean is over 30 outputs and 20,000 draws; that of the operator is of its own linearization.
    """
    total, residual = [], []
    f = study("nonlinear", 1.0, key, 100).f
    nets = [networks.load(f"nonlinear_{depth}") for depth in DEPTHS]
    operator = nuq.linearize(OPERATORS["nonlinear"], f)
    unit = jax.random.uniform(key, (ERROR_DRAWS, SIZE), minval=-1.0, maxval=1.0)
    for amplitude in AMPLITUDES:
        z = amplitude * unit
        own = jax.vmap(OPERATORS["nonlinear"])(f.mean + z) - jax.vmap(operator)(f.mean + z)
        errors = [layer_errors.total_error(net, f.mean, z) for net in nets]
        shares = [layer_errors.layer_contributions(net, f.mean, z) for net in nets]
        last = [share[:, -1] for share in shares]
        total.append([f"{amplitude:g}", *map(_mean_size, [*errors, own])])
        residual.append([f"{amplitude:g}", *map(_mean_size, last)])
    heading = ["amplitude", *DEPTH_NAMES]
    return "\n".join(
        [
            "Total error of the linearization, mean absolute value:\n",
            as_markdown([*heading, "operator itself"], total),
            "The paper's residual `eq:error` (the last layer's share alone):\n",
            as_markdown(heading, residual),
        ]
    )


def moments(case: Study) -> str:
    """Means, standard deviations and distances of some outputs."""
    table = comparison(case).loc[["g1", "g6", "g13", "g21", "g25", "g31"]]
    rows = [
        [
            str(name),
            f"{row['mean', 'analytic']:.3f} ({row['mean', 'monte_carlo']:.3f})",
            f"{row['sd', 'analytic']:.3f} ({row['sd', 'monte_carlo']:.3f})",
            f"{row['kolmogorov_smirnov', 'monte_carlo']:.3f}",
        ]
        for name, row in table.iterrows()
    ]
    return as_markdown(["output", "mean", "sd", "Kolmogorov-Smirnov"], rows)


def _mean_size(error: jax.Array) -> str:
    shown = error[:, jnp.array([NAMES.index(name) for name in NONZERO])]
    return f"{float(jnp.mean(jnp.abs(shown))):.3g}"
