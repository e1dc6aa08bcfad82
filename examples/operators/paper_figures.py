"""The figures of the paper's results section."""

from typing import Any

import jax
import jax.numpy as jnp
import lobatto
import matplotlib.pyplot as plt
import networks
import numpy as np
from integro_differential import DEGREE, SIZE, mean_input
from study import AMPLITUDES, DEPTHS, NAMES, NONZERO, Study

import nn_uq_dist as nuq

BLUE, VERMILION, SKY, GRAY = "#0072B2", "#D55E00", "#56B4E9", "#8C8C8C"
# The paper's corner plot has g16, too. It is the noise of the training, see `study.ZERO_OUTPUT`.
CORNER = ["g1", "g6", "g11", "g21"]
PAIR = ["g13", "g25"]
TRIPLE = ["g1", "g6", "g25"]
NOISE = 0.15  # of three outputs, in standard deviations
NODES = lobatto.nodes(DEGREE)


def inputs(key: jax.Array, num_samples: int = 6) -> plt.Figure:
    """Samples of the random input at six amplitudes, as interpolating polynomials."""
    x = np.linspace(-1, 1, 801)
    mean = mean_input()
    figure, axes = plt.subplots(
        2, 3, figsize=(8, 4.6), sharex=True, sharey=True, layout="constrained"
    )
    unit = np.asarray(jax.random.uniform(key, (num_samples, SIZE), minval=-1.0, maxval=1.0))
    for axis, amplitude in zip(axes.flat, AMPLITUDES, strict=True):
        curves = lobatto.interpolate(mean + amplitude * unit, x)
        axis.plot(x, curves.T, color=GRAY, lw=0.6, label=["samples"] + [None] * (num_samples - 1))
        axis.plot(x, lobatto.interpolate(mean, x), color=BLUE, lw=1.6, label="mean")
        axis.plot(NODES, mean, ".", color=BLUE, ms=3, label="nodes")
        axis.set_title(f"amplitude {amplitude:g}", fontsize="medium")
    for axis in axes[-1]:
        axis.set_xlabel("x")
    for axis in axes[:, 0]:
        axis.set_ylabel("f(x)")
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=3, frameon=False)
    return figure


def corner(case: Study) -> Any:
    """One- and two-point densities of four outputs, with the regions of the copula."""
    return nuq.plots.plot_joint(
        case.lin, case.draws, outputs=CORNER, output_names=NAMES, backend="matplotlib"
    )


def band(case: Study, *, deviation: bool = False) -> Any:
    """Mean curve with bands, and the densities of two outputs."""
    return nuq.plots.plot_output_band(
        case.lin, case.draws, x=NODES, outputs=[NAMES.index(name) for name in PAIR], xlabel="y",
        ylabel="g(y) - mean" if deviation else "g(y)", deviation=deviation, backend="matplotlib",
    )  # fmt: skip


def marginals(case: Study) -> Any:
    """Densities of two outputs with sigma bands over histograms."""
    return nuq.plots.plot_marginals(
        case.lin, case.draws, outputs=PAIR, output_names=NAMES, backend="matplotlib"
    )


def error_densities(key: jax.Array, amplitude: float, num_draws: int = 50_000) -> plt.Figure:
    """Densities of the linearization error by depth: the paper's residual, and below the total."""
    mean = jnp.asarray(mean_input(), jnp.float32)
    z = amplitude * jax.random.uniform(key, (num_draws, SIZE), minval=-1.0, maxval=1.0)
    figure, axes = plt.subplots(2, 2, figsize=(8, 5), sharex="col", layout="constrained")
    rows = {"last layer only (the paper's residual)": nuq.error_analysis.last_layer_residual,
            "total": nuq.error_analysis.total_error}  # fmt: skip
    colors = dict(zip(DEPTHS, (BLUE, VERMILION, "black"), strict=True))
    found = {
        (name, depth): np.asarray(error(networks.load(f"nonlinear_{depth}"), mean, z))
        for name, error in rows.items()
        for depth in DEPTHS
    }
    for column, output in enumerate(PAIR):
        j = NAMES.index(output)
        low, high = np.quantile(found["total", DEPTHS[0]][:, j], [0.002, 0.998])
        edges = np.linspace(low, high, 121)
        for axis, name in zip(axes[:, column], rows, strict=True):
            for depth in DEPTHS:
                counts, _ = np.histogram(found[name, depth][:, j], edges)
                density = counts / (num_draws * np.diff(edges))
                label = f"{depth} layer{'s' if depth > 1 else ''}"
                axis.stairs(density, edges, color=colors[depth], lw=1.2, label=label)
            axis.set_yscale("log")
            axis.axvline(0, color=GRAY, lw=0.8, ls=":")
            axis.set_title(f"{output}, {name}", fontsize="medium")
        axes[-1, column].set_xlabel("network - linear model")
    for axis in axes[:, 0]:
        axis.set_ylabel("density")
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=3, frameon=False)
    return figure


def correlation_matrices(case: Study) -> Any:
    """Correlations of the draws, of the copula, and their difference, without the noise of g16."""
    return nuq.plots.plot_correlation(
        case.lin, case.draws, law="copula", outputs=NONZERO, output_names=NAMES,
        backend="matplotlib",
    )  # fmt: skip


def two_point(case: Study) -> Any:
    """Two-point densities of three outputs: the copula over the draws."""
    return nuq.plots.plot_joint(
        case.lin, case.draws, outputs=TRIPLE, output_names=NAMES, backend="matplotlib"
    )


def three_point(case: Study, *, copula: bool = False) -> Any:
    """Three-point densities, observed with a little noise: slices of a law beside the draws."""
    # Of outputs that are made of two numbers three have no density without noise.
    noise = NOISE * np.sqrt(np.diagonal(case.lin.covariance))
    joint = case.lin.gaussian_copula if copula else case.lin.joint
    normal = np.random.default_rng(0).normal(size=case.draws.shape)
    return nuq.plots.plot_three_point(
        case.lin, case.draws + noise * normal, outputs=TRIPLE, output_names=NAMES,
        law=joint(noise_scale=noise), backend="matplotlib",
    )  # fmt: skip
