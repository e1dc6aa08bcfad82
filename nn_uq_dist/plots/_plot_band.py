"""Quantile bands of the outputs, or of one output over points; error bars where no order is."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from jax.typing import ArrayLike
from scipy.special import ndtr

from nn_uq_dist.basics import checks
from nn_uq_dist.basics.concrete import FloatArray
from nn_uq_dist.diagnostics.arguments import Limits, Marginals, NetworkDraws
from nn_uq_dist.plots import _shared
from nn_uq_dist.plots._shared import BLUE, GRAY, Axes, Figure, Outputs, Shown, Units

PAGE_INCHES = 7.0
BESIDE = 0.14  # from a place, where error bars of model and draws stand


def plot_band(
    model: Marginals,
    draws: NetworkDraws | None = None,
    *,
    x: ArrayLike | None = None,
    outputs: Outputs | None = None,
    limits: Limits | None = None,
    units: Units | None = None,
    deviation: bool = False,
    xlabel: str | None = None,
    ylabel: str | None = None,
    output_names: Sequence[str] | None = None,
    point_names: Sequence[str] | None = None,
    ax: Any = None,
) -> Figure:
    """Plot the median and quantiles of the outputs, or of one output at several points.

    The bands are from the 5 to the 95% and from the 25 to the 75% quantile. At positions `x` they
    are joined; without `x` outputs or points have no order, and each has an error bar. Draws are
    shown by the same quantiles.

    For a batch of points, such as times or designs, the figure shows one output over the points.

    Parameters
    ----------
    model
        As in `plot_marginals`, or of a batch of points, batch shape ``(P, N_y)``.
    draws
        As in `plot_marginals`; for a batch of shape ``(n, P, N_y)``.
    x
        Ascending positions of the shown outputs, or of the points. Default: no order.
    outputs
        As in `plot_marginals`; of a batch the one output to show, needed if there are several.
    limits
        As in `plot_marginals`. Each is a line, with the largest of the probabilities beyond it, on
        the side that fewer medians lie, and the places that have it, to two digits; and the share
        of the draws at the first place.
    units
        One for all outputs, or a dict by output.
    deviation
        Whether to show deviations from the mean. It helps if the bands are narrow compared with the
        changes of the mean.
    xlabel
        Label of the positions. Default: ``"output"``, or ``"point"``.
    ylabel
        Label of the values. Default: the one unit, or the name of the one output with its unit.
    point_names
        Names of the points of a batch. Default: their numbers.
    output_names, ax
        As in `plot_marginals`.

    Returns
    -------
    matplotlib.figure.Figure
        As in `plot_marginals`.

    Raises
    ------
    ImportError
        If Matplotlib is missing.
    TypeError, ValueError
        If arguments do not fit, or a batch has several outputs and no choice of one; this is
        checked before anything is drawn.

    Examples
    --------
    >>> import jax, jax.numpy as jnp, nn_uq_dist as nuq
    >>> distribution = nuq.Input.box(jnp.zeros(2), half_width=1.0)
    >>> lin = nuq.linearize(lambda f: jnp.array([f[0], f[0] + f[1], 3 * f[1] + 1]), distribution)
    >>> draws = lin.sample(jax.random.key(0), (5_000,))
    >>> figure = nuq.plots.plot_band(lin, draws, x=[0.0, 0.5, 2.0], xlabel="time (s)")
    >>> line = figure.axes[0].lines[0]  # the medians
    >>> print(line.get_ydata().round(2) + 0.0)
    [0. 0. 1.]
    """
    shown = _shared.prepare(
        model, draws, outputs, output_names, units=units, limits=limits, point_names=point_names,
        over_points=True,
    )  # fmt: skip
    kind = "output" if shown.output is None else "point"
    positions = np.arange(len(shown.names), dtype=np.float64)
    if x is not None:
        positions = _as_positions(x, len(shown.names), kind)
    if deviation and any(shown.limits):
        raise ValueError("limits must be None with deviation=True, which shows no values")
    (axis,) = _shared.panels("plot_band", 1, ax, inches=(PAGE_INCHES, 3.4))
    origin = shown.functions.mean if deviation else 0.0
    quantiles = [shown.bands() - origin]
    if shown.draws is not None:
        of_draws = [np.quantile(y if y.size else [np.nan], _shared.LEVELS) for y in shown.columns]
        quantiles.append(np.transpose(of_draws) - origin)
    if x is None:
        _draw_bars(axis, positions, shown.word, quantiles)
        ticks, places = shown.names if isinstance(units, str) else shown.labels, shown.names
        _shared.write_names(axis, "x", positions, ticks)
        axis.set_xlim(-0.6, len(positions) - 0.4)
    else:
        _draw_bands(axis, positions, shown.word, quantiles)
        places = [f"{position:g}" for position in positions]
    axis.margins(y=0.12)
    _add_limits(axis, shown, positions, places)
    lines = [f"{kind} {name}: {n}" for j, name in enumerate(shown.names) for n in shown.notes(j)]
    if len(lines) > 3:
        lines[3:] = [f"and of {len(lines) - 3} others"]
    _shared.add_note(axis, lines)
    subject = shown.output or (units if isinstance(units, str) else "")
    subject = subject if ylabel is None else ylabel
    if deviation:
        subject = f"{subject}, deviation from the mean".lstrip(" ,")
    axis.set(xlabel=kind if xlabel is None else xlabel, ylabel=subject)
    return _shared.finished([axis], ax)


def _draw_bands(axis: Axes, x: FloatArray, word: str, quantiles: list[FloatArray]) -> None:
    """Bands of the model, and lines of the draws if there are any."""
    bands, *of_draws = quantiles
    axis.plot(x, bands[2], color=BLUE, lw=1.6, label=f"{word}: {_shared.MEDIAN}")
    axis.fill_between(x, bands[0], bands[4], color=_shared.PALE, lw=0, label=_shared.OUTER)
    axis.fill_between(x, bands[1], bands[3], color=_shared.SKY, lw=0, label=_shared.INNER)
    for values in of_draws:
        for k, style in enumerate(("--", ":", "-", ":", "--")):
            name = None if k else "the same of the draws"
            axis.plot(x, values[k], style, color=GRAY, lw=1, label=name)


def _draw_bars(axis: Axes, x: FloatArray, word: str, quantiles: list[FloatArray]) -> None:
    """Error bars of the model, and of the draws beside them."""
    words = f"{_shared.MEDIAN} (dot), {_shared.INNER} (thick), {_shared.OUTER} (thin)"
    names = f"{word}: {words}", "the same of the draws"
    for k, values in enumerate(quantiles):
        beside, color = x + BESIDE * (2 * k - len(quantiles) + 1), (BLUE, GRAY)[k]
        axis.plot(beside, values[2], "o", color=color, mfc="white", ms=4, zorder=3)
        axis.vlines(beside, values[0], values[4], color, lw=1)
        axis.vlines(beside, values[1], values[3], color, lw=3.5, label=names[k])


def _add_limits(axis: Axes, shown: Shown, positions: FloatArray, names: Sequence[str]) -> None:
    """Draw a line for each limit at the places that have it, with the largest probability."""
    for k, limit in enumerate(sorted({limit for limits in shown.limits for limit in limits})):
        places = np.flatnonzero([limit in limits for limits in shown.limits])
        scores = shown.scores_at(limit)[places]
        is_upper = np.median(scores) > 0
        beyond = ndtr(-scores if is_upper else scores)
        largest = f"{beyond.max():.2g}"
        text = f"P({'>' if is_upper else '<'} {limit:g}) = {largest}"
        if places.size > 1:
            ties = places[[f"{share:.2g}" == largest for share in beyond]].tolist()
            text = f"largest {text}, at {_words(ties, names)}"
        if shown.columns and (column := shown.columns[places[np.argmax(beyond)]]).size:
            of_draws = np.mean(column > limit if is_upper else column < limit)
            text += f"; draws there {of_draws:.2g}"
        if places.size == positions.size:
            axis.axhline(limit, color=_shared.VERMILION, lw=1.2)
        else:
            x = positions[places]
            axis.hlines(np.full(x.size, limit), x - 0.4, x + 0.4, _shared.VERMILION, lw=1.2)
        # Above the axes, where nothing is drawn.
        axis.annotate(
            text, (1, 1), xycoords="axes fraction", xytext=(0, 3 + 11 * k),
            textcoords="offset points", ha="right", color=_shared.VERMILION, fontsize=_shared.SMALL,
        )  # fmt: skip


def _words(ties: Sequence[int], names: Sequence[str]) -> str:
    """The names of places in ascending order; of several in a row the first and the last."""
    first, last = names[ties[0]], names[ties[-1]]
    if len(ties) == 1:
        return first
    is_row = ties[-1] - ties[0] == len(ties) - 1
    return f"{first} to {last}" if is_row else f"{first} and {len(ties) - 1} more"


def _as_positions(x: ArrayLike, count: int, kind: str) -> FloatArray:
    """Return the positions along the horizontal axis, ascending."""
    positions = np.asarray(checks.as_numeric("x", np.asarray(x)), np.float64)
    if positions.shape != (count,):
        raise ValueError(
            f"x must hold one position per {kind}, got shape {positions.shape}; pass {count}"
        )
    if not np.all(np.isfinite(positions)) or np.any(np.diff(positions) <= 0):
        raise ValueError(f"x must be finite and ascending, got {x!r}; sort the {kind}s by position")
    return positions
