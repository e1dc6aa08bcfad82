"""Calibration of each output: the distribution of the probability integral transforms of draws."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from jax.typing import ArrayLike
from numpy.typing import NDArray

from nn_uq_dist.diagnostics._arguments import Marginals, is_made_of
from nn_uq_dist.plots.parts import _figure, _palette, _shapes, _shown_outputs
from nn_uq_dist.plots.parts._figure import Figure, Frame, PlotCollection, Visuals

Array = NDArray[np.float64]

DRAWN_RANKS = 1000
VISUALS: _figure.Styles = {
    "band": {"color": _palette.SKY, "alpha": 0.35},
    "zero": {"color": "black", "linestyle": _palette.DOTTED, "width": 0.8},
    "difference": {"color": _palette.BLUE, "width": 1.3},
    "largest": {"color": _palette.VERMILION, "size": 4.7**2},
    "text": {"size": 7},
    **_figure.FRAME_VISUALS,
}


def plot_pit(
    marginals: Marginals,
    draws: ArrayLike,
    *,
    coverage: float = 0.95,
    outputs: Sequence[int | str] | None = None,
    output_names: Sequence[str] | None = None,
    xlabel: str | None = "analytic F(draw)",
    ylabel: str | None = "ECDF - uniform",
    progress: bool = True,
    plot_collection: PlotCollection | None = None,
    backend: str | None = None,
    visuals: Visuals | None = None,
    **pc_kwargs: Any,
) -> PlotCollection:
    r"""Plot how far the probability integral transforms of draws are from uniform.

    One panel per output: the empirical distribution function of ``F(draw)`` minus that of the
    uniform law. If the law is correct, it is 0 up to chance. A curve below 0 means that the draws
    are larger than the law predicts, a curve above 0 that they are smaller. A curve that first
    rises above 0 and then falls below it means that the law is too narrow, the opposite that it is
    too wide.

    Parameters
    ----------
    marginals
        Laws of the `N_y` outputs, as in `plot_marginals`.
    draws
        Independent Monte Carlo draws, shape ``(n, N_y)``, ``n >= 100``. Draws that are NaN or
        infinite are warned about and left out.
    coverage
        Probability that the whole curve of one output lies in the band if its law is correct; the
        actual probability is at least this, for any `n`.
    outputs
        Outputs to show, by position or name. Default: all.
    output_names
        Names of all `N_y` outputs, the titles of the panels. Default: those of the model, else
        ``y[0]``, ``y[1]``, ...
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
        support; and whether the law is that of a corrected model made of these very draws, which
        cannot show its errors.

    Raises
    ------
    ImportError
        If ArviZ or Matplotlib is missing.
    TypeError, ValueError
        If arguments do not fit, or an output has fewer than 100 finite draws; this is checked
        before anything is drawn.

    Notes
    -----
    The half-width of the band is :math:`\epsilon = \sqrt{\log(2 / (1 - c)) / (2 n)}` with the
    coverage `c` (A. Dvoretzky, J. Kiefer, J. Wolfowitz, Ann. Math. Statist. 27 (1956); the constant
    is due to P. Massart, Ann. Probab. 18 (1990)). Every panel has its own band: of 31 correct laws,
    one or two leave their bands at 0.95. With many draws every approximation leaves it; then the
    size of the difference matters.

    Examples
    --------
    >>> import jax, jax.numpy as jnp, nn_uq_dist as nuq
    >>> marginals = nuq.LinearizedMarginal(jnp.zeros(2), jnp.array([[0.5, 0.3], [0.2, 0.4]]))
    >>> draws = marginals.sample(jax.random.key(0), (2_000,))
    >>> figure = nuq.plots.plot_pit(marginals, draws, backend="none")
    >>> print(figure.viz["text"]["values"].sel(output="y[0]").item()["string"])
    max |Δ| 0.013, band ±0.030
    """
    laws = _shown_outputs.prepare_outputs(marginals, draws, outputs, output_names)
    level = _shown_outputs.as_coverage(coverage)
    figure = Figure("plot_pit", VISUALS, visuals, plot_collection, backend, pc_kwargs)
    _shown_outputs.require_enough(laws.columns, laws.names)

    counts = [column.size for column in laws.columns]
    probabilities, is_outside = laws.transforms(progress=progress)
    transforms = np.sort(probabilities, axis=0)  # NaN last
    outside = is_outside.sum(axis=0)
    band = np.array([dkw_half_width(count, level) for count in counts])
    found = [ecdf_difference(transforms[:count, j]) for j, count in enumerate(counts)]
    peaks = np.array([peak for _, peak in found])

    size = max(np.abs(peaks[:, 1]).max(), band.max())
    ends = np.ones(len(counts))
    frame = Frame(-0.02 * ends, 1.02 * ends, -1.15 * size * ends, 1.75 * size * ends)
    curves = _shapes.stacked([curve for curve, _ in found])
    figure.one_panel_per_output(curves, laws.names)
    title = f"{100 * level:g}% band (Dvoretzky-Kiefer-Wolfowitz)"
    figure.area("band", [[[0.0, 1.0], [-e, -e], [e, e]] for e in band], title)
    figure.line("zero", [[[0.0, 1.0], [0.0, 0.0]]] * len(counts))
    figure.line("difference", curves, "Monte Carlo - analytic")
    figure.points("largest", peaks[:, :, None], "largest")
    texts = [
        f"max |Δ| {abs(peak):.3f}, band ±{e:.3f}"
        + (f"\noutside the support: {gone}" if gone else "")
        + ("\nno test: the law is made of these draws" if is_made_of(marginals, draws) else "")
        for peak, e, gone in zip(peaks[:, 1], band, outside, strict=True)
    ]
    figure.texts("text", frame, texts)
    ticks = ([0.0, 0.5, 1.0], ["0", "0.5", "1"])
    return figure.finish(frame, xlabel=xlabel, ylabel=ylabel, xticks=ticks)


def dkw_half_width(count: int, coverage: float) -> float:
    """Half-width of the band about a distribution function that contains the empirical one."""
    return math.sqrt(math.log(2 / (1 - coverage)) / (2 * count))


def ecdf_difference(transforms: Array) -> tuple[Array, Array]:
    """Empirical minus uniform distribution function, and the point of the largest difference.

    Parameters
    ----------
    transforms
        Ascending, shape ``(n,)``.

    Returns
    -------
    (ndarray, ndarray)
        The curve, shape ``(2, points)``: at about a thousand of the draws, just below and at each,
        including the largest difference. The point of the largest difference, shape ``(2,)``.
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
