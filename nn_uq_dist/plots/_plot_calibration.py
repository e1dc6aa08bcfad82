"""Calibration of outputs: the distribution of the probability integral transforms of draws."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from nn_uq_dist.basics.concrete import FloatArray
from nn_uq_dist.diagnostics.arguments import Marginals, NetworkDraws, is_made_of
from nn_uq_dist.diagnostics.output_functions import Tails
from nn_uq_dist.plots._panels import BLUE, PALE, VERMILION, add_note, finished, panels, wrapped
from nn_uq_dist.plots._shown import Outputs, prepare

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COVERAGE = 0.95
DRAWN_RANKS = 1000


def plot_calibration(
    model: Marginals,
    draws: NetworkDraws,
    *,
    outputs: Outputs | None = None,
    output_names: Sequence[str] | None = None,
    progress: bool = True,
    ax: Any = None,
) -> "Figure":
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
    shown = prepare(model, draws, outputs, output_names)
    shown.require_enough()
    axes = panels("plot_calibration", len(shown.names), ax)
    tails = Tails(shown.functions, shown.draws, progress=progress)
    transforms = np.sort(np.where(tails.is_finite, tails.probabilities(), np.nan), axis=0)
    is_own = is_made_of(model, draws)
    heights = []
    for j, axis in enumerate(axes):
        count = shown.columns[j].size
        band = dkw_half_width(count)
        curve, peak = ecdf_difference(transforms[:count, j])
        axis.axhspan(-band, band, color=PALE, lw=0, label=f"{100 * COVERAGE:g}% band")
        axis.axhline(0, color="black", ls=":", lw=0.8)
        axis.plot(*curve, color=BLUE, lw=1.3, label="difference")
        axis.plot(*peak, "o", color=VERMILION, ms=4.5, label="largest")
        words = "no test: made of these draws" if is_own else difference_words(curve, band)
        lines = [f"largest {abs(peak[1]):.3f}, band ±{band:.3f}", words, *shown.notes(j)]
        if outside := tails.is_outside[:, j].sum():
            lines.append(f"outside the support: {outside}")
        add_note(axis, lines)
        axis.set_xlim(-0.02, 1.02)
        axis.set_title(wrapped(shown.names[j]), fontsize="medium")
        axis.set_xlabel(f"probability of less, {shown.word}")
        heights.append(max(abs(peak[1]), band))
    for axis, height in zip(axes, heights, strict=True):
        top = max(heights) if ax is None else height
        axis.set_ylim(-1.15 * top, 1.9 * top)  # with room for the note
    axes[0].set_ylabel("share of draws with less\nminus this probability")
    return finished(axes, ax)


def dkw_half_width(count: int) -> float:
    """Half-width of the band about a distribution function that contains the empirical one."""
    return math.sqrt(math.log(2 / (1 - COVERAGE)) / (2 * count))


def ecdf_difference(transforms: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Empirical minus uniform distribution function, and the point of the largest difference.

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
    curve = np.array([[0.0, *x, 1.0], [0.0, *y, 0.0]])
    return curve, curve[:, np.abs(curve[1]).argmax()]


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
