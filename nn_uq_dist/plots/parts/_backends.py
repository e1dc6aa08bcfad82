"""The plotting backends of ArviZ: which one draws, and its units of length."""

import importlib
from collections.abc import Mapping
from typing import Any

from nn_uq_dist.plots.parts._from_diagnostics import require_extra

BACKENDS = ("matplotlib", "plotly", "bokeh", "none")
DOTS_PER_INCH = 100
PIXELS_PER_POINT = DOTS_PER_INCH / 72


def as_backend(backend: str | None, plot_collection: Any | None, purpose: str) -> str:
    """Return the name of the backend that draws, after a check that it is installed.

    Parameters
    ----------
    backend
        As given. Default: that of `plot_collection`, or else ArviZ's own default.
    plot_collection
        The collection to draw into, or None.
    purpose
        The function that needs it, such as ``"plots.plot_pit"``.
    """
    require_extra("arviz_plots", purpose)
    name: str
    if plot_collection is not None:
        name = plot_collection.backend
    elif backend is None:
        name = require_extra("arviz_base", purpose).rcParams["plot.backend"]
    else:
        name = backend
    if name not in BACKENDS:
        raise ValueError(f"backend must be one of {', '.join(BACKENDS)}, got {name!r}")
    if name in {"plotly", "bokeh"}:
        # The extra `viz` installs Matplotlib only.
        try:
            importlib.import_module(f"arviz_plots.backend.{name}")
        except ImportError as error:
            raise ImportError(
                f"backend={name!r} needs {error.name or name}; "
                f"install it with `pip install 'arviz-plots[{name}]'`"
            ) from error
    elif name == "matplotlib":
        require_extra("matplotlib", purpose)
    return name


def in_backend_units(style: Mapping[str, Any], backend: str) -> dict[str, Any]:
    """Convert lengths in points to the units of a backend.

    `size` (of letters) and `width` are points in Matplotlib and pixels in Plotly and Bokeh. The
    `diameter` of a marker becomes its `size`, which in Matplotlib and Plotly is its square.
    """
    scale = PIXELS_PER_POINT if backend in {"plotly", "bokeh"} else 1.0
    converted = {
        key: value * scale if key in {"size", "width", "diameter"} else value
        for key, value in style.items()
    }
    if "diameter" in converted:
        diameter = converted.pop("diameter")
        converted["size"] = diameter if backend == "bokeh" else diameter**2
    return converted


def in_front(backend: str, layer: int) -> dict[str, int]:
    """Return the option that puts a visual above areas, which Plotly puts above histograms."""
    return {"zorder": layer} if backend == "plotly" else {}


def figure_options(
    backend: str, inches: tuple[float, float], pc_kwargs: dict[str, Any], tight_rows: int = 0
) -> dict[str, Any]:
    """Take `figure_kwargs` out of the arguments of a collection; add the size of a new figure.

    `tight_rows` is the number of rows if nothing is between them, which Plotly cannot determine.
    """
    options = dict(pc_kwargs.pop("figure_kwargs", {}))
    if "figsize" not in options:
        # Inches would make Plotly and Bokeh warn that they assume 100 dots each.
        scale, unit = (DOTS_PER_INCH, "dots") if backend in {"plotly", "bokeh"} else (1, "inches")
        options |= {"figsize": tuple(scale * x for x in inches), "figsize_units": unit}
    if backend == "plotly" and tight_rows:
        options.setdefault("vertical_spacing", 0.1 / tight_rows)
    if backend == "matplotlib":
        options.setdefault("layout", "constrained")  # for this figure only; leaves room for legends
    return options
