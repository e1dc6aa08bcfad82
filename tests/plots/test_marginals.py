"""The figure of marginals: its artists against the laws and draws, on two backends."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from nn_uq_dist.distributions import LinearizedMarginal
from nn_uq_dist.plots import plot_marginals

pytestmark = pytest.mark.viz

NAMES = ["level", "slope", "bend"]


@pytest.fixture(scope="module")
def law():
    weights = jnp.array([[2.0, 0.0], [1.5, 0.5], [0.3, 0.3]])
    return LinearizedMarginal(jnp.array([0.0, 10.0, -5.0]), weights)


@pytest.fixture(scope="module")
def draws(law):
    return np.asarray(law.sample(jax.random.key(0), (20_000,)))


def artist(figure, name, output):
    return figure.viz[name]["values"].sel(output=output).item()


def test_density_is_that_of_the_law(law, draws):
    figure = plot_marginals(law, draws, output_names=NAMES, backend="none")
    known = {
        "level": scipy.stats.uniform(-2, 4),
        "slope": scipy.stats.trapezoid(0.25, 0.75, 8, 4),
        "bend": scipy.stats.triang(0.5, -5.6, 1.2),
    }
    for name, reference in known.items():
        line = artist(figure, "density", name)
        x, y = np.asarray(line["x"]), np.asarray(line["y"])
        np.testing.assert_allclose(y, reference.pdf(x), rtol=1e-4, atol=1e-4)
        assert x[0] < reference.support()[0] < reference.support()[1] < x[-1]


def test_histogram_is_that_of_all_draws(law, draws):
    draws = draws.copy()
    draws[:200, 0] = 1e6  # far outside: the rest must not be scaled up
    figure = plot_marginals(law, draws[::-1], output_names=NAMES, num_bins=20, backend="none")
    for j, name in enumerate(NAMES):
        bars = artist(figure, "histogram", name)
        left, right = np.asarray(bars["l_e"]), np.asarray(bars["r_e"])
        assert left.size == 20
        count, _ = np.histogram(draws[:, j], [*left, right[-1]])
        np.testing.assert_allclose(bars["y"], count / (20_000 * (right - left)), atol=1e-3)
    clean = plot_marginals(law, output_names=NAMES, backend="none")
    assert "histogram" not in clean.viz.children


def test_bands_are_standard_deviations_about_the_mean(law):
    figure = plot_marginals(law, output_names=NAMES, backend="none")
    sd = np.sqrt(2 * 0.3**2 / 3)
    for k in (1, 2):
        band = artist(figure, f"band_{k}_sd", "bend")
        np.testing.assert_allclose(band["x"], [-5 - k * sd, -5 + k * sd], rtol=1e-5)
    # Three standard deviations lie beyond the support and are cut at the panel.
    band = artist(figure, "band_3_sd", "bend")
    assert -5 - 3 * sd < band["x"][0] < -5.6
    line = artist(figure, "mean", "slope")
    np.testing.assert_allclose(line["x"], [10, 10])


def test_any_subset_of_outputs(law, draws):
    everything = plot_marginals(law, draws, output_names=NAMES, backend="none")
    for outputs, expected in (
        (["bend", "level"], ["bend", "level"]),
        ([1], ["slope"]),
        ([-1, "level"], ["bend", "level"]),
        (np.array([2, 0]), ["bend", "level"]),
    ):
        figure = plot_marginals(law, draws, outputs=outputs, output_names=NAMES, backend="none")
        assert type(figure).__name__ == "PlotCollection"
        assert figure.viz["density"]["values"].output.values.tolist() == expected
        for name in expected:
            for visual in ("density", "histogram"):
                one, other = artist(figure, visual, name), artist(everything, visual, name)
                np.testing.assert_array_equal(one["y"], other["y"])


def test_matplotlib_figure_is_labelled_and_changes_no_style(law, draws, tmp_path):
    import matplotlib as mpl

    before = dict(mpl.rcParams)
    figure = plot_marginals(
        law, draws, output_names=NAMES, xlabel="height (m)", col_wrap=2, backend="matplotlib"
    )
    figure.savefig(tmp_path / "marginals.png")
    assert dict(mpl.rcParams) == before
    assert (tmp_path / "marginals.png").stat().st_size > 10_000
    fig = figure.get_viz("figure")
    axes = fig.axes[:3]
    assert [axis.get_title() for axis in axes] == NAMES
    assert fig.get_supxlabel() == "height (m)"
    legend = [text.get_text() for text in fig.legends[0].get_texts()]
    assert legend == ["±1 sd", "±2 sd", "±3 sd", "Monte Carlo", "analytic density", "mean"]


def test_visuals_are_switched_off_and_styled(law, draws):
    options = {"bands": False, "legend": False, "density": {"color": "black", "width": 3}}
    figure = plot_marginals(law, draws, visuals=options)
    assert "band_1_sd" not in figure.viz.children
    assert not figure.get_viz("figure").legends
    line = artist(figure, "density", "y[0]")
    assert (line.get_color(), line.get_linewidth()) == ("black", 3)


WRONG = [
    ({"draws": np.zeros((200, 2))}, ValueError, r"\(n, 3\), got \(200, 2\)"),
    ({"outputs": [3]}, ValueError, "must name outputs of 3, got unknown index 3"),
    ({"outputs": ["y[7]"]}, TypeError, r"or out of y\[0\].* got 'y\[7\]'"),
    ({"outputs": "level"}, TypeError, "got the string 'level'"),
    ({"outputs": []}, ValueError, "at least one output"),
    ({"outputs": [0, 0]}, ValueError, "must be distinct, got 0 twice"),
    ({"output_names": ["a"]}, ValueError, "one name per output, 3, got 1"),
    ({"visuals": {"line": False}}, ValueError, "keys from bands, histogram, .*got line"),
    ({"num_bins": 0}, ValueError, "positive integer, got 0"),
    ({"marginals": 3.0}, TypeError, "got float"),
]


def test_wrong_arguments_are_named(law):
    for wrong, error, message in WRONG:
        with pytest.raises(error, match=message):
            plot_marginals(**{"marginals": law, "backend": "none"} | wrong)


def test_numbers_along_the_axis_are_few_and_inside():
    loc, scale = jnp.array([0.0, 3e6, -2.5, 1e4]), jnp.array([1.0, 2e4, 1e-3, 0.01])
    law = LinearizedMarginal(loc, scale[:, None] * jnp.ones((1, 2)))
    fig = plot_marginals(law, backend="matplotlib").get_viz("figure")
    fig.canvas.draw()
    for panel in fig.axes:
        axis = panel.xaxis
        low, high = axis.get_view_interval()
        inside = [x for x in axis.get_majorticklocs() if low <= x <= high]
        assert 2 <= len(inside) <= 5
        assert len({label.get_text() for label in axis.get_ticklabels()}) >= len(inside)
