"""Joint densities of outputs against Monte Carlo draws, pair by pair, in a corner plot."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from nn_uq_dist.diagnostics import arguments
from nn_uq_dist.distributions import JointDistribution
from nn_uq_dist.linearization import CorrectedLinearization, Linearization, LinearModel
from nn_uq_dist.plots._panels import BLUE, add_note, finished, panels, wrapped
from nn_uq_dist.plots._regions import Region, distribution_region, kernel_region
from nn_uq_dist.plots._shown import UNKNOWN, Outputs, Units, prepare

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MAXIMUM_OUTPUTS = 6
# Normal scores at which the quantiles of an output are known; linear in between.
SCORES = np.linspace(-5.0, 5.0, 64)


def plot_joint(
    model: LinearModel | JointDistribution,
    draws: arguments.NetworkDraws | None = None,
    *,
    outputs: Outputs | None = None,
    masses: Sequence[float] = (0.5, 0.9, 0.99),
    units: Units | None = None,
    output_names: Sequence[str] | None = None,
    ax: Any = None,
) -> "Figure":
    r"""Plot the joint density of each pair of outputs as lines over filled Monte Carlo regions.

    On the diagonal: the density of each output over a histogram of the draws. Below: regions of
    highest density that hold the given masses, of the distribution that the legend names and of the
    draws. Where both agree, the lines follow the edges of the filled regions.

    Parameters
    ----------
    model
        The linearized network, or any other `LinearModel`, without batch axes, of which
        ``model.joint()`` is shown; or a joint distribution, such as ``model.gaussian_copula()``,
        which has a density also where the outputs depend on each other so that they have no joint
        one. The joint distribution of a corrected model is linear, with other marginals than the
        model itself, which its copula has.
    draws
        As in `plot_marginals`; rows that are not finite are left out. Their density is smoothed
        with a normal kernel of Scott's width, ``n**(-1/6)`` standard deviations in any direction;
        the level of a region is chosen so that it holds that fraction of the draws.
    outputs
        As in `plot_marginals`, two to six.
    masses
        Probabilities of the regions, between 0 and 1.
    units, output_names
        As in `plot_marginals`.
    ax
        Matplotlib axes to draw on: an array with `d` rows and columns for `d` outputs, or for two
        outputs also a single one, for the pair alone. Default: those of a new figure.

    Returns
    -------
    matplotlib.figure.Figure
        As in `plot_marginals`.

    Raises
    ------
    ImportError
        If Matplotlib is missing.
    TypeError, ValueError
        If shapes, names, outputs or masses do not fit; if outputs are linearly dependent, so that
        there is no joint density (pass ``model.gaussian_copula()``); if draws lie on a line.

    Examples
    --------
    >>> import jax, jax.numpy as jnp, nn_uq_dist as nuq
    >>> distribution = nuq.Input.box(jnp.zeros(3), half_width=1.0)
    >>> lin = nuq.Linearization(jnp.zeros(2), [[1.0, 2.0, 1.0], [1.0, 1.0, 0.0]], distribution)
    >>> draws = lin.sample(jax.random.key(0), (4_000,))
    >>> figure = nuq.plots.plot_joint(lin, draws, output_names=["a", "b"])
    >>> figure.axes[2].get_xlabel(), figure.axes[2].get_ylabel()
    ('a', 'b')
    """
    distribution: Any = model
    if not isinstance(model, JointDistribution):
        own = arguments.as_model(model, arguments.ONE_POINT)
        output_names = arguments.names_of_outputs(own, output_names, own.num_outputs)
        # All outputs together of a tangent may have no joint density.
        distribution = model if isinstance(model, Linearization) else model.joint()
    shown = prepare(distribution, draws, outputs, output_names, units=units)
    size = len(shown.names)
    fractions = np.sort(arguments.as_levels("masses", masses)).tolist()
    if not 2 <= size <= MAXIMUM_OUTPUTS:
        remedy = "use plot_marginals" if size < 2 else "pass some of them, such as outputs=(0, 1)"
        raise ValueError(f"outputs must name 2 to {MAXIMUM_OUTPUTS} outputs, got {size}; {remedy}")
    # Below the diagonal.
    pairs = {
        (k, j): _of_pair(distribution, [shown.places[j], shown.places[k]], shown.names)
        for k in range(size)
        for j in range(k)
    }
    rows = shown.draws
    complete = None if rows is None else arguments.complete_rows(rows).astype(np.float64)
    is_pair_alone = ax is not None and np.ndim(ax) == 0 and size == 2
    axes = panels(
        "plot_joint", 1 if is_pair_alone else size**2, ax, shape=(size, size),
        inches=(max(5.0, min(7.0, 2.4 * size)), max(4.7, min(7.3, 2.4 * size + 0.3))),
    )  # fmt: skip
    grid = np.resize(np.array(axes, dtype=object), (size, size))
    grays = [str(gray) for gray in np.linspace(0.85, 0.5, len(fractions)).tolist()]

    quantiles, ends = shown.functions.values(SCORES), shown.densities[0][[0, -1]]
    ranges = (ends + 0.04 * np.diff(ends, axis=0) * [[-1], [1]]).T.tolist()
    for k, j in [*pairs] if is_pair_alone else np.argwhere(np.tri(size)).tolist():
        axis = grid[k, j]
        if j == k:
            shown.draw_density(axis, j)
            axis.set_ylim(0, axis.dataLim.ymax * 1.06)
            for other in grid[j, j + 1 :]:
                other.axis("off")
        else:
            if complete is not None:
                names = shown.names[j], shown.names[k]
                _draw(axis, kernel_region(complete[:, [j, k]], fractions, names), grays)
            values = quantiles[:, [j, k]].T
            _draw(axis, distribution_region(pairs[k, j], SCORES, values, fractions))
            axis.set_ylim(*ranges[k])
        axis.set_xlim(*ranges[j])
        axis.tick_params(labelbottom=k == size - 1, labelleft=j == 0)
        axis.locator_params(axis="x", nbins=4)
        axis.set_xlabel(wrapped(shown.labels[j]) if k == size - 1 else "")
        axis.set_ylabel(wrapped(shown.labels[k]) if j == 0 < k else "")
    if complete is not None and len(complete) < len(rows):
        add_note(grid[1, 0], [f"{len(rows) - len(complete)} draws not finite"])
    kind = pairs[1, 0].kind
    if isinstance(model, CorrectedLinearization):
        kind += " (marginals not corrected)"
    elif shown.word != UNKNOWN:
        kind = f"{shown.word} {kind.removeprefix('linear ')}"
    return finished(axes, ax, _legend(kind, fractions, grays if complete is not None else []))


def _of_pair(
    model: Linearization | JointDistribution, pair: Sequence[int], names: Sequence[str]
) -> JointDistribution:
    if isinstance(model, JointDistribution):
        return model.marginalize(pair)
    rows = np.array(pair)
    try:
        return Linearization(model.loc[rows], model.jacobian[rows], model.input).joint()
    except ValueError as error:
        raise ValueError(
            "outputs must vary and be linearly independent to have a joint density, got "
            f"{' and '.join(names)}; pass model.gaussian_copula() in place of the model, or "
            "other outputs"
        ) from error


def _draw(axis: "Axes", region: Region, grays: Sequence[str] = ()) -> None:
    """Fill a region with grays, or draw its outlines."""
    *levels, highest = [*region.visible_levels, region.density.max()]
    if levels and grays:
        axis.contourf(*region[:3], [*levels, 2 * highest], colors=grays[-len(levels) :])
    elif levels:
        axis.contour(*region[:3], levels, colors=BLUE, linewidths=1.2)
    if not grays and len(levels) < len(region.levels):
        add_note(axis, ["", f"{len(region.levels) - len(levels)} lines not resolved"])


def _legend(kind: str, masses: Sequence[float], grays: Sequence[str]) -> list[Any]:
    """Entries of the lines and, from the smallest mass, of the regions that grays fill."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    percents = [f"{100 * mass:g}" for mass in masses]
    line: Any = Line2D([], [], color=BLUE, label=f"{kind}, {', '.join(percents)}%")
    regions = zip(percents, reversed(grays), strict=False)
    return [line, *(Patch(color=gray, label=f"{p}% of the draws, smoothed") for p, gray in regions)]
