"""A figure that is being drawn: its backend, the options of its visuals, its panels and legend."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nn_uq_dist.plots.parts._arguments import Visuals, as_visuals
from nn_uq_dist.plots.parts._backends import as_backend, in_front
from nn_uq_dist.plots.parts._frame import Frame, finish_panels, write
from nn_uq_dist.plots.parts._legend import (
    Entries,
    add_legend,
    area_entry,
    band_entries,
    line_entry,
)
from nn_uq_dist.plots.parts._palette import BAND_ALPHAS
from nn_uq_dist.plots.parts._panels import (
    SINGLE_INCHES,
    outer_panels,
    output_panels,
    panel_data,
    single_panel,
)
from nn_uq_dist.plots.parts._shapes import area
from nn_uq_dist.plots.parts._ticks import Ticks

Array = NDArray[np.float64]

LINE = ("x", "y")
AREA = ("x", "y_bottom", "y_top")
HISTOGRAM = ("histogram", "left_edges", "right_edges")


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
    >>> figure.one_panel(np.stack([x, x**2]), parts.LINE)
    >>> figure.line("curve", np.stack([x, x**2]), "square")
    >>> collection = figure.finish(parts.Frame(0, 2, 0, 4), xlabel="x")
    >>> print(collection.viz["curve"]["values"].item()["y"])
    [0.   0.25 1.   2.25 4.  ]
    """

    def __init__(
        self,
        name: str,
        defaults: Mapping[str, Mapping[str, Any]],
        *,
        visuals: Visuals | None,
        plot_collection: Any | None,
        backend: str | None,
        pc_kwargs: dict[str, Any],
    ) -> None:
        self.backend = as_backend(backend, plot_collection, f"plots.{name}")
        self.options = as_visuals(visuals, defaults, self.backend)
        self.collection: Any = plot_collection
        self.legend: Entries = {}
        self._pc_kwargs = pc_kwargs
        self._is_own = plot_collection is None
        self._names: Sequence[str] | None = None

    def new_collection(self, make: Callable[[str, dict[str, Any]], Any]) -> None:
        """Make a collection by a function of the backend and `pc_kwargs`, unless one was given."""
        if self.collection is None:
            self.collection = make(self.backend, self._pc_kwargs)

    def one_panel_per_output(self, rows: Any, axes: Sequence[str], names: Sequence[str]) -> None:
        """Make a panel for each output; the collection keeps the rows as its data."""
        self._names = names
        data = panel_data(rows, axes, names)
        self.new_collection(lambda backend, kwargs: output_panels(data, backend, kwargs))

    def one_panel(
        self,
        rows: Any,
        axes: Sequence[str] | None,
        inches: tuple[float, float] = SINGLE_INCHES,
    ) -> None:
        """Make a single panel; the collection keeps the rows as its data."""
        data = panel_data(rows, axes, None)
        self.new_collection(lambda backend, kwargs: single_panel(data, backend, kwargs, inches))

    def line(self, visual: str, rows: Any, entry: str | None = None, layer: int = 0) -> None:
        """Draw a line in each panel, rows ``x`` and ``y``."""
        from arviz_plots import visuals as draw

        self._map(visual, draw.line_xy, (rows, LINE), entry, line_entry, layer)

    def points(self, visual: str, rows: Any, entry: str | None = None) -> None:
        """Draw points in each panel, rows ``x`` and ``y``."""
        from arviz_plots import visuals as draw

        self._map(visual, draw.scatter_xy, (rows, LINE), entry, self._marker_entry)

    def area(self, visual: str, rows: Any, entry: str | None = None) -> None:
        """Fill an area in each panel, rows ``x``, ``y_bottom`` and ``y_top``."""
        self._map(visual, area, (rows, AREA), entry, area_entry)

    def bars(self, visual: str, rows: Any, entry: str | None = None) -> None:
        """Draw a histogram in each panel, rows of heights, left and right edges."""
        from arviz_plots import visuals as draw

        self._map(visual, draw.hist, (rows, HISTOGRAM), entry, area_entry, 1)

    def bands(self, rows_of: Callable[[int], Array]) -> None:
        """Fill bands of 1, 2, 3 standard deviations, the widest first, so that they overlap.

        They are areas: in some backends spans hide what is drawn in them.
        """
        if (style := self.options["bands"]) is None:
            return
        for k, alpha in reversed(list(enumerate(BAND_ALPHAS, start=1))):
            data = panel_data(rows_of(k), AREA, self._names)
            self.collection.map(area, f"band_{k}_sd", data=data, **{"alpha": alpha, **style})
        self.legend |= band_entries(style)

    def texts(self, visual: str, frame: Frame, texts: Sequence[str]) -> None:
        """Write a text into the upper left corner of each output's panel."""
        if (style := self.options[visual]) is not None:
            write(self.collection, visual, self._names or (), frame, texts, style)

    def finish(
        self,
        frame: Frame,
        *,
        xlabel: str | None,
        ylabel: str | None = None,
        xticks: Ticks | None = None,
        yticks: Ticks | None = None,
        removed: Mapping[str, Any] | None = None,
    ) -> Any:
        """Set limits, ticks, titles and labels, add the legend, and return the collection.

        `removed` are options of ArviZ's `remove_axis`; the vertical axes then have no ticks.
        """
        outer = None if self._names is None else outer_panels(self.collection, self._is_own)
        finish_panels(
            self.collection,
            self.options,
            self._names,
            frame,
            labels=(xlabel, ylabel),
            outer=outer,
            xticks=xticks,
            yticks=yticks,
            removed=removed,
        )
        return self.with_legend()

    def with_legend(self) -> Any:
        """Add the legend, and return the collection."""
        add_legend(self.collection, self.legend, self.options["legend"])
        return self.collection

    def _map(
        self,
        visual: str,
        function: Callable[..., Any],
        rows: tuple[Any, Sequence[str]],
        entry: str | None,
        as_entry: Callable[[Mapping[str, Any]], dict[str, Any]],
        layer: int = 0,
    ) -> None:
        if (style := self.options[visual]) is None:
            return
        data = panel_data(*rows, self._names)
        options = {**(in_front(self.backend, layer) if layer else {}), **style}
        self.collection.map(function, visual, data=data, **options)
        if entry is not None:
            self.legend[entry] = as_entry(style)

    def _marker_entry(self, style: Mapping[str, Any]) -> dict[str, Any]:
        marker = {"linestyle": "none", "marker": "o"} if self.backend == "matplotlib" else {}
        return {**line_entry(style), **marker}
