"""Sample curves of a random input."""

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax.typing import ArrayLike
from numpy.typing import NDArray
from numpyro.distributions import Distribution

from nn_uq_dist.basics._checks import as_key, positive_int
from nn_uq_dist.basics._known_values import in_float64
from nn_uq_dist.diagnostics._arguments import as_names
from nn_uq_dist.inputs import AbstractInputLaw, as_input_law
from nn_uq_dist.plots.parts import _figure, _palette, _shapes
from nn_uq_dist.plots.parts._figure import Figure, Frame, PlotCollection, Visuals

Array = NDArray[np.float64]

VISUALS: _figure.Styles = {
    "range": {"color": _palette.SKY, "alpha": 0.35},
    "samples": {"color": _palette.GRAY, "width": 0.5, "alpha": 0.8},
    "mean": {"color": _palette.BLUE, "width": 1.8},
    **_figure.frame_visuals(without="title"),
}


def plot_input_samples(
    f: Distribution | AbstractInputLaw,
    key: jax.Array,
    *,
    num_samples: int = 50,
    x: ArrayLike | None = None,
    input_names: Sequence[str] | None = None,
    deviation: bool = False,
    xlabel: str | None = "input",
    ylabel: str | None = None,
    plot_collection: PlotCollection | None = None,
    backend: str | None = None,
    visuals: Visuals | None = None,
    **pc_kwargs: Any,
) -> PlotCollection:
    """Plot sample curves of the random input over its mean and its range.

    Parameters
    ----------
    f
        Law of the input without batch axes: a NumPyro distribution over vectors, an `InputLaw` or
        another `nn_uq_dist.inputs.AbstractInputLaw`.
    key
        JAX random key; the curves are ``f.sample(key, (num_samples,))`` of the input law.
    num_samples
        Number of curves.
    x
        Positions of the inputs, ascending, shape ``(N_x,)``. Default: 0, 1, ...
    input_names
        Names of the inputs; as many as fit are shown below the axis. Default: the positions.
    deviation
        Whether to show deviations from the mean. It helps if the range is narrow compared with the
        changes of the mean.
    xlabel, ylabel
        Labels of the axes with the unit; None for none.
    plot_collection
        Draw into this collection, which must have a single panel. Default: a new one.
    backend, **pc_kwargs
        As in `plot_marginals`.
    visuals
        Options of each visual, or False to leave it out. Keys: `range`, `samples`, `mean`, `ticks`,
        `xlabel`, `ylabel`, `legend`.

    Returns
    -------
    arviz_plots.PlotCollection
        The range is the box (the support of the uniform part), and three standard deviations of the
        Gaussian part on top of it.

    Raises
    ------
    ImportError
        If ArviZ or Matplotlib is missing.
    TypeError, ValueError
        If arguments do not fit or `f` has batch axes; this is checked before anything is drawn.

    Examples
    --------
    >>> import jax, jax.numpy as jnp, nn_uq_dist as nuq
    >>> law = nuq.InputLaw(jnp.array([1.0, 3.0, 2.0]), half_width=0.5)
    >>> figure = nuq.plots.plot_input_samples(law, jax.random.key(0), ylabel="m/s", backend="none")
    >>> band = figure.viz["range"]["values"].item()
    >>> print(band["y_bottom"], band["y_top"])
    [0.5 2.5 1.5] [1.5 3.5 2.5]
    """
    law = as_input_law(f)
    if law.is_transformed:
        raise ValueError(
            f"f must not be transformed, got {law!r}, whose entries are scores; plot draws of "
            f"law.network_input(law.sample(key, (n,)))"
        )
    if law.batch_shape:
        raise ValueError(
            f"f must have no batch shape, got {law.batch_shape}; plot one mean at a time"
        )
    count = positive_int("num_samples", num_samples)
    positions = _shapes.as_positions(x, law.num_inputs, "input")
    names = None if input_names is None else as_names("input", input_names, law.num_inputs)
    key = as_key("key", key)
    figure = Figure("plot_input_samples", VISUALS, visuals, plot_collection, backend, pc_kwargs)

    mean = np.asarray(law.mean, np.float64)
    curves = np.asarray(law.sample(key, (count,)), np.float64)
    if deviation:
        mean, curves = 0 * mean, curves - mean
    half, entry = input_range(law)
    low = min(np.min(mean - half), curves.min())
    high = max(np.max(mean + half), curves.max())
    margin = 0.05 * (high - low) or 1.0

    line = np.stack([positions, mean])
    figure.one_panel(line, _shapes.LINE)
    figure.area("range", np.stack([positions, mean - half, mean + half]), entry)
    if (style := figure.options["samples"]) is not None:
        import xarray as xr
        from arviz_plots import visuals as draw

        data = xr.Dataset({"values": (["sample", "point"], curves)}, {"point": positions})
        figure.collection.map(draw.multiple_lines, "samples", data=data, x_dim="point", **style)
        figure.legend[f"{count} samples" if count > 1 else "sample"] = _palette.line_entry(style)
    figure.line("mean", line, "mean")
    left, right, ticks = _shapes.position_ticks(positions, names)
    frame = Frame(left, right, low - margin, high + margin)
    return figure.finish(frame, xlabel=xlabel, ylabel=ylabel, xticks=ticks)


def input_range(law: AbstractInputLaw) -> tuple[Array, str]:
    """Return the half-width of the range at each input and its description."""
    exact = in_float64(law)
    box, normal = exact.half_range, exact.normal_scale
    half = np.zeros(law.num_inputs) if box is None else np.asarray(box, np.float64)
    if normal is None:
        return half, "range"
    return half + 3 * normal, "±3 sd" if box is None else "box ±3 sd of the Gaussian part"
