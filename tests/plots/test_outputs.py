"""Figures of single outputs: what they draw against SciPy and brute force."""

import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import numpyro.distributions as dist
import pytest
import scipy.stats

import nn_uq_dist as nuq
from nn_uq_dist.inference import SobolIndices
from nn_uq_dist.plots import (
    plot_band,
    plot_calibration,
    plot_marginals,
    plot_sensitivity,
    plot_tails,
)
from nn_uq_dist.plots._plot_outputs import difference_words, ecdf_difference, tail_shares

pytestmark = pytest.mark.viz

NAMES = ["level", "slope", "bend"]
SIZE = 4000
LEVELS = [0.05, 0.25, 0.5, 0.75, 0.95]
# Two tails and one end, none of them symmetric.
KNOWN = {
    "gumbel": (
        dist.Gumbel(jnp.array([0.0, 100.0, -5.0]), jnp.array([1.0, 3.0, 0.2])),
        [scipy.stats.gumbel_r(*of) for of in ((0, 1), (100, 3), (-5, 0.2))],
    ),
    "exponential": (
        dist.Exponential(jnp.array([1.0, 0.5, 4.0])),
        [scipy.stats.expon(0, scale) for scale in (1, 2, 0.25)],
    ),
}


def known_case(name):
    """Distributions of three outputs, each of them in SciPy, and draws."""
    distribution, references = KNOWN[name]
    rng = np.random.default_rng(5)
    draws = np.stack([r.rvs(SIZE, random_state=rng) for r in references], axis=1)
    return distribution, references, draws


@pytest.fixture(params=KNOWN)
def known(request):
    """Both cases: with two tails, and with an end."""
    return known_case(request.param)


@pytest.fixture
def gumbel():
    """The case with two tails alone."""
    return known_case("gumbel")


def lines(axis):
    return {line.get_label(): np.array(line.get_data(), float) for line in axis.lines}


def test_marginals(known):
    distribution, references, draws = known
    figure = plot_marginals(distribution, draws, output_names=NAMES, units={"slope": "m"})
    assert [axis.get_xlabel() for axis in figure.axes] == ["level", "slope (m)", "bend"]
    for axis, reference, column in zip(figure.axes, references, draws.T, strict=True):
        x, y = lines(axis)["predicted density"]
        expected = reference.pdf(x)
        expected[0] = y[0]  # at an end of the support the density may jump
        np.testing.assert_allclose(y, expected, rtol=1e-4, atol=1e-5 * expected.max())
        # All but a ten-thousandth of the distribution and of the draws.
        low = min(reference.ppf(1e-4), np.quantile(column, 1e-4))
        assert x[0] == pytest.approx(low, rel=1e-4, abs=1e-6)
        bands = [patch.get_paths()[0].vertices[:, 0] for patch in axis.collections[:2]]
        ends = [bands[0].min(), bands[1].min(), bands[1].max(), bands[0].max()]
        np.testing.assert_allclose(ends, reference.ppf([0.05, 0.25, 0.75, 0.95]), rtol=1e-4)
        (bars,) = (patch for patch in axis.patches if hasattr(patch, "get_data"))
        heights, edges, _ = bars.get_data()
        counts, _ = np.histogram(column, edges)
        np.testing.assert_allclose(heights * SIZE * np.diff(edges), counts, atol=1e-6)
        assert counts.sum() >= SIZE - 2
        assert axis.get_ylim()[1] > heights.max()


@pytest.mark.parametrize("plot", [plot_marginals, plot_tails])
def test_limits_have_their_probability_and_stay_in_view(gumbel, plot):
    distribution, references, draws = gumbel
    limits = {"level": [references[0].ppf(0.99), -3.0], "bend": references[2].ppf(0.3)}
    figure = plot(distribution, draws, output_names=NAMES, limits=limits)
    far, low, bend = (t.get_text() for k in (0, 2) for t in figure.axes[k].texts)
    assert far.startswith(f"P(> {limits['level'][0]:g}) = 0.010\ndraws 0.0")
    share = np.mean(draws[:, 0] > limits["level"][0])
    error = 1.96 * np.sqrt(share * (1 - share) / len(draws))
    numbers = far.rsplit("draws ", 1)[1].split(" ± ")

    np.testing.assert_allclose([float(x) for x in numbers], [share, error], atol=0.5 * error)
    assert low.startswith(f"P(< -3) = {references[0].cdf(-3):.2g}")
    assert bend.startswith(f"P(< {limits['bend']:g}) = 0.30\n")
    assert not figure.axes[1].texts
    for k, own in ((0, limits["level"]), (2, limits["bend"])):
        left, right = figure.axes[k].get_xlim()
        assert left < np.min(own) <= np.max(own) < right


@pytest.mark.parametrize("plot", [plot_marginals, plot_tails])
def test_the_legend_of_given_axes_leaves_a_limit_free(plot):
    for limit in (-2.0, 2.0):
        figure, axis = plt.subplots(figsize=(6, 4))
        plot(dist.Normal(jnp.zeros(1), 1.0), limits=limit, ax=axis)
        figure.canvas.draw()
        box = axis.get_legend().get_window_extent().transformed(axis.transData.inverted())
        assert not box.x0 < limit < box.x1


def test_a_limit_is_rounded_as_the_draws_are():
    draws = np.float32([[0.1]] * 200 + [[0.05]] * 100)
    figure = plot_marginals(dist.Normal(jnp.zeros(1), 0.04), draws, limits=0.1)
    assert figure.axes[0].texts[0].get_text().endswith("\ndraws 0")


def test_tails(known):
    distribution, references, draws = known
    figure = plot_tails(distribution, draws)
    for axis, reference, column in zip(figure.axes, references, draws.T, strict=True):
        drawn = lines(axis)
        x, y = drawn["predicted"]
        expected = np.minimum(reference.cdf(x), reference.sf(x))
        np.testing.assert_allclose(y, expected, rtol=3e-3)
        assert y[0] == pytest.approx(0.3 / SIZE, rel=1e-6)
        at, share = drawn["draws, 95% interval"]
        sides = list(zip(at, at > reference.median(), strict=True))
        np.testing.assert_allclose(at[-1], max(column.max(), x[-1]), rtol=1e-6)
        count = np.array([np.sum((column > y) if u else (column < y)) for y, u in sides])
        np.testing.assert_allclose(share, np.where(count > 0, count / SIZE, np.nan))
        intervals = [
            scipy.stats.binomtest(int(k), SIZE).proportion_ci(0.95, "exact") for k in count
        ]
        ends = [
            [max(i.low, 0.3 / SIZE), i.high] for i, k in zip(intervals, count, strict=True) if k
        ]
        found = [path.vertices[:, 1] for path in axis.collections[0].get_paths()]
        np.testing.assert_allclose(found, ends, rtol=1e-6)
        highest = [i.high for i, k in zip(intervals, count, strict=True) if not k]
        np.testing.assert_allclose(drawn["no draw: at most"][1], highest, rtol=1e-6)
    figure = plot_tails(distribution)
    assert lines(figure.axes[0])["predicted"][1].min() == pytest.approx(1e-6)


def test_shares_of_ties_are_those_beyond():
    column = np.array([1.0, 2.0, 2.0, 3.0])
    for is_upper, expected in ((True, [0.75, 0.25, np.nan]), (False, [np.nan, 0.25, 0.75])):
        share, *_ = tail_shares(column, np.array([1.0, 2.0, 3.0]), is_upper=is_upper)
        np.testing.assert_array_equal(share, expected)


def test_calibration(known):
    distribution, references, draws = known
    draws = draws.copy()
    draws[:13, 0] = -0.5 - 0.01 * np.arange(13)  # beyond the end, if there is one
    figure = plot_calibration(distribution, draws, output_names=NAMES, progress=False)
    band = np.sqrt(np.log(40) / (2 * SIZE))
    for j, (axis, reference) in enumerate(zip(figure.axes, references, strict=True)):
        assert axis.get_title() == NAMES[j]
        test = scipy.stats.ks_1samp(draws[:, j], reference.cdf)
        (peak,) = lines(axis)["largest"].T
        assert abs(peak[1]) == pytest.approx(test.statistic, abs=3e-6)
        note = axis.texts[0].get_text()
        assert f"largest {test.statistic:.3f}, band ±{band:.3f}" in note
        is_cut = j == 0 and np.isfinite(reference.support()[0])
        assert ("outside the support: 13" in note) == is_cut
        assert ("no difference beyond chance" in note) == (test.statistic <= band)
        x, y = lines(axis)["difference"]
        u = np.sort(reference.cdf(draws[:, j]))
        # The curve passes both ends of a jump, and float32 may round a draw past its neighbor.
        off = y - np.searchsorted(u, x, side="right") / SIZE + x
        assert np.abs(off[x > 1e-12]).max() < 2.01 / SIZE
    assert len({axis.get_ylim() for axis in figure.axes}) == 1


@pytest.mark.parametrize("deviation", [False, True])
def test_bands_and_error_bars(gumbel, deviation):
    distribution, references, draws = gumbel
    origin = np.array([r.mean() for r in references]) if deviation else 0.0
    expected = np.stack([r.ppf(LEVELS) for r in references], axis=1) - origin
    of_draws = np.quantile(draws, LEVELS, axis=0) - origin
    options = {"output_names": NAMES, "deviation": deviation, "ylabel": "height (m)"}
    x = [0.0, 2.0, 3.0]
    (axis,) = plot_band(distribution, draws, x=x, **options).axes
    (median, *others) = axis.lines
    np.testing.assert_allclose(median.get_data(), [x, expected[2]], rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose([line.get_ydata() for line in others], of_draws, atol=1e-5)
    outer, inner = (band.get_paths()[0].vertices for band in axis.collections)
    for vertices, (k, m) in ((outer, (0, 4)), (inner, (1, 3))):
        for j, place in enumerate(x):
            own = vertices[vertices[:, 0] == place, 1]
            ends = expected[[k, m], j]
            np.testing.assert_allclose([own.min(), own.max()], ends, rtol=1e-3, atol=1e-4)
    assert axis.get_ylabel().startswith("height (m)")

    (axis,) = plot_band(distribution, draws, **options).axes
    assert [text.get_text() for text in axis.get_xticklabels()] == NAMES
    for k, quantiles in enumerate((expected, of_draws)):
        dots = axis.lines[k]
        np.testing.assert_allclose(dots.get_ydata(), quantiles[2], rtol=1e-3, atol=1e-4)
        thin, thick = axis.collections[2 * k : 2 * k + 2]
        for bars, rows in ((thin, [0, 4]), (thick, [1, 3])):
            ends = np.array([path.vertices[:, 1] for path in bars.get_paths()])
            np.testing.assert_allclose(ends.T, quantiles[rows], rtol=1e-3, atol=1e-4)


def test_limits_of_bands():
    distribution, references = KNOWN["gumbel"]
    top = references[1].isf(0.002)
    (axis,) = plot_band(distribution, limits=top, output_names=NAMES).axes
    assert axis.texts[0].get_text() == f"largest P(> {top:g}) = 0.002, at slope"
    assert axis.get_ylim()[1] > top
    (axis,) = plot_band(distribution, limits={"bend": -4.0}, output_names=NAMES).axes
    assert axis.texts[0].get_text() == f"P(> -4) = {references[2].sf(-4):.2g}"
    # The same probability to two digits: a row of places, and places apart.
    for means, words in (([9, 9, 0, 0], "1.5 to 2"), ([9, 0, 0, 9], "1.5 and 1 more")):
        many = dist.Normal(jnp.array(means, jnp.float32)[:, None], 1.0)
        (axis,) = plot_band(many, limits=5.0, x=[1.5, 2.0, 2.5, 3.0]).axes
        assert axis.texts[0].get_text() == f"largest P(> 5) = 1, at {words}"


def test_what_a_difference_says():
    for distribution, words in (
        (scipy.stats.norm(0, 1), "no difference beyond chance"),
        (scipy.stats.norm(0.1, 1), "draws larger than predicted"),
        (scipy.stats.norm(-0.1, 1.03), "draws smaller than predicted"),
        (scipy.stats.norm(0.01, 1.2), "predicted too narrow"),
        (scipy.stats.norm(0, 0.8), "predicted too wide"),
        # Of the same mean and a larger standard deviation, and skewed: three arches.
        (scipy.stats.skewnorm(4, -1.33, 1.72), "draws of another shape than predicted"),
    ):
        draws = distribution.ppf((np.arange(5000) + 0.5) / 5000)
        curve = ecdf_difference(scipy.stats.norm.cdf(draws))
        assert difference_words(curve, np.sqrt(np.log(40) / 10_000)) == words


def test_sensitivity():
    jacobian = [[1.0, 3.0, 0.0], [0.0, 0.0, 0.0], [3.0, 0.0, 1.0]]
    lin = nuq.Linearization(jnp.zeros(3), jacobian, nuq.Input.box(jnp.zeros(3), 1.0))
    (axis,) = plot_sensitivity(lin, output_names=NAMES).axes
    (image,) = axis.images
    shares = [[10, 90, 0], 3 * [np.nan], [90, 0, 10]]
    np.testing.assert_allclose(image.get_array().filled(np.nan), shares, atol=1e-4)
    # Columns are inputs, rows outputs from the top.
    words = {text.get_position(): text.get_text() for text in axis.texts}
    assert words == {(0, 0): "10", (1, 0): "90", (2, 0): "0", (1, 1): "constant",
                     (0, 2): "90", (1, 2): "0", (2, 2): "10"}  # fmt: skip
    assert axis.get_ylim() == (2.5, -0.5)

    shares, errors = np.array([[0.25, -0.01], [0.5, 0.4]]), np.full((2, 2), 0.02)
    found = SobolIndices(shares, shares, errors, errors, ["wind", "tide"], ["a", "b"], 1000)
    (axis,) = plot_sensitivity(found, outputs=["b", "a"]).axes
    assert [text.get_text() for text in axis.texts] == ["50", "40", "25", "0"]
    assert [text.get_text() for text in axis.get_xticklabels()] == ["wind", "tide"]
    wide = nuq.Linearization(jnp.zeros(3), jnp.ones((3, 70)), nuq.Input.box(jnp.zeros(70), 1.0))
    axis, _ = plot_sensitivity(wide).axes
    assert not axis.texts
    assert len(axis.get_xticks()) == 35  # every second name
