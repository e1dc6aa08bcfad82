"""A figure that is being drawn: its backend, the options of its visuals, its panels and legend."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nn_uq_dist.basics import _checks
from nn_uq_dist.plots.parts._palette import (
    BAND_ALPHAS,
    Entries,
    add_legend,
    area_entry,
    band_entries,
    line_entry,
    marker_entry,
)

if TYPE_CHECKING:
    import arviz_plots

Array = NDArray[np.float64]
Visuals = Mapping[str, Mapping[str, Any] | bool]
# Visuals with their default options.
type Styles = Mapping[str, Mapping[str, Any]]
Marks = tuple[Sequence[float], Sequence[str]]
type PlotCollection = arviz_plots.PlotCollection
type PlotMatrix = arviz_plots.PlotMatrix

PAGE_INCHES = 7.0
PANEL_INCHES = (2.4, 1.75)
MOST_COLUMNS = 4
NARROW_COLUMNS = 3  # number of columns that fit on a page
MANY_PANELS = 12

# Entries of what ArviZ's functions draw.
AS_ENTRY = {
    "line": line_entry,
    "scatter": marker_entry,
    "hist": area_entry,
    "fill_between_y": area_entry,
}
# Visuals that all panels have, besides what is drawn in them.
FRAME_VISUALS: Styles = {
    "title": {"size": 10},
    "ticks": {"size": 8},
    "xlabel": {"size": 9},
    "ylabel": {"size": 9},
    "legend": {},
}


class Frame(NamedTuple):
    """Limits of the axes, each of shape ``(panels,)`` or, for a single panel, ``()``.

    Examples
    --------
    >>> from nn_uq_dist.plots import parts
    >>> parts.Frame(left=-1, right=1, bottom=0, top=2).top
    2
    """

    left: Any
    right: Any
    bottom: Any
    top: Any


def frame_visuals(without: str) -> Styles:
    """Return the visuals that all panels have, except one.

    Examples
    --------
    >>> from nn_uq_dist.plots import parts
    >>> list(parts.frame_visuals(without="title"))
    ['ticks', 'xlabel', 'ylabel', 'legend']
    """
    return {name: style for name, style in FRAME_VISUALS.items() if name != without}


def drawing(target: Any) -> Any:
    """Return ArviZ's functions that draw into a panel, the last argument of each."""
    from arviz_plots.plot_collection import backend_from_object

    return backend_from_object(target)


class Figure:
    """A figure that is being drawn.

    Make it after all other arguments of a figure are checked. A method that draws a visual does
    nothing if the user has switched that visual off, and adds its legend entry if it has one.

    Parameters
    ----------
    name
        Name of the public function, for the message about a missing package.
    defaults
        The visuals of the figure with their default options.
    visuals, plot_collection, backend, pc_kwargs
        As given by the user.

    Attributes
    ----------
    backend
        Name of the backend that draws.
    options
        Options of each visual, None for one that is off.
    collection
        The collection that is drawn into; None until a method has made the panels.
    legend
        Entries so far, in the order of the legend.

    Examples
    --------
    >>> import numpy as np
    >>> from nn_uq_dist.plots import parts
    >>> defaults = {"curve": {"color": parts.BLUE}, **parts.frame_visuals(without="title")}
    >>> figure = parts.Figure(
    ...     "plot_square",
    ...     defaults,
    ...     visuals=None,
    ...     plot_collection=None,
    ...     backend="none",
    ...     pc_kwargs={},
    ... )
    >>> x = np.linspace(0, 2, 5)
    >>> figure.one_panel(np.stack([x, x**2]))
    >>> figure.line("curve", np.stack([x, x**2]), "square")
    >>> collection = figure.finish(parts.Frame(0, 2, 0, 4), xlabel="x")
    >>> print(collection.viz["curve"]["values"].item()["y"])
    [0.   0.25 1.   2.25 4.  ]
    """

    def __init__(
        self,
        name: str,
        defaults: Styles,
        visuals: Visuals | None,
        plot_collection: Any | None,
        backend: str | None,
        pc_kwargs: dict[str, Any],
    ) -> None:
        self.backend = _as_backend(backend, plot_collection, f"plots.{name}")
        self.options = _as_visuals(visuals, defaults)
        self.collection: Any = plot_collection
        self.legend: Entries = {}
        self._pc_kwargs = pc_kwargs
        self._variable = "values"
        self._facets: dict[str, Any] = {}

    def new_collection(
        self,
        make: Callable[..., Any],
        data: Any,
        inches: tuple[float, float],
        facets: Sequence[str],
        **layout: Any,
    ) -> None:
        """Make a collection by a constructor of ArviZ, unless one was given.

        The panels are those of the dimensions `facets` of its data.
        """
        (self._variable,) = data.data_vars
        self._facets = {name: data[name].values for name in facets}
        if self.collection is None:
            options = {"figsize": inches, "figsize_units": "inches"}
            if self.backend == "matplotlib":
                options["layout"] = "constrained"  # leaves room for legends
            given = {**layout, **self._pc_kwargs}
            options |= given.pop("figure_kwargs", {})
            self.collection = make(data, backend=self.backend, figure_kwargs=options, **given)

    def one_panel_per_output(self, rows: Any, names: Sequence[str]) -> None:
        """Make a panel for each output; the collection keeps the rows ``x``, ``y`` as its data."""
        count = len(names)
        most = NARROW_COLUMNS if count <= MANY_PANELS else MOST_COLUMNS
        balanced = -(-count // -(-count // most))  # four panels are two rows of two
        wrap = self._pc_kwargs.get("col_wrap", balanced)
        columns = min(wrap, count)
        lines = -(-count // columns)
        # A single panel is wider, and a single row taller, so that the legend above fits.
        width = max(PANEL_INCHES[0] * columns, 4.8)
        height = PANEL_INCHES[1] * lines * (1.5 if lines == 1 else 1) + 0.6
        self._wrap(rows, (width, height), {"output": list(names)}, col_wrap=wrap)

    def one_panel(self, rows: Any, inches: tuple[float, float] = (PAGE_INCHES, 3.6)) -> None:
        """Make a single panel; the collection keeps the rows ``x``, ``y`` as its data."""
        self._wrap(rows, inches, {})

    def line(self, visual: str, rows: Any, entry: str | None = None) -> None:
        """Draw a line in each panel, rows ``x`` and ``y``."""
        self._draw("line", visual, rows, entry)

    def points(self, visual: str, rows: Any, entry: str | None = None) -> None:
        """Draw points in each panel, rows ``x`` and ``y``."""
        self._draw("scatter", visual, rows, entry)

    def bars(self, visual: str, rows: Any, entry: str | None = None) -> None:
        """Draw a histogram in each panel, rows of heights, left and right edges."""
        self._draw("hist", visual, rows, entry)

    def area(self, visual: str, rows: Any, entry: str | None = None) -> None:
        """Fill an area in each panel, rows ``x``, ``y_bottom`` and ``y_top``."""
        self._draw("fill_between_y", visual, rows, entry)

    def bands(self, rows_of: Callable[[int], Array]) -> None:
        """Fill bands of 1, 2, 3 standard deviations, the widest first, so that they overlap."""
        if (style := self.options["bands"]) is None:
            return
        for k, alpha in reversed(list(enumerate(BAND_ALPHAS, start=1))):
            self._draw_rows("fill_between_y", f"band_{k}_sd", rows_of(k), {"alpha": alpha, **style})
        self.legend |= band_entries(style)

    def texts(self, visual: str, frame: Frame, texts: Sequence[str]) -> None:
        """Write a text into the upper left corner of each output's panel."""
        if (style := self.options[visual]) is None:
            return
        left, right, bottom, top = frame
        aligned = {"vertical_align": "top", "horizontal_align": "left", **style}

        def text(target: Any, j: int) -> Any:
            x, y = left[j] + 0.03 * (right[j] - left[j]), top[j] - 0.04 * (top[j] - bottom[j])
            return drawing(target).text(x, y, texts[j], target, **aligned)

        self.each_panel(text, visual)

    def several(self, visual: str, dim: str, function: str, drawn: Sequence[Any]) -> None:
        """Draw several artists in a single panel, and keep them along a dimension.

        Each is drawn by a function of ArviZ, such as ``"text"``, from its arguments in `drawn`.
        """
        style = self.options[visual]
        if style is None or not drawn:
            return

        def draw_all(target: Any) -> Any:
            artists = np.empty(len(drawn), dtype=object)
            for k, arguments in enumerate(drawn):
                artists[k] = getattr(drawing(target), function)(*arguments, target, **style)
            return artists

        self.each_panel(draw_all, visual, artist_dims={dim: len(drawn)})

    def axis(
        self,
        target: Any,
        axis: str,
        ends: tuple[float, float],
        marks: Marks | None = None,
        *,
        label: str | None = None,
        most: int = 4,
        is_numbered: bool = True,
    ) -> None:
        """Set limits, label and ticks of an axis: named marks, or a few round numbers."""
        getattr(drawing(target), f"{axis}lim")(ends, target)
        if label is not None and (style := self.options["labels"]) is not None:
            getattr(drawing(target), f"{axis}label")(label, target, **style)
        if (style := self.options["ticks"]) is None:
            return
        if axis == "y":
            style = {key: value for key, value in style.items() if key != "rotation"}
        if marks is not None:
            getattr(drawing(target), f"{axis}ticks")(*marks, target, **style)
        elif self.backend == "matplotlib":
            from matplotlib.ticker import MaxNLocator, ScalarFormatter

            of_target = getattr(target, f"{axis}axis")
            of_target.set_major_locator(MaxNLocator(most, steps=[1, 2, 2.5, 5, 10], min_n_ticks=3))
            of_target.set_major_formatter(ScalarFormatter(useOffset=False))
            target.tick_params(axis, **{f"label{key}": value for key, value in style.items()})
            if not is_numbered:
                target.tick_params(axis, labelleft=False, labelbottom=False)

    def finish(
        self,
        frame: Frame,
        *,
        xlabel: str | None,
        ylabel: str | None = None,
        title: str | None = None,
        xticks: Marks | None = None,
        yticks: Marks | None = None,
        removed: Mapping[str, Any] | None = None,
    ) -> Any:
        """Set limits, ticks, titles and labels, add the legend, and return the collection.

        The title of an output's panel is its name. `removed` are options of ArviZ's `remove_axis`;
        the vertical axes then have no ticks.
        """

        def axes(target: Any, *at: int) -> None:
            left, right, bottom, top = (float(np.asarray(side)[at]) for side in frame)
            self.axis(target, "x", (left, right), xticks)
            self.axis(target, "y", (bottom, top), yticks)
            if removed is not None:
                drawing(target).remove_axis(target, **removed)

        self.each_panel(axes)
        titles = self._facets.get("output", title)
        for visual, texts in (("title", titles), ("xlabel", xlabel), ("ylabel", ylabel)):
            if texts is None or (style := self.options.get(visual)) is None:
                continue
            if visual == "title" or not self._facets:
                self._put(visual, np.asarray(texts), style)
            elif self.backend == "matplotlib":  # one label for all panels
                getattr(self.collection.get_viz("figure"), f"sup{visual}")(texts, **style)
        return self.with_legend()

    def with_legend(self) -> Any:
        """Add the legend above the panels, and return the collection."""
        if (style := self.options.get("legend")) is not None and self.legend:
            add_legend(self.collection, self.legend, style)
        return self.collection

    def each_panel(
        self, function: Callable[..., Any], visual: str | None = None, **options: Any
    ) -> None:
        """Call a function of each panel and its position along the facets.

        What it returns is kept as the artist of the visual, if there is one.
        """
        import xarray as xr

        def call(_: Any, target: Any, *, isel: Mapping[str, int], **__: Any) -> Any:
            return function(target, *(isel[name] for name in self._facets))

        # Without NaN, as ArviZ skips panels whose data are NaN.
        zeros = np.zeros([len(values) for values in self._facets.values()])
        data = xr.Dataset({self._variable: (list(self._facets), zeros)}, self._facets)
        keeps = visual is not None
        self.collection.map(
            call, visual, data=data, subset_info=True, store_artist=keeps, **options
        )

    def _wrap(
        self, rows: Any, inches: tuple[float, float], facets: dict[str, Any], **layout: Any
    ) -> None:
        import arviz_plots
        import xarray as xr

        coords = {**facets, "plot_axis": ["x", "y"]}
        data = xr.Dataset({"values": ([*coords, "point"], np.asarray(rows))}, coords)
        make = arviz_plots.PlotCollection.wrap
        self.new_collection(make, data, inches, [*facets], cols=[*facets], **layout)

    def _draw(self, function: str, visual: str, rows: Any, entry: str | None) -> None:
        if (style := self.options[visual]) is not None:
            self._draw_rows(function, visual, rows, style)
            if entry is not None:
                self.legend[entry] = AS_ENTRY[function](style)

    def _draw_rows(self, function: str, visual: str, rows: Any, style: Mapping[str, Any]) -> None:
        """Draw the rows of each panel by a function of ArviZ."""
        values = np.asarray(rows)

        def draw(target: Any, *at: int) -> Any:
            return getattr(drawing(target), function)(*values[at], target, **style)

        self.each_panel(draw, visual)

    def _put(self, visual: str, texts: NDArray[Any], style: Mapping[str, Any]) -> None:
        """Put a title or a label at each panel."""

        def put(target: Any, *at: int) -> Any:
            return getattr(drawing(target), visual)(str(texts[at]), target, **style)

        self.each_panel(put, visual)


def _as_backend(backend: str | None, plot_collection: Any | None, purpose: str) -> str:
    """Return the name of the backend that draws, after a check that it is installed."""
    _checks.require_extra("arviz_plots", purpose)
    name: str = (backend or "matplotlib") if plot_collection is None else plot_collection.backend
    if name not in {"matplotlib", "none"}:
        raise ValueError(
            f"backend must be 'matplotlib' or 'none', got {name!r}; for interactive figures "
            "export the draws with to_datatree"
        )
    if name == "matplotlib":
        _checks.require_extra(name, purpose)
    return name


def _as_visuals(visuals: Visuals | None, defaults: Styles) -> dict[str, dict[str, Any] | None]:
    """Merge the options of each visual into its defaults; None marks a visual that is off."""
    given = dict(visuals or {})
    unknown = [name for name in given if name not in defaults]
    if unknown:
        raise ValueError(
            f"visuals must have keys from {', '.join(defaults)}, got {', '.join(unknown)}; drop it"
        )
    merged: dict[str, dict[str, Any] | None] = {}
    for name, options in defaults.items():
        choice = given.get(name, True)
        chosen = choice if isinstance(choice, Mapping) else {}
        merged[name] = None if choice is False else {**options, **chosen}
    return merged
