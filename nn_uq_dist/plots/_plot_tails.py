"""Tails of outputs: the probability beyond each value against the share of the draws."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import betaincinv, ndtr, ndtri

from nn_uq_dist.basics.concrete import FloatArray
from nn_uq_dist.diagnostics.arguments import Limits, Marginals, NetworkDraws
from nn_uq_dist.plots._panels import BLUE, GRAY, SMALL, add_limits, add_note, panels, set_range
from nn_uq_dist.plots._shown import Outputs, Units, prepare

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CURVE_POINTS = 201
POINTS_PER_TAIL = 12
# Smallest probability of a figure without draws.
SMALLEST = 1e-6
COVERAGE = 0.95


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
    if shown.draws is not None:
        shown.require_enough()
    made = panels("plot_tails", len(shown.names), ax)
    floor = SMALLEST if shown.draws is None else 0.3 / len(shown.draws)
    scores = np.linspace(-1, 1, CURVE_POINTS) * -ndtri(floor)
    curves = shown.functions.values(scores)
    for j, axis in enumerate(made.axes):
        axis.plot(curves[:, j], ndtr(-np.abs(scores)), color=BLUE, lw=1.6, label="predicted")
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
        set_range(axis, [low, high, *shown.limits[j]])
        axis.set_yscale("log")
        axis.set_ylim(floor, floor ** -shown.room(j))  # but no ticks above 1
        axis.set_yticks([10.0**k for k in range(math.ceil(math.log10(floor)), 1)])
        axis.minorticks_off()
        axis.set_xlabel(shown.labels[j])
        axis.tick_params(labelsize=SMALL)
        add_limits(axis, shown.limit_words(j))
        add_note(axis, shown.notes(j))
    made.axes[0].set_ylabel("probability of less | more")
    made.add_legend(place="lower center")
    return made.figure


def tail_shares(
    column: FloatArray, at: FloatArray, *, is_upper: bool
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Shares of sorted draws beyond values, NaN where there are none, and their intervals."""
    total, tail = column.size, (1 - COVERAGE) / 2
    count = np.searchsorted(column, at, side="right" if is_upper else "left")
    count = total - count if is_upper else count
    share = np.where(count > 0, count / total, np.nan)
    low = np.where(count > 0, betaincinv(np.maximum(count, 1), total - count + 1, tail), 0.0)
    left = np.maximum(total - count, 1)
    high = np.where(count < total, betaincinv(count + 1, left, 1 - tail), 1.0)
    return share, low, high
