"""Calibration of each output: the distribution of the probability integral transforms of draws."""

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
from nn_uq_dist.plots._frame import FRAME_VISUALS, Frame, finish, write
from nn_uq_dist.plots._legend import Entries, add_legend, area_entry, line_entry
from nn_uq_dist.plots._palette import BLUE, DOTTED, SKY, VERMILION
from nn_uq_dist.plots._panels import outer_panels, output_panels, panel_data
from nn_uq_dist.plots._shapes import area

if TYPE_CHECKING:
    from arviz_plots import PlotCollection

    from nn_uq_dist._linearization import Linearization
    from nn_uq_dist.distributions import LinearizedMarginal

Array = NDArray[np.float64]

DRAWN_RANKS = 1000
VISUALS: dict[str, Mapping[str, Any]] = {
    "band": {"color": SKY, "alpha": 0.35},
    "zero": {"color": "black", "linestyle": DOTTED, "width": 0.8},
    "difference": {"color": BLUE, "width": 1.3},
    "largest": {"color": VERMILION, "diameter": 4.7},
    "text": {"size": 7},
    **FRAME_VISUALS,
}


def plot_pit(
    marginals: "LinearizedMarginal | Linearization",
    draws: ArrayLike,
    *,
    coverage: float = 0.95,
    outputs: Sequence[int | str] | None = None,
    output_names: Sequence[str] | None = None,
    xlabel: str | None = "analytic F(draw)",
    ylabel: str | None = "ECDF - uniform",
    progress: bool = True,
    plot_collection: "PlotCollection | None" = None,
    backend: str | None = None,
    visuals: Visuals | None = None,
    **pc_kwargs: Any,
) -> "PlotCollection":
    r"""Plot how far the probability integral transforms of draws are from uniform.

    One panel per output: the empirical distribution function of ``F(draw)`` minus that of the
    uniform law. It is 0 if the law is right, up to chance. A curve below 0 says that the draws are
    larger than the law has them, one above 0 that they are smaller; one that goes up first and then
    down that the law is too narrow, and down and then up that it is too wide.

    Parameters
    ----------
    marginals
        Laws of the `N_y` outputs: a `LinearizedMarginal` with batch shape ``(N_y,)`` or a
        `Linearization`.
    draws
        Independent Monte Carlo draws, shape ``(n, N_y)``, ``n >= 100``. Draws that are NaN or
        infinite are warned about and left out.
    coverage
        Probability that all of the curve of one output lies in the band if its law is right: at
        least this, for any `n`.
    outputs
        Outputs to show, by position or name. Default: all.
    output_names
        Names of all `N_y` outputs, the titles of the panels. Default ``y[0]``, ``y[1]``, ...
    xlabel, ylabel
        Labels of the axes; None for none. Neither axis has a unit.
    progress
        Whether a progress bar may appear.
    plot_collection, backend, **pc_kwargs
        As in `plot_marginals`.
    visuals
        Options of each visual, or False to leave it out. Keys: `band`, `zero`, `difference`,
        `largest`, `text`, `title`, `ticks`, `xlabel`, `ylabel`, `legend`.

    Returns
    -------
    arviz_plots.PlotCollection
        All panels have the same vertical limits. The text gives the largest absolute difference,
        which is the Kolmogorov-Smirnov distance, and how many draws lie at or beyond an end of the
        support.

    Raises
    ------
    ImportError
        If ArviZ or the backend is missing.
    TypeError, ValueError
        If arguments do not fit, or an output has fewer than 100 finite draws; nothing is drawn
        before that is known.

    Notes
    -----
    The half-width of the band is :math:`\epsilon = \sqrt{\log(2 / (1 - c)) / (2 n)}` with the
    coverage `c` (A. Dvoretzky, J. Kiefer, J. Wolfowitz, Ann. Math. Statist. 27 (1956); the constant
    by P. Massart, Ann. Probab. 18 (1990)). Every panel has its own band: of 31 right laws, one or
    two leave theirs at 0.95. With many draws every approximation leaves it; what counts then is the
    size of the difference.

    Examples
    --------
    >>> import jax, jax.numpy as jnp, nn_uq_dist as nuq
    >>> marginals = nuq.LinearizedMarginal(jnp.zeros(2), jnp.array([[0.5, 0.3], [0.2, 0.4]]))
    >>> draws = marginals.sample(jax.random.key(0), (2_000,))
    >>> figure = nuq.plots.plot_pit(marginals, draws, backend="none")
    >>> print(figure.viz["text"]["values"].sel(output="y[0]").item()["string"])
    max |Δ| 0.013, band ±0.030
    """
    law, num_outputs = as_marginals(marginals)
    shown, names = choose_outputs(outputs, output_names, num_outputs)
    values = as_draws(draws, num_outputs)
    level = as_coverage(coverage)
    backend = as_backend(backend, plot_collection, "plots.plot_pit")
    options = as_visuals(visuals, VISUALS, backend)
    from arviz_plots import visuals as draw

    counts = [column.size for column in finite_draws(values[:, shown], names)]
    require_enough(counts, names)
    # The law has all outputs, so the draws of all are needed.
    tails = Tails(law, values, progress=progress)
    transforms = np.sort(tails.probabilities()[:, shown], axis=0)  # NaN last
    outside = tails.is_outside[:, shown].sum(axis=0)
    band = np.array([dkw_half_width(count, level) for count in counts])
    found = [ecdf_difference(transforms[:count, j]) for j, count in enumerate(counts)]
    peaks = np.array([peak for _, peak in found])

    size = max(np.abs(peaks[:, 1]).max(), band.max())
    ends = np.ones(len(shown))
    frame = Frame(-0.02 * ends, 1.02 * ends, -1.15 * size * ends, 1.75 * size * ends)
    data = panel_data(_stacked([curve for curve, _ in found]), ["x", "y"], names)
    is_own = plot_collection is None
    figure = output_panels(data, plot_collection, backend, pc_kwargs)

    legend: Entries = {}
    if (style := options["band"]) is not None:
        sides = [[[0.0, 1.0], [-e, -e], [e, e]] for e in band]
        rows = panel_data(sides, ["x", "y_bottom", "y_top"], names)
        figure.map(area, "band", data=rows, **style)
        legend[f"{100 * level:g}% band (Dvoretzky-Kiefer-Wolfowitz)"] = area_entry(style)
    if (style := options["zero"]) is not None:
        line = panel_data([[[0.0, 1.0], [0.0, 0.0]]] * len(shown), ["x", "y"], names)
        figure.map(draw.line_xy, "zero", data=line, **style)
    if (style := options["difference"]) is not None:
        figure.map(draw.line_xy, "difference", data=data, **style)
        legend["Monte Carlo - analytic"] = line_entry(style)
    if (style := options["largest"]) is not None:
        rows = panel_data(peaks[:, :, None], ["x", "y"], names)
        figure.map(draw.scatter_xy, "largest", data=rows, **style)
        marker = {"linestyle": "none", "marker": "o"} if figure.backend == "matplotlib" else {}
        legend["largest"] = {**line_entry(style), **marker}
    if (style := options["text"]) is not None:
        texts = [
            f"max |Δ| {abs(peak):.3f}, band ±{e:.3f}"
            + (f"\noutside the support: {gone}" if gone else "")
            for peak, e, gone in zip(peaks[:, 1], band, outside, strict=True)
        ]
        write(figure, "text", names, frame, texts, style)
    finish(
        figure,
        options,
        names,
        frame,
        labels=(xlabel, ylabel),
        outer=outer_panels(figure, is_own),
        xticks=([0.0, 0.5, 1.0], ["0", "0.5", "1"]),
    )
    add_legend(figure, legend, options["legend"])
    return figure


def _stacked(curves: Sequence[Array]) -> Array:
    """Stack curves of different lengths; repeats of the last point draw nothing."""
    longest = max(curve.shape[1] for curve in curves)
    padded = [np.pad(c, [(0, 0), (0, longest - c.shape[1])], mode="edge") for c in curves]
    return np.stack(padded)


def dkw_half_width(count: int, coverage: float) -> float:
    """Half-width of the band about a distribution function that holds an empirical one."""
    return math.sqrt(math.log(2 / (1 - coverage)) / (2 * count))


def ecdf_difference(transforms: Array) -> tuple[Array, Array]:
    """Empirical minus uniform distribution function, and where they differ most.

    Parameters
    ----------
    transforms
        Ascending, shape ``(n,)``.

    Returns
    -------
    (ndarray, ndarray)
        The curve, shape ``(2, points)``: at about a thousand of the draws, just below and at each,
        so that the largest difference is a point of it. That point, shape ``(2,)``.
    """
    count = transforms.size
    steps = np.arange(count + 1) / count
    below, at = steps[:-1] - transforms, steps[1:] - transforms
    gaps = np.maximum(np.abs(below), np.abs(at))
    widest = int(np.argmax(gaps))
    ranks = np.unique(
        np.append(np.linspace(0, count - 1, min(count, DRAWN_RANKS)).astype(int), widest)
    )
    x = np.repeat(transforms[ranks], 2)
    y = np.stack([below[ranks], at[ranks]], axis=-1).ravel()
    curve = np.stack([np.concatenate([[0.0], x, [1.0]]), np.concatenate([[0.0], y, [0.0]])])
    value = at[widest] if abs(at[widest]) >= abs(below[widest]) else below[widest]
    return curve, np.array([transforms[widest], value])
