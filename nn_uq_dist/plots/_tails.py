"""Tails of each output: the analytic survival function against the draws beyond."""

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from jax.typing import ArrayLike
from numpy.typing import NDArray

from nn_uq_dist.diagnostics._arguments import as_draws, as_marginals, finite_draws
from nn_uq_dist.diagnostics._tails import Tails
from nn_uq_dist.plots._arguments import (
    Visuals,
    as_coverage,
    as_visuals,
    choose_outputs,
    require_enough,
)
from nn_uq_dist.plots._backends import as_backend
from nn_uq_dist.plots._frame import FRAME_VISUALS, Frame, finish
from nn_uq_dist.plots._legend import Entries, add_legend, line_entry
from nn_uq_dist.plots._output_curves import mean_and_sd
from nn_uq_dist.plots._palette import BLUE, SKY, VERMILION
from nn_uq_dist.plots._panels import outer_panels, output_panels, panel_data
from nn_uq_dist.plots._shapes import segments

if TYPE_CHECKING:
    from arviz_plots import PlotCollection

    from nn_uq_dist._linearization import Linearization
    from nn_uq_dist.distributions import LinearizedMarginal

Array = NDArray[np.float64]

GRID_POINTS = 256
POINTS_PER_TAIL = 13
VISUALS: dict[str, Mapping[str, Any]] = {
    "analytic": {"color": BLUE, "width": 1.6},
    "upper": {"color": VERMILION, "diameter": 3.7},
    "lower": {"color": SKY, "diameter": 3.7},
    "upper_interval": {"color": VERMILION, "width": 1.0},
    "lower_interval": {"color": SKY, "width": 1.0},
    **FRAME_VISUALS,
}


def plot_tails(
    marginals: "LinearizedMarginal | Linearization",
    draws: ArrayLike,
    *,
    coverage: float = 0.95,
    outputs: Sequence[int | str] | None = None,
    output_names: Sequence[str] | None = None,
    xlabel: str | None = "distance from the mean (sd)",
    ylabel: str | None = "probability beyond",
    plot_collection: "PlotCollection | None" = None,
    backend: str | None = None,
    visuals: Visuals | None = None,
    **pc_kwargs: Any,
) -> "PlotCollection":
    """Plot the probability of each tail on a logarithmic scale, analytic and by Monte Carlo.

    One panel per output. The analytic law is symmetric, so that one curve ``P(X > mean + d)`` is
    that of both tails; the draws above and below the analytic mean are counted apart.

    Parameters
    ----------
    marginals
        Laws of the `N_y` outputs: a `LinearizedMarginal` with batch shape ``(N_y,)`` or a
        `Linearization`.
    draws
        Independent Monte Carlo draws, shape ``(n, N_y)``, ``n >= 100``. Draws that are NaN or
        infinite are warned about and left out.
    coverage
        Confidence level of the interval at each single point.
    outputs
        Outputs to show, by position or name. Default: all.
    output_names
        Names of all `N_y` outputs, the titles of the panels. Default ``y[0]``, ``y[1]``, ...
    xlabel, ylabel
        Labels of the axes; None for none. Distances are in standard deviations of the analytic law.
    plot_collection, backend, **pc_kwargs
        As in `plot_marginals`.
    visuals
        Options of each visual, or False to leave it out. Keys: `analytic`, `upper`, `lower`,
        `upper_interval`, `lower_interval`, `title`, `ticks`, `xlabel`, `ylabel`, `legend`.

    Returns
    -------
    arviz_plots.PlotCollection
        The vertical values are log10 of probabilities, down to a third of a draw. Beyond the last
        draw of a tail there is no point, but the interval still says what `n` draws exclude.

    Raises
    ------
    ImportError
        If ArviZ or the backend is missing.
    TypeError, ValueError
        If arguments do not fit, or an output has fewer than 100 finite draws; nothing is drawn
        before that is known.

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
    law, num_outputs = as_marginals(marginals)
    shown, names = choose_outputs(outputs, output_names, num_outputs)
    values = as_draws(draws, num_outputs)[:, shown]
    level = as_coverage(coverage)
    backend = as_backend(backend, plot_collection, "plots.plot_tails")
    options = as_visuals(visuals, VISUALS, backend)
    from arviz_plots import visuals as draw

    columns = finite_draws(values, names)
    require_enough([column.size for column in columns], names)
    mean, sd = mean_and_sd(law, num_outputs)
    scores = [(column - mean[j]) / sd[j] for column, j in zip(columns, shown, strict=True)]
    farthest = np.array([max(-z[0], z[-1]) for z in scores])
    reach = np.maximum(1.08 * farthest, 2.0)
    floor = np.array([np.log10(0.3 / z.size) for z in scores])

    distance = np.ones((GRID_POINTS, num_outputs))
    distance[:, shown] = np.linspace(0, reach, GRID_POINTS)
    log_tail = Tails(law, mean + sd * distance, progress=False).log_tail
    curve = np.stack([distance[:, shown].T, log_tail[:, shown].T / np.log(10)], axis=1)
    # Matplotlib breaks a line at -inf. Far below the panel it is drawn as the drop that it is.
    curve[:, 1] = np.maximum(curve[:, 1], 10 * floor[:, None])

    data = panel_data(curve, ["x", "y"], names)
    is_own = plot_collection is None
    figure = output_panels(data, plot_collection, backend, pc_kwargs)
    legend: Entries = {}
    if (style := options["analytic"]) is not None:
        figure.map(draw.line_xy, "analytic", data=data, **style)
        legend["analytic, both tails"] = line_entry(style)
    for side, sign, shift in (("upper", 1, -0.006), ("lower", -1, 0.006)):
        rows = [
            _tail(z, far, low, sign, shift * far, level)
            for z, far, low in zip(scores, reach, floor, strict=True)
        ]
        if (style := options[f"{side}_interval"]) is not None:
            bars = panel_data([bar for _, bar in rows], ["x", "y"], names)
            figure.map(draw.line_xy, f"{side}_interval", data=bars, **style)
            legend[f"{side} tail, {100 * level:g}% interval"] = line_entry(style)
        if (style := options[side]) is not None:
            points = panel_data([point for point, _ in rows], ["x", "y"], names)
            figure.map(draw.scatter_xy, side, data=points, **style)
    zeros = np.zeros(len(shown))
    finish(
        figure,
        options,
        names,
        Frame(zeros, reach, floor, zeros),
        labels=(xlabel, ylabel),
        outer=outer_panels(figure, is_own),
        yticks=_decades(floor.min()),
    )
    add_legend(figure, legend, options["legend"])
    return figure


def _tail(
    scores: Array, reach: float, floor: float, sign: int, shift: float, coverage: float
) -> tuple[Array, Array]:
    """Return the points of a tail, ``(2, points)``, and their intervals as one line with gaps."""
    at = np.linspace(0, reach, POINTS_PER_TAIL + 1)[1:] * 0.98
    count = beyond(scores, at, sign)
    low, high = clopper_pearson(count, scores.size, coverage)
    with np.errstate(divide="ignore"):
        estimate = np.where(count > 0, np.log10(count / scores.size), np.nan)
        low, high = np.maximum(np.log10(low), floor - 1), np.log10(high)
    at = at + shift  # beside the other tail, not on it
    return np.stack([at, estimate]), segments(at, low, high)


def _decades(floor: float) -> tuple[list[float], list[str]]:
    """Return up to five powers of ten above the floor, as logarithms, and their names."""
    lowest = math.ceil(floor)
    decades = range(0, lowest - 1, -math.ceil(-lowest / 4))
    return [float(d) for d in decades], ["1", *(f"1e{d}" for d in decades[1:])]


def beyond(scores: Array, distances: Array, sign: int) -> NDArray[np.int64]:
    """Count the ascending scores above the distances, or below their negatives."""
    if sign > 0:
        return np.asarray(scores.size - np.searchsorted(scores, distances, side="right"))
    return np.asarray(np.searchsorted(scores, -distances, side="left"))


def clopper_pearson(count: NDArray[np.int64], total: int, coverage: float) -> tuple[Array, Array]:
    """Ends of the exact intervals of a binomial probability."""
    from scipy.special import betaincinv

    tail = (1 - coverage) / 2
    low = np.where(count > 0, betaincinv(np.maximum(count, 1), total - count + 1, tail), 0.0)
    left = np.maximum(total - count, 1)
    high = np.where(count < total, betaincinv(count + 1, left, 1 - tail), 1.0)
    return low, high
