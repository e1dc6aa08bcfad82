"""The error of the linearization itself, draw by draw."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax import lax
from numpy.typing import NDArray

from nn_uq_dist.basics._checks import as_key, positive_int
from nn_uq_dist.basics._compiled_once import compiled_once
from nn_uq_dist.diagnostics._arguments import MINIMUM_DRAWS, bounded, finite_draws, unbatched
from nn_uq_dist.inputs._flat_network import FlatNetwork, flat_network
from nn_uq_dist.linearization._linear_model import LinearModel
from nn_uq_dist.plots.parts import _figure, _palette, _shapes, _shown_outputs
from nn_uq_dist.plots.parts._figure import Figure, Frame, PlotCollection, Visuals
from nn_uq_dist.sampling._paired_draws import require_outputs

Array = NDArray[np.float64]

DRAWS_PER_CALL = 1024
TAIL = 1e-3  # share of the errors that may lie outside the panel on either side
SMALLEST_RANGE = 1e-6  # in sd: for a network that is linear, up to rounding
HEADROOM = 1.3  # for the text
CENTRAL = (0.005, 0.995)
VISUALS: _figure.Styles = {
    "range": {"color": _palette.SKY, "alpha": 0.3},
    "histogram": {"color": _palette.LIGHT_GRAY},
    "zero": {"color": "black", "linestyle": _palette.DOTTED, "width": 1.0},
    "mean": {"color": _palette.VERMILION, "linestyle": _palette.DASHED, "width": 1.2},
    "text": {"size": 7},
    **_figure.frame_visuals(without="ylabel"),
}


def plot_errors(
    network: Callable[[jax.Array], jax.Array],
    linearization: LinearModel,
    key: jax.Array,
    *,
    num_draws: int = 10_000,
    outputs: Sequence[int | str] | None = None,
    output_names: Sequence[str] | None = None,
    xlabel: str | None = "error / sd of the linearized output",
    num_bins: int = 60,
    plot_collection: PlotCollection | None = None,
    backend: str | None = None,
    visuals: Visuals | None = None,
    **pc_kwargs: Any,
) -> PlotCollection:
    r"""Plot the density of the linearization error :math:`g(f) - (m + J (f - \mu))`.

    Network and linear model see the same inputs, so this is the error of single output values, not
    a difference of two laws, which may agree even if the errors are large. One panel per output: a
    histogram with the mean, the central 99% and zero.

    Parameters
    ----------
    network
        The network, ``(N_x,) -> (N_y,)``.
    linearization
        ``linearize(network, f)``, or any other `LinearModel`, without batch axes.
    key
        JAX random key of ``linearization.sample_pairs(key, (num_draws,))``.
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
        the histogram is normalized by all errors.
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
        If ArviZ or Matplotlib is missing.
    TypeError, ValueError
        If arguments do not fit, an output is constant, or has fewer than 100 finite errors.

    Warns
    -----
    RuntimeWarning
        If the network gives NaN or infinity; such draws are left out.

    Examples
    --------
    >>> import jax, jax.numpy as jnp, nn_uq_dist as nuq
    >>> network = lambda f: jnp.array([f[0] + f[1], f[0] * f[1]])
    >>> lin = nuq.linearize(network, nuq.InputLaw(jnp.ones(2), half_width=0.5))
    >>> figure = nuq.plots.plot_errors(network, lin, jax.random.key(0), backend="none")
    >>> print(figure.viz["text"]["values"].sel(output="y[1]").item()["string"])
    mean 0.00, sd 0.21
    99%: -0.53 to 0.54
    """
    model = unbatched(linearization, "take one point: linearization[i]")
    sd = np.sqrt(np.asarray(model.marginals().variance, np.float64))
    flat = flat_network(network, model.input)
    require_outputs(model.num_outputs, flat.num_outputs)
    shown, names = _shown_outputs.choose_outputs(outputs, output_names, sd.size)
    key = as_key("key", key)
    count = positive_int("num_draws", num_draws)
    if count < MINIMUM_DRAWS:
        raise ValueError(f"num_draws must be at least {MINIMUM_DRAWS}, got {count}")
    bins = positive_int("num_bins", num_bins)
    figure = Figure("plot_errors", VISUALS, visuals, plot_collection, backend, pc_kwargs)

    errors = _errors(flat, model, key, count)[:, shown] / sd[shown]
    columns = finite_draws(errors, names)
    _shown_outputs.require_enough(columns, names)
    low, high = np.array([np.quantile(column, [TAIL, 1 - TAIL]) for column in columns]).T
    middle, half = (low + high) / 2, np.maximum(high - low, SMALLEST_RANGE) / 2
    low, high = middle - half, middle + half
    bars = _shapes.histograms(columns, count, low, high, bins)
    central = np.array([np.quantile(column, CENTRAL) for column in columns])
    mean = np.array([column.mean() for column in columns])
    height = bars[:, 0].max(axis=1)
    # Zero is always in the panel, even if all errors have the same sign.
    margin = 0.04 * (high - low)
    left, right = np.minimum(low, 0) - margin, np.maximum(high, 0) + margin
    frame = Frame(left, right, 0 * height, HEADROOM * height)

    figure.one_panel_per_output(bars, _shapes.HISTOGRAM, names)
    figure.area("range", _shapes.upright(central.T, HEADROOM * height), "central 99%")
    figure.bars("histogram", bars, "network - linear model")
    figure.line("zero", _shapes.vertical_lines(0 * mean, height), "no error")
    figure.line("mean", _shapes.vertical_lines(mean, height), "mean")
    texts = [_text(column, ends) for column, ends in zip(columns, central, strict=True)]
    figure.texts("text", frame, texts)
    return figure.finish(frame, xlabel=xlabel, removed={"axis": "y"})


def _errors(flat: FlatNetwork, model: LinearModel, key: jax.Array, count: int) -> Array:
    """Errors at random inputs, shape ``(count, N_y)``; a block of draws at a time."""
    inputs, linear = model.sample_pairs(key, (count,))

    def each(at: jax.Array) -> jax.Array:
        outputs: jax.Array = lax.map(flat, at, batch_size=DRAWS_PER_CALL)
        return outputs

    outputs = np.asarray(compiled_once(each, inputs)(inputs), np.float64)
    return bounded(outputs - np.asarray(linear, np.float64))


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
