"""Which outputs a figure shows, their distributions, draws and limits."""

import dataclasses
import itertools
import math
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import ndtr, ndtri

from nn_uq_dist import distributions
from nn_uq_dist.basics.checks import as_indices
from nn_uq_dist.basics.concrete import FloatArray
from nn_uq_dist.diagnostics import arguments
from nn_uq_dist.diagnostics.output_functions import OutputFunctions
from nn_uq_dist.plots._panels import BEHIND, BLUE, GRAY, SMALL, VERMILION, add_note, wrapped

if TYPE_CHECKING:
    from matplotlib.axes import Axes

type Units = str | Mapping[str, str]
type Outputs = int | str | Sequence[int | str]

GRID_POINTS = 401
NUM_BINS = 50
# Range of a density: this much on either side, or more to include all draws but this share.
RANGE_IN_SD = 4.0
TAIL = 1e-4
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
        if isinstance(of, distributions.NoisyMarginal):
            of = of.base
        if isinstance(of, distributions.CorrectedMarginal):
            return "corrected"
        return "linearized" if isinstance(of, distributions.LinearizedMarginal) else UNKNOWN

    def bands(self) -> FloatArray:
        """Quantiles at the levels of the bands, shape ``(5, len(names))``."""
        return self.functions.values(ndtri(LEVELS))

    @cached_property
    def densities(self) -> tuple[FloatArray, FloatArray]:
        """Points over the range of a density panel, and densities there, ``(401, len(names))``."""
        of = self.functions
        low = np.maximum(of.mean - RANGE_IN_SD * of.sd, of.low)
        high = np.minimum(of.mean + RANGE_IN_SD * of.sd, of.high)
        for j, column in enumerate(self.columns):
            if column.size:
                inner = np.quantile(column, [TAIL, 1 - TAIL])
                low[j], high[j] = min(low[j], inner[0]), max(high[j], inner[1])
        x = np.linspace(low, high, GRID_POINTS)
        return x, np.exp(of.scores_and_log_densities(x)[1])

    def draw_density(self, axis: "Axes", j: int) -> None:
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

    def describe(self, axis: "Axes", j: int) -> None:
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

    def free_part(self, axis: "Axes") -> tuple[float, float]:
        """Ends of the widest part of the first panel without a limit, in shares of its width."""
        low, high = axis.get_xlim()
        ends = sorted([0.0, 1.0, *((limit - low) / (high - low) for limit in self.limits[0])])
        return max(itertools.pairwise(ends), key=lambda part: part[1] - part[0])

    def limit_words(self, limit: float, j: int) -> str:
        """The smaller of the probabilities above and below a limit, and the share of the draws."""
        score = self.scores_at(limit)[j]
        words = f"P({'>' if score > 0 else '<'} {limit:g}) = {ndtr(-abs(score)):#.2g}"
        if self.draws is not None and (column := self.columns[j]).size:
            if self.draws.dtype.kind == "f":  # a limit of .1 is not below a float32 of .1
                limit = float(self.draws.dtype.type(limit))
            beyond = np.mean(column > limit if score > 0 else column < limit)
            error = math.sqrt(beyond * (1 - beyond) / column.size)
            words += f"\ndraws {_with_error(beyond, error)}"
        return words

    def require_enough(self) -> None:
        """Raise if an output has too few finite draws."""
        columns = zip(self.names, self.columns, strict=False)  # no columns without draws
        if few := [f"{k}: {x.size}" for k, x in columns if x.size < arguments.MINIMUM_DRAWS]:
            raise ValueError(
                f"every shown output must have at least {arguments.MINIMUM_DRAWS} finite draws, "
                f"got {', '.join(few)}; leave such outputs out with outputs="
            )


def _with_error(value: float, error: float) -> str:
    """A share and its standard error, to the first digit of the error."""
    if not error:
        return f"{value:.2g}"
    decimals = max(-math.floor(math.log10(error)), 0)
    if decimals > 5:
        return f"{value:.2g} ± {error:.1g}"
    return f"{value:.{decimals}f} ± {error:.{decimals}f}"


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
    columns = as_outputs(outputs, names)
    of_limits, of_labels = arguments.limits_of(limits, names), labels_of(names, units)
    own_limits, labels = [of_limits[k] for k in columns], [of_labels[k] for k in columns]
    names, output = [names[k] for k in columns], None
    if len(shape) > 1:
        if len(shape) > 2 or len(columns) != 1:
            raise ValueError(
                "outputs must name one output of one row of points, got "
                f"{len(columns)} outputs of batch shape {shape}; pass outputs=[0], or take model[i]"
            )
        (output,), num_points = labels, shape[0]
        own_limits = own_limits * num_points
        columns = [k * shape[1] + columns[0] for k in range(num_points)]
        names = labels = [str(k) for k in range(num_points)]
        if point_names is not None:
            names = labels = arguments.as_names("point", point_names, num_points)
    elif point_names is not None:
        raise ValueError("point_names must be None without a batch; use output_names")
    if columns != list(range(math.prod(shape))):
        distribution = distributions.as_output_distribution(
            distributions.batch_entries(distribution, np.array(columns))
        )
    values = None if draws is None else arguments.as_draws(model, draws, shape)[:, columns]
    finite = [] if values is None else arguments.finite_draws(values, names)
    functions = OutputFunctions(distribution)
    return Shown(functions, columns, names, labels, own_limits, output, values, finite)


def as_outputs(outputs: Outputs | None, names: Sequence[str]) -> list[int]:
    """Return the positions of the outputs to show, which are given as positions or names."""
    chosen = range(len(names)) if outputs is None else outputs
    return list(as_indices(chosen, len(names), "outputs", names))


def labels_of(names: Sequence[str], units: Units | None) -> list[str]:
    """Return the names with their units."""
    if units is None:
        return list(names)
    if not isinstance(units, str | Mapping):
        raise TypeError(
            f"units must be a text or a dict of texts by output, got {type(units).__name__}; pass "
            f"'m' or {{{names[0]!r}: 'm'}}"
        )
    of = dict.fromkeys(names, units) if isinstance(units, str) else units
    arguments.require_known("units", of, names)
    return [f"{name} ({of[name]})" if name in of else name for name in names]
