"""Every figure on Plotly and Bokeh: visuals, legend, labels and numbers as on other backends.

The numbers are checked elsewhere on the backend ``"none"``; here they are those that are drawn.
"""

import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nn_uq_dist as nuq

pytestmark = pytest.mark.viz

NAMES = ["level", "slope", "bend"]
KEY = jax.random.key(0)
BANDS = ["±1 sd", "±2 sd", "±3 sd"]
CHEAP = {"correlation": "linear", "masses": (0.5, 0.9)}


def net(f):
    return jnp.array([f[0] + 0.2 * f[1], 10 + 1.5 * f[1] + f[2], 0.4 * f[2] - 5 + 0.1 * f[2] ** 2])


@pytest.fixture(scope="module")
def lin():
    return nuq.linearize(net, nuq.InputLaw(jnp.zeros(3), scale_tril=jnp.eye(3)))


@pytest.fixture(scope="module")
def draws(lin):
    return np.asarray(lin.sample(KEY, (1000,)))


# Plot, entries of the legend, labels of the axes, a visual that is a line.
FIGURES = {
    "marginals": (
        lambda lin, draws, **o: nuq.plots.plot_marginals(lin, draws, xlabel="time (s)", **o),
        [*BANDS, "Monte Carlo", "analytic density", "mean"],
        {"time (s)"},
        "density",
    ),
    "output_band": (
        lambda lin, draws, **o: nuq.plots.plot_output_band(lin, draws, ylabel="metres", **o),
        [*BANDS, "mean", "analytic density", "Monte Carlo"],
        {"output", "metres"},
        "mean",
    ),
    "input_samples": (
        lambda lin, _, output_names, **o: nuq.plots.plot_input_samples(
            lin.input, KEY, num_samples=5, input_names=output_names, **o
        ),
        ["±3 sd", "5 samples", "mean"],
        {"input"},
        "mean",
    ),
    "pit": (
        nuq.plots.plot_pit,
        ["95% band (Dvoretzky-Kiefer-Wolfowitz)", "Monte Carlo - analytic", "largest"],
        {"analytic F(draw)", "ECDF - uniform"},
        "difference",
    ),
    "errors": (
        lambda lin, _, **o: nuq.plots.plot_errors(net, lin, KEY, num_draws=200, **o),
        ["central 99%", "network - linear model", "no error", "mean"],
        {"error / sd of the linearized output"},
        "zero",
    ),
    "tails": (
        nuq.plots.plot_tails,
        ["analytic, both tails", "upper tail, 95% interval", "lower tail, 95% interval"],
        {"distance from the mean (sd)", "probability beyond"},
        "analytic",
    ),
    "sensitivity": (
        lambda lin, _, **o: nuq.plots.plot_sensitivity(lin, **o),
        ["0 to 20%", "20 to 40%", "40 to 60%", "60 to 80%", "80 to 100%"],
        {"input", "output"},
        None,
    ),
    "joint": (
        lambda lin, draws, **o: nuq.plots.plot_joint(lin, draws, unit="m", **CHEAP, **o),
        ["analytic density", "copula 50, 90%", "Monte Carlo 50%", "Monte Carlo 90%"],
        {f"{name} (m)" for name in NAMES},
        "density",
    ),
    "three_point": (
        lambda lin, draws, **o: nuq.plots.plot_three_point(
            lin, draws, (0, 1, 2), window=0.2, **CHEAP, **o
        ),
        ["analytic", "50%", "90%"],
        {"level", "copula\nslope", "Monte Carlo\nslope"},
        "contour",
    ),
}


def plotly_parts(figure):
    """Return the entries of the legend and the texts of axes and titles."""
    layout = figure.get_viz("figure").layout
    entries = [trace.name for trace in figure.get_viz("figure").data if trace.showlegend]
    axes = [layout[name] for name in layout if name.startswith(("xaxis", "yaxis"))]
    labels = {axis.title.text.replace("<br>", "\n") for axis in axes if axis.title.text}
    return entries, labels, {note.text.replace("<br>", "\n") for note in layout.annotations}


def bokeh_parts(figure):
    plots = [plot for plot, *_ in figure.get_viz("figure").children if plot is not None]
    entries = [item.label.value for p in plots for legend in p.legend for item in legend.items]
    labels = {axis.axis_label for p in plots for axis in p.axis if axis.axis_label}
    return entries, labels, {plot.title.text for plot in plots}


PARTS = {"plotly": plotly_parts, "bokeh": bokeh_parts}


def points(artist):
    """Return the coordinates of a line."""
    if isinstance(artist, dict):
        return artist["x"], artist["y"]
    if hasattr(artist, "data_source"):
        return artist.data_source.data["x"], artist.data_source.data["y"]
    return artist.x, artist.y


def visuals(figure):
    """Return the names of all that is drawn; matrices of panels store it as variables."""
    return set(figure.viz.children) | set(figure.viz.data_vars)


def artists(figure, name):
    """Return what a visual has drawn, panel by panel."""
    found = figure.viz[name]
    arrays = found.data_vars.values() if hasattr(found, "data_vars") else [found]
    return [artist for array in arrays for artist in array.values.ravel()]


@pytest.mark.parametrize("kind", FIGURES)
def test_figure_is_the_same_on_plotly_and_bokeh(lin, draws, kind):
    plot, entries, labels, line = FIGURES[kind]
    plain = plot(lin, draws, output_names=NAMES, backend="none")
    titled = kind in {"marginals", "pit", "errors", "tails"}
    for backend, parts in PARTS.items():
        figure = plot(lin, draws, output_names=NAMES, backend=backend)
        assert figure.backend == backend
        assert visuals(figure) == visuals(plain)
        found_entries, found_labels, titles = parts(figure)
        assert found_entries == entries
        assert found_labels == labels
        assert set(NAMES) <= titles or not titled
        if line is not None:
            drawn, expected = artists(figure, line), artists(plain, line)
            assert len(drawn) == len(expected)
            for one, other in zip(drawn, expected, strict=True):
                if other is not None:
                    np.testing.assert_allclose(points(one), points(other), rtol=1e-12)


@pytest.mark.parametrize("backend", PARTS)
def test_heat_maps_name_the_backends_that_have_them(lin, draws, backend):
    with pytest.raises(ValueError, match=f"'matplotlib' or 'none' for heat maps, got '{backend}'"):
        nuq.plots.plot_correlation(lin, draws, backend=backend)


def test_unknown_backend_is_named(lin):
    with pytest.raises(ValueError, match="one of matplotlib, plotly, bokeh, none, got 'gnuplot'"):
        nuq.plots.plot_marginals(lin, backend="gnuplot")


@pytest.mark.parametrize("backend", PARTS)
def test_missing_backend_says_how_to_install_it(lin, monkeypatch, backend):
    for name in list(sys.modules):
        if name.startswith(f"arviz_plots.backend.{backend}"):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, backend, None)
    for part in ("colors", "colors.named"):
        monkeypatch.setitem(sys.modules, f"{backend}.{part}", None)
    with pytest.raises(ImportError, match=rf"pip install 'arviz-plots\[{backend}\]'"):
        nuq.plots.plot_marginals(lin, backend=backend)


@pytest.mark.parametrize(
    ("backend", "size", "area"),
    [("matplotlib", 9, 16), ("none", 9, 16), ("plotly", 12.5, 5.5556**2), ("bokeh", 12.5, 5.5556)],
)
def test_lengths_are_points_on_a_page_of_100_dots_per_inch(backend, size, area):
    from nn_uq_dist.plots.parts._backends import in_backend_units

    style = in_backend_units({"size": 9, "color": "black"}, backend)
    assert style == {"size": pytest.approx(size), "color": "black"}
    assert in_backend_units({"diameter": 4}, backend) == {"size": pytest.approx(area, rel=1e-4)}


def test_options_of_users_are_taken_as_they_are(lin, draws):
    options = {"density": {"color": "black", "width": 3}, "bands": False}
    figure = nuq.plots.plot_marginals(lin, draws, visuals=options, backend="plotly")
    line = artists(figure, "density")[0].line
    assert (line.color, line.width) == ("black", 3)
    assert "band_1_sd" not in visuals(figure)
