"""Tails of each output: the analytic survival function against the draws beyond."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from jax.typing import ArrayLike
from numpy.typing import NDArray
from scipy.special import betaincinv, log_ndtr

from nn_uq_dist.diagnostics._arguments import Marginals
from nn_uq_dist.plots.parts import _figure, _palette, _shown_outputs
from nn_uq_dist.plots.parts._figure import Figure, Frame, PlotCollection, Visuals

Array = NDArray[np.float64]

GRID_POINTS = 256
POINTS_PER_TAIL = 13
# Two curves of log10 probabilities that differ by less than this look like one line.
SAME_CURVE = 0.005
VISUALS: _figure.Styles = {
    "analytic": {"color": _palette.BLUE, "width": 1.6},
    "analytic_lower": {"color": _palette.BLUE, "width": 1.6, "linestyle": _palette.DASHED},
    "upper": {"color": _palette.VERMILION, "size": 3.7**2},
    "lower": {"color": _palette.SKY, "size": 3.7**2},
    "upper_interval": {"color": _palette.VERMILION, "width": 1.0},
    "lower_interval": {"color": _palette.SKY, "width": 1.0},
    **_figure.FRAME_VISUALS,
}


def plot_tails(
    marginals: Marginals,
    draws: ArrayLike,
    *,
    coverage: float = 0.95,
    outputs: Sequence[int | str] | None = None,
    output_names: Sequence[str] | None = None,
    xlabel: str | None = "distance from the mean (sd)",
    ylabel: str | None = "probability beyond",
    plot_collection: PlotCollection | None = None,
    backend: str | None = None,
    visuals: Visuals | None = None,
    **pc_kwargs: Any,
) -> PlotCollection:
    """Plot the probability of each tail on a logarithmic scale, analytic and by Monte Carlo.

    One panel per output: the analytic ``P(X > mean + d)`` and ``P(X < mean - d)``, a single curve
    if the laws are symmetric, compared with the draws above and below the analytic mean.

    Parameters
    ----------
    marginals
        Laws of the `N_y` outputs, as in `plot_marginals`.
    draws
        Independent Monte Carlo draws, shape ``(n, N_y)``, ``n >= 100``. Draws that are NaN or
        infinite are warned about and left out.
    coverage
        Confidence level of the interval at each point.
    outputs
        Outputs to show, by position or name. Default: all.
    output_names
        Names of all `N_y` outputs, the titles of the panels. Default: those of the model, else
        ``y[0]``, ``y[1]``, ...
    xlabel, ylabel
        Labels of the axes; None for none. Distances are in standard deviations of the analytic law.
    plot_collection, backend, **pc_kwargs
        As in `plot_marginals`.
    visuals
        Options of each visual, or False to leave it out. Keys: `analytic`, `analytic_lower` (only
        for laws that are not symmetric), `upper`, `lower`, `upper_interval`, `lower_interval`,
        `title`, `ticks`, `xlabel`, `ylabel`, `legend`.

    Returns
    -------
    arviz_plots.PlotCollection
        The vertical values are log10 of probabilities, down to a third of a draw. Beyond the last
        draw of a tail there is no point, but the interval still shows which probabilities `n` draws
        exclude.

    Raises
    ------
    ImportError
        If ArviZ or Matplotlib is missing.
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
    >>> figure = nuq.plots.plot_tails(marginals, draws, backend="none")
    >>> line = figure.viz["analytic"]["values"].sel(output="y[0]").item()
    >>> print(round(10 ** float(line["y"][0]), 3))  # beyond the mean itself
    0.5
    """
    laws = _shown_outputs.prepare_outputs(marginals, draws, outputs, output_names)
    level = _shown_outputs.as_coverage(coverage)
    figure = Figure("plot_tails", VISUALS, visuals, plot_collection, backend, pc_kwargs)
    _shown_outputs.require_enough(laws.columns, laws.names)

    mean, sd = laws.mean, laws.sd
    scaled = [(x - m) / s for x, m, s in zip(laws.columns, mean, sd, strict=True)]
    farthest = np.array([max(-z[0], z[-1]) for z in scaled])
    reach = np.maximum(1.08 * farthest, 2.0)
    floor = np.array([np.log10(0.3 / z.size) for z in scaled])
    distance, upper, lower = _analytic_tails(laws, reach)
    # Matplotlib breaks a line at -inf; a value far below the panel is drawn as a drop.
    upper, lower = (np.maximum(x, 10 * floor[:, None]) for x in (upper, lower))
    # The curves may differ below the panel.
    seen = [np.maximum(x, floor[:, None]) for x in (upper, lower)]
    is_symmetric = np.max(np.abs(seen[0] - seen[1])) < SAME_CURVE

    curve = np.stack([distance, upper], axis=1)
    figure.one_panel_per_output(curve, laws.names)
    if is_symmetric:
        figure.line("analytic", curve, "analytic, both tails")
    else:
        figure.line("analytic", curve, "analytic, upper tail")
        figure.line("analytic_lower", np.stack([distance, lower], axis=1), "analytic, lower tail")
    for side, sign, shift in (("upper", 1, -0.006), ("lower", -1, 0.006)):
        rows = [
            _tail(z, far, low, sign, shift * far, level)
            for z, far, low in zip(scaled, reach, floor, strict=True)
        ]
        figure.line(f"{side}_interval", [bar for _, bar in rows])
        entry = f"{side} tail, {100 * level:g}% interval"
        figure.points(side, [point for point, _ in rows], entry)
    zeros = np.zeros(len(laws.names))
    return figure.finish(
        Frame(zeros, reach, floor, zeros),
        xlabel=xlabel,
        ylabel=ylabel,
        yticks=_decades(floor.min()),
    )


def _analytic_tails(laws: _shown_outputs.Outputs, reach: Array) -> tuple[Array, Array, Array]:
    """Return distances from the mean in sd, and log10 of the probabilities beyond on each side.

    Each has shape ``(outputs, 256)``. They come from normal scores, which resolve both tails.
    """
    distance = np.linspace(0, reach, GRID_POINTS)
    points = [laws.mean + sign * laws.sd * distance for sign in (1, -1)]
    scores, _ = laws.values_at(np.concatenate(points))
    upper = log_ndtr(-scores[:GRID_POINTS]) / np.log(10)
    lower = log_ndtr(scores[GRID_POINTS:]) / np.log(10)
    return distance.T, upper.T, lower.T


def _tail(
    scores: Array, reach: float, floor: float, sign: int, shift: float, coverage: float
) -> tuple[Array, Array]:
    """Return the points of a tail, ``(2, points)``, and their intervals as one line with gaps."""
    at = np.linspace(0, reach, POINTS_PER_TAIL + 1)[1:] * 0.98
    count = np.searchsorted(np.sort(-sign * scores), -at)
    low, high = clopper_pearson(count, scores.size, coverage)
    with np.errstate(divide="ignore"):
        estimate = np.where(count > 0, np.log10(count / scores.size), np.nan)
        low, high = np.maximum(np.log10(low), floor - 1), np.log10(high)
    at = at + shift  # next to the other tail, not on it
    gaps = np.full_like(at, np.nan)
    bars = [np.stack(rows, axis=-1).ravel() for rows in ((at, at, gaps), (low, high, gaps))]
    return np.stack([at, estimate]), np.stack(bars)


def _decades(floor: float) -> tuple[list[float], list[str]]:
    """Return up to five powers of ten above the floor, as logarithms, and their names."""
    lowest = math.ceil(floor)
    decades = range(0, lowest - 1, -math.ceil(-lowest / 4))
    return [float(d) for d in decades], ["1", *(f"1e{d}" for d in decades[1:])]


def clopper_pearson(count: NDArray[np.int64], total: int, coverage: float) -> tuple[Array, Array]:
    """Ends of the exact intervals of a binomial probability."""
    tail = (1 - coverage) / 2
    low = np.where(count > 0, betaincinv(np.maximum(count, 1), total - count + 1, tail), 0.0)
    left = np.maximum(total - count, 1)
    high = np.where(count < total, betaincinv(count + 1, left, 1 - tail), 1.0)
    return low, high
