"""Outputs one by one: densities over histograms of the draws, tails, and calibration."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.special import betaincinv, ndtr, ndtri

from nn_uq_dist.basics.concrete import FloatArray
from nn_uq_dist.diagnostics.arguments import Limits, Marginals, NetworkDraws, is_made_of
from nn_uq_dist.diagnostics.output_functions import Tails
from nn_uq_dist.plots import _shared
from nn_uq_dist.plots._shared import BLUE, GRAY, PALE, SKY, VERMILION, Figure, Outputs, Units

CURVE_POINTS = 201
POINTS_PER_TAIL = 12
# Smallest probability of a figure without draws.
SMALLEST = 1e-6
# Of intervals of tails and bands of calibration.
LEVEL = 0.95
DRAWN_RANKS = 1000


def plot_marginals(
    model: Marginals,
    draws: NetworkDraws | None = None,
    *,
    outputs: Outputs | None = None,
    limits: Limits | None = None,
    units: Units | None = None,
    output_names: Sequence[str] | None = None,
    ax: Any = None,
) -> Figure:
    """Plot the density of each output over a histogram of Monte Carlo draws.

    One panel per output: the density, filled from the 5 to the 95% quantile and darker from 25 to
    75%, and a line at the median. A panel shows all but a fraction ``1e-4`` of the distribution and
    of the draws on either side; the histogram is normalized by all draws.

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
        line, with the smaller of the probabilities above and below it, and the share of the draws
        with the half-width of its 95% interval.
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
    shown = _shared.prepare(model, draws, outputs, output_names, units=units, limits=limits)
    axes = _shared.panels("plot_marginals", len(shown.names), ax)
    (x, density), bands = shown.densities, shown.bands()
    for j, axis in enumerate(axes):
        for (a, b), color, name in (((0, 4), PALE, _shared.OUTER), ((1, 3), SKY, _shared.INNER)):
            inside = np.linspace(bands[a, j], bands[b, j], 101)
            heights = np.interp(inside, x[:, j], density[:, j])
            axis.fill_between(inside, heights, color=color, lw=0, label=name)
        shown.draw_density(axis, j)
        top = np.interp(bands[2, j], x[:, j], density[:, j])
        axis.vlines(bands[2, j], 0, top, BLUE, linestyles="dashed", lw=1, label=_shared.MEDIAN)
        axis.set_ylim(0, axis.dataLim.ymax * (1.06 + shown.room(j)))
        shown.describe(axis, j)
    axes[0].set_ylabel("density")
    side = "left" if sum(shown.free_part(axes[0])) <= 1 else "right"
    return _shared.finished(axes, ax, loc=f"center {side}")


def plot_tails(
    model: Marginals,
    draws: NetworkDraws | None = None,
    *,
    outputs: Outputs | None = None,
    limits: Limits | None = None,
    units: Units | None = None,
    output_names: Sequence[str] | None = None,
    ax: Any = None,
) -> Figure:
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
        As in `plot_marginals`. Where no draw lies beyond a value, a triangle below the upper end
        of the interval shows which probabilities `n` draws exclude.

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
    ['P(> 0.5) = 0.075', 'draws 0.07 ± 0.01']
    """
    shown = _shared.prepare(model, draws, outputs, output_names, units=units, limits=limits)
    shown.require_enough()
    axes = _shared.panels("plot_tails", len(shown.names), ax)
    floor = SMALLEST if shown.draws is None else 0.3 / len(shown.draws)
    scores = np.linspace(-1, 1, CURVE_POINTS) * -ndtri(floor)
    curves = shown.functions.values(scores)
    for j, axis in enumerate(axes):
        axis.plot(curves[:, j], ndtr(-np.abs(scores)), color=BLUE, lw=1.6, label=shown.word)
        low, middle, high = curves[[0, CURVE_POINTS // 2, -1], j]
        if shown.draws is not None:
            column = shown.columns[j]
            low, high = min(low, column[0]), max(high, column[-1])
            sides = [np.linspace(middle, end, POINTS_PER_TAIL + 1)[1:] for end in (low, high)]
            shares = [tail_shares(column, x, is_upper=k == 1) for k, x in enumerate(sides)]
            (share, least, most), x = np.hstack(shares), np.hstack(sides)
            seen, none = ~np.isnan(share), np.isnan(share)
            axis.vlines(x[seen], np.maximum(least, floor)[seen], most[seen], GRAY, lw=1)
            name = f"draws, {100 * LEVEL:g}% interval"
            axis.plot(x, share, "o", color=GRAY, ms=3.5, label=name)
            axis.plot(x[none], most[none], ls="", marker=7, color=GRAY, label="no draw: at most")
        ticks = [10.0**k for k in range(math.ceil(math.log10(floor)), 1)]  # but none above 1
        axis.set(yscale="log", ylim=(floor, floor ** -shown.room(j)), yticks=ticks)
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
    return _shared.finished(axes, ax, loc=f"lower {side}", bbox_to_anchor=(place, 0.0))


def plot_calibration(
    model: Marginals,
    draws: NetworkDraws,
    *,
    outputs: Outputs | None = None,
    output_names: Sequence[str] | None = None,
    progress: bool = True,
    ax: Any = None,
) -> Figure:
    r"""Plot how many more draws lie below a value than predicted, over the predicted probability.

    One panel per output: the empirical distribution function of the probability integral transforms
    ``F(draw)`` minus that of the uniform distribution. If the distribution is correct, it is 0 up
    to chance. A curve below 0 means that the draws are larger than predicted, a curve above 0 that
    they are smaller. A curve that first rises above 0 and then falls below it means that the
    distribution is too narrow, the opposite that it is too wide. More arches mean another shape.

    Parameters
    ----------
    model, draws, outputs, output_names, ax
        As in `plot_marginals`; the draws must be independent.
    progress
        Whether a progress bar may appear.

    Returns
    -------
    matplotlib.figure.Figure
        As in `plot_marginals`. New panels have the same vertical limits. The note gives the largest
        absolute difference, which is the Kolmogorov-Smirnov distance, what the curve says in words,
        and how many draws lie at or beyond an end of the support. A corrected model is not tested
        by the draws that it was made of, which cannot show its errors.

    Raises
    ------
    ImportError
        If Matplotlib is missing.
    TypeError, ValueError
        If arguments do not fit, or an output has fewer than 100 finite draws; this is checked
        before anything is drawn.

    See Also
    --------
    nn_uq_dist.diagnostics.to_datatree : With it ArviZ's ``plot_ecdf_pit`` shows the same.

    Notes
    -----
    The half-width of the band is :math:`\epsilon = \sqrt{\log(40) / (2 n)}`: with at least 95%
    probability, for any `n`, it holds the whole curve of an output whose distribution is correct
    (A. Dvoretzky, J. Kiefer, J. Wolfowitz, Ann. Math. Statist. 27 (1956); the constant is due to P.
    Massart, Ann. Probab. 18 (1990)). Every panel has its own band: of 31 correct distributions, one
    or two leave their bands. With many draws every approximation leaves it; then the size of the
    difference matters.

    Examples
    --------
    >>> import jax, jax.numpy as jnp, nn_uq_dist as nuq
    >>> marginals = nuq.LinearizedMarginal(jnp.zeros(2), jnp.array([[0.5, 0.3], [0.2, 0.4]]))
    >>> draws = marginals.sample(jax.random.key(0), (2_000,))
    >>> figure = nuq.plots.plot_calibration(marginals, draws)
    >>> print(figure.axes[0].texts[0].get_text())
    largest 0.013, band ±0.030
    no difference beyond chance
    """
    shown = _shared.prepare(model, draws, outputs, output_names)
    shown.require_enough()
    axes = _shared.panels("plot_calibration", len(shown.names), ax)
    tails = Tails(shown.functions, shown.draws, progress=progress)
    transforms = np.sort(tails.probabilities(), axis=0)  # NaN at the end
    is_own = is_made_of(model, draws)
    counts = np.array([column.size for column in shown.columns])
    curves = [ecdf_difference(transforms[:n, j]) for j, n in enumerate(counts)]
    bands = np.sqrt(math.log(2 / (1 - LEVEL)) / (2 * counts))
    tops = [max(np.abs(curve[1]).max(), band) for curve, band in zip(curves, bands, strict=True)]
    for j, (axis, curve, band) in enumerate(zip(axes, curves, bands, strict=True)):
        peak = curve[:, np.abs(curve[1]).argmax()]
        axis.axhspan(-band, band, color=PALE, lw=0, label=f"{100 * LEVEL:g}% band")
        axis.axhline(0, color="black", ls=":", lw=0.8)
        axis.plot(*curve, color=BLUE, lw=1.3, label="difference")
        axis.plot(*peak, "o", color=VERMILION, ms=4.5, label="largest")
        words = "no test: made of these draws" if is_own else difference_words(curve, band)
        lines = [f"largest {abs(peak[1]):.3f}, band ±{band:.3f}", words, *shown.notes(j)]
        if outside := tails.is_outside[:, j].sum():
            lines.append(f"outside the support: {outside}")
        _shared.add_note(axis, lines)
        axis.set_title(_shared.wrapped(shown.names[j]), fontsize="medium")
        top = max(tops) if ax is None else tops[j]
        # With room for the note.
        axis.set(xlim=(-0.02, 1.02), ylim=(-1.15 * top, 1.9 * top))
        axis.set_xlabel(f"probability of less, {shown.word}")
    axes[0].set_ylabel("share of draws with less\nminus this probability")
    return _shared.finished(axes, ax)


def tail_shares(
    column: FloatArray, values: FloatArray, *, is_upper: bool
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Shares of sorted draws beyond values, NaN where there are none, and their intervals."""
    total, tail = column.size, (1 - LEVEL) / 2
    count = np.searchsorted(column, values, side="right" if is_upper else "left")
    count = total - count if is_upper else count
    # NaN where all draws, or none, lie beyond.
    low = np.nan_to_num(betaincinv(count, total - count + 1, tail), nan=0.0)
    high = np.nan_to_num(betaincinv(count + 1, total - count, 1 - tail), nan=1.0)
    return np.where(count > 0, count / total, np.nan), low, high


def ecdf_difference(transforms: FloatArray) -> FloatArray:
    """Empirical minus uniform distribution function.

    The curve, ``(2, points)``, is at about a thousand of the ascending transforms, just below and
    at each, including the largest difference.
    """
    count = transforms.size
    steps = np.arange(count + 1) / count
    widest = np.argmax(np.maximum(steps[1:] - transforms, transforms - steps[:-1]))
    ranks = np.linspace(0, count - 1, min(count, DRAWN_RANKS)).astype(int)
    ranks = np.unique(np.append(ranks, widest))
    x = np.repeat(transforms[ranks], 2)
    y = np.stack([steps[ranks], steps[ranks + 1]], axis=-1).ravel() - x
    return np.array([[0.0, *x, 1.0], [0.0, *y, 0.0]])


def difference_words(curve: FloatArray, band: float) -> str:
    """What a curve of `ecdf_difference` says that leaves the band of chance, or does not."""
    _, y = curve
    low, high = -y.min(), y.max()
    if max(low, high) <= band:
        return "no difference beyond chance"
    # Arches that count: one for a shift, two for a wrong width, more for another shape, as of a
    # skewed distribution, whose width the curve does not show.
    signs = np.sign(y[np.abs(y) > max(band, max(low, high) / 3)])
    arches = signs[np.flatnonzero(np.diff(signs, prepend=0))]
    if arches.size > 2:
        return "draws of another shape than predicted"
    if arches.size == 2:
        return f"predicted too {'wide' if arches[0] < 0 else 'narrow'}"
    return f"draws {'larger' if low > high else 'smaller'} than predicted"
