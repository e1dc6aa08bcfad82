"""Calibration of outputs: the distribution of the probability integral transforms of draws."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from nn_uq_dist.diagnostics.arguments import Marginals, NetworkDraws, is_made_of
from nn_uq_dist.diagnostics.output_functions import Tails
from nn_uq_dist.plots._curves import difference_words, dkw_half_width, ecdf_difference
from nn_uq_dist.plots._panels import BLUE, SKY, SMALL, VERMILION, add_note, panels
from nn_uq_dist.plots._shown import as_coverage, prepare

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def plot_calibration(
    model: Marginals,
    draws: NetworkDraws,
    *,
    coverage: float = 0.95,
    outputs: Sequence[int | str] | None = None,
    output_names: Sequence[str] | None = None,
    progress: bool = True,
    ax: Any = None,
) -> "Figure":
    r"""Plot how many more draws lie below a value than predicted, over the predicted probability.

    One panel per output: the empirical distribution function of the probability integral transforms
    ``F(draw)`` minus that of the uniform distribution. If the distribution is correct, it is 0 up
    to chance. A curve below 0 means that the draws are larger than predicted, a curve above 0 that
    they are smaller. A curve that first rises above 0 and then falls below it means that the
    distribution is too narrow, the opposite that it is too wide.

    Parameters
    ----------
    model
        Model or distributions of the `N_y` outputs, as in `plot_marginals`.
    draws
        Independent Monte Carlo draws, shape ``(n, N_y)``, ``n >= 100``, or pairs. Draws that are
        NaN or infinite are warned about, counted in the panel, and left out.
    coverage
        Probability that the whole curve of one output lies in the band if its distribution is
        correct; the actual probability is at least this, for any `n`.
    outputs, output_names, ax
        As in `plot_marginals`.
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
    The half-width of the band is :math:`\epsilon = \sqrt{\log(2 / (1 - c)) / (2 n)}` with the
    coverage `c` (A. Dvoretzky, J. Kiefer, J. Wolfowitz, Ann. Math. Statist. 27 (1956); the constant
    is due to P. Massart, Ann. Probab. 18 (1990)). Every panel has its own band: of 31 correct
    distributions, one or two leave their bands at 0.95. With many draws every approximation leaves
    it; then the size of the difference matters.

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
    shown = prepare(model, draws, outputs, output_names)
    level = as_coverage(coverage)
    assert shown.draws is not None  # noqa: S101 (`draws` is no optional argument)
    shown.require_enough()
    made = panels("plot_calibration", len(shown.names), ax)
    tails = Tails(shown.functions, shown.draws, progress=progress)
    transforms = np.sort(np.where(tails.is_finite, tails.probabilities(), np.nan), axis=0)
    is_own = is_made_of(model, draws)
    heights = []
    for j, axis in enumerate(made.axes):
        count = shown.columns[j].size
        band = dkw_half_width(count, level)
        curve, peak = ecdf_difference(transforms[:count, j])
        axis.axhspan(-band, band, color=SKY, alpha=0.35, lw=0, label=f"{100 * level:g}% band")
        axis.axhline(0, color="black", ls=":", lw=0.8)
        axis.plot(*curve, color=BLUE, lw=1.3, label="share of draws below - predicted")
        axis.plot(*peak, "o", color=VERMILION, ms=4.5, label="largest")
        words = "no test: made of these draws" if is_own else difference_words(curve, band)
        lines = [f"largest {abs(peak[1]):.3f}, band ±{band:.3f}", words, *shown.notes(j)]
        if outside := tails.is_outside[:, j].sum():
            lines.append(f"outside the support: {outside}")
        add_note(axis, lines)
        axis.set_xlim(-0.02, 1.02)
        axis.set_title(shown.names[j], fontsize="medium")
        axis.set_xlabel("predicted probability below")
        axis.tick_params(labelsize=SMALL)
        heights.append(max(abs(peak[1]), band))
    for axis, height in zip(made.axes, heights, strict=True):
        top = max(heights) if made.is_new else height
        axis.set_ylim(-1.15 * top, 1.9 * top)  # with room for the note
    made.axes[0].set_ylabel("difference")
    made.add_legend()
    return made.figure
