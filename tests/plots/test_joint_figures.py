"""Figures of joint laws: regions that hold their masses, heat maps, slices, messages."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from nn_uq_dist import InputLaw, Linearization
from nn_uq_dist.plots._plot_correlation import plot_correlation
from nn_uq_dist.plots._plot_joint import plot_joint
from nn_uq_dist.plots._plot_three_point import plot_three_point
from nn_uq_dist.plots.parts._drawn_law import drawn_law
from nn_uq_dist.plots.parts._regions import kernel_region

pytestmark = [pytest.mark.slow, pytest.mark.viz]

MASSES = (0.5, 0.9, 0.99)
NAMES = ["level", "slope", "bend", "twist"]
NUM_DRAWS = 20_000


@pytest.fixture(scope="module")
def boxed():
    jacobian = [[2.0, 0.5, 0.1, 1.0], [1.5, -0.5, 0.3, 0.0], [0.3, 0.3, 1.0, 1.0], [1.0, 1.0, 1, 1]]
    return Linearization([0.0, 100.0, -5.0, 1.0], jacobian, InputLaw(jnp.zeros(4), 1.0))


@pytest.fixture(scope="module")
def draws(boxed):
    return np.asarray(boxed.sample(jax.random.key(0), (NUM_DRAWS,)))


def normal(correlation, sd=(1.0, 1.0, 1.0)):
    """Return a linearization whose outputs are normal with this correlation matrix."""
    size = len(correlation)
    factor = np.diag(sd[:size]) @ np.linalg.cholesky(correlation)
    law = InputLaw(jnp.zeros(size), scale_tril=jnp.eye(size))
    return Linearization(jnp.arange(size) * 10.0, factor, law)


def drawn_copula(lin, shown, correlation="nataf"):
    law = lin.gaussian_copula(correlation=correlation, min_eigenvalue=None)
    return drawn_law(law, lin, shown, NAMES)


def inside(points, lines):
    """Fraction of the points within closed lines, given as NaN-separated x and y."""
    from matplotlib.path import Path

    x, y = lines
    pieces = np.split(np.stack([x, y], axis=1), np.flatnonzero(np.isnan(x)))
    crossings = [Path(p[~np.isnan(p[:, 0])]).contains_points(points) for p in pieces]
    return np.mean(np.sum(crossings, axis=0) % 2)


def assert_holds(fraction, mass, count, slack=0.0):
    """Five standard deviations of a binomial count: one false alarm in two million."""
    assert abs(fraction - mass) < 5 * np.sqrt(mass * (1 - mass) / count) + slack


@pytest.mark.parametrize(
    ("r", "law"), [(0.0, "joint"), (0.7, "copula"), (-0.95, "joint"), (0.999, "copula")]
)
def test_levels_of_a_normal_law_are_those_of_chi_square(r, law):
    lin = normal([[1, r], [r, 1]], sd=(2.0, 0.1))
    if law == "copula":
        law = lin.gaussian_copula(min_eigenvalue=None)
    figure = plot_joint(lin, masses=MASSES, law=law, backend="none")
    levels = figure.viz["levels"]["analytic"].values[0]
    peak = 1 / (2 * np.pi * 0.2 * np.sqrt(1 - r**2))
    np.testing.assert_allclose(
        levels, peak * np.exp(-scipy.stats.chi2.ppf(MASSES, 2) / 2), rtol=0.03
    )
    assert "monte_carlo" not in figure.viz["levels"].data_vars


@pytest.mark.parametrize("law", ["copula", "joint"])
def test_lines_enclose_their_masses(boxed, draws, law):
    """A copula is checked against its own draws."""
    if law == "copula":
        draws = np.asarray(boxed.gaussian_copula().sample(jax.random.key(1), (NUM_DRAWS,)))
    figure = plot_joint(boxed, draws, outputs=[1, 0, 2], law=law, backend="none")
    order = [1, 0, 2]
    for a, b in ((0, 1), (0, 2), (1, 2)):
        points = draws[:, [order[a], order[b]]]
        lines = figure.viz["contour"].values[b, a]
        for mass, line in zip(MASSES, lines, strict=True):
            assert_holds(inside(points, (line["x"], line["y"])), mass, NUM_DRAWS, slack=2e-3)


def test_regions_of_draws_enclose_their_masses(draws):
    for pair in ([0, 1], [2, 0]):
        points = draws[:, pair].astype(float)
        region = kernel_region(points, MASSES, ("a", "b"))
        for mass, line in zip(MASSES, region.lines(), strict=True):
            # The level is taken from the same draws: only the grid is left as an error.
            assert inside(points, line) == pytest.approx(mass, abs=2e-3)


@pytest.mark.parametrize("r", [0.3, 0.99999])
def test_density_of_draws_is_that_of_a_smoothed_normal_law(r):
    """Scott's kernel widens a normal law by the factor 1 + n^(-1/3) in its covariance."""
    count = 50_000
    covariance = np.array([[1, r], [r, 1]])
    points = np.random.default_rng(0).multivariate_normal([3, -2], covariance, count)
    region = kernel_region(points, MASSES, ("a", "b"))
    at = np.stack([region.x, region.y], axis=-1)
    wide = scipy.stats.multivariate_normal([3, -2], covariance * (1 + count ** (-1 / 3)))
    error = np.abs(region.density - wide.pdf(at))
    assert error.max() < 0.05 * wide.pdf([3, -2])


def test_copula_region_has_the_density_of_the_joint_law(boxed):
    pair = (2, 3)
    region = drawn_copula(boxed, pair).region((0, 1), MASSES)
    middle = slice(40, -40, 8)  # scores within 2.5
    points = np.stack([region.x, region.y], axis=-1)[middle, middle]
    known = np.exp(boxed.gaussian_copula().marginalize(pair).log_prob(jnp.asarray(points)))
    np.testing.assert_allclose(region.density[middle, middle], known, rtol=5e-3)


@pytest.mark.parametrize("value", [-5.8, -4.0])
def test_copula_slice_is_the_conditional_law(boxed, value):
    shown = (0, 1, 2)
    (region,) = drawn_copula(boxed, shown).slices([value], MASSES)
    middle = slice(56, -56, 4)  # within 1.5 standard deviations of the scores
    points = np.stack([region.x, region.y], axis=-1)[middle, middle]
    given = boxed.gaussian_copula().marginalize(shown).condition(2, value)
    np.testing.assert_allclose(
        region.density[middle, middle], np.exp(given.log_prob(jnp.asarray(points))), rtol=5e-3
    )


@pytest.mark.parametrize("law", ["copula", "joint"])
def test_slices_of_a_normal_law(law):
    correlation = np.array([[1, 0.5, -0.8], [0.5, 1, -0.3], [-0.8, -0.3, 1]])
    lin = normal(correlation, sd=(2.0, 1.0, 0.5))
    scale = np.diag([2.0, 1.0, 0.5])
    covariance = scale @ correlation @ scale
    value = 20.6
    if law == "copula":
        drawn = drawn_copula(lin, (0, 1, 2), "linear")
    else:
        drawn = drawn_law(law, lin, (0, 1, 2), NAMES)
    (region,) = drawn.slices([value], MASSES)
    whole = scipy.stats.multivariate_normal([0, 10, 20], covariance)
    middle = slice(40, -40, 4)
    x, y = region.x[middle, middle], region.y[middle, middle]
    known = whole.pdf(np.stack([x, y, np.full(x.shape, value)], axis=-1))
    known /= scipy.stats.norm(20, 0.5).pdf(value)
    np.testing.assert_allclose(
        region.density[middle, middle], known, rtol=0.01, atol=1e-3 * known.max()
    )
    given = covariance[:2, :2] - np.outer(covariance[:2, 2], covariance[2, :2]) / covariance[2, 2]
    peak = 1 / (2 * np.pi * np.sqrt(np.linalg.det(given)))
    # A level over the peak is the mass beyond it; half a cell of a grid of 128 points is 0.004.
    np.testing.assert_allclose(region.levels / peak, 1 - np.array(MASSES), atol=5e-3)


def test_plateau_is_one_region():
    """Where the density is constant all regions are the support, a square of area 4."""
    lin = Linearization(jnp.zeros(2), jnp.eye(2), InputLaw(jnp.zeros(2), 1.0))
    region = drawn_copula(lin, (0, 1), "linear").region((0, 1), MASSES)
    for x, y in region.lines():
        assert np.ptp(x) == pytest.approx(2, abs=1e-3)
        assert np.ptp(y) == pytest.approx(2, abs=1e-3)
    exact = drawn_law("joint", lin, (0, 1), ("a", "b")).region((0, 1), MASSES)
    for x, y in exact.lines():
        assert 1.6 < np.ptp(x) < 2.2
        assert 1.6 < np.ptp(y) < 2.2


def test_diagonal_shows_the_marginals(boxed, draws):
    figure = plot_joint(boxed, draws, outputs=[0, 1], output_names=NAMES, backend="none")
    line = figure.viz["density"].values[0, 0]
    # Four independent uniforms with these half-widths: by convolution on a grid.
    x = np.linspace(-4, 4, 8001)
    density = np.where(np.abs(x) <= 2, 0.25, 0)
    for width in (0.5, 0.1, 1.0):
        box = np.where(np.abs(x) <= width, 1.0, 0)
        density = np.convolve(density, box / box.sum(), mode="same")
    np.testing.assert_allclose(np.interp(x, line["x"], line["y"]), density, atol=2e-3)
    bars = figure.viz["histogram"].values[1, 1]
    left, right = np.asarray(bars["l_e"]), np.asarray(bars["r_e"])
    count, _ = np.histogram(draws[:, 1], [*left, right[-1]])
    np.testing.assert_allclose(bars["y"], count / (NUM_DRAWS * (right - left)), atol=0.01)


def test_corner_in_matplotlib_is_labelled_and_changes_no_style(boxed, draws, tmp_path):
    import matplotlib as mpl

    before = dict(mpl.rcParams)
    figure = plot_joint(
        boxed, draws, outputs=["bend", 0, 1], output_names=NAMES, law="copula", unit="m",
        backend="matplotlib",
    )  # fmt: skip
    figure.savefig(tmp_path / "joint.png")
    assert dict(mpl.rcParams) == before
    assert type(figure).__name__ == "PlotMatrix"
    fig = figure.get_viz("figure")
    axes = np.array(fig.axes).reshape(3, 3)
    assert [a.get_xlabel() for a in axes[2]] == ["bend (m)", "level (m)", "slope (m)"]
    assert [a.get_ylabel() for a in axes[:, 0]] == ["", "level (m)", "slope (m)"]
    for row in range(3):
        for column in range(row + 1, 3):
            assert not axes[row, column].has_data()
        assert len({tuple(axes[k, row].get_xlim()) for k in range(row, 3)}) == 1
    filled = axes[2, 0].collections[0]
    stored = figure.viz["levels"]["monte_carlo"].sel(pair="bend, slope").values
    np.testing.assert_allclose(filled.levels[:-1], stored[::-1])
    texts = [text.get_text() for text in fig.legends[0].get_texts()]
    names = ["Monte Carlo 50%", "Monte Carlo 90%", "Monte Carlo 99%"]
    assert texts == ["copula 50, 90, 99%", *names]


@pytest.mark.parametrize("kind", ["joint", "correlation", "three_point"])
def test_nothing_overlaps_or_leaves_the_figure(boxed, draws, kind):
    if kind == "joint":
        figure = plot_joint(boxed, draws, unit="m", backend="matplotlib")
    elif kind == "correlation":
        figure = plot_correlation(boxed, draws, output_names=NAMES, backend="matplotlib")
    else:
        figure = plot_three_point(boxed, draws, (0, 1, 2), backend="matplotlib")
    fig = figure.get_viz("figure")
    fig.canvas.draw()
    shown = [a for a in fig.axes if a.has_data() or a.get_label() == "<colorbar>"]
    boxes = [a.get_tightbbox() for a in shown] + [x.get_window_extent() for x in fig.legends]
    assert fig.get_size_inches()[0] <= 7.2
    for j, box in enumerate(boxes):
        assert box.x0 >= fig.bbox.x0 - 1
        assert box.x1 <= fig.bbox.x1 + 1
        assert box.y0 >= fig.bbox.y0 - 1
        assert box.y1 <= fig.bbox.y1 + 1
        assert not any(smaller(box).overlaps(smaller(other)) for other in boxes[:j])


def smaller(box):
    return type(box).from_extents(box.x0 + 2, box.y0 + 2, box.x1 - 2, box.y1 - 2)


@pytest.mark.parametrize("law", ["joint", "copula"])
def test_correlation_cells(boxed, draws, law):
    figure = plot_correlation(
        boxed, draws, law=law, outputs=[3, 1, 0], output_names=NAMES, backend="none"
    )
    cells = {name: figure.viz["heatmap"]["correlation"].sel(panel=name).item()["values"]
             for name in ("Monte Carlo", "analytic", "difference")}  # fmt: skip
    np.testing.assert_allclose(
        cells["Monte Carlo"], np.corrcoef(draws[:, [3, 1, 0]].T.astype(float)), atol=1e-9
    )
    root = np.asarray(boxed.jacobian, float)[[3, 1, 0]]
    root /= np.linalg.norm(root, axis=1, keepdims=True)
    np.testing.assert_allclose(cells["analytic"], root @ root.T, atol=2e-3)
    np.testing.assert_array_equal(cells["difference"], cells["analytic"] - cells["Monte Carlo"])
    limits = figure.viz["heatmap"]["correlation"].sel(panel="difference").item()["limits"]
    largest = np.abs(cells["difference"]).max()
    assert limits == (-largest, largest)


def test_correlation_in_matplotlib(boxed, draws, tmp_path):
    import matplotlib as mpl

    before = dict(mpl.rcParams)
    figure = plot_correlation(boxed, draws, output_names=NAMES, backend="matplotlib")
    figure.savefig(tmp_path / "correlation.png")
    assert dict(mpl.rcParams) == before
    axes = figure.get_viz("figure").axes
    assert [a.get_title() for a in axes[:3]] == [
        "Monte Carlo", "analytic, model", "analytic - Monte Carlo"
    ]  # fmt: skip
    assert [t.get_text() for t in axes[0].get_yticklabels()] == NAMES
    texts = np.array([float(t.get_text()) for t in axes[0].texts]).reshape(4, 4)
    np.testing.assert_allclose(texts, np.corrcoef(draws.T.astype(float)), atol=0.0051)
    assert len(axes) == 6  # with a color bar each
    assert axes[5].get_xlabel().startswith("largest 0.")


def test_many_outputs_and_constant_ones():
    jacobian = jax.random.normal(jax.random.key(3), (31, 5)).at[4].set(0)
    lin = Linearization(jnp.zeros(31), jacobian, InputLaw(jnp.zeros(5), 1.0))
    draws = np.asarray(lin.sample(jax.random.key(0), (500,)))
    figure = plot_correlation(lin, draws, backend="matplotlib")
    axes = figure.get_viz("figure").axes
    assert not axes[0].texts
    assert 6 <= len(axes[0].get_xticks()) <= 12
    cells = figure.data["correlation"].values
    assert np.isnan(cells[:, 4]).all()
    assert np.isfinite(np.delete(np.delete(cells, 4, 1), 4, 2)).all()


def test_three_points(boxed, draws, tmp_path):
    import matplotlib as mpl

    before = dict(mpl.rcParams)
    figure = plot_three_point(
        boxed, draws, ["slope", 0, "bend"], output_names=NAMES, unit="m",
        quantiles=(0.2, 0.8), backend="matplotlib",
    )  # fmt: skip
    figure.savefig(tmp_path / "three.png")
    assert dict(mpl.rcParams) == before
    axes = np.array(figure.get_viz("figure").axes).reshape(2, 2)
    values = np.quantile(draws[:, 2].astype(float), [0.2, 0.8])
    assert [a.get_title() for a in axes[0]] == [
        f"bend = {v:.4g} m\n({p}% quantile)" for v, p in zip(values, (20, 80), strict=True)
    ]
    assert axes[0, 0].get_ylabel() == "linear joint\nlevel (m)"
    assert axes[1, 0].get_ylabel() == "Monte Carlo\nlevel (m)"
    assert [a.get_xlabel() for a in axes[1]] == ["slope (m)"] * 2
    for column in range(2):
        assert axes[0, column].get_xlim() == axes[1, column].get_xlim()
        levels = figure.data["level"].isel(quantile=column)
        for row in range(2):
            np.testing.assert_allclose(
                axes[row, column].collections[0].levels[:-1], levels.values[row, ::-1]
            )


def test_lines_of_a_slice_enclose_their_masses(boxed):
    """Of exact draws of the linear law, those next to the value of the third output."""
    draws = np.asarray(boxed.sample(jax.random.key(5), (200_000,)), float)
    figure = plot_three_point(boxed, draws, (0, 1, 2), backend="none")
    for q in (0.1, 0.5, 0.9):
        value = np.quantile(draws[:, 2], q)
        near = draws[np.argsort(np.abs(draws[:, 2] - value))[:2000], :2]
        lines = figure.viz["contour"]["level"].sel(law="analytic", quantile=q).values
        for mass, line in zip(MASSES, lines, strict=True):
            assert_holds(inside(near, (line["x"], line["y"])), mass, 2000, slack=5e-3)


# Lines of the density on a grid are straight between its points.
@pytest.mark.parametrize(("law", "tolerance"), [("copula", 0.01), (None, 0.02)])
def test_lines_of_slices_of_a_normal_law(law, tolerance):
    correlation = np.array([[1, 0.5, 0.3], [0.5, 1, 0.4], [0.3, 0.4, 1]])
    lin = normal(correlation)
    draws = np.asarray(lin.sample(jax.random.key(0), (200_000,)))
    figure = plot_three_point(lin, draws, (0, 1, 2), quantiles=(0.5,), law=law, backend="none")
    value = np.quantile(draws[:, 2], 0.5)
    column = correlation[:2, 2]
    given = scipy.stats.multivariate_normal(
        [0, 10] + column * (value - 20), correlation[:2, :2] - np.outer(column, column)
    )
    peak = given.pdf(given.mean)
    lines = figure.viz["contour"]["level"].sel(law="analytic").values[0]
    for mass, line in zip(MASSES, lines, strict=True):
        points = np.stack([line["x"], line["y"]], axis=-1)
        np.testing.assert_allclose(given.pdf(points) / peak, 1 - mass, atol=tolerance)
    filled = figure.viz["filled"]["level"].sel(law="Monte Carlo").item()
    error = filled["density"].T - given.pdf(np.stack([filled["x"], filled["y"]], axis=-1))
    # At the peak the kernel takes off 4%, and 20,000 draws in the window scatter by 2.6%.
    assert np.abs(error).max() < 0.17 * peak


@pytest.mark.parametrize(("law", "backend"), [("copula", "none"), ("joint", "matplotlib")])
def test_slice_outside_the_support_says_so(boxed, draws, law, backend):
    shifted = draws + np.array([0, 0, 30, 0])
    figure = plot_three_point(boxed, shifted, (0, 1, 2), law=law, quantiles=(0.5,), backend=backend)
    levels = figure.data["level"].isel(quantile=0)
    assert np.isnan(levels.sel(law="analytic")).all()
    assert np.isfinite(levels.sel(law="Monte Carlo")).all()
    if backend == "matplotlib":
        (text,) = figure.get_viz("figure").axes[0].texts
        assert text.get_text() == "outside the\nanalytic support"


def test_visuals_are_switched_off(boxed, draws):
    off = {"filled": False, "histogram": False, "legend": False}
    figure = plot_joint(boxed, draws, outputs=[0, 1], visuals=off, backend="matplotlib")
    assert not figure.get_viz("figure").legends
    assert "filled" not in figure.viz.data_vars
    off = {"values": False, "colorbar": False, "difference": False}
    figure = plot_correlation(boxed, draws, visuals=off, backend="matplotlib")
    assert len(figure.get_viz("figure").axes) == 3
    assert not figure.get_viz("figure").axes[0].texts
    off = {"analytic": False, "contour": False}
    figure = plot_three_point(boxed, draws, (0, 1, 2), visuals=off, backend="matplotlib")
    axes = figure.get_viz("figure").axes
    assert [len(a.collections) for a in axes] == [0, 0, 0, 1, 1, 1]


def test_figures_are_drawn_into_given_collections(boxed, draws):
    first = plot_joint(boxed, outputs=[0, 1], backend="matplotlib")
    again = plot_joint(boxed, draws, outputs=[0, 1], plot_collection=first)
    assert again is first
    assert len(first.get_viz("figure").axes) == 4
    first = plot_correlation(boxed, draws, backend="none")
    assert plot_correlation(boxed, draws, plot_collection=first) is first
    first = plot_three_point(boxed, draws, (0, 1, 2), backend="none")
    assert plot_three_point(boxed, draws, (0, 1, 2), plot_collection=first) is first


def test_draws_that_are_not_finite_are_left_out(boxed, draws):
    broken = draws.copy()
    broken[::10, 0] = np.nan
    kept = np.delete(draws, np.s_[::10], axis=0)
    for plot in (
        lambda x: plot_joint(x[0], x[1], outputs=[0, 1], backend="none").viz[
            "levels"]["monte_carlo"],
        lambda x: plot_correlation(*x, backend="none").data["correlation"],
        lambda x: plot_three_point(*x, (0, 1, 2), backend="none").data["level"],
    ):  # fmt: skip
        with pytest.warns(RuntimeWarning, match=r"y\[0\]: 2000"):
            found = plot((boxed, broken))
        np.testing.assert_array_equal(found.values, plot((boxed, kept)).values)


OF_JOINT = [
    ({"outputs": [0]}, ValueError, r"outputs must name 2 to 6 outputs, got 1; pass"),
    ({"outputs": range(7)}, ValueError, r"outputs must name 2 to 6 outputs, got 7; pass"),
    ({}, ValueError, r"outputs must name 2 to 6 outputs, got 8; pass"),
    ({"outputs": ["a", 0]}, ValueError, "outputs must name outputs, got 'a'"),
    ({"outputs": [0, 9]}, ValueError, "outputs must name outputs of 8, got unknown index 9"),
    ({"outputs": [0, 1], "masses": (0.5, 1.0)}, ValueError, "masses must lie between 0 and 1"),
    ({"outputs": [0, 1], "masses": (0.5, 0.5)}, ValueError, "and differ, got"),
    ({"outputs": [0, 1], "masses": 0.5}, TypeError, "masses must be a sequence of numbers"),
    (
        {"outputs": [0, 1], "law": "exact"},
        ValueError,
        "law must be 'joint' or 'copula'",
    ),
    ({"outputs": [0, 1], "visuals": {"bands": True}}, ValueError, "visuals must have keys"),
    ({"outputs": [0, 1], "draws": np.zeros((200, 3))}, ValueError, "draws must have shape"),
    ({"outputs": [0, 1], "draws": np.zeros((8, 200))}, ValueError, "pass its transpose"),
    ({"outputs": [0, 1], "draws": np.zeros((200, 8))}, ValueError, "y.0. and y.1. that lie on"),
    (
        {"outputs": [0, 7], "law": "joint"},
        ValueError,
        r"outputs must vary and be linearly independent .* got y\[0\], y\[7\]; pass law='copula'",
    ),
]


def test_messages_of_joint():
    jacobian = jax.random.normal(jax.random.key(0), (8, 9))
    jacobian = jacobian.at[7].set(-2 * jacobian[0])
    lin = Linearization(jnp.zeros(8), jacobian, InputLaw(jnp.zeros(9), 1.0))
    for arguments, error, message in OF_JOINT:
        with pytest.raises(error, match=message):
            plot_joint(lin, **{"backend": "none", **arguments})


def test_dependent_outputs_have_a_copula_figure():
    """The floor under the eigenvalues leaves a narrow density, which the skewed grid resolves."""
    law = InputLaw(jnp.zeros(2), 1.0)
    lin = Linearization(jnp.zeros(2), [[1.0, 2.0], [2.0, 4.0]], law)
    figure = plot_joint(lin, law="copula", backend="none")
    points = np.asarray(lin.gaussian_copula().sample(jax.random.key(0), (NUM_DRAWS,)), float)
    for mass, line in zip(MASSES, figure.viz["contour"].values[1, 0], strict=True):
        assert_holds(inside(points, (line["x"], line["y"])), mass, NUM_DRAWS, slack=5e-3)


OF_CORRELATION = [
    ({"outputs": [0]}, ValueError, "outputs must name at least 2 outputs, got 1"),
    ({"law": "nataf"}, ValueError, "law must be 'joint' or 'copula', got 'nataf'"),
    ({"draws": np.zeros((99, 4))}, ValueError, "draws must hold at least 100 rows, got 99"),
    ({"output_names": ["a"]}, ValueError, "output_names must hold one name per output, 4"),
    (
        {"linearization": 3},
        TypeError,
        "linearization must be a Linearization or another LinearModel, got int",
    ),
]


def test_messages_of_correlation(boxed, draws):
    for arguments, error, message in OF_CORRELATION:
        given = {"linearization": boxed, "draws": draws, "backend": "none", **arguments}
        with pytest.raises(error, match=message):
            plot_correlation(**given)


@pytest.mark.filterwarnings("ignore:some of 200 draws")
def test_correlation_needs_finite_rows(boxed, draws):
    few = draws[:200].copy()
    few[:101, 1] = np.inf
    with pytest.raises(ValueError, match=r"at least 100 rows that are finite .* got 99"):
        plot_correlation(boxed, few, backend="none")


OF_THREE_POINTS = [
    ({"outputs": (0, 1)}, r"outputs must name 3 outputs, got 2; pass \(horizontal"),
    ({"outputs": (0, 1, 1)}, "outputs must be distinct, got 1 twice"),
    ({"quantiles": (0.5, 0.5)}, "quantiles must lie between 0 and 1 and differ"),
    ({"quantiles": (0.0,)}, "quantiles must lie between 0 and 1"),
    ({"window": 0}, "window must lie between 0 and 1, got 0"),
    ({"window": 0.001}, r"at least 100 finite rows in each window, got 20 of 20000"),
    ({"law": "exact"}, "law must be 'joint' or 'copula'"),
    ({"outputs": (0, 1, 3)}, r"got y\[0\], y\[1\], y\[3\]; pass law='copula'"),
]


def test_messages_of_three_points(boxed, draws):
    jacobian = boxed.jacobian.at[3].set(boxed.jacobian[0] - boxed.jacobian[1])
    flat = Linearization(boxed.loc, jacobian, boxed.input)
    for arguments, message in OF_THREE_POINTS:
        given = {"outputs": (0, 1, 2), "backend": "none", **arguments}
        with pytest.raises(ValueError, match=message):
            plot_three_point(flat if 3 in given["outputs"] else boxed, draws, **given)


def test_constant_output_is_named_or_left_out():
    jacobian = np.array([[1.0, 0.0, 0.5], [0.0, 0.0, 0.0], [0.3, 1.0, 1.0]])
    lin = Linearization(jnp.zeros(3), jacobian, InputLaw(jnp.zeros(3), 1.0))
    with pytest.raises(ValueError, match=r"outputs must vary .* got y\[0\], y\[1\]; pass law="):
        plot_joint(lin, backend="none")
    assert plot_joint(lin, outputs=(0, 2), backend="none").viz.children
    one = Linearization(jnp.zeros(1), jacobian[:1], InputLaw(jnp.zeros(3), 1.0))
    with pytest.raises(ValueError, match="got 1; use plot_marginals"):
        plot_joint(one, backend="none")
