"""The figures of the paper's results section."""

from functools import partial

import jax
import jax.numpy as jnp
import layer_errors
import lobatto
import matplotlib.pyplot as plt
import networks
import numpy as np
import scipy.stats
from integro_differential import DEGREE, SIZE, mean_input
from matplotlib.colors import to_rgb
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator
from study import AMPLITUDES, DEPTHS, NAMES, NONZERO, Study

import nn_uq_dist as nuq

BLUE, VERMILION, SKY = "#0072B2", "#D55E00", "#56B4E9"
GRAY, DARK_GRAY = "#8C8C8C", "#606060"
# The paper's corner plot has g16, too. It is the noise of the training, see `study.ZERO_OUTPUT`.
CORNER = ["g1", "g6", "g11", "g21"]
PAIR = ["g13", "g25"]
TRIPLE = ["g1", "g6", "g25"]
WIDTH = 0.12  # of the densities beside the band
NOISE = 0.15  # of three outputs, in standard deviations
QUANTILES = (0.1, 0.5, 0.9)  # of the third output
MASSES = np.array([0.99, 0.9, 0.5])  # of regions
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


def corner(case: Study) -> plt.Figure:
    """One- and two-point densities of four outputs, with the regions of the copula."""
    copula = case.lin.gaussian_copula()
    return nuq.plots.plot_joint(copula, case.draws, outputs=CORNER, output_names=NAMES)


def band(case: Study, *, deviation: bool = False) -> plt.Figure:
    """Quantile bands, and the densities of two outputs beside histograms of their draws."""
    figure = nuq.plots.plot_band(case.lin, x=NODES, deviation=deviation, xlabel="y", ylabel="g(y)")
    (axis,) = figure.axes
    marginals = case.lin.marginals()
    numbers = marginals.mean, jnp.sqrt(marginals.variance), *marginals.bounds
    mean, sd, low, high = (np.asarray(x, np.float64) for x in numbers)
    for name in PAIR:
        j = NAMES.index(name)
        origin = mean[j] if deviation else 0.0
        y = np.linspace(np.maximum(mean - 3.6 * sd, low), np.minimum(mean + 3.6 * sd, high), 320)
        density = np.exp(np.asarray(marginals.log_prob(jnp.asarray(y, jnp.float32))))[:, j]
        heights, edges = np.histogram(case.draws[:, j], 40, (y[0, j], y[-1, j]), density=True)
        width = WIDTH / max(density.max(), heights.max())
        axis.fill_betweenx(y[:, j] - origin, NODES[j], NODES[j] + width * density, color=BLUE, lw=0)
        bars = np.repeat(NODES[j] - width * heights, 2), np.repeat(edges - origin, 2)[1:-1]
        axis.fill_betweenx(bars[1], bars[0], NODES[j], color=DARK_GRAY, lw=0)
    handles = [Patch(color=BLUE, label="density"), Patch(color=DARK_GRAY, label="Monte Carlo")]
    axis.legend(handles=handles, fontsize="small", frameon=False)
    return figure


def marginals(case: Study) -> plt.Figure:
    """Densities of two outputs over histograms."""
    return nuq.plots.plot_marginals(case.lin, case.draws, outputs=PAIR, output_names=NAMES)


def error_densities(key: jax.Array, amplitude: float, num_draws: int = 50_000) -> plt.Figure:
    """Densities of the linearization error by depth: the paper's residual, and below the total."""
    mean = jnp.asarray(mean_input(), jnp.float32)
    z = amplitude * jax.random.uniform(key, (num_draws, SIZE), minval=-1.0, maxval=1.0)
    figure, axes = plt.subplots(2, 2, figsize=(8, 5), sharex="col", layout="constrained")
    rows = ("last layer only (the paper's residual)", "total")
    colors = dict(zip(DEPTHS, (BLUE, VERMILION, "black"), strict=True))
    found = {}
    for depth in DEPTHS:
        shares = layer_errors.layer_contributions(networks.load(f"nonlinear_{depth}"), mean, z)
        for name, error in zip(rows, (shares[:, -1], shares.sum(axis=1)), strict=True):
            found[name, depth] = np.asarray(error)
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


def correlation_matrices(case: Study) -> plt.Figure:
    """Correlations of the draws, of the copula, and their difference, without the noise of g16."""
    index = [NAMES.index(name) for name in NONZERO]
    draws = case.draws[:, index].astype(np.float64)
    found = np.corrcoef(draws, rowvar=False)
    of_parts = [np.corrcoef(part, rowvar=False) for part in np.array_split(draws, 100)]
    note = f"standard error {np.std(of_parts, axis=0).max() / 10:.1g}"
    covariance = np.asarray(case.lin.gaussian_copula().marginalize(index).covariance_matrix)
    sd = np.sqrt(np.diagonal(covariance))
    copula = covariance / np.outer(sd, sd)
    largest = np.abs(copula - found).max()
    figure, axes = plt.subplots(1, 3, figsize=(7, 3.4), layout="constrained")
    ticks = np.arange(0, len(index), 3)
    for axis, title, values, limit, colors in (
        (axes[0], "Monte Carlo", found, 1, "RdBu_r"),
        (axes[1], "copula", copula, 1, "RdBu_r"),
        (axes[2], "copula - Monte Carlo", copula - found, largest, "PuOr_r"),
    ):
        image = axis.imshow(values, cmap=colors, vmin=-limit, vmax=limit)
        axis.set_title(title, fontsize="medium")
        axis.set_xticks(ticks, [NONZERO[k] for k in ticks], rotation=90, fontsize="small")
        axis.set_yticks(ticks, [])
        bar = figure.colorbar(image, location="bottom", ticks=MaxNLocator(4, symmetric=True))
        bar.set_label("correlation", fontsize="small")
        bar.ax.tick_params(labelsize="x-small")
    bar.set_label(f"largest {largest:.2g}, {note}", fontsize="small")
    axes[0].set_yticks(ticks, [NONZERO[k] for k in ticks], fontsize="small")
    return figure


def two_point(case: Study) -> plt.Figure:
    """Two-point densities of three outputs: the copula over the draws."""
    copula = case.lin.gaussian_copula()
    return nuq.plots.plot_joint(copula, case.draws, outputs=TRIPLE, output_names=NAMES)


def three_point(case: Study, *, copula: bool = False) -> plt.Figure:
    """Densities of two outputs given a third, observed with a little noise.

    Those of the draws are kernel estimates from the tenth next to the value of the third output.
    """
    index = [NAMES.index(name) for name in TRIPLE]
    # Of outputs that are made of two numbers three have no density without noise.
    noise = NOISE * np.sqrt(np.diagonal(case.lin.covariance))
    distribution = (case.lin.gaussian_copula if copula else case.lin.joint)(noise_scale=noise)
    log_density = jax.jit(partial(jax.lax.map, distribution.marginalize(index).log_prob))
    normal = np.random.default_rng(0).normal(size=case.draws.shape)
    draws = (case.draws + noise * normal)[:, index]
    figure, axes = plt.subplots(
        2, 3, figsize=(7, 5.3), sharex="col", sharey="col", layout="constrained"
    )
    for column, quantile in zip(axes.T, QUANTILES, strict=True):
        value, near = _near_quantile(draws, quantile)
        low, high = np.quantile(near, [0.001, 0.999], axis=0)
        x, y = np.meshgrid(*np.linspace(low - (high - low) / 4, high + (high - low) / 4, 181).T)
        points = jnp.asarray(np.stack([x, y, np.full_like(x, value)], axis=-1), jnp.float32)
        exact = np.exp(np.asarray(log_density(points), np.float64))
        ascending = np.sort(exact, axis=None)
        # Given the third output the density holds a mass of one, which is that of the grid.
        levels = np.interp(1 - MASSES, np.cumsum(ascending) / ascending.sum(), ascending)
        kernel = scipy.stats.gaussian_kde(near.T)
        found = kernel(np.stack([x.ravel(), y.ravel()])).reshape(x.shape)
        found_levels = np.quantile(kernel(near.T), 1 - MASSES)
        for axis, density, bounds, color in (
            (column[0], exact, levels, SKY),
            (column[1], found, found_levels, DARK_GRAY),
        ):
            axis.contourf(x, y, density, [*bounds, 2 * density.max()], colors=_shades(color))
            axis.contour(x, y, exact, levels, colors=BLUE, linewidths=0.9)
        inside = (exact > levels[0]) | (found > found_levels[0])
        for limits, of in ((column[0].set_xlim, x), (column[0].set_ylim, y)):
            margin = 0.1 * np.ptp(of[inside])
            limits(of[inside].min() - margin, of[inside].max() + margin)
        title = f"{TRIPLE[2]} = {value:.4g}\n({100 * quantile:g}% quantile)"
        column[0].set_title(title, fontsize="medium")
        column[1].set_xlabel(TRIPLE[0])
    axes[0, 0].set_ylabel(f"{distribution.kind}\n{TRIPLE[1]}")
    axes[1, 0].set_ylabel(f"Monte Carlo\n{TRIPLE[1]}")
    handles = [
        Patch(color=shade, label=f"{100 * mass:g}%")
        for mass, shade in zip(MASSES, _shades(DARK_GRAY), strict=True)
    ]
    handles.append(Line2D([], [], color=BLUE, lw=0.9, label=distribution.kind))
    figure.legend(handles=handles[::-1], loc="outside upper center", ncols=4, frameon=False)
    return figure


def _shades(color: str) -> np.ndarray:
    """Return a color mixed with white, from the palest to the strongest shade of a region."""
    return 1 - np.outer([0.25, 0.55, 0.85], 1 - np.array(to_rgb(color)))


def _near_quantile(draws: np.ndarray, quantile: float) -> tuple[float, np.ndarray]:
    """Return a quantile of the third output, and the first two of the tenth of the draws around it.

    They are moved to it along their regression on the third.
    """
    value = float(np.quantile(draws[:, 2], quantile))
    start, stop = (round(len(draws) * (quantile + side)) for side in (-0.05, 0.05))
    near = draws[np.argsort(draws[:, 2])][start:stop]
    slope = np.polyfit(near[:, 2], near[:, :2], 1)[0]
    return value, near[:, :2] - np.outer(near[:, 2] - value, slope)
