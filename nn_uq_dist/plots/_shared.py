"""What figures share: the shown outputs with draws and limits; axes, legends, and names on axes."""

import dataclasses
import itertools
import math
import textwrap
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtr, ndtri

from nn_uq_dist import distributions
from nn_uq_dist.basics import checks
from nn_uq_dist.basics.concrete import FloatArray
from nn_uq_dist.diagnostics import arguments
from nn_uq_dist.diagnostics.output_functions import OutputFunctions

if TYPE_CHECKING:
    import matplotlib.axes
    import matplotlib.figure

# Evaluated only if someone asks: Matplotlib may be missing.
type Axes = matplotlib.axes.Axes
type Figure = matplotlib.figure.Figure
type Units = str | Mapping[str, str]
type Outputs = int | str | Sequence[int | str]

# From the palette of M. Okabe and K. Ito, Color Universal Design (2008), which readers with any
# color vision can tell apart; the lines also differ in lightness, for print without color.
# Bands are opaque, so that they look as in the legend where one lies on the other.
BLUE, SKY, PALE, VERMILION = "#0072B2", "#97D1F1", "#CCE9F8", "#D55E00"
LIGHT_GRAY, GRAY = "#C4C4C4", "#606060"

PANEL_INCHES = (2.6, 2.0)
LONGEST_LINE, LONGEST_NOTE = 26, 32  # characters, of names and of notes, as wide as a panel
# The smallest font that prints legibly, for notes and ticks.
SMALL = 8
# Keeps words legible that stand on lines.
BEHIND = {"facecolor": "white", "alpha": 0.75, "linewidth": 0, "pad": 1}
# More names along an axis than this are not all written.
MOST_NAMES = 40

GRID_POINTS = 401
NUM_BINS = 50
# What densities and histograms leave out on either side.
TAIL = 1e-4
# Standard errors of a 95% interval.
NUM_ERRORS = 1.96
# Levels of bands: 5 to 95% and 25 to 75%, and the median.
LEVELS = np.array([0.05, 0.25, 0.5, 0.75, 0.95])
OUTER, INNER, MEDIAN = "5 to 95%", "25 to 75%", "median"
# What the legend calls distributions that are neither linearized nor corrected.
UNKNOWN = "predicted"


@dataclasses.dataclass(frozen=True, eq=False)
class Shown:
    """The shown outputs, or one output at several points, in a row."""

    functions: OutputFunctions
    places: list[int]  # among all outputs of the model, of all points in a row
    names: list[str]
    labels: list[str]  # with units
    limits: list[list[float]]
    output: str | None  # the one output, if these are points
    draws: Any  # ``(n, len(names))``, or None
    columns: list[FloatArray]  # the finite draws of each, sorted; empty without draws

    @property
    def word(self) -> str:
        """What the legend calls the distributions."""
        of = self.functions.distribution
        kind = type(of.base if isinstance(of, distributions.NoisyMarginal) else of)
        known = {distributions.LinearizedMarginal: "linearized",
                 distributions.CorrectedMarginal: "corrected"}  # fmt: skip
        return known.get(kind, UNKNOWN)

    def bands(self) -> FloatArray:
        """Quantiles at the levels of the bands, shape ``(5, len(names))``."""
        return self.functions.values(ndtri(LEVELS))

    @cached_property
    def densities(self) -> tuple[FloatArray, FloatArray]:
        """Points over the range of a density panel, and densities there, ``(401, len(names))``."""
        of = self.functions
        low, high = of.values(ndtri([TAIL, 1 - TAIL]))
        for j, column in enumerate(self.columns):
            if column.size:
                inner = np.quantile(column, [TAIL, 1 - TAIL])
                low[j], high[j] = min(low[j], inner[0]), max(high[j], inner[1])
        x = np.linspace(low, high, GRID_POINTS)
        return x, np.exp(of.scores_and_log_densities(x)[1])

    def draw_density(self, axis: Axes, j: int) -> None:
        """Draw the density of an output over the histogram of all of its draws."""
        x, density = (values[:, j] for values in self.densities)
        if self.draws is not None:
            counts, edges = np.histogram(self.columns[j], NUM_BINS, (x[0], x[-1]))
            heights = counts / (len(self.draws) * np.diff(edges))
            axis.stairs(heights, edges, color=GRAY, lw=1, label="draws")
        axis.plot(x, density, color=BLUE, lw=1.6, label=f"{self.word} density")
        axis.set_yticks([])

    def notes(self, j: int) -> list[str]:
        """What is left out of the draws of an output."""
        left_out = 0 if self.draws is None else len(self.draws) - self.columns[j].size
        return [f"{left_out} draws not finite"] if left_out else []

    def room(self, j: int) -> float:
        """Share of a panel's height to add for what is written at its top."""
        return 0.25 * max(len(self.limits[j]), len(self.notes(j)))

    def scores_at(self, limit: float) -> FloatArray:
        """Normal scores of all outputs at a limit."""
        return self.functions.scores(np.full((1, len(self.names)), limit))[0]

    def describe(self, axis: Axes, j: int) -> None:
        """Write the label of an output, its limits and notes."""
        axis.set_xlabel(wrapped(self.labels[j]))
        axis.margins(x=0.04)
        for limit in self.limits[j]:
            axis.axvline(limit, color=VERMILION, lw=1.2)
        middle = sum(axis.get_xlim()) / 2
        for k, limit in enumerate(self.limits[j]):
            side = -1 if limit > middle else 1
            axis.annotate(
                self.limit_words(limit, j), (limit, 0.97 - 0.2 * k), va="top", color=VERMILION,
                xycoords=axis.get_xaxis_transform(), xytext=(3 * side, 0), bbox=BEHIND,
                textcoords="offset points", ha="right" if side < 0 else "left", fontsize=SMALL,
            )  # fmt: skip
        add_note(axis, self.notes(j))

    def free_part(self, axis: Axes) -> tuple[float, float]:
        """Ends of the widest part of the first panel without a limit, in shares of its width."""
        low, high = axis.get_xlim()
        ends = sorted([0.0, 1.0, *((limit - low) / (high - low) for limit in self.limits[0])])
        return max(itertools.pairwise(ends), key=lambda part: part[1] - part[0])

    def limit_words(self, limit: float, j: int) -> str:
        """The smaller of the probabilities above and below a limit, and the share of the draws."""
        score = self.scores_at(limit)[j]
        words = f"P({'>' if score > 0 else '<'} {limit:g}) = {ndtr(-abs(score)):#.2g}"
        if self.draws is None or not (column := self.columns[j]).size:
            return words
        if self.draws.dtype.kind == "f":  # a limit of .1 is not below a float32 of .1
            limit = float(self.draws.dtype.type(limit))
        share = float(np.mean(column > limit if score > 0 else column < limit))
        error = NUM_ERRORS * math.sqrt(share * (1 - share) / column.size)
        if not error:
            return f"{words}\ndraws {share:.2g}"
        decimals = max(-math.floor(math.log10(error)), 0)  # to the first digit of the error
        return f"{words}\ndraws {share:.{decimals}f} ± {error:.{decimals}f}"

    def require_enough(self) -> None:
        """Raise if an output has too few finite draws."""
        columns = zip(self.names, self.columns, strict=False)  # no columns without draws
        if few := [f"{k}: {x.size}" for k, x in columns if x.size < arguments.MINIMUM_DRAWS]:
            raise ValueError(
                f"every shown output must have at least {arguments.MINIMUM_DRAWS} finite draws, "
                f"got {', '.join(few)}; leave such outputs out with outputs="
            )


def prepare(
    model: arguments.Marginals,
    draws: arguments.NetworkDraws | None,
    outputs: Outputs | None,
    output_names: Sequence[str] | None,
    *,
    units: Units | None = None,
    limits: arguments.Limits | None = None,
    point_names: Sequence[str] | None = None,
    over_points: bool = False,
) -> Shown:
    """Check the arguments that figures of single outputs share, and prepare what they draw.

    With `over_points` the model may be of a batch of points, of which one output is shown.
    """
    arguments.require_numbers("functions that plot", model, draws, limits)
    distribution, shape = arguments.as_marginals(model, batched=over_points)
    names = arguments.names_of_outputs(model, output_names, shape[-1])
    places = as_places(outputs, names)
    of_limits, of_labels = arguments.limits_of(limits, names), labels_of(names, units)
    shown_limits, labels = [of_limits[k] for k in places], [of_labels[k] for k in places]
    names, output = [names[k] for k in places], None
    if len(shape) > 1:
        if len(shape) > 2 or len(places) != 1:
            raise ValueError(
                "outputs must name one output of one row of points, got "
                f"{len(places)} outputs of batch shape {shape}; pass outputs=[0], or take model[i]"
            )
        (output,), count = labels, shape[0]
        shown_limits *= count
        places = [k * shape[1] + places[0] for k in range(count)]
        names = labels = [str(k) for k in range(count)]
        if point_names is not None:
            names = labels = arguments.as_names("point", point_names, count)
    elif point_names is not None:
        raise ValueError("point_names must be None without a batch; use output_names")
    if places != list(range(math.prod(shape))):
        distribution = distributions.as_output_distribution(
            distributions.batch_entries(distribution, np.array(places))
        )
    values = None if draws is None else arguments.as_draws(model, draws, shape)[:, places]
    finite = []
    if values is not None:
        arguments.warn_of_left_out(values, names)
        finite = [np.sort(y[np.isfinite(y)]).astype(np.float64) for y in values.T]
    functions = OutputFunctions(distribution)
    return Shown(functions, places, names, labels, shown_limits, output, values, finite)


def as_places(outputs: Outputs | None, names: Sequence[str]) -> list[int]:
    """Return the positions of the outputs to show, which are given as positions or names."""
    chosen = range(len(names)) if outputs is None else outputs
    return list(checks.as_indices(chosen, len(names), "outputs", names))


def labels_of(names: Sequence[str], units: Units | None) -> list[str]:
    """Return the names with their units."""
    if not isinstance(units, str | Mapping | None):
        raise TypeError(
            f"units must be a text or a dict of texts by output, got {type(units).__name__}; pass "
            f"'m' or {{{names[0]!r}: 'm'}}"
        )
    of_each = zip(names, arguments.by_output("units", units, names), strict=True)
    return [name if unit is None else f"{name} ({unit})" for name, unit in of_each]


def panels(
    name: str, count: int, ax: Any, shape: Sequence[int] = (), inches: Sequence[float] = ()
) -> list[Axes]:
    """Return as many axes as there are panels: the given ones, or those of a new figure.

    A new one has `shape`, rows and columns, if it is given, and then axes at all places.
    """
    checks.require_extra("matplotlib", f"plots.{name}")
    import matplotlib.axes

    if ax is None:
        import matplotlib.pyplot as plt

        rows = -(-count // (3 if count <= 9 else 4))
        # Filled evenly: four panels are two rows of two.
        rows, columns = shape or (rows, -(-count // rows))
        inches = inches or (max(PANEL_INCHES[0] * columns, 5.2), PANEL_INCHES[1] * rows + 0.8)
        _, grid = plt.subplots(rows, columns, figsize=inches, squeeze=False, layout="constrained")
        for axis in grid.flat[count:]:
            axis.remove()
        ax = grid.flat[:count]
    axes = np.ravel(np.asarray(ax, dtype=object)).tolist()
    if len(axes) != count or not all(isinstance(axis, matplotlib.axes.Axes) for axis in axes):
        kinds = ", ".join(sorted({type(axis).__name__ for axis in axes}))
        raise ValueError(
            f"ax must hold {count} Matplotlib axes, one for each panel, got {len(axes)} of type "
            f"{kinds}; leave it out for a new figure"
        )
    for axis in axes:
        axis.tick_params(labelsize=SMALL)
    return axes


def finished(axes: Sequence[Axes], ax: Any, handles: Sequence[Any] = (), **place: Any) -> Figure:
    """Put the legend above a new figure, or into the first of the given axes; return the figure."""
    figure: Any = axes[0].get_figure(root=True)
    handles = handles or axes[0].get_legend_handles_labels()[0]
    if ax is not None:
        close: dict[str, Any] = {"borderpad": 0.3, "handletextpad": 0.5, "borderaxespad": 0.3}
        axes[0].legend(handles=handles, fontsize=SMALL, handlelength=1.2, **close, **place)
        return figure
    longest = max(len(str(handle.get_label())) for handle in handles)
    fitting = int(figure.get_size_inches()[0] / (0.7 + 0.075 * longest))
    figure.legend(
        handles=handles, loc="outside upper center", frameon=False, fontsize=SMALL + 1,
        ncols=max(1, min(len(handles), fitting)),
    )  # fmt: skip
    return figure


def wrapped(name: str) -> str:
    """A name in lines that fit below or above a panel."""
    return textwrap.fill(name, LONGEST_LINE)


def add_note(axis: Axes, lines: Sequence[str]) -> None:
    """Write lines into the upper left corner of a panel, broken where they are wider."""
    if lines:
        axis.annotate(
            "\n".join(textwrap.fill(line, LONGEST_NOTE) for line in lines),
            (0.02, 0.98),
            xycoords="axes fraction",
            va="top",
            fontsize=SMALL - 1,
        )


def write_names(axis: Axes, which: str, places: ArrayLike, names: Sequence[str]) -> None:
    """Write names along an axis, upright where they would run into each other."""
    step = -(-len(names) // MOST_NAMES)
    shown = [wrapped(name) for name in names[::step]]
    is_crowded = which == "x" and sum(len(name) + 2 for name in shown) > 70
    getattr(axis, f"set_{which}ticks")(
        np.asarray(places)[::step], shown, fontsize=SMALL, rotation=90 if is_crowded else 0
    )
