"""Outputs one by one: densities over histograms of the draws, and tails against their shares."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import betaincinv, ndtr, ndtri

from nn_uq_dist.basics.concrete import FloatArray
from nn_uq_dist.diagnostics.arguments import Limits, Marginals, NetworkDraws
from nn_uq_dist.plots._panels import BLUE, GRAY, PALE, SKY, finished, panels
from nn_uq_dist.plots._shown import INNER, MEDIAN, OUTER, Outputs, Units, prepare

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CURVE_POINTS = 201
POINTS_PER_TAIL = 12
# Smallest probability of a figure without draws.
SMALLEST = 1e-6
COVERAGE = 0.95


def plot_marginals(
    model: Marginals,
    draws: NetworkDraws | None = None,
    *,
    outputs: Outputs | None = None,
    limits: Limits | None = None,
    units: Units | None = None,
    output_names: Sequence[str] | None = None,
    ax: Any = None,
) -> "Figure":
    """Plot the density of each output over a histogram of Monte Carlo draws.

    One panel per output: the density, filled from the 5 to the 95% quantile and darker from 25 to
    75%, and a line at the median. A panel shows 4 standard deviations on either side, cut at the
    ends of the support, and all but a fraction ``1e-4`` of the draws on either side; the histogram
    is normalized by all draws.

    Parameters
    ----------
    model
        A `Linearization` or any other `LinearModel`, without batch axes; or the distributions of
        `N_y` outputs: a `LinearizedMarginal` with batch shape ``(N_y,)``, a joint distribution, any
        univariate continuous NumPyro distribution
        (`nn_uq_dist.distributions.as_output_distribution`).
    draws
        Monte Carlo draws, shape ``(n, N_y)``, ``n >= 100``, or pairs. Default: no histogram. Draws
        that are NaN or infinite are warned about, counted in the panel, and left out.
    outputs
        Outputs to show, one or several, by position or name. Default: all.
    limits
        A number, or several, for all outputs; or a dict with the limits of some by name. Each is a
        line, with the smaller of the probabilities above and below it, and the share of the draws.
    units
        Unit of all outputs, or a dict with the units of some by name, for the labels of the axes.
    output_names
        Names of all `N_y` outputs. Default: those of the model, else ``y[0]``, ``y[1]``, ...
    ax
        Matplotlib axes to draw on, one for each output. Default: those of a new figure.

    Returns
    -------
    matplotlib.figure.Figure
        The figure of the axes; a new one is made by ``pyplot.subplots``.

    Raises
    ------
    ImportError
        If Matplotlib is missing.
    TypeError, ValueError
        If an argument does not fit; this is checked before anything is drawn.

    Examples
    --------
    >>> import jax, jax.numpy as jnp, nn_uq_dist as nuq
    >>> weights = jnp.array([[0.5, 0.3, 0.1], [0.2, 0.2, 0.4]])
    >>> marginals = nuq.LinearizedMarginal(jnp.zeros(2), weights)
    >>> draws = marginals.sample(jax.random.key(0), (10_000,))
    >>> figure = nuq.plots.plot_marginals(
    ...     marginals, draws, output_names=["level", "slope"], units="m", limits={"slope": 0.7}
    ... )
    >>> [axis.get_xlabel() for axis in figure.axes]
    ['level (m)', 'slope (m)']
    """
    shown = prepare(model, draws, outputs, output_names, units=units, limits=limits)
    axes = panels("plot_marginals", len(shown.names), ax)
    (x, density), bands = shown.densities, shown.bands()
    for j, axis in enumerate(axes):
        for (a, b), color, name in (((0, 4), PALE, OUTER), ((1, 3), SKY, INNER)):
            at = np.linspace(bands[a, j], bands[b, j], 101)
            heights = np.interp(at, x[:, j], density[:, j])
            axis.fill_between(at, heights, color=color, lw=0, label=name)
        shown.draw_density(axis, j)
        top = np.interp(bands[2, j], x[:, j], density[:, j])
        axis.vlines(bands[2, j], 0, top, BLUE, linestyles="dashed", lw=1, label=MEDIAN)
        axis.set_ylim(0, axis.dataLim.ymax * (1.06 + shown.room(j)))
        shown.describe(axis, j)
    axes[0].set_ylabel("density")
    side = "left" if sum(shown.free_part(axes[0])) <= 1 else "right"
    return finished(axes, ax, loc=f"center {side}")


def plot_tails(
    model: Marginals,
    draws: NetworkDraws | None = None,
    *,
    outputs: Outputs | None = None,
    limits: Limits | None = None,
    units: Units | None = None,
    output_names: Sequence[str] | None = None,
    ax: Any = None,
) -> "Figure":
    """Plot the probability beyond each value on a logarithmic scale, and the share of the draws.

    One panel per output. On the left of the median the curve is the probability of a smaller value,
    on the right that of a larger one; it ends at a third of a draw, or at 1e-6 without draws.

    Parameters
    ----------
    model, draws, outputs, limits, units, output_names, ax
        As in `plot_marginals`; the draws must be independent.

    Returns
    -------
    matplotlib.figure.Figure
        As in `plot_marginals`. Where no draw lies beyond a value there is no point, but the
        interval still shows which probabilities `n` draws exclude.

    Raises
    ------
    ImportError
        If Matplotlib is missing.
    TypeError, ValueError
        If arguments do not fit, or an output has fewer than 100 finite draws; this is checked
        before anything is drawn.

    Notes
    -----
    The 95% intervals are those of C. J. Clopper and E. S. Pearson, Biometrika 26 (1934): exact for
    the binomial count of draws beyond, for any `n`.

    Examples
    --------
    >>> import jax, jax.numpy as jnp, nn_uq_dist as nuq
    >>> marginals = nuq.LinearizedMarginal(jnp.zeros(2), jnp.array([[0.5, 0.3], [0.2, 0.4]]))
    >>> draws = marginals.sample(jax.random.key(0), (2_000,))
    >>> figure = nuq.plots.plot_tails(marginals, draws, limits=0.5)
    >>> figure.axes[0].texts[0].get_text().splitlines()
    ['P(> 0.5) = 0.075', 'draws 0.071 ± 0.006']
    """
    shown = prepare(model, draws, outputs, output_names, units=units, limits=limits)
    shown.require_enough()
    axes = panels("plot_tails", len(shown.names), ax)
    floor = SMALLEST if shown.draws is None else 0.3 / len(shown.draws)
    scores = np.linspace(-1, 1, CURVE_POINTS) * -ndtri(floor)
    curves = shown.functions.values(scores)
    for j, axis in enumerate(axes):
        axis.plot(curves[:, j], ndtr(-np.abs(scores)), color=BLUE, lw=1.6, label=shown.word)
        low, middle, high = curves[[0, CURVE_POINTS // 2, -1], j]
        if shown.draws is not None:
            column = shown.columns[j]
            low, high = min(low, column[0]), max(high, column[-1])
            for end in (low, high):
                at = np.linspace(middle, end, POINTS_PER_TAIL + 1)[1:]
                share, least, most = tail_shares(column, at, is_upper=end > middle)
                axis.vlines(at, np.maximum(least, floor), most, GRAY, lw=1)
                label = f"draws, {100 * COVERAGE:g}% interval" if end > middle else None
                axis.plot(at, share, "o", color=GRAY, ms=3.5, label=label)
        axis.set_yscale("log")
        axis.set_ylim(floor, floor ** -shown.room(j))  # but no ticks above 1
        axis.set_yticks([10.0**k for k in range(math.ceil(math.log10(floor)), 1)])
        axis.minorticks_off()
        shown.describe(axis, j)
    axes[0].set_ylabel("probability of less (left),\nof more (right)")
    # Below the curve, beside a limit.
    left, right = shown.free_part(axes[0])
    side, place = "center", 0.5
    if 0.5 < right < 0.75:
        side, place = "right", right
    elif 0.25 < left < 0.5:
        side, place = "left", left
    return finished(axes, ax, loc=f"lower {side}", bbox_to_anchor=(place, 0.0))


def tail_shares(
    column: FloatArray, at: FloatArray, *, is_upper: bool
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Shares of sorted draws beyond values, NaN where there are none, and their intervals."""
    total, tail = column.size, (1 - COVERAGE) / 2
    count = np.searchsorted(column, at, side="right" if is_upper else "left")
    count = total - count if is_upper else count
    # NaN where all draws, or none, lie beyond.
    low = np.nan_to_num(betaincinv(count, total - count + 1, tail), nan=0.0)
    high = np.nan_to_num(betaincinv(count + 1, total - count, 1 - tail), nan=1.0)
    return np.where(count > 0, count / total, np.nan), low, high
