"""Figures of single outputs: what they draw against independent numbers, on two backends."""

import importlib
import sys

import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

import nn_uq_dist as nuq
from nn_uq_dist.plots._plot_joint import plot_joint
from nn_uq_dist.plots._plot_marginals import plot_marginals
from nn_uq_dist.plots._plot_output_band import plot_output_band
from nn_uq_dist.plots._plot_pit import dkw_half_width, ecdf_difference, plot_pit
from nn_uq_dist.plots._plot_sensitivity import plot_sensitivity
from nn_uq_dist.plots._plot_tails import clopper_pearson, plot_tails

pytestmark = pytest.mark.viz

NAMES = ["level", "slope", "bend"]
# Outputs with known laws: uniform on (-2, 2), and normal laws.
KNOWN = [scipy.stats.uniform(-2, 4), scipy.stats.norm(10, 1.5), scipy.stats.norm(-5, 0.4)]
SIZE = 4000


def net(f):
    return jnp.array([2 * f[0], 10 + 1.5 * f[1], 0.4 * f[2] - 5 + 0.1 * f[2] ** 2])


@pytest.fixture(scope="module")
def lin():
    law = nuq.Input.box(jnp.zeros(3), jnp.array([1.0, 0, 0])) + nuq.Input.normal(
        jnp.zeros(3), scale_tril=jnp.diag(jnp.array([0.0, 1, 1]))
    )
    return nuq.linearize(net, law)


@pytest.fixture(scope="module")
def draws():
    rng = np.random.default_rng(3)
    return np.stack([law.rvs(SIZE, random_state=rng) for law in KNOWN], axis=1)


@pytest.fixture(params=["none", "matplotlib"])
def backend(request):
    return request.param


def artist(figure, name, output=None):
    found = figure.viz[name]["values"]
    return (found if output is None else found.sel(output=output)).item()


FIGURES = {
    "marginals": lambda lin, draws, **o: plot_marginals(lin, draws, output_names=NAMES, **o),
    "output_band": lambda lin, draws, **o: plot_output_band(lin, draws, output_names=NAMES, **o),
    "pit": lambda lin, draws, **o: plot_pit(lin, draws, output_names=NAMES, **o),
    "tails": lambda lin, draws, **o: plot_tails(lin, draws, output_names=NAMES, **o),
    "sensitivity": lambda lin, draws, **o: plot_sensitivity(lin, output_names=NAMES, **o),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", FIGURES)
def test_matplotlib_figure_is_labelled_within_its_page_and_changes_no_style(
    lin, draws, name, tmp_path
):
    import matplotlib as mpl

    before = dict(mpl.rcParams)
    figure = FIGURES[name](lin, draws, backend="matplotlib", xlabel="time (s)")
    assert type(figure).__name__ == "PlotCollection"
    figure.savefig(tmp_path / "figure.png")
    assert dict(mpl.rcParams) == before
    fig = figure.get_viz("figure")
    assert fig.get_size_inches()[0] <= 7.3
    axes = [axis for axis in fig.axes if axis.axison and axis.get_label() != "<colorbar>"]
    assert (fig.get_supxlabel() or axes[-1].get_xlabel()) == "time (s)"
    if len(axes) > 1:
        assert [axis.get_title() for axis in axes] == NAMES
    boxes = [x.get_tightbbox() for x in axes] + [x.get_window_extent() for x in fig.legends]
    for j, box in enumerate(boxes):
        assert box.x0 >= fig.bbox.x0 - 1
        assert box.x1 <= fig.bbox.x1 + 1
        assert not any(shrunk(box).overlaps(shrunk(other)) for other in boxes[:j])


def shrunk(box):
    """Allow a pixel: tick marks at the edge of two panels may touch."""
    return type(box).from_extents(box.x0 + 1, box.y0 + 1, box.x1 - 1, box.y1 - 1)


@pytest.mark.parametrize("name", FIGURES)
def test_visuals_are_left_out_and_collections_drawn_into(lin, draws, name):
    plot = FIGURES[name]
    visuals = importlib.import_module(f"nn_uq_dist.plots._plot_{name}").VISUALS
    first = plot(lin, draws, backend="none", visuals=dict.fromkeys(visuals, False))
    assert not first.viz.children
    second = plot(lin, draws, plot_collection=first)
    assert second is first
    assert first.viz.children
    with pytest.raises(ValueError, match=r"visuals must have keys from .*got lines"):
        plot(lin, draws, backend="none", visuals={"lines": False})


def test_missing_arviz_names_the_extra(lin, draws, monkeypatch):
    monkeypatch.setitem(sys.modules, "arviz_plots", None)
    for plot in FIGURES.values():
        with pytest.raises(ImportError, match=r"nn_uq_dist\[viz\]"):
            plot(lin, draws)


def test_backends(lin, draws):
    refused = (
        "backend must be 'matplotlib' or 'none', got 'plotly'; for interactive figures export the "
        "draws with to_datatree"
    )
    for plot in (*FIGURES.values(), plot_joint):
        with pytest.raises(ValueError, match=refused):
            plot(lin, draws, backend="plotly")
    assert plot_marginals(lin).backend == "matplotlib"
    first = plot_marginals(lin, backend="none")
    assert plot_marginals(lin, plot_collection=first).backend == "none"


# -- band ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("deviation", [False, True])
def test_bands_are_standard_deviations_about_the_mean(lin, deviation):
    x = [0.0, 2.0, 3.0]
    figure = plot_output_band(lin, x=x, deviation=deviation, backend="none")
    mean = np.array([law.mean() for law in KNOWN])
    sd = np.array([law.std() for law in KNOWN])
    shown = 0 * mean if deviation else mean
    for k in (1, 2, 3):
        band = artist(figure, f"band_{k}_sd")
        np.testing.assert_allclose(band["x"], x)
        np.testing.assert_allclose(band["y_bottom"], shown - k * sd, rtol=1e-5)
        np.testing.assert_allclose(band["y_top"], shown + k * sd, rtol=1e-5)
    line = artist(figure, "mean")
    np.testing.assert_allclose(line["y"], shown, rtol=1e-6)
    assert "histogram" not in figure.viz.children


def test_sideways_shapes_have_the_area_of_their_laws_and_one_scale(lin, draws):
    figure = plot_output_band(lin, draws, backend="none")
    for j, law in enumerate(KNOWN):
        shapes = {}
        for name in ("density", "histogram"):
            shape = figure.viz[name]["values"].values[j]
            shapes[name] = shape
            assert np.ptp(shape["y_top"]) == 0  # the way back of the outline is a straight line
            assert shape["x"][0] == shape["x"][-1] == j
        x, y = shapes["density"]["x"][1:-1] - j, shapes["density"]["y_bottom"][1:-1]
        assert 0 < x.max() <= 0.42 + 1e-9
        inside = np.abs(y - law.mean()) < 1.7 * law.std()  # off the ends of the uniform law
        scale = x[inside] / law.pdf(y[inside])
        np.testing.assert_allclose(scale, scale[0], rtol=1e-4)
        # The histogram is on the other side, to the same scale, and holds nearly all draws.
        x, y = j - shapes["histogram"]["x"][1:-1], shapes["histogram"]["y_bottom"][1:-1]
        assert x.min() >= 0
        assert np.trapezoid(x, y) / scale[0] == pytest.approx(1, abs=5e-3)


# -- PIT -------------------------------------------------------------------------------------------


def test_difference_and_band_against_scipy(lin, draws):
    figure = plot_pit(lin, draws, output_names=NAMES, coverage=0.9, backend="none")
    for j, (name, law) in enumerate(zip(NAMES, KNOWN, strict=True)):
        band = artist(figure, "band", name)
        np.testing.assert_allclose(band["y_top"], np.sqrt(np.log(20) / (2 * SIZE)), rtol=1e-12)
        np.testing.assert_allclose(band["y_bottom"], -band["y_top"])
        test = scipy.stats.ks_1samp(draws[:, j], law.cdf)
        peak = artist(figure, "largest", name)
        assert abs(peak["y"].item()) == pytest.approx(test.statistic, abs=3e-6)
        at = law.cdf(test.statistic_location)
        assert peak["x"].item() == pytest.approx(at, abs=3e-6)
        line = artist(figure, "difference", name)
        u = np.sort(law.cdf(draws[:, j]))
        # The curve passes both ends of a jump, and float32 may round a draw past its neighbor.
        x, y = np.asarray(line["x"]), np.asarray(line["y"])
        expected = np.searchsorted(u, x, side="right") / SIZE - x
        assert np.abs(y - expected).max() < 2.01 / SIZE


def test_draws_outside_the_support_are_counted(lin, draws):
    far = draws.copy()
    far[:13, 0] = [-2.5, 2.5] * 6 + [1e30]
    far[20:22, 0] = np.nan
    with pytest.warns(RuntimeWarning, match="level: 2"):
        figure = plot_pit(lin, far, output_names=NAMES, backend="none")
    text = artist(figure, "text", "level")["string"]
    assert text.endswith("\noutside the support: 13")
    assert "outside" not in artist(figure, "text", "slope")["string"]


def test_right_laws_leave_the_band_as_often_as_stated():
    """500 samples of 1000: the chance to leave is 0.05 at most, and 0.048 by Kolmogorov's law."""
    rng = np.random.default_rng(11)
    level = dkw_half_width(1000, 0.95)
    samples = np.sort(rng.uniform(size=(500, 1000)), axis=1)
    left = sum(abs(ecdf_difference(u)[1][1]) > level for u in samples)
    chance = scipy.stats.kstwo(1000).sf(level)
    assert 0.045 < chance <= 0.05
    # Two-sided error rate 2e-3.
    assert scipy.stats.binom.ppf(1e-3, 500, chance) <= left
    assert left <= scipy.stats.binom.ppf(1 - 1e-3, 500, chance)


@given(st.integers(100, 3000), st.integers(0, 2**31))
def test_thinned_curve_keeps_the_largest_difference(count, seed):
    u = np.sort(np.random.default_rng(seed).beta(1.1, 0.9, count))
    curve, peak = ecdf_difference(u)
    exact = scipy.stats.ks_1samp(u, scipy.stats.uniform.cdf).statistic
    assert abs(peak[1]) == pytest.approx(exact, abs=1e-12)
    assert np.abs(curve[1]).max() == abs(peak[1])
    assert curve.shape[1] <= 2 * 1001 + 2


# -- tails -----------------------------------------------------------------------------------------


def test_tails_against_scipy(lin, draws):
    figure = plot_tails(lin, draws, output_names=NAMES, coverage=0.99, backend="none")
    for j, (name, law) in enumerate(zip(NAMES, KNOWN, strict=True)):
        line = artist(figure, "analytic", name)
        at = law.mean() + law.std() * np.asarray(line["x"])
        inside = np.asarray(line["x"]) < 1.73
        np.testing.assert_allclose(
            np.asarray(line["y"])[inside], law.logsf(at)[inside] / np.log(10), atol=2e-4
        )
        for side, sign in (("upper", 1), ("lower", -1)):
            points, bars = artist(figure, side, name), artist(figure, f"{side}_interval", name)
            x, y = np.asarray(points["x"]), np.asarray(points["y"])
            ends = np.asarray(bars["y"]).reshape(-1, 3)
            np.testing.assert_array_equal(np.asarray(bars["x"]).reshape(-1, 3)[:, 0], x)
            for k in range(x.size):
                # The points of the two tails stand a little apart; the count is between them.
                shift = -0.006 * sign * np.max(np.asarray(line["x"]))
                distance = (x[k] - shift) * law.std()
                count = int(np.sum(sign * (draws[:, j] - law.mean()) > distance))
                # SciPy 1.17 finds the ends to an absolute error of 2e-12.
                interval = scipy.stats.binomtest(count, SIZE).proportion_ci(0.99, "exact")
                assert ends[k, 1] == pytest.approx(np.log10(interval.high), abs=1e-8)
                if count == 0:
                    assert np.isnan(y[k])
                    continue
                assert y[k] == pytest.approx(np.log10(count / SIZE), abs=1e-9)
                floor = np.log10(0.3 / SIZE) - 1
                assert ends[k, 0] == pytest.approx(max(np.log10(interval.low), floor), abs=1e-8)


@given(st.integers(1, 10**6), st.floats(0, 1), st.floats(0.5, 0.999))
def test_clopper_pearson_against_scipy(total, fraction, coverage):
    count = round(fraction * total)
    low, high = clopper_pearson(np.array([count]), total, coverage)
    expected = scipy.stats.binomtest(count, total).proportion_ci(coverage, "exact")
    np.testing.assert_allclose([low[0], high[0]], expected, rtol=1e-8, atol=1e-12)


# -- sensitivity -----------------------------------------------------------------------------------


def test_cells_and_values_are_the_indices(backend):
    jacobian = [[1.0, 3.0, 0.0], [0.0, 0.0, 0.0], [3.0, 0.0, 1.0]]
    lin = nuq.Linearization(jnp.zeros(3), jacobian, nuq.Input.box(jnp.zeros(3), 1.0))
    figure = plot_sensitivity(lin, output_names=NAMES, backend=backend)
    texts = figure.viz["values"]["values"].values
    cells = artist(figure, "cells")
    if backend == "matplotlib":
        assert [text.get_text() for text in texts] == ["10", "90", "0", "90", "0", "10"]
        axis = figure.get_viz("figure").axes[0]
        # Row by row from the top.
        assert [text.get_position() for text in texts][:4] == [(0, 0), (1, 0), (2, 0), (0, 2)]
        assert axis.get_ylim() == (2.5, -0.5)
        labels = dict(zip(axis.get_yticks(), axis.get_yticklabels(), strict=True))
        assert labels[0].get_text() == "level"
        assert axis.get_title() == "share of the variance of each output (%)"
        # Dark on light cells, light on dark ones.
        assert [text.get_color() for text in texts][:3] == ["black", "white", "black"]
        values = cells.get_array().filled(np.nan)
    else:
        values = cells["values"]
        assert figure.viz["unknown"]["values"].values[0]["string"] == "constant"
    np.testing.assert_allclose(values, [[10, 90, 0], 3 * [np.nan], [90, 0, 10]], atol=1e-4)


def test_correlated_inputs_are_announced():
    factor = jnp.array([[1.0, 0.0], [0.8, 0.6]])
    lin = nuq.Linearization([0.0], [[1.0, 1.0]], nuq.Input.normal(jnp.zeros(2), scale_tril=factor))
    figure = plot_sensitivity(lin, backend="matplotlib")
    assert "need not sum to 100" in figure.get_viz("figure").axes[0].get_title()


# -- wrong arguments -------------------------------------------------------------------------------

BATCHED = nuq.Linearization(jnp.zeros((2, 3)), jnp.ones((3, 3)), nuq.Input.box(jnp.zeros(3), 1.0))
WRONG = [
    (plot_pit, {"coverage": 1.0}, ValueError, "coverage must lie between 0 and 1, got 1.0"),
    (plot_pit, {"draws": np.zeros((200, 2))}, ValueError, r"\(n, 3\), got \(200, 2\)"),
    (plot_pit, {"outputs": ["x"]}, TypeError, "outputs must be .* got 'x'"),
    (plot_tails, {"coverage": 0}, ValueError, "coverage must lie between 0 and 1"),
    (plot_tails, {"output_names": ["a"]}, ValueError, "one name per output, 3, got 1"),
    (plot_output_band, {"x": [0, 1]}, ValueError, r"position per output, got shape \(2,\); pass 3"),
    (plot_output_band, {"x": [0, 2, 1]}, ValueError, "finite and ascending"),
    (plot_output_band, {"x": ["a", "b", "c"]}, TypeError, "x must be real numbers"),
    (plot_output_band, {"num_bins": 0}, ValueError, "positive integer, got 0"),
]


def test_wrong_arguments_are_named(lin, draws):
    for plot, wrong, error, message in WRONG:
        with pytest.raises(error, match=message):
            plot(**{"marginals": lin, "draws": draws, "backend": "none"} | wrong)


def test_wrong_laws_are_named(lin):
    one = nuq.LinearizedMarginal(jnp.zeros(1), jnp.ones((1, 2)))
    with pytest.raises(ValueError, match="two or more outputs, got 1"):
        plot_output_band(one, backend="none")
    with pytest.raises(ValueError, match=r"no batch shape, got \(2,\)"):
        plot_sensitivity(BATCHED, backend="none")
    with pytest.raises(
        TypeError,
        match="linearization must be a Linearization or another LinearModel, got LinearizedM",
    ):
        plot_sensitivity(one, backend="none")
    with pytest.raises(ValueError, match="one name per input, 3, got 1"):
        plot_sensitivity(lin, input_names=["a"], backend="none")


def test_too_few_finite_draws_are_named(lin, draws):
    sparse = draws[:150].copy()
    sparse[:60, 1] = np.inf
    for plot in (plot_pit, plot_tails):
        with (
            pytest.warns(RuntimeWarning, match="slope: 60"),
            pytest.raises(ValueError, match="100 finite draws, got slope: 90"),
        ):
            plot(lin, sparse, output_names=NAMES, backend="none")
