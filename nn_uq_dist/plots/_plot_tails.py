"""Tails of outputs: the probability beyond each value against the share of the draws."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import ndtr, ndtri

from nn_uq_dist.basics.concrete import FloatArray
from nn_uq_dist.diagnostics.arguments import Marginals, NetworkDraws
from nn_uq_dist.plots._curves import clopper_pearson
from nn_uq_dist.plots._panels import BLUE, GRAY, SMALL, add_limits, add_note, panels, set_range
from nn_uq_dist.plots._shown import Limits, Units, as_coverage, prepare

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CURVE_POINTS = 201
POINTS_PER_TAIL = 12
# Smallest probability of a figure without draws.
SMALLEST = 1e-6


def plot_tails(
    model: Marginals,
    draws: NetworkDraws | None = None,
    *,
    coverage: float = 0.95,
    outputs: Sequence[int | str] | None = None,
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
    model
        Model or distributions of the `N_y` outputs, as in `plot_marginals`.
    draws
        Independent Monte Carlo draws, shape ``(n, N_y)``, ``n >= 100``, or pairs. Draws that are
        NaN or infinite are warned about, counted in the panel, and left out.
    coverage
        Confidence level of the interval at each point.
    outputs, limits, units, output_names, ax
        As in `plot_marginals`.

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
    The intervals are those of C. J. Clopper and E. S. Pearson, Biometrika 26 (1934): exact for the
    binomial count of draws beyond, for any `n`.

    Examples
    --------
    >>> import jax, jax.numpy as jnp, nn_uq_dist as nuq
    >>> marginals = nuq.LinearizedMarginal(jnp.zeros(2), jnp.array([[0.5, 0.3], [0.2, 0.4]]))
    >>> draws = marginals.sample(jax.random.key(0), (2_000,))
    >>> figure = nuq.plots.plot_tails(marginals, draws, limits=0.5)
    >>> figure.axes[0].texts[0].get_text().splitlines()
    ['P(> 0.5) = 0.075', 'draws 0.071']
    """
    shown = prepare(model, draws, outputs, output_names, units=units, limits=limits)
    level = as_coverage(coverage)
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
                share, least, most = tail_shares(column, at, level, is_upper=end > middle)
                axis.vlines(at, np.maximum(least, floor), most, GRAY, lw=1)
                label = f"draws, {100 * level:g}% interval" if end > middle else None
                axis.plot(at, share, "o", color=GRAY, ms=3.5, label=label)
        set_range(axis, [low, high, *shown.limits[j]])
        axis.set_yscale("log")
        # Room for what is written at the top, without probabilities above 1.
        room = 0.3 if shown.limits[j] or shown.notes(j) else 0.0
        axis.set_ylim(floor, floor**-room)
        axis.set_yticks([10.0**k for k in range(math.ceil(math.log10(floor)), 1)])
        axis.minorticks_off()
        axis.set_xlabel(shown.labels[j])
        axis.tick_params(labelsize=SMALL)
        add_limits(axis, shown.limit_words(j))
        add_note(axis, shown.notes(j))
    made.axes[0].set_ylabel("probability beyond")
    made.add_legend(place="lower center")
    return made.figure


def tail_shares(
    column: FloatArray, at: FloatArray, coverage: float, *, is_upper: bool
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Shares of sorted draws beyond values, NaN where there are none, and their intervals."""
    count = np.searchsorted(column, at, side="right" if is_upper else "left")
    count = column.size - count if is_upper else count
    share = np.where(count > 0, count / column.size, np.nan)
    return share, *clopper_pearson(count, column.size, coverage)
