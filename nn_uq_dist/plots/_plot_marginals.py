"""Densities of outputs over histograms of their Monte Carlo draws."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from nn_uq_dist.diagnostics.arguments import Limits, Marginals, NetworkDraws
from nn_uq_dist.plots import _panels
from nn_uq_dist.plots._panels import BLUE, SKY, SMALL
from nn_uq_dist.plots._shown import INNER, MEDIAN, OUTER, Outputs, Units, prepare

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def plot_marginals(
    model: Marginals,
    draws: NetworkDraws | None = None,
    *,
    outputs: Outputs | None = None,
    limits: Limits | None = None,
    units: Units | None = None,
    output_names: Sequence[str] | None = None,
    ax: Any = None,
) -> "Figure":
    """Plot the density of each output over a histogram of Monte Carlo draws.

    One panel per output: the density, filled from the 5 to the 95% quantile and darker from 25 to
    75%, and a line at the median. A panel shows 4 standard deviations on either side, cut at the
    ends of the support, and all but a fraction ``1e-4`` of the draws on either side; the histogram
    is normalized by all draws.

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
        line, with the smaller of the probabilities above and below it, and the share of the draws.
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
    shown = prepare(model, draws, outputs, output_names, units=units, limits=limits)
    made = _panels.panels("plot_marginals", len(shown.names), ax)
    curve = x, density = shown.densities()
    bands = shown.bands()
    for j, axis in enumerate(made.axes):
        for (a, b), alpha, name in (((0, 4), 0.3, OUTER), ((1, 3), 0.45, INNER)):
            at = np.linspace(bands[a, j], bands[b, j], 101)
            heights = np.interp(at, x[:, j], density[:, j])
            axis.fill_between(at, heights, color=SKY, alpha=alpha, lw=0, label=name)
        shown.draw_density(axis, j, curve)
        top = np.interp(bands[2, j], x[:, j], density[:, j])
        axis.vlines(bands[2, j], 0, top, BLUE, linestyles="dashed", lw=1, label=MEDIAN)
        _panels.set_range(axis, [*x[[0, -1], j], *shown.limits[j]])
        axis.set_ylim(0, axis.dataLim.ymax * (1.06 + shown.room(j)))
        axis.set_xlabel(shown.labels[j])
        axis.tick_params(labelsize=SMALL)
        _panels.add_limits(axis, shown.limit_words(j))
        _panels.add_note(axis, shown.notes(j))
    made.axes[0].set_ylabel("density")
    made.add_legend(place="center left")
    return made.figure
