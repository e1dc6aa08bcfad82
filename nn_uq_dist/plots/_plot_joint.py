"""Joint densities of outputs against Monte Carlo draws, pair by pair, in a corner plot."""

from collections.abc import Sequence
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np

from nn_uq_dist.basics.chunks import in_padded_chunks
from nn_uq_dist.basics.concrete import FloatArray
from nn_uq_dist.diagnostics import arguments
from nn_uq_dist.diagnostics.output_functions import joint_correlation
from nn_uq_dist.distributions import GaussianCopulaJoint, JointDistribution
from nn_uq_dist.linearization import CorrectedLinearization, Linearization, LinearModel
from nn_uq_dist.plots import _shared
from nn_uq_dist.plots._shared import BLUE, Axes, Figure, Outputs, Shown, Units, add_note, wrapped

MAXIMUM_OUTPUTS = 6
# Normal scores at which the quantiles of an output are known; linear in between.
SCORES = np.linspace(-5.0, 5.0, 64)
# Grid of the normal scores of a distribution.
GRID = np.linspace(-4.7, 4.7, 161)
POINTS_PER_CALL = 4096
# The grid follows the correlation of the outputs up to this value. It is only a guide: the scores
# of a distribution other than a Gaussian copula may spread more than their correlation suggests.
MOST_CORRELATION = 0.99
# A grid that loses no more than this of the mass is normalized.
LARGEST_LOSS = 0.03
# Cells of the histogram under the kernel, per standard deviation of the kernel.
CELLS_PER_BANDWIDTH = 3
MAXIMUM_CELLS = 400
# Share of the draws that the grid of the kernel density may leave out on either side.
TAIL = 1e-4
# Relative amount by which a level is lowered: on a plateau rounding would decide the lines.
ROUNDING = 1e-5


class Region(NamedTuple):
    """A density on a grid that may be skewed, zero along the border: contour lines are closed.

    The levels bound the regions of the requested masses; 0 for one that the grid does not cover.
    """

    x: FloatArray
    y: FloatArray
    density: FloatArray
    levels: FloatArray


def plot_joint(
    model: LinearModel | JointDistribution,
    draws: arguments.NetworkDraws | None = None,
    *,
    outputs: Outputs | None = None,
    masses: Sequence[float] = (0.5, 0.9, 0.99),
    units: Units | None = None,
    output_names: Sequence[str] | None = None,
    ax: Any = None,
) -> Figure:
    r"""Plot the joint density of each pair of outputs as lines over filled Monte Carlo regions.

    On the diagonal: the density of each output over a histogram of the draws. Below: regions of
    highest density that hold the given masses, of the distribution that the legend names and of the
    draws. Where both agree, the lines follow the edges of the filled regions.

    Parameters
    ----------
    model
        The linearized network, or any other `LinearModel`, without batch axes, of which
        ``model.joint()`` is shown; or a joint distribution, such as ``model.gaussian_copula()``,
        which has a density also where the outputs depend on each other so that they have no joint
        one. Of a corrected model it is the copula, whose marginals are the corrected ones; those of
        ``model.joint()`` are not.
    draws
        As in `plot_marginals`; rows that are not finite are left out. Their density is smoothed
        with a normal kernel of Scott's width, ``n**(-1/6)`` standard deviations in any direction;
        the level of a region is chosen so that it holds that fraction of the draws.
    outputs
        As in `plot_marginals`, two to six.
    masses
        Probabilities of the regions, between 0 and 1.
    units, output_names
        As in `plot_marginals`.
    ax
        Matplotlib axes to draw on: an array with `d` rows and columns for `d` outputs, or for two
        outputs also a single one, for the pair alone. Default: those of a new figure.

    Returns
    -------
    matplotlib.figure.Figure
        As in `plot_marginals`.

    Raises
    ------
    ImportError
        If Matplotlib is missing.
    TypeError, ValueError
        If shapes, names, outputs or masses do not fit; if outputs are linearly dependent, so that
        there is no joint density (pass ``model.gaussian_copula()``); if draws lie on a line.

    Examples
    --------
    >>> import jax, jax.numpy as jnp, nn_uq_dist as nuq
    >>> distribution = nuq.Input.box(jnp.zeros(3), half_width=1.0)
    >>> lin = nuq.Linearization(jnp.zeros(2), [[1.0, 2.0, 1.0], [1.0, 1.0, 0.0]], distribution)
    >>> draws = lin.sample(jax.random.key(0), (4_000,))
    >>> figure = nuq.plots.plot_joint(lin, draws, output_names=["a", "b"])
    >>> figure.axes[2].get_xlabel(), figure.axes[2].get_ylabel()
    ('a', 'b')
    """
    distribution: Any = model
    if not isinstance(model, JointDistribution):
        linear = arguments.as_model(model)
        output_names = arguments.names_of_outputs(linear, output_names, linear.num_outputs)
        distribution = _joint_of(linear)
    shown = _shared.prepare(distribution, draws, outputs, output_names, units=units)
    size = len(shown.names)
    fractions = np.sort(arguments.as_levels("masses", masses)).tolist()
    if not 2 <= size <= MAXIMUM_OUTPUTS:
        remedy = "use plot_marginals" if size < 2 else "pass some of them, such as outputs=(0, 1)"
        raise ValueError(f"outputs must name 2 to {MAXIMUM_OUTPUTS} outputs, got {size}; {remedy}")
    # Below the diagonal.
    pairs = {(k, j): _of_pair(distribution, shown, [j, k]) for j, k in combinations(range(size), 2)}
    rows = shown.draws
    complete = None if rows is None else arguments.complete_rows(rows).astype(np.float64)
    grays = [str(g) for g in np.linspace(0.85, 0.5, len(fractions)).tolist() if rows is not None]
    is_pair_alone = ax is not None and np.ndim(ax) == 0 and size == 2
    axes = _shared.panels(
        "plot_joint", 1 if is_pair_alone else size**2, ax, shape=(size, size),
        inches=(max(5.0, min(7.0, 2.4 * size)), max(4.7, min(7.3, 2.4 * size + 0.3))),
    )  # fmt: skip
    grid = np.resize(np.array(axes, dtype=object), (size, size))
    quantiles, ends = shown.functions.values(SCORES), shown.densities[0][[0, -1]]
    ranges = (ends + 0.04 * np.diff(ends, axis=0) * [[-1], [1]]).T.tolist()
    for k, j in [*pairs] if is_pair_alone else np.argwhere(np.tri(size)).tolist():
        axis = grid[k, j]
        if j == k:
            shown.draw_density(axis, j)
            axis.set_ylim(0, axis.dataLim.ymax * 1.06)
            for other in grid[j, j + 1 :]:
                other.axis("off")
        else:
            if complete is not None:
                names = shown.names[j], shown.names[k]
                _draw(axis, kernel_region(complete[:, [j, k]], fractions, names), grays)
            _draw(axis, distribution_region(pairs[k, j], quantiles[:, [j, k]], fractions))
            axis.set_ylim(ranges[k])
        axis.tick_params(labelbottom=k == size - 1, labelleft=j == 0)
        axis.locator_params(axis="x", nbins=4)
        xlabel = wrapped(shown.labels[j]) if k == size - 1 else ""
        ylabel = wrapped(shown.labels[k]) if j == 0 < k else ""
        axis.set(xlim=ranges[j], xlabel=xlabel, ylabel=ylabel)
    if complete is not None and len(complete) < len(rows):
        add_note(grid[1, 0], [f"{len(rows) - len(complete)} draws not finite"])
    kind = pairs[1, 0].kind
    if shown.word != _shared.UNKNOWN:
        kind = f"{shown.word} {kind.removeprefix('linear ')}"
    return _shared.finished(axes, ax, _legend(kind, fractions, grays))


def _joint_of(model: LinearModel) -> LinearModel | JointDistribution:
    """What is shown of a model: of a tangent itself, as all its outputs may have no density."""
    if isinstance(model, Linearization):
        return model
    return model.gaussian_copula() if isinstance(model, CorrectedLinearization) else model.joint()


def _of_pair(
    model: Linearization | JointDistribution, shown: Shown, pair: Sequence[int]
) -> JointDistribution:
    places = [shown.places[k] for k in pair]
    if isinstance(model, JointDistribution):
        return model.marginalize(places)
    rows = np.array(places)
    try:
        return Linearization(model.loc[rows], model.jacobian[rows], model.input).joint()
    except ValueError as error:
        raise ValueError(
            "outputs must vary and be linearly independent to have a joint density, got "
            f"{' and '.join(shown.names)}; pass model.gaussian_copula() in place of the model, or "
            "other outputs"
        ) from error


def _draw(axis: Axes, region: Region, grays: Sequence[str] = ()) -> None:
    """Fill a region with grays, or draw its outlines."""
    highest = region.density.max()
    levels = sorted({float(level) for level in region.levels if 0 < level < highest})
    if levels and grays:
        axis.contourf(*region[:3], [*levels, 2 * highest], colors=grays[-len(levels) :])
    elif levels:
        axis.contour(*region[:3], levels, colors=BLUE, linewidths=1.2)
    if not grays and len(levels) < len(region.levels):
        add_note(axis, ["", f"{len(region.levels) - len(levels)} lines not resolved"])


def _legend(kind: str, masses: Sequence[float], grays: Sequence[str]) -> list[Any]:
    """Entries of the lines and, from the smallest mass, of the regions that grays fill."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    percents = [f"{100 * mass:g}" for mass in masses]
    line: Any = Line2D([], [], color=BLUE, label=f"{kind}, {', '.join(percents)}%")
    regions = zip(percents, reversed(grays), strict=False)
    return [line, *(Patch(color=gray, label=f"{p}% of the draws, smoothed") for p, gray in regions)]


def mass_levels(density: FloatArray, weights: FloatArray, masses: Sequence[float]) -> FloatArray:
    """Return the levels above which the density holds the masses, by the `weights` of cells.

    R. J. Hyndman, Computing and graphing highest density regions, Am. Stat. 50 (1996).
    """
    order = np.argsort(-density, axis=None)
    mass = weights.ravel()[order]
    # Half of its own mass lies above the density of a point.
    held = np.cumsum(mass) - mass / 2
    levels = np.interp(masses, held, density.ravel()[order], right=0.0)
    return np.asarray(levels * (1 - ROUNDING))


def distribution_region(
    joint: JointDistribution, quantiles: FloatArray, masses: Sequence[float]
) -> Region:
    """Density of a joint distribution of two outputs, on a grid that resolves any correlation.

    The quantiles are those of both outputs at `SCORES`, shape ``(64, 2)``.
    """
    if isinstance(joint, GaussianCopulaJoint):
        correlation = np.asarray(joint.correlation_matrix, np.float64)
    else:
        correlation = MOST_CORRELATION * joint_correlation(joint)
        np.fill_diagonal(correlation, 1.0)
    grid = skewed((GRID, GRID), np.zeros(2), np.linalg.cholesky(correlation))
    x, y = (np.interp(z, SCORES, value) for z, value in zip(grid, quantiles.T, strict=True))
    points = np.stack([x.ravel(), y.ravel()], axis=-1)
    logs = in_padded_chunks(joint.log_prob, points, size=POINTS_PER_CALL)
    # Next to an edge of the support expectation propagation may fail at single points.
    density = np.nan_to_num(np.exp(logs), nan=0.0).reshape(x.shape)
    # `x` is constant along a row, so that the area of a cell is a product.
    areas = np.gradient(x, axis=0) * np.gradient(y, axis=1)
    mass = np.sum(density * areas)
    # It is 1 up to rounding and the approximation of the density, unless the grid loses some.
    if mass > 1.0 - LARGEST_LOSS:
        density = density / mass
    levels = mass_levels(density, density * areas, masses)
    return Region(x, y, _bordered(density), levels)


def kernel_region(points: FloatArray, masses: Sequence[float], names: Sequence[str]) -> Region:
    r"""Estimate the density of draws, shape ``(n, 2)``, and its regions.

    The kernel is normal with covariance :math:`n^{-1/3}` times that of the draws (Scott's rule,
    :math:`n^{-1/6}` standard deviations), applied to a histogram in whitened coordinates, where
    strong correlation needs no finer grid. A level is a quantile of the densities at the draws, by
    cells, so that its region holds that fraction of the draws for any width of the kernel.
    (D. W. Scott, Multivariate Density Estimation (1992).)
    """
    from scipy.ndimage import gaussian_filter

    center, covariance = points.mean(axis=0), np.cov(points.T)
    sd = np.sqrt(np.diag(covariance))
    is_resolved = sd > 1e-12 * np.abs(points).max(axis=0)
    if not is_resolved.all() or 1 - abs(covariance[0, 1] / sd.prod()) < 1e-12:
        raise ValueError(
            f"draws must have a density, got draws of outputs {' and '.join(names)} that lie on a "
            "line, or whose squares float64 cannot hold; pass other outputs, or scale these"
        )
    factor = np.linalg.cholesky(covariance)
    white = np.linalg.solve(factor, (points - center).T)
    bandwidth = len(points) ** (-1 / 6)
    low, high = np.quantile(white, [TAIL, 1 - TAIL], axis=1)
    low, high = low - 5 * bandwidth, high + 5 * bandwidth
    cells = np.ceil((high - low) / bandwidth * CELLS_PER_BANDWIDTH)
    cells = np.minimum(cells, MAXIMUM_CELLS).astype(int)
    counts, *edges = np.histogram2d(
        white[0], white[1], cells.tolist(), np.stack([low, high], axis=1)
    )
    width = (high - low) / cells
    smooth = gaussian_filter(counts, bandwidth / width, mode="constant")
    smooth = _bordered(smooth / (len(points) * np.prod(width) * np.prod(np.diag(factor))))
    middles = [(edge[1:] + edge[:-1]) / 2 for edge in edges]
    levels = mass_levels(smooth, counts / len(points), masses)
    return Region(*skewed(middles, center, factor), smooth, levels)


def _bordered(density: FloatArray) -> FloatArray:
    """The density with a border of zeros."""
    return np.pad(density[1:-1, 1:-1], 1)


def skewed(
    axes: Sequence[FloatArray], center: Any, factor: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Grid of the outputs from the axes of a regular one in whitened coordinates."""
    u, v = np.meshgrid(*axes, indexing="ij")
    return center[0] + factor[0, 0] * u, center[1] + factor[1, 0] * u + factor[1, 1] * v
