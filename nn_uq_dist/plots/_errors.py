"""The error of the linearization itself, draw by draw."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from numpy.typing import NDArray

from nn_uq_dist._checks import as_key, positive_int
from nn_uq_dist._linearize import check_network
from nn_uq_dist.diagnostics._arguments import (
    MINIMUM_DRAWS,
    as_output_names,
    finite_draws,
    require_extra,
)
from nn_uq_dist.diagnostics._sensitivity import unbatched
from nn_uq_dist.plots._common import (
    LIGHT_GRAY,
    SKY,
    VERMILION,
    Visuals,
    as_outputs,
    as_visuals,
)
from nn_uq_dist.plots._panels import (
    DASHED,
    DOTTED,
    FRAME_VISUALS,
    Frame,
    add_legend,
    area,
    finish,
    outer_panels,
    output_panels,
    panel_data,
    write,
)
from nn_uq_dist.plots._pit import require_enough

if TYPE_CHECKING:
    from arviz_plots import PlotCollection

    from nn_uq_dist._linearization import Linearization

Array = NDArray[np.float64]

DRAWS_PER_CALL = 1024
TAIL = 1e-3  # of the errors on either side may lie outside the panel
SMALLEST_RANGE = 1e-6  # in sd: for a network that is linear, up to rounding
HEADROOM = 1.45  # for the text
CENTRAL = (0.005, 0.995)
VISUALS: dict[str, Mapping[str, Any]] = {
    "range": {"color": SKY, "alpha": 0.3},
    "histogram": {"color": LIGHT_GRAY},
    "zero": {"color": "black", "linestyle": DOTTED, "width": 1.0},
    "mean": {"color": VERMILION, "linestyle": DASHED, "width": 1.2},
    "text": {"size": 7},
    **{name: style for name, style in FRAME_VISUALS.items() if name != "ylabel"},
}


def plot_errors(
    net: Callable[[jax.Array], jax.Array],
    linearization: "Linearization",
    key: jax.Array,
    *,
    num_draws: int = 10_000,
    outputs: Sequence[int | str] | None = None,
    output_names: Sequence[str] | None = None,
    xlabel: str | None = "error / sd of the linearized output",
    num_bins: int = 60,
    plot_collection: "PlotCollection | None" = None,
    backend: str | None = None,
    visuals: Visuals | None = None,
    **pc_kwargs: Any,
) -> "PlotCollection":
    r"""Plot the density of the linearization error :math:`g(f) - (m + J (f - \mu))`.

    Network and linear model see the same inputs, so that this is the error of single outputs and
    not a difference of two laws, which may agree though the errors are large. One panel per output:
    a histogram with the mean, the central 99% and the zero.

    Parameters
    ----------
    net
        The network, ``(N_x,) -> (N_y,)``.
    linearization
        ``linearize(net, f)``, without batch axes.
    key
        JAX random key; the inputs are ``linearization.input.sample(key, (num_draws,))``.
    num_draws
        Number of inputs, at least 100.
    outputs
        Outputs to show, by position or name. Default: all.
    output_names
        Names of all `N_y` outputs, the titles of the panels. Default ``y[0]``, ``y[1]``, ...
    xlabel
        Label of the horizontal axes; None for none. Errors are in standard deviations of the
        linearized output.
    num_bins
        Bins over the range of a panel, which holds all but ``1e-3`` of the errors on either side;
        the histogram is normalized by all.
    plot_collection, backend, **pc_kwargs
        As in `plot_marginals`.
    visuals
        Options of each visual, or False to leave it out. Keys: `range`, `histogram`, `zero`,
        `mean`, `text`, `title`, `ticks`, `xlabel`, `legend`.

    Returns
    -------
    arviz_plots.PlotCollection
        The text of a panel gives mean, standard deviation and central 99% of the errors.

    Raises
    ------
    ImportError
        If ArviZ or the backend is missing.
    TypeError, ValueError
        If arguments do not fit, an output is constant, or has fewer than 100 finite errors.

    Warns
    -----
    RuntimeWarning
        If the network gives NaN or infinity; such draws are left out.

    Examples
    --------
    >>> import jax, jax.numpy as jnp, nn_uq_dist as nuq
    >>> net = lambda f: jnp.array([f[0] + f[1], f[0] * f[1]])
    >>> lin = nuq.linearize(net, nuq.InputLaw(jnp.ones(2), half_width=0.5))
    >>> figure = nuq.plots.plot_errors(net, lin, jax.random.key(0), backend="none")
    >>> print(figure.viz["text"]["values"].sel(output="y[1]").item()["string"])
    mean 0.00, sd 0.21
    99%: -0.53 to 0.54
    """
    sd = _checked_sd(net, linearization)
    num_outputs = sd.size
    names = as_output_names(output_names, num_outputs)
    shown = as_outputs(outputs, names)
    shown_names = [names[j] for j in shown]
    options = as_visuals(visuals, VISUALS)
    key = as_key("key", key)
    count = positive_int("num_draws", num_draws)
    if count < MINIMUM_DRAWS:
        raise ValueError(f"num_draws must be at least {MINIMUM_DRAWS}, got {count}")
    bins = positive_int("num_bins", num_bins)
    require_extra("arviz_plots", "plots.plot_errors")
    from arviz_plots import visuals as draw

    errors = linearization_errors(net, linearization, key, count)[:, shown] / sd[shown]
    columns = finite_draws(errors, shown_names)
    require_enough([column.size for column in columns], shown_names)
    bars, central, limits = _histograms(columns, bins)
    mean = np.array([column.mean() for column in columns])
    top = HEADROOM * bars[:, 0].max(axis=1)
    left, right = limits.T
    frame = Frame(left, right, 0 * top, top)

    data = panel_data(bars, ["histogram", "left_edges", "right_edges"], shown_names)
    is_own = plot_collection is None
    figure = output_panels(data, plot_collection, backend, pc_kwargs)
    legend: dict[str, dict[str, Any]] = {}
    if (style := options["range"]) is not None:
        heights = [[[0.0, 0.0], [t, t]] for t in top / HEADROOM]
        sides = np.concatenate([central[:, None], heights], axis=1)
        rows = panel_data(sides, ["x", "y_bottom", "y_top"], shown_names)
        figure.map(area, "range", data=rows, **style)
        legend["central 99%"] = {"width": 8, **style}
    if (style := options["histogram"]) is not None:
        figure.map(draw.hist, "histogram", data=data, **style)
        legend["network - linear model"] = {"width": 8, **style}
    for name, at, entry in (("zero", 0 * mean, "no error"), ("mean", mean, "mean")):
        if (style := options[name]) is not None:
            # Lines of their own: the vertical lines of ArviZ lie behind the histogram.
            ends = np.stack(
                [np.stack([at, at], -1), np.stack([0 * top, top / HEADROOM], -1)], axis=1
            )
            rows = panel_data(ends, ["x", "y"], shown_names)
            figure.map(draw.line_xy, name, data=rows, **style)
            legend[entry] = dict(style)
    if (style := options["text"]) is not None:
        texts = [_text(column, ends) for column, ends in zip(columns, central, strict=True)]
        write(figure, "text", shown_names, frame, texts, style)
    outer = outer_panels(figure, is_own)
    finish(figure, options, shown_names, frame, labels=(xlabel, None), outer=outer, hide_y=True)
    if (style := options["legend"]) is not None:
        add_legend(figure, legend, style)
    return figure


def _checked_sd(net: Callable[[jax.Array], jax.Array], linearization: Any) -> Array:
    """Return the standard deviations of the linearized outputs, if the network has these."""
    unbatched(linearization)
    sd = np.sqrt(np.asarray(linearization.marginals().variance, np.float64))
    num_outputs = linearization.num_outputs
    found = check_network(net, linearization.input).shape
    if found != (num_outputs,):
        raise ValueError(
            f"net must have the {num_outputs} outputs of linearization, got {found[0]}; pass the "
            "network that was linearized"
        )
    return sd


def _histograms(columns: Sequence[Array], num_bins: int) -> tuple[Array, Array, Array]:
    """Return heights and edges ``(n, 3, bins)``, central ranges and limits ``(n, 2)``."""
    bars, central, limits = [], [], []
    for column in columns:
        low, high = np.quantile(column, [TAIL, 1 - TAIL])
        wide = max(high - low, SMALLEST_RANGE)
        middle = (low + high) / 2
        edges = np.linspace(middle - wide / 2, middle + wide / 2, num_bins + 1)
        heights = np.histogram(column, edges)[0] / (column.size * np.diff(edges))
        bars.append([heights, edges[:-1], edges[1:]])
        central.append(np.quantile(column, CENTRAL))
        # The zero is always in sight: an error may be all of one sign.
        limits.append([min(edges[0], 0) - 0.04 * wide, max(edges[-1], 0) + 0.04 * wide])
    return np.array(bars), np.array(central), np.array(limits)


def linearization_errors(
    net: Callable[[jax.Array], jax.Array], linearization: Any, key: jax.Array, count: int
) -> Array:
    """Errors at random inputs, shape ``(count, N_y)``; a block of draws at a time."""
    inputs = linearization.input.sample(key, (count,))
    run = jax.jit(jax.vmap(partial(_error, net, linearization)))
    blocks = [inputs[i : i + DRAWS_PER_CALL] for i in range(0, count, DRAWS_PER_CALL)]
    return np.concatenate([np.asarray(run(block), np.float64) for block in blocks])


def _error(net: Callable[[jax.Array], jax.Array], linearization: Any, x: jax.Array) -> jax.Array:
    error: jax.Array = net(x) - linearization(x)
    return error


def _text(errors: Array, central: Array) -> str:
    return (
        f"mean {_short(errors.mean())}, sd {_short(errors.std())}\n"
        f"99%: {_short(central[0])} to {_short(central[1])}"
    )


def _short(value: float) -> str:
    """Two decimals, and tiny values as powers of ten."""
    value = float(value)
    if abs(value) >= 0.005 or value == 0:
        return f"{value:.2f}"
    return "0.00" if abs(value) >= 5e-4 else f"{value:.0e}"
